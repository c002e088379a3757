"""After an edit the problems that programs report come with the result, new ones first, and an edit never fails."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from lyra.config import Config
from lyra.core.rights.capability import Grant
from lyra.core.tool import Tool, ending, rights
from lyra.sage.project.diagnostics import after_edit as module
from lyra.sage.project.diagnostics import after_edit as server_module
from lyra.sage.project.diagnostics.after_edit import EDIT_TOOLS, Diagnostics, add_diagnostics
from lyra.sandbox import Sandbox
from lyra.tools.builtin import Workspace, builtin_tools
from lyra.tools.wrapped import invoke

pytestmark = pytest.mark.anyio
LINT = """#!/bin/sh
# Reports each line of a file with BAD in it, and says how often it ran.
echo run >> runs.txt
awk '/BAD/ { print FILENAME ":" FNR ":1: E1 " $0; bad = 1 } END { exit bad }' "$1"
"""
SERVER = Path(__file__).parent / "fake_server.py"
PYTHON = "/usr/bin/python3"
PATIENCE_S = 30.0  # for programs that answer, on a busy machine


class Place:
    """A workspace with a linter in it, and the tools of an agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file("lint.sh", LINT)
        self.diagnostics: Diagnostics | None = None

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def tools(self, sandbox: Sandbox | None = None, **settings: dict[str, Any]) -> dict[str, Tool]:
        """The tools with diagnostics; a pattern's `_` is a dot, and `any` is a star."""
        workspace = Workspace(str(self.folder))
        patterns = {
            name.replace("any", "*").replace("_", "."): {"timeout_s": PATIENCE_S, **entry}
            for name, entry in settings.items()
        }
        self.diagnostics = Diagnostics(patterns, workspace, sandbox=sandbox)
        return {tool.name: tool for tool in add_diagnostics(builtin_tools(workspace), self.diagnostics)}

    async def __aenter__(self) -> Place:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the language servers."""
        if self.diagnostics is not None:
            await self.diagnostics.close()

    @property
    def runs(self) -> int:
        path = self.folder / "runs.txt"
        return path.read_text().count("run") if path.exists() else 0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = tmp_path / "work"
    folder.mkdir()
    return Place(folder)


def lint(**more: Any) -> dict[str, Any]:
    return {"commands": ("sh lint.sh {file}",), **more}


async def write(tools: dict[str, Tool], name: str, text: str) -> str:
    output: str = await invoke(tools["Write"], {"file_path": name, "content": text})
    return output


async def edit(tools: dict[str, Tool], name: str, old: str, new: str) -> str:
    await invoke(tools["Read"], {"file_path": name})
    output: str = await invoke(tools["Edit"], {"file_path": name, "old_string": old, "new_string": new})
    return output


# ---------------------------------------------------------------- what comes with a result
async def test_new_problems_come_first_and_old_ones_after(place):
    place.file("a.py", "first BAD\nsecond\nthird\n")
    tools = place.tools(any_py=lint())
    output = await edit(tools, "a.py", "second", "inserted\nsecond BAD")
    assert output.startswith("edited a.py: replaced at line 2\n\n")
    assert output.split("\n")[2:] == [
        "Diagnostics of sh: 1 new, 1 as before",
        "new: a.py:3:1: E1 second BAD (sh)",
        "before: a.py:1:1: E1 first BAD (sh)",
    ]


async def test_a_problem_that_only_moved_is_not_new(place):
    place.file("a.py", "one\nthe BAD line\n")
    output = await edit(place.tools(any_py=lint()), "a.py", "one", "one\ntwo\nthree")
    assert "0 new, 1 as before" in output
    assert "before: a.py:4:1: E1 the BAD line (sh)" in output


async def test_the_same_problem_a_second_time_is_new(place):
    place.file("a.py", "BAD\nother\n")
    assert "1 new, 1 as before" in await edit(place.tools(any_py=lint()), "a.py", "other", "BAD")


async def test_a_clean_file_says_so(place):
    place.file("a.py", "BAD\n")
    assert (await edit(place.tools(any_py=lint()), "a.py", "BAD", "good")).endswith("Diagnostics: no problems (sh)")


async def test_all_problems_of_a_new_file_are_new(place):
    output = await write(place.tools(any_py=lint()), "new.py", "x BAD\n")
    assert "1 new, 0 as before" in output
    assert place.runs == 1


@pytest.mark.parametrize("name", EDIT_TOOLS)
async def test_every_tool_that_edits_is_wrapped(place, name):
    place.file("a.py", "one\n")
    place.file("a.ipynb", '{"cells": [{"cell_type": "code", "source": "", "metadata": {}}]}')
    tools = place.tools(any_py=lint(), any_ipynb=lint())
    calls: dict[str, dict[str, Any]] = {
        "Edit": {"file_path": "a.py", "old_string": "one", "new_string": "BAD"},
        "MultiEdit": {"file_path": "a.py", "edits": [{"old_string": "one", "new_string": "BAD"}]},
        "Write": {"file_path": str(place.folder / "a.py"), "content": "BAD"},
        "NotebookEdit": {"notebook_path": "a.ipynb", "cell": 0, "new_source": "BAD"},
    }
    for path in ("a.py", "a.ipynb"):
        await invoke(tools["Read"], {"file_path": path})
    assert "1 new, 0 as before" in await invoke(tools[name], calls[name])


async def test_several_programs_and_patterns_for_one_file(place):
    place.file("web/a.py", "one\n")
    twice = {"commands": ("sh lint.sh {file}", "grep -nH BAD {file} --label=x")}
    tools = place.tools(any_py=twice, **{"web/anyany/any_py": {"commands": ("sh lint.sh {file}",)}})
    output = await edit(tools, "web/a.py", "one", " BAD")
    assert "web/a.py:1:1: E1  BAD (sh)" in output.replace("E1   ", "E1  ")
    assert "web/a.py:1: BAD (grep)" in output
    assert output.count("(sh)") == 1, "the same command line runs once"


async def test_files_that_no_pattern_names_are_not_looked_at(place):
    place.file("a.txt", "one\n")
    tools = place.tools(any_py=lint())
    assert await edit(tools, "a.txt", "one", "BAD") == "edited a.txt: replaced at line 1"
    assert place.runs == 0


# ---------------------------------------------------------------- how often programs run
async def test_what_is_known_of_a_content_is_not_asked_again(place):
    """The first edit of a file runs a program before and after it, a second one only after."""
    place.file("a.py", "one\n")
    tools = place.tools(any_py=lint())
    await edit(tools, "a.py", "one", "two")
    assert place.runs == 2
    await edit(tools, "a.py", "two", "three")
    assert place.runs == 3
    place.file("a.py", "changed BAD by a person\n")
    assert "1 new, 1 as before" in await edit(tools, "a.py", "person", "person\nBAD")
    assert place.runs == 5


async def test_an_edit_that_fails_is_the_tools_error(place):
    place.file("a.py", "one\n")
    tools = place.tools(any_py=lint())
    with pytest.raises(Exception, match="old_string is not in"):
        await edit(tools, "a.py", "absent", "x")


# ---------------------------------------------------------------- programs that do not do what they should
@pytest.mark.parametrize(
    ("command", "timeout_s", "words"),
    [
        ("sleep 60", 0.3, "sleep: it took longer than 0.3 s"),
        ("no-such-program {file}", PATIENCE_S, "no-such-program: it is not there inside the sandbox"),
        ("sh -c 'yes | head -c 3000000'", PATIENCE_S, "sh: it was stopped: output"),
    ],
)
async def test_a_program_that_fails_is_told_and_the_edit_stays(place, command, timeout_s, words):
    output = await write(place.tools(any_py={"commands": (command,), "timeout_s": timeout_s}), "a.py", "two\n")
    assert output.startswith("wrote a.py")
    assert words in output
    assert (place.folder / "a.py").read_text() == "two\n"


async def test_without_a_baseline_nothing_is_called_new(place):
    """A program that failed before the edit says nothing about what is new."""
    place.file("a.py", "BAD\n")
    place.file("fails-once.sh", "[ -e once ] && exec sh lint.sh $1; touch once; exit 127\n")
    tools = place.tools(any_py={"commands": ("sh fails-once.sh {file}",)})
    output = await edit(tools, "a.py", "BAD", "BAD\nBAD")
    assert "Diagnostics: 2 of sh\na.py:1:1: E1 BAD (sh)" in output
    assert "new:" not in output


async def test_output_without_places_is_shown_where_the_program_failed(place):
    place.file("a.py", "one\n")
    tools = place.tools(any_py={"commands": ("sh -c 'echo the settings are wrong; exit 2'",)})
    assert "the settings are wrong (sh)" in await edit(tools, "a.py", "one", "two")
    tools = place.tools(any_py={"commands": ("sh -c 'echo all is well'",)})
    assert (await edit(tools, "a.py", "two", "three")).endswith("no problems (sh)")


async def test_without_a_sandbox_no_program_runs(place):
    place.file("a.py", "one\n")
    tools = place.tools(Sandbox(tiers=()), any_py=lint())
    assert "it could not be run: no sandbox works here" in await edit(tools, "a.py", "one", "BAD")
    assert place.runs == 0


async def test_many_problems_are_bounded(place):
    output = await write(place.tools(any_py=lint()), "a.py", "".join(f"{n} BAD {'x' * 500}\n" for n in range(100)))
    assert output.count("new: ") == 20
    assert "… and 80 more" in output
    assert max(map(len, output.split("\n"))) < 400


async def test_a_file_that_is_too_large_is_not_looked_at(place, monkeypatch):
    monkeypatch.setattr(module, "_FILE_BYTES_MAX", 10)
    assert await write(place.tools(any_py=lint()), "a.py", "BAD" * 10) == "wrote a.py: new, 1 line"


# ---------------------------------------------------------------- what programs may do
async def test_programs_have_no_network_and_see_only_the_workspace(place, tmp_path):
    (tmp_path / "secret.txt").write_text("the secret")
    place.file("a.py", "one\n")
    look = f"sh -c 'cat {tmp_path}/secret.txt; cat .env; ls /proc/net/dev; echo HOME=$HOME; exit 1'"
    place.file(".env", "TOKEN=hush")
    output = await edit(place.tools(any_py={"commands": (look,)}), "a.py", "one", "two")
    assert "the secret" not in output
    assert "hush" not in output


async def test_programs_have_no_network_even_where_the_agent_has(place):
    place.file("a.py", "one\n")
    root = place.folder
    token = rights.set(Grant([f"fs.read:{root}/**", f"fs.write:{root}/**", "net.http:example.com"]))
    try:
        output = await edit(place.tools(any_py={"commands": ("sh -c 'env; exit 1'",)}), "a.py", "one", "two")
    finally:
        rights.reset(token)
    assert "LYRA_SANDBOX=1" in output
    assert "proxy" not in output.lower()


async def test_readable_folders_are_shown_to_the_program(place, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/settings").write_text("seen BAD\n")
    place.file("a.py", "one\n")
    command = f"sh lint.sh {tmp_path}/more/settings"
    closed = await edit(place.tools(any_py={"commands": (command,)}), "a.py", "one", "two")
    assert "seen BAD" not in closed
    opened = {"commands": (command,), "readable": (str(tmp_path / "more"),)}
    assert "seen BAD" in await edit(place.tools(any_py=opened), "a.py", "two", "three")


async def test_a_path_is_one_argument_and_no_option(place):
    """Neither a blank nor a dash at the beginning of a name changes the command."""
    for name in ("-v a.py", "a; touch hacked.py", "$(touch hacked).py"):
        output = await write(place.tools(any_py=lint()), name, "BAD\n")
        assert "1 new" in output, name
    assert not (place.folder / "hacked").exists()
    assert not (place.folder / "hacked.py").exists()


async def test_the_output_is_untrusted_and_shows_what_cannot_be_seen(place):
    tools = place.tools(any_py=lint())
    assert {name for name, tool in tools.items() if tool.untrusted} >= EDIT_TOOLS.keys()
    assert not any(tools[name].trusted for name in EDIT_TOOLS)
    output = await write(tools, "a.py", "BAD \x1b[2J\u202e\n")
    assert "\x1b" not in output
    assert "\u202e" not in output


def test_without_settings_the_tools_are_the_same(place):
    built_in = builtin_tools(Workspace(str(place.folder)))
    assert add_diagnostics(built_in, Diagnostics({}, Workspace(str(place.folder)))) == built_in
    wrapped = add_diagnostics(built_in, Diagnostics({"*.py": lint()}, Workspace(str(place.folder))))
    changed = {tool.name for tool, before in zip(wrapped, built_in, strict=True) if tool is not before}
    assert changed == EDIT_TOOLS.keys()


async def test_a_second_folder_of_the_workspace(place, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "lint.sh").write_text(LINT)
    workspace = Workspace(str(place.folder), also=[str(other)])
    diagnostics = Diagnostics({"*.py": lint()}, workspace)
    tools = {tool.name: tool for tool in add_diagnostics(builtin_tools(workspace), diagnostics)}
    assert "new: a.py:1:1: E1 BAD (sh)" in await write(tools, f"{other}/a.py", "BAD\n")
    assert (other / "runs.txt").exists()


# ---------------------------------------------------------------- the configuration
@pytest.mark.parametrize(
    ("field", "toml", "words"),
    [
        ("commands", 'commands = "sh lint.sh {file}"', "new: a.py:1:1: E1 BAD (sh)"),
        ("language_server", f'language_server = "{PYTHON} server.py pull"', "new: a.py:1:1: E1 BAD (python3)"),
        ("timeout_s", 'commands = "sleep 60"\ntimeout_s = 0.25', "it took longer than 0.25 s"),
        ("readable", 'commands = "sh lint.sh OUTSIDE"\nreadable = ["OUTSIDE"]', "seen BAD"),
    ],
)
async def test_each_setting_changes_what_comes_with_an_edit(place, server, tmp_path, field, toml, words):
    """From `lyra.toml` to the result of a tool."""
    outside = tmp_path / "outside"
    outside.write_text("seen BAD\n")
    (tmp_path / "lyra.toml").write_text(f'[diagnostics."*.py"]\n{toml.replace("OUTSIDE", str(outside))}\n')
    config = Config.load(place.folder, {}, user_file=tmp_path / "lyra.toml")
    assert field in config.diagnostics["*.py"]
    async with place:
        assert words in await write(place.tools(**config.diagnostics), "a.py", "BAD\n")


# ---------------------------------------------------------------- a real linter
@pytest.fixture
def ruff() -> tuple[str, str]:
    """The program, and the folder that it is installed in."""
    program = shutil.which("ruff", path=os.path.dirname(sys.executable))
    if program is None:
        pytest.skip("ruff is not installed")
    real = os.path.realpath(program)
    return real, os.path.dirname(os.path.dirname(real))


async def test_a_real_linter(place, ruff):
    place.file("a.py", "import os\n\nx = 1\n")
    command = f"{ruff[0]} check --isolated --output-format concise {{file}}"
    tools = place.tools(any_py={"commands": (command,), "readable": (ruff[1],)})
    output = await edit(tools, "a.py", "x = 1", "x = undefined")
    assert "1 new, 1 as before" in output
    assert "new: a.py:3:5: F821 Undefined name `undefined` (ruff)" in output
    assert "before: a.py:1:8: F401" in output


# ---------------------------------------------------------------- language servers
@pytest.fixture
def server(place, monkeypatch):
    """Settings of the fake server."""
    monkeypatch.setattr(server_module, "_QUIET_S", 0.1)
    if not os.path.exists(PYTHON):
        pytest.skip("there is no Python that a sandbox shows")
    place.file("server.py", SERVER.read_text())

    def settings(*words: str, **more: Any) -> dict[str, Any]:
        return {"language_server": " ".join([PYTHON, "server.py", *words]), **more}

    return settings


@pytest.mark.parametrize(
    "words", [(), ("pull",), ("twice",), ("versions", "twice"), ("versions", "stale"), ("odd",), ("asks", "pull")]
)
async def test_a_language_server_reports_what_is_new(place, server, words):
    """It publishes by itself, in one step or two, with versions or without, or is asked."""
    place.file("a.py", "first BAD\nsecond\n")
    async with place:
        tools = place.tools(any_py=server(*words))
        output = await edit(tools, "a.py", "second", "second BAD")
        assert "Diagnostics of python3: 1 new, 1 as before" in output
        assert "new: a.py:2:1: E1 second BAD (python3)" in output
        assert "hint" not in output
        assert "1 new" in await edit(tools, "a.py", "second BAD", "now BAD")


async def test_one_server_serves_all_files(place, server):
    async with place:
        tools = place.tools(any_py=server("pull", "log", "log.txt"))
        for name in ("a.py", "b.py"):
            await write(tools, name, f"BAD in {name}\n")
        assert "1 new, 1 as before" in await edit(tools, "a.py", "in a.py", "here\nBAD in a.py")
    methods = (place.folder / "log.txt").read_text().split()
    assert methods.count("initialize") == 1
    assert methods.count("textDocument/didOpen") == 2
    assert methods.count("textDocument/didChange") == 1
    assert "textDocument/didSave" in methods


@pytest.mark.parametrize(
    ("words", "timeout_s", "told"),
    [
        ("mute", 0.5, "it has not answered within 0.5 s"),
        ("slow", 0.5, "it has not answered within 0.5 s"),
        ("crash", PATIENCE_S, "it has ended"),
        ("garbage", PATIENCE_S, "it does not speak the Language Server Protocol"),
    ],
)
async def test_a_server_that_fails_is_told_and_the_edit_stays(place, server, words, timeout_s, told):
    async with place:
        tools = place.tools(any_py=server(words, timeout_s=timeout_s))
        output = await write(tools, "a.py", "BAD\n")
    assert output.startswith("wrote a.py")
    assert f"python3: {told}" in output


async def test_a_server_that_ends_again_and_again_is_given_up(place, server):
    place.file("a.py", "0\n")
    async with place:
        tools = place.tools(any_py=server("crash"))
        outputs = [await edit(tools, "a.py", str(number), str(number + 1)) for number in range(3)]
    assert "it has ended 3 times, and is not started again" in outputs[-1]


async def test_a_program_that_is_no_server(place):
    async with place:
        tools = place.tools(any_py={"language_server": "no-such-server"})
        assert "no-such-server: it has ended" in await write(tools, "a.py", "two")


async def test_a_server_ends_with_the_process_that_started_it(place, server):
    ends: list[Any] = []
    token = ending.set(ends.append)
    try:
        await write(place.tools(any_py=server("pull")), "a.py", "BAD\n")
    finally:
        ending.reset(token)
    async with place:
        (running,) = place.diagnostics._servers._servers.values()
        assert running.runs
        (end,) = ends
        await asyncio.gather(*end())
        assert not running.runs


async def test_a_real_language_server(place, ruff):
    """Ruff's server, which is asked for diagnostics."""
    place.file("a.py", "import os\n\nx = 1\n")
    async with place:
        tools = place.tools(any_py={"language_server": f"{ruff[0]} server --isolated", "readable": (ruff[1],)})
        output = await edit(tools, "a.py", "x = 1", "x = undefined")
    assert "1 new, 1 as before" in output
    assert "F821 Undefined name `undefined` (ruff)" in output
