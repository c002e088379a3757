"""From the journal of a run to its timeline.

The program runs once more on its own kernel, in memory, and every process is answered from the journal as after a
crash, also those that ended long ago. What the journal does not have is never done: a process that comes to it has come
to the end of its record and waits there. Each answer is written down with the row that it came from, and these rows
say in which order things happened. Waiting takes no time here, and nothing outside is asked.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.core import codec
from lyra.core.budgets.budget import Usage
from lyra.errors import Divergence, LyraError, StoreError
from lyra.kernel.base.waiting import suspend
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_from_row
from lyra.kernel.kernel import Kernel
from lyra.kernel.programs.context import Context, ExitProgram
from lyra.store.memory import MemoryStore
from lyra.vega.durable.durable_run import prepare
from lyra.vega.durable.record import MAIN
from lyra.vega.machine.fiber import Done, Fiber, VmEffect
from lyra.vega.machine.link import link
from lyra.vega.machine.rare_instructions import Again
from lyra.vega.machine.snapshot import to_data
from lyra.vega.machine.vm import run as run_fiber
from lyra.vega.replay.frozen_kernel import (
    SILENT,
    FrozenWorld,
    PrintlessRecord,
    RecordedReplay,
    RecordingFiber,
    RunJournal,
    describe_step,
    in_program_order,
    replay_seams,
    run_in_virtual_time,
)
from lyra.vega.replay.timeline import END, START, JournaledAnswer, ProcessFacts, Timeline, TimelineStep, brief
from lyra.vega.runtime.driver import PROGRAMS
from lyra.vega.runtime.handlers import HANDLERS, handler
from lyra.vega.runtime.job import VegaJob
from lyra.vega.runtime.light_processes import FUEL
from lyra.vega.runtime.run import MAILBOX_MESSAGES
from lyra.vega.runtime.world import RunOptions, world_of
from lyra.vega.values.values import Stream, copy_value, fault_of

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process
    from lyra.vega.bytecode.program import Program
    from lyra.vega.durable.runs import DurableRun


SEGMENT_FUEL: Final = (
    20_000_000  # calls and loop turns between two effects; a process that needs more was killed in a loop
)
_PART: Final = "replay"


def read(run: DurableRun) -> Timeline:
    """Return the timeline of a run. Corrupt or StoreError where the journal is damaged or was shortened."""
    journal = RunJournal(run)
    reading = _Reading(run, journal)
    run_in_virtual_time(reading.work)
    return reading.timeline()


class _Reading:
    def __init__(self, run: DurableRun, journal: RunJournal) -> None:
        self.run = run
        self.journal = journal
        self.steps: list[TimelineStep] = []
        self.waits: dict[str, str] = {}
        self.notes: list[str] = []
        self._open = set(journal.processes)
        self._done: asyncio.Event | None = None
        began = run.began
        store = MemoryStore()
        store.append(journal.doctored, 0)
        for digest in journal.blobs:
            with suppress(StoreError):
                store.put_blob(run.space.get_blob(digest))
        self.kernel = Kernel(
            store,
            lease_s=1e12,
            snapshot_every_events=1 << 60,
            mailbox_messages_max=MAILBOX_MESSAGES,
            seams=replay_seams(_process),
        )
        self.kernel.parts[_PART] = Part(self)
        options = RunOptions(
            write=lambda _: None,
            warn=lambda _: None,
            model=began["model"],
            args=tuple(began["args"]),
            folder=began["folder"],
            sequential=True,
        )
        self.program = _program(run)
        self.linked = [link(run.program(version)) for version in range(len(run.versions))]
        self._last: dict[str, TimelineStep] = {}
        self._unread: dict[str, TimelineStep] = {}  # streams that were opened
        self.world = FrozenWorld(self.kernel, self.program, options, MAIN, programs=PROGRAMS, record=PrintlessRecord())
        prepare(self.world, run)
        self.world.runtime.name = str(began["nonce"])
        for pid, agent in journal.agents.items():
            self.world.expected[pid] = self.world.spawned[pid] = agent
        for pid, usage in journal.spent_by.items():
            self.world.spent_before[pid] = Usage.from_data(usage)

    async def work(self, all_wait: asyncio.Event) -> None:
        """Run until every process is where its record ends, or no process can continue."""
        self._done = all_wait
        await self.kernel.start()
        try:
            for process in self.kernel.processes.values():
                process.context.run(scopes.set, (self.world.budget,))
            if self._open:
                await all_wait.wait()
        finally:
            self.world.close()
            await self.kernel.close(drain_s=0.0)

    # ------------------------------------------------------------ what processes tell

    def began(self, pid: str, fiber: Fiber) -> None:
        seq, _ = self.journal.created[pid]
        file, line, _ = fiber.place()
        name = "main" if fiber.code.index == fiber.linked.program.entry else fiber.code.name
        self._add(TimelineStep(pid=pid, kind=START, what=f"start {name}", seq=seq, file=file, line=line))

    def _add(self, step: TimelineStep) -> None:
        last = self._last.get(step.pid)
        step.version = self.journal.version(step.pid) if last is None else last.version
        self._last[step.pid] = step
        self.steps.append(step)

    def goes_on(self, pid: str, fiber: Fiber, key: int) -> None:
        """Note that a process is at a checkpoint: if others brought it back from there with another program, so it
        continues."""
        last, version = self._last[pid], self.journal.version(pid, key)
        if version != last.version:
            last.version = version
            fiber.move_to(self.linked[version])

    def add_answer(self, pid: str, step: TimelineStep, answer: JournaledAnswer) -> None:
        """Add an effect with its answer; the row that it came from says when it was."""
        step.answer = answer
        seq = max((self.journal.seq_of(pid, key) for key in step.keys), default=0)
        if step.kind == "print":
            seq = self.journal.take_print_row(pid)
        previous = self.journal.reached.get(pid, self.journal.created[pid][0])
        step.seq = self.journal.reached[pid] = max(seq, previous)
        step.began_at = self.journal.time_of(previous)
        if answer.thrown is not None:
            step.error = f"{answer.thrown.name}: {answer.thrown.text}"[:2_000]
        elif answer.error is not None:
            step.error = f"{answer.error[0]}: {answer.error[1]}"[:2_000]
        elif step.kind != "print":
            given = answer.heard[-1] if answer.is_receive and answer.heard else answer.value
            step.result = "" if given is None else brief(given, program=self.world.linked.program)
            if answer.expired:
                step.result = "its time was over"
        self._add(step)

    def took(self, step: TimelineStep, keys: list[Any]) -> None:
        """Note that a step was answered under these keys, by the processes that were made under them."""
        step.keys = [*step.keys, *keys]
        children = self.journal.children
        step.children = [child for key in step.keys if (child := children.get((step.pid, key)))]
        self._asks(step)

    def note_stream(self, step: TimelineStep, stream: Any) -> None:
        """Note that a step opens a stream or reads it. With the first reading the agent is asked, and by its process it
        answers what opened it."""
        if not isinstance(stream, Stream):
            return
        if step.kind == "send_stream":
            step.stream, self._unread[stream.id] = stream.id, step
        elif stream.id in self._unread:
            opening = self._unread.pop(stream.id)
            step.stream, opening.children = stream.id, step.children
            self._asks(opening)

    def _asks(self, step: TimelineStep) -> None:
        if step.agent:
            self.journal.agent_history.answer_for(step.target, step.children)

    def finish_process(self, pid: str, waits: str = "") -> None:
        if waits:
            self.waits[pid] = waits
            ended = self.journal.ended.get(pid)
            if ended is not None and ended[2].reason in _BY_ITSELF:
                self.notes.append(f"process {pid} ended, and its journal leads no further than: {waits}")
        self._open.discard(pid)
        if not self._open and self._done is not None:
            self._done.set()

    def wrong(self, pid: str, error: BaseException) -> None:
        self.notes.append(f"process {pid}: {error}")
        self.finish_process(pid)

    # ------------------------------------------------------------ the end

    def timeline(self) -> Timeline:
        journal = self.journal
        for pid, (seq, _, ended) in journal.ended.items():
            if pid in journal.processes:
                self.steps.append(TimelineStep(pid=pid, kind=END, what="end", seq=seq, **_ending(ended)))
        steps = in_program_order(self.steps, journal.processes)
        for step in steps:
            step.ended_at = journal.time_of(step.seq)
        journal.charge(steps)
        timeline = Timeline(self.run.id, self.program, self.run.sources(), steps, self._facts())
        timeline.versions = [(linked.program, self.run.sources(version)) for version, linked in enumerate(self.linked)]
        timeline.agent_history, timeline.replies = journal.agent_history, journal.replies
        timeline.agents = {pid: name for pid, (name, _) in journal.agents.items()}
        timeline.waits = {pid: effect for pid, effect in self.waits.items() if pid not in journal.ended}
        timeline.notes = [*journal.notes, *self.notes]
        timeline.state = self.run.state
        return timeline

    def _facts(self) -> dict[str, ProcessFacts]:
        started = {step.pid: step.what.removeprefix("start ") for step in self.steps if step.kind == START}
        facts = {}
        for pid, created in self.journal.processes.items():
            ended = self.journal.ended.get(pid)
            facts[pid] = ProcessFacts(
                pid=pid,
                function=started.get(pid, "?"),
                parent=created.parent,
                seed=self.journal.seed(pid),
                ended="" if ended is None else ended[2].reason,
                known_as=created.parent if created.guarded else pid,
            )
        return facts


class Part:
    """How the processes of a kernel find the reading, or the rehearsal, that they belong to."""

    def __init__(self, reading: Any) -> None:
        self.reading = reading

    async def close(self) -> None:
        """Nothing of its own."""


def part_of(process: Process) -> Any:
    return process.kernel.parts[_PART].reading


async def _process(ctx: Context, run_id: str, seed: Any) -> None:
    """Run a process as `driver.vega_process` does, with every answer written down. It never ends, because the end of a
    process would end others."""
    reading: _Reading = part_of(ctx.own_process)
    process = ctx.own_process
    pid = process.pid
    world = world_of(ctx, run_id)
    recall = process.replay = RecordedReplay(process.replay or {}, process, reading.journal)
    if seed is None:
        scopes.set((world.budget,))
    elif type(seed) is dict:
        world.enter_sessions(seed.get("sessions", ()))
        if ctx.pid in world.early:
            scopes.set((world.early[ctx.pid].scope,))
    assert isinstance(world, FrozenWorld)
    fiber = world.fiber(seed, reading.linked[reading.journal.version(pid)])
    assert isinstance(fiber, RecordingFiber)
    job = VegaJob(world, ctx, fiber)
    if seed is None:
        world.begin(job)
    reading.began(pid, fiber)
    waits = ""
    try:
        waits = await _play(reading, job, fiber, recall)
    except Divergence as error:
        reading.wrong(pid, error)
    except LyraError as error:
        reading.wrong(pid, error)
    except asyncio.CancelledError:  # something beside its own line came to the end of the record
        if process.kernel.stopping:
            raise
    reading.finish_process(pid, waits)
    await suspend(process, [])


async def _play(reading: _Reading, job: VegaJob, fiber: RecordingFiber, recall: RecordedReplay) -> str:
    """Every step of a process; gives what it waits for where its record ends."""
    pid = job.ctx.own_process.pid
    used = 0
    beside: dict[str, TimelineStep] = {}  # calls of a `parallel`, by their branches
    while True:
        # Skip the key that a checkpoint of the run took; this replay starts before it and saves nothing. Some steps
        # take no key, so the saved state decides between which two steps the checkpoint was.
        process = job.ctx.own_process
        kept = reading.journal.checkpoints.get(process.pid)
        if kept and process.keys in kept:
            assert isinstance(process.keys, int)
            saved = reading.journal.load_fiber(process.pid, process.keys)
            if saved is None or (_may_be(job.fiber, saved) and codec.encode(saved) == codec.encode(to_data(job.fiber))):
                reading.goes_on(process.pid, job.fiber, process.keys)
                process.keys += 1
                process.rng = None
        outcome = run_fiber(fiber, FUEL)
        fiber.note_mailbox(outcome)
        if type(outcome) is Done:
            return ""
        if type(outcome) is not VmEffect:
            used += FUEL
            if used > SEGMENT_FUEL:
                return "computing"
            await asyncio.sleep(0)
            continue
        used = 0
        fiber.heard, fiber.expired, recall.taken = [], False, []
        step = describe_step(reading.journal, pid, fiber, outcome)
        branches = _branches(job, outcome)
        answer = await _act(job, fiber, outcome)
        if answer is not None and outcome.kind in SILENT:
            continue
        reading.took(step, [*recall.taken, *(key for path in branches for key in recall.find_branch_answers(path))])
        for path in beside.keys() & branches:
            reading.took(beside.pop(path), recall.find_branch_answers(path))
        if outcome.kind in _STREAMS:
            reading.note_stream(step, _stream(outcome, answer))
        if answer is None:  # no step of the timeline, but whom it asks is known
            return step.what
        answer.heard, answer.expired = fiber.heard, fiber.expired
        if outcome.kind == "parallel_send" and answer.error is None:
            number = outcome.arguments[0]
            beside[f"parallel{number}:{len(job.state.groups[number]) - 1}"] = step
        reading.add_answer(pid, step, answer)
        fiber.note_message(step, answer)
        if answer.is_last:
            return ""


async def _act(job: VegaJob, fiber: RecordingFiber, effect: VmEffect) -> JournaledAnswer | None:
    """Do an effect as the driver does, and resume the fiber; None where the record ends before its answer."""
    answer = JournaledAnswer()
    try:
        if effect.kind == "receive" and effect.arguments[0] is None:
            job.take(await job.ctx.receive())
            answer.is_receive = True
        else:
            answer.is_receive = effect.kind == "receive"
            act = HANDLERS.get(effect.kind) or handler(effect.kind)
            value = act(job, *effect.arguments)
            if asyncio.iscoroutine(value):
                value = await value
            thrown = fiber.fault.error if isinstance(fiber.fault, Again) else None
            if effect.kind not in SILENT:
                answer.value, answer.thrown = copy_value(value), thrown
            fiber.resume(value)
    except asyncio.CancelledError:
        if job.world.kernel.stopping:
            raise
        return None
    except ExitProgram:
        answer.is_last = True
    except Divergence:
        raise
    except Exception as error:  # noqa: BLE001 - as the driver has it
        fault = fault_of(error)
        answer.error = (fault.name, fault.text)
        fiber.throw(fault.name, fault.text)
    return answer


def _stream(effect: VmEffect, answer: JournaledAnswer | None) -> Any:
    """Return the stream that an effect opens or reads."""
    if effect.kind != "send_stream":
        return effect.arguments[0]
    return None if answer is None else answer.value


def _branches(job: VegaJob, effect: VmEffect) -> list[str]:
    """Return the branches of a process whose answers are those of an effect, as `runtime.early_calls` and
    `runtime.handlers` name them."""
    if effect.kind == "ahead_take":
        group, call = effect.arguments[:2]
        return [f"ahead{group.number}:{call.key}"]
    if effect.kind == "parallel_join":
        number = effect.arguments[0]
        return [f"parallel{number}:{index}" for index in range(len(job.state.groups.get(number, ())))]
    return []


def _may_be(fiber: Fiber, saved: dict[str, Any]) -> bool:
    """Look at the innermost call first: the whole is compared only where that is the same."""
    index, pc, values, _ = saved["frames"][0]
    if fiber.code.index != index or fiber.pc != pc:
        return False
    return all(
        type(value) is list or value == register for value, register in zip(values, fiber.registers, strict=False)
    )


def _ending(ended: rows.Terminated) -> dict[str, Any]:
    if ended.error is None:
        return {"result": ended.reason} if ended.reason in _QUIET else {"error": ended.reason}
    error = error_from_row(ended.error)
    if not isinstance(error, LyraError):
        return {"error": str(error) or ended.reason}
    return {"error": error.message, "file": str(error.fields.get("file", "")), "line": error.fields.get("line") or 0}


_STREAMS: Final = frozenset({"send_stream", "stream_next", "await"})
_QUIET: Final = frozenset({"normal", "shutdown", "killed"})
_BY_ITSELF: Final = frozenset({"normal", "error"})


def _program(run: DurableRun) -> Program:
    try:
        return run.program()
    except StoreError as error:
        raise StoreError(
            f"the program of run {run.id} ({run.hash[:12]}) is not in its store: {error.message}",
            hint="without it the run cannot be replayed; restore the store from a backup",
        ) from None
