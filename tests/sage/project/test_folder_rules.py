"""The rules of a subfolder come with the first result of a tool there, after a mark that no file can know."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.core.tool import caller
from lyra.sage.project.prompt import PATH_ARGUMENTS, rules_heading, with_folder_rules
from lyra.sage.project.rules import ProjectRules
from lyra.tools.builtin import Workspace, builtin_tools
from lyra.tools.wrapped import invoke

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/AGENTS.md").write_text("use tabs in lib")
    (tmp_path / "lib/a.py").write_text("a = 1\n")
    (tmp_path / "b.py").write_text("b = 1\n")
    return tmp_path


def tools_of(folder, *, trust=True):
    rules = ProjectRules(str(folder), trust=trust)
    tools = with_folder_rules(builtin_tools(Workspace(str(folder))), rules)
    return rules, {tool.name: tool for tool in tools}


async def test_the_first_read_of_a_folder_tells_its_rules(folder):
    rules, tools = tools_of(folder)
    output = await invoke(tools["Read"], {"file_path": "lib/a.py"})
    assert output.endswith(f"{rules_heading(rules.mark)}\n## lib/AGENTS.md\nuse tabs in lib")
    assert rules.mark in rules_heading(rules.mark)
    assert "use tabs" not in await invoke(tools["Read"], {"file_path": "lib/a.py"})
    assert "use tabs" not in await invoke(tools["Read"], {"file_path": "b.py"})


async def test_each_tool_that_opens_a_file_tells_them(folder):
    (folder / "lib/n.ipynb").write_text('{"cells": [{"cell_type": "code", "source": "", "metadata": {}}]}')
    rules, tools = tools_of(folder)
    await invoke(tools["Read"], {"file_path": "lib/a.py"})
    await invoke(tools["Read"], {"file_path": "lib/n.ipynb"})
    calls: dict[str, dict[str, Any]] = {
        "Read": {"file_path": "lib/a.py"},
        "Edit": {"file_path": "lib/a.py", "old_string": "1", "new_string": "2"},
        "MultiEdit": {"file_path": "lib/a.py", "edits": [{"old_string": "2", "new_string": "3"}]},
        "Write": {"file_path": "lib/new.py", "content": "x"},
        "NotebookEdit": {"notebook_path": "lib/n.ipynb", "cell": 0, "new_source": "1"},
    }
    assert calls.keys() == PATH_ARGUMENTS.keys()
    for name, arguments in calls.items():
        rules.tell_again()
        assert "use tabs in lib" in await invoke(tools[name], arguments), name


async def test_a_session_can_keep_its_mark(folder):
    rules = ProjectRules(str(folder), trust=True, mark="abcd1234")
    tools = {tool.name: tool for tool in with_folder_rules(builtin_tools(Workspace(str(folder))), rules)}
    assert "[rules of a subfolder, abcd1234]" in await invoke(tools["Read"], {"file_path": "lib/a.py"})
    assert ProjectRules(str(folder)).mark != ProjectRules(str(folder)).mark


async def test_every_process_is_told(folder):
    """A sub-agent uses the same tools, and has not read what its caller was told."""
    _, tools = tools_of(folder)
    await invoke(tools["Read"], {"file_path": "lib/a.py"})
    token = caller.set("another-pid")
    try:
        assert "use tabs" in await invoke(tools["Read"], {"file_path": "lib/a.py"})
    finally:
        caller.reset(token)


async def test_rules_without_trust_are_not_told(folder):
    rules, tools = tools_of(folder, trust=False)
    assert "use tabs" not in await invoke(tools["Read"], {"file_path": "lib/a.py"})
    assert rules.left_out == ("lib/AGENTS.md",)


def test_other_tools_stay_the_same_objects(folder):
    built_in = builtin_tools(Workspace(str(folder)))
    wrapped = with_folder_rules(built_in, ProjectRules(str(folder), trust=True))
    changed = {tool.name for tool, before in zip(wrapped, built_in, strict=True) if tool is not before}
    assert changed == PATH_ARGUMENTS.keys()
