"""The World: what all processes of one run share: the program, where its output goes, its agents, its options.

One a run, found by kernel processes under the run's id in `kernel.parts`. It performs nothing itself: `driver` steps
the fibers, `agents` and `calls` ask models, `library` touches the outside.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.agents.session.shared import AgentRuntime, runtime_of
from lyra.core import codec
from lyra.core.budgets.budget import NOTHING, Budget, Usage
from lyra.core.checking.check import check_integer
from lyra.core.effect import canonical_hash
from lyra.core.naming import old_names
from lyra.core.rights.capability import Capability, Grant
from lyra.core.trace_context import TraceSpan, enclosing_span, enter_span
from lyra.errors import CapabilityDenied, ConfigError
from lyra.kernel.process.replay import upcoming
from lyra.vega.bytecode.program import Program
from lyra.vega.machine.fiber import Fiber
from lyra.vega.machine.link import LinkedProgram, link
from lyra.vega.machine.pure.switch import PureTier
from lyra.vega.machine.snapshot import value_from_data, value_to_data
from lyra.vega.runtime.agents.plan import AgentPlan, SettingVersions, is_alike, name_plan
from lyra.vega.runtime.agents.slot import AgentSlot, AgentStream, AgentTurn
from lyra.vega.runtime.agents.undeclared_tools import ProcessPrograms, UndeclaredTools
from lyra.vega.runtime.light_processes import LightProcesses, ScheduledFiber
from lyra.vega.runtime.rights import Rights
from lyra.vega.runtime.worker_threads import WORKERS_MAX, ThreadedLightProcesses
from lyra.vega.values.values import UNSET, copy_value

if TYPE_CHECKING:
    from lyra.core.imported_node import NodeHost
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process as KernelProcess
    from lyra.kernel.programs.context import Context
    from lyra.vega.runtime.early_budget import SpeculativeCall
    from lyra.vega.runtime.job import ProcessSaver, ResumeBarrier, RunRecord, SupervisedChild, VegaJob
    from lyra.vega.runtime.picture import Picture


_PART: Final = "vega"
_ROUNDS: Final = 10_000  # that something waits for the main process of a run that comes back


class RunOptions:
    """What the caller of a run decides. `write` gets each printed line, `warn` what goes to stderr; `python` are the
    functions (`module:name`) that `import python` may bring in; `grant` narrows what the run may do; `picture` is kept
    up to date for a display of the run; `servers` are the MCP servers that it may import tools from, `nodes` executes
    the nodes that it imports (a `NodeHost`); `workers` are the threads that its light processes run in; `sequential`
    makes every call in its turn."""

    __slots__ = (
        "args",
        "budget",
        "folder",
        "functions",
        "grant",
        "model",
        "nodes",
        "picture",
        "python",
        "sequential",
        "servers",
        "warn",
        "workers",
        "write",
    )

    def __init__(
        self,
        *,
        write: Callable[[str], object],
        warn: Callable[[str], object],
        model: str | None = None,
        budget: Any = None,
        args: tuple[str, ...] = (),
        functions: Mapping[str, Callable[..., Any]] | None = None,
        python: frozenset[str] = frozenset(),
        folder: str | None = None,
        grant: Any = None,
        picture: Picture | None = None,
        servers: Any = None,
        nodes: NodeHost | None = None,
        sequential: bool = False,
        workers: int = 1,
    ) -> None:
        self.write = write
        self.warn = warn
        self.model = model
        self.budget = budget
        self.args = args
        self.functions = dict(functions or {})
        self.python = python
        self.folder = os.path.realpath(folder or os.getcwd())
        self.sequential = sequential
        self.grant: Grant | None = None if grant is None else Grant.of(grant)
        self.picture = picture
        self.servers = servers
        self.nodes = nodes
        self.workers = check_integer(workers, "workers", least=1, most=WORKERS_MAX)


class Worlds(dict[str, "World"]):
    """The runs of one kernel, closed with it."""

    async def close(self) -> None:
        self.clear()


class StartedPids:
    """The pids of processes that a run has started; those that have ended are forgotten now and then."""

    __slots__ = ("_kernel", "_most", "_pids")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._pids: list[str] = []
        self._most = 1_000

    def append(self, pid: str) -> None:
        self._pids.append(pid)
        if len(self._pids) > self._most:
            started = ((pid, self._kernel.processes.get(pid)) for pid in self._pids)
            self._pids = [pid for pid, process in started if process is not None and process.exit is None]
            self._most = 1_000 + 2 * len(self._pids)

    def __iter__(self) -> Iterator[str]:
        return iter(self._pids)


_LIGHT: Final = (Capability("process.spawn"), Capability("process.send"))  # light processes ask for no right


class World:
    """`agents` are the live agent processes by pid, `plans` what was made of declarations, `names` the names that
    processes gave each other."""

    def __init__(
        self,
        kernel: Kernel,
        program: Program,
        options: RunOptions,
        run_id: str = "main",
        *,
        programs: ProcessPrograms,
        record: RunRecord | None = None,
        start_saving: Callable[[VegaJob], ProcessSaver] | None = None,
    ) -> None:
        self.kernel = kernel
        self.programs = programs
        self.record = record
        self.start_saving = start_saving
        self.options = options
        self.run_id = run_id
        tier = PureTier if options.workers == 1 else None  # the watch of a tier knows one thread
        self.linked: LinkedProgram = link(program, tier=tier)
        self.runtime: AgentRuntime = runtime_of(kernel)
        self.undeclared_tools = UndeclaredTools(self, options.servers)
        self.rights = Rights(self.linked, options.folder, self.undeclared_tools.rights)
        self.budget: Budget = Budget.of(options.budget)
        self.agent_slots: dict[str, AgentSlot] = {}
        self.plans: dict[Any, AgentPlan] = {}
        self.expected: dict[str, tuple[str, Any]] = {}  # agents from before the restart that have not resumed yet
        self.spawned: dict[str, tuple[str, Any]] = {}  # agents from before the restart, where settings changed since
        self.setting_versions = SettingVersions()
        self.shorter: tuple[int, ...] = ()  # how many variables there were before each migration that added some
        self.barrier: ResumeBarrier | None = None  # of a run that resumes, until its processes have replayed
        self.spent_before: dict[str, Usage] = {}  # before the restart, by pid; charged when its start is replayed
        self.cut_off_before: dict[str, Usage] = {}  # the part of it for calls that a restart cut off
        self.names: dict[str, str] = {}
        self.scopes: dict[str, Budget] = {}  # sessions by their names, where they have to be found again
        self.children: dict[str, SupervisedChild] = {}  # of supervisors, as far as the program has handles on them
        self.streams: dict[str, tuple[AgentStream, int]] = {}  # with the characters read so far
        self.mocks: dict[str, list[tuple[str, Any]]] = {}
        self.has_crashed = False  # an agent crashed, and its supervisor counts restarts by the clock
        # calls under way by the pid of the process that answers; it answers the first
        self.turns: dict[str, list[AgentTurn]] = {}
        self.early: dict[str, SpeculativeCall] = {}  # by pid: functions that run ahead of their turn
        self.awaited: set[str] = set()  # pids: functions whose caller waits, and says the outcome of them
        self.speculative: Usage = NOTHING  # what calls cost that were made ahead and never needed
        self.started = StartedPids(kernel)  # ended with the run, where the kernel outlives it
        self.tracks_processes = False
        self.main: VegaJob | None = None
        self._light_processes: LightProcesses | None = None
        self.trace_id = ""
        self.saves: dict[str, int] = {}  # by pid: how often a process was saved
        self.fibers = 0  # processes written in Vega that are alive, where that is counted
        self.is_over = False  # its main process has ended
        self.picture = options.picture
        if self.picture is not None:
            self.picture.attach(kernel, self.budget)
        kernel.parts.setdefault(_PART, Worlds())[run_id] = self
        self.runtime.cut_listeners.append(self._warn_of_cut)

    def begin(self, main: VegaJob) -> None:
        """Begin the main process. Without a journal, messages and spawns take the short cut of LightProcesses."""
        self.main = main
        if self.linked.tier is not None:
            self.linked.tier.contended = partial(self._is_contended, asyncio.get_running_loop())
        if self.kernel.agents_heard and enclosing_span() is None:  # one trace for all that the run asks
            self.trace_id = self.trace_id or self.kernel.entropy.hex(128)
            enter_span(TraceSpan(self.trace_id, ""))
        grant = main.process.grant
        if self.light_processes is not None and all(grant.allows(right) for right in _LIGHT):
            self.linked.post = self.light_processes.post
            if self.picture is None:  # a picture shows every process, so none may be light
                self.linked.spawn = self.light_processes.spawn

    @property
    def light_processes(self) -> LightProcesses | None:
        """The light processes of the run; None on a kernel with a journal, where every process is the kernel's."""
        if self._light_processes is None and self.kernel.journal is None:
            workers = self.options.workers
            self._light_processes = LightProcesses(self) if workers == 1 else ThreadedLightProcesses(self, workers)
        return self._light_processes

    @property
    def is_durable(self) -> bool:
        return self.kernel.journal is not None

    # ------------------------------------------------------------ values that processes hand each other

    def box(self, value: Any) -> Any:
        """Return a message as the kernel carries it: in a box, so that null is something too."""
        return ["vega", value_to_data(value)] if self.kernel.journal is not None else (value,)

    def seed(
        self,
        fiber: Fiber,
        function: Any,
        arguments: list[Any],
        slots: list[int] | None = None,
        maker: KernelProcess | None = None,
    ) -> Any:
        """Return what a process begins with, each time that it is started. A process that `maker` started when the
        program had fewer variables begins with those."""
        full = self._seed(fiber, function, arguments, slots, None)
        entry = upcoming(maker) if maker is not None and self.shorter else None
        if entry is None or entry.kind != "spawn":
            return full
        seeds = [full, *(self._seed(fiber, function, arguments, slots, count) for count in self.shorter)]
        names = (entry.name, *old_names(entry.name))
        return next(
            (seed for seed in seeds for name in names if canonical_hash(name, (self.run_id, seed), {}) == entry.hash),
            full,
        )

    def _seed(
        self, fiber: Fiber, function: Any, arguments: list[Any], slots: list[int] | None, count: int | None
    ) -> Any:
        globals_ = fiber.globals[:count]
        if slots is not None:
            globals_ = [value if slot in slots else UNSET for slot, value in enumerate(globals_)]
        parts = [function, arguments, globals_]
        if self.kernel.journal is None:
            return copy_value(parts)
        data = value_to_data(parts)
        path = self.sessions()
        return {**data, "sessions": path} if path else data

    def fiber(self, seed: Any) -> Fiber:
        """Return the fiber that a seed begins; a fiber is its own."""
        kind = Fiber if self.light_processes is None else ScheduledFiber
        if type(seed) is kind:
            return seed
        if seed is None:
            return kind.start(self.linked)
        function, arguments, globals_ = copy_value(seed) if self.kernel.journal is None else self.read(seed)
        return kind.call(self.linked, function, arguments, pad_globals(self.linked, globals_))

    def to_row(self, value: Any) -> Any:
        """Return a value for a row of the journal, or as it is."""
        return value_to_data(value) if self.kernel.journal is not None else value

    def read(self, value: Any) -> Any:
        return value_from_data(value, self.linked) if self.kernel.journal is not None else value

    # ------------------------------------------------------------ agents and functions of the host

    def plan(self, name: str, settings: dict[str, Any]) -> AgentPlan:
        """Return what an agent's settings come to; made once, so that equal ones share their limits."""
        key = (name, codec.canonical(value_to_data(settings)))
        plan = self.plans.get(key)
        if plan is None:
            if name in self.setting_versions:
                plan = self.plans[key] = self._newest_plan(name, settings)
            else:
                plan = self.plans[key] = AgentPlan(self, name, settings)
        return plan

    def is_in_turn(self, plan: AgentPlan, *, timed: bool = True) -> bool:
        """Return whether an agent must not be asked early because of its models."""
        return plan.name not in self.mocks and bool(self.runtime.models.why_in_turn(plan.agent, timed=timed))

    def compute_time_owed_s(self) -> float:
        """Return the seconds of time won to give back before a call whose agent is not known: the longest wait
        that a time-dependent limit of any agent asks for."""
        if self.has_crashed:
            return inf
        return max((self.runtime.models.ready_in(plan.agent, timed=True) for plan in self.plans.values()), default=0.0)

    def _newest_plan(self, name: str, settings: dict[str, Any]) -> AgentPlan:
        """Return the newest plan of an agent whose settings a migration changed; calls under way find the older
        ones."""
        older: dict[str, AgentPlan] = {}
        *before, newest = self.setting_versions.versions(name, settings)
        for version, kept in enumerate(before):
            plan = AgentPlan(self, name, kept)
            name_plan(plan, version)
            older[self.kernel.programs.name(plan.program)] = plan
        key = (name, codec.canonical(value_to_data(newest)))
        current = self.plans.get(key)
        if current is None:
            current = self.plans[key] = AgentPlan(self, name, newest)
            name_plan(current, len(before))
            self.kernel.programs.name(current.program)
            current.older = older
        return current

    def find_spawn_settings(self, process: KernelProcess, name: str, settings: Any) -> Any:
        """Return the settings that an agent was spawned with, of one that a replay spawns again: as its journal has
        them."""
        kept = self.to_row(settings)
        entry = upcoming(process) if name in self.setting_versions else None
        before = None if entry is None else self.spawned.get(entry.link)
        if before is None or before[0] != name:
            return kept
        was = self.read(before[1])
        return (
            before[1]
            if any(is_alike(was, version) for version in self.setting_versions.versions(name, settings))
            else kept
        )

    def slot(self, pid: str, plan: AgentPlan, promised: AgentSlot | None = None) -> AgentSlot:
        """Return the slot of the agent with this pid; `promised` is the slot that early calls have used until now."""
        known = self.agent_slots.get(pid)
        if promised is not None and promised.plan is plan:
            promised.keep(known)
            slot = promised
        elif known is not None:
            return known
        else:
            slot = AgentSlot(plan)
        self.agent_slots[pid] = slot
        self.expected.pop(pid, None)
        process = self.kernel.find_again(pid)
        if process.exit is not None:
            slot.on_process_end(process)
        else:
            process.watch((slot.on_process_end, None))
        return slot

    def names_of(self, pid: str) -> tuple[str, ...]:
        """Return what the program calls a process: its agent, and the names that it was registered with."""
        slot, expected = self.agent_slots.get(pid), self.expected.get(pid)
        agent = (slot.plan.name,) if slot is not None else () if expected is None else (expected[0],)
        return (*agent, *(name for name, holder in self.names.items() if holder == pid))

    def is_agent(self, pid: str) -> bool:
        return pid in self.agent_slots or pid in self.expected

    async def slot_of(self, pid: str) -> AgentSlot:
        """Return the slot of an agent; one from before the restart may not have resumed yet."""
        while self.main is None:  # noqa: ASYNC110 - for one round: it begins with the run
            await asyncio.sleep(0)
        if pid not in self.agent_slots:
            name, settings = self.expected[pid]
            self.slot(pid, self.plan(name, self.read(settings)))
        return self.agent_slots[pid]

    async def wait_until_caught_up(self) -> None:
        """Wait until the main process is where it was before the restart: tools begin with its variables."""
        for _ in range(_ROUNDS):
            if self.main is not None and not self.main.ctx.replaying:
                return
            await asyncio.sleep(0)

    async def all_replayed(self, process: KernelProcess) -> None:
        """Wait, before a new effect, until all processes from before the restart have replayed."""
        if self.barrier is not None:
            await self.barrier.wait(process)

    def recharge(self, pid: str, inside: Sequence[Budget]) -> Usage:
        """Charge the sessions, which the replay makes again, with what a process that was started in them has spent
        before the restart. The whole run's budget has it already. Gives what it was."""
        usage = self.spent_before.pop(pid, NOTHING)
        for scope in inside[-1].chain() if inside and usage.packed else ():
            if scope is not self.budget:
                scope.charge_alone(usage)
        return usage

    # ------------------------------------------------------------ sessions

    def sessions(self) -> list[list[Any]]:
        """Return the sessions around what runs now, outermost first: enough to make them again."""
        inside = scopes.get()
        named = [scope for scope in (inside[-1].chain() if inside else ()) if scope.name]
        return [[scope.name, scope.limit("usd")] for scope in reversed(named)]

    def session(self, name: str, limit: Any, outer: Budget) -> Budget:
        """Return the scope of a session by its name: the same for all processes inside it."""
        scope = self.scopes.get(name)
        if scope is None:
            scope = self.scopes[name] = outer.child({"usd": limit, "name": name})
            if self.record is not None:
                scope.charge_alone(Usage.from_data(self.record.get_session_costs(name)))
        return scope

    def enter_sessions(self, path: Sequence[Sequence[Any]]) -> None:
        """Enter the sessions that a process which comes back was started in."""
        scope = self.budget
        for name, limit in path:
            scope = self.session(name, limit, scope)
        scopes.set((scope,))

    def name_child(self, name: str) -> str:
        """Return the name of a supervisor's child as the kernel has it: each run on a shared kernel has names of its
        own."""
        return f"{self.run_id}/{name}" if self.tracks_processes else name

    def function(self, name: str) -> Callable[..., Any] | None:
        """Return a function of the host: given when the program was run, or imported where that is allowed."""
        given = self.options.functions.get(name)
        if given is not None:
            return given
        for kind, target, imported, *_ in self.linked.program.imports:
            if kind == "python" and imported == name:
                function = self.options.functions[name] = import_function(target, self.options.python)
                return function
        return None

    @property
    def globals(self) -> list[Any]:
        assert self.main is not None
        return self.main.fiber.globals

    def _is_contended(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether a long computation delays other work: a process that could run, rows whose commit is awaited,
        a task beside the run, a timer that is due, or something that just came (Ctrl-C does). Called from another
        thread; for a loop that does not tell what it has ready (`uvloop`), the answer is yes."""
        kernel = self.kernel
        if kernel.scheduler.waiting or getattr(loop, "_ready", True):
            return True
        if kernel.journal is not None and kernel.journal.pending and kernel.journal.awaited:
            return True
        return _is_due(loop) or _has_come(loop)

    def _warn_of_cut(self, pid: str) -> None:
        """Warn that the provider of an agent of this run has cut its answer off."""
        if turns := self.turns.get(pid):
            name = turns[0].slot.plan.name
            self.options.warn(f"warning: an answer of agent {name} was cut off at its longest; raise its max_tokens")

    def close(self) -> None:
        self.runtime.cut_listeners.remove(self._warn_of_cut)
        if self._light_processes is not None:
            self._light_processes.close()
        self.kernel.parts.get(_PART, {}).pop(self.run_id, None)


def pad_globals(linked: LinkedProgram, globals_: list[Any]) -> list[Any]:
    """Return a process's variables; those that the program was given since are unset."""
    return globals_ + [UNSET] * (len(linked.program.globals) - len(globals_))


def _is_due(loop: Any) -> bool:
    """Return whether the time of a loop's next timer has come."""
    timers: Any = getattr(loop, "_scheduled", None)  # another loop than Python's own keeps them elsewhere
    return bool(timers and timers[0]._when <= loop.time())


def _has_come(loop: Any) -> bool:
    """Return whether something can be read or written that the loop has not seen yet."""
    selector = getattr(loop, "_selector", None)
    try:
        return selector is not None and bool(selector.select(0))
    except (OSError, RuntimeError, ValueError):  # changed or closed meanwhile, in the loop's own thread
        return True


def import_function(target: str, allowed: frozenset[str]) -> Callable[..., Any]:
    """`import python "module:name"`, if the caller of the run allows it."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise ConfigError(f'import python {target!r}: write "module:function"')
    if target not in allowed and module not in allowed:
        raise CapabilityDenied(
            f"the program may not import python {target!r}",
            hint=f"the caller may allow that: vega.run(…, python=[{target!r}])",
            target=target,
        )
    from importlib import import_module

    try:
        function: Callable[..., Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"import python {target!r}: {error}") from None
    return function


def world_of(ctx: Context, run_id: str) -> World:
    return run_of(ctx.own_process.kernel, run_id)


def run_of(kernel: Kernel, run_id: str) -> World:
    world: World = kernel.parts[_PART][run_id]
    return world
