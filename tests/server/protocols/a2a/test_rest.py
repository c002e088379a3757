"""The HTTP+JSON binding, with the official SDK's client: the same tasks and rights as over JSON-RPC."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from lyra import Agent
from tests.server.http.support import VIEWER
from tests.server.http.test_webhooks import receiving
from tests.server.protocols.a2a.support import ADA, BOB, Gated, in_loop, message, scripted, serving, task_of
from tests.server.protocols.a2a.test_push import TOKEN, config
from tests.server.protocols.a2a.test_questions import clerk

REST = "HTTP+JSON"
ECHO = Agent("echo", model="sim/echo", description="Says it again.")


def test_a_conversation_and_its_tasks() -> None:
    """A message, a question that is answered, the context that goes on, looking up and listing; a client of the other
    binding sees the same tasks."""

    async def main() -> None:
        async with (
            serving(clerk()) as served,
            served.client("clerk", binding=REST) as client,
            served.client("clerk") as other,
        ):
            asked = await task_of(client, message("book it"))
            assert asked.status.state == pb.TASK_STATE_INPUT_REQUIRED
            done = await task_of(client, message("Friday", task_id=asked.id))
            assert done.status.state == pb.TASK_STATE_COMPLETED
            assert "Friday" in done.artifacts[0].parts[0].text
            assert await other.get_task(pb.GetTaskRequest(id=asked.id)) == done
            short = await client.get_task(pb.GetTaskRequest(id=asked.id, history_length=1))
            assert len(short.history) == 1
            await task_of(client, message("book it"))
            waiting = pb.ListTasksRequest(status=pb.TASK_STATE_INPUT_REQUIRED, page_size=5)
            assert (await client.list_tasks(waiting)).total_size == 1
            listed = await client.list_tasks(pb.ListTasksRequest(context_id=done.context_id, include_artifacts=True))
            assert [row.id for row in listed.tasks] == [done.id]
            assert listed.tasks[0].artifacts
            first = await client.list_tasks(pb.ListTasksRequest(page_size=1))
            second = await client.list_tasks(pb.ListTasksRequest(page_size=1, page_token=first.next_page_token))
            assert [len(page.tasks) for page in (first, second)] == [1, 1]
            assert done.id in (first.tasks[0].id, second.tasks[0].id)

    in_loop(main())


def test_streams_are_read_and_a_task_is_cancelled() -> None:
    """The answer comes in pieces; a running task is followed to its end, which here is that it is cancelled."""
    agent = scripted("talker", {"text": "one two three four", "chunk_s": 0.01})
    gated = Gated()

    async def main() -> None:
        async with (
            serving(agent, gated.agent) as served,
            served.client("talker", streaming=True, binding=REST) as talker,
            served.client("gated", streaming=True, polling=True, binding=REST) as client,
        ):
            events = [event async for event in talker.send_message(message("go"))]
            texts = [row.artifact_update.artifact.parts[0].text for row in events if row.HasField("artifact_update")]
            assert "".join(texts) == "one two three four"
            assert events[0].HasField("task")
            assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
            stream = client.send_message(message("go"))
            task = (await anext(stream)).task
            reader = client.subscribe(pb.SubscribeToTaskRequest(id=task.id))
            assert (await anext(reader)).task.id == task.id
            canceled = await client.cancel_task(pb.CancelTaskRequest(id=task.id))
            assert canceled.status.state == pb.TASK_STATE_CANCELED
            assert [row async for row in reader][-1].status_update.status.state == pb.TASK_STATE_CANCELED
            with pytest.raises(TaskNotCancelableError):
                await client.cancel_task(pb.CancelTaskRequest(id=task.id))
            with pytest.raises(UnsupportedOperationError):
                [row async for row in client.subscribe(pb.SubscribeToTaskRequest(id=task.id))]

    in_loop(main())


def test_push_configurations_and_the_extended_card() -> None:
    """They are set, posted to, read, listed and deleted; the card with the tools is for callers with a token."""
    gated = Gated()

    async def main() -> None:
        async with (
            receiving() as receiver,
            serving(gated.agent, inside=(receiver.place,)) as served,
            served.client("gated", polling=True, binding=REST) as client,
        ):
            request = message("go")
            request.configuration.return_immediately = True
            task = await task_of(client, request)
            made = await client.create_task_push_notification_config(config(receiver.place, task.id, "one"))
            assert (made.id, made.token) == ("one", "")
            wanted = pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="one")
            assert (await client.get_task_push_notification_config(wanted)).url == f"http://{receiver.place}/in"
            await client.create_task_push_notification_config(config(receiver.place, task.id, "two"))
            await client.delete_task_push_notification_config(
                pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="two")
            )
            listed = await client.list_task_push_notification_configs(
                pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
            )
            assert [row.id for row in listed.configs] == ["one"]
            gated.open()
            posted = await receiver.wait(1)
            assert posted[0]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
            assert receiver.posts[0][0]["x-a2a-notification-token"] == TOKEN
            card = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
            assert "tool.gate" in [skill.id for skill in card.skills]
            async with served.http("") as stranger:
                assert (await stranger.get("/a2a/gated/extendedAgentCard")).status_code == 401

    in_loop(main())


def test_rights_and_limits_are_those_of_the_server() -> None:
    """Tasks of others do not exist; a viewer looks and changes nothing; a user's limit counts messages of both
    bindings together, and each act is in the audit log."""

    async def main() -> None:
        acts: list[Any] = []
        async with (
            serving(ECHO) as served,
            served.client(binding=REST) as client,
            served.client(token=BOB, binding=REST) as bob,
            served.client(token=VIEWER, binding=REST) as viewer,
            served.client() as other,
        ):
            served.kernel.on_event(lambda event: acts.append(event.data), kinds=("person.acted",))
            task = await task_of(client, message("hello"))
            with pytest.raises(TaskNotFoundError):
                await bob.get_task(pb.GetTaskRequest(id=task.id))
            assert (await viewer.get_task(pb.GetTaskRequest(id=task.id))).id == task.id
            with pytest.raises(A2AClientError, match="403"):
                await task_of(viewer, message("hello"))
            with pytest.raises(A2AClientError, match="403"):
                await viewer.cancel_task(pb.CancelTaskRequest(id=task.id))
            served.kernel.rate_limiter.set_endpoint_limits("a2a.request", {"requests_per_minute": 1, "burst_size": 1})
            await task_of(other, message("one"))
            with pytest.raises(A2AClientError, match="429"):
                await task_of(client, message("two"))
        told = [(row["person"], row["act"], row["outcome"]) for row in acts]
        assert told[:3] == [
            ("ada", "a2a.SendMessage", "ok"),
            ("vera", "a2a.send", "denied"),  # refused before the method is known
            ("vera", "a2a.CancelTask", "denied"),
        ]

    in_loop(main())


def test_what_is_wrong_has_the_protocols_status() -> None:
    """Errors that the SDK knows come back as its errors; no body or path ends in an error of the server."""

    async def main() -> None:
        async with serving(ECHO) as served, served.client(binding=REST) as client, served.http(ADA) as http:
            with pytest.raises(InvalidParamsError, match="pageSize"):
                await client.list_tasks(pb.ListTasksRequest(page_size=5_000))
            with pytest.raises(InvalidParamsError, match="parts"):
                await task_of(client, pb.SendMessageRequest(message=pb.Message(message_id="m", role=pb.ROLE_USER)))
            for path, body, status, reason in (
                ("message:send", b"{", 400, "PARSE_ERROR"),
                ("message:send", b"[]", 400, "INVALID_REQUEST"),
                ("message:send", b'{"message": {"parts": 5}}', 400, "INVALID_PARAMS"),
                ("message:send", b"[" * 100_000, 400, "PARSE_ERROR"),
                ("message:stream", b"", 400, "INVALID_PARAMS"),
                ("tasks/none:cancel", b"", 404, "TASK_NOT_FOUND"),
                ("tasks/none:cancel:cancel", b"", 404, "METHOD_NOT_FOUND"),
                ("tasks/none:dance", b"", 404, "METHOD_NOT_FOUND"),
                ("tasks/none", b"", 404, "METHOD_NOT_FOUND"),
                ("tasks/none/pushNotificationConfigs", b'{"taskId": "x"}', 404, "TASK_NOT_FOUND"),
            ):
                answer = await http.post(f"/a2a/echo/{path}", content=body)
                assert answer.status_code == status, (path, answer.text)
                assert answer.json()["error"]["details"][0]["reason"] == reason, path
            old = await http.get("/a2a/echo/tasks", headers={"a2a-version": "0.3"})
            assert old.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
            for path in ("tasks?pageSize=x", "tasks?colour=red", "tasks/a?historyLength=-1"):
                assert (await http.get(f"/a2a/echo/{path}")).status_code in (400, 404), path
            assert (await http.get("/a2a/nobody/tasks")).status_code == 404

    in_loop(main())
