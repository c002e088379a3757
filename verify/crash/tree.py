"""Killing a supervised tree and a waiting question: real processes, real SIGKILL.

A forked child opens a store, supervises workers (some of which crash by themselves), and has one process that waits
for an answer. The parent kills it after a random while, again and again, on the same store; a last life in peace
answers the question and stops the tree. Held against what the workers wrote into the outside world: no finished
effect was performed again, each that was performed is charged, the tree was whole in every life, the question was
asked once, the store is sound.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections import Counter
from typing import Any, Final, NamedTuple

from lyra.core.effect import Effect
from lyra.core.ids import make_random
from lyra.errors import StoreError
from lyra.kernel import Child, Kernel
from lyra.kernel.journal import rows
from lyra.store.sqlite import SqliteStore
from verify.crash.workload import call_of

__all__ = ["Trees", "run"]

_WORKERS: Final = 3
_KILLS_A_STORE: Final = 10
_LIFE_S: Final = 0.25


class Trees(NamedTuple):
    kills: int
    lives: int
    acts: int
    failures: list[str]


async def _act(path: str, number: int, idempotency_key: str) -> int:
    """One line in the outside world: that survives whatever becomes of us."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{call_of(idempotency_key)}\n".encode())
    finally:
        os.close(handle)
    return number


_ACT: Final = Effect(_act, idempotent=True, cost={"tool_calls": 1})


async def worker(ctx: Any, path: str, number: int) -> None:
    """Acts for ever; every so often it fails by itself and is restarted."""
    state = ctx.restored or {"n": 0}
    while True:
        state["n"] += 1
        await ctx.do(_ACT, path, state["n"])
        if state["n"] % 7 == number:
            raise RuntimeError("a bad day")
        await ctx.sleep(0.002)
        await ctx.checkpoint(state)


async def asker(ctx: Any) -> str:
    answer = await ctx.ask("go on?", kind="checkpoint")
    return str(answer.text)


async def _life(folder: str, *, last: bool) -> list[str]:
    store, world = os.path.join(folder, "run.db"), os.path.join(folder, "world")
    failures: list[str] = []
    async with await _open(store) as kernel:
        children = [Child(f"w{n}", worker, args=(world, n)) for n in range(_WORKERS)]
        tree = kernel.supervise(children, max_restarts=-1, pid="tree")
        question = kernel.spawn(asker, pid="asker")
        await asyncio.sleep(0.05 if last else 60.0)
        if not tree.alive or len(await tree.which_children()) != _WORKERS:
            failures.append("the tree is not whole")
        pending = kernel.interrupts.pending("asker")
        if len(pending) != 1:
            failures.append(f"{len(pending)} questions are pending instead of one")
        else:
            await kernel.resolve_interrupt(pending[0].id, {"text": "yes"})
            if (await question.wait()).result != "yes":
                failures.append("the answer did not arrive")
        await tree.stop()
    return failures


async def _open(store: str) -> Kernel:
    """The owner before us was killed a moment ago: the system may not have buried it yet."""
    until = time.monotonic() + 5.0
    while True:
        try:
            kernel = Kernel(store, programs=[worker, asker], budget={"tool_calls": 1_000_000})
            await kernel.start()
        except StoreError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.01)
        else:
            return _Started(kernel)  # type: ignore[return-value]  # an `async with` over what is open already


class _Started:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def __aenter__(self) -> Kernel:
        return self._kernel

    async def __aexit__(self, *_: object) -> None:
        await self._kernel.close()


def _fork(folder: str) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(_life(folder, last=False))
            code = 0
        finally:
            os._exit(code)
    return child


def _verify(folder: str, kills: int) -> tuple[list[str], int]:
    """Every finished effect was performed; one in flight at a kill (they are idempotent) at most once more for each. No
    effect was performed more often than it is charged."""
    with open(os.path.join(folder, "world")) as file:
        performed = Counter(file.read().split())
    store = SqliteStore(os.path.join(folder, "run.db"))
    finished: Counter[str] = Counter()
    charged: Counter[str] = Counter()
    for record in store.read():
        if record.kind == "effect.finished":
            row = rows.DECODERS[record.kind].decode(record.data)
            charged[f"{record.pid}:{row.key}"] += (row.usage or {}).get("tool_calls", 0)
            if not row.name and row.error is None:
                finished[f"{record.pid}:{row.key}"] += 1
    failures = store.check()
    store.close()
    failures += [f"{key} is finished {count} times" for key, count in finished.items() if count > 1]
    failures += [f"{key} is finished and was never performed" for key in finished if not performed[key]]
    failures += [
        f"{key} was performed {count} times and charged {charged[key]} times"
        for key, count in performed.items()
        if count > charged[key]
    ]
    failures += [
        f"{key} was performed {count} times with {kills} kills" for key, count in performed.items() if count > 1 + kills
    ]
    return failures, sum(performed.values())


def run(kills: int, seed: int) -> Trees:
    rng = make_random(seed)
    failures: list[str] = []
    done = lives = acts = 0
    while done < kills:
        with tempfile.TemporaryDirectory(prefix="lyra-trees-") as folder:
            for _ in range(min(_KILLS_A_STORE, kills - done)):
                child = _fork(folder)
                time.sleep(rng.uniform(0.03, _LIFE_S))
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                done += 1
                lives += 1
            failures += asyncio.run(_life(folder, last=True))
            wrong, count = _verify(folder, _KILLS_A_STORE)
            failures += wrong
            acts += count
            lives += 1
    return Trees(done, lives, acts, failures)
