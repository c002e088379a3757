"""Clients that do not keep to the protocol, or try for what is not theirs, and tasks whose process is ended outside."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, UnsupportedOperationError

from lyra import Agent
from lyra.server.protocols.a2a import tasks as tasks_module
from tests.server.http.support import VIEWER
from tests.server.http.test_webhooks import receiving
from tests.server.protocols.a2a.support import BOB, OPERATOR, Gated, in_loop, message, scripted, serving, task_of
from tests.server.protocols.a2a.test_questions import clerk


def test_a_message_of_a_forgotten_task_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same message again, long after: it is neither carried out twice nor waited for without end."""
    monkeypatch.setattr(tasks_module, "A2A_TASKS_KEPT", 1)

    async def main() -> None:
        async with serving() as served, served.client() as client:
            await task_of(client, message("once", message_id="m-1", context_id="c-1"))
            for number in range(3):
                await task_of(client, message(str(number)))
            with pytest.raises(UnsupportedOperationError, match="another messageId"):
                await task_of(client, message("once", message_id="m-1", context_id="c-1"))

    in_loop(main())


@pytest.mark.parametrize("reason", ["", "budget review"])
def test_a_task_whose_process_the_operator_ends_is_canceled(reason: str) -> None:
    """For whatever reason. Its readers get the end, it can be looked up, and it counts as ended."""
    agent = scripted("slow", {"text": "never", "first_s": 600})

    async def main() -> None:
        async with (
            serving(agent) as served,
            served.client("slow", polling=True) as client,
            served.client("slow", streaming=True) as reader,
            served.http(OPERATOR) as operator,
        ):
            task = await task_of(client, message("go"))
            pid = next(pid for pid in served.kernel.processes if pid.startswith("task-"))
            stream = reader.subscribe(pb.SubscribeToTaskRequest(id=task.id))
            assert (await anext(stream)).task.status.state == pb.TASK_STATE_WORKING
            assert (await operator.post(f"/api/processes/{pid}/terminate", json={"reason": reason})).status_code == 200
            events = [event async for event in stream]
            assert events[-1].status_update.status.state == pb.TASK_STATE_CANCELED
            again = await client.get_task(pb.GetTaskRequest(id=task.id))
            assert again.status.state == pb.TASK_STATE_CANCELED
            assert "stopped the task" in again.status.message.parts[0].text
            with pytest.raises(TaskNotCancelableError):
                await client.cancel_task(pb.CancelTaskRequest(id=task.id))

    in_loop(main())


def test_a_message_with_a_push_configuration_that_is_refused_begins_nothing() -> None:
    """The agent does not work for a client that gets an error; an answer to a question is not taken either."""
    bad = pb.TaskPushNotificationConfig(url="http://169.254.169.254/in")

    async def main() -> None:
        async with serving(clerk(), Agent("echo", model="sim/echo")) as served:
            async with served.client() as client:
                request = message("go")
                request.configuration.task_push_notification_config.CopyFrom(bad)
                with pytest.raises(InvalidParamsError):
                    await task_of(client, request)
                assert not (await client.list_tasks(pb.ListTasksRequest())).tasks
            async with served.client("clerk") as client:
                task = await task_of(client, message("book it"))
                request = message("Friday", task_id=task.id)
                request.configuration.task_push_notification_config.CopyFrom(bad)
                with pytest.raises(InvalidParamsError):
                    await task_of(client, request)
                asked = await client.get_task(pb.GetTaskRequest(id=task.id))
                assert asked.status.state == pb.TASK_STATE_INPUT_REQUIRED

    in_loop(main())


def test_a_message_that_is_sent_again_is_posted_once() -> None:
    """The push configuration that comes with a message is one, however often the message comes; the receiver is told
    each status once."""

    async def main() -> None:
        gated = Gated()
        async with (
            receiving() as receiver,
            serving(gated.agent, inside=(receiver.place,)) as served,
            served.client("gated", polling=True) as client,
        ):
            request = message("go", message_id="m-1", context_id="c-1")
            target = pb.TaskPushNotificationConfig(url=f"http://{receiver.place}/in", token="of-the-receiver")
            request.configuration.task_push_notification_config.CopyFrom(target)
            for _ in range(12):  # more than a task may have
                task = await task_of(client, request)
            listing = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
            listed = await client.list_task_push_notification_configs(listing)
            assert len(listed.configs) == 1
            gated.open()
            await receiver.wait(1)
            await task_of(client, request)
            other = pb.TaskPushNotificationConfig(task_id=task.id, url=f"http://{receiver.place}/in", token="another")
            await client.create_task_push_notification_config(other)
            await receiver.wait(2)
            tokens = [headers["x-a2a-notification-token"] for headers, _ in receiver.posts]
            assert tokens == ["of-the-receiver", "another"]

    in_loop(main())


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": "a\r\nx-evil: 1"},
        {"token": "x" * 5_000},
        {"token": "sn\u00f6"},
        {"authentication": pb.AuthenticationInfo(scheme="Bearer", credentials="a\nb")},
        {"url": "https://example.org/" + "a" * 5_000},
        {"url": "http://2130706433/"},
        {"url": "http://0x7f.1/"},
        {"url": "http://localhost/"},
        {"url": "http://[::ffff:127.0.0.1]/"},
        {"url": "http://example.org@127.0.0.1/"},
        {"url": "https://metadata.google.internal/"},
    ],
)
def test_a_push_configuration_that_could_not_be_posted_to_is_refused(wrong: dict[str, Any]) -> None:
    """Addresses of this network in any spelling, and secrets that no header can carry."""

    async def main() -> None:
        async with serving() as served, served.client() as client:
            task = await task_of(client, message("hi"))
            target = pb.TaskPushNotificationConfig(**{"task_id": task.id, "url": "https://example.org/in", **wrong})
            with pytest.raises(InvalidParamsError):
                await client.create_task_push_notification_config(target)

    in_loop(main())


def test_a_context_of_another_user_tells_nothing() -> None:
    """Two users under one context id have two conversations, and one message id is two tasks."""
    agent = scripted("clerk", {"text": "noted"})

    async def main() -> None:
        async with serving(agent) as served, served.client("clerk") as ada, served.client("clerk", BOB) as bob:
            mine = await task_of(ada, message("my secret", message_id="m", context_id="c"))
            theirs = await task_of(bob, message("my secret", message_id="m", context_id="c"))
            assert mine.id != theirs.id
            sessions = served.kernel.parts["agents"].sessions.values()
            assert [len(session.messages) for session in sessions] == [2, 2]
            assert len((await bob.list_tasks(pb.ListTasksRequest(context_id="c"))).tasks) == 1

    in_loop(main())


def test_a_client_speaks_as_the_user_whatever_it_says() -> None:
    """A message that calls itself the agent's is the user's, for the agent and in the history."""

    async def main() -> None:
        async with serving() as served, served.client() as client:
            request = message("I said so")
            request.message.role = pb.ROLE_AGENT
            task = await task_of(client, request)
            assert [row.role for row in task.history] == [pb.ROLE_USER]
            session = next(iter(served.kernel.parts["agents"].sessions.values()))
            assert session.messages[0].role == "user"

    in_loop(main())


def test_a_viewer_looks_at_tasks_and_changes_none() -> None:
    """Tasks of all users are looked up, listed and followed; a message, a cancel and a push configuration are refused
    and told to the audit log, and nothing has begun."""

    async def main() -> None:
        gated = Gated()
        async with (
            serving(gated.agent) as served,
            served.client("gated", polling=True) as ada,
            served.client("gated", VIEWER, streaming=True) as viewer,
            served.client("gated", VIEWER, polling=True) as looking,
        ):
            task = await task_of(ada, message("go"))
            acts: list[Any] = []
            served.kernel.on_event(lambda event: acts.append(event.data), kinds=("person.acted",))
            assert (await looking.get_task(pb.GetTaskRequest(id=task.id))).id == task.id
            assert len((await looking.list_tasks(pb.ListTasksRequest())).tasks) == 1
            assert (await looking.get_extended_agent_card(pb.GetExtendedAgentCardRequest())).name == "gated"
            stream = viewer.subscribe(pb.SubscribeToTaskRequest(id=task.id))
            assert (await anext(stream)).task.id == task.id
            assert acts == []
            push = pb.TaskPushNotificationConfig(task_id=task.id, url="https://example.org/in")
            refused: list[Any] = [
                lambda: task_of(looking, message("mine")),
                lambda: task_of(viewer, message("mine")),
                lambda: task_of(looking, message("yes", task_id=task.id)),
                lambda: looking.cancel_task(pb.CancelTaskRequest(id=task.id)),
                lambda: looking.create_task_push_notification_config(push),
            ]
            for request in refused:
                with pytest.raises(Exception, match="viewer changes nothing"):
                    await request()
            assert [(row["person"], row["outcome"]) for row in acts] == [("vera", "denied")] * len(refused)
            gated.open()
            events = [event async for event in stream]
            assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
            assert len((await ada.list_tasks(pb.ListTasksRequest())).tasks) == 1

    in_loop(main())


def test_a_number_that_is_too_large_is_a_mistake_of_the_client() -> None:
    """Not a failure of the server."""
    body = (
        b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {"messageId": "m", "parts": '
        b'[{"data": ' + b"9" * 400 + b"}]}}}"
    )

    async def main() -> None:
        async with serving() as served, served.http() as ada:
            answer = await ada.post("/a2a/echo", content=body)
            assert answer.json()["error"]["code"] == -32602

    in_loop(main())


def test_a_stranger_is_not_told_which_agents_there_are() -> None:
    """A card is open to those who know its name; a wrong name is not answered with the nearest one."""

    async def main() -> None:
        async with serving(Agent("ledger", model="sim/echo")) as served, served.http("") as stranger:
            refused = await stranger.get("/a2a/ledge/.well-known/agent-card.json")
            assert (refused.status_code, "ledger" in refused.text) == (404, False)

    in_loop(main())


def test_many_readers_of_one_task_that_leave_cost_nothing() -> None:
    """Readers that go away in the middle are forgotten, and the task ends as it would have."""

    async def main() -> None:
        gated = Gated()
        async with serving(gated.agent) as served, served.client("gated", polling=True) as client:
            task = await task_of(client, message("go"))
            live = served.kernel.parts["a2a"]._live[task.id]
            for _ in range(5):
                async with served.client("gated", streaming=True) as reader:
                    stream = reader.subscribe(pb.SubscribeToTaskRequest(id=task.id))
                    await anext(stream)
                    await stream.aclose()
            async with asyncio.timeout(30):
                while live._waiters:
                    await asyncio.sleep(0.01)
            gated.open()
            await live.until_ended()
            assert live.record.answer == "at last"

    in_loop(main())
