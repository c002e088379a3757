"""What a durable run keeps beside its processes: the program, the options, and every line it printed, in order.

`RunState` is the fold of the run's own rows; it is in every snapshot, so a run needs none of its old rows to print its
whole output again. `Record` writes those rows. A printed line is a row like any other: it is in the next commit, and is
shown once it is in the store. Lines that have been there for a while are put together into blobs. How many lines a
process has printed is how its replay knows which of them were printed before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core import codec

if TYPE_CHECKING:
    from lyra.core.event import Event
    from lyra.kernel.kernel import Kernel

__all__ = ["MAIN", "Record", "RunState"]

MAIN: Final = "main"  # the pid of a run's main process
_PACK_BYTES: Final = 64 << 10


class RunState:
    """The run as its rows tell it."""

    NAME: ClassVar[str] = "vega"
    KINDS: ClassVar[frozenset[str]] = frozenset({"run.began", "run.printed", "run.packed"})

    def __init__(self) -> None:
        self.began: dict[str, Any] | None = None
        self.began_at = 0.0
        self.printed: dict[str, int] = {}  # lines, by process
        self.packed: list[tuple[str, int]] = []  # blobs of older lines, and how many are in each
        self.lines: list[str] = []
        self.bytes = 0

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        if kind == "run.printed":
            text = str(data["text"])
            self.printed[pid] = self.printed.get(pid, 0) + 1
            self.lines.append(text)
            self.bytes += len(text) + 8
        elif kind == "run.packed":
            count = int(data["lines"])
            if not 0 < count <= len(self.lines):
                raise ValueError("more lines are packed than were printed")
            self.packed.append((str(data["blob"]), count))
            del self.lines[:count]
            self.bytes = sum(len(line) + 8 for line in self.lines)
        else:
            if self.began is not None:
                raise ValueError("the run begins a second time")
            self.began, self.began_at = dict(data), time

    def dump(self) -> Any:
        return [self.began, self.began_at, self.printed, self.packed, self.lines]

    def load(self, data: Any) -> None:
        self.began, self.began_at, self.printed, packed, self.lines = data
        self.packed = [(str(blob), int(count)) for blob, count in packed]
        self.bytes = sum(len(line) + 8 for line in self.lines)

    def output(self, get_blob: Callable[[str], bytes]) -> list[str]:
        """Every line printed so far."""
        older = [line for blob, _ in self.packed for line in codec.decode(get_blob(blob))]
        return [*older, *self.lines]


class Record:
    """Writes the rows of one run on the kernel that runs it."""

    __slots__ = ("_before", "_kernel", "_state")

    def __init__(self, kernel: Kernel, show: Callable[[str], object]) -> None:
        """`show` gets each line once it is durable; lines of earlier lives are not shown again."""
        self._kernel = kernel
        self._state = RunState()
        self._before: dict[str, int] = {}
        kernel.states[RunState.NAME] = self._state

        def printed(event: Event) -> None:
            show(str(event.data["text"]))

        kernel.on_event(printed, {"run.printed"})

    def begin(self, facts: dict[str, Any]) -> None:
        self._kernel.fact(self._state, "", "run.began", facts)

    def came_back(self) -> None:
        """The kernel has read what earlier lives left."""
        self._before = dict(self._state.printed)

    def print(self, pid: str, number: int, text: str) -> None:
        """The line `number` of a process; one that an earlier life has printed is not printed again."""
        if number < self._before.get(pid, 0):
            return
        kernel, state = self._kernel, self._state
        kernel.fact(state, pid, "run.printed", {"text": text})
        if state.bytes > _PACK_BYTES:
            assert kernel.journal is not None
            blob = kernel.call_now(kernel.journal.store.put_blob, codec.encode(state.lines))
            kernel.fact(state, "", "run.packed", {"blob": blob, "lines": len(state.lines)})
