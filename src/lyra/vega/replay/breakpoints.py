"""Where to stop: before an agent is asked, before an error, once so much is spent, at a line, when an expression holds.

    break agent Reviewer     break error     break cost $0.10     break line review.vega:12     break if total > 10

The first three are seen in the timeline alone; for a line and an expression the program is run line by line. An
expression is looked at before every line and before every effect, of which one line may have many.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from lyra.core.budgets.money import Money
from lyra.core.checking.check import did_you_mean
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.vega.replay.player import Player
    from lyra.vega.replay.timeline import TimelineStep
    from lyra.vega.replay.variables import WatchExpression


_KINDS = ("agent", "error", "cost", "line", "if")


class Breakpoint:
    def __init__(self, number: int, kind: str, detail: str) -> None:
        self.number = number
        self.kind = kind
        self.detail = detail
        self.micro_usd = 0
        self.file = ""
        self.line = 0
        self.expression: WatchExpression | None = None

    def __str__(self) -> str:
        return f"{self.number}: {self.kind} {self.detail}".rstrip()


class Hit(NamedTuple):
    breakpoint: Breakpoint
    position: int
    inside: int | None


class Breakpoints:
    def __init__(self, player: Player) -> None:
        self._player = player
        self._numbers = 0
        self.all: list[Breakpoint] = []

    def add(self, text: str) -> Breakpoint:
        """From what stands behind the word `break`."""
        kind, _, detail = text.strip().partition(" ")
        detail = detail.strip()
        if kind not in _KINDS:
            near = did_you_mean(kind, list(_KINDS))
            hint = (
                f"did you mean `break {near}`?" if near else "break agent NAME, error, cost $X, line FILE:LINE, if EXPR"
            )
            raise ConfigError(f"there is no `break {kind}`" if kind else "where to?", hint=hint)
        point = Breakpoint(self._numbers + 1, kind, detail)
        getattr(self, f"_{kind}")(point)
        self._numbers += 1
        self.all.append(point)
        return point

    def delete(self, number: int) -> Breakpoint:
        for point in self.all:
            if point.number == number:
                self.all.remove(point)
                return point
        raise ConfigError(f"there is no breakpoint {number}", hint="`breaks` lists them")

    def _agent(self, point: Breakpoint) -> None:
        timeline = self._player.timeline
        names = sorted({*timeline.agents.values(), *(info.name for info in timeline.program.agents.values())})
        if point.detail not in names:
            near = did_you_mean(point.detail, names)
            hint = f"did you mean {near}?" if near else f"one of {', '.join(names)}" if names else "it has no agents"
            raise ConfigError(f"the program has no agent {point.detail!r}", hint=hint)

    def _error(self, point: Breakpoint) -> None:
        """All of them, or those whose name or text has the detail in it."""

    def _cost(self, point: Breakpoint) -> None:
        if point.detail[:1].isdigit() or point.detail[:1] == ".":
            raise ConfigError(f"{point.detail!r} is no amount of money", hint=f"such as: break cost ${point.detail}")
        try:
            point.micro_usd = int(Money.parse(point.detail))
        except ConfigError as error:
            raise ConfigError(
                f"{point.detail!r} is no amount: {error.message}", hint="such as: break cost $0.10"
            ) from None

    def _line(self, point: Breakpoint) -> None:
        file, _, number = point.detail.rpartition(":")
        files = self._player.timeline.program.files
        if not number.isdigit():
            raise ConfigError(f"{point.detail!r} is no line", hint="such as: break line review.vega:12")
        named = file or self._player.timeline.program.name
        matching = [path for path in files if path == named or os.path.basename(path) == named]
        if not matching:
            raise ConfigError(f"the program has no file {named!r}", hint=f"one of {', '.join(files[:8])}")
        point.file, point.line = matching[0], int(number)
        self._need_line(point)
        point.detail = f"{point.file}:{point.line}"

    def _need_line(self, point: Breakpoint) -> None:
        """The file has to be long enough, in one of the run's programs; where no source is kept, any line is
        accepted."""
        texts = [sources[point.file] for _, sources in self._player.timeline.versions if point.file in sources]
        last = max((len(text.rstrip("\n").split("\n")) for text in texts), default=point.line)
        if not 1 <= point.line <= last:
            raise ConfigError(f"{point.file} has no line {point.line}", hint=f"its lines go from 1 to {last}")

    def _if(self, point: Breakpoint) -> None:
        point.expression = self._player.expression(point.detail)
        names = self._player.names
        if names is not None:
            point.expression.need(names)

    # ------------------------------------------------------------ going

    @property
    def needs_lines(self) -> bool:
        return any(point.kind in ("line", "if") for point in self.all)

    def forward(self) -> Hit | None:
        """Go on to the next place where one of them says stop; to the end of the run where none does."""
        player = self._player
        first = player.inside is None  # a breakpoint at the present position was reported already
        while player.inside is not None:
            hit = self._at_line() if player.line() and player.inside is not None else None
            if hit is not None:
                return hit
        while player.position < len(player.timeline):
            if not first and (hit := self._before_step(player.position)) is not None:
                return hit
            first = False
            if self.needs_lines:
                for _ in player.lines_of_next():
                    if (hit := self._at_line()) is not None:
                        return hit
            else:
                player.goto(self._next_number(player.position + 1))
        return self._before_step(player.position)

    def _next_number(self, first: int) -> int:
        """The next position where a step itself says stop; the end if there is none."""
        length = len(self._player.timeline)
        return next((number for number in range(first, length) if self._before_step(number) is not None), length)

    def backward(self) -> Hit | None:
        """Back to the last place where one of them says stop; to the beginning where none does."""
        player = self._player
        here = (player.position, float("inf") if player.inside is None else player.inside)
        if not self.needs_lines:
            number = next(
                (number for number in range(player.position - 1, -1, -1) if self._before_step(number) is not None), 0
            )
            player.goto(number)
            return self._before_step(number)
        last = player.position
        while last > 0:
            begin = max(0, last - _CHUNK)
            if (hit := self._last_in(begin, last, here)) is not None:
                player.goto(hit.position, hit.inside)
                return hit
            last = begin
        player.goto(0)
        return None

    def _last_in(self, begin: int, end: int, here: tuple[int, float]) -> Hit | None:
        player = self._player
        player.goto(begin)
        last_hit: Hit | None = None
        while player.position < end:
            hit = self._before_step(player.position)
            if hit is not None and (player.position, float("inf")) < here:
                last_hit = hit
            for inside in player.lines_of_next():
                if (player.position, inside) < here and (hit := self._at_line()) is not None:
                    last_hit = hit
        return last_hit

    # ------------------------------------------------------------ whether to stop

    def _before_step(self, position: int) -> Hit | None:
        timeline = self._player.timeline
        step, last = timeline.step(position), timeline.step(position - 1)
        for point in self.all:
            if _stops(point, step) or (
                point.kind == "cost" and last is not None and _crosses(point, self._player, position)
            ):
                return Hit(point, position, None)
            if point.kind == "if" and step is not None and step.is_effect and _holds(point, self._player, step.pid):
                return Hit(point, position, None)
        return None

    def _at_line(self) -> Hit | None:
        player = self._player
        for point in self.all:
            if point.kind == "line" and player.place(_pid(player)) == (point.file, point.line):
                return Hit(point, player.position, player.inside)
            if point.kind == "if" and _holds(point, player, _pid(player)):
                return Hit(point, player.position, player.inside)
        return None


_CHUNK = 64


def _pid(player: Player) -> str:
    last = player.last_step
    assert last is not None
    return last.pid


def _stops(point: Breakpoint, step: TimelineStep | None) -> bool:
    if step is None:
        return False
    if point.kind == "agent":
        return step.agent == point.detail
    return point.kind == "error" and bool(step.error) and point.detail.lower() in step.error.lower()


def _crosses(point: Breakpoint, player: Player, position: int) -> bool:
    before, after = player.timeline.spent(position - 1), player.timeline.spent(position)
    return before.micro_usd < point.micro_usd <= after.micro_usd


def _holds(point: Breakpoint, player: Player, pid: str) -> bool:
    """Whether its expression holds for a process where that stands, before a line or at an effect. One that names what
    is not in view there does not."""
    standing = player.standing(pid)
    if point.expression is None or standing is None or standing.is_over:
        return False
    try:
        return point.expression.value(standing.fiber, before=player.is_between(pid)) is True
    except ConfigError:
        return False
