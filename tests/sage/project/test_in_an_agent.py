"""The parts at work in an agent: results with rules and diagnostics are journaled, prompts follow the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel
from lyra.agents.headless.options import HeadlessOptions
from lyra.core.rights.capability import Grant
from lyra.sage.agent.live import LiveSession
from lyra.sage.project.diagnostics.after_edit import Diagnostics, add_diagnostics
from lyra.sage.project.prompt import system_prompt, with_folder_rules
from lyra.sage.project.repo_map.repo_map import RepoMap, repo_map_tool
from lyra.sage.project.rules import ProjectRules
from lyra.tools.builtin import Workspace, builtin_tools
from lyra.tools.permissions import Permissions
from tests.agents.support import run, says

LINT = 'echo run >> runs.txt; grep -n BAD "$1" | sed "s|^|$1:|"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "lib").mkdir(parents=True)
    (root / "lint.sh").write_text(LINT)
    (root / "AGENTS.md").write_text("answer briefly")
    (root / "lib/AGENTS.md").write_text("use tabs in lib")
    (root / "lib/a.py").write_text("def good_function(): ...\n")
    return root


def agent_of(folder: Path, model: Any) -> Agent:
    workspace = Workspace(str(folder))
    rules = ProjectRules(str(folder), trust=True)
    tools = with_folder_rules(builtin_tools(workspace), rules)
    tools = add_diagnostics(tools, Diagnostics({"*.py": {"commands": ("sh lint.sh {file}",)}}, workspace))
    return Agent(
        "sage",
        model=model,
        system=lambda: system_prompt(str(folder), rules=rules),
        tools=[*tools, repo_map_tool(workspace, RepoMap(workspace))],
        permissions=Permissions(workspace=str(folder), mode="accept-edits", attended=False),
    )


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


GRANT = Grant(["*"])


def outputs(process: Any) -> list[str]:
    return [result.output for message in process.messages for result in message.tool_results]


def test_a_result_with_rules_and_diagnostics_survives_a_restart(folder, tmp_path):
    """What came with an edit is read from the journal, and no program runs again for it."""
    edit = call("Edit", file_path="lib/a.py", old_string="good", new_string="BAD")
    model = says(call("Read", file_path="lib/a.py"), edit, "done", "again")
    agent = agent_of(folder, model)

    async def first() -> list[str]:
        async with Kernel(tmp_path / "run.db") as kernel:
            process = await kernel.spawn(agent, pid="sage", grant=GRANT)
            assert await process.send("change it") == "done"
            assert kernel.taint.is_tainted("sage")
            return outputs(process)

    async def second() -> list[str]:
        async with Kernel(tmp_path / "run.db", programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="sage", grant=GRANT)
            assert await process.send("go on") == "again"
            return outputs(process)

    read, edited = run(first())
    assert "use tabs in lib" in read
    assert "Diagnostics of sh: 1 new, 0 as before" in edited
    assert "new: lib/a.py:1: def BAD_function(): ... (sh)" in edited
    runs = (folder / "runs.txt").read_text()
    assert runs.count("run") == 2
    assert run(second()) == [read, edited]
    assert (folder / "runs.txt").read_text() == runs


def test_each_message_has_the_rules_of_now(folder):
    model = says("one", "two")
    agent = agent_of(folder, model)

    async def both() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(agent, grant=GRANT)
            await process.send("first")
            (folder / "AGENTS.md").write_text("answer in verse")
            await process.send("second")

    run(both())
    systems = [request.system for request in model.requests]
    assert "answer briefly" in systems[0]
    assert "answer in verse" in systems[1]


def test_the_map_is_a_tool_that_needs_no_rule_and_taints(folder):
    model = says(call("RepoMap", query="good_function"), "done")
    agent = agent_of(folder, model)

    async def ask() -> tuple[list[str], bool]:
        async with Kernel() as kernel:
            process = await kernel.spawn(agent, pid="sage", grant=GRANT)
            await process.send("what is there?")
            return outputs(process), kernel.taint.is_tainted("sage")

    (output,), tainted = run(ask())
    assert "lib/a.py\n  def good_function()" in output
    assert tainted


def test_a_session_of_sage_has_all_of_it(folder, tmp_path, monkeypatch):
    """From `lyra.toml` and the files of a project to what the model reads."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "config/lyra").mkdir(parents=True)
    (tmp_path / "config/lyra/lyra.toml").write_text('[diagnostics."*.py"]\ncommands = "sh lint.sh {file}"\n')
    edit = call("Edit", file_path="lib/a.py", old_string="good", new_string="BAD")
    script = {"sequence": [call("RepoMap"), call("Read", file_path="lib/a.py"), edit, {"text": "done"}]}
    (tmp_path / "script.json").write_text(json.dumps(script))
    options = HeadlessOptions(
        model=f"sim/script:{tmp_path}/script.json", folder=str(folder), mode="accept-edits", trusted=True
    )

    async def one_turn() -> tuple[list[str], str]:
        async with LiveSession(options) as session:
            lines = [line async for line in session.send("change it")]
            ends = [line["output"] for line in lines if line["type"] == "tool_end"]
            return ends, session.equipment.prompt.now()

    (shown, read, edited), prompt = run(one_turn())
    assert "lib/a.py\n  def good_function()" in shown
    assert "use tabs in lib" in read
    assert "Diagnostics of sh: 1 new, 0 as before" in edited
    assert "answer briefly" in prompt
    assert list((tmp_path / "data/lyra/maps").iterdir())
