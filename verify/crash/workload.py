"""The durable workload that the crash harness kills: programs, their acts, and the driver that runs one life of them.

The outside world is one file that only grows: a line for each act performed (`act KEY WHAT VALUE`), for each answer
a program has seen (`seen PID WHAT VALUE`), for each thing the kernel acknowledged (`ack …`), and for each opening
(`open SECONDS`, of CPU). A line is one `write` to a file opened with O_APPEND, so it is there before the next thing
happens and survives the killing of the writer. What the programs return depends on nothing but their arguments, so a
run that was killed twenty times must return the same as one that was not; two families that buy until their budget is
used up say no more than that it is. Everything that judges is in `crash`; nothing here knows that it will be killed.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lyra.core.budgets.money import Money
from lyra.core.effect import Effect
from lyra.errors import BudgetExceeded
from lyra.kernel import Kernel
from lyra.kernel.programs.context import Context

__all__ = ["COST_MICRO_USD", "LIMITS", "OUTSIDE_MESSAGES", "PROGRAMS", "PURCHASES_MAX", "World", "live"]

COST_MICRO_USD: Final = 1_000  # of each paid act
LIMITS: Final[dict[str, dict[str, int]]] = {"money": {"usd": 15 * COST_MICRO_USD}, "calls": {"tool_calls": 12}}
PURCHASES_MAX: Final = {"money": 15, "calls": 12}  # what the budget of each family pays for, attempts included
OUTSIDE_MESSAGES: Final = 6
_WORKERS: Final = 3
_ROUNDS: Final = 4
_BUYERS: Final = 3  # of a family
_DELAY_S: Final = 0.002


class World:
    """The file outside. It is opened in each life anew; lines of earlier lives are what the world remembers."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._path = path

    def note(self, *words: str) -> None:
        os.write(self._file, (" ".join(words) + "\n").encode())

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines()

    def performed(self, key: str) -> bool:
        return any(line.startswith(f"act {key} ") for line in self.lines())

    def close(self) -> None:
        os.close(self._file)


_world: World | None = None


def _outside() -> World:
    assert _world is not None, "programs of this module run inside live()"
    return _world


def call_of(idempotency_key: str) -> str:
    """The `pid:call` in a key, without the store's id and the number of the pid's life."""
    call = re.sub(r":[0-9a-f]{24}$", "", idempotency_key.partition(":")[2])
    return re.sub(r"~\d+:", ":", call, count=1)


async def _read(value: int, idempotency_key: str) -> int:
    return await _act("read", value, idempotency_key)


async def _pay(value: int, idempotency_key: str) -> int:
    return await _act("pay", value, idempotency_key)


async def _act(what: str, value: int, key: str) -> int:
    _outside().note("act", call_of(key), what, str(value))
    await asyncio.sleep(_DELAY_S)
    return answer_to(value)


def answer_to(value: int) -> int:
    """What an act gives: a function of its argument, so that everybody can work it out again."""
    return value * 7 + 1


async def _buy(item: str, idempotency_key: str) -> str:
    _outside().note("act", call_of(idempotency_key), "buy", item)
    await asyncio.sleep(5 * _DELAY_S)
    return item


_READ: Final = Effect(_read, name="read", idempotent=True)
_PAY: Final = Effect(_pay, name="pay", cost=Money(COST_MICRO_USD))
_BUY: Final = Effect(_buy, name="buy", cost={"usd": COST_MICRO_USD, "tool_calls": 1}, idempotent=True)


async def _seen(ctx: Context, effect: Effect, value: Any) -> Any:
    """Do it, and note that the program holds the answer: from here on it must never happen again."""
    result = await ctx.do(effect, value)
    _outside().note("seen", ctx.pid, effect.name, str(value))
    return result


# ---------------------------------------------------------------------- programs


async def chief(ctx: Context) -> list[Any]:
    """Parallel acts, children with budgets of their own, a question, a pause, a checkpoint, more of the same."""
    if ctx.restored is None:
        first = await asyncio.gather(*[_seen(ctx, _PAY if number % 2 else _READ, number) for number in range(4)])
        workers = [
            ctx.spawn(worker, number, budget={"usd": 2 * _ROUNDS * COST_MICRO_USD}).pid for number in range(_WORKERS)
        ]
        answer = await ctx.ask("Go on?", kind="confirmation")
        await ctx.sleep(0.01)
        state: dict[str, Any] = {"first": first, "workers": workers, "approved": answer.approved}
        await ctx.checkpoint(state)
    else:
        state = ctx.restored
    second = await asyncio.gather(*[_seen(ctx, _PAY, 100 + number) for number in range(3)])
    ends = [(await ctx.process(pid).wait()).result for pid in state["workers"]]
    await ctx.send("collector", "end")
    return [state["first"], state["approved"], second, ends]


async def worker(ctx: Context, number: int) -> int:
    total = 0
    for turn in range(_ROUNDS):
        total += await _seen(ctx, _PAY, 1000 * number + turn)
        total += await _seen(ctx, _READ, 1000 * number + 500 + turn)
        await ctx.send("collector", [number, turn])
        await ctx.sleep(0.001)
    return total


async def collector(ctx: Context) -> Any:
    """Takes what others send until it is told to stop; senders wait when it is behind."""
    heard: dict[str, list[int]] = {}
    ended = False
    while not ended or len(heard.get("outside", [])) < OUTSIDE_MESSAGES:
        message = await ctx.receive()
        if message == "end":
            ended = True
        else:
            who, what = str(message[0]), message[1]
            known = heard.setdefault(who, [])
            if what not in known:  # a sender that was killed before it heard of the acknowledgement sends again
                known.append(what)
        await ctx.do(_READ, len(heard))
    return heard


async def family(ctx: Context) -> list[str]:
    """Its buyers share its budget."""
    buyers = [ctx.spawn(buyer, f"{ctx.pid}.{number}") for number in range(_BUYERS)]
    return [(await child.wait()).result for child in buyers]


async def buyer(ctx: Context, name: str) -> str:
    """Buys until the budget is used up. After a kill the purchases in flight are tried again, and charged again."""
    number = 0
    while True:
        try:
            await _seen(ctx, _BUY, f"{name}.{number}")
        except BudgetExceeded:
            return f"{name} has nothing left"
        number += 1


PROGRAMS: Final = (chief, worker, collector, family, buyer)


# ---------------------------------------------------------------------- one life


async def live(
    store: Path, world_file: Path, *, durability: str, life: int, opened: Callable[[], None]
) -> dict[str, Any]:
    """Open the store, go on with everything in it, and give the results once all of it has ended."""
    global _world
    world = _world = World(world_file)
    began = time.process_time()
    kernel = Kernel(
        str(store),
        programs=PROGRAMS,
        durability=durability,
        budget={"usd": 1_000_000},
        snapshot_every_events=60,
        mailbox_messages_max=3,
        lease_s=2.0,
    )
    async with kernel:
        world.note("open", f"{time.process_time() - began:.4f}")
        opened()
        _answer_questions(kernel, world, life)
        handles = {
            "collector": await kernel.spawn(collector, pid="collector"),
            "chief": await kernel.spawn(chief, pid="chief", budget={"usd": 100_000}),
        }
        for pid, limits in LIMITS.items():
            handles[pid] = await kernel.spawn(family, pid=pid, budget=limits)
        for pid in handles:
            world.note("ack", "spawn", pid)
        await _send_from_outside(kernel, world)
        results = {}
        for pid, handle in handles.items():
            ended = await handle.wait()
            if ended.error is not None:
                raise ended.error
            world.note("ack", "end", pid)
            results[pid] = ended.result
        return results


async def _send_from_outside(kernel: Kernel, world: World) -> None:
    known = set(world.lines())
    for number in range(OUTSIDE_MESSAGES):
        if f"ack send {number}" not in known and kernel.process("collector").alive:
            await kernel.send("collector", ["outside", number])
            world.note("ack", "send", str(number))
            await asyncio.sleep(_DELAY_S)


def _answer_questions(kernel: Kernel, world: World, life: int) -> None:
    """A person who looks at the world before deciding: what was done is not done again, what was not is."""

    def answer(interrupt_id: str, kind: str, message: str) -> None:
        if kind != "in_doubt":
            kernel.resolve_interrupt(interrupt_id, {"approved": True})
            return
        key, pid = message.split()[1], message.split()[4]
        if world.performed(f"{pid}:{key}"):
            kernel.resolve_interrupt(interrupt_id, {"decision": "skip", "data": answer_to(_argument(kernel, pid, key))})
        else:
            kernel.resolve_interrupt(interrupt_id, {"decision": "retry"})

    def later(interrupt_id: str, kind: str, message: str) -> None:
        kernel.loop.call_later(_DELAY_S * (1 + life % 3), answer, interrupt_id, kind, message)

    for pending in kernel.interrupts.pending():
        later(pending.id, pending.kind, pending.message)

    def hear(event: Any) -> None:
        if event.kind == "interrupt.created":
            later(event.data["id"], event.data["kind"], event.data.get("message", ""))

    kernel.on_event(hear)


def _argument(kernel: Kernel, pid: str, key: str) -> int:
    """The argument of a doubtful act, from the order in which the programs above make their calls."""
    program = kernel.processes[pid].program
    if program.endswith(":worker"):
        number = _worker_number(kernel, pid)
        return 1000 * number + int(key) // 4
    branch = int(key.split("/", maxsplit=1)[0])
    return branch if branch < 4 else 100 + branch - 4


def _worker_number(kernel: Kernel, pid: str) -> int:
    """Workers are started in order, and pids are numbered by the journal."""
    workers = [other for other, process in kernel.processes.items() if process.program.endswith(":worker")]
    return sorted(workers, key=lambda other: int(other[1:])).index(pid)
