"""Coming back: from snapshot and journal to live processes.

`load` folds what the store holds and rebuilds the table: budgets with what was spent, mailboxes with what was not
read, questions that still wait. Each live Python program then runs again from its beginning, and the door answers
it from the journal until it is where it was. A program this kernel does not know leaves its processes dormant
(`DormantProcesses`) until a caller registers it. Snapshots, which are the same fold written down, are made in
`journal.snapshots`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from contextvars import copy_context
from typing import TYPE_CHECKING, Final

from lyra.core import codec
from lyra.core.budgets.budget import Budget, Usage
from lyra.core.budgets.early_calls import JoinableBudget
from lyra.core.faultpoint import point
from lyra.core.rights.capability import Grant
from lyra.errors import Conflict, Corrupt, LyraError, StoreError, StoreFull
from lyra.kernel.base.acting import name_in
from lyra.kernel.interrupts.service import Interrupt, InterruptService
from lyra.kernel.journal import rows
from lyra.kernel.journal.history import Fold, ProcessState, end_cut_off
from lyra.kernel.journal.rows import error_from_row, text_of
from lyra.kernel.journal.snapshots import EndedStates, SnapshotWriter
from lyra.kernel.process.links import Links, read_signal
from lyra.kernel.process.process import Exit, Process
from lyra.kernel.programs.context import Context
from lyra.kernel.programs.registry import Programs, dormant_process
from lyra.store.ended import subtract

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.programs.lifetime import Lifetimes
    from lyra.kernel.supervision.handle import Supervisors
    from lyra.store.protocol import Store


# Rights that rows without RIGHTS say nothing about: the version that wrote them did not check them.
_UNCHECKED_BEFORE: Final = (
    *("model.use", "tool.use", "process.spawn", "process.send", "human.ask", "events.publish", "events.subscribe"),
    *(f"{verb}:{table}.**" for verb in ("db.read", "db.write") for table in ("memories", "blackboard")),
)


_BROUGHT_KEPT: Final = 200  # processes that were put away and asked for since the last snapshot


class Recovery:
    """See the module. A kernel without a store has one that is never asked to `load`."""

    def __init__(
        self,
        core: Core[Process],
        snapshots: SnapshotWriter,
        dormant: DormantProcesses,
        *,
        programs: Programs,
        lifetimes: Lifetimes,
        links: Links,
        interrupts: InterruptService,
        supervisors: Supervisors,
        wakes: Collection[str] | None = None,
    ) -> None:
        self._core = core
        self._snapshots = snapshots
        self._dormant = dormant
        self._programs = programs
        self._lifetimes = lifetimes
        self._links = links
        self._interrupts = interrupts
        self._supervisors = supervisors
        self._wakes = None if wakes is None else set(wakes)  # pids that continue, with all below them; None: all
        core.find_replayed = self.rebuilt
        self._store: Store  # that `load` reads
        self._named_since = 0  # the last row from before the store had an id
        self._crashed = False  # the last kernel left calls in flight, and did not close in order
        self._rebuilt: dict[str, Process] = {}
        self._early: dict[str, ProcessState] = {}  # early calls that continue when their program comes to them again

    async def load(self, store: Store, check: Callable[[Fold, Store], object] | None = None) -> None:
        """Bring back all that the store holds, unless `check` refuses it; the core has its journal already."""
        self._store = store
        self._core.processes.find_ended = self.bring_ended
        self._dormant.resume = self._go_on
        fold: Fold = await self._core.call(self._fold)
        if check is not None:
            await self._core.call(check, fold, store)
        self._core.store_id, self._named_since = await self._core.call(self._store.identity)
        journal = self._core.journal
        assert journal is not None
        journal.seq = journal.durable_seq = max(fold.seq, self._store.last_seq())
        point("recovery.loaded")
        self._core.budget.charge(Usage.from_data(fold.spent))
        try:
            self._bring_back(sorted(fold.processes.items(), key=lambda item: item[1].created_seq))
        except (StoreFull, Conflict, Corrupt):
            raise
        except Exception as error:  # rows that are sound and make no sense together: written by no kernel
            raise Corrupt(f"{self._store.location} holds rows that make no sense: {text_of(error)}") from error

    def _bring_back(self, ordered: list[tuple[str, ProcessState]]) -> None:
        for pid, state in ordered:
            if self._wakes is not None and state.created.parent in self._wakes:
                self._wakes.add(pid)
            self._rebuild(pid, state)
        self._resume([(pid, state) for pid, state in ordered if self._wakes is None or pid in self._wakes])
        # What a replay may still ask for: the children of the living. The rest is in the table as long as others are.
        self._rebuilt = {
            pid: self._rebuilt[pid]
            for pid, state in ordered
            if state.created.parent in self._rebuilt and self._rebuilt[state.created.parent].exit is None
        }

    def graft(self, states: dict[str, ProcessState]) -> None:
        """Bring processes to life whose rows were just written, parents before their children (a fork)."""
        ordered = list(states.items())
        self._crashed = False
        if self._wakes is not None:
            self._wakes |= states.keys()
        for pid, state in ordered:
            self._rebuild(pid, state)
        self._resume(ordered)

    def _resume(self, ordered: list[tuple[str, ProcessState]]) -> None:
        now = self._core.now()
        for pid, state in ordered:
            # Links and monitors whose other end still lives; the rest was told when that one ended.
            links, processes = self._links, self._core.processes
            for other in state.links:
                if other in processes and processes[other].exit is None:
                    links.restore_link(pid, other)
            for ref, watched in state.monitors.items():
                if watched in processes and processes[watched].exit is None:
                    links.restore_monitor(pid, watched, ref)
            scope = self._rebuilt[pid].budget
            if state.created.budget is not None and scope.seconds is not None:
                self._lifetimes.deadlines.limit(scope, max(0.0, scope.seconds - max(0.0, now - state.created_at)))
        for pid, state in ordered:
            # One that had been told to end has ended just now, and may have taken others that were linked to it along.
            process = self._rebuilt[pid]
            if state.exit is not None or process.exit is not None:
                continue
            asked_by = process.parent.replay if process.parent is not None and process.is_early else None
            if asked_by and state.created.key in asked_by and not state.stopping:
                self._early[pid] = state
            else:
                self._go_on(process, state)

    def rebuilt(self, pid: str) -> Process | None:
        """Return a process from before the restart that a replay asks for again. An early call continues from here:
        only now is it known beside which others it has to find room."""
        process = self._rebuilt.get(pid)
        state = self._early.pop(pid, None)
        if process is not None and state is not None and process.exit is None:
            process.context = copy_context()
            name_in(process.context, process)
            self._go_on(process, state)
        return process

    def _fold(self) -> Fold:
        snapshot = self._store.load_snapshots()
        fold = Fold.load(snapshot.seq, snapshot.states, self._core.states.values())
        ended = EndedStates.load(self._store.get_blob, fold.segments)  # read here: this runs in the store's own thread
        self._snapshots.covers(snapshot.seq, ended)
        fold.find_ended = ended.find
        kind = ""
        for record in self._store.read(after=snapshot.seq):
            fold.add(record)
            kind = record.kind
        if fold.is_shard:
            raise StoreError(
                f"{self._store.location} is a shard of a cluster: a kernel of its own would leave the others waiting",
                hint="lyra cluster start opens it; lyra ps and lyra trace read it as it is",
            )
        self._crashed = kind != "kernel.closed"  # the last row of a kernel that closed with calls in flight
        return fold

    def _rebuild(self, pid: str, state: ProcessState) -> None:
        core = self._core
        created = state.created
        parent = self._rebuilt.get(created.parent)
        scope = self._rebuild_scope(pid, created, core.budget if parent is None else parent.budget)
        right = parent.grant if parent is not None else core.grant
        if created.grant is not None:
            # Narrowed once more by today's root: what the journal allows, the user may have taken back since.
            right = right.narrow(grant_of(created))
        process = Process(core, pid, created.program, parent, scope, right, created.priority, copy_context())
        process.created_at = min(state.created_at, core.now())  # the clock of then may have been ahead
        if created.key is not None and parent is not None:
            process.line = f"{parent.line}.{created.key}"
        process.name = created.name or None
        process.recovery_attempts = created.recovery_attempts
        if created.guarded and created.parent:
            process.known_as = created.parent
        if state.exit is None and created.name in core.names:
            raise Corrupt(
                f"row {state.created_seq} creates process {pid} with the name {created.name!r}, "
                f"which is that of process {core.names[created.name].pid}",
                seq=state.created_seq,
            )
        process.life = state.created_seq if state.created.chosen else 0
        if created.fork is not None:
            core.forks[pid] = created.fork
        self._rebuilt[pid] = process
        self._charge_cut_off(pid, state)
        spent = Usage.from_data(state.spent)
        process.count_spent(spent)
        if isinstance(scope, JoinableBudget) and state.created.budget is not None:
            # Restore the scope of a call that was made ahead of its turn. It counts above when its turn comes, but for
            # the attempts that were cut off: those are charged at once.
            cut_off = Usage.from_data(state.cut_off)
            scope.around.charge(cut_off)
            if parent is not None:
                parent.count_spent(cut_off)
            own = dict(state.spent)
            subtract(own, state.cut_off)
            scope.restore(Usage.from_data(own), Usage.from_data(state.peak), refused=state.refused)
            if state.exit is None and state.cut_off:
                scope.has_asked = False  # it asks again
        else:
            scope.charge(spent)
        if state.exit is not None:
            self._bury(process, state)
            self._lifetimes.keep_ended(process)
        else:
            if parent is not None and parent.exit is not None:
                process.parent = None
            if state.created_seq <= self._named_since:
                core.is_before_id.add(pid)
            self._lifetimes.enter(process)
            self._refill(process, state)
        if core.remote is not None:
            core.remote.loans.restore(process)

    def _rebuild_scope(self, pid: str, created: rows.Created, scope: Budget) -> Budget:
        """Return the budget of a process, inside `scope` or what another shard lends."""
        if self._core.remote is not None:
            scope = self._core.remote.loans.scope_of(pid) or scope
        if JoinableBudget.is_saved_in(created.budget):
            return JoinableBudget(scope, (created.budget or {}).get("limits"))
        return scope if created.budget is None else scope.child(created.budget.get("limits"))

    def bring_ended(self, pid: str) -> Process | None:
        """Return a process that ended and whose state was put away, for a caller that asks how it ended."""
        ended = self._snapshots.ended
        state = ended.find(pid) if ended.segments and pid not in ended.brought else None
        if state is None:
            return ended.brought.get(pid)
        core, created = self._core, state.created
        scope = Budget.of((created.budget or {}).get("limits"))
        grant = core.grant if created.grant is None else core.grant.narrow(grant_of(created))
        process = Process(core, pid, created.program, None, scope, grant, created.priority, copy_context())
        process.created_at = min(state.created_at, core.now())
        process.name = created.name or None
        if created.guarded and created.parent:
            process.known_as = created.parent
        process.life = state.created_seq if created.chosen else 0
        spent = Usage.from_data(state.passed_on or state.spent)
        process.count_spent(spent)
        scope.charge(spent)
        self._bury(process, state)
        ended.brought[pid] = process
        if len(ended.brought) > _BROUGHT_KEPT:
            del ended.brought[next(iter(ended.brought))]
        return process

    def _charge_cut_off(self, pid: str, state: ProcessState) -> None:
        """End the calls that were in flight when the last kernel ended: each may have happened, so what was set aside
        for it stays charged, whatever becomes of the call from here on."""
        journal = self._core.journal
        assert journal is not None
        for key in list(state.held):
            row = end_cut_off(state, key, crashed=self._crashed)
            journal.write(pid, "effect.finished", rows.encode(row))

    def _bury(self, process: Process, state: ProcessState) -> None:
        """Give an ended process what callers ask it for: how it ended, and when."""
        ended = state.exit
        assert ended is not None
        error = error_from_row(ended.error) if ended.error is not None else None
        data = bytes(ended.value) if not ended.blob else self._core.call_now(self._store.get_blob, ended.blob)
        process.exit = Exit(ended.reason, codec.decode(data), error)
        process.exit_seq, process.result_status = state.exit_seq, ended.status
        process.ended_at = state.exit_at
        process.state = "terminated"
        process.kill_reason = state.stopping or None

    def _refill(self, process: Process, state: ProcessState) -> None:
        process.replay = dict(state.effects) or None
        process.attempts = {key: entry.crashes for key, entry in state.effects.items() if entry.crashes} or None
        process.traps = state.traps
        process.keys = state.first_key
        process.branches = state.first_branch
        if state.restored_blob:
            process.restored = codec.decode(self._store.get_blob(state.restored_blob))
        else:
            process.restored = codec.decode(bytes(state.restored))
        if state.inbox:
            process.inbox = deque(
                (seq, read_signal(form, self._store.get_blob(blob) if blob else bytes(message)))
                for seq, message, blob, form in state.inbox
            )
        if self._wakes is not None and process.pid not in self._wakes:  # it stands still, and so do its questions
            return
        for pending in state.interrupts.values():
            self._interrupts.restore(
                process,
                Interrupt(
                    pending.id,
                    process.known_as,
                    pending.kind,
                    pending.question,
                    pending.message,
                    created_at=pending.created_at,
                    expires_at=pending.expires_at,
                    tainted=self._core.taint.is_tainted(process.pid),
                ),
            )

    def _go_on(self, process: Process, state: ProcessState) -> None:
        core = self._core
        if state.stopping:  # it was told to end; what it still wanted to tidy up ended with its kernel
            cause = None if state.stopping_error is None else error_from_row(state.stopping_error)
            self._lifetimes.finish_stopped(process, state.stopping, cause=cause)
            return
        program = self._programs.get(process.program)
        if program is None:
            self._dormant.add(process, state)
            return
        created = state.created
        data = core.call_now(self._store.get_blob, created.blob) if created.blob else bytes(created.args)
        args = self._programs.arguments(program, data)
        try:
            process.coroutine = self._programs.begin(program, Context(process), args)
        except LyraError as error:
            self._lifetimes.finish(process, "error", error=error)
            return
        self._supervisors.came_back(process, args)
        process.move("ready")
        self._dormant.push(process)


def grant_of(created: rows.Created) -> Grant:
    """Return the Grant of a row. An earlier version did not check some rights, so a list of what it allows did not name
    them: a process that it started keeps them. What such a list denies counts from now on."""
    grant = Grant.from_data(created.grant)
    if created.rights or not grant.layers:
        return grant
    layers = [[*map(str, layer), *_UNCHECKED_BEFORE] for layer in grant.layers]
    return Grant.from_data({"layers": layers, "deny": [str(rule) for rule in grant.deny]})


# Processes that came back from the store and whose program this kernel does not know. They continue when it is
# registered, unless they are held back until all programs are there. `supervision.handle` keeps guards that wait for
# theirs.

_log: Final = logging.getLogger("lyra.kernel")
_REPLAY_LOOK_S: Final = 0.01  # between two looks whether a replay has registered a program
_REPLAY_LOOKS: Final = 500


class DormantProcesses:
    """Processes that wait for their program, and those held back after a restart."""

    def __init__(self, core: Core[Process]) -> None:
        self._core = core
        self._by_program: dict[str, list[tuple[Process, ProcessState]]] = {}
        self._held: list[Process] | None = None  # revived processes that wait for `let_go`
        self._blocked: Collection[str] | None = None  # pids that must not resume yet; None blocks all
        # Filled in when they are made: the first two are given callbacks of this object.
        self.programs: Programs
        self.supervisors: Supervisors
        # Recovery: has a process continue whose program is known. None until a store is read.
        self.resume: Callable[[Process, ProcessState], None] | None = None

    def add(self, process: Process, state: ProcessState) -> None:
        """Keep a process until its program is registered."""
        self._by_program.setdefault(process.program, []).append((process, state))
        self._core.publish(process.pid, "process.dormant", {"program": process.program})
        _log.info("process %s waits for its program %s to be registered", process.pid, process.program)

    def missing_program(self, process: Process) -> str | None:
        """Return the program that a process cannot continue without and that this kernel does not know; a guard's is
        that of the process it represents."""
        if self.resume is None or not (self._by_program or self.supervisors.waiting):
            return None
        run = process.stands_for or process
        name = run.program if run.is_dormant else self.supervisors.missing_program(process.pid)
        return name if name is not None and self.programs.get(name) is None else None

    async def until_known(self, process: Process) -> None:
        """Return when the process can continue; ConfigError if it is dormant. While other processes replay, the spawn
        that registers its program may still come, so this waits for them, for a limited time."""
        for _ in range(_REPLAY_LOOKS):
            program = self.missing_program(process)
            if program is None:
                return
            if not self.may_become_known(program):
                break
            await self._core.outside_pause(_REPLAY_LOOK_S)
        else:
            program = self.missing_program(process)
        if program is not None:
            raise dormant_process(process.pid, program)

    def may_become_known(self, program: str) -> bool:
        """Return whether a process that replays is about to spawn this program, and so to register it."""
        return self.resume is not None and any(
            entry.kind == "spawn" and entry.name == program
            for process in self._core.processes.present()
            if process.replay is not None and not process.is_dormant
            for entry in process.replay.values()
        )

    def became_known(self, program: str) -> None:
        """Continue what waited for a program that has a name for the first time."""
        self.supervisors.on_registered(program)
        if self.resume is not None:
            for process, state in self._by_program.pop(program, ()):
                if process.exit is None:
                    self.resume(process, state)

    def hold_back(self) -> None:
        """Processes that are revived from now on are ready and wait, until they are let go."""
        self._held, self._blocked = [], None

    def let_go(self, but: Collection[str]) -> None:
        """Resume the held processes except the pids in `but`, which stay held until the next call."""
        held, self._held = self._held or [], [] if but else None
        self._blocked = but
        for process in held:
            self.push(process)

    def push(self, process: Process) -> None:
        """Have a process that came back take its first step, unless it is held back."""
        if self._held is not None and (self._blocked is None or process.pid in self._blocked):
            self._held.append(process)
        elif process.state == "ready":
            self._core.scheduler.push(process)
