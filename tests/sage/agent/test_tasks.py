"""Sub-agents of a session: named, side by side, each with its own window, tools, budget and rights."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lyra import tool
from lyra.errors import ConfigError, Conflict, NoSuchProcess
from lyra.sage.agent.tasks.sub_agents import GENERAL
from lyra.sage.extensions.agent_files import BUILT_IN, SubAgentDefinition
from lyra.tools.builtin import builtin_tools
from tests.sage.agent.task_support import Model, calls, opened, result, task


async def test_a_named_sub_agent_answers(tmp_path: Path) -> None:
    """It has the prompt of its type and a window of its own; its answer and its id are the result."""
    model = Model(lead=[calls(task("find it", subagent_type="Explore")), {"text": "done"}], find=[{"text": "it is 42"}])
    async with opened(tmp_path, model) as session:
        assert await session.say("lead: go") == "done"
        (record,) = session.tasks.list()
        assert (record.kind, record.name, record.description, record.state) == (
            "agent",
            "Explore",
            "work on find",
            "done",
        )
        assert record.id.startswith("explore-")
        assert result(model.of("lead")[1]).startswith("it is 42")
        assert f'resume="{record.id}"' in result(model.of("lead")[1])
    (asked,) = model.of("find")
    assert asked.system == BUILT_IN["Explore"].system
    assert [message.text for message in asked.messages] == ["find it"]


async def test_an_unknown_type_is_told(tmp_path: Path) -> None:
    """The model reads which there are."""
    model = Model(lead=[calls(task("find it", subagent_type="Finder")), {"text": "done"}])
    async with opened(tmp_path, model) as session:
        await session.say("lead: go")
        assert session.tasks.list() == []
    assert "there are general, Explore, Plan, Review" in result(model.of("lead")[1])


def _dig(depth: int) -> str:
    return f"dug {depth}"


def _fill(depth: int) -> str:
    return f"filled {depth}"


async def test_a_users_sub_agent_has_its_own_tools_model_and_turns(tmp_path: Path) -> None:
    """Only the tools that it names, the model and the prompt of its file; its turns are bounded."""
    digger = SubAgentDefinition(
        name="digger", description="Digs", system="You dig.", tools=("_dig",), max_turns=1, source="/x/digger.md"
    )
    dig = {"name": "_dig", "arguments": {"depth": 3}}
    model = Model(lead=[calls(task("deep hole", subagent_type="digger")), {"text": "done"}], deep=[calls(dig)])
    tools = [tool(_dig), tool(_fill)]
    async with opened(tmp_path, model, tools=tools, definitions={"digger": digger}) as session:
        await session.say("lead: go")
        (record,) = session.tasks.list()
        assert record.state == "failed"
        assert "turns were used up" in record.text
        assert "- digger: Digs" in model.of("lead")[0].tools[-3].description
    (asked,) = model.of("deep")
    assert [tool.name for tool in asked.tools] == ["_dig"]
    assert asked.system == "You dig."


async def test_several_work_at_once_and_one_that_fails_ends_no_other(tmp_path: Path) -> None:
    """A rate limit of one is an error of its call; the others answer, and the caller goes on."""
    busy: set[str] = set()
    most: list[int] = []

    def slow(request: Any) -> dict[str, Any]:
        busy.add(request.messages[0].text)
        most.append(len(busy))
        return {"text": f"{request.messages[0].text} answered", "first_s": 0.05}

    limited = {"error": {"kind": "rate_limit", "message": "slow down"}}
    script = [calls(task("one"), task("two"), task("three")), {"text": "all told"}]
    model = Model(lead=script, one=slow, two=[limited], three=slow)
    async with opened(tmp_path, model) as session:
        assert await session.say("lead: go") == "all told"
        states = {record.description: record.state for record in session.tasks.list()}
    assert states == {"work on one": "done", "work on two": "waiting", "work on three": "done"}
    told = [str(output.output) for output in model.of("lead")[1].messages[-1].tool_results]
    assert told[0].startswith("one answered")
    assert "slow down" in told[1]
    assert "resume=" in told[1]
    assert told[2].startswith("three answered")
    assert max(most) == 2


async def test_a_budget_lies_inside_the_callers(tmp_path: Path) -> None:
    """Its own ends it and not the caller; what it spent, the caller has spent."""
    poor = SubAgentDefinition(name="poor", description="x", system="x", budget="$0.0001")
    model = Model(
        lead=[calls(task("costly", subagent_type="poor"), task("cheap")), {"text": "done"}],
        costly=[{"text": "word " * 500}],
        cheap=[{"text": "fine"}],
    )
    async with opened(tmp_path, model, definitions={"poor": poor}, budget="$1") as session:
        assert await session.say("lead: go") == "done"
        by_description = {record.description: record for record in session.tasks.list()}
        assert by_description["work on costly"].state == "failed"
        assert by_description["work on cheap"].state == "done"
        costs = session.tasks.costs()
        spent = int(session.process.budget.used("usd"))
        assert spent == sum(usage["cost_micro_usd"] for usage in costs.values())
        assert costs["sage"]["cost_micro_usd"] < spent
        assert session.process.metrics.totals[2] == spent, "helpers are in the totals of the caller"


async def test_a_sub_agent_that_only_reads_cannot_write(tmp_path: Path) -> None:
    """Explore has neither the tools nor the rights, whatever its caller may do."""
    (tmp_path / "work").mkdir()
    write = {"name": "Write", "arguments": {"file_path": "a.txt", "content": "x"}}
    model = Model(
        lead=[calls(task("find it", subagent_type="Explore")), {"text": "done"}], find=[calls(write), {"text": "no"}]
    )
    tools = builtin_tools(str(tmp_path / "work"))
    async with opened(tmp_path, model, tools=tools, permissions={"mode": "bypass"}) as session:
        await session.say("lead: go")
        process = session.kernel.processes[session.tasks.list()[0].id]
        assert not process.grant.allows("fs.write:/x")
        assert not process.grant.allows("process.exec:ls")
        assert process.grant.allows("fs.read:/x")
    assert "there is no tool 'Write'" in result(model.of("find")[1])
    assert not (tmp_path / "work" / "a.txt").exists()


async def test_rules_among_its_tools_are_all_that_it_may_do(tmp_path: Path) -> None:
    """A rule with a pattern allows nothing by itself, and what no rule speaks of is denied."""
    (tmp_path / "work" / "docs").mkdir(parents=True)
    writer = SubAgentDefinition(name="writer", description="x", system="x", tools=("Read", "Write(docs/**)"))

    def write(path: str) -> dict[str, Any]:
        return calls({"name": "Write", "arguments": {"file_path": path, "content": "x"}})

    model = Model(
        lead=[calls(task("please", subagent_type="writer")), {"text": "done"}],
        please=[write("docs/a.txt"), write("b.txt"), {"text": "ok"}],
    )
    tools = builtin_tools(str(tmp_path / "work"))
    permissions = {"mode": "accept-edits"}
    async with opened(tmp_path, model, tools=tools, definitions={"writer": writer}, permissions=permissions) as session:
        await session.say("lead: go")
    assert (tmp_path / "work" / "docs" / "a.txt").exists()
    assert not (tmp_path / "work" / "b.txt").exists()
    assert "only Write(docs/**), Read may be used" in result(model.of("please")[2])


async def test_a_sub_agent_is_asked_more(tmp_path: Path) -> None:
    """`resume` sends it another message: it has its conversation, and its id stays."""
    ids: list[str] = []

    def lead(request: Any) -> Any:
        told = sum(message.role == "assistant" for message in request.messages)
        if told == 0:
            return calls(task("find it"))
        if told == 1:
            ids.append(result(request).split('resume="')[1].split('"')[0])
            return calls(task("and more", resume=ids[0]))
        return {"text": result(request)}

    model = Model(lead=lead, find=[{"text": "first"}, {"text": "second"}])
    async with opened(tmp_path, model) as session:
        assert (await session.say("lead: go")).startswith("second")
        (record,) = session.tasks.list()
        assert record.id == ids[0]
    assert [message.text for message in model.of("find")[1].messages] == ["find it", "first", "and more"]


async def test_a_failed_turn_is_resumed_with_what_it_had_done(tmp_path: Path) -> None:
    """After a rate limit the sub-agent goes on where it was: no finished call is made again."""
    dug: list[int] = []

    def dig(depth: int) -> str:
        dug.append(depth)
        return "dug"

    answers = [calls({"name": "dig", "arguments": {"depth": 1}}), {"error": {"kind": "rate_limit"}}]

    def deep(request: Any) -> Any:
        if request.messages[-1].text == "go on":
            return {"text": "deep enough"}
        return answers[sum(message.role == "assistant" for message in request.messages)]

    model = Model(lead=[calls(task("deep hole")), {"text": "done"}], deep=deep)
    async with opened(tmp_path, model, tools=[tool(dig)]) as session:
        await session.say("lead: go")
        (record,) = session.tasks.list()
        assert record.state == "waiting"
        await session.tasks.resume(record.id, "go on")
        await session.until(lambda: session.state(record.id) == "done")
        assert session.tasks.get(record.id).text == "deep enough"
    roles = [message.role for message in model.of("deep")[-1].messages]
    assert roles == ["user", "assistant", "tool", "user"]
    assert dug == [1]


async def test_the_caller_stops_its_sub_agents_with_its_turn(tmp_path: Path) -> None:
    """Giving up the turn stops those it waits for; they can be resumed. One in the background goes on."""
    started = calls(task("slow work"), task("other work", run_in_background=True))
    model = Model(
        lead=[started, {"text": "next"}],
        slow=lambda request: {"text": "late", "first_s": 0.0 if len(request.messages) > 1 else 60.0},
        other=[{"text": "fine", "first_s": 0.2}],
    )
    async with opened(tmp_path, model) as session:
        pending = session.process.send_async("lead: go")
        await session.until(lambda: model.of("slow") and model.of("other"))
        pending.cancel()
        by_description = {record.description: record.id for record in session.tasks.list()}
        slow, other = by_description["work on slow"], by_description["work on other"]
        await session.until(lambda: session.state(slow) == "stopped")
        await session.until(lambda: session.state(other) == "done")
        await session.tasks.resume(slow)
        await session.until(lambda: session.state(slow) == "done")
        assert session.tasks.get(slow).text == "late"


async def test_a_task_that_cannot_be_resumed(tmp_path: Path) -> None:
    """One that works, one that is not there: the error says so."""
    model = Model(
        lead=[calls(task("slow", run_in_background=True)), {"text": "ok"}], slow=[{"text": "x", "first_s": 60}]
    )
    async with opened(tmp_path, model) as session:
        await session.say("lead: go")
        (record,) = session.tasks.list()
        with pytest.raises(Conflict, match="still working"):
            await session.tasks.resume(record.id)
        with pytest.raises(NoSuchProcess, match="no task 'nothing'"):
            session.tasks.get("nothing")
        assert await session.tasks.stop(record.id)
        await session.until(lambda: session.state(record.id) == "stopped")
        assert not await session.tasks.stop(record.id)


async def test_a_task_is_watched_live(tmp_path: Path) -> None:
    """Every reader gets its lines as they come; the last is the result of its turn."""
    dig = {"name": "_dig", "arguments": {"depth": 1}}
    model = Model(
        lead=[calls(task("slow work", run_in_background=True)), {"text": "ok"}],
        slow=[{**calls(dig), "first_s": 0.1}, {"text": "all dug", "chunk_s": 0.01}],
    )
    async with opened(tmp_path, model, tools=[tool(_dig)]) as session:
        await session.say("lead: go")
        (record,) = session.tasks.list()
        assert record.state == "running"

        async def read() -> list[Any]:
            return [line async for line in session.tasks.watch(record.id)]

        first, second = await asyncio.gather(read(), read())
        assert first == [*second[:-1], {**second[-1], "duration_ms": first[-1]["duration_ms"]}]
        kinds = [line["type"] for line in first]
        assert kinds[:3] == ["usage", "tool_start", "tool_end"]
        assert kinds[-1] == "result"
        assert "".join(line["delta"] for line in first if line["type"] == "text_delta") == "all dug"
        assert (first[-1]["status"], first[-1]["text"]) == ("success", "all dug")
        (last,) = await read()
        assert last["text"] == "all dug"


async def test_a_kernel_without_the_facts_is_refused(tmp_path: Path) -> None:
    """Otherwise a session that is opened again would know of no task."""
    from lyra import Agent, Kernel
    from lyra.sage.agent.tasks.task_list import TaskList

    tasks = TaskList(definitions=dict, folder=tmp_path)
    agent = Agent("sage", model="sim/echo")
    async with Kernel() as kernel:
        with pytest.raises(ConfigError, match="does not keep the facts"):
            tasks.open(await kernel.spawn(agent, pid="sage"), agent)
    assert tasks.definitions == {"general": GENERAL}


async def test_old_sub_agents_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list has a length: the oldest that has told its answer ends, and cannot be asked more."""
    monkeypatch.setattr("lyra.sage.agent.tasks.runs.KEPT_MAX", 2)
    script = [calls(task("one", description=f"work {number}")) for number in range(3)]
    model = Model(lead=[*script, {"text": "ok"}], one=[{"text": "fine"}])
    async with opened(tmp_path, model) as session:
        kinds: list[str] = []
        session.kernel.on_event(lambda event: kinds.append(event.kind), kinds=("task.forgotten",))
        await session.say("lead: go")
        assert [record.description for record in session.tasks.list()] == ["work 1", "work 2"]
        await session.until(lambda: len(session.process.children) == 2)
        await session.until(lambda: "task.forgotten" in kinds)


def test_permissions_do_not_depend_on_the_caller_being_there(tmp_path: Path) -> None:
    """A sub-agent that goes on after a restart is held by rules, whichever process comes back first."""
    from lyra import Agent
    from lyra.sage.agent.tasks.sub_agents import TaskSpec, sub_agent, worktree_tools

    tools = builtin_tools(str(tmp_path))
    caller = Agent("sage", model="sim/echo", tools=tools, permissions={"mode": "default"})
    spec = TaskSpec(id="a", type="general", description="", system="")
    assert sub_agent(spec, caller, worktree_tools).permissions is caller.permissions
    reader = sub_agent(TaskSpec(id="a", type="Explore", description="", system="", mode="plan"), caller, worktree_tools)
    assert reader.permissions is not None
    assert reader.permissions.mode == "plan"
    copied = sub_agent(
        TaskSpec(id="a", type="x", description="", system="", worktree=str(tmp_path)), caller, worktree_tools
    )
    assert copied.permissions is not None
    assert copied.permissions.workspace == str(tmp_path)
    assert all(tool.folders in ((), (str(tmp_path),)) for tool in copied.toolbox)
