"""Tasks by the official SDK's client: sent, streamed, looked up, listed, cancelled, continued, and never another's."""

from __future__ import annotations

import asyncio

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from lyra import Agent, tool
from lyra.a2a.content import parts_of_content
from lyra.core import limits
from lyra.server.identity import Caller
from lyra.server.owners import OwnedPid
from lyra.server.protocols.a2a import tasks as tasks_module
from lyra.server.protocols.a2a.live_task import A2aRecord
from tests.server.protocols.a2a.support import BOB, OPERATOR, Gated, in_loop, message, scripted, serving, task_of

VERSIONS = ("1.0", "0.3")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_is_a_task_whose_answer_is_an_artifact(version: str) -> None:
    """The SDK's client of either version of the protocol sends, and reads the answer of the agent."""

    async def main() -> None:
        async with serving() as served, served.client(version=version) as client:
            task = await task_of(client, message("Hello, agent"))
            assert task.status.state == pb.TASK_STATE_COMPLETED
            assert [part.text for part in task.artifacts[0].parts] == ["Hello, agent"]
            assert [row.role for row in task.history] == [pb.ROLE_USER]
            again = await client.get_task(pb.GetTaskRequest(id=task.id))
            assert again == task
            if version == "1.0":  # the SDK drops a zero when it writes 0.3
                assert not (await client.get_task(pb.GetTaskRequest(id=task.id, history_length=0))).history

    in_loop(main())


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_streamed_piece_by_piece(version: str) -> None:
    """The first event is the task, then come pieces of the artifact, and the last is the end of the task."""

    async def main() -> None:
        agent = scripted("slow", {"text": "one two three four", "chunk_s": 0.02})
        async with serving(agent) as served, served.client("slow", streaming=True, version=version) as client:
            events = [event async for event in client.send_message(message("go"))]
            assert events[0].task.status.state == pb.TASK_STATE_SUBMITTED
            pieces = [event.artifact_update for event in events if event.HasField("artifact_update")]
            assert "".join(piece.artifact.parts[0].text for piece in pieces) == "one two three four"
            assert len(pieces) > 1
            assert [piece.append for piece in pieces] == [False] + [True] * (len(pieces) - 1)
            assert [piece.last_chunk for piece in pieces] == [False] * (len(pieces) - 1) + [True]
            states = [event.status_update.status.state for event in events if event.HasField("status_update")]
            assert states == [pb.TASK_STATE_WORKING, pb.TASK_STATE_COMPLETED]
            assert events[-1].HasField("status_update")

    in_loop(main())


def test_text_before_a_tool_call_is_replaced_by_the_answer() -> None:
    """What a model says before it calls a tool is no part of the answer: the next piece begins the artifact anew."""

    @tool
    def weather(city: str) -> str:
        """The weather."""
        return f"sun in {city}"

    asks = {
        "user": "weather",
        "text": "Let me look.",
        "tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}],
    }
    answer = {"tool": "weather", "text": "There is {result}.", "chunk_s": 0.02}
    agent = scripted("guide", asks, answer, tools=[weather])

    async def main() -> None:
        async with serving(agent) as served, served.client("guide", streaming=True) as client:
            text = ""
            async for event in client.send_message(message("weather?")):
                if event.HasField("artifact_update"):
                    piece = event.artifact_update.artifact.parts[0].text
                    text = text + piece if event.artifact_update.append else piece
                    assert "Let me look.There" not in text
            assert text == "There is sun in Oslo."

    in_loop(main())


def test_an_agent_with_an_output_type_answers_with_data() -> None:
    """The artifact is JSON data, also in a stream, and also where the model wrote more than that."""
    agent = scripted("counter", 'Here:\n```json\n{"count": 3}\n```', output=dict[str, int])

    async def main() -> None:
        async with serving(agent) as served, served.client("counter", streaming=True) as client:
            events = [event async for event in client.send_message(message("count"))]
            pieces = [event.artifact_update for event in events if event.HasField("artifact_update")]
            assert [piece.artifact.parts[0].data.struct_value["count"] for piece in pieces] == [3]
            task = await client.get_task(pb.GetTaskRequest(id=events[0].task.id))
            assert task.artifacts[0].parts[0].data.struct_value["count"] == 3

    in_loop(main())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_running_task_is_cancelled_and_its_process_stopped(version: str) -> None:
    """Cancel stops the agent's process. A task that has ended cannot be cancelled."""
    agent = scripted("slow", {"text": "never", "first_s": 600})

    async def main() -> None:
        async with serving(agent) as served, served.client("slow", polling=True, version=version) as client:
            task = await task_of(client, message("go"))
            assert task.status.state in (pb.TASK_STATE_SUBMITTED, pb.TASK_STATE_WORKING)
            turns = [row for row in served.kernel.processes.values() if row.program == "lyra:a2a.turn"]
            cancelled = await client.cancel_task(pb.CancelTaskRequest(id=task.id))
            assert cancelled.status.state == pb.TASK_STATE_CANCELED
            assert [row.exit.reason for row in turns] == ["canceled"]
            with pytest.raises(TaskNotCancelableError):
                await client.cancel_task(pb.CancelTaskRequest(id=task.id))

    in_loop(main())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_task_is_followed_by_another_reader(version: str) -> None:
    """A second connection subscribes to a running task and gets its end; there is nothing to follow after it."""

    async def main() -> None:
        gated = Gated()
        async with serving(gated.agent) as served, served.client("gated", polling=True, version=version) as client:
            task = await task_of(client, message("go"))
            async with served.client("gated", streaming=True, version=version) as other:
                stream = other.subscribe(pb.SubscribeToTaskRequest(id=task.id))
                assert (await anext(stream)).task.id == task.id
                gated.open()
                events = [event async for event in stream]
                assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
                with pytest.raises(UnsupportedOperationError):
                    [event async for event in other.subscribe(pb.SubscribeToTaskRequest(id=task.id))]

    in_loop(main())


def test_the_next_task_of_a_context_knows_the_earlier_ones() -> None:
    """A message with the context of an earlier task begins another task, whose agent has the conversation."""
    agent = scripted("clerk", {"user": "My name is (\\w+)", "text": "Noted."}, {"text": "Turn {turn}."})

    async def main() -> None:
        async with serving(agent) as served, served.client("clerk") as client:
            first = await task_of(client, message("My name is Ada"))
            second = await task_of(client, message("What is it?", context_id=first.context_id))
            assert (second.context_id, second.id != first.id) == (first.context_id, True)
            sessions = served.kernel.parts["agents"].sessions.values()
            longest = max((session.messages for session in sessions), key=len)
            assert [row.text for row in longest][:3] == ["My name is Ada", "Noted.", "What is it?"]
            with pytest.raises(UnsupportedOperationError):  # an ended task takes no message
                await task_of(client, message("More", task_id=first.id))

    in_loop(main())


def test_the_same_message_sent_twice_is_one_task() -> None:
    """A client that lost the answer sends the message again, and the agent works once."""

    async def main() -> None:
        async with serving() as served, served.client() as client:
            first = await task_of(client, message("once", message_id="m-1", context_id="c-1"))
            second = await task_of(client, message("once", message_id="m-1", context_id="c-1"))
            other = await task_of(client, message("twice", message_id="m-1", context_id="c-1"))
            assert first.id == second.id != other.id
            tasks = [pid for pid in served.kernel.processes if getattr(OwnedPid.read(pid), "kind", "") == "task"]
            assert len(tasks) == 2

    in_loop(main())


def test_tasks_are_listed_by_context_and_state_page_by_page() -> None:
    """The task that changed last is the first; artifacts and history come when they are asked for."""

    async def main() -> None:
        async with serving() as served, served.client() as client:
            ids = [(await task_of(client, message(f"n{number}", context_id="c"))).id for number in range(5)]
            await task_of(client, message("elsewhere", context_id="d"))
            first = await client.list_tasks(pb.ListTasksRequest(context_id="c", page_size=2))
            assert ([task.id for task in first.tasks], first.total_size) == (ids[:-3:-1], 5)
            assert not first.tasks[0].artifacts
            rest = await client.list_tasks(
                pb.ListTasksRequest(context_id="c", page_token=first.next_page_token, include_artifacts=True)
            )
            assert [task.id for task in rest.tasks] == ids[2::-1]
            assert rest.tasks[0].artifacts[0].parts[0].text == "n2"
            assert not rest.next_page_token
            failed = await client.list_tasks(pb.ListTasksRequest(status=pb.TASK_STATE_FAILED))
            assert not failed.tasks
            with pytest.raises(InvalidParamsError):
                await client.list_tasks(pb.ListTasksRequest(page_size=1000))

    in_loop(main())


def test_tasks_of_other_users_do_not_exist() -> None:
    """Another user can neither read, follow, list, cancel nor answer a task; the operator sees it."""

    async def main() -> None:
        async with serving() as served, served.client() as ada, served.client(token=BOB, streaming=True) as bob:
            task = await task_of(ada, message("mine"))
            for call in (
                lambda: bob.get_task(pb.GetTaskRequest(id=task.id)),
                lambda: bob.cancel_task(pb.CancelTaskRequest(id=task.id)),
                lambda: bob.list_task_push_notification_configs(
                    pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
                ),
                lambda: task_of(bob, message("yes", task_id=task.id)),
                lambda: anext(bob.subscribe(pb.SubscribeToTaskRequest(id=task.id))),
            ):
                with pytest.raises(TaskNotFoundError):
                    await call()
            assert not (await bob.list_tasks(pb.ListTasksRequest())).tasks
            async with served.client(token=OPERATOR) as operator:
                assert (await operator.get_task(pb.GetTaskRequest(id=task.id))).id == task.id

    in_loop(main())


def test_a_budget_that_is_used_up_fails_the_task_with_its_reason() -> None:
    """The state is failed, and the status says why."""
    agent = scripted("poor", {"text": "expensive"}, budget={"llm_calls": 0})

    async def main() -> None:
        async with serving(agent) as served, served.client("poor") as client:
            task = await task_of(client, message("go"))
            assert task.status.state == pb.TASK_STATE_FAILED
            assert "llm_calls" in task.status.message.parts[0].text
            assert task.status.message.metadata["code"] == "budget_exceeded"
            assert not task.artifacts

    in_loop(main())


def test_an_image_reaches_the_agent_and_an_unknown_type_is_refused() -> None:
    """An image is a part of the agent's message; a part that no agent reads is refused before there is a task."""
    png = b"\x89PNG\r\n\x1a\n" + b"\0" * 16

    async def main() -> None:
        async with serving() as served, served.client() as client:
            request = message("look")
            request.message.parts.append(pb.Part(raw=png, media_type="image/png"))
            request.message.parts.append(pb.Part(raw=b"a: 1", media_type="text/yaml", filename="a.yaml"))
            await task_of(client, request)
            sessions = served.kernel.parts["agents"].sessions.values()
            content = next(session.messages[0].content for session in sessions)
            assert [part["type"] for part in content] == ["text", "image", "text"]
            request = message("listen")
            request.message.parts.append(pb.Part(raw=b"RIFF", media_type="audio/wav"))
            with pytest.raises(ContentTypeNotSupportedError):
                await task_of(client, request)
            assert len((await client.list_tasks(pb.ListTasksRequest())).tasks) == 1

    in_loop(main())


def test_the_address_of_an_image_reaches_the_agent() -> None:
    """Also one whose kind its sender does not know, as Lyra's own client sends it; one that is not https is refused."""

    async def main() -> None:
        async with serving() as served, served.client() as client:
            request = message("look")
            request.message.parts.extend(parts_of_content([{"type": "image", "url": "https://example.org/a"}]))
            await task_of(client, request)
            sessions = served.kernel.parts["agents"].sessions.values()
            assert next(session.messages[0].content for session in sessions)[1]["url"] == "https://example.org/a"
            request.message.parts[1].url = "http://169.254.169.254/a.png"
            with pytest.raises(ContentTypeNotSupportedError):
                await task_of(client, request)

    in_loop(main())


def test_too_many_open_tasks_are_refused_and_old_ones_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user has a bounded number of open tasks; of the ended ones the oldest are forgotten."""
    monkeypatch.setattr(tasks_module, "A2A_TASKS_KEPT", 2)
    monkeypatch.setattr(tasks_module, "A2A_TASKS_OPEN_MAX", 3)
    waits = scripted("slow", {"text": "never", "first_s": 600})
    assert limits.A2A_TASKS_KEPT > 2

    async def main() -> None:
        async with serving(Agent("echo", model="sim/echo"), waits) as served:
            async with served.client() as client:
                tasks = [await task_of(client, message(str(number))) for number in range(4)]
                with pytest.raises(TaskNotFoundError):
                    await client.get_task(pb.GetTaskRequest(id=tasks[0].id))
                await client.get_task(pb.GetTaskRequest(id=tasks[-1].id))
            async with served.client("slow", polling=True) as client:
                await asyncio.gather(*(task_of(client, message(str(number))) for number in range(3)))
                with pytest.raises(Exception, match="3 tasks are open"):
                    await task_of(client, message("one more"))

    in_loop(main())


def test_a_slow_reader_gets_what_it_missed_in_one_piece() -> None:
    """A reader has no queue: what was written while it was away comes as one piece."""
    agent = scripted("quick", {"text": " ".join(str(number) for number in range(200))})

    async def main() -> None:
        async with serving(agent) as served, served.client("quick") as client:
            task = await task_of(client, message("go"))
            live = await served.kernel.parts["a2a"].get(task.id, "quick", Caller())
            events = [event async for event in live.read(past_questions=False, from_start=True)]
            assert [event.WhichOneof("payload") for event in events] == ["task", "artifact_update", "status_update"]

    in_loop(main())


def test_a_task_that_is_not_back_yet_after_a_restart_is_waited_for() -> None:
    """A client that asks right after a restart gets its task as soon as its process has begun again."""

    async def main() -> None:
        async with serving() as served:
            tasks = served.kernel.parts["a2a"]
            tasks._expected["known"] = asyncio.get_running_loop().create_future()
            looked_up = asyncio.ensure_future(tasks.get("known", "echo", Caller()))
            await asyncio.sleep(0)
            tasks.enter("task-.known", A2aRecord("known", "echo", "c", 0.0, []))
            assert (await looked_up).record.id == "known"

    in_loop(main())
