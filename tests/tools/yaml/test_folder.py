"""A folder of tools: changed files count at the next look, a broken one keeps what it had, an agent sees it at once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lyra.core.checking.watched_files
import lyra.tools
from lyra import Agent, Kernel
from lyra.core.event import Event
from lyra.sandbox import Sandbox
from lyra.testing import SimClock
from lyra.tools.permissions.decision import Permissions
from lyra.tools.registry import ToolRegistry
from lyra.tools.yaml import DynamicTools
from tests.agents.support import calls, run, says
from tests.tools.test_http_guard import page, serving
from tests.tools.yaml.support import call, called

ONE = "name: {name}\ndescription: {says}\nimplementation: {{type: file_read, path: {file}}}\n"


def put(folder: Path, file: str, text: str) -> None:
    """As an editor does: a new file in the place of the old one."""
    (folder / f"{file}.new").write_text(text)
    os.replace(folder / f"{file}.new", folder / file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    (tmp_path / "text").write_text("old")
    (tmp_path / "other").write_text("new")
    return tmp_path / "tools"


def source(folder: Path, **options: Any) -> DynamicTools:
    return DynamicTools(folder, workspace=str(folder.parent), **options)


def declaration(name: str = "a", says: str = "x", file: str = "text") -> str:
    return ONE.format(name=name, says=says, file=file)


def names(tools: DynamicTools) -> list[str]:
    return [tool.name for tool in tools]


def test_files_that_come_change_and_go(folder: Path):
    tools = source(folder)
    assert (names(tools), tools.problems) == ([], ())
    put(folder, "a.yaml", declaration("a"))
    put(folder, "b.yml", declaration("b"))
    put(folder, "c.txt", "no tool")
    put(folder, ".hidden.yaml", declaration("hidden"))
    assert names(tools) == ["a", "b"]
    put(folder, "a.yaml", declaration("other"))
    assert names(tools) == ["other", "b"]
    os.remove(folder / "a.yaml")
    assert names(tools) == ["b"]


def test_a_file_that_has_not_changed_is_not_read_again(folder: Path):
    """A look costs a listing; the Tool is the same object, also when only the time of its file is another."""
    put(folder, "a.yaml", declaration("a"))
    tools = source(folder)
    before = next(iter(tools))
    assert not tools.refresh()
    os.utime(folder / "a.yaml", ns=(1, 1))
    assert next(iter(tools)) is before
    put(folder, "a.yaml", declaration("a", "y"))
    assert next(iter(tools)) is not before


def test_a_change_of_the_same_size_in_the_same_moment_is_seen(folder: Path):
    """Whatever the clock of the disk says: a file that was replaced is another file."""
    put(folder, "a.yaml", declaration("a"))
    tools = source(folder)
    for name in "bcdefgh":
        put(folder, "a.yaml", declaration(name))
        assert names(tools) == [name]


def test_a_broken_file_keeps_its_last_good_version_and_says_so(folder: Path):
    seen: list[tuple[str, ...]] = []
    tools = source(folder, on_change=lambda tools_: seen.append(tools_.problems))
    put(folder, "a.yaml", declaration("a"))
    put(folder, "b.yaml", declaration("b"))
    assert names(tools) == ["a", "b"]
    put(folder, "a.yaml", "name: a\nnmae: [\n")
    assert names(tools) == ["a", "b"]
    assert tools.problems[0].startswith(f"{folder}/a.yaml:3: not YAML")
    assert "its last good version is used" in tools.problems[0]
    put(folder, "c.yaml", declaration("c").replace("description: x\n", ""))
    assert names(tools) == ["a", "b"]
    assert [mistake.file.rpartition("/")[2] for mistake in tools.mistakes] == ["a.yaml", "c.yaml"]
    put(folder, "a.yaml", declaration("new"))
    os.remove(folder / "c.yaml")
    assert (names(tools), tools.problems) == (["new", "b"], ())
    assert [len(problems) for problems in seen] == [0, 1, 2, 0]


def test_one_name_is_one_tool(folder: Path):
    put(folder, "a.yaml", declaration("same", "first"))
    put(folder, "b.yaml", declaration("same", "second"))
    tools = source(folder)
    assert [tool.description for tool in tools] == ["first"]
    assert "there is a tool 'same'" in tools.problems[0]


def test_odd_files_are_said_and_nothing_hangs(folder: Path):
    os.mkfifo(folder / "pipe.yaml")
    (folder / "dir.yaml").mkdir()
    os.symlink(folder / "nowhere", folder / "link.yaml")
    put(folder, "a.yaml", declaration("a"))
    put(folder, "large.yaml", "# " + "x" * 200_000)
    tools = source(folder)
    assert names(tools) == ["a"]
    assert len(tools.problems) == 4
    assert not tools.refresh()


def test_a_folder_that_is_not_there_yet(folder: Path):
    tools = source(folder / "later")
    assert "no such file or folder" in tools.problems[0]
    (folder / "later").mkdir()
    assert (names(tools), tools.problems) == ([], ())
    put(folder / "later", "a.yaml", declaration("a"))
    assert names(tools) == ["a"]


def test_one_file_is_a_source_too(folder: Path):
    put(folder, "a.yaml", declaration("a"))
    assert names(source(folder / "a.yaml")) == ["a"]


def test_a_registry_takes_it(folder: Path):
    put(folder, "a.yaml", declaration("a"))
    tools = source(folder)
    registry = ToolRegistry([tools])
    assert asyncio.run(registry.call("a")).output == "old"
    put(folder, "a.yaml", declaration("a", file="other"))
    assert asyncio.run(registry.call("a")).output == "new"


def test_a_file_written_in_place_within_one_tick_of_the_disk_is_seen(folder: Path):
    """Same size, same file, and the time set back to what it was."""
    path = folder / "a.yaml"
    path.write_text(declaration("a"))
    tools = source(folder)
    state = os.stat(path)
    path.write_text(declaration("b"))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert names(tools) == ["b"]


# ---------------------------------------------------------------- agents


def test_an_agent_sees_a_change_at_its_next_message(folder: Path):
    """Changed, broken and gone, without a restart; the broken file is an Event."""
    put(folder, "a.yaml", declaration("a"))
    model = says(calls("a"), "{result}", calls("a"), "{result}", calls("a"), "{result}", calls("a"), "{result}")
    agent = Agent("worker", model=model, tools=[source(folder)], permissions={"allow": ["a"]})
    events: list[Event] = []

    async def main() -> list[str]:
        async with Kernel() as kernel:
            kernel.on_event(events.append, kinds=["tools.problems"])
            process = await kernel.spawn(agent)
            answers: list[str] = [await process.send("go")]
            put(folder, "a.yaml", declaration("a", "another description", "other"))
            answers.append(await process.send("go"))
            put(folder, "a.yaml", "name: a\n")
            answers.append(await process.send("go"))
            os.remove(folder / "a.yaml")
            answers.append(await process.send("go"))
            return answers

    answers = run(main())
    assert answers[:3] == ["old", "new", "new"]
    assert answers[3].startswith("there is no tool 'a'")
    assert [request.tools[0].description for request in model.requests[:6:2]] == ["x", *["another description"] * 2]
    assert [len(event.data["problems"]) for event in events] == [2, 0]
    assert "last good version" in events[0].data["problems"][0]


def test_without_a_rule_a_tool_of_a_file_is_not_run(folder: Path):
    """It is guarded: headless that is a denial, which the model is told."""
    put(folder, "a.yaml", declaration("a"))
    model = says(calls("a"), "done")
    agent = Agent(
        "worker", model=model, tools=source(folder), permissions=Permissions(workspace=str(folder), attended=False)
    )

    async def main() -> None:
        async with Kernel() as kernel:
            await (await kernel.spawn(agent)).send("go")

    run(main())
    result = model.requests[-1].messages[-1].tool_results[0]
    assert (result.is_error, result.error_code) == (True, "permission_denied")


def test_it_is_a_name_of_the_tools_and_comes_when_it_is_wanted():
    """Importing `lyra.tools` does not bring the sandbox."""
    code = "import sys, lyra.tools as t; assert 'lyra.tools.yaml' not in sys.modules; print(t.DynamicTools.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("DynamicTools", "")
    with pytest.raises(AttributeError, match="ToolFolder"):
        getattr(lyra.tools, "ToolFolder")  # noqa: B009 - no such name


# ---------------------------------------------------------------- what the program gives its tools
FETCH = """\
name: fetch
description: Fetch.
implementation:
  type: http
  url: http://api.example.org/
  headers: {Authorization: "Bearer env:MY_TOKEN"}
"""


def test_a_folder_of_tools_runs_commands_in_the_sandbox_it_is_given(folder: Path):
    put(folder, "a.yaml", "name: act\ndescription: x\nimplementation: {type: exec, command: [echo, hello]}\n")
    used: list[list[str]] = []

    class Noting(Sandbox):
        async def run(self, argv: Any, *args: Any, **options: Any) -> Any:
            used.append(list(argv))
            return await super().run(argv, *args, **options)

    (tool,) = source(folder, sandbox=Noting())
    assert called(tool).output.strip() == "hello"
    assert [argv[-1] for argv in used] == ["hello"]


def test_a_folder_of_tools_names_no_other_secrets_than_it_may(folder: Path):
    """A header that names another variable is a mistake of its file."""
    put(folder, "a.yaml", FETCH)
    assert names(source(folder, secrets=["MY_TOKEN"])) == ["fetch"]
    tools = source(folder, secrets=["OTHER"])
    assert (names(tools), "is not for tools" in tools.problems[0]) == ([], True)


def test_a_folder_of_tools_has_the_network_and_the_variables_it_is_given(folder: Path):
    """The address of a host comes from `lookup`, the connection from `dial`, and the key from `env`."""
    put(folder, "a.yaml", FETCH)

    async def main() -> Any:
        async with serving(lambda head: page(b"hello")) as server:
            given = {"env": {"MY_TOKEN": "planted-key"}, "lookup": server.lookup, "dial": server.dial}
            (tool,) = source(folder, **given)
            return server, await call(tool)

    server, result = run(main())
    assert result.output == "hello"
    assert server.asked == ["api.example.org"]
    assert "authorization: bearer planted-key\r\n" in server.heads[0].lower()


def test_a_file_that_has_lain_for_a_while_is_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """By the clock that is given: a file that was written just now may change within one tick of its time stamp."""
    put(folder, "a.yaml", declaration())
    read: list[str] = []
    read_file = lyra.core.checking.watched_files._read
    monkeypatch.setattr(
        "lyra.core.checking.watched_files._read", lambda name, *rest: (read.append(name), read_file(name, *rest))[1]
    )
    written_s = (folder / "a.yaml").stat().st_mtime
    counts = []
    for later_s in (0.0, 60.0):
        read.clear()
        tools = source(folder, clock=SimClock(written_s + later_s))
        tools.refresh()
        counts.append(len(read))
    assert counts == [2, 1]
