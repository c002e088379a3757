"""Push notifications over kill -9 of the server: one that was due is delivered by the next server, at least once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory

from tests import warm
from tests.server.http.test_webhooks import Receiver, receiving
from tests.server.protocols.a2a.support import ADA, in_loop, message, serving, task_of
from tests.server.protocols.a2a.test_push import PASSWORD, TOKEN, config
from tests.server.protocols.a2a.test_questions import clerk

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[4]


def serve() -> None:
    """What the process of the server runs."""

    async def main(store: str, place: str) -> None:
        async with serving(clerk(), store=Path(store), inside=(place,)) as served:
            print(served.url, flush=True)
            await asyncio.Event().wait()

    asyncio.run(main(*sys.argv[1:]))


@asynccontextmanager
async def killed_at_the_end(store: Path, receiver: Receiver) -> AsyncIterator[Any]:
    """The SDK's client of a server in a process of its own, which is killed in the end."""
    words = (str(store), receiver.place)
    server = warm.start(f"{__name__}:serve", words, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        url = (await asyncio.to_thread(server.stdout.readline)).decode().strip()
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {ADA}"}, timeout=60) as http:
            card = await A2ACardResolver(http, f"{url}/a2a/clerk").get_agent_card()
            yield ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
    finally:
        await asyncio.to_thread(warm.close, server)


def test_a_post_that_was_under_way_is_made_again(tmp_path: Path) -> None:
    """The server dies while its receiver refuses the post, and again later: the next one posts the task, with the token
    and the credentials, and goes on to post its end."""
    store = tmp_path / "store.db"

    async def main() -> None:
        async with receiving() as receiver:
            receiver.failures = [503] * 1_000
            async with killed_at_the_end(store, receiver) as client:
                request = message("book it")
                request.configuration.task_push_notification_config.CopyFrom(config(receiver.place))
                task = await task_of(client, request)
                while len(receiver.failures) == 1_000:
                    await asyncio.sleep(0.01)
            receiver.failures.clear()
            async with killed_at_the_end(store, receiver) as client:
                posted = await receiver.wait(1)
                assert {row["task"]["status"]["state"] for row in posted} == {"TASK_STATE_INPUT_REQUIRED"}
                assert receiver.posts[0][0]["x-a2a-notification-token"] == TOKEN
                assert receiver.posts[0][0]["authorization"] == f"Bearer {PASSWORD}"
                await task_of(client, message("Friday", task_id=task.id))
            async with killed_at_the_end(store, receiver):
                while posted[-1]["task"]["status"]["state"] != "TASK_STATE_COMPLETED":
                    posted = await receiver.wait(len(posted) + 1)
            assert {row["task"]["id"] for row in posted} == {task.id}

    in_loop(main(), 120)


def test_a_status_that_was_answered_is_posted_however_soon_the_server_dies(tmp_path: Path) -> None:
    """The server dies at once after it has answered that a task asks: the receiver is told of each of the tasks."""
    store = tmp_path / "store.db"

    async def main() -> None:
        async with receiving() as receiver:
            tasks = set()
            for _ in range(3):
                async with killed_at_the_end(store, receiver) as client:
                    request = message("book it")
                    request.configuration.task_push_notification_config.CopyFrom(config(receiver.place))
                    tasks.add((await task_of(client, request)).id)
            async with killed_at_the_end(store, receiver):
                count = 0
                while {row["task"]["id"] for row in await receiver.wait(count)} != tasks:
                    count += 1

    in_loop(main(), 120)
