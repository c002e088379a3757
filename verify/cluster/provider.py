"""A payment provider as a process of its own, which counts what is charged by idempotency key.

It takes one line of JSON a connection: `{"key": …, "usd": …}` charges, and a key that it knows gets the receipt that it
got the first time; `{"totals": true}` gives the sum, the number of keys, how many requests were repeated, and how many
of those asked for another sum than the first time. It prints its port.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final

__all__ = ["charge", "totals"]

_CHARGE_S: Final = 0.4  # until the receipt: some charges are under way whenever a host is killed


async def serve() -> None:
    receipts: dict[str, int] = {}
    faults = {"repeated": 0, "changed": 0}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(await reader.readline() or "{}")
        if "totals" in asked:
            told: Any = {"usd": sum(receipts.values()), "keys": len(receipts), **faults}
        elif "key" in asked:
            known = receipts.setdefault(asked["key"], asked["usd"])
            faults["repeated"] += asked["key"] in seen
            faults["changed"] += known != asked["usd"]
            seen.add(asked["key"])
            await asyncio.sleep(_CHARGE_S)
            told = {"usd": known}
        else:
            told = {}
        writer.write(json.dumps(told).encode() + b"\n")
        writer.close()

    seen: set[str] = set()
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


async def _ask(port: int, asked: dict[str, Any]) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(json.dumps(asked).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await reader.readline())
    finally:
        writer.close()
    return answer


async def charge(port: int, key: str, micro_usd: int) -> int:
    """Charge so much under a key; gives what the receipt says."""
    return int((await _ask(port, {"key": key, "usd": micro_usd}))["usd"])


async def totals(port: int) -> dict[str, int]:
    return await _ask(port, {"totals": True})


if __name__ == "__main__":
    sys.exit(asyncio.run(serve()))
