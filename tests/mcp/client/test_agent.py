"""An agent with MCP tools: asked about, marked by what it reads, and never stopped by a server that is gone."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import lyra
from lyra.agents.agent import Agent
from lyra.agents.headless.headless import Headless
from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.session.events import Interrupted, ToolEnded, ToolProgress
from lyra.config import Config
from lyra.kernel.kernel import Kernel
from lyra.mcp import Approvals, McpServers, ServerSettings
from lyra.tools.function import tool
from tests.agents.support import calls, says
from tests.mcp.support import HERE, PYTHON, QUICK, SEEN, run, tiny, using
from tests.silent_server import silent_server

__all__ = ["silent_server"]


@asynccontextmanager
async def asked(folder, model, *, allow=(), as_source=False, servers=None):
    """The events of one answer of an agent with the tools of a server."""
    async with using(*(servers or [tiny()]), folder=folder) as use, Kernel(store="memory") as kernel:
        tools = [use.servers] if as_source else list(use.tools.values())
        permissions = {"allow": list(allow), "mode": "default"}
        agent = Agent("assistant", model=model, tools=tools, permissions=permissions)
        process = await kernel.spawn(agent)

        async def events(task="go"):
            return [event async for event in process.stream(task, events=True)]

        yield kernel, process, events


def ends(events):
    return [event for event in events if isinstance(event, ToolEnded)]


def test_a_rule_lets_it_call_and_the_session_is_marked(tmp_path):
    """What the server said is text from outside."""

    async def main():
        model = says(calls("mcp__tiny__add", a=2, b=3), "done")
        async with asked(tmp_path, model, allow=["mcp__tiny__*"]) as (kernel, process, events):
            assert not kernel.taint.is_tainted(process.pid)
            (end,) = ends(await events())
            assert (end.output, end.is_error) == ("5", False)
            assert kernel.taint.is_tainted(process.pid)

    run(main())


def test_a_rule_for_all_tools_is_no_answer_where_the_server_can_send_data_out(tmp_path):
    """The descriptions of its tools are text from outside; the name of the tool is an answer, and so is a rule for all
    tools of a server that is shut in."""
    out = ("api.example.com",)

    async def main():
        cases = ((out, "mcp__tiny__*", True), (out, "mcp__*", True), (out, "mcp__tiny__add", False))
        for network, rule, refused in (*cases, ((), "mcp__tiny__*", False)):
            async with using(tiny(network=network), folder=tmp_path) as use, Kernel() as kernel:
                permissions = {"allow": [rule], "attended": False}
                model = says(calls("mcp__tiny__add", a=2, b=3), "done")
                agent = Agent("assistant", model=model, tools=[use.servers], permissions=permissions)
                process = await kernel.spawn(agent)
                (end,) = ends([event async for event in process.stream("go", events=True)])
                assert end.is_error is refused, (network, rule)

    run(main())


def test_without_a_rule_and_a_person_it_is_refused_in_run(tmp_path):
    """`lyra.run` has a kernel that no person can reach: the call is refused at once; `answer=` lets it through."""

    async def main():
        async with using(tiny(), folder=tmp_path) as use:
            for answer, result in ((None, "no person can answer here"), (lambda question: True, "5")):
                model = says(calls("mcp__tiny__add", a=2, b=3), "{result}")
                agent = Agent("assistant", model=model, tools=list(use.tools.values()))
                assert result in await lyra.run(agent, "go", answer=answer)

    run(main())


def test_without_a_rule_a_person_is_asked(tmp_path):
    """The question holds the arguments; no answer, no call."""

    async def main():
        model = says(calls("mcp__tiny__add", a=2, b=3), "done")
        async with asked(tmp_path, model) as (kernel, process, _events):
            questions, came = [], []
            async for event in process.stream("go", events=True):
                if isinstance(event, Interrupted):
                    questions.append(event.question)
                    kernel.resolve_interrupt(event.id, {"approved": False})
                came.append(event)
            (end,) = ends(came)
            assert end.is_error
            assert end.error_code == "permission_denied"
            assert "mcp__tiny__add" in questions[0]
            assert '"a":2' in questions[0]

    run(main())


def test_a_dead_server_does_not_stop_the_turn(tmp_path):
    """The model is told, and goes on."""

    async def main():
        model = says(calls("mcp__tiny__crash"), calls("mcp__tiny__add", a=1, b=1), "I am still here")
        async with asked(tmp_path, model, allow=["mcp__tiny__*"]) as (_, process, events):
            first, second = ends(await asyncio.wait_for(events(), 20))
            assert first.is_error
            assert "it ended with 7" in first.output
            assert second.is_error
            assert process.messages[-1].text == "I am still here"

    run(main())


def test_progress_comes_through(tmp_path):
    """As events of the answer."""

    async def main():
        model = says(calls("mcp__tiny__steps"), "done")
        async with asked(tmp_path, model, allow=["mcp__tiny__*"]) as (_, _process, events):
            told = [event for event in await events() if isinstance(event, ToolProgress)]
            assert [(event.text, event.fraction) for event in told] == [("step 1", 0.5), ("step 2", 1.0)]

    run(main())


def test_the_servers_themselves_are_a_source_of_tools(tmp_path):
    """A tool that appears between two messages can be called in the second."""

    async def main():
        model = says(calls("mcp__tiny__grow"), "grown", calls("mcp__tiny__grown"), "done")
        async with asked(tmp_path, model, allow=["mcp__tiny__*"], as_source=True) as (_, _process, events):
            await events()
            await asyncio.sleep(0.3)
            (end,) = ends(await events("again"))
            assert (end.output, end.is_error) == ("grown", False)

    run(main())


def test_the_grant_holds(tmp_path):
    """A process that may not use a tool cannot, whatever the rules say."""

    async def main():
        async with using(tiny(), folder=tmp_path) as use, Kernel(store="memory") as kernel:
            model = says(calls("mcp__tiny__add", a=1, b=1), calls("mcp__tiny__log"), "done")
            agent = Agent("a", model=model, tools=list(use.tools.values()), permissions={"allow": ["*"]})
            process = await kernel.spawn(agent, grant={"allow": ["model.use", "tool.use:mcp__tiny__log"]})
            first, second = ends([event async for event in process.stream("go", events=True)])
            assert (first.is_error, first.error_code) == (True, "permission_denied")
            assert not second.is_error
            assert "add" not in str(second.output)

    run(main())


def test_names_do_not_collide_with_ours(tmp_path):
    """Two servers with one tool each of the same name."""

    async def main():
        async with using(tiny("one"), tiny("two"), folder=tmp_path) as use:
            agent = Agent("a", model="sim/echo", tools=list(use.tools.values()))
            assert {"mcp__one__add", "mcp__two__add"} <= set(agent.tools)

    run(main())


def test_a_slow_server_brings_its_tools_later(tmp_path):
    """The run does not wait for it; at the next call of the model it is there, under the same rules as the others."""

    async def main():
        servers = McpServers(
            [tiny("slow", "slow:1"), tiny("mute", "mute")],
            workspace=str(tmp_path),
            approvals=Approvals(None),
            folder=None,
        )
        async with servers:
            began = asyncio.get_running_loop().time()
            states = {state.name: state.state for state in await servers.start(within_s=0.2)}
            assert asyncio.get_running_loop().time() - began < 10
            assert states == {"slow": "connecting", "mute": "connecting"}

            async def wait() -> str:
                """Wait."""
                while servers["slow"].state.state != "connected":
                    await asyncio.sleep(0.01)
                return "it is there"

            script = tmp_path / "script.json"
            steps = [calls("wait"), calls("mcp__slow__add", a=1, b=2), calls("mcp__slow__log"), {"text": "done"}]
            script.write_text(json.dumps({"sequence": steps}))
            options = HeadlessOptions(
                model=f"sim/script:{script}",
                folder=str(tmp_path),
                allow=("wait", "mcp__slow__add"),
                tools=(tool(wait), servers),
            )
            lines = []
            async with Headless(options, Config.load(str(tmp_path), {})) as run:
                assert (await run.ask("go", lines.append)).error is None
            ended = [line for line in lines if line["type"] == "tool_end"]
            assert [line.get("error_code", "") for line in ended] == ["", "", "permission_denied"]
            assert ended[1]["output"] == "3"

    run(main())


def test_the_model_is_told_of_servers_that_are_not_there(tmp_path):
    """By the description of a tool, without a word that a server said; once they are there, no more."""

    async def main():
        servers = McpServers(
            [tiny("slow", "slow:1"), tiny("dies", "dies")],
            workspace=str(tmp_path),
            approvals=Approvals(None),
            supervision=QUICK,
            folder=None,
        )
        async with servers:
            await servers.start(within_s=0.2)
            provider = says(calls("McpStatus"), "done")
            agent = Agent("a", model=provider, tools=servers, permissions={"allow": ["McpStatus"], "mode": "default"})
            assert await lyra.run(agent, "go") == "done"
            (status,) = [tool for tool in provider.requests[0].tools if tool.name == "McpStatus"]
            assert "slow (still starting)" in status.description
            assert "dies (" in status.description
            while servers["slow"].state.state != "connected" or servers["dies"].state.state == "connecting":
                await asyncio.sleep(0.01)
            (status,) = [tool for tool in servers.__lyra_tools__() if tool.name == "McpStatus"]
            assert status.description.endswith("Not there now, with all of their tools: dies (did not start).")
            assert status.run is not None
            assert await status.run() == "dies (did not start)"

    run(main())


def test_lyra_agent_waits_as_long_as_start_s_says(tmp_path, monkeypatch):
    """For all its servers together; those that are not there are told of as they are."""
    from lyra.cli.app import Invocation
    from lyra.cli.commands import agent as command

    monkeypatch.chdir(tmp_path)
    seen = ", ".join(f'"{path}"' for path in SEEN)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    mine = tmp_path / "home" / "lyra" / "lyra.toml"
    mine.parent.mkdir()
    mine.write_text(
        f'[mcp.servers.mute]\ncommand = "{PYTHON}"\nargs = ["-IS", "{HERE / "tiny_server.py"}"]\n'
        f'readable = [{seen}]\nenv = {{TINY = "mute"}}\nstart_s = 0.2\n'
    )

    async def main():
        began = asyncio.get_running_loop().time()
        options = HeadlessOptions(model="sim/echo", folder=str(tmp_path))
        async with command.with_servers(Invocation(), options) as equipped:
            assert asyncio.get_running_loop().time() - began < 20
            assert [state["failure"]["kind"] for state in equipped.facts["mcp_servers"]] == ["timeout"]

    run(main())


def test_servers_that_connect_in_the_background_are_waited_for_once(silent_server, monkeypatch):
    """`begin` returns at once; `settle` waits for a few seconds after it, and names each server that is late once."""
    monkeypatch.setattr("lyra.mcp.servers.SETTLE_S", 0.3)

    async def main():
        servers = McpServers(
            [ServerSettings(name="mute", transport="http", url=silent_server)], approvals=Approvals(None), folder=None
        )
        async with servers:
            assert [state.state for state in servers.begin()] == ["connecting"]
            assert await servers.settle() == ["mute"]
            assert await servers.settle() == []
            assert [state.state for state in servers.states()] == ["connecting"]

    run(main())
