"""Dormant processes: those that came back from the store and whose program this kernel does not know.

`recovery` hands them over. They go on when a caller registers the program, unless they are held back: after a restart a
layer above may want all programs to be there before the first of them takes a step (`hold_back`, `let_go`). A guard
whose process cannot be started counts as one of them; `supervision.handle` keeps those.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from lyra.kernel.programs.registry import dormant_process

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.journal.history import ProcessState
    from lyra.kernel.process.process import Process
    from lyra.kernel.programs.registry import Programs
    from lyra.kernel.supervision.handle import Supervisors


_log: Final = logging.getLogger("lyra.kernel")
_REPLAY_LOOK_S: Final = 0.01  # between two looks whether a replay has registered a program
_REPLAY_LOOKS: Final = 500


class DormantProcesses:
    """See the module."""

    __slots__ = ("_blocked", "_by_program", "_core", "_held", "programs", "resume", "supervisors")

    def __init__(self, core: Core[Process]) -> None:
        self._core = core
        self._by_program: dict[str, list[tuple[Process, ProcessState]]] = {}
        self._held: list[Process] | None = None  # revived processes that wait for `let_go`
        self._blocked: Collection[str] | None = None  # pids that must not resume yet; None blocks all
        # Filled in when they are made: the first two are given callbacks of this object.
        self.programs: Programs
        self.supervisors: Supervisors
        # Recovery: has a process go on whose program is known. None until a store is read.
        self.resume: Callable[[Process, ProcessState], None] | None = None

    def add(self, process: Process, state: ProcessState) -> None:
        """Keep a process until its program is registered."""
        self._by_program.setdefault(process.program, []).append((process, state))
        self._core.publish(process.pid, "process.dormant", {"program": process.program})
        _log.info("process %s waits for its program %s to be registered", process.pid, process.program)

    # ------------------------------------------------------------------ programs that are not known

    def missing_program(self, process: Process) -> str | None:
        """The program that a process cannot go on without and that this kernel does not know; a guard's is that of the
        process it stands for."""
        if self.resume is None or not (self._by_program or self.supervisors.waiting):
            return None
        run = process.stands_for or process
        name = run.program if run.is_dormant else self.supervisors.missing_program(process.pid)
        return name if name is not None and self.programs.get(name) is None else None

    async def until_known(self, process: Process) -> None:
        """Return when the process can go on; ConfigError if it is dormant. While other processes replay, the spawn that
        registers its program may still come, so this waits for them, for a limited time."""
        for _ in range(_REPLAY_LOOKS):
            program = self.missing_program(process)
            if program is None:
                return
            if not self.may_become_known(program):
                break
            await self._core.outside_pause(_REPLAY_LOOK_S)
        else:
            program = self.missing_program(process)
        if program is not None:
            raise dormant_process(process.pid, program)

    def may_become_known(self, program: str) -> bool:
        """Whether a process that replays is about to spawn this program, and so to register it."""
        return self.resume is not None and any(
            entry.kind == "spawn" and entry.name == program
            for process in self._core.processes.present()
            if process.replay is not None and not process.is_dormant
            for entry in process.replay.values()
        )

    def became_known(self, program: str) -> None:
        """A program has a name for the first time: what waited for it goes on."""
        self.supervisors.known(program)
        if self.resume is not None:
            for process, state in self._by_program.pop(program, ()):
                if process.exit is None:
                    self.resume(process, state)

    # ------------------------------------------------------------------ holding them back

    def hold_back(self) -> None:
        """Processes that are revived from now on are ready and wait, until they are let go."""
        self._held, self._blocked = [], None

    def let_go(self, but: Collection[str]) -> None:
        """Resume the held processes except the pids in `but`, which stay held until the next call."""
        held, self._held = self._held or [], [] if but else None
        self._blocked = but
        for process in held:
            self.push(process)

    def push(self, process: Process) -> None:
        """Have a process that came back take its first step, unless it is held back."""
        if self._held is not None and (self._blocked is None or process.pid in self._blocked):
            self._held.append(process)
        elif process.state == "ready":
            self._core.scheduler.push(process)
