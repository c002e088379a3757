"""The one door: the only way anything leaves a process.

    already finished in the journal? return that
        → grant allows? → budget reserve → rate limit / breaker admit
        → journal "started" → run (retry by error class) → journal "finished" → budget settle → Event published

`perform` is that list, in that order. With no journal (a kernel in memory) the two journal steps fall away and nothing else
changes. What the program sees is what the journal holds: a result is encoded, stored, and decoded again before the program
gets it, so a replay can not differ. A refusal (denied, over budget, rate limited) is a fact too and is journaled,
because it may depend on what other processes did at the time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lyra.core import codec
from lyra.core.budget import Usage
from lyra.core.effect import Charged, Effect, canonical_hash
from lyra.core.faultpoint import point
from lyra.core.limits import BLOB_INLINE_BYTES_MAX, EFFECT_VALUE_BYTES_MAX
from lyra.core.policy import counts_as_failure
from lyra.errors import (
    DeadlineExceeded,
    Divergence,
    EffectFailed,
    EffectInDoubt,
    LyraError,
)
from lyra.kernel import rows
from lyra.kernel.faults import error_from_row, error_to_row
from lyra.kernel.process import Process, suspend

if TYPE_CHECKING:
    from lyra.core.budget import Reservation
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.recall import Entry

__all__ = ["Door"]

_NOTHING = Usage()


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
        doubtful = False
        if journal is not None:
            digest = canonical_hash(effect.name, args, kwargs)
            if process.recall is not None:
                entry = recalled(process, key, "do", effect.name, digest)
                if entry is not None:
                    if entry.done:
                        return await self._replayed(process, entry, effect)
                    doubtful = not entry.idempotent
        if kernel.draining:
            await suspend(process, kernel.held)
        if doubtful:
            settled, value = await self._ask_about_doubt(process, key, effect)
            if settled:
                return value
        reservation = None
        try:
            if effect.needy:
                for need in effect.needs_for(args, kwargs):
                    process.grant.check(need)
            if effect.cost_data is not None:
                reservation = process.budget.reserve(effect.cost)
                if reservation.over:
                    kernel.publish(process.pid, "budget.warning", {"effect": effect.name})
            gate = kernel.gate(effect) if effect.gated else None
            if gate is not None:
                await gate.admit(process, effect)
        except LyraError as refusal:
            if reservation is not None:
                process.budget.release(reservation)
            if journal is not None:
                row = rows.Finished(key, error=error_to_row(refusal), name=effect.name, hash=digest)
                journal.write(process.pid, "effect.finished", rows.encode(row))
            raise
        except BaseException:
            if reservation is not None:
                process.budget.release(reservation)
            raise
        point("door.admitted")
        self.in_flight += 1
        started = written = False
        try:
            if journal is not None:
                row_started = rows.Started(key, effect.name, digest, effect.idempotent, effect.cost_data)
                journal.write(process.pid, "effect.started", rows.encode(row_started))
                started = True
                if not effect.idempotent:
                    await suspend(process, journal.waiters)
                    point("door.started")
            elif kernel.listening:
                kernel.publish(process.pid, "effect.started", {"key": key, "name": effect.name})
            if effect.plain and not effect.takes_key:
                value = await effect.run(*args, **kwargs)
                usage = effect.cost
                if type(value) is Charged:
                    value, usage = value.value, value.usage
            else:
                value, usage = await self._run(process, key, effect, args, kwargs, gate)
            point("door.performed")
            if journal is None:
                self._settle(process, effect, reservation, usage)
            else:
                # Encode before settling: a value that cannot be kept is a failed effect.
                data = codec.encode(value)
                blob = await self.put_blob(effect.name, data) if len(data) > BLOB_INLINE_BYTES_MAX else ""
                spent = usage.to_data() if usage.items else None
                row = rows.Finished(key, rows.NIL if blob else rows.Raw(data), blob, None, spent)
                journal.write(process.pid, "effect.finished", rows.encode(row))
                self._settle(process, effect, reservation, usage)
                written = True
                await suspend(process, journal.waiters)
                point("door.finished")
                # Immutable plain values are the same after the round trip; the rest is read back from what was stored.
                if value is not None and type(value) not in _SAME:
                    value = effect.decode(data)
        except asyncio.CancelledError:
            if not written:
                # It may have happened out there: count what was set aside as spent.
                self._settle(process, effect, reservation, effect.cost)
                if started and not kernel.stopping and process.kill_reason is None:
                    self._write_error(process, key, {"code": "cancelled"}, effect.cost)
            raise
        except Exception as error:
            if written:
                raise
            spent = Usage.of(getattr(error, "usage", None)) if hasattr(error, "usage") else _NOTHING
            self._settle(process, effect, reservation, spent)
            if journal is not None:
                self._write_error(process, key, error_to_row(error), spent)
                await suspend(process, journal.waiters)
            elif kernel.listening:
                kernel.publish(
                    process.pid, "effect.finished", {"key": key, "name": effect.name, "error": error_to_row(error)}
                )
            raise
        finally:
            self.in_flight -= 1
            if kernel.draining and self.in_flight == 0:
                kernel.drained()
        if journal is None and kernel.listening:
            kernel.publish(
                process.pid,
                "effect.finished",
                {"key": key, "name": effect.name, "usage": usage.to_data() if usage else None},
            )
        return value

    # ------------------------------------------------------------------ running

    async def _run(
        self,
        process: Process,
        key: rows.Key,
        effect: Effect,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        gate: Any,
    ) -> tuple[Any, Usage]:
        """Call the function, again while the policy says so; each try counts for the breaker."""
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
                if gate is not None:
                    gate.failed(error) if counts_as_failure(error) else gate.succeeded()
                retry = effect.retry
                if retry is None or not retry.should_retry(error, attempt):
                    raise
                delay_s = retry.delay(attempt, self._kernel.rng, error)
                self._kernel.publish(
                    process.pid,
                    "effect.retried",
                    {"key": key, "name": effect.name, "attempt": attempt, "delay_s": delay_s, "error": str(error)},
                )
                await self._kernel.pause(process, delay_s)
                if gate is not None:
                    await gate.admit(process, effect)
                attempt += 1
            else:
                if gate is not None:
                    gate.succeeded()
                if type(value) is Charged:
                    return value.value, value.usage
                return value, effect.cost

    async def _run_in_time(self, effect: Effect, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same, bounded by the kernel's clock (which may be a simulated one)."""
        clock = self._kernel.clock
        task = asyncio.current_task()
        assert task is not None
        assert effect.timeout_s is not None
        late = False

        def stop() -> None:
            nonlocal late
            late = True
            task.cancel()

        timer = clock.call_at(clock.monotonic() + effect.timeout_s, stop)
        try:
            return await effect.run(*args, **kwargs)
        except asyncio.CancelledError:
            if late and task.uncancel() <= 0:
                raise DeadlineExceeded(
                    f"{effect.name} took longer than {effect.timeout_s:g} s", timeout_s=effect.timeout_s
                ) from None
            raise
        finally:
            timer.cancel()

    # ------------------------------------------------------------------ writing down

    def _write_error(self, process: Process, key: rows.Key, error: dict[str, Any], usage: Usage) -> None:
        journal = self._kernel.journal
        if journal is not None:
            row = rows.Finished(key, error=error, usage=usage.to_data() if usage else None)
            journal.write(process.pid, "effect.finished", rows.encode(row))

    def _settle(self, process: Process, effect: Effect, reservation: Reservation | None, usage: Usage) -> None:
        if reservation is None:
            if usage.items:
                process.budget.charge(usage)
            return
        overrun = process.budget.settle(reservation, usage)
        if overrun:
            self._kernel.publish(
                process.pid, "budget.overrun", {"effect": effect.name, "overrun": overrun.to_data()}
            )

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
            if entry.error.get("code") == "cancelled":
                # It was cancelled then; wait to be cancelled now.
                await suspend(process, [])
            raise error_from_row(entry.error)
        return effect.decode(await self._kernel.value_of(entry))

    async def _ask_about_doubt(self, process: Process, key: rows.Key, effect: Effect) -> tuple[bool, Any]:
        """It was in flight when the last kernel died, and doing it twice may matter: ask."""
        answer = await self._kernel.interrupts.ask(
            process,
            kind="in_doubt",
            key=f"doubt:{key}",
            question=f"Was {effect.name} performed? retry, skip or fail",
            message=f"effect {key} of process {process.pid} ({effect.name}) was in flight when its kernel stopped",
        )
        if answer.decision == "retry":
            return False, None
        if answer.decision == "skip":
            data = codec.encode(answer.data)
            row = rows.Finished(key, rows.Raw(data), usage=effect.cost_data)
            process.budget.charge(effect.cost)
        else:
            error = EffectInDoubt(f"{effect.name} may or may not have been performed", key=str(key))
            row = rows.Finished(key, error=error_to_row(error), usage=effect.cost_data)
            process.budget.charge(effect.cost)
        journal = self._kernel.journal
        assert journal is not None
        journal.write(process.pid, "effect.finished", rows.encode(row))
        await suspend(process, journal.waiters)
        if answer.decision == "skip":
            return True, effect.decode(data)
        raise error


_SAME = frozenset({bool, int, float, str, bytes})


def recalled(process: Process, key: rows.Key, kind: str, name: str, digest: bytes) -> Entry | None:
    """What the journal holds under this key, if it is the same request; a different one is a Divergence."""
    assert process.recall is not None
    entry = process.recall.pop(key, None)
    if not process.recall:
        process.recall = None
    if entry is None:
        return None
    if entry.kind != kind or entry.name != name or (entry.hash and digest and entry.hash != digest):
        asked = f"{kind} {name}".strip()
        held = f"{entry.kind} {entry.name}".strip()
        detail = " with other arguments" if asked == held else ""
        raise Divergence(
            f"process {process.pid} asked for {asked}{detail} where its journal has {held}",
            hint="the program changed under its journal; run the old one to its end, or start a new process",
            expected=held,
            actual=asked,
            at=str(key),
            pid=process.pid,
        )
    return entry
