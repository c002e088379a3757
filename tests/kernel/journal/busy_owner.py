"""A kernel for tests that stop its OS process: many programs whose idempotent effects last, each written to a file.

`python -c "from tests.kernel.journal.busy_owner import main; main()" STORE FILE OWNER` runs it until it is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lyra import Effect
from lyra.kernel import Kernel

PROCESSES = 50
EFFECTS = 8
LEASE_S = 1.0
EFFECT_S = 0.1

_place: dict[str, str] = {}


def use(file: str, owner: str) -> None:
    _place.update(file=file, owner=owner)


def _note(word: str, key: str) -> None:
    handle = os.open(_place["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, f"{word} {_place['owner']} {key}\n".encode())
    os.close(handle)


def notes(file: Path, word: str, owner: str) -> list[str]:
    """The keys that an owner wrote with this word."""
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [key for said, by, key in lines if (said, by) == (word, owner)]


async def _act(number: int, idempotency_key: str) -> int:
    _note("begun", idempotency_key)
    await asyncio.sleep(EFFECT_S)
    _note("ended", idempotency_key)
    return number


act = Effect(_act, name="act", idempotent=True)


async def works(ctx: Any) -> int:
    total = 0
    for number in range(EFFECTS):
        total += await ctx.do(act, number)
    return total


async def _own(target: str) -> None:
    kernel = Kernel(target, programs=[works], lease_s=LEASE_S)
    await kernel.start()
    for number in range(PROCESSES):
        await kernel.spawn(works, pid=f"w{number}")
    print("up", flush=True)
    while kernel.failure is None:
        await asyncio.sleep(0.05)
    print("fenced", kernel.failure.code, flush=True)
    await kernel.close()


def main(words: Sequence[str] = sys.argv[1:]) -> None:
    target, file, owner = words
    use(file, owner)
    asyncio.run(_own(target))
