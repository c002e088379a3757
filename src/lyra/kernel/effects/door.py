"""The one door: the only way anything leaves a process.

    already finished in the journal? return that
        → grant allows? → budget reserve → rate limit / breaker admit
        → journal "started" → run (retry by error class) → journal "finished" → budget settle → Event published

`_perform` is that list, in that order, for one `Attempt`. With no journal (a kernel in memory) the two journal steps
fall away and nothing else changes. What the program sees is what the journal holds: a result is encoded, stored, and
decoded again before the program gets it, so a replay can not differ. A refusal (denied, over budget, rate limited) is a
fact too and is journaled, because it may depend on what other processes did at the time.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from lyra.core import codec, faultpoint
from lyra.core.budgets.budget import NOTHING, Reservation, Usage
from lyra.core.effect import Charged, Effect, canonical_hash
from lyra.core.faultpoint import SimulatedCrash, point
from lyra.core.limits import BLOB_INLINE_BYTES_MAX, EFFECT_VALUE_BYTES_MAX
from lyra.errors import (
    BudgetExceeded,
    CapabilityDenied,
    ConfigError,
    EffectFailed,
    EffectInDoubt,
    LimitExceeded,
    LyraError,
    OutcomeUnknown,
    StoreFull,
)
from lyra.kernel.base.waiting import in_time, suspend
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_from_row, error_to_row, text_of
from lyra.kernel.process.cut_short import cancellation_code, cut_short, deadline_behind, process_lives_on
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import as_replayed, drop_doubt, raise_journaled, take_entry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lyra.kernel.base.core import Core
    from lyra.kernel.effects.gates import Declared, Gate, TwoGates
    from lyra.kernel.journal.history import Entry


# How far an attempt came.
_ADMITTED, _STARTED, _RUNNING, _PERFORMED, _FINISHED = range(5)


class Attempt(msgspec.Struct):
    """One call at the door: what was asked, and how far it came."""

    process: Process
    key: rows.Key
    effect: Effect
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    digest: bytes  # of the effect's name and the arguments; empty without a journal
    cost: Usage  # what it is expected to use; once it is performed, what it used
    generation: str = ""  # of the store when the call began, for its idempotency key
    reservation: Reservation | None = None
    gate: Gate | TwoGates | None = None
    tokens: int = 0  # expected, where a gate counts them
    stage: int = _ADMITTED  # set when it fails, for the code that cleans up


class Door:
    def __init__(self, core: Core[Process], declared: Declared, ask: Callable[..., Awaitable[Any]]) -> None:
        self._core = core
        self._declared = declared
        self._ask = ask  # puts a question to a human: InterruptService.ask

    def perform(
        self, process: Process, key: rows.Key, effect: Effect, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Awaitable[Any]:
        """Perform an effect for a process; awaiting it gives its value, or raises its error."""
        if effect.free and self._core.journal is None:
            return self._perform_free(process, key, effect, args, kwargs)
        return self._perform(process, key, effect, args, kwargs)

    async def _perform_free(
        self, process: Process, key: rows.Key, effect: Effect, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run an effect that needs no grant, budget or gate, in a kernel without a journal."""
        core = self._core
        must_wait = core.draining or faultpoint.hook is not None
        if must_wait:
            return await self._perform(process, key, effect, args, kwargs)
        if not process.stepping:
            core.branch_began(process)
        usage = effect.cost
        core.in_flight += 1
        try:
            if core.listening:
                core.publish(process.pid, "effect.started", {"key": key, "name": effect.name})
            try:
                value = await effect.run(*args, **kwargs)
            except OutcomeUnknown:
                value = await self._after_doubt(Attempt(process, key, effect, args, kwargs, b"", usage))
            if type(value) is Charged:
                value, usage = value.value, value.usage
                process.charge(usage)
        except BaseException as raised:
            attempt = Attempt(process, key, effect, args, kwargs, b"", usage, stage=_RUNNING)
            error = await self._record_failure(attempt, raised)
            if error is not raised:
                raise error from raised
            raise
        finally:
            core.in_flight -= 1
            if core.draining:
                core.came_to_its_end()
        if core.listening:
            self._publish_finished(process, key, effect, "usage", _data(usage))
        return value

    async def _perform(
        self, process: Process, key: rows.Key, effect: Effect, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        core = self._core
        journal = core.journal
        digest = b""
        entry: Entry | None = None
        if not process.stepping:  # in its own task: that ends with the process, or when the kernel closes
            core.branch_began(process)

        # Already finished in the journal?
        if journal is not None:
            digest = canonical_hash(effect.name, args, kwargs) if args or kwargs else effect.digest
            if process.replay is not None:
                entry = take_entry(process, key, "do", effect.name, digest, (args, kwargs))
                if entry is not None and entry.done:
                    drop_doubt(process, key)
                    # The answer that was journaled. Its spending was charged when the journal was folded.
                    if entry.error is not None:
                        await raise_journaled(process, entry.error)
                    return effect.decode(await self._core.value_of(entry))
        attempt = Attempt(process, key, effect, args, kwargs, digest, effect.cost, core.generation)
        if entry is not None:  # begun by an earlier kernel: made again under the key that the outside has seen
            attempt.generation = entry.generation
            if entry.generation:
                attempt.digest = entry.hash
        is_begun_outside = entry is not None and effect.outside is not None and (entry.lent or not entry.idempotent)
        if entry is not None and not is_begun_outside:
            is_repeated = entry.idempotent and effect.outside is None and not effect.rejoins
            if is_repeated and entry.crashes > process.recovery_attempts_most():
                await self._stop_repeating(attempt, entry.crashes)
            elif not entry.idempotent:
                settled, value = await self._ask_about_doubt(attempt, entry)
                if settled:
                    return value
        if core.draining:
            # Hold an effect that has not begun while the kernel drains: it waits until the next kernel opens the store.
            try:
                await suspend(attempt.process, self._core.held)
            except BaseException as cut:
                cut_short(attempt.process, attempt.key, cut, name=attempt.effect.name, digest=attempt.digest)
                raise

        # Grant allows? Budget reserve. Rate limit and breaker admit.
        if not effect.free:
            try:
                turn = self._admit(attempt, was_admitted=entry is not None)
                if turn is not None:
                    await turn
            except BaseException as refusal:
                self._record_refusal(attempt, refusal)
                raise
        if faultpoint.hook is not None:
            point("door.admitted")

        return await self._run_admitted(attempt, is_begun_outside, entry is not None and entry.idempotent)

    async def _run_admitted(self, attempt: Attempt, is_begun_outside: bool, may_repeat: bool) -> Any:
        """Journal "started", run, journal "finished", settle the budget, publish the Event."""
        core, process, key, effect = self._core, attempt.process, attempt.key, attempt.effect
        args, kwargs = attempt.args, attempt.kwargs
        journal = core.journal
        core.in_flight += 1
        is_repeatable = journal is not None and effect.idempotent
        core.in_flight_repeatable += is_repeatable
        stage, is_durable = _ADMITTED, True
        try:
            if journal is not None and not is_begun_outside:
                self._write_started(attempt)
                stage = _STARTED
                # What must not be made twice waits until a restart will know of it, and so does what counts against a
                # limit: the next life has to charge it.
                if effect.outside is None and (not effect.idempotent or _is_counted(attempt)):
                    await suspend(process, journal.waiters)
                    if faultpoint.hook is not None:
                        point("door.started")
                    if core.elapsed() >= core.lease_until:
                        await core.confirm_lease(process)
                elif journal.elapsed_s >= core.lease_until:  # read for the row just now
                    await core.confirm_lease(process)
            elif journal is None and core.listening:
                core.publish(process.pid, "effect.started", {"key": key, "name": effect.name})
            stage = _RUNNING
            try:
                if effect.plain:
                    value = await effect.run(*args, **kwargs)
                else:
                    found_out = is_begun_outside and self._find_out(attempt, may_repeat=may_repeat)
                    value = await (found_out or self._run(attempt))
            except OutcomeUnknown:
                value = await self._after_doubt(attempt)
            if faultpoint.hook is not None:
                point("door.performed")
            if type(value) is Charged:
                attempt.cost, value = value.usage, value.value
                if attempt.gate is not None:
                    attempt.gate.adjust(attempt.cost.tokens - attempt.tokens)
            stage = _PERFORMED
            if journal is None:
                self._settle(attempt, attempt.cost)
            else:
                data = codec.encode(value)  # before it is written: a value that cannot be kept is a failed effect
                blob = await self.put_blob(effect.name, data) if len(data) > BLOB_INLINE_BYTES_MAX else ""
                usage = attempt.cost
                spent = usage.to_data() if usage.packed else None
                finished = rows.Finished(key, rows.NIL if blob else rows.Raw(data), blob, None, spent)
                journal.write(process.pid, "effect.finished", rows.encode(finished))
                if attempt.reservation is not None or usage.packed:
                    self._settle(attempt, usage)
                stage = _FINISHED
                await suspend(process, journal.waiters)
                if faultpoint.hook is not None:
                    point("door.finished")
                # A plain immutable value of no declared type is the same after the round trip, and so is what the
                # effect says is; any other is read back.
                is_same = None if effect.unchanged is None else effect.unchanged(value)
                if not is_same and (is_same is False or effect.typed or type(value) not in codec.UNCHANGED):
                    value = effect.decode(data)
        except BaseException as raised:
            attempt.stage = stage
            is_durable = isinstance(raised, Exception)
            error = await self._record_failure(attempt, raised)
            if error is not raised:
                raise error from raised
            raise
        finally:
            core.in_flight -= 1
            core.in_flight_repeatable -= is_repeatable
            if process.attempts is not None:
                process.attempts.pop(key, None)
            if core.draining:
                core.came_to_its_end()
            if effect.outside is not None:
                effect.outside.on_settled(is_durable, *args, idempotency_key=self._key_of(attempt))
        if journal is None and core.listening:
            self._publish_finished(process, key, effect, "usage", _data(attempt.cost))
        return value

    # ------------------------------------------------------------------ before it runs

    def _admit(self, attempt: Attempt, *, was_admitted: bool) -> Awaitable[None] | None:
        """Check the grant, reserve the budget, pass the gate; gives what to wait for, if the gate makes it wait."""
        effect, process = attempt.effect, attempt.process
        if effect.needy and not (process.grant.is_all and effect.needs is not None):
            for need in effect.needs_for(attempt.args, attempt.kwargs):
                process.grant.check(need)
        if attempt.reservation is None:
            if effect.quote is not None:
                if self._core.remote is not None and self._core.remote.loans.is_borrower(process):
                    return self._admit_in_time(attempt, was_admitted=was_admitted)
                attempt.cost = effect.quote(process.budget, *attempt.args, **attempt.kwargs)
            if attempt.cost.packed:
                try:
                    attempt.reservation = process.budget.reserve(attempt.cost)
                except BudgetExceeded:
                    if self._core.remote is None:
                        raise
                    return self._admit_in_time(attempt, was_admitted=was_admitted)
        if attempt.reservation is not None and attempt.reservation.over:
            over = [excess.to_data() for excess in attempt.reservation.over]
            self._core.publish(process.pid, "budget.warning", {"effect": effect.name, "over": over})
        if not effect.gated:
            return None
        gate = attempt.gate = self._declared.gate(effect)
        attempt.tokens = attempt.cost.tokens
        if was_admitted:  # by the kernel that stopped before it was finished
            gate.readmit()
            return None
        return gate.admit(process, attempt.tokens)

    async def _admit_in_time(self, attempt: Attempt, *, was_admitted: bool) -> None:
        """Reserve the budget once there is room for it, of which other shards may have some, and go on."""
        attempt.cost, attempt.reservation = await self._core.remote.loans.room.admit(
            attempt.process, attempt.effect, attempt.cost, attempt.args, attempt.kwargs
        )
        turn = self._admit(attempt, was_admitted=was_admitted)
        if turn is not None:
            await turn

    def _record_refusal(self, attempt: Attempt, refusal: BaseException) -> None:
        """It was not let through, or cancelled while it waited for its turn."""
        process, key, name = attempt.process, attempt.key, attempt.effect.name
        if process.attempts is not None:
            process.attempts.pop(key, None)
        if attempt.reservation is not None:
            attempt.reservation.scope.release(attempt.reservation)
        if not isinstance(refusal, LyraError):
            cut_short(process, key, refusal, name=name, digest=attempt.digest)
            return
        error = error_to_row(refusal)
        if isinstance(refusal, LimitExceeded):
            self._core.publish(process.pid, "resource.exceeded", {"effect": name, "error": error})
        elif isinstance(refusal, CapabilityDenied):
            self._core.publish(process.pid, "capability.denied", {"effect": name, "error": error})
        if self._core.journal is not None:
            row = rows.Finished(key, error=error, name=name, hash=attempt.digest)
            self._core.journal.write(process.pid, "effect.finished", rows.encode(row))

    def _write_started(self, attempt: Attempt, *, may_repeat: bool = True, lent: bool = False) -> int:
        """Journal that the effect begins. One that another program performs begins when that program gets it: until
        then it may be repeated."""
        effect, journal = attempt.effect, self._core.journal
        assert journal is not None
        cost = attempt.cost
        cost_data = effect.cost_data if effect.quote is None else cost.to_data() if cost.packed else None
        idempotent = effect.idempotent or (may_repeat and effect.outside is not None)
        generation = attempt.generation if effect.takes_key else ""
        row = rows.Started(attempt.key, effect.name, attempt.digest, idempotent, cost_data, lent, generation)
        return journal.write(attempt.process.pid, "effect.started", rows.encode(row))

    # ------------------------------------------------------------------ running

    async def _begin_outside(self, attempt: Attempt, may_repeat: bool = False) -> None:
        """Another program is about to get the work: return when a restart will know."""
        journal = self._core.journal
        if journal is not None and (may_repeat or not attempt.effect.idempotent):
            await journal.wait_until_durable(self._write_started(attempt, may_repeat=may_repeat, lent=True))

    async def _find_out(self, attempt: Attempt, *, may_repeat: bool) -> Any:
        """Return what became of work that another program had got before the restart. Work that may be repeated is done
        again where that program does not come back."""
        effect, replay = attempt.effect, attempt.process.replay
        assert effect.outside is not None
        if replay is not None and f"doubt:{attempt.key}" in replay:
            raise OutcomeUnknown("a person was asked before the restart")
        key = self._key_of(attempt)
        return await effect.outside.find_out(*attempt.args, may_repeat=may_repeat, idempotency_key=key)

    async def _after_doubt(self, attempt: Attempt) -> Any:
        """Ask a person, as the program that performed the effect is gone; perform it again while the answer says so."""
        process, effect = attempt.process, attempt.effect
        while True:
            answer = await self._answer_about_doubt(attempt, "when the program that performed it was lost")
            if answer.decision == "skip":
                return answer.data if effect.skipped is None else effect.skipped(answer.data)
            if answer.decision != "retry":
                raise _in_doubt(attempt)
            await self._reserve_anew(attempt)
            if attempt.gate is not None:
                attempt.gate.readmit()
            if self._core.journal is not None:
                self._write_started(attempt)
                if not effect.idempotent:
                    await suspend(process, self._core.journal.waiters)
            try:
                return await self._run(attempt)
            except OutcomeUnknown:
                continue

    async def _reserve_anew(self, attempt: Attempt) -> None:
        """Reserve for one more attempt: what was reserved for the one that was lost stays charged."""
        if attempt.reservation is None:
            return
        self._settle(attempt, attempt.cost)
        attempt.reservation = None
        if self._core.journal is not None:
            row = rows.Finished(attempt.key, error={"code": "cut_off"}, usage=_data(attempt.cost))
            self._core.journal.write(attempt.process.pid, "effect.finished", rows.encode(row))
        cost, attempt.cost = attempt.cost, NOTHING  # spent: a refusal costs nothing more
        try:
            attempt.reservation = attempt.process.budget.reserve(cost)
        except BudgetExceeded:
            if self._core.remote is None:
                raise
            attempt.reservation = await self._core.remote.loans.room.reserve(attempt.process.budget, cost)
        attempt.cost = cost

    async def _run(self, attempt: Attempt) -> Any:
        """Call the function, again while the policy says so; the breaker hears of each try, and which was the last."""
        process, effect, gate = attempt.process, attempt.effect, attempt.gate
        if effect.takes_key:
            attempt.kwargs = {**attempt.kwargs, "idempotency_key": self._key_of(attempt)}
        if effect.outside is not None:
            attempt.kwargs = {**attempt.kwargs, "begin": partial(self._begin_outside, attempt)}
        tries = 1
        while True:
            try:
                if effect.timeout_s is None:
                    value = await effect.run(*attempt.args, **attempt.kwargs)
                else:
                    value = await self._run_in_time(attempt)
            except Exception as error:
                retry = effect.retry
                last = retry is None or process.out_of_time or not retry.should_retry(error, tries)
                if gate is not None:
                    gate.record_failure(error, last)
                if retry is None or last:
                    raise
                delay_s = retry.delay(tries, self._core.rng, error)
                self._record_retry(attempt, {"attempt": tries, "delay_s": delay_s, "error": text_of(error)})
                if effect.on_retry is not None:
                    most = retry.attempts_for(error)
                    effect.on_retry(*attempt.args, attempt=tries + 1, of=most, wait_s=delay_s, error=error)
                await self._before_retry(attempt, delay_s)
                tries += 1
            except BaseException as error:
                if gate is not None:
                    gate.record_failure(error)
                raise
            else:
                if gate is not None:
                    gate.record_success()
                return value

    def _key_of(self, attempt: Attempt) -> str:
        """Return the idempotency key of a call; "" where its function takes none."""
        if not attempt.effect.takes_key:
            return ""
        process, generation, asked = attempt.process, attempt.generation, attempt.digest
        return self._core.idempotency_key(process.pid, attempt.key, process.life, generation=generation, asked=asked)

    async def _run_in_time(self, attempt: Attempt) -> Any:
        """Call the function once, bounded by the kernel's clock."""
        effect = attempt.effect
        assert effect.timeout_s is not None
        work = effect.run(*attempt.args, **attempt.kwargs)
        if not hasattr(work, "__await__"):  # a generator that is a coroutine, or a mistake that awaiting tells
            work = _await(work)
        return await in_time(self._core.clock, work, effect.timeout_s, effect.name)

    async def _before_retry(self, attempt: Attempt, delay_s: float) -> None:
        gate = attempt.gate
        try:
            await self._core.pause(attempt.process, delay_s)
            if gate is not None and (turn := gate.admit(attempt.process, attempt.tokens, again=True)) is not None:
                await turn
            if self._core.elapsed() >= self._core.lease_until:
                await self._core.confirm_lease(attempt.process)
        except BaseException:
            if gate is not None:
                gate.abandon()
            raise

    def _record_retry(self, attempt: Attempt, facts: dict[str, Any]) -> None:
        """Publish a retry, and journal it for readers of the run; no replay needs it."""
        journal = self._core.journal
        facts = {"key": attempt.key, "name": attempt.effect.name, **facts}
        if journal is None:
            self._core.publish(attempt.process.pid, "effect.retried", facts)
        else:
            journal.write(attempt.process.pid, "effect.retried", codec.encode(facts))

    # ------------------------------------------------------------------ the outcome of it

    async def _record_failure(self, attempt: Attempt, raised: BaseException) -> BaseException:
        """It raised or was cancelled: write that down, and give what a replay will raise."""
        process, effect, stage = attempt.process, attempt.effect, attempt.stage
        if stage == _FINISHED:
            cut_short(process, attempt.key, raised)
            return raised
        if process.out_of_time and isinstance(raised, Exception):
            raised = deadline_behind(raised) or raised
        if attempt.gate is not None and stage < _RUNNING:
            attempt.gate.record_failure(raised)  # admitted and never run: its place is free again
        error: BaseException = raised if isinstance(raised, _PASSED_ON) else _wrap(effect, raised)
        if stage == _RUNNING and _is_not_async(raised):
            error = ConfigError(
                f"{effect.name} is not an async function",
                hint="make it `async def`, or await asyncio.to_thread(…) in one",
            )
        row = self._write_failed(attempt, error)
        journal = self._core.journal
        if journal is not None and row is not None:
            try:
                await suspend(process, journal.waiters)
            except BaseException as late:
                cut_short(process, attempt.key, late)
                raise
            error = as_replayed(
                error, error_from_row(row)
            )  # what the program catches now is what it will catch on replay
        return error

    def _write_failed(self, attempt: Attempt, error: BaseException) -> dict[str, Any] | None:
        """Settle and write the failure; gives the row of an error that the program will see.

        Cancelled while it ran, it may have happened outside: what was reserved counts as spent.
        """
        core, process, stage = self._core, attempt.process, attempt.stage
        if isinstance(error, Exception):  # a value that cannot be kept was paid for all the same
            usage = attempt.cost if stage == _PERFORMED else Usage.of(getattr(error, "usage", None))
            row = error_to_row(error)
        else:
            told = getattr(error, "usage", None)  # the effect may report its real usage
            usage = Usage() if stage < _RUNNING else attempt.cost if told is None else Usage.of(told)
            row = {"code": cancellation_code(error) if process_lives_on(process) else "cut_off"}
        self._settle(attempt, usage)
        if core.journal is None:
            if core.listening:
                self._publish_finished(process, attempt.key, attempt.effect, "error", row)
        elif stage >= _STARTED and not core.stopping and (attempt.cost.packed or row["code"] != "cut_off"):
            finished = rows.Finished(attempt.key, error=row, usage=_data(usage))
            core.journal.write(process.pid, "effect.finished", rows.encode(finished))
            return row if isinstance(error, Exception) else None
        return None

    def _publish_finished(self, process: Process, key: rows.Key, effect: Effect, word: str, fact: Any) -> None:
        self._core.publish(process.pid, "effect.finished", {"key": key, "name": effect.name, word: fact})

    def _settle(self, attempt: Attempt, usage: Usage) -> None:
        process, reservation = attempt.process, attempt.reservation
        if reservation is None:
            if usage.packed:
                process.charge(usage)
            return
        if usage.packed:
            process.count_spent(usage)
        overrun = reservation.scope.settle(reservation, usage)
        # A quote sets aside only what is limited: the rest is no overrun.
        budget = process.budget
        if overrun and (attempt.effect.quote is None or (budget.limits_anything and budget._limits_any(overrun))):
            facts = {"effect": attempt.effect.name, "overrun": overrun.to_data()}
            self._core.publish(process.pid, "budget.overrun", facts)

    async def put_blob(self, name: str, data: bytes) -> str:
        """Keep a large value beside the journal; its row holds the digest. Gives "" where the disk is full: then the
        value goes into the row, which waits for room with all the others."""
        if len(data) > EFFECT_VALUE_BYTES_MAX:
            raise EffectFailed(
                f"{name} gave {len(data)} bytes; at most {EFFECT_VALUE_BYTES_MAX} are kept",
                hint="write it to a file or a database and return where it is",
            )
        journal = self._core.journal
        assert journal is not None
        try:
            return str(await self._core.call(journal.store.put_blob, data))
        except StoreFull:
            return ""

    # ------------------------------------------------------------------ replay

    async def _stop_repeating(self, attempt: Attempt, crashes: int) -> None:
        """Stop a process whose call is cut off by a crash in every life: the call may be what crashes its kernel."""
        process = attempt.process
        error = EffectInDoubt(
            f"{_act(attempt)} was cut off by a crash {crashes} times, and is not tried again",
            hint="find out what crashes; `recovery_attempts` says how often a call is tried again",
            key=str(attempt.key),
            attempts=crashes,
        )
        self._core.stop_process(process, "error", cause=error)
        await suspend(process, [])

    async def _ask_about_doubt(self, attempt: Attempt, entry: Entry) -> tuple[bool, Any]:
        """It was in flight when the last kernel died, and doing it twice may matter: ask a human. Gives whether that
        settles the call, and its value then. What was reserved for it stays charged, whatever the answer is."""
        process, key, effect = attempt.process, attempt.key, attempt.effect
        attempts = f" (attempt {entry.crashes})" if entry.crashes > 1 else ""
        held = Usage.from_data(entry.cut_off or {}).usd
        charged = f"; {held} that was set aside for it stays charged" if held else ""
        answer = await self._answer_about_doubt(attempt, f"when its kernel stopped{attempts}{charged}")
        if answer.decision == "retry":
            return False, None
        usage = effect.cost if entry.cut_off is None else NOTHING  # an earlier version did not charge it
        process.charge(usage)
        if process.attempts is not None:
            process.attempts.pop(key, None)
        if answer.decision == "skip":
            data = codec.encode(answer.data if effect.skipped is None else effect.skipped(answer.data))
            row = rows.Finished(key, rows.Raw(data), usage=_data(usage))
        else:
            error = _in_doubt(attempt)
            row = rows.Finished(key, error=error_to_row(error), usage=_data(usage))
        journal = self._core.journal
        assert journal is not None
        journal.write(process.pid, "effect.finished", rows.encode(row))
        try:
            await suspend(process, journal.waiters)
        except BaseException as cut:
            cut_short(process, key, cut)
            raise
        if answer.decision == "skip":
            return True, effect.decode(data)
        raise error

    async def _answer_about_doubt(self, attempt: Attempt, when: str) -> Any:
        """Ask a person what became of an effect; gives the answer."""
        process, key, effect = attempt.process, attempt.key, attempt.effect
        outside = effect.outside
        return await self._ask(
            process,
            kind="in_doubt",
            key=f"doubt:{key}",
            question=f"Was {_act(attempt)} performed? retry, skip or fail",
            message=f"effect {key} of process {process.pid} ({effect.name}) was in flight {when}",
            asked=None
            if outside is None
            else lambda interrupt_id: outside.on_asked(
                interrupt_id, *attempt.args, idempotency_key=self._key_of(attempt)
            ),
        )


def _act(attempt: Attempt) -> str:
    """Return what the effect is called in a sentence."""
    effect = attempt.effect
    return effect.name if effect.about is None else effect.about(*attempt.args)


def _is_counted(attempt: Attempt) -> bool:
    """Return whether a limit bounds what was reserved: of the process, or of scopes that its quote asked."""
    if attempt.reservation is None:
        return False
    budget = attempt.process.budget
    return (budget.limits_anything and budget._limits_any(attempt.cost)) or (
        attempt.effect.quote is not None and attempt.cost.tokens > 0
    )


def _in_doubt(attempt: Attempt) -> EffectInDoubt:
    return EffectInDoubt(f"{attempt.effect.name} may or may not have been performed", key=str(attempt.key))


# What leaves an effect as it is. Anything else that is no Exception (a tool may raise what it likes): EffectFailed.
_PASSED_ON = (Exception, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit, SimulatedCrash)


def _wrap(effect: Effect, raised: BaseException) -> EffectFailed:
    return EffectFailed(
        f"{effect.name} raised {type(raised).__name__}: {text_of(raised)}", type=type(raised).__qualname__
    )


def _data(usage: Usage) -> dict[str, Any] | None:
    return usage.to_data() if usage.packed else None


async def _await(work: Any) -> Any:
    return await work


def _is_not_async(raised: BaseException) -> bool:
    """Awaiting what a plain function returned fails in the door itself: no frame of the function's is in the trace."""
    trace = raised.__traceback__
    return (
        type(raised) is TypeError
        and "'await' expression" in str(raised)
        and trace is not None
        and (trace.tb_next is None or trace.tb_next.tb_frame.f_code.co_filename == __file__)
    )
