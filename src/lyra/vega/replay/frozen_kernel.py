"""The parts of a kernel that does nothing new: every answer comes from the journal, and no agent is asked.

`RecordedReplay` is what the journal answers one process; where it has no more, whatever is under way is given up. A
FrozenWorld knows agents by their journaled answers alone. A RecordingFiber keeps the messages that it was given, so
that the player can give them again.

`RunJournal` is the journal of a run as a replay wants it: who was created when, which row answered what, what was spent
by whom.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core import codec
from lyra.core.naming import VEGA_PROCESS
from lyra.errors import Corrupt, StoreError
from lyra.kernel.journal import rows
from lyra.kernel.journal.history import Entry
from lyra.kernel.programs.registry import Programs
from lyra.kernel.seams import Seams
from lyra.observe.history.processes import sum_into
from lyra.vega.durable.durable_run import agent_from_row
from lyra.vega.machine.fiber import EarlyCallGroup, Fiber, NotEarly, OutOfFuel, VmEffect
from lyra.vega.replay.timeline import AgentHistory, Replies, TimelineStep, brief, questions
from lyra.vega.runtime.agents.plan import AgentPlan
from lyra.vega.runtime.agents.slot import AgentSlot, AgentTurn
from lyra.vega.runtime.world import World, pad_globals
from lyra.vega.values.values import Process, copy_value, render, render_with_id

if TYPE_CHECKING:
    from lyra.core.budgets.budget import Usage
    from lyra.kernel.process.process import Process as KernelProcess
    from lyra.store.protocol import Record
    from lyra.vega.durable.runs import DurableRun
    from lyra.vega.machine.link import LinkedProgram
    from lyra.vega.replay.timeline import JournaledAnswer


_LEFT_OUT: Final = "replay.left_out"
_GONE: Final = frozenset({"process.terminated", "process.stopping", "process.linked", "process.monitored"})
_KEPT: Final = frozenset({"effect.started", "effect.finished", "message.received", "timer.set"})
_SPAWNS: Final = frozenset({"spawn", "ahead_spawn"})  # a process that lives on answers no call
_QUESTIONS: Final = frozenset({"interrupt.created", "interrupt.resolved", "interrupt.expired", "interrupt.cancelled"})


class RunJournal:
    def __init__(self, run: DurableRun) -> None:
        self.run = run
        self.processes: dict[str, rows.Created] = {}  # the processes that run the program
        self.created: dict[str, tuple[int, float]] = {}
        self.ended: dict[str, tuple[int, float, rows.Terminated]] = {}
        self.agents: dict[str, tuple[str, Any]] = {}  # name and settings, by the pid that programs know
        self.children: dict[tuple[str, Any], str] = {}  # by who made it, and under which key
        self.checkpoints: dict[str, dict[int, rows.Checkpointed]] = {}  # by process and key
        self.migrations: list[int] = []  # the rows from which on another program was in force
        self.spent_by: dict[str, dict[str, int]] = {}
        self.doctored: list[tuple[int, float, str, str, bytes]] = []
        self.blobs: set[str] = set()
        self.notes: list[str] = []
        self.reached: dict[str, int] = {}
        self.last_at = 0.0
        self._parents: dict[str, tuple[str, Any]] = {}
        self._seqs: dict[tuple[str, Any], int] = {}
        self._keys: dict[str, list[tuple[int, Any]]] = {}
        self._prints: dict[str, list[int]] = {}
        self._printed: dict[str, int] = {}
        self._times: list[float] = []
        self._usage: list[tuple[int, str, dict[str, int]]] = []
        self._asked: dict[str, tuple[str, Any]] = {}  # interrupts by id: who asked, under which key
        self._kept: dict[str, list[tuple[int, int]]] = {}  # seq and key of each checkpoint
        self._saved: tuple[tuple[str, int], dict[str, Any] | None] | None = None  # the last one that was looked at
        self.agent_history = AgentHistory(run.space.get_blob)
        self.replies = Replies(run.space.get_blob)
        self._read()

    def _read(self) -> None:
        space = self.run.space
        if space.first_seq() != 1:
            raise StoreError(
                f"the journal of run {self.run.id} does not reach back to its beginning",
                hint="rows older than kernel.retention_s are dropped; replay a run before that",
            )
        for record in space.read():
            self._times.append(record.time)
            self.last_at = record.time
            self._add(record)
        if not self.processes:
            raise Corrupt(f"the journal of run {self.run.id} has no process of a program", run=self.run.id)

    def _add(self, record: Record) -> None:
        seq, time, pid, kind, data = record
        decoder = rows.DECODERS.get(kind)
        left_out = (seq, time, pid, _LEFT_OUT, b"")
        if kind == "run.printed":
            self._prints.setdefault(pid, []).append(seq)
        elif kind == "run.migrated":
            self.migrations.append(seq)
        if decoder is None:
            self.doctored.append(left_out)
            return
        try:
            row = decoder.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Corrupt(f"row {seq} ({kind}) cannot be read: {error}", seq=seq) from error
        blob = getattr(row, "blob", "")
        created = self._add_created(seq, time, pid, row) if kind == "process.created" else b""
        self.agent_history.add(record, row)
        self.replies.add(record, row)
        if created:
            self.doctored.append((seq, time, pid, kind, created))
        elif kind == "message.sent":
            is_ours = row.to in self.processes or row.sender in self.processes
            if row.sender and row.key is not None:
                self._seqs[row.sender, row.key] = seq
            self.doctored.append(record if is_ours else left_out)
        elif pid not in self.processes:
            self._note_row(seq, time, pid, kind, row)
            self.doctored.append(left_out)
            return
        else:
            self._note_row(seq, time, pid, kind, row)
            kept = kind in _KEPT or kind in _QUESTIONS
            self.doctored.append(record if kept else left_out)
        if blob:
            self.blobs.add(blob)

    def _add_created(self, seq: int, time: float, pid: str, row: rows.Created) -> bytes:
        self.created[pid] = (seq, time)
        if row.parent:
            self._parents[pid] = (row.parent, row.key)
            self.children[row.parent, row.key] = pid
            self._seqs[row.parent, row.key] = seq
        if row.program == VEGA_PROCESS:
            self.processes[pid] = row
        else:
            try:
                agent = agent_from_row(pid, row, lambda: codec.decode(self._arguments(row)))
            except (LookupError, TypeError, ValueError) as error:
                raise Corrupt(f"row {seq} creates an agent that cannot be read: {error}", seq=seq) from error
            if agent is not None:
                self.agents[agent[0]] = agent[1:]
        return rows.encode(msgspec.structs.replace(row, name="", budget=None))

    def _note_row(self, seq: int, time: float, pid: str, kind: str, row: Any) -> None:
        if kind == "process.terminated":
            self.ended[pid] = (seq, time, row)
        elif kind == "program.checkpoint":
            self.checkpoints.setdefault(pid, {})[row.key] = row
            self._kept.setdefault(pid, []).append((seq, row.key))
        elif kind == "interrupt.created" and row.key is not None:
            self._asked[row.id] = (pid, row.key)
        elif kind in _QUESTIONS and row.id in self._asked:
            self._note_answer(seq, *self._asked[row.id])
        elif kind == "effect.finished" or kind in ("message.received", "timer.set"):
            self._note_answer(seq, pid, row.key)
            if kind == "effect.finished" and row.usage:
                self._usage.append((seq, pid, row.usage))
                spent = self.spent_by.setdefault(pid, {})
                for dimension, amount in row.usage.items():
                    spent[dimension] = spent.get(dimension, 0) + amount

    def _note_answer(self, seq: int, pid: str, key: Any) -> None:
        self._seqs[pid, key] = seq
        self._keys.setdefault(pid, []).append((seq, key))

    def _arguments(self, row: rows.Created) -> bytes:
        return self.run.space.get_blob(row.blob) if row.blob else bytes(row.args)

    # ------------------------------------------------------------ questions

    def seed(self, pid: str) -> Any:
        """Return what a process began with, as the journal has it; None for the main one."""
        return codec.decode(self._arguments(self.processes[pid]))[1]

    def load_fiber(self, pid: str, key: int) -> dict[str, Any] | None:
        """Return the fiber that a process kept under a key, as data; None where it kept something else."""
        if self._saved is None or self._saved[0] != (pid, key):
            row = self.checkpoints[pid][key]
            kept = codec.decode(self.run.space.get_blob(row.blob) if row.blob else bytes(row.state))
            self._saved = ((pid, key), kept["fiber"] if isinstance(kept, dict) and "fiber" in kept else None)
        return self._saved[1]

    def version(self, pid: str, key: int | None = None) -> int:
        """Which of the run's programs a process continued with from the checkpoint under a key, or from its beginning:
        the last one that was put in force before its next checkpoint, since that brought it back from here."""
        ends = [seq for seq, kept in self._kept.get(pid, ()) if key is None or kept > key]
        end = ends[0] if ends else self.ended[pid][0] if pid in self.ended else None
        return sum(end is None or seq < end for seq in self.migrations)

    def agent_of(self, target: Process) -> str:
        return self.agents.get(target.pid, ("", None))[0]

    def seq_of(self, pid: str, key: Any) -> int:
        return self._seqs.get((pid, key), 0)

    def time_of(self, seq: int) -> float:
        return self._times[seq - 1] if 0 < seq <= len(self._times) else 0.0

    def take_print_row(self, pid: str) -> int:
        """Return the row of a process's next printed line."""
        number = self._printed.get(pid, 0)
        self._printed[pid] = number + 1
        lines = self._prints.get(pid, [])
        return lines[number] if number < len(lines) else 0

    def went_on(self, pid: str, key: Any) -> bool:
        """Return whether a process did something after the answer under a key, or ended."""
        if pid in self.ended:
            return True
        answers = self._keys.get(pid, [])
        seq = self._seqs.get((pid, key), 0)
        printed = self._prints.get(pid, [])
        return bool(answers and answers[-1][0] > seq) or bool(printed and printed[-1] > seq)

    def charge(self, steps: list[TimelineStep]) -> None:
        """Lay what was spent on the steps that it was spent for: whose call it was, else the next one to end."""
        by_child = {child: step for step in steps if step.kind not in _SPAWNS for child in step.children}
        by_question = {name: step for step in steps if step.kind not in _SPAWNS for name in questions(step)}
        seqs = [step.seq for step in steps]
        for seq, pid, usage in self._usage:
            step, above = None, pid
            while above and step is None:
                step = by_child.get(above) or by_question.get(self.replies.question_at(above, seq))
                above = self._parents.get(above, ("", None))[0]
            if step is None and steps:
                step = steps[min(bisect_left(seqs, seq), len(steps) - 1)]
            if step is not None:
                sum_into(step.usage, usage)


# ---------------- An effect in words: what a timeline says of it


def describe_step(journal: RunJournal, pid: str, fiber: Fiber, effect: VmEffect) -> TimelineStep:
    """Return the step that an effect will be: what is asked of whom, and where in the source."""
    file, line, _ = fiber.place()
    step = TimelineStep(pid=pid, kind=effect.kind, file=file, line=line)
    program = fiber.linked.program
    arguments = effect.arguments
    if effect.kind in _SENDS:
        target, message = arguments[-4], arguments[-3]
        step.agent, step.target = _whom(journal, target)
        step.message = _render_message(message)
        step.what = f"{step.agent or render_with_id(target)} {_SENDS[effect.kind]} {brief(message, 120, program)}"
    elif effect.kind == "ahead_take":
        call = arguments[1]
        if call.kind == "send":
            step.agent, step.target = _whom(journal, call.arguments[0])
            step.message = _render_message(call.arguments[1])
            step.what = f"{step.agent or render_with_id(call.arguments[0])} <- {brief(call.arguments[1], 120, program)}"
        else:
            given = ", ".join(brief(value, 40, program) for value in call.arguments[1])
            step.what = f"{brief(call.arguments[0], 60, program)[10:-1]}({given})"
    elif effect.kind == "print":
        step.message = str(arguments[0])
        step.what = f"print {brief(step.message, 120)}"
    elif effect.kind == "spawn":
        kind, name, what, given, *_ = arguments
        called = f"fn {brief(what, 60, program)[10:-1]}" if kind == "function" else name
        step.what = f"spawn {called}" + (
            f"({', '.join(brief(value, 40, program) for value in given)})" if given else ""
        )
    elif effect.kind == "receive":
        step.what = "receive" if arguments[0] is None else f"receive, at most {render(arguments[0])}"
    else:
        step.what = f"{effect.kind} {', '.join(brief(value, 80, program) for value in arguments)}".strip()
    return step


_SENDS: Final = {"send": "<-", "send_stream": "<~", "parallel_send": "<- (beside others)"}


def _whom(journal: RunJournal, target: Any) -> tuple[str, str]:
    return (journal.agent_of(target), target.pid) if type(target) is Process else ("", "")


def _render_message(message: Any) -> str:
    try:
        return render(message)
    except Exception:  # noqa: BLE001 - a value too large to show is no message that a breakpoint can match
        return ""


# ---------------- The order of a timeline: that in which the program comes to its effects
# Steps are in the order of the rows that answered them. Those of a function that was called ahead of its turn stand
# between the step before the call and the call's own, however early they were answered.


def in_program_order(steps: Iterable[TimelineStep], pids: Iterable[str]) -> list[TimelineStep]:
    """Return the steps of all processes, those of each in its own order; the `seq` of each is where it counts."""
    by_pid: dict[str, list[TimelineStep]] = {pid: [] for pid in pids}
    for step in steps:
        by_pid[step.pid].append(step)
    inner = {child for own in by_pid.values() for step in own for child in _list_called(step, by_pid)}
    placed: list[TimelineStep] = []
    for pid in by_pid:
        if pid not in inner:
            _place(pid, by_pid, placed)
    ranked = sorted(range(len(placed)), key=lambda index: (placed[index].seq, index))
    return [placed[index] for index in ranked]


def _list_called(step: TimelineStep, by_pid: dict[str, list[TimelineStep]]) -> list[str]:
    """Return the processes of the functions that a step was the call of."""
    return [child for child in step.children if child in by_pid] if step.kind == "ahead_take" else []


def _place(root: str, by_pid: dict[str, list[TimelineStep]], placed: list[TimelineStep]) -> None:
    """Place a process with all that it calls. Calls inside calls may be deep, so this does not call itself."""
    reached = 0
    lines: list[Iterator[tuple[TimelineStep, str]]] = [_line(root, by_pid)]
    while lines:
        step, child = next(lines[-1], (None, ""))
        if child:
            lines.append(_line(child, by_pid))
        elif step is None:
            lines.pop()
        else:
            step.seq = reached = max(step.seq, reached)
            placed.append(step)


def _line(pid: str, by_pid: dict[str, list[TimelineStep]]) -> Iterator[tuple[TimelineStep, str]]:
    """Each step of a process, and before it the processes that it waited for, by name."""
    for step in by_pid[pid]:
        for child in _list_called(step, by_pid):
            yield step, child
        yield step, ""


class EndOfRecord(asyncio.CancelledError):
    """The journal has no more rows of this process: its fiber and its early calls are cancelled."""


_END_OF_JOURNAL: Final = "end of journal"


class JournalAnswers(dict[Any, Any]):
    """What the journal answers one process, with a marker behind the last answer.

    A kernel ends the replay of a process that has used all its answers, and the process continues by itself. The marker
    is never used, so the process stays in its replay: it stops where `pop` finds no answer.
    """

    def __init__(self, entries: Mapping[Any, Entry]) -> None:
        super().__init__(entries)
        self[_END_OF_JOURNAL] = Entry(_END_OF_JOURNAL, "", b"")

    def open_keys(self) -> Iterator[Any]:
        """Return the keys of the answers that were not used."""
        return (key for key in self if key != _END_OF_JOURNAL)


class RecordedReplay(JournalAnswers):
    """The answers of a process whose every step is written down. `taken` are the keys of those that it used on its own
    line since the reader last cleared the list; `beside` those of each branch beside it, by its path."""

    def __init__(self, entries: dict[Any, Entry], process: KernelProcess, journal: RunJournal) -> None:
        super().__init__(entries)
        self._process = process
        self._journal = journal
        self._kept = journal.checkpoints.get(process.pid, {})
        self.taken: list[Any] = []
        self.beside: dict[str, list[Any]] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self._real(key), default)

    def pop(self, key: Any, default: Any = None) -> Any:  # noqa: ARG002 - as a dict has it
        real = self._real(key)
        entry = super().get(real)
        if entry is None or not entry.done or (entry.kind == "sleep" and not self._is_over(real, entry)):
            raise EndOfRecord
        if type(key) is int and real != key:
            self._process.keys, self._process.rng = real + 1, None
        (self.taken if type(real) is int else self.beside.setdefault(real.rpartition("/")[0], [])).append(real)
        return super().pop(real)

    def find_branch_answers(self, path: str) -> list[Any]:
        """Return what the journal answered a call that was made beside others: where it was made again, that."""
        return self.beside.get(f"{path}.again") or self.beside.get(path, [])

    def _real(self, key: Any) -> Any:
        """Return the key in the journal: behind a checkpoint that was kept here, or of a call that was made ahead of
        its turn, turned out to be another one, and was made again."""
        while type(key) is int and key in self._kept and key not in self:
            key += 1
        if type(key) is str and key.startswith("ahead"):
            path, _, number = key.rpartition("/")
            again = f"{path}.again/{number}"
            return again if again in self else key
        return key

    def _is_over(self, key: Any, entry: Entry) -> bool:
        return self._journal.went_on(self._process.pid, key) or entry.due <= self._journal.last_at


class OnlyVega(Programs):
    """The programs of a replay: only Vega processes run. Answers of agents and supervisors come from the journal."""

    __slots__ = ("_process",)

    def __init__(
        self, process: Callable[..., Any], became_known: Callable[[str], None], programs: Iterable[Any]
    ) -> None:
        self._process = process
        super().__init__(became_known, programs)

    def get(self, name: str) -> Any:
        return self._process if name == VEGA_PROCESS else None


def replay_seams(process: Callable[..., Any]) -> Seams:
    """Return the kernel of a replay: only `process` runs, and a program that gives up on another process does not end
    it, as that one may have more to tell."""
    return Seams(programs=partial(OnlyVega, process), kills=False)


class FrozenWorld(World):
    """The World of a replay: no agent is asked, so no agent has a process."""

    def plan(self, name: str, settings: dict[str, Any]) -> AgentPlan:
        """Tools of other servers are not looked for."""
        kept = {key: value for key, value in settings.items() if key not in ("tools", "output_tools")}
        return super().plan(name, kept)

    def slot(self, pid: str, plan: AgentPlan, promised: AgentSlot | None = None) -> AgentSlot:  # noqa: ARG002 - no agent is asked early
        return self.agent_slots.setdefault(pid, _Absent(plan))

    def fiber(self, seed: Any, linked: LinkedProgram | None = None) -> Fiber:
        linked = linked or self.linked
        if seed is None:
            return RecordingFiber.start(linked)
        function, arguments, globals_ = self.read(seed)
        fiber = RecordingFiber.call(linked, function, arguments, pad_globals(linked, globals_))
        fiber.depth = depth_of(seed)
        return fiber


def depth_of(seed: Any) -> int:
    """Return how deep a process that began like this is in the calls of the process that waits for it."""
    return int(seed.get("depth", 0)) if type(seed) is dict else 0


class _Absent(AgentSlot):
    __slots__ = ()

    async def ready(self) -> None:
        raise EndOfRecord

    def room(self, outer: AgentTurn | None) -> None:
        """No call waits for a turn in a replay."""


class RecordingFiber(Fiber):
    """A fiber that keeps the messages it was given."""

    __slots__ = ("_told", "expired", "heard")

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.heard: list[Any] = []
        self.expired = False
        self._told: tuple[TimelineStep, int] | None = None  # the last message, and how many there were with it

    def note_message(self, step: TimelineStep, answer: JournaledAnswer) -> None:
        """Note the message that a receive was given; whether it wants that shows when it has looked."""
        if answer.is_receive and answer.heard:
            self._told = (step, len(self.mailbox or ()))

    def note_mailbox(self, outcome: Any) -> None:
        """Note, after the fiber has run on, whether it took the last message: one that it left stays in the mailbox."""
        if self._told is None or type(outcome) is OutOfFuel:
            return
        (step, count), self._told = self._told, None
        if type(outcome) is VmEffect and outcome.kind == "receive" and len(self.mailbox or ()) == count:
            step.what, step.result = "a message comes", f"{step.result} stays in the mailbox"

    def deliver(self, message: Any) -> None:
        self.heard.append(copy_value(message))
        super().deliver(message)

    def expire(self) -> None:
        self.expired = True
        super().expire()


class ReplayRecord:
    """The record of a replay: nothing is written, since the journal has it."""

    def name(self, name: str, pid: str) -> None:
        """Kept by the world alone."""

    def get_session_costs(self, session: str) -> dict[str, int]:  # noqa: ARG002 - as the record has it
        return {}

    def pay(self, sessions: list[str], usage: Usage) -> None:
        """Not written: the journal has it."""

    def leave(self, session: str) -> None:
        """Nothing was paid in it."""


class PrintlessRecord(ReplayRecord):
    """A replay record that drops printed lines: the steps of the timeline have them."""

    def print(self, pid: str, number: int, text: str) -> None:
        """Not shown: the step of the timeline has it."""


_FOR_EVER_S: Final = 1e9


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._ahead_s = 0.0
        self.idle: Callable[[], object] | None = None
        selector: Any = self._selector  # type: ignore[attr-defined]
        self._look = selector.select
        selector.select = self._select

    def time(self) -> float:
        return self._ahead_s

    def _select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout > 0:
            self._ahead_s += timeout or 0.0
            if self.idle is not None and (timeout is None or self._ahead_s > _FOR_EVER_S):
                self.call_soon(self.idle)
                self.idle = None
        return self._look(0 if self.idle is not None or timeout is not None else 0.001)


def run_in_virtual_time(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `work` to its end. The event that it gets is set when no task can continue."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _VirtualTimeLoop)
        loop.set_exception_handler(lambda *_: None)  # tasks that came to the end of their record
        all_wait = asyncio.Event()
        loop.idle = all_wait.set
        await work(all_wait)

    with asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner:
        runner.run(main())


# A replay has no time to save: it says that no call is made ahead.

SILENT: Final = frozenset({"ahead_begin", "ahead_start", "ahead_promise", "ahead_look", "ahead_end"})


def answer_quietly(fiber: Fiber, effect: VmEffect) -> bool:
    """Answer a quiet effect; False for any other."""
    if effect.kind not in SILENT:
        return False
    if effect.kind == "ahead_begin":
        fiber.resume(EarlyCallGroup(0, is_kept=True))
    elif effect.kind == "ahead_end":
        fiber.resume(None)
    else:
        refusal = NotEarly("a replay makes every call in its turn")
        fiber.throw(refusal.name, refusal.text)
    return True
