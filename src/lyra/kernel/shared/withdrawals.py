"""Withdrawals: the questions to agent processes whose sender was told that they failed.

A question lies in a mailbox, in a guard that passes it on, or in a turn that is under way when its sender gives up. The
withdrawal is a fact of its own, so that a later kernel on the store does not carry the question out, whichever of these
places it finds it in. It goes by the id of the question and by the pid that its sender knows, and is forgotten when the
process has passed the question, or has ended. Without a store no withdrawal is kept: the question ends with the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from lyra.kernel.base.subsystem import Subsystem

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.process.process import Process


class WithdrawalState:
    """What survives: pid → the ids of the questions that it must not answer."""

    NAME: ClassVar[str] = "withdrawals"
    KINDS: ClassVar[frozenset[str]] = frozenset({"message.withdrawn", "message.passed"})

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests: dict[str, dict[str, None]] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        if kind == "message.withdrawn":
            self.requests.setdefault(pid, {})[str(data["request"])] = None
            return
        request_id = data["request"]
        if request_id is None:  # the process has ended
            del self.requests[pid]
            return
        del self.requests[pid][request_id]
        if not self.requests[pid]:
            del self.requests[pid]

    def dump(self) -> Any:
        return {pid: list(requests) for pid, requests in self.requests.items()}

    def load(self, data: Any) -> None:
        self.requests = {str(pid): {str(request_id): None for request_id in requests} for pid, requests in data.items()}


class Withdrawals(Subsystem):
    """`kernel.withdrawals`."""

    __slots__ = ("_core", "state")

    def __init__(self, core: Core[Process]) -> None:
        self._core = core
        self.state = WithdrawalState()

    def process_ended(self, process: Process, how: Any) -> None:  # noqa: ARG002 (one signature)
        if process.pid in self.state.requests and not self._core.stopping:
            self._core.fact(self.state, process.pid, "message.passed", {"request": None})

    def withdraw(self, process: Process, request_id: str) -> int:
        """Journal that a question to a process must not be carried out; gives the row's seq, 0 where there is none."""
        journal = self._core.journal
        if journal is None or journal.frozen or process.exit is not None or self.holds(process, request_id):
            return 0
        return self._core.fact(self.state, process.known_as, "message.withdrawn", {"request": request_id})

    def holds(self, process: Process, request_id: str) -> bool:
        """Whether a question to a process was withdrawn."""
        requests = self.state.requests
        return bool(requests) and request_id in requests.get(process.known_as, ())

    def passed(self, process: Process, request_id: str) -> None:
        """The process is past a question, or is asked it again: forget that it was withdrawn."""
        if self.state.requests and self.holds(process, request_id):
            self._core.fact(self.state, process.known_as, "message.passed", {"request": request_id})
