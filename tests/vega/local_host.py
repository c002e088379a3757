"""A host for programs without a kernel: everything in memory, time that jumps.

It runs the processes of one program in turns, carries messages, keeps links, monitors and names, and answers agents
with a function given to it. Nothing outside is touched: files, network and commands are refused. Sleeping costs no
time: when every process waits, the clock jumps to the next timer. The language's tests compare it with the kernel.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from lyra.vega.bytecode.program import Program
from lyra.vega.machine.fiber import Done, Fiber, OutOfFuel, VmEffect
from lyra.vega.machine.link import LinkedProgram, link
from lyra.vega.machine.vm import run
from lyra.vega.values.values import ErrorValue, Process
from tests.vega.local_effects import EFFECTS, HostProcess, ParallelCalls

FUEL: Final = 4_096

Answer = Callable[[str, dict[str, Any], Any], Any]


class HostOutcome:
    """How a run ended."""

    def __init__(self, value: Any, error: ErrorValue | None) -> None:
        self.value = value
        self.error = error

    @property
    def exit_code(self) -> int:
        return 0 if self.error is None else 1


class LocalHost:
    def __init__(
        self,
        program: Program,
        write: Callable[[str], None] = print,
        warn: Callable[[str], None] = lambda _: None,
        *,
        answer: Answer | None = None,
        functions: dict[str, Callable[..., Any]] | None = None,
        arguments: list[str] | None = None,
    ) -> None:
        self.linked: LinkedProgram = link(program)
        self.write = write
        self.warn = warn
        self.answer = answer
        self.functions = functions or {}
        self.arguments = arguments or []
        self.now = 0  # nanoseconds since the run began
        self.ready: deque[HostProcess] = deque()
        self.processes: dict[str, HostProcess] = {}
        self.names: dict[str, str] = {}
        self.streams: dict[str, list[Any]] = {}
        self.groups: dict[int, ParallelCalls] = {}
        self.timers: list[tuple[int, int, HostProcess, int]] = []
        self.numbers = itertools.count(1)
        self.mocks: dict[str, list[tuple[str, Any]]] = {}

    # ------------------------------------------------------------ running

    def run(self, fiber: Fiber | None = None) -> HostOutcome:
        """Run the program (or one fiber of it) to its end; what still runs then is stopped."""
        main = self.add(fiber or Fiber.start(self.linked))
        outcome: list[HostOutcome] = []
        main.on_end = lambda value, error: outcome.append(HostOutcome(value, error))
        while not outcome:
            if self.ready:
                self.step(self.ready.popleft())
            elif not self.next_timer():
                assert main.fiber is not None
                file, line, column = main.fiber.place()
                text = "every process waits for a message that no process will send"
                return HostOutcome(None, ErrorValue("Deadlock", text, file, line, column))
        return outcome[0]

    def add(self, fiber: Fiber | None) -> HostProcess:
        process = HostProcess(f"p{next(self.numbers)}", fiber)
        self.processes[process.pid] = process
        if fiber is not None:
            self.ready.append(process)
        return process

    def step(self, process: HostProcess) -> None:
        if not process.is_alive or process.fiber is None:
            return
        result = run(process.fiber, FUEL)
        if isinstance(result, OutOfFuel):
            self.ready.append(process)
        elif isinstance(result, Done):
            self.ended(process, result.value, result.error)
        else:
            self.effect(process, result)

    def effect(self, process: HostProcess, effect: VmEffect) -> None:
        action = EFFECTS.get(effect.kind)
        assert process.fiber is not None
        if action is not None:
            action(self, process, process.fiber, *effect.arguments)
        elif effect.kind.startswith("host::") and effect.kind[6:] in self.functions:
            self.host_function(process.fiber, effect)
        else:
            process.fiber.throw("CapabilityDenied", f"this host does not allow {effect.kind}")
        if process.is_alive and not process.waits:
            self.ready.append(process)

    def host_function(self, fiber: Fiber, effect: VmEffect) -> None:
        try:
            fiber.resume(self.functions[effect.kind[6:]](*effect.arguments))
        except Exception as error:
            fiber.throw(type(error).__name__, str(error))

    # ------------------------------------------------------------ time

    def wait(self, process: HostProcess, what: str, nanoseconds: int | None = None) -> None:
        process.waits = what
        process.wait_number = next(self.numbers)
        if nanoseconds is not None:
            heapq.heappush(self.timers, (self.now + nanoseconds, process.wait_number, process, process.wait_number))

    def wake(self, process: HostProcess) -> None:
        process.waits = ""
        self.ready.append(process)

    def next_timer(self) -> bool:
        """Jump to the next timer that a process still waits for."""
        while self.timers:
            due, _, process, number = heapq.heappop(self.timers)
            if not process.is_alive or not process.waits:
                continue
            is_receive = process.waits == "receive" and process.receive[1] == number
            if not is_receive and process.wait_number != number:
                continue
            self.now = max(self.now, due)
            assert process.fiber is not None
            if is_receive:
                process.fiber.expire()
            else:
                process.fiber.resume(None)
            self.wake(process)
            return True
        return False

    # ------------------------------------------------------------ ends

    def ended(self, process: HostProcess, value: Any, error: ErrorValue | None, reason: str = "") -> None:
        """A process is over: try again if it is supervised, else tell those who asked."""
        if not process.is_alive:
            return
        reason = reason or ("normal" if error is None else f"{error.name}: {error.text}")
        if reason != "normal" and self.restarted(process):
            return
        process.is_alive, process.reason, process.waits = False, reason, ""
        for name in [name for name, pid in self.names.items() if pid == process.pid]:
            del self.names[name]
        if process.on_end is not None:
            process.on_end(value, error)
        elif error is not None and not process.links and not process.watchers:
            self.warn(f"process {process.fiber.begun_as if process.fiber else process.pid} ended: {error}")
        for pid in process.watchers:
            self.deliver(pid, ["DOWN", Process(process.pid), reason])
        process.fiber = None
        if reason != "normal":
            for pid in sorted(process.links):
                self.linked_end(self.processes[pid], process, error, reason)

    def linked_end(self, other: HostProcess, process: HostProcess, error: ErrorValue | None, reason: str) -> None:
        other.links.discard(process.pid)
        cause = error or ErrorValue("ProcessExit", reason)
        self.ended(other, None, cause, reason)

    def restarted(self, process: HostProcess) -> bool:
        if process.restart is None:
            return False
        function, arguments, settings = process.restart
        window = settings.get("window", 60_000)
        window_ns = window * 1_000_000 if type(window) is int else window.nanoseconds
        process.restarts = [time for time in process.restarts if time > self.now - window_ns]
        if settings.get("strategy") == "stop" or len(process.restarts) >= int(settings.get("max_restarts", 3)):
            return False
        process.restarts.append(self.now)
        old = process.fiber
        assert old is not None
        process.fiber = old.child(function, arguments)
        process.waits = ""
        self.ready.append(process)
        return True

    # ------------------------------------------------------------ messages

    def deliver(self, pid: str, message: Any) -> None:
        process = self.processes.get(pid)
        if process is None or not process.is_alive or process.fiber is None:
            return
        process.fiber.deliver(message)
        if process.waits == "receive":
            self.wake(process)
