"""Questions to a human: each has a kind, an owner, a time to live and, in the end, an answer.

The table of kinds is the requirement document's, with `in_doubt` added for effects whose outcome nobody knows. A
process that asks waits; the question and its answer are journaled, so a restart asks nothing twice. Pending
questions are found by pid, oldest first. Expiry is looked at when somebody looks, and by a timer for questions that
a process waits on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core import codec
from lyra.core.check import sendable_text
from lyra.core.effect import canonical_hash
from lyra.core.faultpoint import SimulatedCrash
from lyra.core.limits import ENDED_INTERRUPTS_KEPT
from lyra.errors import ConfigError, Corrupt, DeadlineExceeded, InvalidTransition
from lyra.kernel import rows
from lyra.kernel.door import met_again, recalled
from lyra.kernel.process import Process, resume, suspend

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.kernel import Kernel

__all__ = ["KINDS", "Answer", "Interrupt", "Interrupts", "KindRules"]


class KindRules(NamedTuple):
    ttl_s: float | None
    require_response: bool


KINDS: Final[dict[str, KindRules]] = {
    "clarification": KindRules(24 * 3600.0, True),
    "confirmation": KindRules(3600.0, True),
    "agent_review": KindRules(1800.0, True),
    "checkpoint": KindRules(None, False),
    "resource_exhausted": KindRules(300.0, False),
    "timeout": KindRules(300.0, False),
    "system_error": KindRules(3600.0, False),
    "in_doubt": KindRules(None, True),  # only a person knows; it never answers itself
}

DECISIONS_IN_DOUBT: Final = ("retry", "skip", "fail")


class Answer(msgspec.Struct, frozen=True):
    """What came back."""

    text: str = ""
    approved: bool | None = None  # None: not said
    decision: str = ""
    data: Any = None


class Interrupt(msgspec.Struct):
    id: str
    pid: str
    kind: str
    question: str = ""
    message: str = ""
    status: str = "pending"  # → resolved | expired | cancelled
    created_at: float = 0.0
    expires_at: float | None = None
    resolved_at: float | None = None
    response: Answer | None = None
    reason: str = ""
    seq: int = 0  # the journal row that ended it


class Interrupts:
    __slots__ = ("_by_id", "_by_pid", "_ended", "_kernel", "_timers", "_waiters")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._by_id: dict[str, Interrupt] = {}
        self._by_pid: dict[str, list[str]] = {}
        self._waiters: dict[str, list[Any]] = {}
        self._timers: dict[str, Timer] = {}
        self._ended: deque[str] = deque()

    # ------------------------------------------------------------------ for people

    def pending(self, pid: str | None = None) -> list[Interrupt]:
        """Unanswered questions, oldest first; of one process or of all."""
        ids = self._by_pid.get(pid, []) if pid is not None else list(self._by_id)
        return [found for key in ids if (found := self._by_id[key]).status == "pending"]

    def get(self, interrupt_id: str) -> Interrupt:
        found = self._by_id.get(interrupt_id)
        if found is None:
            raise InvalidTransition(f"no interrupt {interrupt_id}", id=interrupt_id)
        return found

    def resolve(self, interrupt_id: str, response: Answer | Mapping[str, Any]) -> int:
        """Answer a question; gives the journal seq of the answer. A second answer is refused."""
        interrupt = self.get(interrupt_id)
        answer = _answer(response)
        if interrupt.status != "pending":
            raise InvalidTransition(
                f"interrupt {interrupt_id} is {interrupt.status} already", id=interrupt_id, status=interrupt.status
            )
        if KINDS[interrupt.kind].require_response and answer == Answer():
            raise ConfigError(
                f"a {interrupt.kind} needs an answer", hint="give text, approved, decision or data", id=interrupt_id
            )
        if interrupt.kind == "in_doubt" and answer.decision not in DECISIONS_IN_DOUBT:
            raise ConfigError(f"decision is {answer.decision!r}", hint="decide retry, skip or fail", id=interrupt_id)
        interrupt.response = answer
        return self._end(interrupt, "resolved", row=rows.InterruptEnded(interrupt_id, rows.Raw(codec.encode(answer))))

    def cancel(self, interrupt_id: str, reason: str = "cancelled") -> int:
        interrupt = self.get(interrupt_id)
        if interrupt.status != "pending":
            raise InvalidTransition(
                f"interrupt {interrupt_id} is {interrupt.status} already", id=interrupt_id, status=interrupt.status
            )
        interrupt.reason = reason
        return self._end(interrupt, "cancelled", row=rows.InterruptEnded(interrupt_id, reason=reason))

    # ------------------------------------------------------------------ for processes

    async def ask(self, process: Process, *, kind: str, key: rows.Key, question: str, message: str = "") -> Answer:
        """Raise a question and wait for its answer; on replay, the answer that was given."""
        sendable_text(question, "a question")
        sendable_text(message, "a message to a human")
        if kind not in KINDS:
            raise ConfigError(f"no interrupt kind {kind!r}", hint=f"one of {', '.join(KINDS)}")
        digest = canonical_hash("ask", (kind, question), {}) if self._kernel.journal is not None else b""
        interrupt: Interrupt | None = None
        if process.recall is not None:
            entry = recalled(process, key, "ask", kind, digest)
            if entry is not None and entry.done:
                if entry.error is not None:
                    await met_again(process, entry.error)
                return _answer(codec.decode(await self._kernel.value_of(entry)))
            if entry is not None:
                interrupt = self._by_id[entry.link]
        if interrupt is None:
            interrupt = self.create(process, kind, question=question, message=message, key=key, digest=digest)
        journal = self._kernel.journal
        try:
            if interrupt.status == "pending":  # a restored one may be answered before its program is back here
                await suspend(process, self._waiters.setdefault(interrupt.id, []))
            if journal is not None:
                await journal.durable(process, interrupt.seq)
        except BaseException as error:
            self._given_up(process, key, kind, digest, interrupt, error)
            raise
        if interrupt.status != "resolved":
            raise DeadlineExceeded(
                interrupt.reason or f"nobody answered {interrupt.id}", id=interrupt.id, status=interrupt.status
            )
        assert interrupt.response is not None
        return interrupt.response

    def _given_up(
        self, process: Process, key: rows.Key, kind: str, digest: bytes, interrupt: Interrupt, error: BaseException
    ) -> None:
        """Whoever asked was cancelled and may go on without an answer: the question is taken back."""
        if self._kernel.stopping or process.exit is not None or isinstance(error, (GeneratorExit, SimulatedCrash)):
            return
        if interrupt.status == "pending":
            self.cancel(interrupt.id, "nobody waits for the answer any more")
        self._kernel.door.cut_short(process, key, error, form="ask", name=kind, digest=digest)

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
        kernel = self._kernel
        now = kernel.clock.now()
        ttl_s = KINDS[kind].ttl_s
        interrupt = Interrupt(
            id=f"int_{kernel.entropy.text(16)}",
            pid=process.pid,
            kind=kind,
            question=question,
            message=message,
            created_at=now,
            expires_at=None if ttl_s is None else now + ttl_s,
        )
        row = rows.InterruptRaised(interrupt.id, kind, key, digest, question, message, interrupt.expires_at)
        kernel.record(process.pid, "interrupt.created", row)
        self._keep(interrupt)
        return interrupt

    def restore(self, interrupt: Interrupt) -> None:
        """Put a pending question back after a restart; its time to live ran on meanwhile."""
        if interrupt.kind not in KINDS:
            raise Corrupt(f"interrupt {interrupt.id} is of a kind {interrupt.kind!r} that nobody knows")
        self._keep(interrupt)

    def cancel_all(self, pid: str, reason: str) -> None:
        """The process ended: nobody needs its answers."""
        for interrupt in self.pending(pid):
            self.cancel(interrupt.id, reason)

    def cancel_unasked(self, pid: str, reason: str) -> None:
        """Take back questions that came from the journal and that the program did not come to ask again."""
        for interrupt in self.pending(pid):
            if not self._waiters.get(interrupt.id):
                self.cancel(interrupt.id, reason)

    def forget(self, pid: str) -> None:
        """Take a process's questions off the list without a row (it may come back)."""
        for interrupt_id in self._by_pid.pop(pid, []):
            self._by_id.pop(interrupt_id, None)
            timer = self._timers.pop(interrupt_id, None)
            if timer is not None:
                timer.cancel()

    def _keep(self, interrupt: Interrupt) -> None:
        self._by_id[interrupt.id] = interrupt
        self._by_pid.setdefault(interrupt.pid, []).append(interrupt.id)
        if interrupt.expires_at is not None:
            clock = self._kernel.clock
            due = clock.monotonic() + max(0.0, interrupt.expires_at - clock.now())
            self._timers[interrupt.id] = clock.call_at(due, lambda: self._expire(interrupt))

    def _expire(self, interrupt: Interrupt) -> None:
        if interrupt.status == "pending" and not self._kernel.stopping:
            interrupt.reason = f"nobody answered the {interrupt.kind} in time"
            self._end(interrupt, "expired", row=rows.InterruptEnded(interrupt.id, reason=interrupt.reason))

    def _end(self, interrupt: Interrupt, status: str, *, row: rows.InterruptEnded) -> int:
        interrupt.status = status
        interrupt.resolved_at = self._kernel.clock.now()
        timer = self._timers.pop(interrupt.id, None)
        if timer is not None:
            timer.cancel()
        seq = interrupt.seq = self._kernel.record(interrupt.pid, f"interrupt.{status}", row)
        for waker in self._waiters.pop(interrupt.id, []):
            resume(waker)
        self._ended.append(interrupt.id)
        if len(self._ended) > ENDED_INTERRUPTS_KEPT:
            old = self._by_id.pop(self._ended.popleft(), None)
            if old is not None and old.id in self._by_pid.get(old.pid, ()):
                self._by_pid[old.pid].remove(old.id)
                if not self._by_pid[old.pid]:
                    del self._by_pid[old.pid]
        return seq

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


def _answer(response: Answer | Mapping[str, Any]) -> Answer:
    if isinstance(response, Answer):
        return response
    try:
        return msgspec.convert(dict(response), Answer)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise ConfigError(f"not an answer: {error}", hint="use text, approved, decision, data") from error
