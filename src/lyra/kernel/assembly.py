"""The assembly of a kernel: every part, made in order and given the core and the parts below it.

Three groups: the parts that run processes, the subsystems, the parts that hold the store. `Kernel` adds the calls;
nothing here acts.

Adding a subsystem: a folder with a class that derives from `base.subsystem.Subsystem`, its attribute here, its
construction and its row in `_make_subsystems`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.kernel.bus.bus import CommBus
from lyra.kernel.cleanup import Rounds, WorkerParts
from lyra.kernel.effects.gates import Declared
from lyra.kernel.health import HealthMonitor
from lyra.kernel.interrupts.service import InterruptService
from lyra.kernel.journal.snapshots import SnapshotWriter
from lyra.kernel.opening import Opening, StoreTarget
from lyra.kernel.pipelines.orchestrator import Orchestrator
from lyra.kernel.process.links import Links
from lyra.kernel.process.mailbox import Mailboxes
from lyra.kernel.process.scheduler import Scheduler
from lyra.kernel.programs.context import Calls
from lyra.kernel.programs.lifetime import Lifetimes
from lyra.kernel.recovery import DormantProcesses, Recovery
from lyra.kernel.services.registry import ServiceRegistry
from lyra.kernel.shared.groups import Groups
from lyra.kernel.shared.memories import Memories
from lyra.kernel.shared.taint import PersonActs, Taint, Withdrawals
from lyra.kernel.supervision.handle import Supervisors
from lyra.kernel.worker_api import WorkerApi
from lyra.kernel.workers.envelope_table import EnvelopeTable
from lyra.kernel.workers.lifecycle import LifecycleManager
from lyra.kernel.workers.rate_limits import RateLimiter
from lyra.kernel.workers.time_limits import TimeLimits
from lyra.kernel.workers.usage import ResourceTracker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from lyra.kernel.base.core import Core
    from lyra.kernel.base.subsystem import Subsystem
    from lyra.kernel.process.process import Process
    from lyra.kernel.seams import Seams


class KernelParts:
    __slots__ = (
        "_door",
        "_dormant",
        "_opening",
        "_programs",
        "_recovery",
        "_snapshots",
        "abort",
        "budget",
        "bus",
        "call",
        "call_now",
        "cleanup_rounds",
        "clock",
        "core",
        "declared",
        "entropy",
        "envelopes",
        "fact",
        "find",
        "find_again",
        "flight",
        "gate_state",
        "grant",
        "groups",
        "health",
        "interrupts",
        "lifecycle",
        "lifetimes",
        "links",
        "listeners",
        "lookup",
        "mailboxes",
        "memories",
        "names",
        "orchestrator",
        "outside_pause",
        "parts",
        "pause",
        "person_acts",
        "processes",
        "publish",
        "raise_if_failed",
        "rate_limiter",
        "resources",
        "rng",
        "scheduler",
        "services",
        "states",
        "supervisors",
        "taint",
        "tasks",
        "time_limits",
        "value_of",
        "withdrawals",
        "worker_api",
    )

    def __init__(
        self,
        core: Core[Process],
        seams: Seams,
        target: StoreTarget,
        *,
        mailbox_messages_max: int,
        snapshot_every_events: int,
        retention_s: float,
        close: Callable[..., Awaitable[None]],
    ) -> None:
        self.core = core
        self.parts: dict[str, Any] = {}  # what the layers above keep for this kernel, by name
        self._forward_core()
        self._make_process_parts(seams, mailbox_messages_max)
        self._make_subsystems(close)
        if seams.remote is not None:
            core.subsystems.add(seams.remote(self))
        self._make_store_parts(target, snapshot_every_events, retention_s, seams.wakes)
        self.states.update({state.NAME: state for state in seams.states})
        core.calls = Calls(
            door=self._door,
            declared=self.declared,
            programs=self._programs,
            lifetimes=self.lifetimes,
            links=self.links,
            ask=self.interrupts.ask,
            guard=self.supervisors.guard,
            supervisor=self.supervisors.program,
        )

    def _forward_core(self) -> None:
        """Forward what callers and the layers above use of the ground floor, under its own name."""
        core = self.core
        self.clock = core.clock
        self.entropy = core.entropy
        self.rng = core.rng
        self.budget = core.budget
        self.grant = core.grant
        self.processes = core.processes
        self.names = core.names
        self.states = core.states
        self.tasks = core.tasks
        self.flight = core.flight
        self.listeners = core.listeners
        self.publish = core.publish
        self.fact = core.fact
        self.find = core.find
        self.find_again = core.find_again
        self.lookup = core.lookup
        self.pause = core.pause
        self.outside_pause = core.outside_pause
        self.call = core.call
        self.call_now = core.call_now
        self.value_of = core.value_of
        self.raise_if_failed = core.raise_if_failed
        self.abort = core.abort

    def _make_process_parts(self, seams: Seams, mailbox_messages_max: int) -> None:
        """Make the parts that run processes: each is given the core and the parts below it."""
        core = self.core
        self.scheduler = Scheduler(core)
        self.mailboxes = Mailboxes(core, limit=mailbox_messages_max)
        self.links = Links(core, self.mailboxes)
        self.declared = Declared(core)
        self.gate_state = self.declared.gate_state
        self.interrupts = InterruptService(core)
        self._door = seams.door(core, self.declared, self.interrupts.ask)
        self._dormant = DormantProcesses(core)
        self._programs = self._dormant.programs = seams.programs(self._dormant.became_known, ())
        self.lifetimes = Lifetimes(core, self._programs, self.mailboxes, self.links, seams.pids)
        self.supervisors = self._dormant.supervisors = Supervisors(
            core, self._programs, self.lifetimes, self.mailboxes, self.links, self._dormant.until_known
        )

    def _make_subsystems(self, close: Callable[..., Awaitable[None]]) -> None:
        """Make the subsystems, in the order in which they are told of each moment."""
        core, interrupts = self.core, self.interrupts
        self.lifecycle = LifecycleManager(core, self.lifetimes, interrupts)
        self.resources = ResourceTracker(core, self.lifetimes, self.lifecycle)
        self.time_limits = TimeLimits(core, self.lifecycle, self.resources)
        self.rate_limiter = RateLimiter(core, self.lifecycle, self.resources)
        self.services = ServiceRegistry(core, self.lifecycle, self.resources, self.time_limits)
        self.groups = Groups(core, self.mailboxes)
        self.taint = Taint(core)
        self.memories = Memories(core, self.taint)
        self.withdrawals = Withdrawals(core)
        self.person_acts = PersonActs(core)
        self.orchestrator = Orchestrator(
            core, self._programs, self.lifetimes, interrupts, self.lifecycle, self.resources
        )
        self.envelopes = EnvelopeTable(core, self.lifecycle)
        self.bus = CommBus(core, self.lifecycle.user_of)
        self.health = HealthMonitor(core, self.scheduler, self.lifetimes, interrupts, self.lifecycle)
        parts = WorkerParts(
            core,
            interrupts,
            self.lifecycle,
            self.resources,
            self.rate_limiter,
            self.services,
            self.orchestrator,
            self.envelopes,
        )
        self.cleanup_rounds = Rounds(parts)
        self.worker_api = WorkerApi(parts, self.cleanup_rounds, close)
        subsystems: tuple[Subsystem, ...] = (
            interrupts,
            self.lifecycle,
            self.resources,
            self.time_limits,
            self.services,
            self.rate_limiter,
            self.declared,
            self.groups,
            self.memories,
            self.taint,
            self.withdrawals,
            self.person_acts,
            self.supervisors,
            self.orchestrator,
            self.envelopes,
            self.health,
            self.bus,
            self.cleanup_rounds,
        )
        for subsystem in subsystems:
            core.subsystems.add(subsystem)

    def _make_store_parts(
        self, target: StoreTarget, every_events: int, retention_s: float, wakes: Collection[str] | None
    ) -> None:
        """Make the parts that read the store and write it down; in a kernel without one they do nothing."""
        core = self.core
        self._snapshots = SnapshotWriter(
            core,
            self.lifetimes.forget,
            self.lifetimes.let_go_of_archived,
            every_events=every_events,
            retention_s=retention_s,
        )
        self._recovery = Recovery(
            core,
            self._snapshots,
            self._dormant,
            programs=self._programs,
            lifetimes=self.lifetimes,
            links=self.links,
            interrupts=self.interrupts,
            supervisors=self.supervisors,
            wakes=wakes,
        )
        self._opening = Opening(
            core,
            target,
            lifetimes=self.lifetimes,
            recovery=self._recovery,
            snapshots=self._snapshots,
            parts=self.parts,
        )
