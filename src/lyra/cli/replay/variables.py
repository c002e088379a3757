"""The variables of a run's programs, and the arguments of their calls.

A program is run again over the answers of its journal up to the place that is looked at; nothing is performed. A Vega
run keeps its program in the store; a Python program is there where `lyra replay` is given the file that declares it.
Where a program cannot be run again, a note says why, and what the journal tells is shown alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from lyra.cli.render import note
from lyra.errors import LyraError
from lyra.observe.timeline.values import brief

if TYPE_CHECKING:
    from lyra.agents.forks.program_frames import ProgramFrame, ProgramReplay
    from lyra.cli.replay.opened import OpenedRun
    from lyra.cli.replay.program_file import ProgramFile
    from lyra.vega.durable.runs import DurableRun
    from lyra.vega.replay.replayed_run import ReplayedRun


_PROCESSES_MAX: Final = 50  # whose calls are told with their arguments


class RunVariables:
    """Adds to moments and steps of a run what its programs tell. Without programs it adds nothing."""

    def __init__(self, run: OpenedRun, programs: ProgramFile | None) -> None:
        self._timeline = run.timeline
        self._vega = run.vega
        self._replayed: ReplayedRun | None = None
        self._replay: ProgramReplay | None = None
        if programs is not None and run.vega is None:
            from lyra.agents.forks.program_frames import ProgramReplay

            self._replay = ProgramReplay(run.store, run.timeline, programs.register)

    def moment(self, number: int, pid: str | None = None) -> dict[str, Any]:
        """The moment after a step, with the frames of the program that it is about."""
        moment = self._timeline.moment(number, pid)
        frames: list[ProgramFrame] | None = None
        if self._vega is not None:
            frames = self._vega_frames(self._vega, number, moment["pid"])
        elif self._replay is not None:
            frames = self._told(self._replay.frames(number, moment["pid"])) or []
        if frames is not None:
            moment["frames"] = [frame.to_data() for frame in frames]
        return moment

    def _vega_frames(self, run: DurableRun, number: int, pid: str) -> list[ProgramFrame]:
        from lyra.vega.durable.runs import DurableRun
        from lyra.vega.replay.replayed_run import ReplayedRun

        try:
            if self._replayed is None or self._replayed.last_seq != run.space.last_seq():
                self._replayed = ReplayedRun(DurableRun(run.space))
            return self._replayed.frames(self._timeline.last_seq_of(number) if number else 0, pid)
        except LyraError as error:
            note(f"note: the program cannot be run again: {error.message}")
            return []

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
