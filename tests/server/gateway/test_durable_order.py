"""The order of a call's rows and its bytes: nothing is asked before its row is durable, nothing ends before its row."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lyra.store.sqlite import SqliteStore
from tests.server.gateway.support import SSE, Reply, chat_stream, serving_gateway
from tests.server.http.support import in_loop

BODY: dict[str, Any] = {
    "model": "openai/gpt-4o-mini",
    "messages": [{"role": "user", "content": "hello"}],
    "max_completion_tokens": 50,
    "stream": True,
}
PATH = "/v1/chat/completions"
STILL_S = 0.3  # nothing happens for so long


class HeldStore(SqliteStore):
    """A store whose commits wait while it is held."""

    def __init__(self, path: str) -> None:
        super().__init__(path, durability="power")
        self.free = threading.Event()
        self.free.set()

    def append(self, records: Sequence[tuple[int, float, str, str, bytes]], epoch: int) -> None:
        self.free.wait(timeout=60)
        super().append(records, epoch)


def test_a_provider_is_asked_when_the_row_is_durable(tmp_path: Path) -> None:
    """A kill can find no call at the provider of which the store does not know."""

    async def main() -> None:
        store = HeldStore(str(tmp_path / "held.db"))
        async with serving_gateway(Reply(chat_stream("word"), headers=SSE), store=store) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client, asyncio.TaskGroup() as group:
                await client.post(PATH, json=BODY)  # what the first call loads is there from now on
                store.free.clear()
                asked = group.create_task(client.post(PATH, json=BODY))
                await asyncio.sleep(STILL_S)
                assert len(served.provider.received) == 1
                store.free.set()
                assert "[DONE]" in (await asked).text
        store.close()

    in_loop(main())


def test_a_client_sees_the_end_when_the_row_is_durable(tmp_path: Path) -> None:
    """An answer that was seen whole is charged with what it cost, also by the kernel after a kill."""

    async def main() -> None:
        store, gate = HeldStore(str(tmp_path / "held.db")), asyncio.Event()
        reply = Reply(chat_stream("word"), headers=SSE, gate=gate)
        async with serving_gateway(reply, store=store) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client, client.stream("POST", PATH, json=BODY) as stream:
                pieces = stream.aiter_bytes()
                text = await anext(pieces)
                store.free.clear()
                gate.set()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(STILL_S):
                        async for piece in pieces:
                            text += piece
                assert b"[DONE]" not in text
                assert b"word" in text
                store.free.set()
            assert (await served.view())["spent_micro_usd"] > 0
        store.close()

    in_loop(main())
