"""A subsystem's state, and how it survives: every change is a row, and the state is the fold of its rows.

A subsystem (lifecycle, services, pipelines, …) keeps its facts in a `State`: plain data and one method, `apply`, that
takes a row and changes it. Live, `Kernel.fact` writes the row and applies it; after a restart the same rows are applied
again; a snapshot is the state written down. So whatever a subsystem knows is either in its state or can be worked out
again from it. Handlers, tasks and timers belong to the subsystem, not to its state.

A `State` never reads a clock, draws a number or looks at the kernel: all it may use is in the row.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from lyra.core import codec
from lyra.errors import Corrupt, LyraError
from lyra.store.protocol import Record

__all__ = ["State", "apply", "dump", "load"]


class State(Protocol):
    """What a subsystem remembers."""

    NAME: ClassVar[str]  # its key in a snapshot, after a ~
    KINDS: ClassVar[frozenset[str]]  # the kinds of rows it is made of

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        """Take one row; one that makes no sense here raises (any exception: it becomes `Corrupt`)."""
        ...

    def dump(self) -> Any:
        """The whole state as plain data."""
        ...

    def load(self, data: Any) -> None:
        """The opposite, on a fresh state."""
        ...


def apply(state: State, record: Record) -> None:
    seq, time, pid, kind, raw = record
    try:
        state.apply(kind, pid, time, codec.decode(raw))
    except Corrupt:
        raise
    except (LyraError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        raise Corrupt(f"row {seq} ({kind}) makes no sense: {error}", seq=seq) from error


def dump(state: State) -> bytes:
    return codec.encode(state.dump())


def load(state: State, data: bytes) -> None:
    try:
        state.load(codec.decode(data))
    except Corrupt:
        raise
    except (LyraError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        raise Corrupt(f"the snapshot of {state.NAME} makes no sense: {error}") from error
