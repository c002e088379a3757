"""Where to stop in a Vega program: as in any run, and at a line, or when an expression holds.

    break agent Reviewer     break error     break cost $0.10     break line review.vega:12     break if total > 10

The first three are seen in the timeline alone; for a line and an expression the program is run line by line. An
expression is looked at before every line and before every effect, of which one line may have many.
"""

from __future__ import annotations

import os
from typing import ClassVar, Final

from lyra.errors import ConfigError
from lyra.observe.timeline.step import TravelStep
from lyra.observe.timeline.travel import Breakpoint, Breakpoints, Hit
from lyra.vega.replay.player import Player
from lyra.vega.replay.timeline import END, START

_CHUNK: Final = 64


class ProgramBreakpoints(Breakpoints):
    """The `value` of a breakpoint at a line is its file and number, of one with a condition the expression."""

    forms: ClassVar[dict[str, str]] = {**Breakpoints.forms, "line": "line FILE:LINE", "if": "if EXPR"}

    def __init__(self, player: Player) -> None:
        super().__init__(player)
        self._player = player

    def _read(self, point: Breakpoint) -> None:
        if point.kind == "line":
            self._read_line(point)
        elif point.kind == "if":
            point.value = self._player.expression(point.detail)
            names = self._player.names
            if names is not None:
                point.value.need(names)
        else:
            super()._read(point)

    def _read_line(self, point: Breakpoint) -> None:
        """Check a line: the file has to be long enough, in one of the run's programs; where no source is kept, any line
        is accepted."""
        timeline = self._player.timeline
        file, _, number = point.detail.rpartition(":")
        files = timeline.program.files
        if not number.isdigit():
            raise ConfigError(f"{point.detail!r} is no line", hint="such as: break line review.vega:12")
        named = file or timeline.program.name
        matching = [path for path in files if path == named or os.path.basename(path) == named]
        if not matching:
            raise ConfigError(f"the program has no file {named!r}", hint=f"one of {', '.join(files[:8])}")
        point.value = file, line = matching[0], int(number)
        texts = [sources[file] for _, sources in timeline.versions if file in sources]
        last = max((len(text.rstrip("\n").split("\n")) for text in texts), default=line)
        if not 1 <= line <= last:
            raise ConfigError(f"{file} has no line {line}", hint=f"its lines go from 1 to {last}")
        point.detail = f"{file}:{line}"

    @property
    def _needs_lines(self) -> bool:
        return any(point.kind in ("line", "if") for point in self.all)

    def forward(self) -> Hit | None:
        player = self._player
        first = player.inside is None  # a breakpoint at the present position was reported already
        if first and not self._needs_lines:
            return super().forward()
        while player.inside is not None:
            hit = self._at_line() if player.line() and player.inside is not None else None
            if hit is not None:
                return hit
        while player.position < len(player.timeline):
            if not first and (hit := self.stop_at(player.position)) is not None:
                return hit
            first = False
            if not self._needs_lines:
                return super().forward()
            for _ in player.lines_of_next():
                if (hit := self._at_line()) is not None:
                    return hit
        return self.stop_at(player.position)

    def backward(self) -> Hit | None:
        player = self._player
        if not self._needs_lines:
            return super().backward()
        here = (player.position, float("inf") if player.inside is None else player.inside)
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
            hit = self.stop_at(player.position)
            if hit is not None and (player.position, float("inf")) < here:
                last_hit = hit
            for inside in player.lines_of_next():
                if (player.position, inside) < here and (hit := self._at_line()) is not None:
                    last_hit = hit
        return last_hit

    def _stops(self, point: Breakpoint, step: TravelStep | None, position: int) -> bool:
        if point.kind == "if":
            is_effect = step is not None and step.kind not in (START, END)
            return is_effect and step is not None and self._holds(point, step.pid)
        return super()._stops(point, step, position)

    def _at_line(self) -> Hit | None:
        player = self._player
        assert player.last_step is not None
        pid = player.last_step.pid
        for point in self.all:
            is_there = point.kind == "line" and player.place(pid) == point.value
            if is_there or (point.kind == "if" and self._holds(point, pid)):
                return Hit(point, player.position, player.inside)
        return None

    def _holds(self, point: Breakpoint, pid: str) -> bool:
        """Return whether its expression holds for a process where that stands, before a line or at an effect. One that
        names what is not in view there does not."""
        standing = self._player.standing(pid)
        if standing is None or standing.is_over:
            return False
        try:
            return point.value.value(standing.fiber, before=self._player.is_between(pid)) is True
        except ConfigError:
            return False
