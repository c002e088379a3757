"""Admission: the rate limit and the circuit breaker that all processes share for one effect.

A Gate holds the two states that a Policy declares. `admit` lets one call through, makes it wait its turn in line,
or refuses it, by the limit's strategy: `queue` waits however long the line, `reject` never waits, `backpressure`
waits while the line is short and is `Overloaded` when it is not. `TwoGates` is a call that has to pass two: the
agent's own, and then the one of the model that all agents share, so that no call holds room there while it waits here.

With a journal a gate outlives its kernel: what it has let through and what failed behind it are rows (`GateState`), in
the same commit as the calls themselves, and the next kernel begins with levels, failures and an open breaker as the
wall clock has moved them since. A call that was under way was admitted once and is not asked again (`readmit`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core import limits
from lyra.core.effect import Effect, canonical_hash
from lyra.core.limits import EFFECTS_KEPT
from lyra.core.naming import old_names
from lyra.core.policies.breaker import Admission, Admissions, Breaker
from lyra.core.policies.policy import CircuitBreaker, RateLimit, counts_as_failure
from lyra.errors import CircuitOpen, Overloaded, RateLimited
from lyra.kernel.base.subsystem import State, Subsystem
from lyra.kernel.base.waiting import resume, suspend
from lyra.kernel.process.process import Process

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core


_log: Final = logging.getLogger("lyra.kernel")


class GateState:
    """What survives: by gate, when it last moved, the levels of its bucket, and its breaker."""

    NAME: ClassVar[str] = "gates"
    KINDS: ClassVar[frozenset[str]] = frozenset({"gate.moved"})

    def __init__(self) -> None:
        self.moved: dict[str, tuple[float, Any, Any]] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        gate = str(data["gate"])
        self.moved.pop(gate, None)
        self.moved[gate] = (time, data.get("levels"), data.get("breaker"))
        if len(self.moved) > EFFECTS_KEPT:
            del self.moved[next(iter(self.moved))]

    def dump(self) -> Any:
        return self.moved

    def load(self, data: Any) -> None:
        self.moved = {str(gate): (float(time), levels, breaker) for gate, (time, levels, breaker) in data.items()}


class Gate:
    def __init__(
        self, core: Core[Process], state: GateState, name: str, limit: RateLimit | None, admission: Admission
    ) -> None:
        self._core = core
        self._state = state
        self.label = ""
        self.name = name
        self._bucket = admission.bucket
        self._strategy = limit.strategy if limit is not None else "queue"
        self.waiting_max = (limit.burst or 1) if limit is not None else 0
        self._breaker = admission.breaker
        self._per_call = self._breaker is not None and self._breaker.circuit_breaker.per == "call"
        self._line: deque[deque[Any]] = deque()
        self._busy = False
        self._shares: Any = None  # of a limit that holds over the shards of a cluster: remote.shares.SharedBucket
        if core.journal is not None:
            limits_word = _limits(limit, self._breaker).hex()[:16]
            if limit is not None and core.remote is not None:
                shared = core.remote.shares.make_bucket(f"{name} {limits_word}", limit)
                if shared is not None:
                    self._bucket = self._shares = shared
            self.label = f"{name} {limits_word}"
            self._come_back([self.label, *(f"{old} {limits_word}" for old in old_names(name))])

    # ------------------------------------------------------------------ across restarts

    def _come_back(self, labels: Iterable[str]) -> None:
        """Load levels saved by the last kernel, aged by the time passed. A bucket or breaker already used in this
        process keeps its own."""
        moved = self._state.moved
        before = next((moved[label] for label in labels if label in moved), None)
        if before is None:
            return
        saved_s, levels, breaker = before
        clock = self._core.clock
        now, passed_s = clock.monotonic(), max(0.0, self._core.now() - saved_s)
        if self._bucket is not None and levels is not None and self._bucket.is_unused:
            self._bucket.load(levels, now - passed_s)
        if self._breaker is not None and breaker is not None and self._breaker.at_rest:
            self._breaker.load(breaker, now - passed_s)

    def _journal_levels(self) -> None:
        """Journal the levels, beside the rows of the call that changed them."""
        core = self._core
        if self.label and not core.stopping:
            now = core.clock.monotonic()
            row: dict[str, Any] = {"gate": self.label}
            if self._bucket is not None:
                row["levels"] = self._bucket.to_data(now)
            if self._breaker is not None:
                row["breaker"] = self._breaker.to_data(now)
            core.fact(self._state, "", "gate.moved", row)

    def readmit(self) -> None:
        """Readmit a call that continues and that an earlier kernel has admitted."""
        if self._breaker is not None:
            self._breaker.readmit()

    # ------------------------------------------------------------------ admission

    @property
    def in_use(self) -> bool:
        """A call waits here, or the breaker is not at rest."""
        return self._busy or bool(self._line) or (self._breaker is not None and self._breaker.state != "closed")

    def ready_in(self, requests: int, *, timed: bool) -> float:
        """Seconds until it refuses none of so many calls; and makes none wait, where their time is limited."""
        now = self._core.clock.monotonic()
        wait_s = 0.0 if self._breaker is None else self._breaker.ready_in(now)
        if self._bucket is not None and (timed or self._strategy != "queue"):
            wait_s = max(wait_s, self._bucket.ready_in(now, requests))
        return wait_s

    def admit(self, process: Process, tokens: int, again: bool = False) -> Awaitable[None] | None:
        """Let a call through that is expected to take so many tokens; `again` for a retry of it.

        None where it may be made at once, which is the rule; else what to await before it may.
        """
        if self._bucket is not None:
            wait_s = 0.0 if self._busy else self._bucket.take(self._core.clock.monotonic(), tokens)
            if self._busy or wait_s > 0:
                return self._admit_in_turn(process, wait_s, tokens, again)
            if self.label:
                self._journal_levels()
        if self._breaker is not None and self._breaker.state != "closed":
            self._pass_breaker(self._breaker, tokens, again)
        return None

    async def _admit_in_turn(self, process: Process, wait_s: float, tokens: int, again: bool) -> None:
        await self._queue(process, wait_s, tokens)
        if self._breaker is not None and self._breaker.state != "closed":
            self._pass_breaker(self._breaker, tokens, again)

    def _pass_breaker(self, breaker: Breaker, tokens: int, again: bool) -> None:
        if again and self._per_call:  # a call passes it once
            return
        try:
            breaker.admit(self._core.clock.monotonic())
        except CircuitOpen:
            if self._bucket is not None:
                self._bucket.refund(tokens)  # no call was made
                self._journal_levels()
            raise
        self._journal_levels()

    def undo(self, tokens: int, again: bool = False) -> None:
        """Undo the admission of a call that is not made after all."""
        if self._bucket is not None:
            self._bucket.refund(tokens)
            self._journal_levels()
        if self._breaker is not None and not (again and self._per_call):
            self._breaker.abandon()

    def abandon(self) -> None:
        """Abandon a call that ended between two tries of it."""
        if self._breaker is not None and self._per_call:
            self._breaker.abandon()

    def adjust(self, tokens: int) -> None:
        """Note that a call took so many tokens a minute more (negative: fewer) than were set aside for it."""
        if self._bucket is not None:
            self._bucket.adjust(tokens)
            if self.label:
                self._journal_levels()

    async def _queue(self, process: Process, wait_s: float, tokens: int) -> None:
        """First come, first served: only the head of the line asks the bucket."""
        if self._shares is not None and self._strategy != "queue" and not self._busy:
            await self._shares.fetch(tokens)  # whether it is over its rate is known at the home of the limit
            is_free = not self._busy  # another call may have come meanwhile
            if is_free and self._shares.take(self._core.clock.monotonic(), tokens) == 0:
                self._journal_levels()
                return
        if self._strategy == "reject":
            raise RateLimited(
                f"{self.name} is over its rate; the next call fits in {wait_s:.2f} s",
                effect=self.name,
                retry_after_s=wait_s,
            )
        waiting = len(self._line) + self._busy
        if self._strategy == "backpressure" and waiting >= self.waiting_max:
            raise Overloaded(
                f"{self.name} is over its rate and {waiting} calls are waiting already",
                effect=self.name,
                retry_after_s=wait_s,
            )
        bucket = self._bucket
        assert bucket is not None
        if self._busy:
            turn: deque[Any] = deque()
            self._line.append(turn)
            try:
                await suspend(process, turn)
            except BaseException:
                if turn in self._line:
                    self._line.remove(turn)
                else:  # cancelled with the turn already in hand: pass it on
                    self._next()
                raise
        self._busy = True
        try:
            while (wait_s := bucket.take(self._core.clock.monotonic(), tokens)) > 0:
                if self._shares is not None:
                    wait_s = await self._shares.fetch(tokens)
                await self._core.pause(process, wait_s)
            self._journal_levels()
        finally:
            self._next()

    def _next(self) -> None:
        """Hand the turn to the next in line; the gate stays busy meanwhile, so no call jumps the queue."""
        self._busy = bool(self._line)
        if self._line:
            resume(self._line.popleft().popleft())

    def record_success(self) -> None:
        breaker = self._breaker
        if breaker is not None and not breaker.at_rest:
            state = breaker.success(self._core.clock.monotonic())
            self._journal_levels()
            self._tell(state)

    def record_failure(self, error: BaseException, last: bool = True) -> None:
        """Only failures of the service count; a bad request or a cancelled call says nothing about its health.

        `last` is False where the call is tried again.
        """
        if self._breaker is None or (self._per_call and not last):
            return
        if counts_as_failure(error):
            state = self._breaker.failure(self._core.clock.monotonic())
            self._journal_levels()
            self._tell(state)
        else:
            self._breaker.abandon()

    def move_breaker(self, data: list[Any]) -> None:
        """Do as the breaker of this gate on another shard, which has opened or closed."""
        if self._breaker is not None:
            self._breaker.load(data, self._core.clock.monotonic())
            self._journal_levels()

    def _tell(self, state: str | None) -> None:
        """Call the breaker's callbacks. One that fails has no say in what becomes of the call."""
        remote = self._core.remote
        if remote is not None and self.label and self._breaker is not None and state in ("open", "closed"):
            remote.shares.tell_breaker(self.label, state, self._breaker.failures)
        callback = self._breaker.circuit_breaker.callback(state) if state and self._breaker is not None else None
        if callback is None:
            return
        try:
            running = callback()
        except Exception:  # noqa: BLE001 (it is the user's, and may raise anything)
            _log.exception("a callback of the circuit breaker of %s failed", self.name)
            return
        if isinstance(running, Awaitable):
            self._core.in_flight += 1  # a kernel that closes lets it end
            self._core.tasks.start(self._finish_callback(running), name=f"lyra-breaker-{self.name}")

    async def _finish_callback(self, running: Awaitable[object]) -> None:
        try:
            await running
        except Exception:  # noqa: BLE001 (it is the user's, and may raise anything)
            _log.exception("a callback of the circuit breaker of %s failed", self.name)
        finally:
            self._core.in_flight -= 1
            self._core.came_to_its_end()


class TwoGates:
    """An effect's own gate and the one it shares with others, passed in this order. Only its own has a breaker."""

    __slots__ = ("_own", "_shared")

    def __init__(self, own: Gate, shared: Gate) -> None:
        self._own = own
        self._shared = shared

    async def admit(self, process: Process, tokens: int, again: bool = False) -> None:
        if (own := self._own.admit(process, tokens, again)) is not None:
            await own
        try:
            if (shared := self._shared.admit(process, tokens)) is not None:
                await shared
        except BaseException:
            self._own.undo(tokens, again)
            raise

    def ready_in(self, requests: int, *, timed: bool) -> float:
        return max(gate.ready_in(requests, timed=timed) for gate in (self._own, self._shared))

    def readmit(self) -> None:
        self._own.readmit()

    def abandon(self) -> None:
        self._own.abandon()

    def adjust(self, tokens: int) -> None:
        self._own.adjust(tokens)
        self._shared.adjust(tokens)

    def record_success(self) -> None:
        self._own.record_success()

    def record_failure(self, error: BaseException, last: bool = True) -> None:
        self._own.record_failure(error, last)


def _limits(limit: RateLimit | None, breaker: Breaker | None) -> bytes:
    """Return what tells a gate from another of the same name: other limits are another gate."""
    rate = () if limit is None else (limit.requests_per_minute, limit.tokens_per_minute, limit.burst, limit.strategy)
    rule = None if breaker is None else breaker.circuit_breaker
    held = () if rule is None else (rule.threshold, rule.reset_after, rule.half_open_max, rule.per)
    return canonical_hash("gate", (rate, held), {})


_NO_KEYWORDS: dict[str, Any] = {}


class Declared(Subsystem):
    def __init__(self, core: Core[Process]) -> None:
        self._core = core
        self.gate_state = GateState()
        self._effects: dict[Any, Effect] = {}
        self.gates: dict[Any, Gate] = {}
        self._gate_of: dict[Effect, Gate | TwoGates] = {}  # found before; hashing limits takes longer than passing them

    def states(self) -> tuple[State, ...]:
        return (self.gate_state,)

    def resolve(self, act: Any, options: dict[str, Any]) -> tuple[Effect, dict[str, Any]]:
        """Return the declared effect behind a function and options, and the keywords that are the function's own."""
        if not options:
            try:
                effect = self._effects.get(act)
            except TypeError:  # something callable without a hash
                return Effect.of(act), _NO_KEYWORDS
            if effect is None:
                effect = Effect.of(act)
                self._keep_effect(act, effect)
            return effect, _NO_KEYWORDS
        declared, keywords = Effect.split(options)
        key = (act, *sorted(declared.items())) if declared else act
        try:
            effect = self._effects.get(key)
        except TypeError:  # an option without a hash (a mapping, say): build it each time
            return Effect.of(act, **declared), keywords
        if effect is None:
            effect = Effect.of(act, **declared)
            self._keep_effect(key, effect)
        return effect, keywords

    def _keep_effect(self, key: Any, effect: Effect) -> None:
        if len(self._effects) >= limits.EFFECTS_KEPT:  # functions made anew for each call must not pile up
            self._effects.clear()
        self._effects[key] = effect

    def gate(self, effect: Effect) -> Gate | TwoGates:
        """Return the gate that all effects of one name with the same limits share; other limits are another gate."""
        gate = self._gate_of.get(effect)
        if gate is None:
            if len(self._gate_of) >= limits.EFFECTS_KEPT:
                self._gate_of.clear()
            gate = self._gate_of[effect] = self._gates_for(effect)
        return gate

    def _gates_for(self, effect: Effect) -> Gate | TwoGates:
        policy = effect.policy
        key = (effect.name, policy.rate_limit, policy.circuit_breaker)
        if effect.shared is None:
            return self.gates.get(key) or self._gate(key, effect.admissions)
        second = self._gate((*effect.shared, None))
        if policy.rate_limit is None and policy.circuit_breaker is None:
            return second
        return TwoGates(self._gate(key, effect.admissions), second)

    def _gate(
        self, key: tuple[str, RateLimit | None, CircuitBreaker | None], lasting: Admissions | None = None
    ) -> Gate:
        gate = self.gates.get(key)
        if gate is None:
            if len(self.gates) >= limits.EFFECTS_KEPT:
                self.gates = {key: gate for key, gate in self.gates.items() if gate.in_use}
                self._gate_of.clear()
            name, limit, circuit_breaker = key
            admission = lasting.on(self._core.clock) if lasting is not None else Admission(limit, circuit_breaker)
            gate = self.gates[key] = Gate(self._core, self.gate_state, name, limit, admission)
        return gate
