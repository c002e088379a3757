"""Push notifications: a task is posted when a person is asked and when it ends; the receiver's secrets stay secret."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError

from lyra.core.policies.retry import Backoff, Retry
from lyra.server.http.webhooks.deliveries import seal, unseal
from lyra.server.protocols.a2a import tasks as module
from tests.server.http.test_webhooks import receiving
from tests.server.protocols.a2a.support import Gated, in_loop, message, serving, task_of
from tests.server.protocols.a2a.test_questions import clerk

TOKEN = "token-of-the-receiver"
PASSWORD = "password-of-the-receiver"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY", Retry(max_attempts=4, backoff=Backoff(initial_s=0.01, max_s=0.02)))


def config(place: str, task_id: str = "", config_id: str = "") -> pb.TaskPushNotificationConfig:
    return pb.TaskPushNotificationConfig(
        task_id=task_id,
        id=config_id,
        url=f"http://{place}/in",
        token=TOKEN,
        authentication=pb.AuthenticationInfo(scheme="Bearer", credentials=PASSWORD),
    )


def test_a_task_is_posted_at_its_question_and_at_its_end(tmp_path: Path) -> None:
    """The receiver gets the token and the credentials; the store of the server and its answers have neither."""
    store = tmp_path / "store.db"

    async def main() -> None:
        async with (
            receiving() as receiver,
            serving(clerk(), store=store, inside=(receiver.place,)) as served,
            served.client("clerk") as client,
        ):
            request = message("book it")
            request.configuration.task_push_notification_config.CopyFrom(config(receiver.place))
            receiver.failures = [500, 503]
            task = await task_of(client, request)
            await receiver.wait(1)
            await task_of(client, message("Friday", task_id=task.id))
            posted = await receiver.wait(2)
            states = [body["task"]["status"]["state"] for body in posted]
            assert states == ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"]
            assert posted[1]["task"]["artifacts"][0]["parts"][0]["text"] == "It is done: Oslo on Friday"
            headers = receiver.posts[0][0]
            assert headers["x-a2a-notification-token"] == TOKEN
            assert headers["authorization"] == f"Bearer {PASSWORD}"
            listed = await client.list_task_push_notification_configs(
                pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
            )
            assert [row.url for row in listed.configs] == [f"http://{receiver.place}/in"]
            assert not any(secret in str(listed) for secret in (TOKEN, PASSWORD))

    in_loop(main())
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        assert TOKEN.encode() not in data
        assert PASSWORD.encode() not in data


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_configurations_are_set_replaced_read_and_deleted(version: str) -> None:
    """One id is one configuration; a deleted one is posted nothing."""

    async def main() -> None:
        gated = Gated()
        async with (
            receiving() as receiver,
            serving(gated.agent, inside=(receiver.place,)) as served,
            served.client("gated", polling=True, version=version) as client,
        ):
            task = await task_of(client, message("go"))
            for name in ("first", "first", "second"):
                kept = await client.create_task_push_notification_config(config(receiver.place, task.id, name))
                assert (kept.id, kept.token, kept.authentication.credentials) == (name, "", "")
            listing = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
            assert len((await client.list_task_push_notification_configs(listing)).configs) == 2
            await client.delete_task_push_notification_config(
                pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="second")
            )
            get = pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="first")
            assert (await client.get_task_push_notification_config(get)).url == f"http://{receiver.place}/in"
            with pytest.raises(TaskNotFoundError):
                get.id = "second"
                await client.get_task_push_notification_config(get)
            gated.open()
            posted = await receiver.wait(1)
            body: Any = posted[0]["task"] if version == "1.0" else posted[0]
            assert body["id"] == task.id
            assert body["status"]["state"] == ("TASK_STATE_COMPLETED" if version == "1.0" else "completed")
            assert len(receiver.posts) == 1

    in_loop(main())


def test_a_url_inside_this_network_is_refused() -> None:
    """A client cannot have the server post to its own network, nor to a scheme that is not HTTP."""

    async def main() -> None:
        async with serving() as served, served.client() as client:
            task = await task_of(client, message("hi"))
            for url in (
                "http://127.0.0.1:9/in",
                "http://169.254.169.254/latest",
                "file:///etc/passwd",
                "http://[::1]/",
            ):
                bad = pb.TaskPushNotificationConfig(task_id=task.id, url=url)
                with pytest.raises(InvalidParamsError):
                    await client.create_task_push_notification_config(bad)
            for wrong in ({"id": "a/b"}, {"authentication": pb.AuthenticationInfo(scheme="a b", credentials="c")}):
                bad = pb.TaskPushNotificationConfig(task_id=task.id, url="https://example.org/in", **wrong)
                with pytest.raises(InvalidParamsError):
                    await client.create_task_push_notification_config(bad)

    in_loop(main())


def test_a_task_has_a_bounded_number_of_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused."""
    monkeypatch.setattr(module, "A2A_PUSH_CONFIGS_MAX", 2)

    async def main() -> None:
        async with serving() as served, served.client() as client:
            task = await task_of(client, message("hi"))
            for number in range(3):
                target = pb.TaskPushNotificationConfig(task_id=task.id, url=f"https://example.org/in/{number}")
                if number < 2:
                    await client.create_task_push_notification_config(target)
            with pytest.raises(Exception, match="2 configurations"):
                await client.create_task_push_notification_config(target)

    in_loop(main())


def test_what_was_not_posted_before_a_restart_is_posted_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that was away gets the status when the server is back, and each status once."""
    store = tmp_path / "store.db"
    monkeypatch.setattr(module, "_RETRY", Retry(max_attempts=1_000, backoff=Backoff(initial_s=0.2, max_s=0.2)))

    async def main() -> None:
        async with receiving() as receiver:
            inside = (receiver.place,)
            async with serving(clerk(), store=store, inside=inside) as served, served.client("clerk") as client:
                task = await task_of(client, message("book it"))
                receiver.failures = [500] * 1_000
                await client.create_task_push_notification_config(config(receiver.place, task.id))
            receiver.failures = []
            kept = asyncio.Event()  # the journal has that it was posted
            async with serving(clerk(), store=store, inside=inside) as served:
                served.kernel.on_event(lambda event: kept.set(), kinds=("program.checkpoint",))
                posted = await receiver.wait(1)
                assert posted[0]["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
                await kept.wait()
            async with serving(clerk(), store=store, inside=inside) as served, served.client("clerk") as client:
                await task_of(client, message("Friday", task_id=task.id))
                posted = await receiver.wait(2)
                assert posted[1]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"

    in_loop(main())


def test_a_status_that_was_never_put_into_line_is_told_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stopped before it could tell the receiver: it does so when the task is back."""
    store = tmp_path / "store.db"

    async def main() -> None:
        async with receiving() as receiver:
            inside = (receiver.place,)
            with monkeypatch.context() as patch:
                patch.setattr(module.PushConfigs, "tell", lambda self, live: None)
                async with serving(clerk(), store=store, inside=inside) as served, served.client("clerk") as client:
                    task = await task_of(client, message("book it"))
                    await client.create_task_push_notification_config(config(receiver.place, task.id))
            async with serving(clerk(), store=store, inside=inside):
                posted = await receiver.wait(1)
                assert posted[0]["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"

    in_loop(main())


def test_a_sealed_secret_opens_only_under_its_name_and_key() -> None:
    """Another name, another key and a changed text are refused."""
    key = b"k" * 32
    sealed = seal(key, "a", "secret")
    assert unseal(key, "a", sealed) == "secret"
    assert seal(key, "a", "secret") != sealed
    for wrong in ((key, "b", sealed), (b"x" * 32, "a", sealed), (key, "a", sealed[:-4] + "AAA="), (key, "a", "?")):
        with pytest.raises(Exception, match="cannot be opened"):
            unseal(*wrong)
