"""Random functions for `@lyra.parallel`: each is run as it is written and decorated, and must come to the same.

Models answer after different times, use a tool, fail and charge; budgets of several kinds lie around. Compared are what
a function returns or raises, what it prints, what every process remembers, what every budget was charged, and what the
last agent, which may only be asked in its turn, was ever asked; and it may not take longer. Every third function is a
durable program: it is also killed after some of the journal's commits and brought back, must come to the same all the
same, may ask no model again whose answer is in the journal, and asks those that were under way under the same key.
Time is virtual. `check(seed)` gives the differences of one function.
"""

from __future__ import annotations

import asyncio
import linecache
from collections.abc import AsyncIterator, Callable
from types import FunctionType
from typing import Any, Final

import lyra
from lyra.agents.agent import Agent
from lyra.agents.session.session import Metrics
from lyra.core.budgets.budget import NOTHING, Usage
from lyra.errors import LyraError
from lyra.kernel.journal.rows import DECODERS
from lyra.kernel.kernel import Kernel
from lyra.models.pricing import Price
from lyra.models.provider import Request
from lyra.models.script import Reply, ScriptedCall, ScriptedError
from lyra.models.sim import SimProvider
from lyra.models.stream import StreamEvent
from lyra.store.memory import MemoryStore
from lyra.testing.loop import SimLoop
from lyra.testing.loop import run as run_in_virtual_time
from lyra.tools.function import tool
from verify.compare.python_functions import PROCESSES, luck_of, program_of, source_of

__all__ = ["check", "source_of", "took"]

_FAILS_OF: Final = 9  # one call in so many fails
_TOOLS_OF: Final = 3  # of the agent with a tool, one in so many uses it
_TASKS: Final = 6
_CRASHES: Final = 3  # of each durable program
_PRICE: Final = Price.per_mtok(1, 2)
_KINDS: Final = ("none", "scope", "kernel", "agents", "scope", "kernel")


def check(seed: int) -> list[str]:
    """What differs between the function of a seed and the same one decorated."""
    if seed % 3 == 2:
        return _check_program(seed)
    source = source_of(seed)
    written = _Run(source, seed, lambda function: function)
    decorated = _Run(source, seed, lyra.parallel)
    differences = _compared(written, decorated, ("result", "printed", "said", "asked", "charged", "counted"), source)
    if decorated.took_s > written.took_s + 0.001:
        differences.append(f"{written.took_s:g} s are {decorated.took_s:g} s when decorated\n{source}")
    if written.wastes_nothing and "//" not in source and decorated.speculative:
        differences.append(f"no call failed, and {decorated.speculative} was spent in vain\n{source}")
    return differences


def took(seed: int, *, decorated: bool) -> float:
    """Seconds of virtual time that a function takes."""
    decorator = lyra.parallel if decorated else _as_written
    if seed % 3 == 2:
        return _Lives(program_of(seed), seed, decorator).took_s
    return _Run(source_of(seed), seed, decorator).took_s


def _as_written(function: Any) -> Any:
    return function


def _compared(written: Any, other: Any, fields: tuple[str, ...], source: str) -> list[str]:
    return [
        f"{what}: {getattr(written, what)!r} is {getattr(other, what)!r} when decorated\n{source}"
        for what in fields
        if getattr(written, what) != getattr(other, what)
    ]


# ---------------------------------------------------------------- who is asked


class _Model(SimProvider):
    """Answers by its luck with what it is told; knows whom it answered."""

    def __init__(self, seed: int, index: int, world: _World) -> None:
        super().__init__(self._answer)
        self._seed = seed
        self._index = index
        self._world = world

    def price(self, model: str) -> Price | None:  # noqa: ARG002 - all cost the same
        return _PRICE

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self._world.keys.append(request.idempotency_key)
        async for event in super().stream(request):
            yield event

    def _answer(self, request: Request) -> Reply:
        index, world = self._index, self._world
        text = next(message.text for message in reversed(request.messages) if message.role == "user")
        is_first = request.messages[-1].role == "user"
        if index == PROCESSES - 1:
            world.asked.append(text)
        luck = luck_of(f"{self._seed} {index} {text} {len(request.messages)}")
        wait_s = luck.randint(1, 50) / 10
        if luck.randrange(_FAILS_OF) == 0:
            world.troubles += 1
            return Reply(error=ScriptedError(kind="bad_request"), first_s=wait_s)
        if index == PROCESSES - 1 and not world.is_program and is_first and luck.randrange(_TOOLS_OF) == 0:
            world.troubles += 1
            return Reply(tool_calls=(ScriptedCall("add", {"task": text[-3:]}),), first_s=wait_s)
        if index == 1 and is_first and luck.randrange(_TOOLS_OF) == 0:
            world.troubles += 1  # a second question: what it takes is not known beforehand
            return Reply(tool_calls=(ScriptedCall("look", {"what": text[-3:]}),), first_s=wait_s)
        answer = f"{index}<{text[-12:]}>" + world.filler * luck.randrange(14)
        return Reply(text=answer, first_s=wait_s)


@tool(idempotent=True)
async def look(what: str) -> str:
    """Look something up."""
    return f"{what}?"


class _Box:
    """Something of the user's: it counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.said = "box"

    def find(self, what: str) -> str:
        self.asked += 1
        return f"{what}{self.asked}"

    def count(self) -> int:
        self.asked += 1
        return self.asked

    @property
    def turn(self) -> str:
        return self.find("turn")

    def __str__(self) -> str:
        return self.find("box")

    async def send(self, message: str) -> str:
        self.said = message[-9:]
        return self.find("sent")


class _World:
    """What is around a function: its agents, its budgets, and what is seen of it."""

    def __init__(self, seed: int, *, filler: str = " and so on", is_program: bool = False) -> None:
        luck = luck_of(f"world {seed}")
        self.seed = seed
        self.filler = filler
        self.kind = luck.choice(_KINDS)
        self.limits = _limits(luck)
        self.is_program = is_program
        self.breaker = {"threshold": 2, "reset_after": 9999} if not is_program and luck.random() < 0.1 else None
        self.todo = ["one", "two"]
        self.printed: list[str] = []
        self.asked: list[str] = []  # of the agent that is asked in its turn
        self.keys: list[str] = []  # of the requests that models have got
        self.troubles = 0  # calls that fail, or take more than one question
        self.agents = [self._agent(index) for index in range(PROCESSES)]

    def _agent(self, index: int) -> Agent:
        return Agent(
            f"agent{index}",
            model=_Model(self.seed, index, self),
            retry={"max_attempts": 1},
            max_tokens=40,
            memory=True if index == PROCESSES - 1 else None,
            tools=[(), [look], () if self.is_program else [self._adding()]][index],
            circuit_breaker=self.breaker if index == 0 else None,
            budget=self.limits if self.kind == "agents" else None,
        )

    def _adding(self) -> Any:
        async def add(task: str) -> str:
            """Note a task."""
            if len(self.todo) < _TASKS:
                self.todo.append(task)
            return "noted"

        return tool(add)

    def function(self, source: str, **names: Any) -> FunctionType:
        name = f"<random function {self.seed}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        globals_ = {"say": lambda *values: self.printed.append(" ".join(map(str, values)))}
        known: dict[str, Any] = {"__name__": "random_functions", "lyra": lyra, "box": _Box(), **globals_, **names}
        exec(compile(source, name, "exec"), known)  # noqa: S102 - written by our own generator
        function: FunctionType = known["work"]
        return function


def _outcome(error: BaseException) -> Any:
    return type(error).__name__, error.message if isinstance(error, LyraError) else str(error)


def _limits(luck: Any) -> dict[str, Any]:
    return dict(
        luck.choice(
            [
                {"llm_calls": luck.randint(2, 12)},
                {"usd": luck.randint(100, 1500)},
                {"output_tokens": luck.randint(40, 400)},
                {"usd": luck.randint(200, 2000), "llm_calls": luck.randint(4, 15)},
                {"input_tokens": luck.randint(60, 800), "tool_calls": luck.randint(1, 4)},
            ]
        )
    )


# ---------------------------------------------------------------- functions


class _Run:
    """One run of a function, and what came of it."""

    def __init__(self, source: str, seed: int, decorator: Callable[[Any], Any]) -> None:
        self._world = world = _World(seed)
        self.result: Any = None
        self.said: list[list[str]] = []
        self.charged: list[Usage] = []
        self.counted: list[list[Any]] = []
        self.took_s = 0.0
        self.speculative = Usage()
        run_in_virtual_time(self._run(decorator(world.function(source))))
        self.printed, self.asked = world.printed, world.asked
        # Where one budget is around all calls, none is made early that it would refuse.
        self.wastes_nothing = not world.troubles and world.kind in ("none", "scope")

    async def _run(self, function: Any) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        world = self._world
        limits = {"kernel": (None, world.limits), "scope": (world.limits, None)}.get(world.kind, (None, None))
        async with Kernel(clock=loop.clock, budget=limits[1]) as kernel:
            processes = [await kernel.spawn(agent) for agent in world.agents]
            began = loop.time()
            with lyra.budget(limits[0]) as spent:
                try:
                    self.result = await function(*processes, *world.agents, spent, processes, world.todo)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is the same both ways
                    self.result = _outcome(error)
            self.took_s = loop.time() - began
            self.said = [[message.text for message in process.messages] for process in processes]
            self.charged = [spent.usage, kernel.budget.usage, *(process.budget.usage for process in processes)]
            self.counted = [_counted(process.metrics) for process in processes]
            self.speculative = spent.speculative


def _counted(metrics: Metrics) -> list[Any]:
    return [metrics.turns, metrics.calls, metrics.tool_calls, metrics.errors, metrics.totals]


# ---------------------------------------------------------------- durable programs


def _check_program(seed: int) -> list[str]:
    source = program_of(seed)
    written = _Lives(source, seed, _as_written)
    decorated = _Lives(source, seed, lyra.parallel)
    differences = _compared(written, decorated, ("result", "charged", "asked", "printed"), source)
    if decorated.took_s > written.took_s + 0.001:
        differences.append(f"{written.took_s:g} s are {decorated.took_s:g} s when decorated\n{source}")
    luck = luck_of(f"crashes {seed}")
    for _ in range(_CRASHES):
        points = [luck.randint(1, max(2, decorated.commits)), *([luck.randint(1, 6)] if luck.random() < 0.3 else [])]
        crashed = _Lives(source, seed, lyra.parallel, points)
        faults = [*crashed.faults, *_compared_killed(written, crashed, source), *_over_limit(crashed)]
        differences += [f"killed after commits {points}: {difference}" for difference in faults]
    return differences


def _compared_killed(written: _Lives, crashed: _Lives, source: str) -> list[str]:
    """Differences of a killed run. Attempts that were cut off stay charged, so a limit may be reached sooner than in
    peace: of three calls, two of which were cut off, one is left. Then the run ends with BudgetExceeded, and has
    printed the first lines of the undisturbed one. A function that catches errors goes on in another way from there."""
    if crashed.cut_off and crashed.is_limited:
        if "try:" in source:
            return []
        if crashed.has_no_budget_left:
            is_begin = crashed.printed == written.printed[: len(crashed.printed)]
            return [] if is_begin else _compared(written, crashed, ("printed",), source)
    faults = _compared(written, crashed, ("result",), source)
    expected = [usage + crashed.cut_off for usage in written.charged]
    if crashed.charged != expected:
        faults.append(f"charged: {expected} is {crashed.charged} when decorated\n{source}")
    if not crashed.was_over:  # else nothing was run again
        faults += _compared(written, crashed, ("printed",), source)
    return faults


def _over_limit(lives: _Lives) -> list[str]:
    """Limits that all lives together have passed. The requests that the models got are no measure of it: a call that
    was made early and not needed is paid for, and no budget is charged with it."""
    return [
        f"{usage} was charged, of {lives.limits}"
        for usage in lives.charged
        if any(usage[dimension] > most for dimension, most in lives.limits.items())
    ]


class _Dying(MemoryStore):
    """Keeps what is in it after so many commits: all that a kernel killed then leaves behind."""

    __slots__ = ("_life", "commits", "left")

    def __init__(self, life: _Life, before: MemoryStore | None) -> None:
        super().__init__()
        self._life = life
        self.commits = 0
        self.left: MemoryStore | None = None
        if before is not None:
            _copy(before, self)

    def append(self, records: Any, epoch: int) -> None:
        super().append(records, epoch)
        self.commits += 1
        if self.commits == self._life.point:
            self.left = MemoryStore()
            _copy(self, self.left)
            self._life.die()


def _copy(store: MemoryStore, into: MemoryStore) -> None:
    into._rows, into._blobs, into._identity = list(store._rows), dict(store._blobs), store._identity


class _Life:
    """One life of a program's kernel."""

    def __init__(self, world: _World, function: Any, before: MemoryStore | None, point: int | None) -> None:
        self.point = point
        self.keys: list[str] = []  # as they were when it died
        self.result: Any = None
        self.charged: list[Usage] = []
        self.was_over = False
        self.took_s = 0.0
        self.is_dead = False
        self._world = world
        self._end = asyncio.Event()
        self.store = _Dying(self, before)
        run_in_virtual_time(self._live(function))

    def die(self) -> None:
        self.is_dead = True
        self.keys = list(self._world.keys)
        self._end.set()

    async def _live(self, function: Any) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        world = self._world
        limits = {"kernel": (None, world.limits), "scope": (world.limits, None)}.get(world.kind, (None, None))
        programs = [function, *world.agents]
        async with Kernel(self.store, clock=loop.clock, budget=limits[1], programs=programs) as kernel:
            began = loop.time()
            if "work" in kernel.processes:
                process = kernel.process("work")
                self.was_over = not process.alive
            else:
                process = kernel.spawn(function, pid="work", budget=limits[0])
            ending = kernel.tasks.start(self._end.wait(), name="the end")
            waiting = kernel.tasks.start(process.wait(), name="the result")
            await asyncio.wait([ending, waiting], return_when=asyncio.FIRST_COMPLETED)
            if self.is_dead:
                return
            ended = await waiting
            self.took_s = loop.time() - began
            self.result = ended.result if ended.error is None else _outcome(ended.error)
            self.charged = [kernel.budget.usage, process.budget.usage, kernel.processes["work"].spent]


class _Lives:
    """A durable program from its begin to its end, in as many lives as it takes."""

    def __init__(
        self, source: str, seed: int, decorator: Callable[[Any], Any], points: list[int] | None = None
    ) -> None:
        self.faults: list[str] = []
        before: MemoryStore | None = None
        keys: list[str] = []
        for point in [*(points or ()), None]:
            # No prose: from that a kernel learns how a model counts, and one that was killed has forgotten it.
            world = _World(seed, filler="-and-so-on", is_program=True)
            names = {f"a{index}": agent for index, agent in enumerate(world.agents)}
            life = _Life(world, decorator(world.function(source, **names)), before, point)
            if before is not None:
                self.faults += _asked_again(before, keys, world.keys)
            if not life.is_dead:
                break
            keys += life.keys
            before = life.store.left
        self.result, self.charged, self.took_s, self.was_over = life.result, life.charged, life.took_s, life.was_over
        self.printed, self.asked, self.commits = world.printed, world.asked, life.store.commits
        self.limits = world.limits if world.kind in ("scope", "kernel") else {}  # of all calls together
        self.is_limited = world.kind != "none" or "budget=" in source
        self.has_no_budget_left = isinstance(life.result, tuple) and life.result[:1] == ("BudgetExceeded",)
        self.cut_off = _cut_off(life.store)


def _cut_off(store: MemoryStore) -> Usage:
    """What was set aside for the attempts that ends of kernels cut off."""
    total = NOTHING
    for _, _, _, kind, data in store._rows:
        if kind == "effect.finished":
            row = DECODERS[kind].decode(data)
            if row.usage and "crash" in (row.error or ()):
                total += Usage.from_data(row.usage)
    return total


def _asked_again(store: MemoryStore, before: list[str], now: list[str]) -> list[str]:
    """The requests to models that the next life of a kernel should not have made, or under another key."""
    lines: dict[str, str] = {}
    finished: set[str] = set()
    under_way: set[str] = set()
    for _, _, pid, kind, data in store._rows:
        row: Any = DECODERS[kind].decode(data) if kind in DECODERS else None
        if kind == "process.created":
            lines[pid] = f"{lines[row.parent]}.{row.key}" if row.parent and row.key is not None else pid
        elif kind == "effect.started" and row.name.startswith("model:"):
            under_way.add(f":{lines[pid]}:{row.key}:")
        elif kind == "effect.finished" and "crash" in (row.error or ()):
            continue  # cut off, and made again
        elif kind == "effect.finished" and f":{lines[pid]}:{row.key}:" in under_way:
            finished.add(f":{lines[pid]}:{row.key}:")
    # A call that counts against a limit is in the journal before it is made: one that was killed there was never asked.
    under_way = {place for place in under_way if any(place in key for key in before)}
    faults = [f"{key} was asked again" for key in now if any(place in key for place in finished)]
    faults += [
        f"{key} was under way under another key"
        for key in now
        if key not in before and any(place in key for place in under_way)
    ]
    return faults
