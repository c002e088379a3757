"""A run once more with one reply changed.

The fork is its own run in the same store. Its journal begins as a copy of the other's, up to the reply, which is
written there as the user wants it; from there on the program runs. What it asks then is answered as it was in the other
run where it is the same: the same effect with the same arguments, the same agent asked the same thing after the same
conversation. What is new is refused, or done for real where that is allowed. The clock and the dice are read anew from
there on.
"""

from __future__ import annotations

import asyncio
import shlex
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from lyra.agents.session.model_call import ModelCall
from lyra.core import codec
from lyra.core.budgets.budget import Usage
from lyra.core.budgets.early_calls import NO_ROOM
from lyra.core.budgets.money import Money
from lyra.core.clock import SystemClock
from lyra.core.effect import Effect, canonical_hash
from lyra.errors import CapabilityDenied, ConfigError, EffectFailed
from lyra.kernel.effects.door import Attempt, Door
from lyra.kernel.journal import rows
from lyra.kernel.journal.lease import owner_name
from lyra.kernel.journal.rows import error_from_row, error_to_row
from lyra.store.space import Space
from lyra.store.standing import open_signed
from lyra.vega.durable.durable_run import RunExecution
from lyra.vega.durable.record import PID
from lyra.vega.durable.runs import DurableRun, Runs
from lyra.vega.replay.timeline import Replies, Timeline, TimelineStep
from lyra.vega.runtime.world import RunOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from lyra.config import Config
    from lyra.kernel.base.core import Core
    from lyra.kernel.effects.gates import Declared
    from lyra.kernel.process.process import Process
    from lyra.store.protocol import Record
    from lyra.vega.bytecode.program import Program
    from lyra.vega.runtime.agents.slot import AgentTurn


_INSIDE: Final = (
    "vega.ask:",
    "vega.stream:",
    "vega.print",
)  # effects that ask a process of the run, and nothing outside
_UNHEARD: Final = ("cancelled", "cut_off", "given_up", "out_of_time")  # ends of calls whose callers no longer waited
_LEASE_S: Final = 60.0


class ForkChange(NamedTuple):
    """The row to write instead: its seq, who and under which key, and what. `cut` is the first row that the fork has
    not: of a stream the first piece of the old reply, if one was read before the reply was whole."""

    seq: int
    cut: int
    pid: str
    key: Any
    data: bytes
    was: str


# ---------------------------------------------------------------- what is changed
def change_at(run: DurableRun, timeline: Timeline, number: int, text: str, *, is_error: bool) -> ForkChange:
    """Return the row behind a step of the timeline, with another reply in it."""
    step = timeline.step(number)
    if step is None:
        raise ConfigError(f"there is no effect {number}", hint="`effects` lists them")
    if step.agent:
        return _change_model(run, timeline, step, text, is_error=is_error)
    for key in reversed(step.keys):
        for record in run.rows(pid=step.pid, kind="effect.finished"):
            row = rows.DECODERS[record.kind].decode(record.data)
            if row.key == key and row.form in ("do", "read"):
                return _change_answer(run, record, row, lambda old: _other(old, text), text, is_error=is_error)
    raise ConfigError(
        f"effect {number} ({step.what}) has no reply that could be changed",
        hint="change the reply of an agent, or of an effect that asks the outside",
    )


def _change_model(run: DurableRun, timeline: Timeline, step: TimelineStep, text: str, *, is_error: bool) -> ForkChange:
    """Change an agent's reply: what its model said last before the answer was there."""
    seq = timeline.replies.row_of(step)
    if seq is None:
        raise ConfigError(f"no model answered effect {step.number} ({step.what})", hint="choose one that has a reply")
    record = next(run.rows(after=seq - 1))
    row = rows.DECODERS[record.kind].decode(record.data)
    change = _change_answer(run, record, row, lambda old: _with_text(old, text), text, is_error=is_error)
    return change._replace(cut=_first_piece(run, timeline, step, change)) if step.stream else change


def change_of_row(run: DurableRun, seq: int, text: str, *, is_error: bool) -> ForkChange:
    """Return the row of an answer with another one in it: that of a model in the middle of its turn, or of an agent's
    tool."""
    record = next(run.rows(after=seq - 1))
    row = rows.DECODERS[record.kind].decode(record.data)
    return _change_answer(run, record, row, lambda old: _text_like(old, text), text, is_error=is_error)


def _text_like(old: Any, text: str) -> Any:
    is_of_model = isinstance(old, dict) and isinstance(old.get("message"), dict)
    return _with_text(old, text) if is_of_model else _other(old, text)


def _first_piece(run: DurableRun, timeline: Timeline, step: TimelineStep, change: ForkChange) -> int:
    """Return the row of the first piece that was read of a reply, where that was before the row of the reply itself."""
    readers = [reader for reader in timeline.steps if reader is step or f"<stream {step.stream}>" in reader.what]
    keys = {(reader.pid, key) for reader in readers for key in reader.keys}
    is_asked = False  # pieces of what the model said before it used a tool stay
    for record in run.rows():
        if record.seq == change.seq:
            break
        if record.kind not in ("effect.started", "effect.finished"):
            continue
        key = rows.DECODERS[record.kind].decode(record.data).key
        if record.kind == "effect.started":
            is_asked = is_asked or (record.pid, key) == (change.pid, change.key)
        elif is_asked and (record.pid, key) in keys:
            return record.seq
    return change.seq


def _change_answer(
    run: DurableRun, record: Record, row: rows.Finished, make: Callable[[Any], Any], text: str, *, is_error: bool
) -> ForkChange:
    kept = run.space.get_blob(row.blob) if row.blob else bytes(row.value)
    old = codec.decode(kept)
    was = _text_of(old) if row.error is None else str(row.error.get("message", ""))
    if is_error:
        fresh = rows.Finished(row.key, error=error_to_row(EffectFailed(text)), usage=row.usage)
    else:
        if row.error is not None and old is None:
            old = {"message": {"role": "assistant", "content": ""}, "stop_reason": "end"}
        fresh = rows.Finished(row.key, rows.Raw(codec.encode(make(old))), usage=row.usage)
    if row.form != "do":
        fresh.form, fresh.name, fresh.hash = row.form, row.name, row.hash
    return ForkChange(record.seq, record.seq, record.pid, row.key, rows.encode(fresh), was)


def _with_text(old: Any, text: str) -> Any:
    """Return a model's answer with another text: it said that, and called no tool."""
    message = {**old["message"], "content": text, "tool_calls": []}
    return {**old, "message": message, "stop_reason": "end", "pieces": []}


def _other(old: Any, text: str) -> Any:
    """Another reply of the same form: text for text, the body of a response, else JSON."""
    import json

    if old is None or isinstance(old, str):
        return text
    if isinstance(old, list) and len(old) == 3 and isinstance(old[0], int):
        return [old[0], text, old[2]]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise ConfigError(f"{text!r} is no JSON", hint=f"this reply was {old!r}") from None


def _text_of(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("message"), dict):
        value = value["message"].get("content", "")
    return value if isinstance(value, str) else repr(value)


# ---------------------------------------------------------------- the fork's journal
def fresh_name(names: list[str], run_id: str) -> str:
    """`review-1-fork-2`: the first that is free."""
    number, stem = 1, run_id[:48]
    while f"{stem}-fork-{number}" in names:
        number += 1
    return f"{stem}-fork-{number}"


def copy_journal(run: DurableRun, space: Space, change: ForkChange, number: int, now: float) -> RecordedAnswers:
    """Write the beginning of the fork's journal; what came later in the other one is the Book of answers."""
    if space.last_seq():
        raise ConfigError(f"there is a run {space.name!r} already", hint="take another name", run=space.name)
    book = RecordedAnswers(run.space.get_blob)
    kept: list[tuple[int, float, str, str, bytes]] = []
    for record in run.rows():
        book.read(record, is_answer=record.seq >= change.cut and record.seq != change.seq)
        if record.seq == change.seq:
            kept.append(record._replace(seq=change.cut, data=change.data))
        elif record.seq < change.cut:
            kept.append(_rename_run(record, space.name, run.id, number))
    lease = space.acquire(owner_name("fork"), now=now, ttl_s=_LEASE_S)
    try:
        open_signed(space, lease.epoch)
        space.append(kept, lease.epoch)
    finally:
        space.release(lease)
    return book


def _rename_run(record: Record, name: str, run_id: str, number: int) -> Record:
    if record.kind != "run.began":
        return record
    facts = codec.decode(record.data)
    nonce = f"{facts['nonce']}.{name}"  # what it asks anew goes by keys of its own
    facts |= {"id": name, "nonce": nonce, "fork_of": run_id, "forked_at": number}
    return record._replace(data=codec.encode(facts))


class RecordedAnswers:
    """The answers of the forked run, by the name and the arguments of the effect.

    The arguments of a model call are the whole conversation, so a conversation that differs earlier is another request.
    Where a request was made more than once, each call gets the answer that it had, found by the path of calls that led
    to it; a call that the other run did not make gets one of the remaining answers, in order. A call that timed out is
    recorded as that. The requests of the fork that have no recorded answer are kept as well.
    """

    def __init__(self, get_blob: Callable[[str], bytes]) -> None:
        self._answers: dict[tuple[str, bytes], dict[tuple[str, Any], rows.Finished]] = {}  # by whose line, and its key
        self._begun: dict[tuple[str, Any], rows.Started] = {}
        self._open: dict[str, dict[Any, None]] = {}  # the keys of what a process has begun and not finished
        self._late: set[tuple[str, Any]] = set()  # what was under way when the time of its call was over
        self._replies = Replies(get_blob)
        self._lines: dict[str, str] = {}  # of processes, as the kernel has them
        self.taken = 0
        self.new: list[str] = []

    def read(self, record: Record, *, is_answer: bool) -> None:
        """Read a row of the other run; `is_answer` where the fork has not got it."""
        if record.kind in ("message.sent", "message.received"):
            self._replies.add(record, rows.DECODERS[record.kind].decode(record.data))
        elif record.kind == "process.created":
            created = rows.DECODERS[record.kind].decode(record.data)
            above = self._lines.get(created.parent)
            known = above is not None and created.key is not None
            self._lines[record.pid] = f"{above}.{created.key}" if known else record.pid
        elif record.kind == "effect.started":
            row = rows.DECODERS[record.kind].decode(record.data)
            self._begun[record.pid, row.key] = row
            self._open.setdefault(record.pid, {})[row.key] = None
        elif record.kind == "message.withdrawn":
            if is_answer:
                self._add_unheard(self._replies.answering(codec.decode(record.data)["request"]))
        elif record.kind == "effect.finished":
            row = rows.DECODERS[record.kind].decode(record.data)
            self._open.get(record.pid, {}).pop(row.key, None)
            if is_answer:
                self._add(record.pid, row)

    def _add_unheard(self, answering: str) -> None:
        """Note that what a process has under way answers a call whose caller gave up."""
        for key in self._open.get(answering, ()):
            self._late.add((answering, key))
            self._add(answering, rows.Finished(key, error={"code": "cut_off"}))

    def _add(self, pid: str, row: rows.Finished) -> None:
        start = self._begun.get((pid, row.key))
        name, digest = (row.name, row.hash) if start is None else (start.name, start.hash)
        if row.error is not None and row.error.get("code") == "out_of_time":
            # Add a call whose time is over: its answer reaches no caller. What it asks ends a little later, if it ends
            # at all.
            self._add_unheard(row.name if row.form == "wait" else self._replies.answering(f"~{pid}:{row.key}"))
        elif name and (not _is_none(row.error) or (pid, row.key) in self._late):
            self._answers.setdefault((name, digest), {})[self._lines.get(pid, pid), row.key] = row

    def take(self, name: str, digest: bytes, line: str, key: Any, *, is_timed: bool) -> rows.Finished | None:
        """Take an answer that was not taken before. A recorded time-out answers only a call with a time limit."""
        left = self._answers.get((name, digest), {})
        places = (place for place in chain(((line, key),), left) if place in left)
        fitting = next((place for place in places if is_timed or not _is_none(left[place].error)), None)
        if fitting is None:
            return None
        self.taken += 1
        return left.pop(fitting)


def _is_none(error: dict[str, Any] | None) -> bool:
    """Return whether an error says that no caller waited for the answer, or that an early call found no room in its
    budget."""
    if error is None:
        return False
    return error.get("code") in _UNHEARD or NO_ROOM in (error.get("fields") or {})


class _ForkDoor(Door):
    """The door of a fork: recorded requests get the recorded answer; new ones are performed only in a live fork."""

    __slots__ = ("_book", "_is_live", "turns")

    def __init__(
        self,
        book: RecordedAnswers,
        is_live: bool,
        core: Core[Process],
        declared: Declared,
        ask: Callable[..., Awaitable[Any]],
    ) -> None:
        super().__init__(core, declared, ask)
        self._book = book
        self._is_live = is_live
        self.turns: Mapping[str, list[AgentTurn]] = {}  # calls under way, by pid; the World's once `live_on` is called

    async def perform(
        self, process: Process, key: rows.Key, effect: Effect, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        recall = process.replay
        known = None if recall is None else recall.get(key)
        if (known is not None and known.done) or effect.name.startswith(_INSIDE):
            return await super().perform(process, key, effect, args, kwargs)
        digest = canonical_hash(effect.name, args, kwargs) if args or kwargs else effect.digest
        # The function that ends the time of the call that a process answers.
        turns = self.turns.get(process.pid)
        expire = turns[0].expire if turns else None
        row = self._book.take(effect.name, digest, process.line, key, is_timed=expire is not None)
        if row is not None:
            if known is not None:
                del process.replay[key]  # type: ignore[union-attr]
                process.replay = process.replay or None
            # Write the answer down as the fork's own, and charge the scopes that paid for it.
            journal = self._core.journal
            assert journal is not None
            started = rows.Started(key, effect.name, digest, effect.idempotent)
            journal.write(process.pid, "effect.started", rows.encode(started))
            finished = rows.Finished(key, row.value, row.blob, row.error, row.usage)
            journal.write(process.pid, "effect.finished", rows.encode(finished))
            if row.usage:
                asker = args[0].scopes if args and isinstance(args[0], ModelCall) else ()
                for scope in (process.budget, *asker):
                    scope.charge(Usage.from_data(row.usage))
            if expire is not None and _is_none(row.error):
                expire()
                await asyncio.Event().wait()  # until the caller has given up
            if row.error is not None:
                raise error_from_row(row.error)
            data = await self._core.call(journal.store.get_blob, row.blob) if row.blob else bytes(row.value)
            return effect.decode(data)
        self._book.new.append(effect.name)
        if not self._is_live:
            refusal = CapabilityDenied(
                f"{effect.name} is asked something that the other run did not ask",
                hint="run the fork with --live to do new effects for real",
                effect=effect.name,
            )
            self._record_refusal(Attempt(process, key, effect, args, kwargs, digest, effect.cost), refusal)
            raise refusal
        return await super().perform(process, key, effect, args, kwargs)


def fork_door(book: RecordedAnswers, *, is_live: bool) -> Callable[..., Door]:
    """Makes the door of a fork's kernel (`RunExecution(door=…)`), which asks the book first."""
    return partial(_ForkDoor, book, is_live)


def live_on(life: RunExecution) -> None:
    """Make an execution with a `fork_door` ready to run. No call starts early: recorded answers take no time, and an
    early call that the program never reaches would count as a new request."""
    life.world.options.sequential = True
    door = life.kernel.door
    assert isinstance(door, _ForkDoor)
    door.turns = life.world.turns


# ---------------------------------------------------------------- the outcome of it
def difference(old: Timeline, new: Timeline, number: int) -> tuple[TimelineStep | None, TimelineStep | None]:
    """Return the first steps after the changed one that are not the same; both None where nothing else differs."""
    for position in range(number + 1, max(len(old), len(new))):
        before, now = old.step(position), new.step(position)
        if before is None or now is None or _comparable_parts(before) != _comparable_parts(now):
            return before, now
    return None, None


def _comparable_parts(step: TimelineStep) -> tuple[str, ...]:
    parts = (step.kind, step.what, step.message, step.result, step.error)
    return tuple(PID.sub("p", part) for part in parts)


# ---------------------------------------------------------------- fork run
# A fork as its own run: its journal is written beside that of the other run, and executed to its end.
# Which servers, nodes and loop it has is for the caller to say; the program, model, arguments and budget are those that
# the store keeps.

# What a program may import that only a command line starts for it, and in words.
_OUTSIDE: Final = {"mcp": "MCP servers", "node": "nodes"}


class RunFork:
    """The fork of a run with another answer at the effect `number`. Its journal is in the store once this is made."""

    def __init__(self, path: str, run_id: str, change: ForkChange, number: int, *, name: str | None = None) -> None:
        with Runs(path) as runs:
            run = runs[run_id]
            if name in runs.names:
                raise ConfigError(f"there is a run {name!r} already", hint="take another name, or none", run=name)
            self.began = run.began
            self.space = Space(path, name or fresh_name(runs.names, run_id))
            try:
                self.book = copy_journal(run, self.space, change, number, SystemClock().now())
                self._before = DurableRun(self.space)  # at its place the run may have had another program than now
                self.program: Program = self._before.program()
            except BaseException:
                self.space.close()
                raise

    @property
    def run_id(self) -> str:
        return self.space.name

    @property
    def settings(self) -> list[str]:
        """The settings that the run was started with, as flags."""
        return list(self.began.get("settings", ()))

    def options(self) -> dict[str, Any]:
        """Return how the run was started: what `RunOptions` takes."""
        began = self.began
        return {
            "model": began["model"],
            "args": tuple(began["args"]),
            "folder": began["folder"],
            "sequential": began.get("sequential", False),
            "budget": None if began["budget"] is None else Money(began["budget"]),
        }

    async def execute(self, config: Config | None, options: dict[str, Any], *, is_live: bool) -> Any:
        """Run it to its end. What it asks as the other run did is answered as it was there; the rest is performed where
        it is live, and refused where it is not. Its output is in the store."""
        chosen = RunOptions(write=_nowhere, warn=_nowhere, **options)
        door = fork_door(self.book, is_live=is_live)
        execution = RunExecution(self.space, self.program, chosen, before=self._before, config=config, door=door)
        live_on(execution)
        return await execution.run()

    def close(self) -> None:
        self.space.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def name_outside_imports(program: Program) -> str:
    """Name what a program imports that only a command line starts for it; "" where that is nothing."""
    kinds = {kind for kind, *_ in program.imports}
    return " and ".join(words for kind, words in _OUTSIDE.items() if kind in kinds)


def replay_command(run_id: str, path: str, verb: str = "replay") -> str:
    """Return the command that steps through a run, or does something else with it."""
    return f"vega {verb} {run_id} --db {shlex.quote(path)}"


def _nowhere(_: str) -> None:
    pass
