"""Travel through the steps of a run: a place in it, breakpoints, and two runs side by side.

`Travel` and `Breakpoints` know steps and nothing else, so they serve every stack: processes (`RunTimeline`), Vega
programs (`vega.replay.player`, which adds lines and variables) and Vesper nodes (`vesper.runtime.replaying`, and
`vesper.runtime.debugger`, whose steps are still being run). The prompt over them is `cli.command_lines.TravelPrompt`.

`compare_runs` compares steps by what they are (kind, name, request, result, error, status; whole values, also where
their texts are cut) and not by when they were. Processes are the same that have the same place in the order of their
start, whatever their pids are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from lyra.core.budgets.money import Money
from lyra.core.checking.check import did_you_mean
from lyra.errors import ConfigError
from lyra.observe.timeline.step import RunStep, TravelStep

if TYPE_CHECKING:
    from lyra.observe.timeline.timeline import RunTimeline


class Travel:
    """A place in a run: `position` steps have happened. `shows_next` says whether the step to look at is the one that
    comes next, and not the one that happened last."""

    shows_next: ClassVar[bool] = False
    steps: Sequence[TravelStep]
    position: int

    def __init__(self, steps: Sequence[TravelStep] = ()) -> None:
        self.steps = steps
        self.position = 0

    def step_at(self, position: int) -> TravelStep | None:
        """Return the step to look at from a position; None before the first, or after the last where the next is
        shown."""
        index = position if self.shows_next else position - 1
        return self.steps[index] if 0 <= index < len(self.steps) else None

    def goto(self, position: int) -> None:
        """Go to a position; one outside of the run is its beginning or its end."""
        self.position = max(0, min(position, len(self.steps)))

    def advance(self, count: int) -> None:
        self.goto(self.position + count)

    def find(self, text: str) -> bool:
        """Continue to the next step that has the text in one of its own; False where there is none."""
        wanted = text.lower()
        for position in range(self.position + 1, len(self.steps) + 1):
            step = self.step_at(position)
            if step is not None and any(wanted in word.lower() for word in self.texts(step)):
                self.goto(position)
                return True
        return False

    def texts(self, step: TravelStep) -> Sequence[str]:
        """Return the texts in which `find` looks."""
        return (step.kind, step.what, step.request, step.result, step.error, getattr(step, "name", ""), step.pid)

    def agents_asked(self) -> list[str]:
        """Return the names of the agents that the run has."""
        return sorted({step.agent for step in self.steps if step.agent})


# ---------------------------------------------------------------- breakpoints


class Breakpoint:
    """`value` is what the detail comes to: an amount of money; a line or an expression of a Vega program."""

    def __init__(self, number: int, kind: str, detail: str) -> None:
        self.number, self.kind, self.detail = number, kind, detail
        self.value: Any = None

    def __str__(self) -> str:
        return f"{self.number}: {self.kind} {self.detail}".rstrip()

    def to_data(self) -> dict[str, Any]:
        return {"number": self.number, "kind": self.kind, "detail": self.detail}


class Hit(NamedTuple):
    breakpoint: Breakpoint
    position: int
    inside: int | None = None


class Breakpoints:
    """Where to stop: at a step that asks an agent, at one that failed, and once so much is spent."""

    forms: ClassVar[dict[str, str]] = {"agent": "agent NAME", "error": "error", "cost": "cost $X"}

    def __init__(self, travel: Travel) -> None:
        self._travel = travel
        self._numbers = 0
        self._spent: list[int] = []
        self.all: list[Breakpoint] = []

    def add(self, text: str) -> Breakpoint:
        """Set the breakpoint that the words behind `break` ask for."""
        kind, _, detail = text.strip().partition(" ")
        if kind not in self.forms:
            near = did_you_mean(kind, list(self.forms))
            hint = f"did you mean `break {near}`?" if near else f"break {', '.join(self.forms.values())}"
            raise ConfigError(f"there is no `break {kind}`" if kind else "where to?", hint=hint)
        point = Breakpoint(self._numbers + 1, kind, detail.strip())
        self._read(point)
        self._numbers += 1
        self.all.append(point)
        return point

    def delete(self, number: int) -> Breakpoint:
        for point in self.all:
            if point.number == number:
                self.all.remove(point)
                return point
        raise ConfigError(f"there is no breakpoint {number}", hint="`breaks` lists them")

    def _read(self, point: Breakpoint) -> None:
        """Check the detail of a breakpoint; an error needs none, and stops where its text has the detail in it."""
        detail = point.detail
        if point.kind == "agent" and detail not in (names := self._travel.agents_asked()):
            near = did_you_mean(detail, names)
            hint = f"did you mean {near}?" if near else f"one of {', '.join(names)}" if names else "it has no agents"
            raise ConfigError(f"the run has no agent {detail!r}", hint=hint)
        if point.kind == "cost":
            if detail[:1].isdigit() or detail[:1] == ".":
                raise ConfigError(f"{detail!r} is no amount of money", hint=f"such as: break cost ${detail}")
            try:
                point.value = int(Money.parse(detail))
            except ConfigError as error:
                raise ConfigError(
                    f"{detail!r} is no amount: {error.message}", hint="such as: break cost $0.10"
                ) from None

    def forward(self) -> Hit | None:
        """Continue to the next place where one of them says stop; to the end of the run where none does."""
        return self._go(range(self._travel.position + 1, len(self._travel.steps)), len(self._travel.steps))

    def backward(self) -> Hit | None:
        """Go back to the last place where one of them says stop; to the beginning where none does."""
        return self._go(range(self._travel.position - 1, -1, -1), 0)

    def _go(self, positions: Iterable[int], otherwise: int) -> Hit | None:
        self._spent = []  # a run that is under way may have spent more by now
        position = next((position for position in positions if self.stop_at(position) is not None), otherwise)
        self._travel.goto(position)
        return self.stop_at(position)

    def stop_at(self, position: int) -> Hit | None:
        """Return the first breakpoint that says stop at a position."""
        step = self._travel.step_at(position)
        point = next((point for point in self.all if self._stops(point, step, position)), None)
        return None if point is None else Hit(point, position)

    def _stops(self, point: Breakpoint, step: TravelStep | None, position: int) -> bool:
        if point.kind == "cost":
            return position > 0 and self._sum_paid(position - 1) < point.value <= self._sum_paid(position)
        if step is None:
            return False
        if point.kind == "agent":
            return step.agent == point.detail
        return point.kind == "error" and bool(step.error) and point.detail.lower() in step.error.lower()

    def _sum_paid(self, position: int) -> int:
        """Return what the steps before a position cost, in micro-dollars."""
        steps = self._travel.steps
        if not self._spent:
            costs = (0 if step.is_recorded else step.micro_usd for step in steps)
            self._spent = list(accumulate(costs, initial=0))
        return self._spent[position]


# ---------------------------------------------------------------- two runs

_TOLD_MAX: Final = 2_000  # steps in one answer
_TOLD_BEFORE: Final = 50  # of those that are the same
_NUMBERED: Final = re.compile(r"p[0-9]+x*\Z").match  # pids that a kernel gave


class StepPair(NamedTuple):
    """The steps of both runs under one number; None where a run has none."""

    number: int
    left: RunStep | None
    right: RunStep | None


class RunDifference(NamedTuple):
    """`first` is the number of the first step that differs; None where the runs are alike."""

    first: int | None
    left: RunTimeline
    right: RunTimeline

    @property
    def length(self) -> int:
        return max(len(self.left.steps), len(self.right.steps))

    def pairs(self, begin: int, end: int) -> list[StepPair]:
        """Return the steps with the numbers from `begin` to `end`, of both."""
        begin = max(1, begin)
        count = max(0, end - begin + 1)
        sides = zip_longest(self.left.page(begin - 1, count), self.right.page(begin - 1, count))
        return [StepPair(number, old, new) for number, (old, new) in enumerate(sides, start=begin)]

    def begin(self, before: int) -> int:
        """Return the number to show from on: so many steps before the first difference."""
        return 1 if self.first is None else max(1, self.first - before)

    def to_data(self) -> dict[str, Any]:
        """Of long runs the steps around the first difference."""
        begin = 1 if self.length <= _TOLD_MAX else self.begin(_TOLD_BEFORE)
        return {
            "is_same": self.first is None,
            "first_difference": self.first,
            "left": self.left.summary(),
            "right": self.right.summary(),
            "steps": [
                {
                    "number": pair.number,
                    "is_same": self.first is None or pair.number < self.first,
                    "left": None if pair.left is None else pair.left.to_data(),
                    "right": None if pair.right is None else pair.right.to_data(),
                }
                for pair in self.pairs(begin, begin + _TOLD_MAX - 1)
            ],
        }


def compare_runs(left: RunTimeline, right: RunTimeline) -> RunDifference:
    """Return the steps of both by number. After the first difference they stand beside each other by number alone."""
    pids_left, pids_right = _PidPlaces(left), _PidPlaces(right)
    pairs = enumerate(zip_longest(left.steps, right.steps), start=1)
    first = next((number for number, (old, new) in pairs if not _is_same(old, new, pids_left, pids_right)), None)
    return RunDifference(first, left, right)


class _PidPlaces:
    """What represents the pids of a run: their place in the order of their start."""

    def __init__(self, timeline: RunTimeline) -> None:
        self._places = {pid: f"<{index}>" for index, pid in enumerate(timeline.pids)}
        self._all = _words(self._places)
        self._given = _words(pid for pid in self._places if _NUMBERED(pid))

    def translate(self, pid: str) -> str:
        return self._places.get(pid, pid)

    def in_sentence(self, text: str) -> str:
        """Return a sentence of the kernel's, which may name any process."""
        return self._all.sub(lambda match: self._places[match[0]], text)

    def in_value(self, text: str) -> str:
        """Return a value of the program's: a pid that a person chose may be any word there."""
        return self._given.sub(lambda match: self._places[match[0]], text)


def _words(pids: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(pids, key=len, reverse=True)
    return re.compile("|".join(rf"(?<!\w){re.escape(pid)}(?!\w)" for pid in longest_first) or r"(?!)")


def _is_same(old: RunStep | None, new: RunStep | None, left: _PidPlaces, right: _PidPlaces) -> bool:
    if old is None or new is None or left.translate(old.pid) != right.translate(new.pid):
        return False
    if (old.kind, old.status, old.digest) != (new.kind, new.status, new.digest):
        return False
    # The beginning of a fork says that it is one, and a pause how long it was still to last.
    what, other_what = (old.name, new.name) if old.kind in ("began", "sleep") else (old.what, new.what)
    if what != other_what and left.in_sentence(what) != right.in_sentence(other_what):
        return False
    values = zip((old.request, old.result, old.error), (new.request, new.result, new.error), strict=True)
    return all(
        text == other or left.in_value(text) == right.in_value(other) or ("…" in text and "…" in other)
        for text, other in values  # of texts that are cut the digests tell
    )
