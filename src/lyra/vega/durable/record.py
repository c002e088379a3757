"""What a durable run keeps beside its processes: the program, the options, and every line it printed, in order.

`RunState` is the fold of the run's own rows; it is in every snapshot, so a run needs none of its old rows to print its
whole output again. `DurableRecord` writes those rows. A printed line is a row like any other: it is in the next commit,
and is shown once it is in the store. So is a migration: which program is in force from there on. Lines that have been
there for a while are put together into blobs. How many lines a process has printed is how its replay knows which of
them were printed before.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core import codec
from lyra.errors import StoreFull
from lyra.vega.bytecode.file import content_hash
from lyra.vega.bytecode.program import Program
from lyra.vega.runtime.agents.plan import SettingChange

if TYPE_CHECKING:
    from lyra.core.budgets.budget import Usage
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Exit, Process


MAIN: Final = "main"  # the pid of a run's main process
_PACK_BYTES: Final = 64 << 10


class RunState:
    """The run as its rows tell it."""

    NAME: ClassVar[str] = "vega"
    KINDS: ClassVar[frozenset[str]] = frozenset(
        {"run.began", "run.printed", "run.packed", "run.migrated", "run.named", "run.paid", "run.learned", "run.ended"}
    )

    def __init__(self) -> None:
        self.began: dict[str, Any] | None = None
        self.began_at = 0.0
        self.migrations: list[dict[str, Any]] = []  # each with its program, and what it replaced
        self.printed: dict[str, int] = {}  # lines, by process
        self.packed: list[tuple[str, int]] = []  # blobs of older lines, and how many are in each
        self.lines: list[str] = []
        self.bytes = 0
        self.names: dict[str, str] = {}  # that processes gave each other
        self.paid: dict[str, dict[str, int]] = {}  # by session: what conversations were paid in it
        self.learned: dict[str, tuple[float, int]] = {}  # by model: how it counts tokens

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
        elif kind == "run.migrated":
            self.migrations.append({**data, "at": time})
        elif kind == "run.named":
            self.names[str(data["name"])] = str(data["pid"])
        elif kind == "run.paid":
            for session in data["sessions"]:
                if data["usage"] is None:  # it is over
                    self.paid.pop(str(session), None)
                    continue
                paid = self.paid.setdefault(str(session), {})
                for dimension, amount in data["usage"].items():
                    paid[str(dimension)] = paid.get(dimension, 0) + int(amount)
        elif kind == "run.learned":
            self.learned[str(data["model"])] = (float(data["rate"]), int(data["missed"]))
        elif kind == "run.began":
            if self.began is not None:
                raise ValueError("the run begins a second time")
            self.began, self.began_at = dict(data), time

    def dump(self) -> Any:
        known = [self.names, self.paid, self.learned]
        return [self.began, self.began_at, self.printed, self.packed, self.lines, self.migrations, *known]

    def load(self, data: Any) -> None:
        self.began, self.began_at, self.printed, packed, self.lines, *later = data
        if later:  # stores of earlier versions have none of this
            self.migrations = list(later[0])
        if len(later) > 1:
            _, self.names, self.paid, learned = later
            self.learned = {str(model): (float(rate), int(missed)) for model, (rate, missed) in learned.items()}
        self.packed = [(str(blob), int(count)) for blob, count in packed]
        self.bytes = sum(len(line) + 8 for line in self.lines)

    def output(self, get_blob: Callable[[str], bytes]) -> list[str]:
        """Every line printed so far."""
        older = [line for blob, _ in self.packed for line in codec.decode(get_blob(blob))]
        return [*older, *self.lines]


def state_of(reason: str, error: Any) -> str:
    """Return the state of a run whose main process ended like that."""
    if reason == "cancelled":
        return "cancelled"
    return "finished" if reason == "normal" and error is None else "failed"


class DurableRecord:
    """Writes the rows of one run on the kernel that runs it."""

    __slots__ = ("_before", "_kernel", "_show", "_state", "_unsaid")

    def __init__(self, kernel: Kernel, state: RunState, show: Callable[[str], object]) -> None:
        """`state` was handed to the kernel (`Seams.states`). `show` gets each line once it is durable; lines that were
        printed before a restart are not shown again."""
        self._kernel = kernel
        self._show = show
        self._state = state
        self._before: dict[str, int] = {}
        self._unsaid: deque[tuple[int, Callable[[str], object], str]] = deque()

    def open(self) -> None:
        """Note that the kernel is open, and has read what earlier executions left."""
        self._kernel.core.after_commit.append(self._on_commit)
        self._before = dict(self._state.printed)

    def begin(self, facts: dict[str, Any], tell: Callable[[str], object]) -> None:
        """`tell` is called once the run is durable, with its id."""
        seq = self._kernel.fact(self._state, "", "run.began", facts)
        self._unsaid.append((seq, tell, str(facts.get("id", ""))))

    def end(self, ended: Exit) -> None:
        """Write the last row: in short what the run came to, for lists of runs."""
        state = self._state
        lines = len(state.lines) + sum(count for _, count in state.packed)
        facts = {
            "state": state_of(ended.reason, ended.error),
            "lines": lines,
            "spent": self._kernel.budget.usage.to_data(),
            "hash": self._hash,
            "migrations": len(state.migrations),
        }
        self._kernel.fact(state, "", "run.ended", facts)

    @property
    def _hash(self) -> str:
        """The hash of the program in force."""
        state = self._state
        return str(state.migrations[-1]["hash"] if state.migrations else (state.began or {}).get("hash", ""))

    def migrate(self, facts: dict[str, Any], tell: Callable[[str], object]) -> None:
        """From here on another program is in force; `tell` is called once that is durable."""
        seq = self._kernel.fact(self._state, "", "run.migrated", facts)
        self._unsaid.append((seq, tell, ""))

    def print(self, pid: str, number: int, text: str) -> None:
        """Print the line `number` of a process; one that an earlier execution has printed is not printed again."""
        if number < self._before.get(pid, 0):
            return
        kernel, state = self._kernel, self._state
        seq = kernel.fact(state, pid, "run.printed", {"text": text})
        self._unsaid.append((seq, self._show, text))
        if state.bytes > _PACK_BYTES:
            with suppress(StoreFull):  # the journal will say so; they are packed when there is room
                self._pack()

    # ------------------------------------------------------------ what processes may see of each other

    @property
    def names(self) -> dict[str, str]:
        """Pids by the names that `process::register` gave."""
        return self._state.names

    def name(self, name: str, pid: str) -> None:
        self._kernel.fact(self._state, pid, "run.named", {"name": name, "pid": pid})

    def get_session_costs(self, session: str) -> dict[str, int]:
        """Return what conversations were paid in a session so far."""
        return self._state.paid.get(session, {})

    def pay(self, sessions: list[str], usage: Usage) -> None:
        """Note that a conversation spent something in these sessions, each inside the next."""
        if not self._kernel.stopping:
            self._kernel.fact(self._state, "", "run.paid", {"sessions": sessions, "usage": usage.to_data()})

    @property
    def learned(self) -> dict[str, tuple[float, int]]:
        """Return how models count tokens: what calls are expected to cost depends on it."""
        return self._state.learned

    def learn(self, model: str, rate: float, missed: int) -> None:
        if not self._kernel.stopping:
            self._kernel.fact(self._state, "", "run.learned", {"model": model, "rate": rate, "missed": missed})

    def leave(self, session: str) -> None:
        """Leave a session that is over."""
        if session in self._state.paid:
            self._kernel.fact(self._state, "", "run.paid", {"sessions": [session], "usage": None})

    def _pack(self) -> None:
        kernel, state = self._kernel, self._state
        assert kernel.journal is not None
        blob = kernel.call_now(kernel.journal.store.put_blob, codec.encode(state.lines))
        kernel.fact(state, "", "run.packed", {"blob": blob, "lines": len(state.lines)})

    def _on_commit(self, seq: int) -> None:
        """Show what is in the store now."""
        unsaid = self._unsaid
        while unsaid and unsaid[0][0] <= seq:
            _, say, text = unsaid.popleft()
            try:
                say(text)
            except OSError:  # the reader of the output is gone; the run continues, and its output is in the store
                self._show = _nowhere
                unsaid.clear()


def _nowhere(_: str) -> None:
    pass


# The pids of a durable run: saved values hold them, so they are the same however often the run was killed.
# A kernel numbers processes by the rows of its journal, and a run that was killed has other rows. Here a pid says which
# call made the process: `p4` was made by the call 4 of the main process, `p4.0` by the first call of `p4`, `p2_1.0-0`
# by a call made ahead or in a `parallel`. Saving a process is a call that is not counted: when it happens is not the
# program's to say. A run that was begun by rows continues with them.

BY_CALL: Final = "call"  # what a run keeps of how its processes are numbered
PID: Final = re.compile(r"\bp\d+(?:[-_.]\w+)*")
_LENGTH_MAX: Final = 60  # of a pid that tells whose it is: processes may nest a thousand deep
_GROUP: Final = re.compile(r"[a-z]+(?=\d+:)")  # ahead2:1.0/0, parallel2:0/0: no two groups of a process have a number
_WRITTEN: Final = str.maketrans(":/", "_-")


class PidsByCall:
    """How the kernel of a run numbers its processes (`Seams.pids`). `saves` says how often each was saved so far."""

    __slots__ = ("saves",)

    def __init__(self) -> None:
        self.saves: Mapping[str, int] = {}

    def pid_of(self, parent: Process, key: Any) -> str:
        before = "p" if parent.pid == MAIN else f"{parent.pid}."
        saves = self.saves.get(parent.pid, 0)
        call = key - saves if type(key) is int else _GROUP.sub("", key, count=1).translate(_WRITTEN)
        pid = f"{before}{call}"
        if len(pid) <= _LENGTH_MAX:
            return pid
        return f"p0.{hashlib.sha256(f'{parent.pid}.{call}'.encode()).hexdigest()[:24]}"

    def is_given(self, pid: str) -> bool:
        return PID.fullmatch(pid) is not None


# Another program for the next execution of a durable run; `lyra.vega.migrate` decides whether that is safe.


class ProgramMigration:
    """Another program for a run: fitted to the one before, with what changed in words. `done` is called once it is in
    the store."""

    def __init__(self, before: Program, program: Program, sources: Mapping[str, str]) -> None:
        self.program = program
        self.sources = dict(sources)
        self.setting_changes: list[SettingChange] = []
        self.changes: list[str] = []
        self.done: Callable[[], object] = lambda: None
        self._hash = content_hash(program)
        self._globals = [len(before.globals), len(program.globals)]

    def to_data(self) -> dict[str, Any]:
        return {
            "hash": self._hash,
            "globals": self._globals,
            "renewals": [setting_change.to_data() for setting_change in self.setting_changes],
            "changes": self.changes,
        }
