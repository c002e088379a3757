"""One execution of a durable run: its kernel on the run's own journal, from the beginning or from where the last
execution was killed, until the main process ends or this execution is stopped.

A run is a space in a store's file, with a journal, lease and snapshots of its own. Everything that its
processes do is in that journal before a program sees it. What an earlier execution has printed is not printed again by
this one; the whole output is in the run itself (`durable.runs`). A command that answers a question of a live run, or
cancels it, leaves a note in its space, which the execution reads.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.core import codec
from lyra.core.budgets.budget import NOTHING, Usage
from lyra.core.naming import SUPERVISE, VEGA_AGENT, VEGA_PROCESS, to_fixed_name
from lyra.errors import ConfigError, Conflict, LyraError, StoreFull
from lyra.kernel.effects.door import Door
from lyra.kernel.kernel import Kernel
from lyra.kernel.seams import Seams
from lyra.vega.bytecode import file as bytecode
from lyra.vega.durable import record
from lyra.vega.durable.checkpoints import ReplayBarrier, start_saving
from lyra.vega.durable.record import MAIN, DurableRecord, PidsByCall, RunState
from lyra.vega.runtime.agents.plan import SettingVersions, models_of
from lyra.vega.runtime.driver import PROGRAMS, agent_front, vega_process
from lyra.vega.runtime.run import MAILBOX_MESSAGES, DeadlockWatch, value_of
from lyra.vega.runtime.world import RunOptions, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lyra.config import Config
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.journal import rows
    from lyra.kernel.journal.history import ProcessState
    from lyra.kernel.process.process import Exit
    from lyra.kernel.programs.handle import Handle
    from lyra.store.space import Space
    from lyra.vega.bytecode.program import Program
    from lyra.vega.durable.record import ProgramMigration
    from lyra.vega.durable.runs import DurableRun


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
    Overtaken); `began` is told its id once it is durable, `asks` of each question that waits. `door` makes the kernel's
    door: its own fork has one."""

    def __init__(
        self,
        space: Space,
        program: Program,
        options: RunOptions,
        *,
        before: DurableRun | None = None,
        migration: ProgramMigration | None = None,
        config: Config | None = None,
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


async def end(space: Space, before: DurableRun) -> None:
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
