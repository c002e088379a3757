"""Programs of a simulated cluster, and the provider that their effects reach.

`actor` follows a spec drawn from the seed: it sends, waits, spawns, links and monitors across shards, and pays. Its
messages carry the address of their sender and a number that counts what it sent to that receiver, so that whoever
looks at a journal can tell lost, repeated and overtaken ones. `cell` keeps one value and answers `read`, `write` and
`swap`; `asker` asks it, one question after the other. Both depend on their arguments alone, as durable programs must.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from lyra.core.budgets.money import Money
from lyra.core.effect import Effect
from lyra.core.ids import ProcessRandom
from lyra.errors import Divergence, NoSuchProcess
from lyra.kernel import Child

Spec = dict[str, Any]
Step = list[Any]

KINDS: Final = ("read", "pay")  # the first may be repeated


class PlannedFailure(Exception):
    """A program that fails because its spec says so."""


class Provider:
    """Counts what was performed by key. `on_perform` is asked before each act."""

    def __init__(self, rng: ProcessRandom) -> None:
        self._rng = rng
        self.performed: dict[str, int] = {}
        self.on_perform: Callable[[str, str, int], None] = lambda _key, _kind, _count: None

    async def perform(self, kind: str, number: int, key: str) -> Any:
        count = self.performed[key] = self.performed.get(key, 0) + 1
        self.on_perform(key, kind, count)
        if kind != "call":
            await asyncio.sleep(self._rng.choice([0.0, 0.05, 0.5, 3.0]) * self._rng.random())
        return [kind, number, count]


class Outside:
    """What effects reach: the provider of the world that runs."""

    provider: Provider


async def _read(number: int, idempotency_key: str) -> Any:
    return await Outside.provider.perform("read", number, idempotency_key)


async def _pay(number: int, idempotency_key: str) -> Any:
    return await Outside.provider.perform("pay", number, idempotency_key)


async def _call(number: int, idempotency_key: str) -> Any:
    return await Outside.provider.perform("call", number, idempotency_key)


CALLS_A_MINUTE: Final = 120  # that all callers of a world may make together
CALLS_AT_ONCE: Final = 6

EFFECTS: Final[dict[str, Effect]] = {
    "read": Effect(_read, name="world:read", idempotent=True, retry=2, timeout_s=20.0),
    "pay": Effect(_pay, name="world:pay", cost=Money(10), timeout_s=20.0),
    "call": Effect(
        _call,
        name="world:call",
        idempotent=True,
        timeout_s=20.0,
        rate_limit={"requests_per_minute": CALLS_A_MINUTE, "burst": CALLS_AT_ONCE},
    ),
}


# ---------------------------------------------------------------------- actors


class Line:
    """What one actor knows: whom it has started, what it watches, how often it has written to whom."""

    __slots__ = ("ctx", "kids", "refs", "sent", "spec")

    def __init__(self, ctx: Any, spec: Spec) -> None:
        self.ctx = ctx
        self.spec = spec
        self.kids: list[str] = []
        self.refs: list[str] = []
        self.sent: dict[str, int] = {}

    def whom(self, target: Any) -> str:
        """Return the address of a root by its address, or of a child by its number."""
        if isinstance(target, str):
            return target
        return self.kids[target % len(self.kids)] if self.kids else str(self.ctx.address)


async def actor(ctx: Any, spec: Spec) -> Any:
    line = Line(ctx, spec)
    if spec["traps"]:
        ctx.trap_exit()
    done = 0
    for step in spec["steps"]:
        try:
            await STEPS[step[0]](line, *step[1:])
            done += 1
        except (Divergence, PlannedFailure):
            raise
        except Exception:  # noqa: BLE001 - what an ordinary program would catch
            done += 100
    return done


async def _do(line: Line, kind: str, number: int) -> None:
    await line.ctx.do(EFFECTS[kind], number)


async def _send(line: Line, target: Any, count: int) -> None:
    to = line.whom(target)
    for _ in range(count):
        number = line.sent[to] = line.sent.get(to, 0) + 1
        async with asyncio.timeout(5.0):  # or two that fill each other's mailboxes would wait for ever
            await line.ctx.send(to, {"from": line.ctx.address, "n": number, "for": to})


async def _receive(line: Line, timeout_s: float) -> None:
    await line.ctx.receive(timeout=timeout_s)


async def _sleep(line: Line, seconds: float) -> None:
    await line.ctx.sleep(seconds)


async def _spawn(line: Line, shard: str | None, spec: Spec, waits: bool) -> None:
    child = line.ctx.spawn(actor, spec, shard=shard) if shard else line.ctx.spawn(actor, spec)
    line.kids.append(child.pid)
    if waits:
        await child.wait()


async def _wait(line: Line, target: Any) -> None:
    async with asyncio.timeout(30.0):
        await line.ctx.process(line.whom(target)).wait()


async def _monitor(line: Line, target: Any) -> None:
    line.refs.append(line.ctx.monitor(line.whom(target)))


async def _demonitor(line: Line) -> None:
    if line.refs:
        line.ctx.demonitor(line.refs.pop())


async def _link(line: Line, target: Any) -> None:
    line.ctx.link(line.whom(target))


async def _unlink(line: Line, target: Any) -> None:
    line.ctx.unlink(line.whom(target))


async def _stop(line: Line, target: int) -> None:
    if line.kids:
        line.ctx.stop(line.whom(target), grace_s=1.0)


async def _gather(line: Line, steps: list[Step]) -> None:
    await asyncio.gather(*[STEPS[step[0]](line, *step[1:]) for step in steps])


async def _exit(line: Line, reason: str) -> None:
    line.ctx.exit(reason)


async def _fail(_line: Line, number: int) -> None:
    raise PlannedFailure(f"planned {number}")


STEPS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    "do": _do,
    "send": _send,
    "receive": _receive,
    "sleep": _sleep,
    "spawn": _spawn,
    "wait": _wait,
    "monitor": _monitor,
    "demonitor": _demonitor,
    "link": _link,
    "unlink": _unlink,
    "stop": _stop,
    "gather": _gather,
    "exit": _exit,
    "fail": _fail,
}


# ---------------------------------------------------------------------- a register, and who asks it

STOP: Final = "stop"


async def cell(ctx: Any) -> Any:
    """Keep a value; answer each question with what it was."""
    value = 0
    while True:
        asked = await ctx.receive()
        if asked == STOP:
            return value
        was, value = value, asked_value(value, asked)
        with suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                await ctx.send(asked["reply"], {"question": asked["question"], "was": was})


def asked_value(value: int, asked: dict[str, Any]) -> int:
    """Return what a cell keeps after a question."""
    writes = asked["what"] == "write" or (asked["what"] == "swap" and value == asked["old"])
    return int(asked["new"]) if writes else value


async def asker(ctx: Any, address: str, questions: list[dict[str, Any]]) -> Any:
    """Ask one after the other; return what it was told."""
    told: list[Any] = []
    for number, question in enumerate(questions):
        await ctx.sleep(question["after_s"])
        name = f"{ctx.address}:{number}"
        try:
            async with asyncio.timeout(5.0):
                await ctx.send(address, {**question, "question": name, "reply": ctx.address})
        except (NoSuchProcess, TimeoutError):  # on the shard of this process and not begun, or full
            told.append(None)
            continue
        told.append(await ctx.receive(timeout=60.0))
    return told


# ---------------------------------------------------------------------- what shards share


async def caller(ctx: Any, count: int) -> None:
    """Make rate-limited calls, as fast as the limit allows."""
    for number in range(count):
        await ctx.do(EFFECTS["call"], number)


async def member(ctx: Any) -> None:
    """Receive what is broadcast to a group, until it is told to stop."""
    while await ctx.receive() != STOP:
        pass


async def person(ctx: Any, count: int) -> list[str]:
    """Ask a person questions, one after the other; gives the answers."""
    told = []
    for number in range(count):
        await ctx.sleep(1.0)
        told.append((await ctx.ask(f"{ctx.address} {number}?")).text)
    return told


async def tree(ctx: Any, strategy: str, places: list[str | None]) -> None:
    """Supervise children on several shards, until told to stop."""
    children = [
        Child(f"kid{index}", kid, (ctx.address, index, strategy), shutdown_s=5.0, shard=place)
        for index, place in enumerate(places)
    ]
    supervisor = ctx.supervise(children, strategy=strategy, max_restarts=1_000, window_s=1_000_000.0)
    while await ctx.receive() != STOP:
        pass
    ctx.stop(supervisor.pid, grace_s=300.0)
    await supervisor.wait()


async def kid(ctx: Any, tree: str, index: int, strategy: str) -> None:  # noqa: ARG001 - for the books
    """Fail now and then for a while; then wait for the end."""
    for _ in range(3):
        await ctx.sleep(0.2 + 6.0 * ctx.random())
        if ctx.random() < 0.08:
            raise PlannedFailure("a kid")
    await ctx.receive()


PROGRAMS: Final = (actor, cell, asker, caller, member, person, tree, kid)


# ---------------------------------------------------------------------- drawing a spec

_WEIGHTS: Final[dict[str, int]] = {
    "do": 10,
    "send": 14,
    "receive": 7,
    "sleep": 6,
    "spawn": 7,
    "wait": 4,
    "monitor": 4,
    "demonitor": 1,
    "link": 3,
    "unlink": 1,
    "stop": 1,
    "gather": 2,
    "exit": 1,
    "fail": 1,
}
_DEPTH_MAX: Final = 2


class Generator:
    """Draws the programs of one world. `roots` are the addresses that every program may know."""

    def __init__(self, rng: ProcessRandom, shards: list[str], roots: list[str], *, steps_max: int = 160) -> None:
        self._rng = rng
        self._shards = shards
        self._roots = roots
        self._left = steps_max

    def spec(self, depth: int = 0) -> Spec:
        rng = self._rng
        count = rng.randint(3, 14) if depth == 0 else rng.randint(1, 6)
        steps = [self._step(depth) for _ in range(count) if self._left > 0]
        return {"steps": steps, "traps": rng.random() < 0.4}

    def _step(self, depth: int) -> Step:
        self._left -= 1
        word = self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        return [word, *self._draw(word, depth)]

    def _draw(self, word: str, depth: int) -> list[Any]:
        rng = self._rng
        if word == "do":
            return [rng.choice(KINDS), rng.randrange(1000)]
        if word == "send":
            return [self._target(), rng.choice([1, 1, 2, 5])]
        if word == "receive":
            return [rng.choice([0.5, 3.0, 10.0])]
        if word == "sleep":
            return [rng.choice([0.1, 1.0, 5.0])]
        if word == "spawn":
            spec = self.spec(depth + 1) if depth < _DEPTH_MAX else {"steps": [], "traps": False}
            return [rng.choice([*self._shards, None]), spec, rng.random() < 0.5]
        if word in ("wait", "monitor", "link", "unlink"):
            return [self._target()]
        if word == "gather":
            return [[["do", rng.choice(KINDS), rng.randrange(1000)] for _ in range(rng.randint(2, 3))]]
        if word == "exit":
            return [rng.choice(["normal", "done"])]
        return [] if word == "demonitor" else [rng.randrange(4)]

    def _target(self) -> Any:
        """Draw a child by its number, or a root by its address, or by its name there."""
        rng = self._rng
        if rng.random() < 0.4:
            return rng.randrange(4)
        address = rng.choice(self._roots)
        return address if rng.random() < 0.8 else address.replace("/", "/called-")

    def twin(self, target: str) -> Spec:
        """Draw a program that ties itself to a root and lives on for a while."""
        word = self._rng.choice(["wait", "monitor", "link"])
        return {"steps": [["sleep", 3.0], [word, target], ["sleep", 20.0]], "traps": True}

    def questions(self) -> list[dict[str, Any]]:
        rng = self._rng
        return [
            {
                "what": rng.choice(["read", "write", "swap", "swap"]),
                "old": rng.randrange(4),
                "new": rng.randrange(4),
                "after_s": rng.choice([0.0, 0.2, 2.0]) * rng.random(),
            }
            for _ in range(rng.randint(2, 6))
        ]
