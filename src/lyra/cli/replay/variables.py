"""The variables and the arguments of a run's Python programs, where `lyra replay` is given the file that declares them.

A program is run again over the answers of its journal up to the place that is looked at; nothing is performed. Where
that cannot be done, a note says why, and what the journal tells is shown alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from lyra.cli.render import note
from lyra.errors import LyraError
from lyra.observe.timeline.values import brief

if TYPE_CHECKING:
    from lyra.cli.replay.program_file import ProgramFile
    from lyra.observe.timeline.timeline import RunTimeline
    from lyra.store.protocol import Store

__all__ = ["RunVariables"]

_PROCESSES_MAX: Final = 50  # whose calls are told with their arguments


class RunVariables:
    """Adds to moments and steps of a run what its programs tell. Without programs it adds nothing."""

    def __init__(self, store: Store, timeline: RunTimeline, programs: ProgramFile | None) -> None:
        self._timeline = timeline
        self._replay: Any = None
        if programs is not None:
            from lyra.agents.forks.program_frames import ProgramReplay

            self._replay = ProgramReplay(store, timeline, programs.register)

    def moment(self, number: int, pid: str | None = None) -> dict[str, Any]:
        """The moment after a step, with the frames of the program that it is about."""
        moment = self._timeline.moment(number, pid)
        if self._replay is not None:
            frames = self._told(self._replay.frames(number, moment["pid"]))
            moment["frames"] = [frame.to_data() for frame in frames or ()]
        return moment

    def add_arguments(self) -> None:
        """Give the effects of the run's programs their arguments."""
        if self._replay is None:
            return
        for pid in self._timeline.pids[:_PROCESSES_MAX]:
            steps = [step for step in self._timeline.steps if step.kind == "effect" and step.pid == pid]
            arguments = self._told(self._replay.arguments(pid)) if steps else None
            for step in steps:
                if arguments is None:
                    return
                if step.key in arguments:
                    step.request = brief(arguments[step.key])

    def _told(self, looking: Any) -> Any:
        try:
            return asyncio.run(looking)
        except LyraError as error:
            note(f"note: the programs cannot be run again: {error.message}")
            return None
