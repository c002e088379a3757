"""One execution of a durable run: its kernel on the run's own journal, from the beginning or from where the last
execution was killed, until the main process ends or this execution is stopped.

A run is a space in a store's file, with a journal, lease and snapshots of its own. Everything that its
processes do is in that journal before a program sees it. What an earlier execution has printed is not printed again by
this one; the whole output is in the run itself (`durable.runs`). A command that answers a question of a live run, or
cancels it, leaves a note in its space, which the execution reads.

A process of a durable run is saved whole now and then, so that a resumed run need not replay all that it did.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.core import codec
from lyra.core.budgets.budget import NOTHING, Budget, Usage
from lyra.core.naming import SUPERVISE, VEGA_AGENT, VEGA_PROCESS, to_fixed_name
from lyra.errors import ConfigError, Conflict, LyraError, StoreFull
from lyra.kernel.base.waiting import resume, suspend
from lyra.kernel.effects.door import Door
from lyra.kernel.kernel import Kernel
from lyra.kernel.process.replay import upcoming
from lyra.kernel.seams import Seams
from lyra.kernel.supervision.supervisor import supervise
from lyra.vega.bytecode import file as bytecode
from lyra.vega.durable import record
from lyra.vega.durable.record import MAIN, DurableRecord, PidsByCall, ProgramMigration, RunState
from lyra.vega.machine.fiber import Fiber
from lyra.vega.machine.snapshot import from_data, to_data
from lyra.vega.runtime.agents.plan import SettingVersions, models_of
from lyra.vega.runtime.driver import PROGRAMS, agent_front, vega_process
from lyra.vega.runtime.early_calls import AHEAD_PATH
from lyra.vega.runtime.run import MAILBOX_MESSAGES, DeadlockWatch, value_of
from lyra.vega.runtime.world import RunOptions, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lyra.config import Config
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.journal import rows
    from lyra.kernel.journal.history import ProcessState
    from lyra.kernel.process.process import Exit, Process
    from lyra.kernel.programs.handle import Handle
    from lyra.vega.bytecode.program import Program
    from lyra.vega.durable.runs import DurableRun, RunSpace
    from lyra.vega.runtime.job import VegaJob


EFFECTS: Final = 256  # between two checkpoints, of a process whose state is small
WORK_S: Final = 1.0  # seconds of computing between two checkpoints
LOOK_EVERY: Final = 16  # effects or turns between two looks at the clock
_BYTES: Final = 16 << 10  # a state twice this large is saved half as often


class Saver:
    """Decides for one process."""

    __slots__ = ("_began_s", "_clock", "_every", "_job", "_turns")

    def __init__(self, job: VegaJob) -> None:
        self._job = job
        self._clock = job.world.kernel.clock
        self._turns = 0
        self._every = EFFECTS
        self._began_s = self._clock.monotonic()

    def is_due(self) -> bool:
        """Asked before each step; True when enough was done since the last time, and now is a good moment."""
        self._turns = turns = self._turns + 1
        if turns % LOOK_EVERY:
            return False
        if turns < self._every and self._clock.monotonic() - self._began_s < WORK_S * self._every / EFFECTS:
            return False
        job = self._job
        early = job.world.early.get(job.ctx.pid)
        if early is not None and early.scope.was_refused:
            return False
        return not job.ctx.replaying and job.can_be_saved and (not job.world.sessions() or job.world.fibers == 1)

    async def save(self) -> None:
        saves, pid = self._job.world.saves, self._job.ctx.pid
        saves[pid] = saves.get(pid, 0) + 1
        state = save_job(self._job)
        size = len(codec.encode(state))
        await self._job.ctx.checkpoint(state)
        self._turns = 0
        self._every = EFFECTS * max(1, size // _BYTES)
        self._began_s = self._clock.monotonic()


def start_saving(job: VegaJob) -> Saver:
    """Restore a process that an earlier execution saved, and give the Saver of its next steps."""
    world = job.world
    if job.ctx.restored is not None:
        job.fiber = restore_fiber(world, job, job.ctx.restored)
    world.fibers += 1
    job.ctx.own_process.watch((partial(_fiber_ended, world), None))
    return Saver(job)


def _fiber_ended(world: World, _: object) -> None:
    world.fibers -= 1


def save_job(job: VegaJob) -> dict[str, Any]:
    """Return a process as plain data, between two effects."""
    inside, state = scopes.get(), job.state
    world = job.world
    named = [scope for scope in inside[-1].chain() if scope.name]
    return {
        "fiber": to_data(job.fiber),
        "printed": state.printed,
        "numbers": state.numbers,
        "saves": world.saves.get(job.ctx.pid, 0),
        "receiving": state.receiving,
        "left_s": max(0.0, state.due - world.kernel.clock.monotonic()) if state.receiving >= 0 else 0.0,
        "sessions": [[scope.name, scope.limit("usd"), _count_unrecorded(world, scope)] for scope in reversed(named)],
    }


def _count_unrecorded(world: World, scope: Budget) -> dict[str, int]:
    """Return what was spent in a session, without what the run's record knows of."""
    used = scope.usage.to_data()
    for dimension, amount in (world.record.get_session_costs(scope.name) if world.record is not None else {}).items():
        used[dimension] -= amount
    return {dimension: amount for dimension, amount in used.items() if amount}


def restore_fiber(world: World, job: VegaJob, data: dict[str, Any]) -> Fiber:
    """Return the fiber that was saved; what the runtime remembers for it is put back."""
    state = job.state
    state.printed, state.numbers = data["printed"], data["numbers"]
    world.saves[job.ctx.pid] = data.get("saves", 0)  # earlier runs did not count
    state.receiving, state.due = data["receiving"], world.kernel.clock.monotonic() + data["left_s"]
    for name, pid in data.get("names", {}).items():  # of runs that did not keep them in their record
        world.names.setdefault(name, pid)
    scope = world.budget
    scopes.set((scope,))
    for name, limit, used in data["sessions"]:
        state.sessions.append(scopes.get())
        is_new = name not in world.scopes
        scope = world.session(name, limit, scope)
        if is_new:
            scope.charge_alone(Usage.from_data(used))
        scopes.set((scope,))
    return from_data(world.linked, data["fiber"])


# Processes see each other's sessions, questions and agents. So the Vega processes replay first, each held where it
# would do something new; calls and conversations of agents begin behind them, because the process that asks decides
# what they may spend. A process that replays for too long holds up its own calls only: a call continues once its caller
# has come to it, never outside the sessions that it was made in.

_ROUNDS: Final = 64  # of the loop, before the looks have pauses between them
_PAUSE_S: Final = 0.005
_PATIENCE_S: Final = 20.0  # without any progress; in journals of older versions a call that ran out of time waits again
_SAY_S: Final = 3.0  # without any progress, before a warning is written
_CHECKPOINTS_LOOK_S: Final = 0.05  # between looks for processes that replayed late
_SEES: Final = frozenset(  # effects that see other processes or are seen by them; each takes a key of the journal
    {
        "spawn",
        "ahead_spawn",
        "send",
        "link",
        "monitor",
        "budget",
        "budget_reserve",
        "process::unlink",
        "process::register",
        "process::whereis",
        "process::alive",
    }
)


class ReplayBarrier:
    """Holds processes back until all have replayed. Made after the kernel restored them, before their first step."""

    __slots__ = ("_fiber", "_functions", "_held", "_is_open", "_ours", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: list[Any] = []
        self._functions: dict[str, list[Any]] = {}  # by pid: the early functions that the program has not reached
        self._is_open = False  # the others continue, though not all have replayed
        kernel = world.kernel
        self._fiber = kernel.programs.name(vega_process)
        ours = {kernel.programs.name(program) for program in (vega_process, agent_front, supervise)}
        alive = [process for process in kernel.processes.values() if process.exit is None]
        self._ours = [process for process in alive if process.program in ours]
        kernel.hold_back()
        kernel.tasks.start(self._watch(), name="vega resume")

    async def hold(self, job: VegaJob, kind: str) -> None:
        """Before an effect of a process: one that is new waits until all are there."""
        process = job.process
        if process.replay is None or (kind in _SEES and upcoming(process) is None):
            await self.wait(process)

    async def wait(self, process: Process) -> None:
        """Wait until all processes have replayed."""
        if not self._is_open:
            await suspend(process, self._held)

    async def wait_for_caller(self, process: Process) -> None:
        """Before the first step of a function that was called ahead of its turn: its caller has come to the call, and
        with it to the scope that it spends from."""
        while _is_ahead(process):
            await suspend(process, self._functions.setdefault(process.pid, []))

    def call(self, pid: str) -> None:
        """Note that a caller has come to the call of a function."""
        for waker in self._functions.pop(pid, ()):
            resume(waker)

    async def _watch(self) -> None:
        kernel = self._world.kernel
        clock = kernel.clock
        rounds, progress, since_s, is_said = 0, self._progress(), clock.monotonic(), False
        while self._list_unasked() or not all(map(self._is_there, self._ours)):
            if rounds < _ROUNDS:
                rounds += 1
                await asyncio.sleep(0)
            else:
                await kernel.outside_pause(_PAUSE_S)
            now, last = self._progress(), progress
            if now != last:
                progress, since_s = now, clock.monotonic()
            elif clock.monotonic() - since_s > _PATIENCE_S:
                self._say("the others go on")
                break
            elif not is_said and clock.monotonic() - since_s > _SAY_S:
                is_said = True
                self._say("the others wait for it")
        await self._go_on()

    def _progress(self) -> int:
        return sum(len(process.replay or ()) for process in self._ours) + len(self._world.runtime.questions.awaited)

    async def _go_on(self) -> None:
        """Calls that were under way first: they were before whatever comes now."""
        kernel, world = self._world.kernel, self._world
        late = self._late()
        kernel.let_go(late)
        for _ in range(2):
            await asyncio.sleep(0)
        self._is_open = True
        if not late:
            world.barrier = None
        held, self._held = self._held, []
        for waker in held:
            resume(waker)
        while late:
            await kernel.outside_pause(_CHECKPOINTS_LOOK_S)
            late = self._late()
            kernel.let_go(late)
        world.barrier = None

    def _late(self) -> set[str]:
        """Return the pids of calls and conversations whose callers have not reached them: their budgets are not known
        yet."""
        processes = self._world.kernel.processes
        recalls = [process.replay or {} for process in self._ours if process.exit is None]
        spawned = {entry.link for recall in recalls for entry in recall.values() if entry.kind == "spawn"}
        return {
            pid
            for pid in spawned | self._list_unasked()
            if (process := processes.get(pid)) is not None and process.exit is None
        }

    def _list_unasked(self) -> set[str]:
        """Conversations, by pid, with a question that its asker has still to put again. One that has come back and has
        not opened a stream again is done with it."""
        awaited = self._world.runtime.questions.awaited.items()
        return {pending.pid for name, pending in awaited if ":" in name or not self._is_back(name)}

    def _is_back(self, stream: str) -> bool:
        """Return whether the process that opened a stream is where it was."""
        reader = self._world.kernel.processes.get(stream[1:].rpartition("/")[0])
        return reader is None or self._is_there(reader)

    def _say(self, what: str) -> None:
        away = ", ".join(process.pid for process in self._ours if not self._is_there(process))
        self._world.options.warn(f"not yet where it was: process {away or 'of a conversation'}; {what}")

    def _is_there(self, process: Process) -> bool:
        """Return whether a process has ended, or has used up what its journal holds; an agent's front has to stand,
        too."""
        if process.exit is not None:
            return True
        return process.replay is None and (process.program == self._fiber or process.state in ("waiting", "blocked"))


def _is_ahead(process: Process) -> bool:
    """Return whether it was called ahead of its turn by one that has not come to that call yet."""
    caller = process.parent
    recall = {} if caller is None or caller.exit is not None else caller.replay or {}
    return any(
        entry.link == process.pid and entry.kind == "spawn" and str(key).startswith(AHEAD_PATH)
        for key, entry in recall.items()
    )


_LOOK_S: Final = 0.25  # between two looks for notes
_ENDED: Final = "cancelled"
_ASK: Final = b"lyra.ask"


def answer_note(interrupt_id: str, response: Mapping[str, Any]) -> bytes:
    """Return a note that answers a question of the run."""
    return codec.encode({"answer": interrupt_id, "response": dict(response)})


def cancel_note() -> bytes:
    """Return a note that ends the run."""
    return codec.encode({"cancel": True})


class Overtaken(Exception):
    """Another process was at work on the run since it was read: it has to be read again."""


class RunExecution:
    """`before` is the run as earlier executions left it, None for a new one; with a `migration` another program is in
    force from this execution on. `held` is called once this execution owns the run, and as `before` has it (else
    Overtaken); `began` is told its id once it is durable, `asks` of each question that waits. `lease` has other times
    of the kernel's lease than the settings; `door` makes the kernel's door: its own fork has one."""

    def __init__(
        self,
        space: RunSpace,
        program: Program,
        options: RunOptions,
        *,
        before: DurableRun | None = None,
        migration: ProgramMigration | None = None,
        config: Config | None = None,
        lease: Mapping[str, float] | None = None,
        door: Callable[..., Door] = Door,
        held: Callable[[], object] = lambda: None,
        began: Callable[[str], object] = lambda _: None,
        asks: Callable[[Any], object] = lambda _: None,
    ) -> None:
        self._space = space
        self._before = before
        self._migration = migration
        self._held = held
        self.is_held = False  # this execution has the lease of the run
        self._began_with = began
        self._asks = asks
        self._asked: set[str] = set()  # questions that were told
        self._unfit: asyncio.Future[LyraError] | None = None  # what this machine lacks, for the run to continue
        by_call = PidsByCall() if before is None or before.began.get("pids") == record.BY_CALL else None
        state = RunState()
        settings: dict[str, Any] = {
            "store": space,
            "programs": [vega_process, agent_front],
            "mailbox_messages_max": MAILBOX_MESSAGES,
            "seams": Seams(door=door, pids=by_call, states=(state,)),
            **(lease or {}),
        }
        self.kernel = Kernel(**settings) if config is None else Kernel.from_config(config, **settings)
        self._record = DurableRecord(self.kernel, state, options.write)
        self.world = World(
            self.kernel, program, options, MAIN, programs=PROGRAMS, record=self._record, start_saving=start_saving
        )
        if by_call is not None:
            by_call.saves = self.world.saves
        if before is not None:
            prepare(self.world, before, migration)

    async def run(self, facts: Mapping[str, Any] | None = None) -> Any:
        """To its end: what main returned, or the error that the program did not catch. `facts` is what a new run
        keeps."""
        kernel, world = self.kernel, self.world
        if self._before is not None:
            world.runtime.name = str(self._before.began["nonce"])
            restore_from(world, self._before)
        await kernel.start(owned=self._confirm)
        try:
            self.is_held = True
            self._held()
            self._record.open()
            if self._migration is not None:
                self._migrate(self._migration)
            world.runtime.models.tokens.told = self._record.learn
            for process in kernel.processes.values():
                process.context.run(scopes.set, (world.budget,))
            if self._before is not None:
                self._expect(self._before)
                world.names.update(self._record.names)
                for model, learned in self._record.learned.items():
                    world.runtime.models.tokens.know(model, *learned)
                world.barrier = ReplayBarrier(world)
            await world.undeclared_tools.start()
            main = self._began(dict(facts or {})) if self._before is None else kernel.process(MAIN)
            self._need()
            self.kernel.interrupts.on_raised.append(self._tell)
            self.kernel.tasks.start(self._look(), name="vega notes")
            watch = DeadlockWatch(world, MAIN)
            try:
                ended = await self._wait_for_end(main)
            finally:
                watch.stop()
                world.is_over = kernel.process(MAIN).alive is False
                if world.picture is not None:
                    world.picture.over()
            if ended.reason != "divergence":  # with the right program it continues
                self._record.end(ended)
            if watch.error is not None:
                raise watch.error
            return value_of(world, ended)
        finally:
            world.close()
            await kernel.close(drain_s=0.0, snapshot=not world.is_over)

    def _confirm(self) -> None:
        """Raise Overtaken where another process changed the run since this execution read it: it was read without the
        lease."""
        before = self._before
        if before is None:
            is_other = next(self._space.read(kind="run.began"), None) is not None
        else:
            is_other = self._space.last_seq() != before.fold.seq
        if is_other:
            raise Overtaken

    def _migrate(self, migration: ProgramMigration) -> None:
        """Write the first row of this execution: all rows after it are the new program's."""
        kernel = self.kernel
        facts = migration.to_data()
        facts["program"] = kernel.call_now(self._space.put_blob, bytecode.dump(migration.program))
        texts = migration.sources
        facts["sources"] = kernel.call_now(self._space.put_blob, codec.encode(texts)) if texts else ""
        self._record.migrate(facts, lambda _: migration.done())

    async def _wait_for_end(self, main: Handle) -> Exit:
        """Return how the main process ended, once that is in the store, however long there is no room in it."""
        assert self._unfit is not None
        while True:
            end = self.kernel.tasks.start(main.wait(), name="vega main")
            await asyncio.wait((end, self._unfit), return_when=asyncio.FIRST_COMPLETED)
            if not end.done():
                raise self._unfit.result()
            try:
                return end.result()
            except StoreFull:
                await self.kernel.outside_pause(_LOOK_S)

    def _need(self) -> None:
        """End this execution, and not the run, where the machine lacks what the program needs: a model without a key or
        a provider, and when a run is resumed also one that cannot be reached or refuses the key, as long as no model
        has answered. The live agents are checked before any effect is performed."""
        world, runtime = self.world, self.world.runtime
        self._unfit = self.kernel.loop.create_future()
        runtime.unfit = self._lacks
        runtime.has_answered = self._before is None
        for pid, (name, settings) in world.expected.items():
            process = self.kernel.processes.get(pid)
            if process is not None and process.exit is None:
                for model in models_of(world, world.setting_versions.versions(name, world.read(settings))[-1]):
                    try:
                        runtime.models.load(model)
                    except ConfigError as lack:
                        self._lacks(lack)

    def _lacks(self, error: LyraError) -> None:
        assert self._unfit is not None
        if not self._unfit.done():
            self._unfit.set_result(error)

    @property
    def lack(self) -> LyraError | None:
        """Return what this machine lacks, where that has ended this execution: the run waits for one that has it."""
        return self._unfit.result() if self._unfit is not None and self._unfit.done() else None

    def _expect(self, before: DurableRun) -> None:
        """Questions to conversations that are on their way, or answered and not yet heard: the processes that
        asked them ask again, and must find them."""
        for pid, state in before.processes.items():
            process = self.kernel.processes.get(pid)
            if process is None or process.exit is not None:
                continue
            heard = [entry.value for entry in state.effects.values() if entry.kind == "receive"]
            for raw in (*heard, *(message for _, message, _, _ in state.inbox)):
                if _ASK in bytes(raw):
                    message = codec.decode(bytes(raw))
                    request_id = message.get("lyra.ask", "") if isinstance(message, dict) else ""
                    if _is_open(before, request_id):
                        stream = "/" in request_id
                        self.world.runtime.questions.expect(request_id, process, (self.world.budget,), stream=stream)

    def _began(self, facts: dict[str, Any]) -> Handle:
        """Return the first rows of the run: what it is, and its main process; in one commit, so that there is both or
        none."""
        kernel, world = self.kernel, self.world
        program = kernel.call_now(self._space.put_blob, bytecode.dump(world.linked.program))
        sources = facts.pop("sources", None)
        world.runtime.name = kernel.entropy.text(12)
        facts |= {"nonce": world.runtime.name, "hash": world.linked.hash, "program": program, "pids": record.BY_CALL}
        facts["sources"] = kernel.call_now(self._space.put_blob, codec.encode(sources)) if sources else ""
        self._record.begin(facts, self._began_with)
        grant = world.rights.grant
        if world.options.grant is not None:
            grant = world.options.grant.narrow(grant)
        return kernel.spawn(vega_process, world.run_id, None, pid=MAIN, grant=grant)

    async def _look(self) -> None:
        kernel, space = self.kernel, self._space
        is_full = False
        while True:
            for number, data in await kernel.call(space.notes):
                if data is None:
                    self.world.options.warn("warning: a note that is not signed with your key was not used")
                else:
                    await self._take(codec.decode(data))
                await kernel.call(space.drop_note, number)
            for waiting in kernel.interrupts.pending():
                self._tell(waiting)
            full = None if kernel.journal is None else kernel.journal.stuck
            if full is not None and not is_full:
                self.world.options.warn(f"warning: {full.message}")
            is_full = full is not None
            await kernel.outside_pause(_LOOK_S)

    def _tell(self, question: Interrupt) -> None:
        if question.id not in self._asked:
            self._asked.add(question.id)
            self._asks(question)

    async def _take(self, note: dict[str, Any]) -> None:
        if note.get("cancel"):
            await self.kernel.end(MAIN, _ENDED)
            return
        try:
            await self.kernel.resolve_interrupt(note["answer"], note["response"])
        except LyraError as refusal:  # it was answered already, or is over
            self.world.options.warn(f"an answer was not used: {refusal.message}")


def restore_from(world: World, before: DurableRun) -> None:
    """Restore what earlier executions of the run spent and had under way, which no program's replay tells."""
    world.budget.charge(Usage.from_data(before.spent))
    for pid, state in before.processes.items():
        in_flight = Usage.from_data(state.in_flight)
        world.budget.charge(in_flight)
        if state.spent or in_flight:
            _restore_spending(world, before, pid, state, in_flight)
        agent = agent_of(before, pid, state)
        if agent is not None:
            world.expected[agent[0]] = world.spawned[agent[0]] = agent[1:]


def _restore_spending(world: World, before: DurableRun, pid: str, state: ProcessState, in_flight: Usage) -> None:
    """Charge what an ended process spent to the nearest process above it that replays, in whose sessions it counts;
    `in_flight` is what was set aside for its calls when the last execution ended, and stays charged.
    Conversations are left out: their turns are recorded with the process that asked."""
    # Whether a process is an agent's that answers many: it was started without a question.
    if state.created.program not in (VEGA_PROCESS, VEGA_AGENT) and not arguments_of(before, state):
        return
    spent = Usage.from_data(state.spent) + in_flight
    cut_off = Usage.from_data(state.cut_off) + in_flight
    while (above := before.processes.get(state.created.parent)) is not None:
        if above.exit is None and above.created.program == VEGA_PROCESS:
            world.spent_before[pid] = world.spent_before.get(pid, NOTHING) + spent
            world.cut_off_before[pid] = world.cut_off_before.get(pid, NOTHING) + cut_off
            return
        pid, state = state.created.parent, above


def agent_of(before: DurableRun, pid: str, state: ProcessState) -> tuple[str, str, Any] | None:
    """Return the pid that programs know an agent by, its name and its settings, of a process that is one or represents
    one: a guard may have been killed before it began what it guards."""
    return agent_from_row(pid, state.created, partial(arguments_of, before, state))


def agent_from_row(pid: str, created: rows.Created, arguments: Callable[[], Any]) -> tuple[str, str, Any] | None:
    """Return the agent, as `agent_of` has it, from the row of the process; `arguments` are read only where they are
    needed."""
    if created.program == VEGA_AGENT:
        _, name, settings = arguments()
        return (created.parent if created.guarded else pid), str(name), settings
    if created.program != SUPERVISE:
        return None
    (plan,) = arguments()
    child = plan["children"][0] if plan.get("guards") else {}
    if to_fixed_name(child.get("program", "")) != VEGA_AGENT:
        return None
    _, name, settings = child["args"]
    return pid, str(name), settings


def prepare(world: World, before: DurableRun, migration: ProgramMigration | None = None) -> None:
    """Prepare a world for the program that is in force: what others were in force before it, and what each of them
    left."""
    versions = [*before.versions, *([] if migration is None else [migration.to_data()])]
    world.linked.older = frozenset(str(version["hash"]) for version in versions)
    world.setting_versions = SettingVersions(
        [*before.setting_changes, *([] if migration is None else migration.setting_changes)]
    )
    count = len(world.linked.program.globals)
    world.shorter = tuple(sorted({size for version in versions for size in version.get("globals", ())} - {count}))


def arguments_of(before: DurableRun, state: ProcessState) -> Any:
    """Return what a process was started with."""
    created = state.created
    return codec.decode(before.space.get_blob(created.blob) if created.blob else bytes(created.args))


def _is_open(before: DurableRun, request_id: str) -> bool:
    """Return whether the process that asked has not heard the answer: `~pid:key` of a call, `~pid/number` of a
    stream."""
    if not request_id.startswith("~"):
        return False
    pid, colon, key = request_id[1:].partition(":")
    asker = before.processes.get(pid if colon else pid.rpartition("/")[0])
    if asker is None or asker.exit is not None:
        return False
    if not colon:
        return True
    entry = asker.effects.get(int(key) if key.isdigit() else key)
    return entry is not None and not entry.done


async def end(space: RunSpace, before: DurableRun) -> None:
    """Cancel a run: by its owner, who finds the note, or here, where no process is at work on it. No program is run."""
    kernel = Kernel(space, seams=Seams(states=(RunState(),)))
    while not before.is_over:
        if not before.owner and await _open_kernel(kernel):
            break
        await asyncio.sleep(_LOOK_S)
        before = type(before)(space)
    else:
        return
    try:
        for number, _ in space.notes():
            space.drop_note(number)
        main = kernel.process(MAIN)
        if main.alive:
            await main.kill(_ENDED)
    finally:
        await kernel.close(drain_s=0.0)


async def _open_kernel(kernel: Kernel) -> bool:
    """Open the run; False where another process was quicker, which will find the note."""
    try:
        await kernel.start()
    except Conflict:
        return False
    return True
