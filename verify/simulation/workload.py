"""Random programs as plain data, and the one program that runs them.

`Generator` draws a tree of specs from a seed: what each process does, step by step, with what budget and rights.
`worker` is a durable program that follows a spec; it depends on (ctx, spec) alone, as a durable program must.
`STEPS` is the table of what a step can be. `sink` is a slow reader with a small mailbox, so that senders feel it.
Faults are not drawn here: `provider` and `world` make them happen around these programs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from lyra.core.ids import ProcessRandom
from lyra.errors import Divergence
from verify.simulation.provider import EFFECTS

__all__ = ["CAPABILITIES", "SINK", "STEPS", "Generator", "sink", "worker"]

Spec = dict[str, Any]
Step = list[Any]

CAPABILITIES: Final = ("net.http:a.sim", "net.http:b.sim", "fs.read:/sim/data", "fs.write:/sim/out")
SINK: Final = "sink"  # the pid of the slow reader
_PRIORITIES: Final = ("realtime", "high", "normal", "low", "idle")
_ASK_KINDS: Final = ("confirmation", "agent_review", "resource_exhausted", "clarification")


class PlannedFailure(Exception):
    """A program that fails because its spec says so."""


# ---------------------------------------------------------------------- running a spec


class Line:
    """One line of a program: what came out so far and who was started."""

    __slots__ = ("ctx", "kids", "out", "parent", "spec")

    def __init__(self, ctx: Any, spec: Spec, parent: str, out: list[Any], kids: list[str]) -> None:
        self.ctx = ctx
        self.spec = spec
        self.parent = parent
        self.out = out
        self.kids = kids


async def worker(ctx: Any, spec: Spec, parent: str) -> Any:
    kept = ctx.restored or {"at": 0, "out": [], "kids": []}
    line = Line(ctx, spec, parent, list(kept["out"]), list(kept["kids"]))
    steps = spec["steps"]
    try:
        for index in range(kept["at"], len(steps)):
            if steps[index][0] == "checkpoint":
                line.out.append("checkpoint")
                await ctx.checkpoint({"at": index + 1, "out": line.out, "kids": line.kids})
            else:
                await _guarded(line, steps[index])
    except asyncio.CancelledError:
        if spec["stubborn"]:
            await ctx.sleep(1.0)  # it wants to tidy up before it goes
        raise
    return line.out


async def sink(ctx: Any, count: int) -> Any:
    """Reads slowly until nothing came for a while."""
    seen: list[Any] = []
    for _ in range(count):
        message = await ctx.receive(timeout=200.0)
        if message is None:
            break
        seen.append(message)
        await ctx.sleep(1.5)
    return seen


# Kept histories (tests/verify/simulation/histories) name the programs by the module in which they were recorded.
worker.__lyra_name__ = "lyra.testing.workload:worker"  # type: ignore[attr-defined]
sink.__lyra_name__ = "lyra.testing.workload:sink"  # type: ignore[attr-defined]


async def _guarded(line: Line, step: Step) -> None:
    """Do one step; what an ordinary program would catch is part of what came out."""
    try:
        line.out.append(await STEPS[step[0]](line, *step[1:]))
    except Divergence:
        raise
    except Exception as error:
        if line.spec["fragile"] and step[0] == "do":
            raise
        line.out.append(["!", type(error).__name__])


async def _do(line: Line, kind: str, needs: list[str], number: int) -> Any:
    effect = EFFECTS[kind]
    request = {
        "kind": kind,
        "label": line.spec["label"],
        "needs": needs,
        "micro_usd": int(effect.cost["usd"]),
        "number": number,
    }
    answer = await line.ctx.do(effect, request)
    return [answer["key"], answer["nth"]]


async def _spawn(line: Line, spec: Spec, options: dict[str, Any], wait: bool) -> Any:
    child = line.ctx.spawn(worker, spec, line.ctx.pid, **options)
    line.kids.append(child.pid)
    if not wait:
        return None
    ended = await child.wait()
    return [ended.reason, ended.result, type(ended.error).__name__]


async def _wait(line: Line, index: int) -> Any:
    if not line.kids:
        return None
    ended = await line.ctx.process(line.kids[index % len(line.kids)]).wait()
    return [ended.reason, ended.result]


async def _send(line: Line, target: str, number: int) -> Any:
    to = {"parent": line.parent, "sink": SINK, "self": line.ctx.pid}.get(target)
    if to is None:
        to = line.kids[number % len(line.kids)] if line.kids else SINK
    await line.ctx.send(to, [line.ctx.pid, number])
    return None


async def _receive(line: Line, timeout_s: float) -> Any:
    return await line.ctx.receive(timeout=timeout_s)


async def _ask(line: Line, kind: str, number: int) -> Any:
    answer = await line.ctx.ask(f"question {number}?", kind=kind)
    return [answer.text, answer.approved, answer.decision]


async def _sleep(line: Line, seconds: float) -> Any:
    await line.ctx.sleep(seconds)


async def _now(line: Line) -> Any:
    return line.ctx.now()


async def _random(line: Line) -> Any:
    return line.ctx.random()


async def _drawn(line: Line, number: int) -> Any:
    """An act whose argument was drawn by lot: a replay has to draw the same."""
    return await _do(line, "read", [], number + line.ctx.random.randrange(1000))


async def _remaining(line: Line) -> Any:
    left = line.ctx.budget.remaining()
    return None if left is None else int(left)


async def _gather(line: Line, branches: list[list[Step]]) -> Any:
    async def branch(steps: list[Step]) -> list[Any]:
        own = Line(line.ctx, {**line.spec, "fragile": False}, line.parent, [], list(line.kids))
        for step in steps:
            await _guarded(own, step)
        return own.out

    return await asyncio.gather(*[branch(steps) for steps in branches])


async def _group(line: Line, branches: list[list[Step]]) -> Any:
    """The same in a TaskGroup whose first failure cancels the others."""
    outs: list[list[Any]] = [[] for _ in branches]

    async def branch(steps: list[Step], out: list[Any]) -> None:
        own = Line(line.ctx, {**line.spec, "fragile": True}, line.parent, out, list(line.kids))
        for step in steps:
            await _guarded(own, step)

    try:
        async with asyncio.TaskGroup() as group:
            for steps, out in zip(branches, outs, strict=True):
                group.create_task(branch(steps, out))
    except ExceptionGroup as failed:
        if failed.subgroup(Divergence) is not None:
            raise
        return "cancelled"  # how far the others came is a matter of timing, so it is no part of the result
    return outs


async def _within(line: Line, seconds: float, steps: list[Step]) -> Any:
    """Steps under asyncio's own time-out."""
    inner = Line(line.ctx, line.spec, line.parent, [], line.kids)
    try:
        async with asyncio.timeout(seconds):
            for step in steps:
                await _guarded(inner, step)
    except TimeoutError:
        return "late"
    return inner.out


async def _exit(line: Line, reason: str) -> Any:
    line.ctx.exit(reason)


async def _fail(_line: Line, number: int) -> Any:
    raise PlannedFailure(f"planned {number}")


STEPS: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "do": _do,
    "spawn": _spawn,
    "wait": _wait,
    "send": _send,
    "receive": _receive,
    "ask": _ask,
    "sleep": _sleep,
    "now": _now,
    "random": _random,
    "drawn": _drawn,
    "remaining": _remaining,
    "gather": _gather,
    "group": _group,
    "within": _within,
    "exit": _exit,
    "fail": _fail,
}

# ---------------------------------------------------------------------- drawing a spec

# How often each step is drawn in the program itself, and in a parallel branch of it (where some make no sense).
_IN_PROGRAM: Final[dict[str, int]] = {
    "do": 34,
    "spawn": 12,
    "wait": 5,
    "send": 12,
    "receive": 7,
    "ask": 4,
    "sleep": 6,
    "now": 3,
    "random": 2,
    "drawn": 3,
    "remaining": 2,
    "gather": 5,
    "group": 3,
    "within": 3,
    "checkpoint": 3,
    "exit": 1,
    "fail": 1,
}
_IN_BRANCH: Final[dict[str, int]] = {"do": 10, "sleep": 2, "now": 1, "drawn": 1, "send": 2, "spawn": 1, "ask": 1}
_UNDER_TIMEOUT: Final[dict[str, int]] = {"do": 6, "sleep": 3, "receive": 2, "ask": 1, "send": 1}
_DEPTH_MAX: Final = 3


class Generator:
    """Draws one world's programs. The steps in all are bounded, so a seed costs about the same as any other."""

    def __init__(self, rng: ProcessRandom, *, steps_max: int = 200) -> None:
        self._rng = rng
        self._left = steps_max
        self._labels = 0
        self.may: dict[str, tuple[str, ...]] = {}  # label → capabilities, worked out here and not by the kernel

    def root(self) -> tuple[Spec, dict[str, Any]]:
        """A spec and the options to spawn it with."""
        options, may = self._options(CAPABILITIES)
        return self._spec(0, may), options

    def _spec(self, depth: int, may: tuple[str, ...]) -> Spec:
        rng = self._rng
        self._labels += 1
        label = f"s{self._labels}"
        self.may[label] = may
        steps = [self._step(depth, may, _IN_PROGRAM) for _ in range(rng.randint(2, 12)) if self._left > 0]
        return {"label": label, "steps": steps, "fragile": rng.random() < 0.15, "stubborn": rng.random() < 0.1}

    def _step(self, depth: int, may: tuple[str, ...], table: dict[str, int]) -> Step:
        self._left -= 1
        word = self._rng.choices(list(table), list(table.values()))[0]
        return [word, *_DRAW[word](self, depth, may)]

    def _options(self, may: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
        rng = self._rng
        options: dict[str, Any] = {}
        if rng.random() < 0.5:
            options["budget"] = {"usd": rng.choice([0, 5_000, 20_000, 40_000, 200_000])}
            if rng.random() < 0.2:
                options["budget"]["seconds"] = rng.choice([5.0, 60.0, 600.0])
        if rng.random() < 0.5:
            chosen = tuple(word for word in CAPABILITIES if rng.random() < 0.6)
            options["grant"] = list(chosen)
            may = tuple(word for word in may if word in chosen)
        if rng.random() < 0.3:
            options["priority"] = rng.choice(_PRIORITIES)
        return options, may

    def _draw_do(self, _depth: int, may: tuple[str, ...]) -> list[Any]:
        rng = self._rng
        needs: list[str] = []
        if rng.random() < 0.4:
            needs = [rng.choice(may if may and rng.random() < 0.7 else CAPABILITIES)]
        return [rng.choice(list(EFFECTS)), needs, rng.randrange(1000)]

    def _draw_spawn(self, depth: int, may: tuple[str, ...]) -> list[Any]:
        options, narrower = self._options(may)
        if depth >= _DEPTH_MAX:
            self._left = min(self._left, 0)
        return [self._spec(depth + 1, narrower), options, self._rng.random() < 0.5]

    def _draw_branches(self, depth: int, may: tuple[str, ...]) -> list[Any]:
        rng = self._rng
        return [
            [[self._step(depth, may, _IN_BRANCH) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(2, 3))]
        ]

    def _draw_within(self, depth: int, may: tuple[str, ...]) -> list[Any]:
        rng = self._rng
        steps = [self._step(depth, may, _UNDER_TIMEOUT) for _ in range(rng.randint(1, 3))]
        return [rng.choice([0.0, 1.0, 5.0, 30.0]), steps]


_DRAW: Final[dict[str, Callable[[Generator, int, tuple[str, ...]], list[Any]]]] = {
    "do": Generator._draw_do,
    "spawn": Generator._draw_spawn,
    "wait": lambda self, _d, _m: [self._rng.randrange(4)],
    "send": lambda self, _d, _m: [
        self._rng.choice(["parent", "sink", "sink", "child", "self"]),
        self._rng.randrange(1000),
    ],
    "receive": lambda self, _d, _m: [self._rng.choice([0.0, 1.0, 20.0, 100.0])],
    "ask": lambda self, _d, _m: [self._rng.choice(_ASK_KINDS), self._rng.randrange(1000)],
    "sleep": lambda self, _d, _m: [self._rng.choice([0.0, 0.5, 3.0, 30.0, 300.0])],
    "now": lambda _s, _d, _m: [],
    "random": lambda _s, _d, _m: [],
    "drawn": lambda self, _d, _m: [self._rng.randrange(1000)],
    "remaining": lambda _s, _d, _m: [],
    "gather": Generator._draw_branches,
    "group": Generator._draw_branches,
    "within": Generator._draw_within,
    "checkpoint": lambda _s, _d, _m: [],
    "exit": lambda self, _d, _m: [self._rng.choice(["normal", "done", "shutdown"])],
    "fail": lambda self, _d, _m: [self._rng.randrange(1000)],
}
