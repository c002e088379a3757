"""Tools of plugins while they run: no more than is declared, whatever their file says and the process may do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.core.rights.capability import Grant
from lyra.core.tool import Tool, rights
from lyra.errors import CapabilityDenied
from lyra.sage.extensions.plugins.manifest import PluginPermissions
from lyra.sage.extensions.plugins.plugin import limit_rights, plugin_tools
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.wrapped import add_layers
from tests.agents.support import run
from tests.sage.extensions.support import put

READ = "name: look\ndescription: d\nimplementation: {type: file_read, path: a.txt}\n"
WRITE = "name: note\ndescription: d\nimplementation: {type: file_write, path: a.txt, content: new}\n"


def tool_of(tmp_path: Path, text: str, **permissions: Any) -> Tool:
    (tmp_path / "work").mkdir(exist_ok=True)
    put(tmp_path / "work" / "a.txt", "old")
    path = put(tmp_path / "plugin" / "tool.yaml", text)
    source = plugin_tools(str(path), Workspace(str(tmp_path / "work")), PluginPermissions(**permissions))
    (tool,) = source.__lyra_tools__()
    return tool


def call(tool: Tool, held: Grant | None = None, **arguments: Any) -> Any:
    """Run the tool as a process with these rights does."""

    async def main() -> Any:
        rights.set(held)
        assert tool.run is not None
        result = await tool.run(**arguments)
        assert rights.get() is held
        return result

    return run(main())


def test_a_tool_has_what_its_plugin_declares(tmp_path: Path) -> None:
    assert call(tool_of(tmp_path, READ, files="read"), Grant(["*"])) == "old"
    assert "written" in call(tool_of(tmp_path, WRITE, files="write"), Grant(["*"]))


@pytest.mark.parametrize(("text", "files"), [(READ, "none"), (WRITE, "read")])
def test_a_tool_has_no_more_than_its_plugin_declares(tmp_path: Path, text: str, files: str) -> None:
    """Although the process that calls it may do everything."""
    for held in (Grant(["*"]), None):
        with pytest.raises(CapabilityDenied):
            call(tool_of(tmp_path, text, files=files), held)
    assert (tmp_path / "work/a.txt").read_text() == "old"


def test_a_tool_has_no_more_than_its_process(tmp_path: Path) -> None:
    with pytest.raises(CapabilityDenied):
        call(tool_of(tmp_path, READ, files="write"), Grant([]))


def test_a_command_and_a_host_have_to_be_declared(tmp_path: Path) -> None:
    """Also where the file was changed after the plugin was checked: the declaration holds during the call."""
    execute = "name: x\ndescription: d\nimplementation: {type: exec, command: [git, status]}\n"
    fetch = 'name: x\ndescription: d\nimplementation: {type: http, url: "https://b.example/"}\n'
    for text in (execute, fetch):
        with pytest.raises(CapabilityDenied):
            call(tool_of(tmp_path, text, commands=("git log",), hosts=("a.example",), files="write"), Grant(["*"]))


def test_rights_during_a_call_are_those_of_both(tmp_path: Path) -> None:
    """Also those that a tool uses without naming them for the call, as a command uses files."""
    held_rights: list[Grant | None] = []

    async def look() -> None:
        held_rights.append(rights.get())

    declared = PluginPermissions(commands=("git *",), files="read").grant("/work")
    tool = add_layers(Tool("look", run=look), [limit_rights(declared)])
    call(tool, Grant(["fs.read", "fs.write"]))
    call(tool, None)
    both, alone = held_rights
    assert both is not None
    assert both.allows("fs.read:/work/a")
    assert not any(both.allows(right) for right in ("fs.write:/work/a", "fs.read:/other/a", "process.exec:git log"))
    assert alone == declared


def test_a_tool_that_takes_a_reserved_name_later_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    path = put(tmp_path / "plugin" / "tool.yaml", READ)
    source = plugin_tools(str(path), Workspace(str(tmp_path / "work")), PluginPermissions(files="read"))
    assert [tool.name for tool in source.__lyra_tools__()] == ["look"]
    put(path, READ.replace("name: look", "name: Bash"))
    assert source.__lyra_tools__() == ()


def test_a_tool_may_read_only_declared_variables(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    header = 'headers: {Authorization: "Bearer env:MY_TOKEN"}'
    text = f'name: x\ndescription: d\nimplementation: {{type: http, url: "https://b.example/", {header}}}\n'
    path = put(tmp_path / "plugin" / "tool.yaml", text)
    workspace = Workspace(str(tmp_path / "work"))
    assert plugin_tools(str(path), workspace, PluginPermissions(hosts=("b.example",))).__lyra_tools__() == ()
    declared = PluginPermissions(hosts=("b.example",), variables=("MY_TOKEN",))
    assert len(plugin_tools(str(path), workspace, declared).__lyra_tools__()) == 1
