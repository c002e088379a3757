"""What runs on hosts that are parted: a register, who asks it once, who keeps what it is sent, and a job.

An effect writes one line into a file before anything else happens, so that the file has each time that it was
performed, whoever is killed.
"""

from __future__ import annotations

import os
from typing import Any, Final

from lyra.core.effect import Effect

STOP: Final = "stop"
ACTS: Final = "LYRA_PARTITIONS_ACTS"  # the variable with the name of the file


def _note(word: str, key: str) -> None:
    file = os.open(os.environ[ACTS], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{word} {key}\n".encode())
    os.close(file)


async def _pay(idempotency_key: str) -> str:
    _note("pay", idempotency_key)
    return "paid"


PAY: Final = Effect(_pay, name="partitions:pay")


async def cell(ctx: Any) -> Any:
    """Keep a value; answer each question with what it was."""
    value = 0
    while True:
        asked = await ctx.receive()
        if asked == STOP:
            return value
        was = value
        if asked["what"] == "write" or (asked["what"] == "swap" and value == asked["args"][0]):
            value = asked["args"][-1]
        ctx.send(asked["reply"], was)


async def ask(ctx: Any, address: str, what: str, args: list[int]) -> Any:
    """Ask a cell once."""
    ctx.send(address, {"what": what, "args": args, "reply": ctx.address})
    return await ctx.receive()


async def keep(ctx: Any) -> list[Any]:
    """Return what was received until the end was."""
    kept: list[Any] = []
    while (message := await ctx.receive()) != STOP:
        kept.append(message)
    return kept


async def pay(ctx: Any) -> str:
    return str(await ctx.do(PAY))


async def job(ctx: Any) -> str:
    return str(ctx.pid)


PROGRAMS: Final = (cell, ask, keep, pay, job)
