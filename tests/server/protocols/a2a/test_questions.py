"""Questions of a task: input-required, answered by the next message with the task's id, also after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError

from lyra import Agent, tool
from lyra.tools.permissions.decision import Permissions
from tests.server.protocols.a2a.support import in_loop, message, scripted, serving, task_of

ASKING = {"user": "book", "tool_calls": [{"name": "book", "arguments": {"city": "Oslo"}}]}
DONE = {"tool": "book", "text": "It is done: {result}"}
booked: list[str] = []


@tool
async def book(ctx: Any, city: str) -> str:
    """Book a trip."""
    answer = await ctx.ask(f"Which day to {city}?")
    booked.append(city)
    return f"{city} on {answer.text}"


@tool(guarded=True)
def pay(amount: int) -> str:
    """Pay."""
    booked.append(str(amount))
    return f"paid {amount}"


def clerk(**settings: Any) -> Agent[Any]:
    return scripted("clerk", ASKING, DONE, tools=[book], **settings)


def payer() -> Agent[Any]:
    asks = {"user": "pay", "tool_calls": [{"name": "pay", "arguments": {"amount": 5}}]}
    permissions = Permissions(attended=True)
    return scripted("payer", asks, {"tool": "pay", "text": "{result}"}, tools=[pay], permissions=permissions)


@pytest.fixture(autouse=True)
def _nothing_booked() -> None:
    booked.clear()


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_a_question_is_answered_by_the_next_message_with_the_task_id(version: str) -> None:
    """The status has the question; the answer goes to the process that asked, and both are in the history."""

    async def main() -> None:
        async with serving(clerk()) as served, served.client("clerk", version=version) as client:
            task = await task_of(client, message("book it"))
            assert task.status.state == pb.TASK_STATE_INPUT_REQUIRED
            assert "Which day to Oslo?" in task.status.message.parts[0].text
            done = await task_of(client, message("Friday", task_id=task.id))
            assert (done.id, done.status.state) == (task.id, pb.TASK_STATE_COMPLETED)
            assert done.artifacts[0].parts[0].text == "It is done: Oslo on Friday"
            assert [row.role for row in done.history] == [pb.ROLE_USER, pb.ROLE_AGENT, pb.ROLE_USER]
            assert done.history[2].parts[0].text == "Friday"

    in_loop(main())


def test_a_stream_ends_at_a_question_and_a_subscription_goes_past_it() -> None:
    """The stream of the message ends where a person is asked; a reader that subscribed reads on to the end."""

    async def main() -> None:
        async with serving(clerk()) as served, served.client("clerk", streaming=True) as client:
            events = [event async for event in client.send_message(message("book it"))]
            assert events[-1].status_update.status.state == pb.TASK_STATE_INPUT_REQUIRED
            task_id = events[0].task.id
            following = client.subscribe(pb.SubscribeToTaskRequest(id=task_id))
            assert (await anext(following)).task.status.state == pb.TASK_STATE_INPUT_REQUIRED
            answered = [event async for event in client.send_message(message("Monday", task_id=task_id))]
            last = answered[-1]  # the task itself, where it was quicker than the stream
            status = last.task.status if last.HasField("task") else last.status_update.status
            assert status.state == pb.TASK_STATE_COMPLETED
            rest = [event async for event in following]
            assert rest[-1].status_update.status.state == pb.TASK_STATE_COMPLETED

    in_loop(main())


def test_an_answer_that_is_sent_twice_counts_once() -> None:
    """The same message id again changes nothing: the next question is not answered by it."""

    @tool
    async def twice(ctx: Any) -> str:
        """Ask twice."""
        return f"{(await ctx.ask('First?')).text} {(await ctx.ask('Second?')).text}"

    agent = scripted(
        "two", {"user": "go", "tool_calls": [{"name": "twice"}]}, {"tool": "twice", "text": "{result}"}, tools=[twice]
    )

    async def main() -> None:
        async with serving(agent) as served, served.client("two") as client:
            task = await task_of(client, message("go"))
            for _ in range(2):
                task = await task_of(client, message("one", task_id=task.id, message_id="answer-1"))
                assert "Second?" in task.status.message.parts[0].text
            task = await task_of(client, message("two", task_id=task.id))
            assert task.artifacts[0].parts[0].text == "one two"

    in_loop(main())


@pytest.mark.parametrize(("answer", "paid"), [("Yes.", ["5"]), ("no", [])])
def test_a_tool_call_is_approved_or_refused_by_the_client(answer: str, paid: list[str]) -> None:
    """A call that needs a person's yes is input-required; an answer that is neither yes nor no leaves it open."""

    async def main() -> None:
        async with serving(payer()) as served, served.client("payer") as client:
            task = await task_of(client, message("pay now"))
            assert task.status.state == pb.TASK_STATE_INPUT_REQUIRED
            assert "pay" in task.status.message.parts[0].text
            assert task.status.message.metadata["kind"] == "confirmation"
            with pytest.raises(InvalidParamsError):
                await task_of(client, message("well, perhaps yes", task_id=task.id))
            assert booked == []
            done = await task_of(client, message(answer, task_id=task.id))
            assert done.status.state == pb.TASK_STATE_COMPLETED
            assert booked == paid

    in_loop(main())


def test_the_question_of_a_helper_is_the_task_s() -> None:
    """A question of an agent below the task's agent is asked through the task."""
    lead = scripted(
        "lead",
        {"user": "go", "tool_calls": [{"name": "clerk", "arguments": {"task": "book"}}]},
        {"tool": "clerk", "text": "{result}"},
        tools=[clerk()],
    )

    async def main() -> None:
        async with serving(lead) as served, served.client("lead") as client:
            task = await task_of(client, message("go"))
            assert task.status.state == pb.TASK_STATE_INPUT_REQUIRED
            done = await task_of(client, message("Sunday", task_id=task.id))
            assert done.artifacts[0].parts[0].text == "It is done: Oslo on Sunday"

    in_loop(main())


def test_a_message_to_a_task_that_asks_nothing_is_refused() -> None:
    """A task at work takes no message, nor one of another context."""
    agent = scripted("slow", {"text": "never", "first_s": 600})

    async def main() -> None:
        async with serving(agent, clerk()) as served:
            async with served.client("slow", polling=True) as client:
                task = await task_of(client, message("go"))
                with pytest.raises(UnsupportedOperationError):
                    await task_of(client, message("hurry", task_id=task.id))
            async with served.client("clerk") as client:
                task = await task_of(client, message("book it"))
                with pytest.raises(InvalidParamsError):
                    await task_of(client, message("Friday", task_id=task.id, context_id="another"))

    in_loop(main())


def test_tasks_are_there_after_a_restart(tmp_path: Path) -> None:
    """An ended task keeps its answer and its history; a question is still open and its answer goes on with the work."""
    store = tmp_path / "store.db"

    def agents() -> tuple[Agent[Any], ...]:
        return clerk(), Agent("echo", model="sim/echo")

    async def before() -> tuple[str, str, str]:
        async with serving(*agents(), store=store) as served, served.client() as echo, served.client("clerk") as client:
            ended = await task_of(echo, message("kept"))
            asked = await task_of(client, message("book it"))
            cancelled = await task_of(client, message("book another"))
            await client.cancel_task(pb.CancelTaskRequest(id=cancelled.id))
            return ended.id, asked.id, cancelled.id

    async def after(ended_id: str, asked_id: str, cancelled_id: str) -> None:
        async with serving(*agents(), store=store) as served, served.client() as echo, served.client("clerk") as client:
            ended = await echo.get_task(pb.GetTaskRequest(id=ended_id))
            assert ended.artifacts[0].parts[0].text == "kept"
            assert ended.history[0].parts[0].text == "kept"
            cancelled = await client.get_task(pb.GetTaskRequest(id=cancelled_id))
            assert cancelled.status.state == pb.TASK_STATE_CANCELED
            asked = await client.get_task(pb.GetTaskRequest(id=asked_id))
            assert asked.status.state == pb.TASK_STATE_INPUT_REQUIRED
            done = await task_of(client, message("Friday", task_id=asked_id))
            assert done.artifacts[0].parts[0].text == "It is done: Oslo on Friday"
            assert len(done.history) == 3
            listed = await client.list_tasks(pb.ListTasksRequest())
            assert {task.id for task in listed.tasks} == {asked_id, cancelled_id}

    in_loop(after(*in_loop(before())))
    assert booked == ["Oslo"]
