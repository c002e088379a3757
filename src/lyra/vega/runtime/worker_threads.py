"""Light processes that run in several threads, the workers.

Each worker has a run queue, and each light process a worker; one that has nothing to do steals from the longest queue.
Only a process in a queue can be stolen: a process runs on one worker at a time. Messages between light processes go
from mailbox to mailbox under one lock. All else that a process asks for (`asks`) is done in the loop's thread, as are
all changes of the table; a process that is looked up while it runs is waited for, which its fuel makes short.

With Python's global lock this makes nothing faster, and one worker, which is the loop's own thread, is the default.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from lyra.kernel.base.tasks import Threads
from lyra.vega.machine.fiber import OUT_OF_FUEL, WAIT, VmEffect
from lyra.vega.machine.link import LinkedProgram
from lyra.vega.machine.vm import run
from lyra.vega.runtime.light_processes import FUEL, LightProcesses, ScheduledFiber
from lyra.vega.values.values import Process, copy_value

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process as KernelProcess
    from lyra.vega.runtime.world import World


WORKERS_MAX: Final = 64


class ThreadedLightProcesses(LightProcesses):
    """`_asking` are the processes that want something of the loop's thread, with what they want."""

    __slots__ = (
        "_asking",
        "_changed",
        "_count",
        "_is_called",
        "_is_over",
        "_linked",
        "_next",
        "_queues",
        "_threads",
        "_wanted",
    )

    def __init__(self, world: World, count: int) -> None:
        super().__init__(world)
        self._count = count
        self._queues: list[deque[ScheduledFiber]] = [deque() for _ in range(count)]
        self._asking: dict[ScheduledFiber, Any] = {}
        self._is_called = False
        self._is_over = False
        self._wanted: ScheduledFiber | None = None  # by the loop's thread, which waits for the end of its turn
        self._next = 0
        self._linked: LinkedProgram = world.linked.beside(self._post)
        self._threads = Threads(self._work)
        self._changed = self._threads.changed
        self._push = self._put
        self._threads.start(count, name="vega-worker")

    # ------------------------------------------------------------ in the workers' threads

    def _work(self, number: int) -> None:
        while (fiber := self._take(number)) is not None:
            outcome = run(fiber, FUEL)
            with self._changed:
                self._came(fiber, outcome)

    def _take(self, number: int) -> ScheduledFiber | None:
        """Return the next process of a worker, marked as running; None when all is over."""
        with self._changed:
            while not self._is_over:
                queue = self._queues[number] or max(self._queues, key=len)
                if not queue:
                    self._changed.wait()
                    continue
                fiber = queue.popleft()
                if fiber.state == "ready" and self.light.get(fiber.pid) is fiber:
                    fiber.state, fiber.worker = "running", number
                    return fiber
        return None

    def _came(self, fiber: ScheduledFiber, outcome: Any) -> None:
        """Note the outcome of a turn, and wake the threads that wait for its end."""
        if outcome is OUT_OF_FUEL or (outcome is WAIT and _has_news(fiber)):
            fiber.state = "ready"
            if fiber is not self._wanted:
                self._queues[fiber.worker].append(fiber)
        elif outcome is WAIT:
            fiber.state = "waiting"
        else:
            fiber.state = "asks"
            self._asking[fiber] = outcome
            if not self._is_called and not self._is_over:
                self._is_called = True
                self.kernel.loop.call_soon_threadsafe(self._serve)
        self._changed.notify_all()

    def _post(self, target: Any, message: Any) -> bool:
        """Return a message from one light process to another; False: ask the loop's thread."""
        if type(target) is not Process:
            return False
        carried = copy_value(message)
        with self._changed:
            fiber = self.light.get(target.pid)
            if fiber is None or self._labels.pids or self.kernel.listening:
                return False
            if fiber.mailbox is None:
                fiber.mailbox = deque()
            elif len(fiber.mailbox) >= self._limit:
                return False
            fiber.mailbox.append(carried)
            if fiber.state == "waiting":
                fiber.state = "ready"
                self._queues[fiber.worker].append(fiber)
                self._changed.notify()
        return True

    # ------------------------------------------------------------ in the loop's thread

    def _put(self, fiber: ScheduledFiber) -> None:
        """Queue a light process that is ready: a new one goes to the next worker."""
        with self._changed:
            if fiber.worker < 0:
                fiber.linked = self._linked
                fiber.worker = self._next = (self._next + 1) % self._count
            self._queues[fiber.worker].append(fiber)
            self._changed.notify()

    def post(self, target: Any, message: Any) -> bool:
        is_light = type(target) is Process and target.pid in self.light
        if is_light and not self._labels.pids and not self.kernel.listening:
            return self._post(target, message)
        return super().post(target, message)

    def _serve(self) -> None:
        """Do what processes ask for."""
        while True:
            with self._changed:
                if not self._asking:
                    self._is_called = False
                    return
                fiber = next(iter(self._asking))
                outcome = self._asking.pop(fiber)
            if self.light.get(fiber.pid) is fiber:
                self.handle_outcome(fiber, outcome)

    def handle_outcome(self, fiber: ScheduledFiber, outcome: Any) -> None:
        is_seen = self._labels.pids or self.kernel.listening
        if type(outcome) is VmEffect and outcome.kind in ("send", "spawn") and not is_seen:
            value = self._do(fiber, outcome)
            if value is not None:
                fiber.resume(value if outcome.kind == "spawn" else None)
                fiber.state = "ready"
                self._put(fiber)
                return
        super().handle_outcome(fiber, outcome)

    def _do(self, fiber: ScheduledFiber, effect: VmEffect) -> Any:
        """Do what workers leave to the loop's thread and a light process may have; None: it takes more than that."""
        if effect.kind == "send":
            target, message, timeout, budget = effect.arguments
            return (timeout is None and budget is None and self.post(target, message)) or None
        kind, name, function, arguments, supervision, is_async = effect.arguments
        if supervision is not None:
            return None
        return self.spawn(fiber, function, arguments, ["", kind, name, "async" if is_async else ""])

    def promote(self, fiber: ScheduledFiber, outcome: Any = None) -> KernelProcess:
        with self._changed:
            self._wanted = fiber  # no worker puts it back into a queue
            while fiber.state == "running":  # its turn ends soon
                self._changed.wait()
            self._wanted = None
            outcome = self._asking.pop(fiber, outcome)
            fiber.linked = self._world.linked
            return super().promote(fiber, outcome)

    def all_wait(self) -> bool:
        with self._changed:
            return super().all_wait()

    def stop(self) -> None:
        if self.kernel.listening:
            self.bring_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._threads.close()
        super().stop()


def _has_news(fiber: ScheduledFiber) -> bool:
    """Return whether a message came between the last look into the mailbox and now."""
    _, state, _, _ = fiber.code.code[fiber.pc]
    mailbox = fiber.mailbox
    return mailbox is not None and len(mailbox) > fiber.registers[state]
