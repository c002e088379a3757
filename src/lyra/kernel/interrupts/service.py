"""Questions to a human: each has a kind, an owner, a time to live and, in the end, an answer.

A question (`interrupt`) comes from one of two places. A program asks (`ask`) and waits: question and answer are rows of
its process, so a restart asks nothing twice (`program_questions`). Or a caller outside the program raises one about a
process (`create_interrupt`), as pipelines do: those are facts of `InterruptState`. Both are
answered, cancelled, listed and expired by the same methods, and both are in one queue (`interrupt.Line`), by pid,
oldest first. A question expires by a timer, or when it is read after its time.

The service never interprets an answer: the program, or the pipeline's resume stages, do. A question or an answer of a
process that has read text from outside is `tainted`, and marks the process that reads it. `_find`, `_oldest`,
`_open_questions`, `_answer` and `_withdraw` are for the layers of Lyra: they mark no reader and ask for no right.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import check_keys, real, sendable_text
from lyra.core.effect import canonical_hash
from lyra.core.faultpoint import SimulatedCrash
from lyra.errors import (
    CapabilityDenied,
    ConfigError,
    Corrupt,
    DeadlineExceeded,
    Denied,
    InvalidTransition,
    NoSuchInterrupt,
)
from lyra.kernel.base.acting import check_right, require
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.base.waiting import suspend
from lyra.kernel.interrupts.interrupt import (
    DECISIONS_IN_DOUBT,
    KINDS,
    STATUSES,
    Answer,
    ExpiryTimers,
    FlowInterrupt,
    Interrupt,
    InterruptConfig,
    InterruptKind,
    InterruptState,
    InterruptStatus,
    Line,
    check_word,
)
from lyra.kernel.interrupts.program_questions import OutsideQuestions, ProgramQuestions
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import durable_value
from lyra.kernel.process.cut_short import cut_short
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import raise_journaled, take_entry

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core

__all__ = [
    "KINDS",
    "STATUSES",
    "Answer",
    "FlowInterrupt",
    "Interrupt",
    "InterruptConfig",
    "InterruptKind",
    "InterruptService",
    "InterruptState",
    "InterruptStatus",
    "Interrupts",
    "unknown_interrupt",
]

_log: Final = logging.getLogger("lyra.kernel")


_IN_DOUBT: Final = "in_doubt"
_QUESTION: Final = "a question to a person"  # the origin named when its text marks a process
_OF_AN_ANSWER: Final = Answer.__struct_fields__
_WAITS: Final = "process %s waits for a person: %s (%s)"


def require_answer(interrupt: Interrupt) -> None:
    """Raise CapabilityDenied if the process that runs here may not answer this question. Its own questions, too, it
    answers only where a rule says so: a process must not allow itself more than it may."""
    require("process.send", interrupt.pid)


class InterruptService(Subsystem):
    """Every question there is."""

    __slots__ = (
        "_core",
        "_line",
        "_outside",
        "_programs",
        "_timers",
        "is_needed",
        "on_answered",
        "on_asked",
        "on_doubt",
        "on_program_asked",
        "on_raised",
        "owner_of",
        "state",
    )

    def __init__(self, core: Core[Process]) -> None:
        self._core = core
        self._line = Line()
        self._timers = ExpiryTimers(core, self._expire)
        self._programs = ProgramQuestions(core, self._line, self._timers)
        self._outside = OutsideQuestions(core, self._line, self._timers)
        self.state: InterruptState = self._outside.state
        # Filled in by the parts above: who owns a pid that is no program's, and who is told about questions.
        self.owner_of: Callable[[str], Any]  # LifecycleManager.owner
        self.on_asked = self._outside.on_asked  # with the pid of a question from outside a program
        self.on_answered = self._outside.on_answered  # with the pid of one that was answered, cancelled or expired
        self.on_doubt: list[Callable[[Interrupt], None]] = []  # with a question about an effect in doubt
        self.on_raised: list[Callable[[Interrupt], None]] = []  # with every question of a program
        # The same for parts that pass a question on, and through which no person hears of it by themselves:
        self.on_program_asked: list[Callable[[Interrupt], None]] = []
        self.is_needed: list[Callable[[Interrupt], bool]] = []  # whether an answer is still to be taken up

    # ------------------------------------------------------------------ for people

    def pending(self, pid: str | None = None) -> list[Interrupt]:
        """Unanswered questions that a program waits on, oldest first; of one process or of all."""
        return [self._read(interrupt) for interrupt in self._open_questions(pid)]

    def _open_questions(self, pid: str | None = None, *, outside: bool = False) -> list[Interrupt]:
        """Return the open questions for a reader that passes no text on; with `outside`, those of one process that its
        program did not ask."""
        if pid is not None:
            return self._line.list_open(self._find_known_pid(pid), outside=outside)
        return [interrupt for interrupt in self._programs.by_id.values() if interrupt.status == "pending"]

    def _read(self, interrupt: Interrupt) -> Interrupt:
        """Return a question whose text goes to the process that runs here. What its own program has asked brings it
        nothing new."""
        is_own = interrupt.id in self._programs.by_id and self._core.taint.is_marked_here(self.asker(interrupt))
        if interrupt.tainted and not is_own:
            self._core.taint.mark_here(_QUESTION)
        return interrupt

    def asker(self, interrupt: Interrupt) -> str:
        """Return the pid of the asking process itself, not that of its guard."""
        return self._programs.asker(interrupt)

    def _find_known_pid(self, pid: str) -> str:
        """Return the pid by which a process and its questions are known: that of its guard, if it has one."""
        process = self._core.processes.get(_text(pid))
        return pid if process is None else process.known_as

    def get(self, interrupt_id: str) -> Interrupt:
        return self._read(self._find(interrupt_id))

    def _find(self, interrupt_id: str) -> Interrupt:
        interrupt = None
        if isinstance(interrupt_id, str):
            interrupt = self._programs.by_id.get(interrupt_id) or self.state.by_id.get(interrupt_id)
        if interrupt is None:
            raise unknown_interrupt(interrupt_id)
        return interrupt

    @property
    def configs(self) -> dict[str, InterruptConfig]:
        """Return how each kind behaves in this kernel."""
        return self.state.configs

    def lives_longer(self, kind: str, age_s: float) -> bool:
        """Return whether a question of that kind can still be answered after `age_s` seconds."""
        config = self.configs.get(kind)
        return config is not None and (
            config.default_ttl is None or not config.auto_expire or age_s < config.default_ttl
        )

    def resolve(self, interrupt_id: str, response: Answer | Mapping[str, Any], *, user_id: str | None = None) -> int:
        """Answer a question; gives the journal seq of the answer. A second answer is refused."""
        interrupt = self._find(interrupt_id)
        require_answer(interrupt)
        return self._answer(interrupt, response, user_id=user_id)

    def _answer(self, interrupt: Interrupt, response: Answer | Mapping[str, Any], *, user_id: str | None = None) -> int:
        core = self._core
        core.raise_if_elsewhere()
        interrupt_id = interrupt.id
        if self._overdue(interrupt):
            self._expire(interrupt)
        self._raise_if_over(interrupt)
        if isinstance(response, Mapping):
            check_keys(response, _OF_AN_ANSWER, "an answer")
        answer = Answer.of(response)
        if user_id and interrupt.user_id and interrupt.user_id != user_id:
            raise Denied(
                f"interrupt {interrupt_id} is not {user_id}'s to answer",
                hint="its owner answers it: user_id in kernel.interrupts.get_interrupt(id)",
                id=interrupt_id,
                user_id=user_id,
            )
        if self.configs[interrupt.kind].require_response and answer.empty:
            raise ConfigError(
                f"a {interrupt.kind} needs an answer", hint="give text, approved, decision or data", id=interrupt_id
            )
        if interrupt.kind == "in_doubt" and answer.decision not in DECISIONS_IN_DOUBT:
            raise ConfigError(f"decision is {answer.decision!r}", hint="decide retry, skip or fail", id=interrupt_id)
        answer = Answer(answer.text, answer.approved, answer.decision, answer.data, core.now())
        core.taint.pass_on_from_here(self.asker(interrupt), "an answer of")
        return self._end(interrupt, "resolved", response=answer, tainted=core.taint.is_here)

    def cancel(self, interrupt_id: str, reason: str = "cancelled") -> int:
        """Take a question back; gives the journal seq of its end."""
        require_answer(self._find(interrupt_id))
        interrupt = self._still_open(interrupt_id)
        self._core.taint.pass_on_from_here(self.asker(interrupt), "the reason of")
        return self._withdraw(interrupt_id, reason, tainted=self._core.taint.is_here)

    def _withdraw(self, interrupt_id: str, reason: str, *, tainted: bool = False) -> int:
        self._core.raise_if_elsewhere()
        interrupt = self._still_open(interrupt_id)
        return self._end(interrupt, "cancelled", reason=sendable_text(reason, "a reason to cancel"), tainted=tainted)

    def _end(
        self,
        interrupt: Interrupt,
        status: str,
        *,
        response: Answer | None = None,
        reason: str = "",
        tainted: bool = False,
    ) -> int:
        """End a question where it is kept; gives the journal seq of its end."""
        home = self._outside if interrupt.id in self.state.by_id else self._programs
        return home.end(interrupt, status, response=response, reason=reason, tainted=tainted)

    def _still_open(self, interrupt_id: str) -> Interrupt:
        interrupt = self._find(interrupt_id)
        if interrupt_id in self.state.by_id and self._overdue(interrupt):
            self._expire(interrupt)
        self._raise_if_over(interrupt)
        return interrupt

    @staticmethod
    def _raise_if_over(interrupt: Interrupt) -> None:
        if interrupt.status != "pending":
            raise InvalidTransition(
                f"interrupt {interrupt.id} is {interrupt.status} already",
                hint="ask again with create_interrupt",
                id=interrupt.id,
                status=interrupt.status,
            )

    # ------------------------------------------------------------------ questions from outside programs

    def create_interrupt(
        self,
        pid: str,
        kind: str,
        message: str = "",
        *,
        question: str = "",
        data: Any = None,
        ttl_s: float | None = None,
        user_id: str | None = None,
        request_id: str | None = None,
        session_id: str | None = None,
        envelope_id: str = "",
        trace_id: str = "",
        span_id: str = "",
    ) -> Interrupt:
        """Put a question about a process to a human. Its owner and its ids are the process's unless said; `ttl_s` is
        the kind's unless said. A running entry of the lifecycle waits until it is answered."""
        core = self._core
        core.raise_if_closed()
        word = check_word(kind, KINDS, "an interrupt's kind")
        require("human.ask", word)
        owner = self.owner_of(pid)  # a pipeline without a process keeps its questions in its envelope
        if owner.terminal:
            raise InvalidTransition(
                f"process {pid} has ended and asks nothing", hint="submit another", pid=pid, state=owner.state
            )
        pid = self._find_known_pid(pid)
        config = self.configs[word]
        life_s = config.default_ttl if ttl_s is None else real(ttl_s, "ttl_s", above=0.0)
        now = core.now()
        row = {
            "id": f"int_{core.entropy.text(16)}" if core.remote is None else core.remote.draw_id(16, "int_"),
            "kind": word,
            "question": sendable_text(question, "a question"),
            "message": sendable_text(message, "a message to a human"),
            "created_at": now,
            "expires_at": None if life_s is None else now + life_s,
            "data": codec.decode(codec.encode(data)),
            "request_id": owner.request_id if request_id is None else sendable_text(request_id, "request_id"),
            "user_id": owner.user_id if user_id is None else sendable_text(user_id, "user_id"),
            "session_id": owner.session_id if session_id is None else sendable_text(session_id, "session_id"),
            "envelope_id": sendable_text(envelope_id, "envelope_id"),
            "trace_id": sendable_text(trace_id, "trace_id"),
            "span_id": sendable_text(span_id, "span_id"),
            "auto_expire": config.auto_expire,
        }
        if core.taint.state.pids and (core.taint.is_here or core.taint.is_tainted(pid)):
            row["tainted"] = True
        with core.listeners.act:
            return durable_value(core, self._outside.begin(pid, row).copy())

    def resolve_interrupt(
        self, interrupt_id: str, response: Answer | Mapping[str, Any], user_id: str | None = None
    ) -> Interrupt:
        """Answer a question, as `user_id` if that is said: another user's question is `Denied`."""
        self._core.raise_if_closed()
        self.resolve(interrupt_id, response, user_id=user_id)
        return durable_value(self._core, self.get_interrupt(interrupt_id))

    def get_interrupt(self, interrupt_id: str) -> Interrupt:
        return self.get(interrupt_id).copy()

    def get_pending_interrupt(self, pid: str) -> Interrupt | None:
        """Return the oldest question of a process that can still be answered; None when there is none."""
        oldest = self._oldest(pid)
        return None if oldest is None else self._read(oldest).copy()

    def _oldest(self, pid: str) -> Interrupt | None:
        if not self._line.by_pid and type(pid) is str:  # no question is open at all
            return None
        pid = self._find_known_pid(pid)
        while (oldest := self._line.first(pid)) is not None and self._overdue(oldest):
            if self._core.stopping or self._core.failure is not None:  # nothing ends any more: look past it
                left = [interrupt for interrupt in self._line.list_open(pid) if not self._overdue(interrupt)]
                return min(left, key=lambda interrupt: interrupt.created_at) if left else None
            self._expire(oldest)
        return oldest

    def list_interrupts(self, pid: str | None = None, *, status: str | None = None) -> list[Interrupt]:
        """Questions of one process or of all, ended ones included, oldest first."""
        if pid is not None:
            _text(pid)
        if status is not None:
            status = check_word(status, STATUSES, "an interrupt's status")
        asked = self._all(None if pid is None else self._find_known_pid(pid))
        chosen = [interrupt for interrupt in asked if status is None or interrupt.status == status]
        return [
            self._read(interrupt).copy() for interrupt in sorted(chosen, key=lambda interrupt: interrupt.created_at)
        ]

    def cancel_interrupt(self, interrupt_id: str, reason: str = "cancelled") -> Interrupt:
        self._core.raise_if_closed()
        self.cancel(interrupt_id, reason)
        return durable_value(self._core, self.get_interrupt(interrupt_id))

    def expire_old_interrupts(self) -> int:
        """End the questions whose time to answer has passed; gives how many. Timers do the same one by one."""
        self._core.raise_if_closed()
        overdue = [interrupt for interrupt in self._all(None) if self._overdue(interrupt)]
        for interrupt in overdue:
            self._expire(interrupt)
        return len(overdue)

    def get_status(self, interrupt_id: str) -> str:
        return self._find(interrupt_id).status

    def has_pending(self, pid: str) -> bool:
        """Return whether one of its questions can still be answered."""
        return self._line.open_until(self._find_known_pid(pid)) > self._core.now()

    def cleanup_process_interrupts(self, pid: str) -> int:
        """Cancel what a process still asks and forget its ended questions; gives how many were forgotten."""
        self._core.raise_if_closed()
        self.cancel_all(_text(pid), "its process was cleaned up")
        return self._outside.forget([ended.id for ended in self._outside.list_for(pid)])

    def cleanup_resolved(self, age_s: float) -> int:
        """Forget questions from outside programs that ended at least `age_s` ago; gives how many. An answer that its
        pipeline has not taken up yet is kept."""
        self._core.raise_if_closed()
        before = self._core.now() - real(age_s, "age_s", least=0.0)
        ended = (self.state.by_id[key] for key in self.state.ended)
        old = [
            interrupt for interrupt in ended if interrupt.resolved_at is not None and interrupt.resolved_at <= before
        ]
        return self._outside.forget(
            [interrupt.id for interrupt in old if not any(needs(interrupt) for needs in self.is_needed)]
        )

    def set_config(self, kind: str, config: InterruptConfig | Mapping[str, Any]) -> None:
        """Change how questions of this kind behave, also after a restart; those already asked keep their time to
        live."""
        word = check_word(kind, KINDS, "an interrupt's kind")
        row = {"kind": word, **msgspec.to_builtins(InterruptConfig.of(config))}
        self._core.setting(self.state, "pcb.interrupt_config", row)

    def get_counts(self) -> dict[str, int]:
        """Return how many questions there are, by status."""
        counts = dict.fromkeys(STATUSES, 0)
        for interrupt in self._all(None):
            counts[interrupt.status] += 1
        return counts

    def _all(self, pid: str | None) -> list[Interrupt]:
        if pid is None:
            return [*self._programs.by_id.values(), *self.state.by_id.values()]
        return [*self._programs.list_for(pid), *self._outside.list_for(pid)]

    def _overdue(self, interrupt: Interrupt) -> bool:
        due = interrupt.expires_at
        return due is not None and interrupt.status == "pending" and interrupt.auto_expire and self._core.now() >= due

    # ------------------------------------------------------------------ for processes

    async def ask(
        self,
        process: Process,
        *,
        kind: str,
        key: rows.Key,
        question: str,
        message: str = "",
        asked: Callable[[str], bool | None] | None = None,
    ) -> Answer:
        """Raise a question and wait for its answer; on replay, give the journaled answer. `asked` is called with its
        id and says whether it was shown to a reader; a question that was not is a line in the log."""
        question = sendable_text(question, "a question")
        message = sendable_text(message, "a message to a human")
        kind = sendable_text(kind, "an interrupt's kind")
        if kind not in KINDS:
            raise ConfigError(f"no interrupt kind {kind!r}", hint=f"one of {', '.join(KINDS)}")
        digest = canonical_hash("ask", (kind, question), {}) if self._core.journal is not None else b""
        interrupt: Interrupt | None = None
        if process.replay is not None:
            entry = take_entry(process, key, "ask", kind, digest)
            if entry is not None and entry.done:
                if entry.error is not None:
                    await raise_journaled(process, entry.error)
                return Answer.of(codec.decode(await self._core.value_of(entry)))
            if entry is not None:
                interrupt = self._programs.by_id[entry.link]
        if interrupt is None:
            try:
                if kind != _IN_DOUBT:  # the kernel's own question about an act that was allowed
                    check_right(process, "human.ask", (kind,))
            except CapabilityDenied as refusal:
                cut_short(process, key, refusal, form="ask", name=kind, digest=digest)
                raise
            interrupt = self.create(process, kind, question=question, message=message, key=key, digest=digest)
        if interrupt.status == "pending":
            is_shown = asked is not None and asked(interrupt.id)  # which may also take it back
            if interrupt.status == "pending" and not (is_shown or kind == _IN_DOUBT or self._is_heard()):
                _log.warning(_WAITS, interrupt.pid, question, interrupt.id)
        journal = self._core.journal
        try:
            if interrupt.status == "pending":  # a restored one may be answered before its program is back here
                await suspend(process, self._programs.waiters.setdefault(interrupt.id, []))
            if journal is not None:
                await journal.durable(process, interrupt.seq)
        except BaseException as error:
            self._take_back(process, key, kind, digest, interrupt, error)
            raise
        if interrupt.status != "resolved":
            raise DeadlineExceeded(
                interrupt.reason or f"no answer came for {interrupt.id}", id=interrupt.id, status=interrupt.status
            )
        assert interrupt.response is not None
        return interrupt.response

    def _take_back(
        self, process: Process, key: rows.Key, kind: str, digest: bytes, interrupt: Interrupt, error: BaseException
    ) -> None:
        """Take the question back: the process that asked was cancelled and may continue without an answer."""
        if self._core.stopping or process.exit is not None or isinstance(error, (GeneratorExit, SimulatedCrash)):
            return
        if interrupt.status == "pending":
            self._withdraw(interrupt.id, "no process waits for the answer any more")
        cut_short(process, key, error, form="ask", name=kind, digest=digest)

    def create(
        self,
        process: Process,
        kind: str,
        *,
        question: str = "",
        message: str = "",
        key: rows.Key | None = None,
        digest: bytes = b"",
    ) -> Interrupt:
        core = self._core
        now = core.now()
        config = self.configs[kind]
        ttl_s = config.default_ttl
        interrupt = Interrupt(
            id=f"int_{core.entropy.text(16)}" if core.remote is None else core.remote.draw_id(16, "int_"),
            pid=process.known_as,
            kind=kind,
            question=question,
            message=message,
            created_at=now,
            expires_at=None if ttl_s is None or not config.auto_expire else now + ttl_s,
            tainted=core.taint.is_tainted(process.pid),
        )
        row = rows.InterruptRaised(interrupt.id, kind, key, digest, question, message, interrupt.expires_at)
        self._programs.keep(process, interrupt)  # before it is told: a listener may answer at once
        core.record(process.pid, "interrupt.created", row)
        if kind == _IN_DOUBT:
            _log.warning(_WAITS, interrupt.pid, question, interrupt.id)
            for in_doubt in self.on_doubt:
                in_doubt(interrupt)
        for asked in (*self.on_program_asked, *self.on_raised):
            asked(interrupt)
        return interrupt

    def _is_heard(self) -> bool:
        """Return whether some part of this program is told of every question."""
        return bool(self.on_raised) or self._core.listeners.wants("interrupt.created")

    def restore(self, process: Process, interrupt: Interrupt) -> None:
        """Put a pending question back after a restart; its time to live ran on meanwhile."""
        if interrupt.kind not in KINDS:
            raise Corrupt(f"interrupt {interrupt.id} is of the unknown kind {interrupt.kind!r}")
        self._programs.keep(process, interrupt)

    def process_ending(self, process: Process) -> None:
        if self._line.list_open(process.known_as):
            self.cancel_all(process.pid, "its process ended")

    def process_diverged(self, process: Process) -> None:
        self.forget(process.pid)

    def replay_dropped(self, process: Process) -> None:
        self.cancel_unasked(process.pid, "its process was told to end")

    def cancel_all(self, pid: str, reason: str) -> None:
        """Cancel the open questions of a process that ended."""
        for interrupt in self._list_own(pid):
            if interrupt.status == "pending" and not self._expire_if_overdue(interrupt):
                self._withdraw(interrupt.id, reason)

    def _expire_if_overdue(self, interrupt: Interrupt) -> bool:
        """Expire a question from outside programs whose time is over before its timer has fired."""
        if interrupt.id not in self.state.by_id or not self._overdue(interrupt):
            return False
        self._expire(interrupt)
        return interrupt.status != "pending"

    def cancel_unasked(self, pid: str, reason: str) -> None:
        """Cancel questions from the journal that the replayed program has not asked again."""
        for interrupt in self._list_own(pid, outside=False):
            if not self._programs.waiters.get(interrupt.id):
                self._withdraw(interrupt.id, reason)

    def _list_own(self, pid: str, *, outside: bool | None = None) -> list[Interrupt]:
        """Return the open questions of this process itself, without those of its guard or of the process it guards."""
        asked = self._line.list_open(self._find_known_pid(pid), outside=outside)
        return [interrupt for interrupt in asked if self.asker(interrupt) == pid] if asked else asked

    def forget(self, pid: str) -> None:
        """Remove a process's questions from memory without a row: the process may be restored from the journal."""
        self._programs.forget(pid, self._find_known_pid(pid))

    def on_restored(self) -> None:
        """After a restart: questions from outside programs are watched again; their time to live ran on meanwhile."""
        for interrupt in self.state.by_id.values():
            if interrupt.kind not in KINDS:
                raise Corrupt(f"interrupt {interrupt.id} is of the unknown kind {interrupt.kind!r}")
            if interrupt.status == "pending":
                self._outside.watch(interrupt)

    def _expire(self, interrupt: Interrupt) -> None:
        if interrupt.status != "pending" or self._core.stopping:
            return
        self._end(interrupt, "expired", reason=f"no answer to the {interrupt.kind} came in time")

    def stop(self) -> None:
        self._timers.stop()


def _text(pid: Any) -> str:
    return sendable_text(pid, "a pid") if type(pid) is not str else pid


Interrupts = InterruptService  # an older name


def unknown_interrupt(interrupt_id: Any) -> NoSuchInterrupt:
    return NoSuchInterrupt(
        f"no interrupt {interrupt_id!r}", hint="kernel.interrupts.list_interrupts() shows them", id=interrupt_id
    )
