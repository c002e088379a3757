"""Durable runs as they lie in a store: which there are, how each stands, what it printed, asked and spent.

    from lyra.vega.durable.runs import Runs
    with Runs("run.db") as runs:
        for run in runs:
            print(run.id, run.state, run.file)
        run = runs["review-1"]
        print(run.output(), run.program().name, [row.kind for row in run.rows()])

Reads only: nothing here runs a program, owns a run or changes a store. A run is a space of its file
(`lyra.store.space`) with the journal of one kernel in it; what its rows come to is the kernel's own fold.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from lyra.core import codec
from lyra.core.checking.check import did_you_mean
from lyra.core.clock import SystemClock
from lyra.errors import ConfigError, Conflict, Corrupt, ProcessExit, StoreError
from lyra.kernel.journal.history import Fold, PendingInterrupt, ProcessState
from lyra.kernel.journal.lease import lives_here, owner_is_dead
from lyra.kernel.journal.rows import error_from_row
from lyra.kernel.kernel import Kernel
from lyra.store.ended import load_all
from lyra.store.protocol import Record
from lyra.store.space import Space, spaces
from lyra.store.sqlite import SqliteStore
from lyra.store.standing import vouch
from lyra.vega.bytecode.program import Program
from lyra.vega.durable.record import MAIN, RunState, state_of
from lyra.vega.runtime.agents.plan import SettingChange

if TYPE_CHECKING:
    from lyra.store.postgres_space import PostgresSpace

    RunSpace = Space | PostgresSpace  # the journal of a run: in a file, or beside the shards of a cluster

STATES: Final[dict[str, str]] = {
    "running": "a process is at work on it",
    "waiting": "it waits for the answer to a question: `vega answer`",
    "stopped": "no process is at work on it: `vega resume`",
    "finished": "its main process came to its end",
    "failed": "its main process ended with an error that it did not catch",
    "cancelled": "it was cancelled",
    "damaged": "its rows cannot be read: `lyra store check`",
}


class RunQuestion(NamedTuple):
    """What a run asks a person, and waits for."""

    id: str
    kind: str
    question: str
    message: str
    asked_at: float
    expires_at: float | None
    pid: str


def file_of(target: str) -> str:
    """Return the file that a store's name represents; runs are kept in files."""
    path = target.removeprefix("sqlite://")
    if target == "memory" or "://" in path:
        raise ConfigError(
            f"runs of Vega programs are kept in a file, not in {path.partition('://')[0]}", hint="name one: --db FILE"
        )
    return path


class Runs:
    """The runs in one file. It has to exist: a misspelt name is no empty store."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        if not os.path.exists(self.path):
            raise StoreError(f"there is no store at {self.path}", hint="`vega run FILE --db STORE` makes one")
        self._store = SqliteStore(self.path, writes=False)
        self._open: list[Space] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for store in (*self._open, self._store):
            store.close()

    @property
    def names(self) -> list[str]:
        return spaces(self._store)

    def __iter__(self) -> Iterator[DurableRun]:
        """Yield the runs that have begun, oldest first."""
        for name in self.names:
            run = self._run(name)
            if run is not None and run.has_begun:
                yield run

    def all(self) -> Iterator[DurableRun | DamagedRun]:
        """Yield every run, with those that cannot be read, each in its place."""
        for name in self.names:
            try:
                run = self._run(name)
                if run is not None and run.has_begun:
                    run.brief()
                    yield run
            except Corrupt as error:
                yield DamagedRun(name, error)

    def __getitem__(self, name: str) -> DurableRun:
        names = self.names
        run = self._run(name) if name in names else None
        if run is None or not run.has_begun:
            near = did_you_mean(name, [other for other in names if other != name])
            hint = f"did you mean {near!r}?" if near else "`vega runs` lists them"
            raise ConfigError(f"there is no run {name!r} in {self.path}", hint=hint, run=name)
        return run

    def _run(self, name: str) -> DurableRun | None:
        """Return the run of this name; None where it has no rows yet. The owner of an empty space may sign the first
        rows with another user's key a moment later, so that an empty one is not read any further."""
        space = Space(self.path, name, make=False, writes=False)
        self._open.append(space)
        return None if vouch(space).name == "empty" else DurableRun(space)


class DamagedRun(NamedTuple):
    """A run whose rows cannot be read, and why."""

    id: str
    error: Corrupt


class DurableRun:
    """One run as its store has it now. `state` is one of STATES; `processes` are the kernel's fold of its rows."""

    def __init__(self, space: RunSpace) -> None:
        self.space = space
        self.id = space.name

    @cached_property
    def _folded(self) -> tuple[Fold, RunState]:
        try:
            return self._fold()
        except Conflict:  # its owner has dropped old rows between two readings; what it has put in their place is there
            return self._fold()

    def _fold(self) -> tuple[Fold, RunState]:
        snapshot = load_all(self.space)
        facts = RunState()
        fold = Fold.load(snapshot.seq, snapshot.states, [*(type(state)() for state in Kernel().states.values()), facts])
        fold.add_all(self.space.read(after=snapshot.seq))
        return fold, facts

    @property
    def fold(self) -> Fold:
        return self._folded[0]

    @property
    def facts(self) -> RunState:
        return self._folded[1]

    def brief(self) -> dict[str, Any]:
        """Return its state in short; of one that is over from its last row alone, however much it did."""
        last = self.space.last_seq()
        ended = next(self.space.read(after=last - 1, kind="run.ended"), None) if last else None
        began = next(self.space.read(upto=1, kind="run.began"), None) if self.space.first_seq() == 1 else None
        if ended is not None and began is not None:
            told, facts = codec.decode(ended.data), codec.decode(began.data)
            facts |= {"hash": told.get("hash") or facts["hash"], "migrations": told.get("migrations", 0)}
            return self._brief(told["state"], facts, began.time, ended.time, told["spent"], told["lines"])
        facts = {**self.began, "hash": self.hash, "migrations": len(self.facts.migrations)}
        return self._brief(self.state, facts, self.began_at, self.ended_at, self.spent, self.lines)

    def _brief(
        self,
        state: str,
        facts: dict[str, Any],
        began_at: float,
        ended_at: float | None,
        spent: dict[str, int],
        lines: int,
    ) -> dict[str, Any]:
        return {
            "run": self.id,
            "state": state,
            "file": facts["file"],
            "fork_of": facts.get("fork_of"),
            "began": began_at,
            "ended": ended_at,
            "cost_usd": spent.get("usd", 0) / 1_000_000,
            "calls": spent.get("llm_calls", 0),
            "input_tokens": spent.get("input_tokens", 0),
            "output_tokens": spent.get("output_tokens", 0),
            "lines": lines,
            "hash": facts["hash"],
            "migrations": facts["migrations"],
        }

    # ------------------------------------------------------------ what it is

    @property
    def has_begun(self) -> bool:
        if self.space.first_seq() == 1:
            return next(self.space.read(upto=1, kind="run.began"), None) is not None
        return self.facts.began is not None

    @property
    def began(self) -> dict[str, Any]:
        """Return how it was started: id, file, hash, model, budget, args, folder, settings."""
        assert self.facts.began is not None
        return self.facts.began

    @property
    def file(self) -> str:
        return str(self.began["file"])

    @property
    def versions(self) -> list[dict[str, Any]]:
        """Its programs, in the order they were in force: `hash`, `program` and `sources` of each, as blobs; those after
        the first as migrations tell them."""
        return [self.began, *self.facts.migrations]

    @property
    def hash(self) -> str:
        """The content hash of the program in force."""
        return str(self.versions[-1]["hash"])

    def program(self, version: int = -1) -> Program:
        """Return the program in force, or an earlier one."""
        from lyra.vega.bytecode import file as bytecode

        return bytecode.load(self.space.get_blob(self.versions[version]["program"]))

    def sources(self, version: int = -1) -> dict[str, str]:
        """Return the texts it was compiled from, by the names of their files; none of one that was run as .vgb."""
        blob = self.versions[version].get("sources")
        return {} if not blob else dict(codec.decode(self.space.get_blob(blob)))

    @property
    def setting_changes(self) -> list[SettingChange]:
        """The settings of agents that migrations changed, in order."""
        kept = [row for migration in self.facts.migrations for row in migration["renewals"]]
        return [SettingChange.from_data(row) for row in kept]

    # ------------------------------------------------------------ how it stands

    @property
    def main(self) -> ProcessState:
        return self.fold.processes[MAIN]

    @property
    def processes(self) -> dict[str, ProcessState]:
        return self.fold.processes

    @property
    def owner(self) -> str:
        """The process that is at work on it; empty when none is."""
        held = self.space.holder()
        if held is None or owner_is_dead(held.owner):
            return ""
        return held.owner if lives_here(held.owner) or held.expires_at > SystemClock().now() else ""

    @property
    def state(self) -> str:
        ended = self.main.exit
        if ended is None:
            return "waiting" if self.questions() else "running" if self.owner else "stopped"
        return state_of(ended.reason, ended.error)

    @property
    def is_over(self) -> bool:
        return self.main.exit is not None

    @property
    def began_at(self) -> float:
        return self.facts.began_at

    @property
    def ended_at(self) -> float | None:
        return self.main.exit_at if self.main.exit is not None else None

    @property
    def error(self) -> BaseException | None:
        """Return what ended it, of a run that failed."""
        ended = self.main.exit
        if ended is None or (ended.error is None and ended.reason == "normal"):
            return None
        return ProcessExit(ended.reason) if ended.error is None else error_from_row(ended.error)

    @property
    def value(self) -> Any:
        """Return what `main` returned, as the journal holds it."""
        ended = self.main.exit
        if ended is None:
            return None
        return codec.decode(bytes(ended.value) if not ended.blob else self.space.get_blob(ended.blob))

    @property
    def spent(self) -> dict[str, int]:
        """Return what all its processes together have used: micro-dollars, tokens, calls."""
        total = dict(self.fold.spent)
        for state in self.fold.processes.values():
            for dimension, amount in state.spent.items():
                total[dimension] = total.get(dimension, 0) + amount
        return total

    def output(self) -> list[str]:
        """Every line it has printed, in order."""
        return self.facts.output(self.space.get_blob)

    @property
    def lines(self) -> int:
        """Return how many lines it has printed."""
        return len(self.facts.lines) + sum(count for _, count in self.facts.packed)

    def questions(self) -> list[RunQuestion]:
        """Its questions without an answer, oldest first."""
        answered = self.find_answered_questions()
        open_questions: list[tuple[PendingInterrupt, str]] = [
            (pending, pid)
            for pid, state in self.fold.processes.items()
            if state.exit is None
            for pending in state.interrupts.values()
            if pending.id not in answered
        ]
        open_questions.sort(key=lambda pair: pair[0].created_at)
        return [
            RunQuestion(
                pending.id, pending.kind, pending.question, pending.message, pending.created_at, pending.expires_at, pid
            )
            for pending, pid in open_questions
        ]

    def find_answered_questions(self) -> set[str]:
        """Return the questions whose answers are kept for its next execution, or are just being taken."""
        notes = (codec.decode(data) for _, data in self.space.notes() if data is not None)
        return {str(note["answer"]) for note in notes if "answer" in note}

    def line(self, pid: str) -> str:
        """Return the calls that made a process, from the main process on: what an idempotency key names it by."""
        created = self.fold.processes[pid].created
        if created.key is None or created.parent not in self.fold.processes:
            return pid
        return f"{self.line(created.parent)}.{created.key}"

    def rows(self, *, after: int = 0, pid: str | None = None, kind: str | None = None) -> Iterator[Record]:
        """Its journal as far as it is kept, oldest first."""
        return self.space.read(after=after, pid=pid, kind=kind)
