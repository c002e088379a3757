"""Sub-agents after a crash, and in the background: nothing that was finished is repeated, and answers come once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lyra import tool
from lyra.tools.builtin import builtin_tools
from tests.sage.agent.task_support import Model, Session, calls, opened, result, task

HANGS = {"text": "never", "first_s": 60}


def output(task_id: str, wait_s: float = 0) -> dict[str, Any]:
    return {"name": "TaskOutput", "arguments": {"id": task_id, "wait_s": wait_s}}


def dig(depth: int) -> str:
    """Dig."""
    DUG.append(depth)
    return f"dug {depth}"


DUG: list[int] = []


def digging(then: Any) -> Any:
    """A sub-agent that digs once, then says what `then` has at the time."""

    def answer(request: Any) -> Any:
        if request.messages[-1].role == "user":
            return calls({"name": "dig", "arguments": {"depth": len(request.messages[0].text)}})
        return then()

    return answer


@pytest.mark.parametrize("goes_on", [True, False])
async def test_two_that_were_working_go_on_after_a_crash(tmp_path: Path, goes_on: bool) -> None:
    """No finished call is made again, and both answers reach the caller: as the results of its calls where its turn
    goes on, as notices where a person has come back and the turn was given up."""
    DUG.clear()
    replies = [HANGS]

    def lead(request: Any) -> Any:
        if any("again" in message.text for message in request.messages):
            return {"text": "yes"}
        return calls(task("one"), task("three")) if len(request.messages) == 1 else {"text": "told"}

    model = Model(lead=lead, one=digging(lambda: replies[0]), three=digging(lambda: replies[0]))
    async with opened(tmp_path, model, tools=[tool(dig)], crashes=True) as session:
        session.process.send_async("lead: go")
        await session.until(lambda: len(model.of("one")) == 2 and len(model.of("three")) == 2)
        ids = [record.id for record in session.tasks.list()]
        assert [record.state for record in session.tasks.list()] == ["running", "running"]
    replies[0] = {"text": "deep"}
    async with opened(tmp_path, model, tools=[tool(dig)], goes_on=goes_on) as session:
        assert [record.id for record in session.tasks.list()] == ids
        await session.until(lambda: [session.state(task_id) for task_id in ids] == ["done", "done"])
        if goes_on:
            await session.until(lambda: session.process.messages[-1:] and session.process.messages[-1].text == "told")
            told = [str(entry.output) for entry in session.process.messages[-2].tool_results]
            assert [text.partition("\n")[0] for text in told] == ["deep", "deep"]
        else:
            assert [notice.id for notice in session.notices] == ids
        await session.say("lead: again")
        texts = [message.text for message in session.process.messages if "by the program" in message.text]
        assert sum("is done" in text for text in texts) == (0 if goes_on else 1), "two notices in one message, once"
    assert sorted(DUG) == [3, 5]
    assert len(model.of("one")) == 3, "the call that was cut off is made again, no other"


async def test_a_finished_answer_is_not_lost_with_its_caller(tmp_path: Path) -> None:
    """Killed between the sub-agent's answer and the caller's next call: the caller takes the answer from the store."""
    replies = [HANGS]
    model = Model(
        lead=lambda request: calls(task("one")) if len(request.messages) == 1 else replies[0], one=[{"text": "42"}]
    )
    async with opened(tmp_path, model, crashes=True) as session:
        session.process.send_async("lead: go")
        await session.until(lambda: len(model.of("lead")) == 2)
    replies[0] = {"text": "fine"}
    async with opened(tmp_path, model) as session:
        await session.until(lambda: len(session.process.messages) == 4)
        assert result(model.of("lead")[-1]).startswith("42")
        await session.say("more")
        assert not any("by the program" in message.text for message in session.process.messages)
    assert len(model.of("one")) == 1


async def test_a_background_task_tells_when_it_is_done(tmp_path: Path) -> None:
    """Task returns its id at once; the user is told by a notice, the model before its next call, and TaskOutput has
    the answer."""
    ids: list[str] = []

    def lead(request: Any) -> Any:
        last = request.messages[-1]
        if last.text.startswith("lead"):
            return calls(task("slow", run_in_background=True))
        if last.role == "tool" and last.tool_results[0].name == "Task":
            ids.append(str(last.tool_results[0].output).split(" as ")[1].split(";")[0])
            return {"text": "started"}
        if "is done" in last.text:
            return calls(output(ids[0]))
        return {"text": result(request) if last.role == "tool" else "nothing new"}

    model = Model(lead=lead, slow=[{"text": "the answer", "first_s": 0.05}])
    async with opened(tmp_path, model) as session:
        assert await session.say("lead: go") == "started"
        assert session.state(ids[0]) == "running"
        assert session.notices == []
        await session.until(lambda: session.state(ids[0]) == "done")
        (notice,) = session.notices
        assert (notice.id, notice.state) == (ids[0], "done")
        assert (await session.say("news?")).startswith("the answer")
        assert await session.say("and now?") == "nothing new"
    (told,) = [message for message in model.requests[-1].messages if "not by the user" in message.text]
    assert f"The sub-agent {ids[0]} ('work on slow') is done" in told.text


async def test_a_notice_comes_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    """Before the next call of the model, not only with the next message of the user."""

    async def pause() -> str:
        """Wait."""
        await asyncio.sleep(0.2)
        return "waited"

    script = [calls(task("slow", run_in_background=True)), calls({"name": "pause", "arguments": {}}), {"text": "ok"}]
    model = Model(lead=script, slow=[{"text": "quick"}])
    async with opened(tmp_path, model, tools=[tool(pause)]) as session:
        await session.say("lead: go")
    assert [message.role for message in model.of("lead")[-1].messages[-2:]] == ["tool", "user"]


async def test_notices_survive_a_crash_once(tmp_path: Path) -> None:
    """A task that ended while its session was closed, or right before a crash, is told once."""
    replies = [HANGS]
    model = Model(
        lead=lambda request: (
            calls(task("slow", run_in_background=True)) if len(request.messages) == 1 else {"text": "ok"}
        ),
        slow=lambda _request: replies[0],
    )
    async with opened(tmp_path, model, crashes=True) as session:
        await session.say("lead: go")
        await session.until(lambda: model.of("slow"))
    replies[0] = {"text": "late"}
    async with opened(tmp_path, model, crashes=True) as session:
        (record,) = session.tasks.list()
        await session.until(lambda: session.state(record.id) == "done")
    for _ in range(2):
        async with opened(tmp_path, model) as session:
            assert session.state(record.id) == "done"
            assert session.tasks.get(record.id).text == "late"
            await session.say("well?")
            told = [message for message in session.process.messages if "is done" in message.text]
            assert len(told) == 1
    assert len(model.of("slow")) == 2


async def test_output_waits_and_tells_how_far_it_is(tmp_path: Path) -> None:
    """A task that works is described; the wait ends with the task, or with its time."""
    session_of: list[Session] = []

    def lead(request: Any) -> Any:
        steps = [calls(task("slow", run_in_background=True))]
        known = session_of[0].tasks.list()
        wanted = known[0].id if known else ""
        steps += [calls(output(wanted, 0.1)), calls(output(wanted, 20)), calls(output("x")), {"text": "ok"}]
        return steps[sum(message.role == "assistant" for message in request.messages)]

    deep = [calls({"name": "dig", "arguments": {"depth": 1}}), {"text": "deep", "first_s": 0.3}]
    model = Model(lead=lead, slow=deep)
    async with opened(tmp_path, model, tools=[tool(dig)]) as session:
        session_of.append(session)
        await session.say("lead: go")
    outputs = [str(message.tool_results[0].output) for message in model.of("lead")[-1].messages if message.tool_results]
    assert "is running" in outputs[1]
    assert "Its last calls: dig" in outputs[1]
    assert outputs[2].startswith("deep")
    assert "there is no task 'x'" in outputs[3]


async def test_the_model_stops_a_task(tmp_path: Path) -> None:
    """TaskStop ends its turn; one that is not at work is told."""
    session_of: list[Session] = []

    def lead(request: Any) -> Any:
        known = session_of[0].tasks.list()
        stop = calls({"name": "TaskStop", "arguments": {"id": known[0].id if known else ""}})
        steps = [
            calls(task("slow", run_in_background=True)),
            stop,
            calls(output(known[0].id, 5)) if known else "",
            stop,
        ]
        count = sum(message.role == "assistant" for message in request.messages)
        return steps[count] if count < len(steps) else {"text": "ok"}

    model = Model(lead=lead, slow=[HANGS])
    async with opened(tmp_path, model) as session:
        session_of.append(session)
        await session.say("lead: go")
        (record,) = session.tasks.list()
        assert record.state == "stopped"
    outputs = [str(message.tool_results[0].output) for message in model.of("lead")[-1].messages if message.tool_results]
    assert outputs[1] == f"{record.id} was stopped"
    assert "It gave no answer: it was stopped." in outputs[2]
    assert outputs[3] == f"{record.id} was not at work"


async def test_a_question_is_shown_and_answered_by_id(tmp_path: Path) -> None:
    """Of one in the background: the user is told that it asks, `answer` answers, also after a crash."""
    (tmp_path / "work").mkdir()
    write = {"name": "Write", "arguments": {"file_path": "a.txt", "content": "x"}}
    model = Model(
        lead=[calls(task("please", run_in_background=True)), {"text": "ok"}], please=[calls(write), {"text": "written"}]
    )
    tools = builtin_tools(str(tmp_path / "work"))
    settings: dict[str, Any] = {"tools": tools, "permissions": {"mode": "default"}}
    async with opened(tmp_path, model, crashes=True, **settings) as session:
        await session.say("lead: go")
        (record,) = session.tasks.list()
        await session.until(lambda: session.notices)
        assert session.notices[0].state == "asks"
        assert "Allow Write?" in session.notices[0].question.question
        await session.kernel.durable()
    async with opened(tmp_path, model, **settings) as session:
        await session.until(lambda: session.state(record.id) == "asks")
        question = session.tasks.get(record.id).question
        assert question is not None
        assert question.question.startswith("Allow Write?")
        await session.tasks.answer(record.id, "allow")
        await session.until(lambda: session.state(record.id) == "done")
        assert session.tasks.get(record.id).question is None
    assert (tmp_path / "work" / "a.txt").read_text() == "x"
    assert len(model.of("please")) == 2


async def test_a_question_of_one_that_is_waited_for_is_in_the_callers_stream(tmp_path: Path) -> None:
    """With the id of the task; an answer to it lets both go on."""
    (tmp_path / "work").mkdir()
    write = {"name": "Write", "arguments": {"file_path": "a.txt", "content": "x"}}
    model = Model(lead=[calls(task("please")), {"text": "ok"}], please=[calls(write), {"text": "written"}])
    tools = builtin_tools(str(tmp_path / "work"))
    async with opened(tmp_path, model, tools=tools, permissions={"mode": "default"}) as session:
        kinds = []
        async for event in session.process.stream("lead: go", events=True):
            kinds.append(event.type)
            if event.type == "interrupt":
                (record,) = session.tasks.list()
                assert event.to_data()["task"] == record.id
                assert event.to_data()["tool"] == "Write"
                assert record.state == "asks"
                await session.tasks.answer(record.id, "deny", text="not there")
        assert kinds.count("interrupt") == 1
        assert "tool_progress" in kinds
        assert session.notices == []
    assert "not there" in result(model.of("please")[1])


async def test_what_is_in_doubt_waits_for_a_person(tmp_path: Path) -> None:
    """An act of which it is not known whether it happened: the sub-agent asks, and the rest goes on."""
    (tmp_path / "work").mkdir()
    begun: list[str] = []

    async def send() -> str:
        """Send it."""
        begun.append("x")
        if len(begun) == 1:
            await asyncio.sleep(60)
        return "sent"

    model = Model(
        lead=[calls(task("please", run_in_background=True)), {"text": "ok"}],
        please=[calls({"name": "send", "arguments": {}}), {"text": "done"}],
    )
    async with opened(tmp_path, model, tools=[tool(send)], crashes=True) as session:
        await session.say("lead: go")
        await session.until(lambda: begun)
    async with opened(tmp_path, model, tools=[tool(send)]) as session:
        (record,) = session.tasks.list()
        await session.until(lambda: session.state(record.id) == "asks")
        assert "Was tool:send" in str(session.tasks.get(record.id).question)
        await session.tasks.answer(record.id, "retry")
        await session.until(lambda: session.state(record.id) == "done")
    assert begun == ["x", "x"]


async def test_a_tainted_sub_agent_taints_its_caller(tmp_path: Path) -> None:
    """Text from outside that it read may be in its answer."""

    def page() -> str:
        """A page."""
        return "do as I say"

    def taints(prompt: str, then: list[Any]) -> Model:
        read = calls({"name": "page", "arguments": {}})
        return Model(lead=[calls(task(prompt)), *then], one=[read, {"text": "read"}], two=[{"text": "not read"}])

    for prompt, tainted in (("one", True), ("two", False)):
        model = taints(prompt, [{"text": "ok"}])
        folder = tmp_path / prompt
        folder.mkdir()
        async with opened(folder, model, tools=[tool(page, untrusted=True)]) as session:
            await session.say("lead: go")
            assert session.kernel.taint.is_tainted("sage") is tainted


async def test_another_model_of_the_caller_is_not_that_of_its_sub_agents(tmp_path: Path) -> None:
    """They go on with the one that they began with: what it has answered counts."""

    def script(name: str, **slow: Any) -> str:
        replies = [
            {"user": "^slow", "tool": "dig", "text": f"by {name}", **slow},
            {"user": "^slow", **calls({"name": "dig", "arguments": {"depth": 7}})},
            {"tool": "Task", "text": "ok"},
            {"user": "^lead", **calls(task("slow", run_in_background=True))},
        ]
        (tmp_path / f"{name}.json").write_text(json.dumps({"replies": replies}))
        return f"sim/script:{tmp_path / name}.json"

    DUG.clear()
    async with opened(tmp_path, script("first", first_s=60), tools=[tool(dig)], crashes=True) as session:
        await session.say("lead: go")
        await session.until(lambda: DUG)
        await asyncio.sleep(0.05)
        await session.kernel.durable()
    script("first")
    async with opened(tmp_path, script("second"), tools=[tool(dig)]) as session:
        (record,) = session.tasks.list()
        await session.until(lambda: session.state(record.id) == "done")
        assert session.tasks.get(record.id).text == "by first"
    assert DUG == [7]


async def test_a_sub_agent_whose_program_does_not_fit_says_so(tmp_path: Path) -> None:
    """Its tools have changed in the middle of its turn: it stands still, and nothing else does."""
    model = Model(
        lead=[calls(task("slow", run_in_background=True)), {"text": "ok"}],
        slow=digging(lambda: HANGS),
    )
    async with opened(tmp_path, model, tools=[tool(dig)], crashes=True) as session:
        await session.say("lead: go")
        await session.until(lambda: len(model.of("slow")) == 2)
    async with opened(tmp_path, model, tools=[]) as session:
        (record,) = session.tasks.list()
        await session.until(lambda: session.state(record.id) == "failed")
        assert "where its journal has" in session.tasks.get(record.id).text
        assert await session.say("lead again") == "ok"


async def test_what_happens_to_tasks_is_told_as_events(tmp_path: Path) -> None:
    """For listeners of the kernel: beginning, message, end, and that the caller knows of it."""
    kinds = ("task.began", "task.asked", "task.ended", "task.told", "task.notice")
    seen: list[tuple[str, str]] = []
    model = Model(
        lead=[calls(task("one", run_in_background=True)), calls(task("two")), {"text": "ok"}],
        one=[{"text": "1"}],
        two=[{"text": "2", "first_s": 0.1}],
    )
    async with opened(tmp_path, model) as session:
        session.kernel.on_event(lambda event: seen.append((event.kind, event.pid)), kinds=kinds)
        await session.say("lead: go")
        first, second = (record.id for record in session.tasks.list())
        await session.kernel.durable()
    assert {pid for kind, pid in seen if kind == "task.began"} == {"sage"}
    for kind, pids in (("task.asked", [first, second]), ("task.ended", [first, second]), ("task.notice", [first])):
        assert [pid for seen_kind, pid in seen if seen_kind == kind] == pids
    assert [kind for kind, _ in seen].count("task.told") == 2


async def test_one_that_goes_on_is_stopped_and_pays_from_the_budget_of_this_run(tmp_path: Path) -> None:
    """What an earlier life has started is held as what this one starts."""
    replies = [HANGS]
    model = Model(
        lead=[calls(task("one", run_in_background=True), task("two", run_in_background=True)), {"text": "ok"}],
        one=digging(lambda: replies[0]),
        two=lambda _request: HANGS,
    )
    async with opened(tmp_path, model, tools=[tool(dig)], crashes=True) as session:
        await session.say("lead: go")
        await session.until(lambda: len(model.of("one")) == 2 and model.of("two"))
    replies[0] = {"text": "word " * 300}
    async with opened(tmp_path, model, tools=[tool(dig)], run_budget="$0.0036") as session:
        first, second = (record.id for record in session.tasks.list())
        await session.until(lambda: session.state(first) == "failed")
        assert "budget" in session.tasks.get(first).text
        assert await session.tasks.stop(second)
        assert session.state(second) == "stopped"


async def test_output_does_not_wait_for_one_that_asks(tmp_path: Path) -> None:
    """It says that the user has to answer, and the model goes on."""
    (tmp_path / "work").mkdir()
    write = {"name": "Write", "arguments": {"file_path": "a.txt", "content": "x"}}
    session_of: list[Session] = []

    def lead(request: Any) -> Any:
        known = session_of[0].tasks.list()
        steps = [calls(task("please", run_in_background=True)), calls(output(known[0].id, 600)) if known else ""]
        count = sum(message.role == "assistant" for message in request.messages)
        return steps[count] if count < len(steps) else {"text": result(request)}

    model = Model(lead=lead, please=[{**calls(write), "first_s": 0.2}, {"text": "written"}])
    tools = builtin_tools(str(tmp_path / "work"))
    async with opened(tmp_path, model, tools=tools, permissions={"mode": "default"}) as session:
        session_of.append(session)
        async with asyncio.timeout(10):
            assert "waits for an answer of the user" in await session.say("lead: go")


async def test_a_turn_that_was_given_up_keeps_the_answers_it_had(tmp_path: Path) -> None:
    """Of two sub-agents one had answered when the session died: its answer is in the conversation, and is not told
    again; the other one goes on, and its end is told."""
    replies = [HANGS]
    model = Model(
        lead=lambda request: calls(task("one"), task("two")) if "lead" in request.messages[-1].text else {"text": "ok"},
        one=[{"text": "the first answer"}],
        two=lambda _request: replies[0],
    )
    async with opened(tmp_path, model, crashes=True) as session:
        session.process.send_async("lead: go")
        await session.until(lambda: [record.state for record in session.tasks.list()] == ["done", "running"])
        await asyncio.sleep(0.05)
        await session.kernel.durable()
    replies[0] = {"text": "the second answer"}
    async with opened(tmp_path, model, goes_on=False) as session:
        assert session.unfinished is not None
        first, second = session.unfinished.messages[-1].tool_results
        assert str(first.output).startswith("the first answer")
        assert second.is_error
        await session.process.revise(0, [session.unfinished.question, *session.unfinished.messages])
        one, two = (record.id for record in session.tasks.list())
        await session.until(lambda: session.state(two) == "done")
        await session.say("and?")
        (told,) = [message.text for message in session.process.messages if "by the program" in message.text]
        assert two in told
        assert one not in told


async def test_one_that_works_on_is_announced_to_a_model_that_does_not_know_its_id(tmp_path: Path) -> None:
    """The call that started it was cut off before it had a result."""
    model = Model(
        lead=lambda request: calls(task("one")) if "lead" in request.messages[-1].text else {"text": "ok"},
        one=lambda _request: HANGS,
    )
    async with opened(tmp_path, model, crashes=True) as session:
        session.process.send_async("lead: go")
        await session.until(lambda: model.of("one"))
    async with opened(tmp_path, model, goes_on=False) as session:
        assert session.unfinished is not None
        await session.process.revise(0, [session.unfinished.question, *session.unfinished.messages])
        (record,) = session.tasks.list()
        assert record.background
        await session.say("and?")
        await session.say("and now?")
        (told,) = [message.text for message in session.process.messages if "by the program" in message.text]
        assert f"The sub-agent {record.id} ('work on one') goes on in the background" in told
