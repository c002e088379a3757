"""How the local host answers each effect: one function a kind, in one table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.core.budgets.money import Money
from lyra.vega.machine.fiber import Fiber
from lyra.vega.values.values import STREAM_IS_OVER, ErrorValue, Fault, Future, Process, Span, Stream, copy_value, render

if TYPE_CHECKING:
    from tests.vega.local_host import LocalHost


def _print(host: LocalHost, process: HostProcess, fiber: Fiber, text: str) -> None:
    host.write(text)
    fiber.resume()


# ---------------------------------------------------------------- processes


def _spawn(
    host: LocalHost,
    process: HostProcess,
    fiber: Fiber,
    kind: str,
    name: str,
    what: Any,
    arguments: Any,
    supervision: dict[str, Any] | None,
    is_async: bool,
) -> None:
    if kind == "function":
        try:
            child = host.add(fiber.child(what, arguments))
        except Fault as fault:
            fiber.throw(fault.name, fault.text)
            return
        if supervision is not None:
            child.restart = (*copy_value([what, arguments]), supervision)
    elif kind == "supervisor":
        child = host.add(None)
        for child_name, child_kind, _, child_what, child_arguments in what["children"]:
            _start_child(host, fiber, what, child_name, child_kind, child_what, child_arguments)
    else:
        child = host.add(None)
        child.agent = (name, what)
    handle = Process(child.pid)
    if is_async:
        host.streams[f"future {child.pid}"] = [handle]
        fiber.resume(Future(f"future {child.pid}"))
    else:
        fiber.resume(handle)


def _start_child(
    host: LocalHost, fiber: Fiber, settings: dict[str, Any], name: str, kind: str, what: Any, arguments: Any
) -> None:
    if kind == "function":
        child = host.add(fiber.child(what, arguments))
        child.restart = (*copy_value([what, arguments]), settings)
        host.names[name] = child.pid


def _send(
    host: LocalHost, process: HostProcess, fiber: Fiber, target: Process, message: Any, timeout: Any, budget: Any
) -> None:
    other = host.processes.get(target.pid)
    if other is None or other.agent is None:
        host.deliver(target.pid, message)
        fiber.resume(None)
        return
    try:
        fiber.resume(_answer(host, other, message))
    except Fault as fault:
        fiber.throw(fault.name, fault.text)


def _answer(host: LocalHost, process: HostProcess, message: Any) -> Any:
    assert process.agent is not None
    name, settings = process.agent
    for pattern, reply in host.mocks.get(name, []):
        if re.search(pattern, render(message)):
            return reply
    if host.answer is None:
        raise Fault("AgentFailed", f"there is no model here to answer for {name}")
    return host.answer(name, settings, message)


def _send_stream(
    host: LocalHost, process: HostProcess, fiber: Fiber, target: Process, message: Any, timeout: Any, budget: Any
) -> None:
    other = host.processes.get(target.pid)
    if other is None or other.agent is None:
        fiber.throw("TypeError", "only an agent answers with a stream")
        return
    try:
        text = render(_answer(host, other, message))
    except Fault as fault:
        fiber.throw(fault.name, fault.text)
        return
    stream = Stream(f"stream {next(host.numbers)}")
    host.streams[stream.id] = re.findall(r"\S+\s*", text)
    fiber.resume(stream)


def _stream_next(host: LocalHost, process: HostProcess, fiber: Fiber, stream: Stream) -> None:
    chunks = host.streams.get(stream.id)
    if chunks is None:
        fiber.throw("ValueError", STREAM_IS_OVER)
    elif chunks:
        fiber.resume([chunks.pop(0)])
    else:
        del host.streams[stream.id]
        fiber.resume(None)


def _stream_close(host: LocalHost, process: HostProcess, fiber: Fiber, stream: Stream) -> None:
    host.streams.pop(stream.id, None)
    fiber.resume()


def _await(host: LocalHost, process: HostProcess, fiber: Fiber, what: Future | Stream) -> None:
    if isinstance(what, Future):
        values = host.streams.get(what.id)
        fiber.resume(values[0] if values else None)
    elif what.id not in host.streams:
        fiber.throw("ValueError", STREAM_IS_OVER)
    else:
        fiber.resume("".join(host.streams.pop(what.id)))


def _receive(host: LocalHost, process: HostProcess, fiber: Fiber, timeout: Any, number: int) -> None:
    if timeout is not None and timeout.nanoseconds <= 0:
        fiber.expire()  # `after 0s` looks and does not wait
        return
    if process.receive[0] == number:
        process.waits = "receive"  # the timer of this receive runs already
        return
    host.wait(process, "receive", None if timeout is None else timeout.nanoseconds)
    process.receive = (number, process.wait_number)


def _link(host: LocalHost, process: HostProcess, fiber: Fiber, other: Process) -> None:
    target = host.processes.get(other.pid)
    fiber.resume()
    if target is None or target is process:
        return
    if not target.is_alive:
        if target.reason != "normal":
            host.ended(process, None, ErrorValue("ProcessExit", target.reason), target.reason)
        return
    process.links.add(target.pid)
    target.links.add(process.pid)


def _unlink(host: LocalHost, process: HostProcess, fiber: Fiber, other: Process) -> None:
    process.links.discard(other.pid)
    if other.pid in host.processes:
        host.processes[other.pid].links.discard(process.pid)
    fiber.resume()


def _monitor(host: LocalHost, process: HostProcess, fiber: Fiber, other: Process) -> None:
    target = host.processes.get(other.pid)
    fiber.resume()
    if target is None or not target.is_alive:
        host.deliver(process.pid, ["DOWN", other, target.reason if target is not None else "unknown"])
    else:
        target.watchers.append(process.pid)


def _exit(host: LocalHost, process: HostProcess, fiber: Fiber, reason: str) -> None:
    file, line, column = fiber.place()
    error = None if reason == "normal" else ErrorValue("ProcessExit", reason, file, line, column)
    host.ended(process, None, error, reason)


def _sleep(host: LocalHost, process: HostProcess, fiber: Fiber, duration: Any) -> None:
    host.wait(process, "sleep", max(0, duration.nanoseconds))


def _register(host: LocalHost, process: HostProcess, fiber: Fiber, name: str, other: Process | None = None) -> None:
    pid = process.pid if other is None else other.pid
    if host.names.get(name, pid) != pid:
        fiber.throw("NameTaken", f"the name {name} is taken")
        return
    host.names[name] = pid
    fiber.resume()


def _whereis(host: LocalHost, process: HostProcess, fiber: Fiber, name: str) -> None:
    fiber.resume(Process(host.names[name]) if name in host.names else None)


def _alive(host: LocalHost, process: HostProcess, fiber: Fiber, other: Process) -> None:
    fiber.resume(other.pid in host.processes and host.processes[other.pid].is_alive)


# ---------------------------------------------------------------- budgets and groups


def _budget_enter(host: LocalHost, process: HostProcess, fiber: Fiber, limit: Money) -> None:
    process.budgets.append([limit, Money(0)])
    fiber.resume()


def _budget_exit(host: LocalHost, process: HostProcess, fiber: Fiber) -> None:
    process.budgets.pop()
    fiber.resume()


def _budget(host: LocalHost, process: HostProcess, fiber: Fiber, what: str) -> None:
    if not process.budgets:
        fiber.resume(0.0 if what == "used" else math.inf)  # outside of every session there is no limit
        return
    limit, used = process.budgets[-1]
    fiber.resume(float({"limit": limit, "used": used, "remaining": limit - used}[what].usd))


def _parallel_begin(host: LocalHost, process: HostProcess, fiber: Fiber) -> None:
    number = next(host.numbers)
    host.groups[number] = ParallelCalls()
    fiber.resume(number)


def _parallel_send(
    host: LocalHost, process: HostProcess, fiber: Fiber, number: int, target: Process, message: Any, *_: Any
) -> None:
    group = host.groups[number]
    other = host.processes.get(target.pid)
    result, error = None, None
    if other is None or other.agent is None:
        host.deliver(target.pid, message)
    else:
        try:
            result = _answer(host, other, message)
        except Fault as fault:
            error = ErrorValue(fault.name, fault.text)
    group.results.append(result)
    group.errors.append(error)
    fiber.resume()


def _parallel_call(
    host: LocalHost, process: HostProcess, fiber: Fiber, number: int, function: Any, arguments: list[Any]
) -> None:
    group = host.groups[number]
    place = len(group.results)
    group.results.append(None)
    group.errors.append(None)
    group.left += 1
    child = host.add(fiber.child(function, arguments))

    def end(value: Any, error: ErrorValue | None) -> None:
        group.results[place] = copy_value(value)
        group.errors[place] = error
        group.left -= 1
        if group.waiter is not None and not group.left:
            waiter = group.waiter
            assert waiter.fiber is not None
            _joined(host, waiter, waiter.fiber, number)
            host.wake(waiter)

    child.on_end = end
    fiber.resume()


def _parallel_join(host: LocalHost, process: HostProcess, fiber: Fiber, number: int) -> None:
    group = host.groups[number]
    if group.left:
        group.waiter = process
        host.wait(process, "join")
    else:
        _joined(host, process, fiber, number)


def _joined(host: LocalHost, process: HostProcess, fiber: Fiber, number: int) -> None:
    """All results, or the first failure in the order of the source."""
    group = host.groups.pop(number)
    error = next((error for error in group.errors if error is not None), None)
    if error is None:
        fiber.resume(group.results)
    else:
        fiber.throw(error.name, error.text)


# ---------------------------------------------------------------- the rest


def _self(host: LocalHost, process: HostProcess, fiber: Fiber) -> None:
    fiber.resume(Process(process.pid))


def _now(host: LocalHost, process: HostProcess, fiber: Fiber) -> None:
    fiber.resume(host.now / 1_000_000_000)


def _iso(host: LocalHost, process: HostProcess, fiber: Fiber) -> None:
    fiber.resume("1970-01-01T00:00:00Z")


def _arguments(host: LocalHost, process: HostProcess, fiber: Fiber) -> None:
    fiber.resume(list(host.arguments))


def _span(host: LocalHost, process: HostProcess, fiber: Fiber, name: str) -> None:
    fiber.resume(Span(f"span {next(host.numbers)}", name))


def _mock(host: LocalHost, process: HostProcess, fiber: Fiber, agent: str, replies: list[Any]) -> None:
    host.mocks[agent] = [(pattern, reply) for pattern, reply in replies]
    fiber.resume()


def _ignored(host: LocalHost, process: HostProcess, fiber: Fiber, *_: Any) -> None:
    fiber.resume()


def _ahead_begin(host: LocalHost, process: HostProcess, fiber: Fiber) -> None:
    fiber.resume(None)  # answers take no time here, so nothing is gained by asking early


EFFECTS: Final[dict[str, Callable[..., None]]] = {
    "print": _print,
    "spawn": _spawn,
    "send": _send,
    "send_stream": _send_stream,
    "stream_next": _stream_next,
    "stream_close": _stream_close,
    "await": _await,
    "receive": _receive,
    "link": _link,
    "monitor": _monitor,
    "exit": _exit,
    "budget_enter": _budget_enter,
    "budget_exit": _budget_exit,
    "budget_reserve": _ignored,
    "budget": _budget,
    "ahead_begin": _ahead_begin,
    "parallel_begin": _parallel_begin,
    "parallel_send": _parallel_send,
    "parallel_call": _parallel_call,
    "parallel_join": _parallel_join,
    "process::self": _self,
    "process::sleep": _sleep,
    "process::unlink": _unlink,
    "process::register": _register,
    "process::whereis": _whereis,
    "process::alive": _alive,
    "time::now": _now,
    "time::iso": _iso,
    "env::args": _arguments,
    "trace::span": _span,
    "trace::event": _ignored,
    "trace::set_attribute": _ignored,
    "span_end": _ignored,
    "test::mock": _mock,
}


# ---------------------------------------------------------------- processes
# The processes of LocalHost and the calls of its `parallel` blocks, as plain data.


class HostProcess:
    """A process of LocalHost. `agent` is [name, settings] of one that a model would answer for."""

    def __init__(self, pid: str, fiber: Fiber | None) -> None:
        self.pid = pid
        self.fiber = fiber
        self.agent: tuple[str, dict[str, Any]] | None = None
        self.is_alive = True
        self.reason = ""
        self.waits: str = ""  # what for: "", "receive", "sleep", "join"
        self.wait_number = 0  # a timer that was set for another wait means nothing
        self.receive = (-1, 0)  # the receive that waits, and the number of its timer
        self.links: set[str] = set()
        self.watchers: list[str] = []
        self.budgets: list[list[Money]] = []
        self.restart: tuple[Any, list[Any], dict[str, Any]] | None = None
        self.restarts: list[int] = []
        self.on_end: Callable[[Any, ErrorValue | None], None] | None = None


class ParallelCalls:
    """The calls of one `parallel`: results and errors in the order of the source."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.errors: list[ErrorValue | None] = []
        self.left = 0
        self.waiter: HostProcess | None = None
