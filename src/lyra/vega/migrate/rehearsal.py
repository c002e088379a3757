"""What a program would do if a run continued with it now, without doing any of it.

Every live process of the run is restored as the next execution will do it, from its last checkpoint or its beginning,
on its own kernel in memory, and answered from the journal alone. Where the journal has no more for a process, it
stops; what was under way there is compared and not done. So it is known, before anything happens, whether the program
asks for what the run asked for, prints what the run printed, and uses all the answers that the run has: a program for
which that is so continues as if it had been the run's from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from lyra.agents.session.open_questions import scopes
from lyra.core.budgets.money import Money
from lyra.core.naming import SUPERVISE, VEGA_AGENT, VEGA_PROCESS, to_fixed_name
from lyra.errors import Divergence, LyraError
from lyra.kernel.base.waiting import suspend
from lyra.kernel.journal.history import Entry, Fold
from lyra.kernel.kernel import Kernel
from lyra.kernel.process.replay import Diverged
from lyra.kernel.programs.context import Context, ExitProgram
from lyra.store.memory import MemoryStore
from lyra.vega.durable.durable_run import prepare, restore_fiber, restore_from
from lyra.vega.durable.record import MAIN, ProgramMigration
from lyra.vega.machine.fiber import Done, Fiber, VmEffect
from lyra.vega.machine.link import Code, link
from lyra.vega.machine.vm import run as run_fiber
from lyra.vega.replay.frozen_kernel import (
    EndOfRecord,
    FrozenWorld,
    JournalAnswers,
    ReplayRecord,
    replay_seams,
    run_in_virtual_time,
)
from lyra.vega.replay.reader import SEGMENT_FUEL, Part, part_of
from lyra.vega.runtime.driver import PROGRAMS
from lyra.vega.runtime.handlers import HANDLERS, handler
from lyra.vega.runtime.job import VegaJob
from lyra.vega.runtime.light_processes import FUEL
from lyra.vega.runtime.run import MAILBOX_MESSAGES
from lyra.vega.runtime.world import RunOptions
from lyra.vega.values.values import fault_of

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process
    from lyra.vega.bytecode.program import Program
    from lyra.vega.durable.runs import DurableRun


class Rehearsal(ReplayRecord):
    """`taken` are the keys of the answers that each process used, `printed` its lines by number, `entered` the
    functions that it called to get there, `stands` where it has come to, `diverged` where it asked for something else,
    and what."""

    def __init__(self, run: DurableRun, program: Program, migration: ProgramMigration | None = None) -> None:
        self.taken: dict[str, set[Any]] = {}
        self.printed: dict[str, dict[int, str]] = {}
        self.entered: dict[str, set[int]] = {}
        self.diverged: dict[str, tuple[str, str]] = {}  # place, and what it did there
        self.stands: dict[str, str] = {}  # the place that each process has come to
        self.globals: list[Any] = []  # of the main process, where it stands
        self._running = ""
        self._unprinted = dict(run.facts.printed)  # lines that each process has still to print again
        self._answers: dict[str, _RehearsalAnswers] = {}
        self._paid = run.facts.paid
        began = run.began
        self.kernel = Kernel(
            _Copy(run),
            lease_s=1e12,
            snapshot_every_events=1 << 60,
            mailbox_messages_max=MAILBOX_MESSAGES,
            seams=replay_seams(_process),
        )
        self.kernel.parts["replay"] = Part(self)
        options = RunOptions(
            write=lambda _: None,
            warn=lambda _: None,
            model=began["model"],
            budget=None if began["budget"] is None else Money(began["budget"]),
            args=tuple(began["args"]),
            folder=began["folder"],
            sequential=True,
        )
        self.world = FrozenWorld(self.kernel, program, options, MAIN, programs=PROGRAMS, record=self)
        content_hash = self.world.linked.hash
        linked = link(program, is_hashed=False)
        linked.hash = content_hash
        linked.functions = [_Watched(self, index, code.function) for index, code in enumerate(linked.functions)]
        self.world.linked = linked
        prepare(self.world, run, migration)
        self.world.runtime.name = str(began["nonce"])
        restore_from(self.world, run)

    def rehearse(self) -> None:
        run_in_virtual_time(self._work)
        for pid, process in self.kernel.processes.items():
            if isinstance(process.replay, Diverged):
                self.fails(pid, process.replay.error)

    def enters(self, index: int) -> None:
        """Note that a process calls a function; what it calls behind all that is known of it is not told."""
        pid = self._running
        if pid and (self._answers[pid].has_more or self._unprinted.get(pid, 0) > 0):
            self.entered[pid].add(index)

    def get_session_costs(self, session: str) -> dict[str, int]:
        """Return what the next execution will find: a process that was saved in a session counts on it."""
        return self._paid.get(session, {})

    def print(self, pid: str, number: int, text: str) -> None:
        self.printed.setdefault(pid, {})[number] = text
        self._unprinted[pid] = self._unprinted.get(pid, 0) - 1

    async def _work(self, all_wait: asyncio.Event) -> None:
        await self.kernel.start()
        try:
            for process in self.kernel.processes.values():
                process.context.run(scopes.set, (self.world.budget,))
            await all_wait.wait()
            if self.world.main is not None:
                self.globals = self.world.main.fiber.globals
        finally:
            self.world.close()
            await self.kernel.close(drain_s=0.0)

    # ------------------------------------------------------------ one process

    def begins(self, process: Process) -> None:
        pid = process.pid
        self.taken[pid], self.entered[pid] = set(), set()
        process.replay = self._answers[pid] = _RehearsalAnswers(process.replay or {}, process, self.taken[pid])

    def stops(self, pid: str, fiber: Fiber) -> None:
        file, line, _ = fiber.place()
        self.stands[pid] = f"{file}:{line}" if line else ""

    def fails(self, pid: str, error: LyraError) -> None:
        self.diverged.setdefault(pid, (self.stands.get(pid, ""), _in_words(error)))

    def job(self, ctx: Context, seed: Any) -> VegaJob:
        """Return a process from its seed, or as it was saved."""
        is_saved = ctx.restored is not None
        with self._run_as("" if is_saved else ctx.own_process.pid):
            job = VegaJob(self.world, ctx, self.world.fiber(seed))
        if seed is None:
            self.world.begin(job)
            scopes.set((self.world.budget,))
        elif type(seed) is dict:
            self.world.enter_sessions(seed.get("sessions", ()))
            if ctx.pid in self.world.early:
                scopes.set((self.world.early[ctx.pid].scope,))
        if is_saved:
            job.fiber = restore_fiber(self.world, job, ctx.restored)
            self._unprinted[ctx.own_process.pid] = self._unprinted.get(ctx.own_process.pid, 0) - job.state.printed
            self.entered[ctx.own_process.pid].update(code.index for code, _ in job.fiber.frames())
        return job

    @contextmanager
    def _run_as(self, pid: str) -> Iterator[None]:
        self._running = pid
        try:
            yield
        finally:
            self._running = ""

    def run(self, pid: str, fiber: Fiber) -> Any:
        with self._run_as(pid):
            return run_fiber(fiber, FUEL)


def _in_words(error: LyraError) -> str:
    """Describe what a process does in place of what the run did there."""
    if not isinstance(error, Divergence) or "expected" not in error.fields:
        return error.message
    does, did = (describe_effect(*str(error.fields[word]).split(" ", 1)) for word in ("actual", "expected"))
    return f"{does}, but not as the run did" if does == did else f"{does} where the run {did}"


class _Watched(Code):
    """A function that tells when its registers are copied, which is when it is called."""

    __slots__ = ("_fresh", "_rehearsal")

    def __init__(self, rehearsal: Rehearsal, index: int, function: Any) -> None:
        self._rehearsal = rehearsal
        super().__init__(index, function)

    @property
    def template(self) -> list[Any]:
        self._rehearsal.enters(self.index)
        return self._fresh

    @template.setter
    def template(self, fresh: list[Any]) -> None:
        self._fresh = fresh


class _Copy(MemoryStore):
    """The processes of a run as they stand, in memory; its blobs are looked up where they are."""

    __slots__ = ("_space",)

    def __init__(self, run: DurableRun) -> None:
        super().__init__()
        self._space = run.space
        fold = Fold()
        fold.seq = run.fold.seq
        for pid, state in run.processes.items():
            created = replace(state.created, budget=None)  # a rehearsal stops no process for what it spent
            fold.processes[pid] = replace(state, created=created)
        fold.changed = set(fold.processes)
        self._states = {pid: data for pid, data in fold.dump().items() if data is not None}
        self._first, self._snapshot_seq = fold.seq + 1, fold.seq

    def get_blob(self, digest: str) -> bytes:
        return self._blobs.get(digest) or self._space.get_blob(digest)


class _Pending:
    """An answer that the journal does not have yet. Its kind, name and hash can be compared; reading its value raises
    `EndOfRecord`."""

    def __init__(self, entry: Entry) -> None:
        self.kind, self.name, self.hash = entry.kind, entry.name, entry.hash

    def __getattr__(self, name: str) -> Any:
        raise EndOfRecord


class _RehearsalAnswers(JournalAnswers):
    """The answers of one process; `taken` has the keys of those that it used."""

    def __init__(self, entries: dict[Any, Entry], process: Process, taken: set[Any]) -> None:
        super().__init__(entries)
        self._process = process
        self._taken = taken

    @property
    def has_more(self) -> bool:
        return any(key not in self._taken for key in self.open_keys())

    def pop(self, key: Any, default: Any = None) -> Any:  # noqa: ARG002 - as a dict has it
        entry = super().get(key)
        if entry is None:
            raise EndOfRecord
        self._taken.add(key)
        if not entry.done or (entry.kind == "sleep" and not self._is_over(key, entry)):
            return _Pending(entry)
        return super().pop(key)

    def _is_over(self, key: Any, entry: Entry) -> bool:
        """Return whether a sleep has ended, by the kernel's rule: the journal continues behind it, or its time has
        come."""
        path, _, number = str(key).rpartition("/")
        after = key + 1 if isinstance(key, int) else f"{path}/{int(number) + 1}"
        return after in self or entry.due <= self._process.kernel.clock.now()


async def _process(ctx: Context, _run_id: str, seed: Any) -> None:
    """Run a process as `driver.vega_process` does. It never ends, because the end of a process would end others."""
    process = ctx.own_process
    rehearsal: Rehearsal = part_of(process)
    pid = process.pid
    rehearsal.begins(process)
    try:
        job = rehearsal.job(ctx, seed)
        try:
            await _play(rehearsal, job)
        finally:
            rehearsal.stops(pid, job.fiber)
    except LyraError as error:
        rehearsal.fails(pid, error)
    except asyncio.CancelledError:
        if process.kernel.stopping:
            raise
    await suspend(process, [])


async def _play(rehearsal: Rehearsal, job: VegaJob) -> None:
    fiber, used = job.fiber, 0
    pid = job.ctx.own_process.pid
    while used < SEGMENT_FUEL:
        outcome = rehearsal.run(pid, fiber)
        if type(outcome) is Done:
            return
        if type(outcome) is not VmEffect:
            used += FUEL
            await asyncio.sleep(0)
            continue
        used = 0
        try:
            if outcome.kind == "receive" and outcome.arguments[0] is None:
                job.take(await job.ctx.receive())
                continue
            value = (HANDLERS.get(outcome.kind) or handler(outcome.kind))(job, *outcome.arguments)
            if asyncio.iscoroutine(value):
                value = await value
            fiber.resume(value)
        except ExitProgram:
            return
        except Divergence:
            raise
        except Exception as error:  # noqa: BLE001 - as the driver has it
            fault = fault_of(error)
            fiber.throw(fault.name, fault.text)


# What a journal calls an effect, in the words of the program that asks for it: `spawn agent:Critic` asks Critic.

_STARTS: Final = {
    VEGA_PROCESS: "starts a function",
    VEGA_AGENT: "starts an agent",
    SUPERVISE: "starts an agent or a supervisor",
}
_READS: Final = {"clock": "reads the clock", "seed": "draws a random number"}
_ASKS: Final = {"vega.ask": "asks {}", "vega.stream": "reads a stream of {}"}
_PLAIN: Final = {
    "send": "sends a message",
    "receive": "waits for a message",
    "sleep": "sleeps",
    "wait": "waits for a process",
    "refused": "asks in vain",
    "link": "links a process",
    "monitor": "monitors a process",
}


def describe_effect(kind: str, name: str = "") -> str:
    """Describe what a process does, by the kind and the name of its effect; one that has no words yet as it is
    called."""
    if kind == "spawn":
        agent = name.removeprefix("agent:").partition("~")[0]
        return f"asks {agent}" if name.startswith("agent:") else _STARTS.get(to_fixed_name(name), "starts a process")
    if kind == "do":
        what, _, agent = name.partition(":")
        return _ASKS[what].format(agent) if what in _ASKS else f"calls {name.removeprefix('vega.').replace('.', '::')}"
    if kind == "read":
        return _READS.get(name, f"reads {name}")
    return _PLAIN.get(kind, f"{kind} {name}".strip())
