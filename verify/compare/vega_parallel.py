"""Random programs, run line by line and with calls ahead of their turn, in virtual time: nothing may differ.

`compare(seed)` runs one program of `vega_programs` both ways against a model whose answers, failures and pauses depend
on the question alone, and gives what differs: what was printed, how the run ended, what agents with a memory were asked
in which order, what was spent, which agents were spawned. Beside that it checks what overlap may not do: ask more than
the line-by-line run where nothing failed, leave a call under way at a print or at the end, pass an agent's concurrency,
or deliver out of order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from lyra.errors import LyraError, VegaError
from lyra.kernel.kernel import Kernel
from lyra.models.client import LLMClient
from lyra.models.pricing import Price
from lyra.models.provider import Request
from lyra.models.script import Reply, Script
from lyra.models.sim import SimProvider
from lyra.models.stream import StreamEvent
from lyra.testing.clock import SimClock
from lyra.testing.loop import run as run_in_virtual_time
from lyra.vega import compile as compile_source
from lyra.vega.runtime.driver import PROGRAMS
from lyra.vega.runtime.run import run_world
from lyra.vega.runtime.world import RunOptions, World
from verify.compare.vega_programs import program

__all__ = ["Compared", "Outcome", "compare", "compare_many", "play"]

_PRICE: Final = Script.from_data(
    {"price": {"input_usd_per_mtok": 100, "output_usd_per_mtok": 100}, "replies": [{"text": ""}]}
).price
_ORDERED: Final = ("M", "W")
_ONE_IN: Final = (11, 0, 0, 31)  # how often a question fails, program after program
_CONCURRENCY: Final = {"B": 2, "D": 2, "A": 66}  # of A 64 early ones, and what the program itself asks meanwhile


class Model(SimProvider):
    """Answers, fails and takes its time as the question alone decides; keeps count of what goes on."""

    def __init__(self, one_in: int) -> None:
        super().__init__(script=self._reply)
        self._one_in = one_in  # so many questions fail; 0: none, and none takes long
        self.asked: list[tuple[str, tuple[str, ...]]] = []  # agent and messages, as they came
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def price(self, model: str) -> Price | None:  # noqa: ARG002 - one price for all
        return _PRICE

    def _reply(self, request: Request) -> Any:
        texts = tuple(message.text for message in request.messages)
        last = request.messages[-1]
        number = _hash(request.system, texts[-1] or str(last.tool_results))
        facts: dict[str, Any] = {"text": f"r{number % 40}", "first_s": 0.1 + number % (19 if self._one_in else 8) / 10}
        if request.system == "E":
            facts["text"] = f'["e{number % 40}", "e"]'
        if last.role == "tool":
            facts["text"] = f"k{number % 40}"
        elif self._one_in and number % self._one_in == 0:
            facts["error"] = {"kind": "bad_request", "message": f"no {texts[-1]}"}
        elif self._one_in and number % self._one_in == 1 and request.system == "A":  # which tries again
            facts["error"] = {"kind": "overloaded", "attempts": 1}
        elif request.tools and number % 2:
            facts["tool_calls"] = [{"name": request.tools[0].name, "arguments": {"x": str(number % 7)}}]
        return Reply.from_data(facts)

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        agent = request.system
        self.asked.append((agent, tuple(message.text for message in request.messages)))
        self.under_way[agent] += 1
        self.most[agent] = max(self.most[agent], self.under_way[agent])
        try:
            async for event in super().stream(request):
                yield event
        finally:
            self.under_way[agent] -= 1


def _hash(*parts: str) -> int:
    return int.from_bytes(blake2b("\n".join(parts).encode(), digest_size=8).digest(), "big")


class Outcome(NamedTuple):
    lines: list[str]
    end: str
    ordered: list[tuple[str, tuple[str, ...]]]
    spent: int
    spawned: list[str]  # the agents that have or had a process, in the order in which they were spawned
    asked: list[tuple[str, tuple[str, ...]]]
    took_s: float
    speculative: int
    late: list[str]  # prints while a call was under way
    most: Counter[str]
    left: int  # calls still under way at the end


def play(source: str, *, sequential: bool, budget: Any = None, one_in: int = 11) -> Outcome:
    """One run of a program in virtual time."""
    clock = SimClock()
    model = Model(one_in)
    lines: list[str] = []
    late: list[str] = []

    def write(line: str) -> None:
        lines.append(line)
        if sum(model.under_way.values()) and not line.startswith("note "):
            late.append(line)

    spawned: list[str] = []

    async def main() -> tuple[str, int, int, float, int]:
        async with Kernel(clock=clock) as kernel:
            client = LLMClient()
            client.register("sim", model)
            kernel.parts["models"] = client
            options = RunOptions(write=write, warn=lambda _: None, sequential=sequential, budget=budget)
            world = World(kernel, compile_source(source, "random.vega"), options, programs=PROGRAMS)
            world.tracks_processes = True
            began_s = clock.monotonic()
            try:
                end = repr(await run_world(world))
            except VegaError as error:
                end = error.render()
            except LyraError as error:
                end = f"{type(error).__name__}: {error}"
            left = sum(model.under_way.values())
            spawned.extend(slot.plan.name for slot in world.agent_slots.values())
            took_s = clock.monotonic() - began_s
            return end, int(world.budget.usage.usd), int(world.speculative.usd), took_s, left

    end, spent, speculative, took_s, left = run_in_virtual_time(main(), clock=clock)
    ordered = [asked for asked in model.asked if asked[0] in _ORDERED]
    return Outcome(lines, end, ordered, spent, spawned, model.asked, took_s, speculative, late, model.most, left)


class Compared(NamedTuple):
    seed: int
    problems: list[str]
    sequential_s: float  # in virtual time
    parallel_s: float


def compare_many(seeds: Iterable[int], *, jobs: int = 1) -> Iterator[Compared]:
    """The comparisons of many programs, in the order of their seeds."""
    if jobs <= 1:
        yield from map(compare, seeds)
        return
    from multiprocessing import get_context

    with get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(compare, seeds, chunksize=4)


def compare(seed: int, source: str | None = None) -> Compared:
    """What differs between the two ways to run the program of a seed."""
    source = program(seed) if source is None else source
    limit = "0.05" if seed % 9 == 4 else None
    one_in = _ONE_IN[seed % len(_ONE_IN)]
    sequential = play(source, sequential=True, budget=limit, one_in=one_in)
    overlapped = play(source, sequential=False, budget=limit, one_in=one_in)
    problems = [
        f"{what}: {was!r} line by line, {now!r} with overlap"
        for what, was, now in (
            ("printed", sequential.lines, overlapped.lines),
            ("end", sequential.end, overlapped.end),
            ("ordered agents were asked", sequential.ordered, overlapped.ordered),
            ("spent", sequential.spent, overlapped.spent),
            ("spawned", sequential.spawned, overlapped.spawned),
        )
        if was != now
    ]
    problems.extend(_forbidden(sequential, overlapped, source))
    return Compared(seed, problems, sequential.took_s, overlapped.took_s)


def _forbidden(sequential: Outcome, overlapped: Outcome, source: str) -> list[str]:
    faults: list[str] = []
    first, second = Counter(sequential.asked), Counter(overlapped.asked)
    if first - second:
        faults.append(f"not asked with overlap: {first - second}")
    if not _failed(sequential):
        if second - first:
            faults.append(f"asked though nothing failed: {second - first}")
        if overlapped.speculative:
            faults.append(f"spent {overlapped.speculative} for nothing though nothing failed")
        if "\nfn f" not in source and "parallel {" not in source:
            faults.extend(_out_of_order(sequential, overlapped))
    if "parallel {" not in source:
        faults.extend(
            f"a call was under way at the print of {line!r}" for line in overlapped.late if line not in sequential.late
        )
    faults.extend(
        f"{overlapped.most[agent]} calls of {agent} at one time"
        for agent, most in _CONCURRENCY.items()
        if overlapped.most[agent] > most
    )
    if overlapped.left > sequential.left:
        faults.append(f"{overlapped.left} calls were under way at the end")
    return faults


def _failed(outcome: Outcome) -> bool:
    """Whether anything but a budget stopped a statement: what was asked early behind it was in vain."""
    caught = [line for line in outcome.lines if line.startswith("caught ")]
    if outcome.end.startswith("error["):
        caught.append(outcome.end)
    return any("was asked for" not in line for line in caught)


def _out_of_order(sequential: Outcome, overlapped: Outcome) -> list[str]:
    """Each agent is asked in the order of the program; tries and tools come between as they will."""
    faults = []
    for agent in ("A", "B", "S"):
        was = list(dict.fromkeys(texts for name, texts in sequential.asked if name == agent))
        now = list(dict.fromkeys(texts for name, texts in overlapped.asked if name == agent))
        if was != now:
            faults.append(f"{agent} was asked {now} in place of {was}")
    return faults
