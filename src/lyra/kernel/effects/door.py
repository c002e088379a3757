"""The one door: the only way anything leaves a process.

    already finished in the journal? return that
        → grant allows? → budget reserve → rate limit / breaker admit
        → journal "started" → run (retry by error class) → journal "finished" → budget settle → Event published

`perform` is that list, in that order. With no journal (a kernel in memory) the two journal steps fall away and
nothing else changes. What the program sees is what the journal holds: a result is encoded, stored, and decoded
again before the program gets it, so a replay can not differ. A refusal (denied, over budget, rate limited) is a
fact too and is journaled, because it may depend on what other processes did at the time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

from lyra.core import codec, faultpoint
from lyra.core.budgets.budget import Usage
from lyra.core.effect import Charged, Effect, canonical_hash
from lyra.core.faultpoint import SimulatedCrash, point
from lyra.core.limits import BLOB_INLINE_BYTES_MAX, EFFECT_VALUE_BYTES_MAX
from lyra.core.naming import fixed_name, old_names
from lyra.errors import (
    CapabilityDenied,
    ConfigError,
    Divergence,
    EffectFailed,
    EffectInDoubt,
    LimitExceeded,
    LyraError,
)
from lyra.kernel.base.timeouts import in_time
from lyra.kernel.journal import rows
from lyra.kernel.journal.error_rows import error_from_row, error_to_row, text_of
from lyra.kernel.process.process import GIVEN_UP, OUT_OF_TIME, Process, suspend

if TYPE_CHECKING:
    from lyra.core.budgets.budget import Budget, Reservation
    from lyra.kernel.effects.gates import Gate, TwoGates
    from lyra.kernel.journal.history import Entry
    from lyra.kernel.kernel import Kernel

__all__ = ["Door"]

# How far a call came, for those who clean up after it.
_ADMITTED, _STARTED, _RUNNING, _PERFORMED, _FINISHED = 0, 1, 2, 3, 4

# Cancellations that are an end of their own, as a journal has them; after all others the canceller says how it goes on.
_CUT_OFF = {"given_up": GIVEN_UP, "out_of_time": OUT_OF_TIME}


class Door:
    __slots__ = ("_kernel", "in_flight")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.in_flight = 0

    async def perform(
        self, process: Process, key: rows.Key, effect: Effect, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        kernel = self._kernel
        journal = kernel.journal
        digest = b""
        entry: Entry | None = None
        if not process.stepping:  # in a task of its own: that ends with the process, or when the kernel closes
            kernel.life.branch_began(process)

        # Already finished in the journal?
        if journal is not None:
            digest = canonical_hash(effect.name, args, kwargs) if args or kwargs else effect.digest
            if process.recall is not None:
                entry = recalled(process, key, "do", effect.name, digest, (args, kwargs))
                if entry is not None:
                    if entry.done:
                        _no_more_doubt(process, key)
                        return await self._replayed(process, entry, effect)
                    if not entry.idempotent:
                        settled, value = await self._ask_about_doubt(process, key, effect, args)
                        if settled:
                            return value
        if kernel.draining:
            try:
                await suspend(process, kernel.held)
            except BaseException as cut:
                self.cut_short(process, key, cut, name=effect.name, digest=digest)
                raise

        # Grant allows? Budget reserve. Rate limit and breaker admit.
        reservation = gate = None
        tokens = 0  # expected, where a gate counts them
        cost, cost_data = effect.cost, effect.cost_data
        try:
            if effect.quote is not None:
                cost = effect.quote(process.budget, *args, **kwargs)
                cost_data = cost.to_data() if cost.items and journal is not None else None
            if effect.needy:
                for need in effect.needs_for(args, kwargs):
                    process.grant.check(need)
            if cost.items:
                reservation = self._reserve(process, effect, cost)
            if effect.gated:
                gate, tokens = kernel.declared.gate(effect), cost.tokens
                if entry is not None:  # it was let through before its kernel stopped
                    gate.readmit()
                elif (turn := gate.admit(process, tokens)) is not None:
                    await turn
        except BaseException as refusal:
            self._refused(process, key, effect, digest, reservation, refusal)
            raise
        if faultpoint.hook is not None:
            point("door.admitted")

        # Journal "started", run, journal "finished", budget settle, Event published.
        self.in_flight += 1
        stage = _ADMITTED
        try:
            if journal is not None:
                started = rows.Started(key, effect.name, digest, effect.idempotent, cost_data)
                journal.write(process.pid, "effect.started", rows.encode(started))
                stage = _STARTED
                if not effect.idempotent:
                    await suspend(process, journal.waiters)
                    if faultpoint.hook is not None:
                        point("door.started")
            elif kernel.listening:
                kernel.publish(process.pid, "effect.started", {"key": key, "name": effect.name})
            stage = _RUNNING
            if effect.plain:
                value = await effect.run(*args, **kwargs)
            else:
                value = await self._run(process, key, effect, args, kwargs, gate, tokens)
            if faultpoint.hook is not None:
                point("door.performed")
            usage = cost
            if type(value) is Charged:
                value, usage = value.value, value.usage
                if gate is not None:
                    gate.adjust(usage.tokens - tokens)
            stage = _PERFORMED
            if journal is None:
                if reservation is not None or usage.items:
                    self._settle(process, effect, reservation, usage)
            else:
                # Encode first: a value that cannot be kept is a failed effect.
                data = codec.encode(value)
                blob = await self.put_blob(effect.name, data) if len(data) > BLOB_INLINE_BYTES_MAX else ""
                spent = usage.to_data() if usage.items else None
                finished = rows.Finished(key, rows.NIL if blob else rows.Raw(data), blob, None, spent)
                journal.write(process.pid, "effect.finished", rows.encode(finished))
                if reservation is not None or usage.items:
                    self._settle(process, effect, reservation, usage)
                stage = _FINISHED
                await suspend(process, journal.waiters)
                if faultpoint.hook is not None:
                    point("door.finished")
                # A plain immutable value of no declared type is the same after the round trip, and so is what the
                # effect says is; any other is read back.
                if effect.unchanged is not None:
                    if not effect.unchanged(value):
                        value = effect.decode(data)
                elif effect.typed or type(value) not in codec.UNCHANGED:
                    value = effect.decode(data)
        except BaseException as raised:
            if stage == _FINISHED:
                self.cut_short(process, key, raised)
                raise
            if gate is not None and stage < _RUNNING:
                gate.failed(raised)  # admitted and never run: its place is free again
            error: BaseException = raised if isinstance(raised, _PASSED_ON) else _wrapped(effect, raised)
            if stage == _RUNNING and _is_not_async(raised):
                error = ConfigError(
                    f"{effect.name} is not an async function",
                    hint="make it `async def`, or await asyncio.to_thread(…) in one",
                )
            if stage == _PERFORMED:
                cost = usage
            row = self._failed(process, key, effect, reservation, error, stage, cost)
            if journal is not None and row is not None:
                try:
                    await suspend(process, journal.waiters)
                except BaseException as late:
                    self.cut_short(process, key, late)
                    raise
                # What the program catches now is what it will catch on replay.
                error = _same(error, error_from_row(row))
            if error is not raised:
                raise error from raised
            raise
        finally:
            self.in_flight -= 1
            if kernel.draining:
                kernel.came_to_its_end()
        if journal is None and kernel.listening:
            self._publish_finished(process, key, effect, "usage", usage.to_data() if usage.items else None)
        return value

    # ------------------------------------------------------------------ the steps that are not a line

    def _reserve(self, process: Process, effect: Effect, cost: Usage) -> Reservation:
        reservation = process.budget.reserve(cost)
        if reservation.over:
            over = [excess.to_data() for excess in reservation.over]
            self._kernel.publish(process.pid, "budget.warning", {"effect": effect.name, "over": over})
        return reservation

    def _refused(
        self,
        process: Process,
        key: rows.Key,
        effect: Effect,
        digest: bytes,
        reservation: Reservation | None,
        refusal: BaseException,
    ) -> None:
        if reservation is not None:
            reservation.scope.release(reservation)
        if not isinstance(refusal, LyraError):
            self.cut_short(process, key, refusal, name=effect.name, digest=digest)
            return
        error = error_to_row(refusal)
        if isinstance(refusal, LimitExceeded):
            self._kernel.publish(process.pid, "resource.exceeded", {"effect": effect.name, "error": error})
        elif isinstance(refusal, CapabilityDenied):
            self._kernel.publish(process.pid, "capability.denied", {"effect": effect.name, "error": error})
        if self._kernel.journal is not None:
            row = rows.Finished(key, error=error, name=effect.name, hash=digest)
            self._kernel.journal.write(process.pid, "effect.finished", rows.encode(row))

    def _failed(
        self,
        process: Process,
        key: rows.Key,
        effect: Effect,
        reservation: Reservation | None,
        error: BaseException,
        stage: int,
        cost: Usage,
    ) -> dict[str, Any] | None:
        """It raised or was cancelled; gives the row of an error that the program will see.

        Cancelled while it ran, it may have happened out there: what was set aside counts as spent.
        """
        kernel = self._kernel
        if isinstance(error, Exception):  # a value that cannot be kept was paid for all the same
            usage = cost if stage == _PERFORMED else Usage.of(getattr(error, "usage", None))
            row = error_to_row(error)
        else:
            said = getattr(error, "usage", None)  # what ran may know better than what was set aside for it
            usage = Usage() if stage < _RUNNING else cost if said is None else Usage.of(said)
            row = {"code": _cancellation(error) if self._goes_on(process) else "cut_off"}
        self._settle(process, effect, reservation, usage)
        if kernel.journal is None:
            if kernel.listening:
                self._publish_finished(process, key, effect, "error", row)
        elif stage >= _STARTED and not kernel.stopping and (usage.items or row["code"] != "cut_off"):
            finished = rows.Finished(key, error=row, usage=usage.to_data() if usage.items else None)
            kernel.journal.write(process.pid, "effect.finished", rows.encode(finished))
            return row if isinstance(error, Exception) else None
        return None

    def cut_short(
        self,
        process: Process,
        key: rows.Key,
        error: BaseException,
        *,
        form: str = "do",
        name: str = "",
        digest: bytes = b"",
    ) -> None:
        """A call was cancelled (or its process's time ran out) while it waited, and the program may go on from there.

        That is an outcome like any other: a replay has to meet it at the same call, whatever its journal has for it.
        """
        journal = self._kernel.journal
        if journal is None or not self._goes_on(process):
            return
        if isinstance(error, asyncio.CancelledError):
            row = {"code": _cancellation(error)}
        elif isinstance(error, LyraError):
            row = error_to_row(error)
        else:
            return
        finished = rows.Finished(key, error=row, name=name, hash=digest, form=form)
        journal.write(process.pid, "effect.finished", rows.encode(finished))

    def _goes_on(self, process: Process) -> bool:
        """A cancelled effect of a process that lives on is finished; one cut off with its process is in doubt."""
        return not self._kernel.stopping and process.kill_reason is None and process.exit is None

    def _publish_finished(self, process: Process, key: rows.Key, effect: Effect, word: str, fact: Any) -> None:
        self._kernel.publish(process.pid, "effect.finished", {"key": key, "name": effect.name, word: fact})

    # ------------------------------------------------------------------ running

    async def _run(
        self,
        process: Process,
        key: rows.Key,
        effect: Effect,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        gate: Gate | TwoGates | None,
        tokens: int,
    ) -> Any:
        """Call the function, again while the policy says so; the breaker hears of each try, and which was the last."""
        if effect.takes_key:
            kwargs = {**kwargs, "idempotency_key": f"{process.pid}:{key}"}
        attempt = 1
        while True:
            try:
                if effect.timeout_s is None:
                    value = await effect.run(*args, **kwargs)
                else:
                    value = await self._run_in_time(effect, args, kwargs)
            except Exception as error:
                retry = effect.retry
                last = retry is None or process.out_of_time or not retry.should_retry(error, attempt)
                if gate is not None:
                    gate.failed(error, last)
                if retry is None or last:
                    raise
                delay_s = retry.delay(attempt, self._kernel.rng, error)
                self._retried(
                    process,
                    {"key": key, "name": effect.name, "attempt": attempt, "delay_s": delay_s, "error": text_of(error)},
                )
                await self._before_retry(process, delay_s, gate, tokens)
                attempt += 1
            except BaseException as error:
                if gate is not None:
                    gate.failed(error)
                raise
            else:
                if gate is not None:
                    gate.succeeded()
                return value

    async def _before_retry(self, process: Process, delay_s: float, gate: Gate | TwoGates | None, tokens: int) -> None:
        try:
            await self._kernel.pause(process, delay_s)
            if gate is not None and (turn := gate.admit(process, tokens, again=True)) is not None:
                await turn
        except BaseException:
            if gate is not None:
                gate.given_up()
            raise

    def _retried(self, process: Process, told: dict[str, Any]) -> None:
        """Told to whoever listens, and kept for whoever asks later how a call went; no replay needs it."""
        journal = self._kernel.journal
        if journal is None:
            self._kernel.publish(process.pid, "effect.retried", told)
        else:
            journal.write(process.pid, "effect.retried", codec.encode(told))

    async def _run_in_time(self, effect: Effect, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same, bounded by the kernel's clock."""
        assert effect.timeout_s is not None
        work = effect.run(*args, **kwargs)
        if not hasattr(work, "__await__"):  # a generator that is a coroutine, or a mistake that awaiting tells
            work = _awaited(work)
        return await in_time(self._kernel.clock, work, effect.timeout_s, effect.name)

    # ------------------------------------------------------------------ writing down

    def _settle(self, process: Process, effect: Effect, reservation: Reservation | None, usage: Usage) -> None:
        if reservation is None:
            if usage.items:
                process.budget.charge(usage)
            return
        overrun = reservation.scope.settle(reservation, usage)
        if overrun.items and (effect.quote is None or _limited(process.budget, overrun)):
            self._kernel.publish(process.pid, "budget.overrun", {"effect": effect.name, "overrun": overrun.to_data()})

    async def put_blob(self, name: str, data: bytes) -> str:
        """Keep a large value beside the journal; its row holds the digest."""
        if len(data) > EFFECT_VALUE_BYTES_MAX:
            raise EffectFailed(
                f"{name} gave {len(data)} bytes; at most {EFFECT_VALUE_BYTES_MAX} are kept",
                hint="write it to a file or a database and return where it is",
            )
        journal = self._kernel.journal
        assert journal is not None
        if journal.store.inline:
            return journal.store.put_blob(data)
        return await self._kernel.writer.submit(journal.store.put_blob, data)

    # ------------------------------------------------------------------ replay

    async def _replayed(self, process: Process, entry: Entry, effect: Effect) -> Any:
        """The answer that was journaled. Its spending was charged when the journal was folded."""
        if entry.error is not None:
            await met_again(process, entry.error)
        return effect.decode(await self._kernel.value_of(entry))

    async def _ask_about_doubt(
        self, process: Process, key: rows.Key, effect: Effect, args: tuple[Any, ...]
    ) -> tuple[bool, Any]:
        """It was in flight when the last kernel died, and doing it twice may matter: ask."""
        said = effect.name if effect.about is None else effect.about(*args)
        answer = await self._kernel.interrupts.ask(
            process,
            kind="in_doubt",
            key=f"doubt:{key}",
            question=f"Was {said} performed? retry, skip or fail",
            message=f"effect {key} of process {process.pid} ({effect.name}) was in flight when its kernel stopped",
        )
        if answer.decision == "retry":
            return False, None
        if answer.decision == "skip":
            data = codec.encode(answer.data if effect.skipped is None else effect.skipped(answer.data))
            row = rows.Finished(key, rows.Raw(data), usage=effect.cost_data)
            process.budget.charge(effect.cost)
        else:
            error = EffectInDoubt(f"{effect.name} may or may not have been performed", key=str(key))
            row = rows.Finished(key, error=error_to_row(error), usage=effect.cost_data)
            process.budget.charge(effect.cost)
        journal = self._kernel.journal
        assert journal is not None
        journal.write(process.pid, "effect.finished", rows.encode(row))
        try:
            await suspend(process, journal.waiters)
        except BaseException as cut:
            self.cut_short(process, key, cut)
            raise
        if answer.decision == "skip":
            return True, effect.decode(data)
        raise error


# What leaves an effect as it is. Anything else that is no Exception (a tool may raise what it likes): EffectFailed.
_PASSED_ON = (Exception, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit, SimulatedCrash)


def _limited(budget: Budget, overrun: Usage) -> bool:
    """A quote sets aside only what is limited: the rest is no overrun."""
    return any(budget.limit(dimension) is not None for dimension in overrun.to_data())


def _wrapped(effect: Effect, raised: BaseException) -> EffectFailed:
    return EffectFailed(
        f"{effect.name} raised {type(raised).__name__}: {text_of(raised)}", type=type(raised).__qualname__
    )


async def _awaited(work: Any) -> Any:
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


def _same(live: BaseException, again: BaseException) -> BaseException:
    """The error itself if a replay makes the same of it (class, arguments, attributes), else what a replay makes."""
    if isinstance(live, BaseExceptionGroup):
        return again
    same = type(live) is type(again) and live.args == again.args
    return live if same and _seen(live) == _seen(again) else again


def _seen(error: BaseException) -> dict[str, Any]:
    return {name: value for name, value in getattr(error, "__dict__", {}).items() if not name.startswith("_")}


def _cancellation(error: BaseException) -> str:
    return next((code for code, why in _CUT_OFF.items() if error.args == (why,)), "cancelled")


async def met_again(process: Process, error: dict[str, Any]) -> NoReturn:
    """On replay: raise what was journaled; where the call was cancelled then, wait to be cancelled now.

    What somebody outside gave up on is not cancelled again by anybody, and what ran out of time has waited already: it
    ends here, as it did then.
    """
    code = error.get("code")
    if code in _CUT_OFF:
        raise asyncio.CancelledError(_CUT_OFF[code])
    if code == "cancelled":
        await suspend(process, [])
    raise error_from_row(error)


def recalled(
    process: Process,
    key: rows.Key,
    kind: str,
    name: str,
    digest: bytes,
    call: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
) -> Entry | None:
    """What the journal holds under this key, if it is the same request; a different one is a Divergence.

    An empty `name` is not compared: a message's receiver goes by the hash, since a name may be somebody else's by now.
    `call` has the arguments that the digest was made of, where an earlier version may have journaled an old name.
    """
    assert process.recall is not None
    if isinstance(process.recall, Diverged):
        raise process.recall.error
    entry: Entry | None = process.recall.pop(key, None)
    if not process.recall:
        process.recall = None
    if entry is None:
        return None
    if (
        entry.kind != kind or (name and entry.name != name) or (entry.hash and digest and entry.hash != digest)
    ) and not (call is not None and entry.kind == kind and _is_under_old_names(entry, name, digest, *call)):
        asked = f"{kind} {name}".strip()
        held = f"{entry.kind} {entry.name}".strip()
        detail = " with other arguments" if asked == held else ""
        process.recall = Diverged(
            f"process {process.pid} asked for {asked}{detail} where its journal has {held}",
            hint="the program changed under its journal; run the old one to its end, or start a new process",
            expected=held,
            actual=asked,
            at=str(key),
            pid=process.pid,
        )
        raise process.recall.error
    return entry


def _is_under_old_names(entry: Entry, name: str, digest: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an entry is the same request, journaled when Lyra's own functions had other names."""
    if fixed_name(entry.name) != fixed_name(name):
        return False
    if not entry.hash or entry.hash == digest:
        return True
    before = tuple(arg.under_old_names() if hasattr(arg, "under_old_names") else arg for arg in args)
    return any(entry.hash == canonical_hash(old, before, kwargs) for old in (*old_names(name), name))


def _no_more_doubt(process: Process, key: rows.Key) -> None:
    """What was said about an effect that is over: nobody asks for it again."""
    recall, said = process.recall, f"doubt:{key}"
    if recall is not None and said in recall:
        del recall[said]
        if not recall:
            process.recall = None


class Diverged(dict[Any, Any]):
    """What a process remembers once it has diverged: only that. A program that catches the error gets it again."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__()
        self.error = Divergence(message, **fields)
