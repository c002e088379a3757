"""Tools of agents: what they get, what they may do, when they end, and those that the program does not declare."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lyra import vega
from lyra.config import trust
from lyra.errors import ConfigError
from lyra.models.provider import Request
from lyra.models.script import Reply
from lyra.vega import VegaError
from tests import trusting
from tests.mcp.support import tiny, using
from tests.vega.support import Seen, play


class Caller:
    """A model that calls tools with the first answer, and keeps what came of them."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self.results: list[str] = []
        self.offered: list[str] = []
        self._calls = [{"name": name, "arguments": arguments} for name, arguments in calls]

    def __call__(self, request: Request) -> Any:
        self.offered = [tool.name for tool in request.tools]
        results = request.messages[-1].tool_results
        if not results:
            return Reply.from_data({"tool_calls": self._calls})
        self.results += [f"{'! ' if result.is_error else ''}{result.output}" for result in results]
        return "done"


def called(source: str, *calls: tuple[str, dict[str, Any]], **options: Any) -> list[str]:
    """What the calls of a model gave; `!` before what is an error."""
    caller = Caller(*calls)
    play(source + '\nlet g = spawn G; g <- "go";', caller, **options)
    return caller.results


# ---------------------------------------------------------------- arguments and results


def test_arguments_are_of_their_types_inside_lists_and_maps():
    source = """agent G { model "sim/script"
        tool t(xs: list[int], m: map[str, money], d: duration) { return "${xs[0] + 1} ${m["a"] + $0.25} ${d + 1s}"; }
    }"""
    good = {"xs": [1], "m": {"a": "$0.50"}, "d": 2}
    assert called(
        source,
        ("t", good),
        ("t", {**good, "xs": ["one"]}),
        ("t", {**good, "m": {"a": "much"}}),
        ("t", {**good, "d": "long"}),
    ) == [
        "2 $0.75 3s",
        "! bad arguments for t: 'xs[0]' is int, not 'one'",
        "! bad arguments for t: 'much' is not an amount of money",
        "! bad arguments for t: 'd' is duration, not 'long'",
    ]


def test_a_result_without_a_form_outside_is_an_error_with_its_name():
    source = 'agent G { model "sim/script" tool t() { return |x| x; } }'
    assert called(source, ("t", {})) == ["! TypeError: a function cannot be handed over"]


# ---------------------------------------------------------------- rights


def test_a_link_does_not_lead_from_a_path_that_is_allowed_to_one_that_is_not(monkeypatch, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "fine.txt").write_text("fine")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "open" / "link.txt").symlink_to("../secret.txt")
    (tmp_path / "open" / "folder").symlink_to("..")
    source = """agent G { model "sim/script"
        tool rd(path: str) capabilities [fs::read] allowed_paths ["open/**"] { return file::read(path); }
        tool wr(path: str) capabilities [fs::write] allowed_paths ["open/**"] { file::write(path, "x"); return "ok"; }
        tool ls(path: str) capabilities [fs::read] allowed_paths ["open/**"] { return file::list(path); }
    }"""
    caller = Caller(
        ("rd", {"path": "open/fine.txt"}),
        ("rd", {"path": "open/link.txt"}),
        ("rd", {"path": "open/folder/secret.txt"}),
        ("wr", {"path": "open/link.txt"}),
        ("wr", {"path": "open/folder/new.txt"}),
        ("ls", {"path": "open/folder"}),
        ("wr", {"path": "open/new.txt"}),
    )
    _in_real_time(source + '\nlet g = spawn G; g <- "go";', caller, folder=str(tmp_path))
    assert caller.results[0] == "fine"
    assert all("CapabilityDenied" in result for result in caller.results[1:6]), caller.results
    assert caller.results[6] == "ok"
    assert (tmp_path / "secret.txt").read_text() == "secret"
    assert not (tmp_path / "new.txt").exists()


def _in_real_time(source: str, model: Any, **options: Any) -> list[str]:
    from lyra import Kernel
    from lyra.models.client import LLMClient
    from lyra.models.sim import SimProvider

    lines: list[str] = []

    async def main() -> None:
        async with Kernel() as kernel:
            client = LLMClient()
            client.register("sim", SimProvider(script=model))
            kernel.parts["models"] = client
            await vega.run(source, kernel=kernel, stdout=lines.append, stderr=lines.append, **options)

    asyncio.run(asyncio.wait_for(main(), 60))
    return lines


def test_a_pipe_is_no_file(tmp_path):
    """Reading one would wait for a writer."""
    import os

    os.mkfifo(tmp_path / "pipe")
    lines: list[str] = []
    source = 'try { file::read("pipe"); } catch EffectFailed(r) { print(str::contains(r, "not a plain file")); }'
    vega.run(source, folder=str(tmp_path), stdout=lines.append)
    assert lines == ["true"]


def test_a_tool_lends_an_agent_no_more_than_it_may_do_itself(tmp_path):
    (tmp_path / "a.txt").write_text("in the file")
    source = """
        agent Reader { model "sim/script" tool rd() capabilities [fs::read] { return file::read("a.txt"); } }
        agent G { model "sim/script" tool weak() capabilities [] { let r = spawn Reader; return r <- "go"; } }
        let g = spawn GOES; g <- "go";
    """
    direct, through = Caller(("rd", {})), _By(("weak", {}), ("rd", {}))
    _in_real_time(source.replace("GOES", "Reader"), direct, folder=str(tmp_path))
    _in_real_time(source.replace("GOES", "G"), through, folder=str(tmp_path))
    assert direct.results == ["in the file"]
    assert "CapabilityDenied" in through.results[0]


class _By(Caller):
    """Calls whichever of its tools the agent has."""

    def __call__(self, request: Request) -> Any:
        results = request.messages[-1].tool_results
        if results:
            self.results += [str(result.output) for result in results]
            return "done"
        names = {tool.name for tool in request.tools}
        return Reply.from_data({"tool_calls": [call for call in self._calls if call["name"] in names]})


@pytest.mark.parametrize("memory", ["none", "conversation"])
def test_a_tool_ends_with_the_call_that_it_is_for(memory):
    source = f"""
        agent G {{ model "sim/script" memory {memory} tool slow() {{ process::sleep(1h); print("too late"); }} }}
        let g = spawn G;
        try {{ g <- "go" timeout 2s; }} catch DeadlineExceeded {{ print("late"); }}
        process::sleep(2h);
    """
    assert play(source, Caller(("slow", {}))) == ["late"]


# ---------------------------------------------------------------- tools of others


NAMED = """
    import tools from mcp "tiny" IMPORTED;
    agent G { model "sim/script" tools [TOOLS] tool own() { return "own"; } }
    let g = spawn G;
    g <- "go";
"""


@pytest.mark.parametrize(
    ("imported", "tools", "more"),
    [("", "add", False), ("", '"mcp__tiny__add"', False), ("as everything", "everything", True)],
    ids=["by its name", "by the name models see", "the whole server"],
)
def test_tools_of_an_mcp_server(tmp_path, imported, tools, more):
    """A real server, a real call; the program's own tools beside it."""
    caller = Caller(("mcp__tiny__add", {"a": 2, "b": 3}), ("own", {}))
    source = NAMED.replace("IMPORTED", imported).replace("TOOLS", tools)
    _with_server(source, caller, tmp_path)
    assert caller.results == ["5", "own"]
    assert ("mcp__tiny__log" in caller.offered) == more


def test_a_program_that_names_a_server_allows_the_tools_that_it_has(tmp_path):
    """Also those of a server that reaches hosts: a rule for all its tools would be no answer."""
    caller = Caller(("mcp__tiny__add", {"a": 2, "b": 3}), ("own", {}))
    source = NAMED.replace("IMPORTED", "as everything").replace("TOOLS", "everything")
    _with_server(source, caller, tmp_path, network=("api.example.com",))
    assert caller.results == ["5", "own"]


def _with_server(source: str, model: Any, folder: Path, **settings: Any) -> None:
    from lyra import Kernel
    from lyra.models.client import LLMClient
    from lyra.models.sim import SimProvider

    async def main() -> None:
        async with using(tiny(**settings), folder=folder) as use, Kernel() as kernel:
            client = LLMClient()
            client.register("sim", SimProvider(script=model))
            kernel.parts["models"] = client
            await vega.run(source, kernel=kernel, folder=str(folder), servers=use.servers)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_server_that_is_not_there_is_said_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match="'tony'"):
        _with_server('import tools from mcp "tony"; print("never");', Seen(), tmp_path)


def test_without_servers_an_agent_that_needs_one_says_so():
    source = NAMED.replace("IMPORTED", "").replace("TOOLS", "add")
    with pytest.raises(VegaError, match="gives it no servers"):
        vega.run(source, model="sim/echo")


def test_tools_in_yaml_of_the_user_and_of_the_programs_folder(monkeypatch, tmp_path):
    """The user's own always; those of the working folder once it is trusted, for exactly that content."""
    trust._running.set(None)  # a command that ran in this process before may have left its own
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    own, project, work = tmp_path / "config/lyra/tools", tmp_path / "work/.lyra/tools", tmp_path / "work"
    own.mkdir(parents=True)
    project.mkdir(parents=True)
    (work / "today.md").write_text("Water the plants.")
    (own / "note.yaml").write_text(
        "name: note\ndescription: Read a note.\nparams: [{name: day, type: string}]\n"
        'implementation: {type: file_read, path: "{{day}}.md"}\n'
    )
    (project / "shout.yaml").write_text(
        "name: shout\ndescription: Shout.\nparams: [{name: word, type: string}]\n"
        'implementation: {type: exec, command: [echo, "{{word}}"]}\n'
    )
    source = 'agent G { model "sim/script" tools ["note", "shout"] } let g = spawn G; g <- "go";'
    (work / "a.vega").write_text(source)
    caller = Caller(("note", {"day": "today"}), ("shout", {"word": "hey"}))
    with pytest.raises(VegaError, match="no tool 'shout'"):
        _in_real_time(source, caller, folder=str(work), name=str(work / "a.vega"))
    trusting.answer(work)
    _in_real_time(source, caller, folder=str(work), name=str(work / "a.vega"))
    assert [result.strip() for result in caller.results] == ["Water the plants.", "hey"]
    (project / "shout.yaml").write_text((project / "shout.yaml").read_text().replace("echo", "ls"))
    with pytest.raises(VegaError, match="no tool 'shout'"):
        _in_real_time(source, caller, folder=str(work), name=str(work / "a.vega"))


def test_functions_of_the_host_as_tools():
    """Given when running, or imported where that is allowed."""

    async def half(number: int) -> int:
        """Half of it."""
        return number // 2

    given = 'agent G { model "sim/script" tools ["half"] }'
    assert called(given, ("half", {"number": 8}), host={"half": half}) == ["4"]
    imported = 'import python "textwrap:dedent" as dedent; agent G { model "sim/script" tools [dedent] }'
    with pytest.raises(VegaError, match="may not import python 'textwrap:dedent'"):
        called(imported)
    with pytest.raises(VegaError, match="no attribute 'nothing'"):
        called(imported.replace(":dedent", ":nothing"), python=["textwrap"])
    with pytest.raises(VegaError, match=r"write .module:function"):
        called(imported.replace(":dedent", ""), python=["textwrap"])


def test_a_node_needs_a_host_that_executes_nodes(tmp_path):
    lines: list[str] = []
    (tmp_path / "charge.vsp").write_text("node_id: charge_v1\n")
    source = 'import node "charge.vsp" as charge; try { charge(1); } catch Error(r) { print(r); }'
    vega.run(source, name=str(tmp_path / "main.vega"), stdout=lines.append)
    assert "this host executes none" in lines[0]


@pytest.mark.parametrize(("capabilities", "result"), [("fs::read", "CapabilityDenied"), ("fs::read, fs::write", "ok")])
def test_the_capabilities_of_an_agent_are_those_of_its_tools(tmp_path, capabilities, result):
    """A tool that declares none of its own has its agent's, and no others."""
    source = f"""agent G {{ model "sim/script" capabilities [{capabilities}]
        tool wr() {{ file::write("new.txt", "x"); return "ok"; }}
    }}
    let g = spawn G; g <- "go";"""
    caller = Caller(("wr", {}))
    _in_real_time(source, caller, folder=str(tmp_path))
    assert result in caller.results[0]
    assert (tmp_path / "new.txt").exists() is (result == "ok")
