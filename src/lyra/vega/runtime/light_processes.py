"""Light processes: the processes of a run that need nothing of the kernel but a turn.

A process that was started by `spawn` and only calculates, sends and receives is *light*: a ScheduledFiber, which has a
pid and a place in the queue of the kernel's scheduler. It becomes a process of the kernel's own, under the
same pid and with the messages it has, as soon as it asks for anything else, fails, or is looked up (`bring`).

A process of the kernel that waits for a message, and for nothing else, is stepped here, too: messages between
processes of the run go from fiber to fiber. Where the kernel has something for it (a signal, a message from outside,
its end), its own program continues. Messages that came through the kernel are older than those that would come here, so
nothing is put into a fiber's mailbox while the kernel holds one for it.

On a kernel with a journal, and while a listener receives the kernel's events, no process is light.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context as ContextVars
from typing import TYPE_CHECKING, Any, Final

from lyra.core.budgets.budget import Budget
from lyra.core.limits import ENDED_PROCESSES_KEPT
from lyra.core.rights.capability import Grant
from lyra.kernel.process.process import NORMAL, Exit
from lyra.vega.machine.fiber import OUT_OF_FUEL, SLICE, WAIT, Done, Fiber, Frame, VmEffect
from lyra.vega.machine.link import Code, LinkedProgram
from lyra.vega.machine.vm import run
from lyra.vega.values.values import Closure, Fault, Future, Process, copy_value, fault_of

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process as KernelProcess
    from lyra.vega.runtime.job import VegaJob
    from lyra.vega.runtime.world import World


FUEL: Final = 4_096  # calls and loop turns; about a millisecond


class LightOrigin:
    """What a light process inherits from its maker: what it may do and spend, and the sessions and spans around it."""

    __slots__ = ("budget", "context", "grant")

    def __init__(self, process: KernelProcess) -> None:
        self.budget: Budget = process.budget
        self.grant: Grant = process.grant
        self.context: ContextVars = process.context.copy()


class ScheduledFiber(Fiber):
    """A fiber that the scheduler can step. `job` is its process of the kernel's, once it has one; `state` is as there:
    `waiting` only in a receive without a time-out."""

    __slots__ = ("job", "light_processes", "origin", "pid", "priority", "since", "state", "worker")

    def __init__(
        self,
        linked: LinkedProgram,
        code: Code,
        registers: list[Any],
        globals_: list[Any],
        light_processes: LightProcesses | None = None,
        origin: LightOrigin | None = None,
        pid: str = "",
        since: float = 0.0,
    ) -> None:
        # Fiber's own, written out: this is the hottest place of a spawn.
        self.linked = linked
        self.code = code
        self.pc = 0
        self.registers = registers
        self.stack: Frame | None = None
        self.depth = 0
        self.looking = 0
        self.globals = globals_
        self.mailbox: deque[Any] | None = None
        self.budgets = 0
        self.receives = 0
        self.destination = -1
        self.fault: Fault | None = None
        self.paused: Any = None
        self.ticks = SLICE
        self.light_processes: LightProcesses = light_processes  # type: ignore[assignment]  # one that begins as a process gets it when it does
        self.job: VegaJob | None = None
        self.origin = origin
        self.pid = pid
        self.priority = NORMAL
        self.state = "ready"
        self.since = since
        self.worker = -1  # see `worker_threads`

    def step(self) -> None:
        """Its turn in the scheduler."""
        if self.job is not None:
            self.light_processes.step_of(self.job)
        elif self.light_processes.kernel.listening:
            self.light_processes.promote(self)
        else:
            self.state = "running"
            outcome = run(self, FUEL)
            if self.ticks < 0:  # it owes for large steps
                self.light_processes.kernel.scheduler.pause()
            if outcome is WAIT:
                self.state = "waiting"
            else:
                self.light_processes.handle_outcome(self, outcome)


class LightProcesses:
    """`light` are the light processes by pid, `attached` the fibers of kernel processes that run now, `ended` the light
    processes that ended of late: their values, and when they began and ended."""

    __slots__ = (
        "_ended_pids",
        "_labels",
        "_limit",
        "_push",
        "_scheduler",
        "_world",
        "attached",
        "ended",
        "kernel",
        "light",
    )

    def __init__(self, world: World) -> None:
        kernel = world.kernel
        self._world = world
        self.kernel = kernel
        self._scheduler = kernel.scheduler
        self._push: Callable[[ScheduledFiber], None] = kernel.scheduler.push  # a light process is ready
        self._labels = kernel.taint.state
        self._limit = kernel.mailboxes.limit
        self.light: dict[str, ScheduledFiber] = {}
        self.attached: dict[str, ScheduledFiber] = {}
        self.ended: dict[str, tuple[Any, float, float, LightOrigin]] = {}
        self._ended_pids: deque[str] = deque()
        kernel.processes.guests.append(self)

    # ------------------------------------------------------------ what the machine asks for

    def spawn(self, maker: Fiber, function: Any, arguments: Any, details: list[str]) -> Process | Future | None:
        """Start a light process; None where the process must be one of the kernel's."""
        kernel = self.kernel
        if (
            details[1] != "function"
            or type(function) is not Closure
            or type(maker) is not ScheduledFiber
            or kernel.listening
            or not kernel.open
            or kernel.live >= kernel.processes_max
            or self._scheduler.order is not None
        ):
            return None
        origin = maker.origin or self._origin(maker)
        if origin is None:
            return None
        code = maker.linked.functions[function.function]
        if arguments or code.parameters or code.captures or maker.globals:
            fiber = maker.child(function, arguments)
            pid = kernel.lifetimes.next_pid()
            fiber.light_processes, fiber.origin, fiber.pid, fiber.since = self, origin, pid, kernel.clock.now()
        else:  # nothing to copy
            pid = kernel.lifetimes.next_pid()
            registers = code.template.copy()
            fiber = ScheduledFiber(maker.linked, code, registers, maker.globals, self, origin, pid, kernel.clock.now())
        self.light[pid] = fiber
        kernel.core.live += 1
        self._push(fiber)
        return Process(pid) if not details[3] else Future(pid)

    @staticmethod
    def _origin(maker: ScheduledFiber) -> LightOrigin | None:
        """Return the origin of light processes that a kernel process starts, until that process performs an effect."""
        job = maker.job
        if job is None or job.process.budget.seconds is not None:
            return None  # time limits are the kernel's
        maker.origin = LightOrigin(job.process)
        return maker.origin

    def post(self, target: Any, message: Any) -> bool:
        """Carry a message to a process without leaving the machine; False where only the kernel can deliver it."""
        if type(target) is not Process:
            return False
        pid = target.pid
        fiber = self.light.get(pid)
        if fiber is None:
            return self._post_attached(pid, message)
        if self._labels.pids or self.kernel.listening:
            return self._carry(pid, message)
        mailbox = fiber.mailbox
        if mailbox is None:
            fiber.mailbox = deque((copy_value(message),))
        elif len(mailbox) < self._limit:
            mailbox.append(copy_value(message))
        else:
            return False
        if fiber.state == "waiting":
            fiber.state = "ready"
            self._push(fiber)
        return True

    def _post_attached(self, pid: str, message: Any) -> bool:
        fiber = self.attached.get(pid)
        if fiber is None or self.kernel.listening:
            return self._carry(pid, message)
        assert fiber.job is not None
        process = fiber.job.process
        is_waiting = fiber.state == "waiting"
        if (process.receiver is not None and not is_waiting) or process.inbox or process.senders:
            return self._carry(pid, message)
        if self._labels.pids:
            return False
        mailbox = fiber.mailbox
        if mailbox is None:
            fiber.mailbox = deque((copy_value(message),))
        elif len(mailbox) < self._limit:
            mailbox.append(copy_value(message))
        else:
            return self._carry(pid, message)
        if is_waiting:
            process.receiver = None
            process.state = fiber.state = "ready"
            self._scheduler.push(fiber)
        return True

    def _carry(self, pid: str, message: Any) -> bool:
        """Return the kernel's way: into the inbox of a process that is not ours to step."""
        kernel = self.kernel
        if self._world.is_agent(pid) or self._labels.pids:
            return False
        receiver = kernel.processes.get(pid)
        if receiver is None or receiver.exit is not None:  # a message to a process that has ended is dropped
            return pid not in self._world.children  # but not where supervision has another in its place
        if receiver.inbox is not None and kernel.mailboxes.must_wait(receiver):
            return False
        kernel.mailboxes.deliver(receiver, (copy_value(message),))
        return True

    # ------------------------------------------------------------ steps

    def handle_outcome(self, fiber: ScheduledFiber, outcome: Any) -> None:
        """Handle what a light process came to, other than waiting."""
        if outcome is OUT_OF_FUEL:
            fiber.state = "ready"
            self._scheduler.give_way(fiber)
        elif type(outcome) is Done:
            if outcome.error is None:
                self._over(fiber, outcome.value)
            else:
                self.promote(fiber, outcome)
        elif outcome.kind in _ANSWERS:
            self._answer(fiber, outcome)
            if self.light.get(fiber.pid) is fiber:  # else the writer of the text has looked it up, which promotes it
                fiber.state = "ready"
                self._push(fiber)
        else:
            self.promote(fiber, outcome)

    def _answer(self, fiber: ScheduledFiber, effect: VmEffect) -> None:
        try:
            fiber.resume(_ANSWERS[effect.kind](self._world, fiber, *effect.arguments))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong outside, a program may catch
            fault = fault_of(error)
            fiber.throw(fault.name, fault.text)

    def _over(self, fiber: ScheduledFiber, value: Any) -> None:
        """Note that a light process ended without an error; its value can be looked up for a while."""
        assert fiber.origin is not None
        fiber.state = "terminated"
        del self.light[fiber.pid]
        self.kernel.core.live -= 1
        self.ended[fiber.pid] = (value, fiber.since, self.kernel.clock.now(), fiber.origin)
        self._ended_pids.append(fiber.pid)
        if len(self._ended_pids) > ENDED_PROCESSES_KEPT:
            self.ended.pop(self._ended_pids.popleft(), None)

    def step_of(self, job: VegaJob) -> None:
        """Run a turn of a process of the kernel's that waited for a message and has one."""
        process, fiber = job.process, job.scheduled_fiber
        if process.inbox or process.error is not None or process._must_cancel is not None or self.kernel.listening:
            job.hand_back(None)
            return
        process.state = fiber.state = "running"
        outcome = run(fiber, FUEL)
        if fiber.ticks < 0:
            self._scheduler.pause()
        if outcome is WAIT:
            process.receiver = process
            process.state = fiber.state = "waiting"
        elif outcome is OUT_OF_FUEL:
            process.state = fiber.state = "ready"
            self._scheduler.give_way(fiber)
        else:
            job.hand_back(outcome)

    # ------------------------------------------------------------ becoming a process of the kernel's

    def promote(self, fiber: ScheduledFiber, outcome: Any = None) -> KernelProcess:
        """Make a light process one of the kernel's; `outcome` is the effect that it asks for now."""
        origin, world = fiber.origin, self._world
        assert origin is not None
        del self.light[fiber.pid]
        process = self.kernel.lifetimes.adopt(
            world.programs.process,
            (world.run_id, fiber, outcome),
            pid=fiber.pid,
            budget=origin.budget,
            grant=origin.grant,
            context=origin.context.copy(),
            created_at=fiber.since,
        )
        if world.tracks_processes:
            world.started.append(fiber.pid)
        if fiber.state == "waiting":  # its program begins when there is a message
            process.receiver = process
            process.state = "waiting"
        else:
            self._scheduler.push(process)
        fiber.state = "running"
        return process

    def attach(self, job: VegaJob) -> None:
        """Attach a process of the kernel's that begins to run a fiber of ours."""
        fiber = job.scheduled_fiber
        fiber.state = "running"
        fiber.light_processes, fiber.job, fiber.origin = self, job, None
        fiber.pid, fiber.priority = job.process.pid, job.process.priority
        self.attached[fiber.pid] = fiber

    def detach(self, job: VegaJob) -> None:
        job.scheduled_fiber.state = "terminated"
        if self.attached.get(job.process.pid) is job.scheduled_fiber:
            del self.attached[job.process.pid]

    def all_wait(self) -> bool:
        """Return whether each light process waits for a message."""
        return all(fiber.state == "waiting" for fiber in self.light.values())

    # ------------------------------------------------------------ as guests in the kernel's table

    def __len__(self) -> int:
        return len(self.light) + len(self.ended)

    def __contains__(self, pid: object) -> bool:
        return pid in self.light or pid in self.ended

    def bring(self, pid: Any) -> KernelProcess | None:
        fiber = self.light.get(pid)
        if fiber is not None:
            return self.promote(fiber)
        return self._bring_ended(pid) if pid in self.ended else None

    def bring_all(self) -> None:
        self.bring_ended()
        for pid in list(self.light):
            self.bring(pid)

    def bring_ended(self) -> None:
        for pid in list(self.ended):
            self._bring_ended(pid)

    def states(self) -> list[str]:
        """Return the states in the kernel's words; a process that asks another thread for something waits."""
        alive = ["waiting" if fiber.state == "asks" else fiber.state for fiber in self.light.values()]
        return alive + ["terminated"] * len(self.ended)

    def _bring_ended(self, pid: str) -> KernelProcess:
        value, since, ended_at, origin = self.ended.pop(pid)
        life = self.kernel.lifetimes
        process = life.adopt(
            self._world.programs.process,
            None,
            pid=pid,
            budget=origin.budget,
            grant=origin.grant,
            context=origin.context,
            created_at=since,
        )
        process.exit = Exit("normal", value)
        process.state, process.ended_at = "terminated", ended_at
        life.keep_ended(process)
        return process

    def stop(self) -> None:
        """Everything ends: the light processes have nothing to tidy up. Listeners are told, though."""
        if self.kernel.listening:
            self.bring_all()
        for fiber in self.light.values():
            fiber.state = "terminated"
        self.kernel.core.live -= len(self.light)
        self.light.clear()
        self.ended.clear()
        self._ended_pids.clear()

    def close(self) -> None:
        """Stop, and be no guest of the kernel any more: the run is over."""
        self.stop()
        if self in self.kernel.processes.guests:
            self.kernel.processes.guests.remove(self)


# What a light process may ask for and stay light.
_ANSWERS: Final[dict[str, Callable[..., Any]]] = {
    "print": lambda world, _member, text: world.options.write(text) and None,
    "process::self": lambda _world, fiber: Process(fiber.pid),
}
