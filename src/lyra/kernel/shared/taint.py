"""Taint: which processes have read text from outside, and so may be following instructions of a third party.

Owns one mark for each process, which is durable and stays as long as the process is known. Agents set the first mark (a
tool that reads a file, a page, a command's output). From there the kernel copies the mark wherever text can go: with a
message to its receiver, with a spawn to the child, with a child's end to the process that waits for it, with a memory
to the process that recalls it. It decides nothing: permission rules call `tainted(pid)` and decide.

A mark is written before the row that passes the text on, so that no crash can separate the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

__all__ = ["LabelState", "Labels"]

_BY_CHARS_MAX: Final = 200  # of the origin of the text


class LabelState:
    """The durable state: pid → the origin of the text that marked it first."""

    NAME: ClassVar[str] = "labels"
    KINDS: ClassVar[frozenset[str]] = frozenset({"process.tainted", "process.unlabelled"})

    __slots__ = ("pids",)

    def __init__(self) -> None:
        self.pids: dict[str, str] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        if kind == "process.tainted":
            self.pids[pid] = str(data["by"])
        else:
            del self.pids[pid]

    def dump(self) -> Any:
        return self.pids

    def load(self, data: Any) -> None:
        self.pids = {str(pid): str(by) for pid, by in data.items()}


class Labels:
    """`kernel.labels`."""

    __slots__ = ("_kernel", "state")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.state = LabelState()

    def tainted(self, pid: str) -> bool:
        return pid in self.state.pids

    def mark(self, pid: str, by: str) -> None:
        """Mark a process that has text from outside; `by` is the origin. A second mark changes nothing."""
        if pid not in self.state.pids:
            self._kernel.fact(self.state, pid, "process.tainted", {"by": by[:_BY_CHARS_MAX]})

    def pass_on(self, giver: str, taker: str, how: str) -> None:
        """Copy the mark when text of the first process reaches the second."""
        if giver in self.state.pids:
            self.mark(taker, f"{how} {giver}")

    def forget(self, pid: str) -> None:
        """Remove the mark of a process that has left the process table."""
        if pid in self.state.pids:
            self._kernel.fact(self.state, pid, "process.unlabelled", {})
