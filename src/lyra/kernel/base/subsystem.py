"""A subsystem of the kernel: the moments it is told of, and how what it knows survives a restart.

A subsystem (interrupts, worker entries, services, pipelines, …) is one object in the list of `assembly`. The kernel
tells it of the moments below: it overrides those that concern it. To add one, add a folder and a row in that list.

A subsystem keeps its facts in a `State`: plain data and one method, `apply`, that takes a row and changes it. Live,
`Core.fact` writes the row and applies it; after a restart the same rows are applied again; a snapshot is the state
written down. So what a subsystem knows is either in its state or can be worked out again from it. Handlers, tasks and
timers belong to the subsystem, not to its state. A `State` never reads a clock, draws a number or looks at the kernel:
all it may use is in the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol

from lyra.core import codec
from lyra.errors import Corrupt, LyraError
from lyra.store.protocol import Record


class State(Protocol):
    """What a subsystem remembers."""

    NAME: ClassVar[str]  # its key in a snapshot, after a ~
    KINDS: ClassVar[frozenset[str]]  # the kinds of rows it is made of

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        """Take one row; one that makes no sense here raises (any exception: it becomes `Corrupt`)."""
        ...

    def dump(self) -> Any:
        """Return the whole state as plain data."""
        ...

    def load(self, data: Any) -> None:
        """Load what `dump` gave, into a fresh state."""
        ...


class Subsystem:
    """A part of the kernel that is told of these moments. Each does nothing unless a subsystem overrides it."""

    __slots__ = ()

    NAME: ClassVar[str] = ""  # by which programs of the kernel's own find it; empty where none does

    def states(self) -> tuple[State, ...]:
        """Return what it remembers across restarts: its attribute `state`, unless it says otherwise. Asked for once."""
        state = getattr(self, "state", None)
        return () if state is None else (state,)

    def on_restored(self) -> None:
        """Act on a journal that has been read and all states are as the last kernel left them; no program has run
        yet."""

    def process_started(self, parent: Any, process: Any) -> None:
        """Note that a process (with a parent) begins; the row that says so is written right after this."""

    def process_ending(self, process: Any) -> None:
        """Note that a process is about to end: it still counts as alive."""

    def process_ended(self, process: Any, how: Any) -> None:
        """Note that a process has ended; `how` is its Exit."""

    def process_diverged(self, process: Any) -> None:
        """Note that a process stopped because its program no longer fits its journal. It has no end in the journal."""

    def replay_dropped(self, process: Any) -> None:
        """Note that a process was told to end while it replayed: it asks for none of its journaled answers any more."""

    def forgotten(self, process: Any) -> None:
        """Note that an ended process leaves the table."""

    def has_name(self, word: str) -> bool:  # noqa: ARG002 (one signature)
        """Return whether a pid or name belongs to something of this subsystem, so that no process may take it."""
        return False

    def stop(self) -> None:
        """Stop as the kernel closes: cancel timers, end readers, start nothing new."""


class Subsystems:
    """The subsystems of one kernel, in the order in which they are told of each moment.

    A moment that no subsystem overrides costs nothing: each is a list of the methods that do override it.
    """

    __slots__ = (
        "_states",
        "all",
        "forgotten",
        "has_name",
        "on_restored",
        "process_diverged",
        "process_ended",
        "process_ending",
        "process_started",
        "replay_dropped",
        "stop",
    )

    def __init__(self, states: dict[str, State]) -> None:
        self._states = states
        self.all: list[Subsystem] = []
        self.on_restored: list[Callable[[], None]] = []
        self.process_started: list[Callable[[Any, Any], None]] = []
        self.process_ending: list[Callable[[Any], None]] = []
        self.process_ended: list[Callable[[Any, Any], None]] = []
        self.process_diverged: list[Callable[[Any], None]] = []
        self.replay_dropped: list[Callable[[Any], None]] = []
        self.forgotten: list[Callable[[Any], None]] = []
        self.has_name: list[Callable[[str], bool]] = []
        self.stop: list[Callable[[], None]] = []

    def add(self, subsystem: Subsystem) -> None:
        self.all.append(subsystem)
        for state in subsystem.states():
            self._states[state.NAME] = state
        for moment in _moments_of(type(subsystem)):
            getattr(self, moment).append(getattr(subsystem, moment))

    def find_by_name(self, name: str) -> Any:
        """Return a subsystem by its NAME, for the programs that the kernel itself runs (supervisors, pipelines)."""
        return next(subsystem for subsystem in self.all if name == subsystem.NAME)


def _moments_of(kind: type[Subsystem]) -> tuple[str, ...]:
    """Return the moments that a subsystem overrides."""
    moments = _OVERRIDDEN.get(kind)
    if moments is None:
        names = [moment for moment in _MOMENTS if getattr(kind, moment) is not getattr(Subsystem, moment)]
        moments = _OVERRIDDEN[kind] = tuple(names)
    return moments


_OVERRIDDEN: dict[type[Subsystem], tuple[str, ...]] = {}
_MOMENTS = tuple(moment for moment in Subsystems.__slots__ if moment not in ("_states", "all"))


def make_fresh(state: State) -> State:
    """Return a state of the same kind that has not taken a row; one that is made of parts says how (`fresh`)."""
    fresh: State = getattr(state, "fresh", type(state))()
    return fresh


def list_needed(state: State) -> Iterable[str]:
    """Return the processes that a state refers to and that must not be put away, if it has any."""
    needed = getattr(state, "list_needed", None)
    return () if needed is None else needed()


def apply(state: State, record: Record) -> None:
    seq, time, pid, kind, raw = record
    try:
        state.apply(kind, pid, time, codec.decode(raw))
    except Corrupt:
        raise
    except (LyraError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        raise Corrupt(f"row {seq} ({kind}) cannot be applied: {error}", seq=seq) from error


def dump(state: State) -> bytes:
    return codec.encode(state.dump())


def load(state: State, data: bytes) -> None:
    try:
        state.load(codec.decode(data))
    except Corrupt:
        raise
    except (LyraError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        raise Corrupt(f"the snapshot of {state.NAME} cannot be read: {error}") from error
