"""The Crew: a fleet whose light processes run in several threads, the workers.

Each worker has a run queue, and each light process a worker; one that has nothing to do steals from the longest queue.
Only who is in a queue can be stolen: a process runs on one worker at a time. Messages between light processes go from
mailbox to mailbox under one lock. All else that a process asks for (`asks`) is done in the loop's thread, as are all
changes of the table; a process that is looked up while it runs is waited for, which its fuel makes short.

With Python's global lock this makes nothing faster, and one worker, which is the loop's own thread, is the default.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from lyra.kernel.base.tasks import Threads
from lyra.vega.machine.fiber import OUT_OF_FUEL, WAIT, VmEffect
from lyra.vega.machine.link import Linked
from lyra.vega.machine.vm import run
from lyra.vega.runtime.light_processes import FUEL, Fleet, Member
from lyra.vega.values.values import Process, copied

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process as KernelProcess
    from lyra.vega.runtime.world import World

__all__ = ["WORKERS_MAX", "Crew"]

WORKERS_MAX: Final = 64


class Crew(Fleet):
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
        self._queues: list[deque[Member]] = [deque() for _ in range(count)]
        self._asking: dict[Member, Any] = {}
        self._is_called = False
        self._is_over = False
        self._wanted: Member | None = None  # by the loop's thread, which waits for the end of its turn
        self._next = 0
        self._linked: Linked = world.linked.beside(self._post)
        self._threads = Threads(self._work)
        self._changed = self._threads.changed
        self._push = self._put
        self._threads.start(count, name="vega-worker")

    # ------------------------------------------------------------ in the workers' threads

    def _work(self, number: int) -> None:
        while (member := self._taken(number)) is not None:
            outcome = run(member, FUEL)
            with self._changed:
                self._came(member, outcome)

    def _taken(self, number: int) -> Member | None:
        """The next process of a worker, marked as running; None when all is over."""
        with self._changed:
            while not self._is_over:
                queue = self._queues[number] or max(self._queues, key=len)
                if not queue:
                    self._changed.wait()
                    continue
                member = queue.popleft()
                if member.state == "ready" and self.light.get(member.pid) is member:
                    member.state, member.worker = "running", number
                    return member
        return None

    def _came(self, member: Member, outcome: Any) -> None:
        """What a turn came to; whoever waits for the end of the turn is told."""
        if outcome is OUT_OF_FUEL or (outcome is WAIT and _has_news(member)):
            member.state = "ready"
            if member is not self._wanted:
                self._queues[member.worker].append(member)
        elif outcome is WAIT:
            member.state = "waiting"
        else:
            member.state = "asks"
            self._asking[member] = outcome
            if not self._is_called and not self._is_over:
                self._is_called = True
                self.kernel.loop.call_soon_threadsafe(self._serve)
        self._changed.notify_all()

    def _post(self, target: Any, message: Any) -> bool:
        """A message from one light process to another; False: ask the loop's thread."""
        if type(target) is not Process:
            return False
        carried = copied(message)
        with self._changed:
            member = self.light.get(target.pid)
            if member is None or self._labels.pids or self.kernel.listening:
                return False
            if member.mailbox is None:
                member.mailbox = deque()
            elif len(member.mailbox) >= self._limit:
                return False
            member.mailbox.append(carried)
            if member.state == "waiting":
                member.state = "ready"
                self._queues[member.worker].append(member)
                self._changed.notify()
        return True

    # ------------------------------------------------------------ in the loop's thread

    def _put(self, member: Member) -> None:
        """A light process is ready: a new one goes to the next worker."""
        with self._changed:
            if member.worker < 0:
                member.linked = self._linked
                member.worker = self._next = (self._next + 1) % self._count
            self._queues[member.worker].append(member)
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
                member = next(iter(self._asking))
                outcome = self._asking.pop(member)
            if self.light.get(member.pid) is member:
                self.went(member, outcome)

    def went(self, member: Member, outcome: Any) -> None:
        is_seen = self._labels.pids or self.kernel.listening
        if type(outcome) is VmEffect and outcome.kind in ("send", "spawn") and not is_seen:
            value = self._done(member, outcome)
            if value is not None:
                member.resume(value if outcome.kind == "spawn" else None)
                member.state = "ready"
                self._put(member)
                return
        super().went(member, outcome)

    def _done(self, member: Member, effect: VmEffect) -> Any:
        """What workers leave to the loop's thread and a light process may have; None: it takes more than that."""
        if effect.kind == "send":
            target, message, timeout, budget = effect.arguments
            return (timeout is None and budget is None and self.post(target, message)) or None
        kind, name, function, arguments, supervision, is_async = effect.arguments
        if supervision is not None:
            return None
        return self.spawn(member, function, arguments, ["", kind, name, "async" if is_async else ""])

    def promote(self, member: Member, outcome: Any = None) -> KernelProcess:
        with self._changed:
            self._wanted = member  # nobody steps it any more
            while member.state == "running":  # its turn ends soon
                self._changed.wait()
            self._wanted = None
            outcome = self._asking.pop(member, outcome)
            member.linked = self._world.linked
            return super().promote(member, outcome)

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


def _has_news(member: Member) -> bool:
    """Whether a message came between the last look into the mailbox and now."""
    _, state, _, _ = member.code.code[member.pc]
    mailbox = member.mailbox
    return mailbox is not None and len(mailbox) > member.registers[state]
