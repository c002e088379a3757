"""What goes on around the programs during one life: people, operators and misfortune, all drawn from the seed.

`drive` opens the kernel, lets the troublemakers of `TROUBLE` loose, starts the programs, and either leaves
everything to be interrupted or brings the world to rest and closes it. `drive_briefly` is the second kernel of a
take-over. Checks of what was acknowledged are made here, at the moment when the kernel says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.errors import ConfigError, Conflict, InvalidTransition, LyraError, NoSuchInterrupt, StoreFull
from lyra.kernel import Kernel
from lyra.testing.loop import LoopClock
from verify.simulation import inspections, invariants
from verify.simulation.failing_disk import FaultStore
from verify.simulation.workload import SINK, sink, worker

if TYPE_CHECKING:
    from verify.simulation.world import Life, World

__all__ = ["drive", "drive_briefly"]

_SINK_READS: Final = 40


async def drive(world: World, life: Life, *, ending: str) -> None:
    """One life. It returns only if the life is to end in good order; otherwise the world ends it from outside."""
    await _open(world, life)
    async with asyncio.TaskGroup() as group:
        trouble = [group.create_task(_survive(world, life, cause)) for cause in TROUBLE for _ in range(TROUBLE[cause])]
        await _survive(world, life, _start_programs)
        for scene in world.scenes:
            await _survive(world, life, scene.begin)
            causes = [cause for cause, count in scene.trouble.items() for _ in range(count)]
            trouble += [group.create_task(_survive(world, life, cause)) for cause in causes]
        if ending == "end":
            for scene in world.scenes:
                await _survive(world, life, scene.finish)
            await _come_to_rest(world, life, trouble)
        elif ending == "close":
            await asyncio.sleep(life.rng.choice([0.0, 1.0, 30.0, 300.0]) * life.rng.random())
        else:
            await asyncio.sleep(world.horizon_s)
        for task in trouble:
            task.cancel()
    await _close(world, life)


async def drive_briefly(world: World, life: Life) -> None:
    await _open(world, life)
    await _survive(world, life, _start_programs)
    for scene in world.scenes:
        await _survive(world, life, scene.begin)
    await asyncio.sleep(life.rng.uniform(0.0, 30.0))
    await _close(world, life)


async def _open(world: World, life: Life) -> None:
    kernel = life.kernel
    kernel.on_event(life.heard)
    while True:
        try:
            await kernel.start()
            break
        except Conflict as held:  # the last owner died: its lease has to run out
            left_s = float(held.fields.get("expires_at", 0.0)) - world.clock.now()
            await asyncio.sleep(max(left_s, 0.01))
    for pid in world.killed:
        process = kernel.processes.get(pid)
        if process is not None and process.exit is None:
            world.violate("acknowledged", f"{pid} was killed, that was acknowledged, and it lives again")
    for interrupt in kernel.interrupts.pending():
        life.asked(interrupt.id, interrupt.kind)
    if world.scenes:
        for interrupt in kernel.interrupts.list_interrupts(status="pending"):
            life.asked(interrupt.id, interrupt.kind)
        world.report(inspections.same_as_journal(kernel, world.ledger.rows))


async def _survive(world: World, life: Life, cause: Callable[[World, Life], Awaitable[None]]) -> None:
    """Refusals are part of the game: a full disk, a process that is gone, a store that was lost."""
    try:
        await cause(world, life)
    except LyraError as error:
        if isinstance(error, Conflict) and not life.paused:
            world.violate("fenced", f"the owner of the store was refused: {error}")


# ---------------------------------------------------------------------- programs


async def _start_programs(world: World, life: Life) -> None:
    for pid, (spec, options) in world.roots.items():
        await _started(world, life.kernel.spawn(worker, spec, SINK, pid=pid, **options))
    await _started(world, life.kernel.spawn(sink, _SINK_READS, pid=SINK))


async def _started(world: World, handle: Any) -> None:
    try:
        await handle
    except StoreFull:
        return
    if handle.pid not in world.ledger.processes:
        world.violate("acknowledged", f"{handle.pid} was acknowledged as started and is not in the journal")


async def _come_to_rest(world: World, life: Life, trouble: list[asyncio.Task[None]]) -> None:
    """Wait for the ends; stop what never ends; look at what is left."""
    kernel = life.kernel
    for grace_s in (world.horizon_s, 60.0):
        deadline = world.clock.monotonic() + grace_s
        while _living(kernel) and world.clock.monotonic() < deadline:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(grace_s / 60)
        if not _living(kernel):
            break
        for pid in _living(kernel):
            kernel.kill(pid)
    journal = kernel.journal
    while journal is not None and (journal.pending or journal.stuck is not None):  # noqa: ASYNC110 - same
        await asyncio.sleep(5.0)
    if world.scenes:  # theirs go on using services until they are told to stop
        for task in trouble:
            task.cancel()
        await asyncio.wait(trouble)
        await _survive(world, life, _until_written)
        world.report(inspections.inspect_rest(kernel, world.ledger))
        world.report(inspections.same_as_journal(kernel, world.ledger.rows))
    world.report(invariants.inspect_rest(kernel, world.ledger))


async def _until_written(_world: World, life: Life) -> None:
    await asyncio.sleep(100.0)  # abandoned requests come to their time-out
    await life.kernel.durable()


def _living(kernel: Kernel) -> list[str]:
    return [pid for pid, process in kernel.processes.items() if process.exit is None]


async def _close(world: World, life: Life) -> None:
    kernel = life.kernel
    try:
        if world.scenes and life.rng.random() < 0.3:
            await kernel.shutdown("closing time")
        await kernel.close()
    except StoreFull:
        pass
    except LyraError as error:
        if "disk is full" not in error.message:  # a shutdown tells all that went wrong in one error
            world.violate("ends", f"closing the kernel raised {error!r}")
    await kernel.close()
    life.closed = True
    holder = world.disk.holder()
    if holder is not None and not life.paused and world.clock.monotonic() >= world.full_until:
        world.violate("slots", "the kernel was closed and its lease is still held")
    try:
        await kernel.send(SINK, "after the end")
    except LyraError:
        return
    world.violate("acknowledged", "a closed kernel acknowledged a message")


# ---------------------------------------------------------------------- trouble


async def _send(world: World, life: Life) -> None:
    """Send a message from outside and wait until it is durable."""
    await _some_time(life)
    alive = list(life.kernel.processes)
    if not alive:
        return
    known = len(world.ledger.rows)
    mark = f"outside-{life.number}-{life.rng.getrandbits(30)}"
    await life.kernel.send(life.rng.choice(alive), mark)
    if not any(row[3] == "message.sent" and mark.encode() in row[4] for row in world.ledger.rows[known:]):
        world.violate("acknowledged", f"the message {mark} was acknowledged and is not in the journal")


async def _kill(world: World, life: Life) -> None:
    await _some_time(life)
    alive = _living(life.kernel)
    if not alive or life.rng.random() < 0.7:
        return
    pid = life.rng.choice(alive)
    await life.kernel.kill(pid)
    world.killed.add(pid)
    if not world.ledger.processes[pid].stopping:
        world.violate("acknowledged", f"the kill of {pid} was acknowledged and is not in the journal")


async def _cancel_question(_world: World, life: Life) -> None:
    """An operator takes a question back."""
    await _some_time(life)
    pending = life.kernel.interrupts.pending()
    if pending and life.rng.random() < 0.3:
        life.kernel.interrupts.cancel(life.rng.choice(pending).id, "taken back")


async def _jump(world: World, life: Life) -> None:
    await _some_time(life)
    if life.rng.random() < 0.5:
        world.clock.jump(life.rng.choice([-4000.0, -30.0, 30.0, 4000.0]))


async def _fill_disk(world: World, life: Life) -> None:
    await _some_time(life)
    if life.rng.random() < 0.4:
        world.full_until = world.clock.monotonic() + life.rng.uniform(0.1, 20.0)


async def _rival(world: World, life: Life) -> None:
    """A second kernel on a store that is owned."""
    await _some_time(life)
    holder = world.disk.holder()
    if life.rng.random() < 0.6 or holder is None or holder.expires_at <= world.clock.now():
        return
    rival = Kernel(FaultStore(world, life), clock=LoopClock(world.clock, life.loop), seed=1)
    try:
        await rival.start()
    except Conflict:
        return
    world.violate("fenced", "a second kernel opened a store whose owner lives")


async def _some_time(life: Life) -> None:
    await asyncio.sleep(life.rng.choice([0.1, 5.0, 60.0, 600.0]) * life.rng.random())


TROUBLE: Final[dict[Callable[[Any, Any], Awaitable[None]], int]] = {
    _send: 3,
    _kill: 2,
    _cancel_question: 1,
    _jump: 1,
    _fill_disk: 1,
    _rival: 1,
}


def answer(world: World, life: Life, interrupt_id: str, kind: str) -> None:
    """A person answers in their own time, or not at all; an effect in doubt is always decided in the end."""
    rng = life.rng
    if kind != "in_doubt" and rng.random() < 0.25:
        return

    def now() -> None:
        if life.kernel.stopping or life.kernel.failure is not None:
            return
        decision = rng.choice(["retry", "skip", "fail"]) if kind == "in_doubt" else "yes"
        data = {"key": "skipped", "nth": 0} if decision == "skip" else None
        approved = True
        if world.scenes:
            approved = rng.random() < 0.7
            data = {**data, "output": {"run": -1}} if data is not None else None  # as an answer of an agent
        try:
            life.kernel.resolve_interrupt(
                interrupt_id, {"text": "ok", "approved": approved, "decision": decision, "data": data}
            )
        except (InvalidTransition, NoSuchInterrupt):
            pass  # it expired, its process ended, or it was over long ago and is forgotten
        except ConfigError as error:
            world.violate("contained", f"a good answer was refused: {error}")

    life.loop.call_later(rng.choice([0.1, 10.0, 1000.0, 5000.0]) * rng.random(), now)
