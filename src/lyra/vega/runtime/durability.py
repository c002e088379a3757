"""What a durable run gives to its World: the record, the saver of processes, and the barrier of a run that resumes.

A run without a journal has none of these. `lyra.vega.durable` has the implementations, and a replay has records that
write nothing; the runtime knows only these protocols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lyra.core.budgets.budget import Usage
    from lyra.kernel.process.process import Process
    from lyra.vega.runtime.job import VegaJob


class RunRecord(Protocol):
    """What a run keeps of itself beside the journal of its processes."""

    def print(self, pid: str, number: int, text: str) -> None:
        """The line with this number, among those that the process prints."""

    def name(self, name: str, pid: str) -> None:
        """A process was registered under a name."""

    def paid(self, session: str) -> dict[str, int]:
        """What conversations have spent in a session so far."""

    def pay(self, sessions: list[str], usage: Usage) -> None:
        """A conversation spends in these sessions."""

    def leave(self, session: str) -> None:
        """The program has left a session."""


class ProcessSaver(Protocol):
    """Writes the state of one process now and then, so that a replay begins there."""

    def is_due(self) -> bool:
        """Whether the process is to be saved before its next step."""

    async def save(self) -> None:
        """Save the process."""


class ResumeBarrier(Protocol):
    """Holds the processes of a run that resumes until all of them have replayed their journals."""

    async def hold(self, job: VegaJob, kind: str) -> None:
        """Before an effect: one that is not in the journal waits."""

    async def wait(self, process: Process) -> None:
        """Wait until all processes have replayed."""

    async def called(self, process: Process) -> None:
        """Before the first step of a function that was called early: wait until its caller has come to the call."""

    def call(self, pid: str) -> None:
        """A caller has come to the call of a function."""
