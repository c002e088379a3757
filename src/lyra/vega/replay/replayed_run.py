"""ReplayedRun: what the program of a durable run tells about the steps of its journal.

    replayed = ReplayedRun(run)
    replayed.frames(step.last_seq, "main")     # where the program stood after a row, with its variables
    replayed.change(step, "No.")               # what a fork changes there

`lyra.observe.timeline` reads any journal step by step; here the rows of a Vega run meet its effects, lines and
variables. Reads only. Going through a long run takes as long as its program computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lyra.agents.forks.program_frames import ProgramFrame
from lyra.errors import ConfigError
from lyra.vega.replay.fork import ForkChange, change_at, change_of_row
from lyra.vega.replay.player import Player
from lyra.vega.replay.reader import read
from lyra.vega.replay.timeline import TimelineStep, brief

if TYPE_CHECKING:
    from lyra.observe.timeline.step import RunStep
    from lyra.vega.durable.runs import DurableRun


CHANGEABLE: Final = ("model", "tool", "effect")  # kinds of steps that a fork can change
_VALUE_CHARS: Final = 2_000
_GLOBALS: Final = "globals"


class ReplayedRun:
    """`run` as its store had it when this was made; `last_seq` is the last row of it."""

    def __init__(self, run: DurableRun) -> None:
        self.run = run
        self.last_seq = run.space.last_seq()
        self.timeline = read(run)
        self._player = Player(self.timeline)

    def position(self, seq: int) -> int:
        """Count the effects of the program that had happened after a row."""
        steps = self.timeline.steps
        return next((step.number for step in steps if step.seq > seq), len(steps))

    def frames(self, seq: int, pid: str) -> list[ProgramFrame]:
        """Return the calls that a process was in after a row, the innermost last, and the globals before them. Of an
        agent, those of the process whose turn it was."""
        player = self._player
        player.goto(self.position(seq))
        chosen = pid if pid in player.pids else player.in_view
        standing = player.standing(chosen)
        if standing is None or standing.is_over:
            return []
        fiber = standing.fiber
        variables = player.variables_of(fiber.linked)
        calls = variables.calls(fiber)
        frames = [ProgramFrame(name, file, line, self._render(values)) for name, file, line, values in reversed(calls)]
        shared = {
            name: value
            for name, value in variables.globals(fiber).items()
            if not any(name in values for _, _, _, values in calls)
        }
        if shared:
            frames.insert(0, ProgramFrame(_GLOBALS, self.timeline.program.name, 0, self._render(shared)))
        return frames

    def _render(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: brief(value, _VALUE_CHARS, self.timeline.program) for name, value in values.items()}

    def output(self, seq: int, limit: int) -> list[str]:
        """Return the last lines that were printed before a row."""
        return self.timeline.output(self.position(seq), limit)

    def effect(self, step: RunStep) -> TimelineStep | None:
        """Return the effect of the program that a step of the journal answers; None where it is inside of one."""
        if step.kind == "model":
            replies, asked = self.timeline.replies, (effect for effect in self.timeline.steps if effect.agent)
            return next((effect for effect in asked if replies.row_of(effect) == step.end_seq), None)
        return next(
            (
                effect
                for effect in self.timeline.steps
                if effect.pid == step.pid and step.key in [str(key) for key in effect.keys]
            ),
            None,
        )

    def change(self, step: RunStep, text: str, *, is_error: bool = False) -> tuple[int, ForkChange]:
        """Return the number of the effect at which a fork begins, and what it changes there: the reply of a model or
        the result of a tool or an effect at a step."""
        if step.kind not in CHANGEABLE or not step.end_seq:
            raise ConfigError(
                f"step {step.number} ({step.kind}: {step.what}) has no reply that could be changed",
                hint="choose a step of the kind model, tool or effect that is over",
            )
        effect = self.effect(step)
        if effect is not None:
            return effect.number, change_at(self.run, self.timeline, effect.number, text, is_error=is_error)
        return self.position(step.end_seq), change_of_row(self.run, step.end_seq, text, is_error=is_error)
