"""Nodes that are executed from outside: by requests of HTTP, events of the kernel's bus, and the clock.

    entry = HttpEntry(runtime, nodes)
    reply = entry.handle("POST", "/orders/7/payments", {"Idempotency-Key": "k"}, b'{"amount": "9.90"}')
    jobs = ScheduledEntry(runtime, nodes)
    jobs.run_due()          # by a timer, at or after jobs.next_tick()

`HttpEntry` is a plain function from a request to a reply; a server calls it. Only nodes of the type `http_handler` have
routes. Inputs come from the path, the query, the JSON body and, for an input `idempotency_key`, the header of that
name; an input that comes from two places is refused. Numbers of the body are read exactly. `STATUSES` maps error codes
to statuses; a code that the node declares itself is 422.

`EventEntry`: a node of the type `event_handler` names its events in its metadata; a step `event_subscribe` names an
event and the node that handles it. Either is subscribed once, however often its node is loaded or executed. Inputs are
the values of the event's data by name; the whole event is the ambient object `event`. The publisher waits until
handlers have run; a handler that fails is an error of the bus. The bus keeps nothing: an event whose publication a
crash interrupted is published again by the resumed node, and a handler that has begun is resumed by the kernel and
executed once for the publication. Handlers that are handed to the runtime (`Runtime(handlers=…)`) are subscribed before
that; those that are added later may miss it.

`ScheduledEntry`: the last tick of each job is a fact in the journal. Ticks that were missed while nothing ran are made
up for by one execution, for the latest of them. An execution with effects belongs to its tick: one that a crash
interrupted is resumed, not started again.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import parse_qsl

import msgspec

from lyra.core.clock import SystemClock
from lyra.core.rights.capability import Capability
from lyra.core.schedule import Schedule
from lyra.errors import ConfigError, EffectFailed
from lyra.vesper.check.steps import parts_of
from lyra.vesper.effects.performers import PUBLISHED_KEY
from lyra.vesper.ir import Constant, EffectStep, MapOf, NodeProgram
from lyra.vesper.values.json_values import json_shape
from lyra.vesper.values.limits import HTTP_BODY_BYTES_MAX, HTTP_QUERY_FIELDS_MAX
from lyra.vesper.values.names import bare_id
from lyra.vesper.values.outcome import NOT_CONFIGURED, Outcome
from lyra.vesper.values.triggers import HttpRoute, route_of, schedule_of
from lyra.vesper.values.types import BOOLEAN, INTEGER, ValueType, without_null

if TYPE_CHECKING:
    from lyra.kernel import Kernel
    from lyra.kernel.bus.bus import BusMessage
    from lyra.vesper.nodes import Node
    from lyra.vesper.runtime.kernel_thread import KernelThread
    from lyra.vesper.runtime.runtime import Runtime


STATUSES: Final = {
    "invalid_input": 400,
    "capability_denied": 403,
    "invalid_transition": 409,
    "precondition_failed": 422,
    "unknown_zone": 422,
    "not_a_number": 422,
    "validation_failed": 422,
    "rate_limited": 429,
    "overflow": 500,
    "division_by_zero": 500,
    "type_error": 500,
    "incomplete_output": 500,
    "loop_limit": 500,
    "postcondition_failed": 500,
    "invariant_failed": 500,
    "resource_limit": 500,
    "not_configured": 500,
    "effect_failed": 502,
    "timeout": 504,
}
_OWN_CODE: Final = 422
_INTEGER: Final = re.compile(r"-?\d{1,20}\Z", re.ASCII)
_JSON: Final = {"content-type": "application/json"}


class HttpReply(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes


class _Refused(Exception):
    """A request that reaches no node; `reply` says why."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.reply = _reply(status, {"status": "error", "error": {"code": code, "message": message}}, headers)


class HttpEntry:
    """The routes of some nodes."""

    def __init__(self, runtime: Runtime, nodes: Iterable[Node]) -> None:
        self._runtime = runtime
        self._routes: list[tuple[HttpRoute, Node]] = []
        for node in nodes:
            if node.kind == "http_handler":
                self._add(node)

    def _add(self, node: Node) -> None:
        self._runtime.program(node)  # a node with mistakes has no route
        route = route_of(node.metadata.route or f"POST /{bare_id(node.node_id)}")
        assert route is not None  # the checker has read it
        shape = _shape(route)
        for other, earlier in self._routes:
            if _shape(other) == shape:
                raise ConfigError(f"{node.node_id} and {earlier.node_id} have the same route: {node.metadata.route}")
        self._routes.append((route, node))

    def routes(self) -> list[tuple[str, str, str]]:
        """Method, path and node of each route."""
        return sorted((route.method, route.path, node.node_id) for route, node in self._routes)

    def has_path(self, path: str) -> bool:
        """Return whether a node is behind this path, with any method."""
        return any(route.match(path) is not None for route, _ in self._routes)

    def handle(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> HttpReply:
        """Execute the node of a request. Never raises for anything in the request."""
        try:
            node, given, query = self._find(method.upper(), path)
            inputs = self._inputs(node, given, query, headers or {}, body or b"")
        except _Refused as refused:
            return refused.reply
        return _reply_with(self._runtime.execute(node, inputs))

    def _find(self, method: str, target: str) -> tuple[Node, dict[str, str], str]:
        path, _, query = target.partition("?")
        matches = [(route, node, values) for route, node in self._routes if (values := route.match(path)) is not None]
        for route, node, values in sorted(matches, key=lambda match: len(match[2])):  # the most literal path first
            if route.method == method:
                return node, values, query
        if not matches:
            raise _Refused(404, "not_found", "there is no such path")
        allowed = ", ".join(sorted({route.method for route, _, _ in matches}))
        raise _Refused(405, "method_not_allowed", f"this path takes {allowed}", allow=allowed)

    def _inputs(
        self, node: Node, given: dict[str, str], query: str, headers: Mapping[str, str], body: bytes
    ) -> dict[str, Any]:
        program = self._runtime.program(node)
        kinds = {entry.name: entry.type for entry in program.inputs}
        texts = [*given.items(), *_query(query)]
        key = next((value for name, value in headers.items() if name.lower() == "idempotency-key"), None)
        if key is not None and program.idempotency_key:
            texts.append((program.idempotency_key, key))
        inputs = _body(body)
        for name, text in texts:
            value = _read(text, kinds.get(name))
            if name in inputs and inputs[name] != value:
                raise _Refused(400, "invalid_input", f"{name} is given twice")
            inputs[name] = value
        return inputs


def _shape(route: HttpRoute) -> tuple[str, ...]:
    return (route.method, *("{}" if segment.startswith("{") else segment for segment in route.segments))


def _query(text: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=HTTP_QUERY_FIELDS_MAX)
    except ValueError:
        raise _Refused(400, "invalid_input", "the query has too many fields") from None


def _body(body: bytes) -> dict[str, Any]:
    if len(body) > HTTP_BODY_BYTES_MAX:
        raise _Refused(413, "invalid_input", f"the body has more than {HTTP_BODY_BYTES_MAX} bytes")
    if not body.strip():
        return {}
    try:
        value = json.loads(body, parse_float=Decimal, parse_constant=_refuse, object_pairs_hook=_once_each)
    except (ValueError, RecursionError):
        raise _Refused(400, "invalid_input", "the body is no JSON, or has a key twice") from None
    if not isinstance(value, dict):
        raise _Refused(400, "invalid_input", "the body is no JSON object")
    return value


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key twice")
    return values


def _read(text: str, kind: ValueType | None) -> Any:
    """Return a text of the path, the query or a header as the input's type has it."""
    plain = None if kind is None else without_null(kind)
    if plain == INTEGER and _INTEGER.match(text):
        return int(text)
    if plain == BOOLEAN and text in ("true", "false"):
        return text == "true"
    return text


def _reply_with(outcome: Outcome) -> HttpReply:
    failure = outcome.error
    if failure is None:
        return _reply(200, {"status": "success", "outputs": outcome.outputs, "trace_id": outcome.trace_id})
    error = {**failure.fields, "code": failure.code, "message": failure.message, "phase": failure.phase}
    data = {"status": "error", "error": error, "trace_id": outcome.trace_id}
    headers = {}
    pause = failure.fields.get("retry_after_seconds")
    if isinstance(pause, int) and not isinstance(pause, bool):
        headers["retry-after"] = str(pause)
    return _reply(STATUSES.get(failure.code, _OWN_CODE), data, headers)


def _reply(status: int, data: Any, headers: Mapping[str, str] | None = None) -> HttpReply:
    return HttpReply(status, {**_JSON, **(headers or {})}, json.dumps(json_shape(data)).encode())


class EventEntry:
    """The subscriptions of one runtime."""

    def __init__(self, runtime: Runtime, thread: KernelThread) -> None:
        self._runtime = runtime
        self._thread = thread
        self._subscribed: set[tuple[str, str]] = set()  # event and handler

    def subscriptions(self) -> list[tuple[str, str]]:
        """Return each event with the node that handles it."""
        return sorted(self._subscribed)

    def add(self, node: Node) -> None:
        """Subscribe an event_handler to the events that it names."""
        self._runtime.program(node)  # a node with mistakes handles nothing
        events = node.metadata.events if node.kind == "event_handler" else ()

        async def subscribe(kernel: Kernel) -> None:
            for event in events:
                self._subscribe(kernel, event, node.node_id, node)

        if events:
            self._thread.call(subscribe)

    def add_first(self, kernel: Kernel, handlers: Iterable[Node]) -> None:
        """Subscribe event_handlers to a kernel that has not started, before interrupted executions resume."""
        for node in handlers:
            for event in node.metadata.events if node.kind == "event_handler" else ():
                self._subscribe(kernel, event, node.node_id, node)

    def subscribe_steps(self, program: NodeProgram) -> None:
        """Make the subscriptions of a node's `event_subscribe` steps, before its first execution."""
        for event, handler in _steps(program):
            if self._runtime.grant.allows(Capability.parse(f"events.subscribe.{event}")):
                self._thread.post(partial(self._subscribe, event=event, handler=handler))

    def _subscribe(self, kernel: Kernel, event: str, handler: str, node: Node | None = None) -> None:
        if (event, handler) in self._subscribed:
            return
        self._subscribed.add((event, handler))

        async def handle(message: BusMessage) -> None:
            await asyncio.to_thread(self._handle, handler, node, message, PUBLISHED_KEY.get())

        kernel.bus.subscribe(event, handle)

    def _handle(self, handler: str, node: Node | None, message: BusMessage, published: str) -> None:
        subject = node or self._runtime.find_node(handler)
        if subject is None:
            raise EffectFailed(f"{message.type}: no node {handler!r} is known", kind=NOT_CONFIGURED)
        data = message.payload if isinstance(message.payload, Mapping) else {}
        program = self._runtime.program(subject)
        names = {entry.name for entry in program.inputs}
        inputs = {name: value for name, value in data.items() if name in names}
        ambient = {"event": {"type": message.type, "data": json_shape(dict(data))}}
        has_own_key = inputs.get(program.idempotency_key) is not None
        once = f"event-{published}" if published and not has_own_key else ""
        failure = self._runtime.execute(subject, inputs, ambient=ambient, once=once).error
        if failure is not None:
            raise EffectFailed(f"{handler}: {failure.message or failure.code}", kind=failure.code)


def _steps(program: NodeProgram) -> list[tuple[str, str]]:
    """Return the events and handlers of `event_subscribe` steps that are written out."""
    pairs = []
    for part in parts_of((program.steps, program.rules)):
        if isinstance(part, EffectStep) and part.kind == "event.subscribe" and isinstance(part.request, MapOf):
            texts: dict[str, Any] = {
                name: value.value for name, value in part.request.entries if isinstance(value, Constant)
            }
            if "event_type" in texts and "handler" in texts:
                pairs.append((str(texts["event_type"]), str(texts["handler"])))
    return pairs


_MOMENT: Final = "scheduled_for"  # the input that is given the tick, where a node declares it


class ScheduleState:
    """The durable state: the last tick of each job, in seconds since 1970."""

    NAME: ClassVar[str] = "vesper-schedule"
    KINDS: ClassVar[frozenset[str]] = frozenset({"vesper.ticked"})

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        self.last[data["node"]] = float(data["tick"])

    def dump(self) -> Any:
        return self.last

    def load(self, data: Any) -> None:
        self.last = {str(node): float(tick) for node, tick in data.items()}


class ScheduledEntry:
    """The jobs among some nodes. A job that is new has its first tick after now."""

    def __init__(self, runtime: Runtime, nodes: Iterable[Node], *, now: datetime | None = None) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._jobs: list[tuple[Node, Schedule]] = []
        for node in nodes:
            if node.kind == "scheduled_job" and node.metadata.schedule:
                runtime.program(node)  # a node with mistakes has no ticks
                schedule = schedule_of(node.metadata.schedule)
                assert schedule is not None  # the checker has read it
                self._jobs.append((node, schedule))
        runtime.start()
        for node, _ in self._jobs:
            if node.node_id not in runtime.schedule_state.last:
                self._note_tick(node, now or _now())

    def next_tick(self, now: datetime | None = None) -> datetime | None:
        """Return when the next job is due; None without jobs."""
        ticks = [schedule.next(now or _now()) for _, schedule in self._jobs]
        return min((tick for tick in ticks if tick is not None), default=None)

    def due(self, now: datetime | None = None) -> list[tuple[Node, datetime]]:
        """Return the jobs whose latest tick was not run yet, with that tick."""
        ticks = [(node, schedule.last(now or _now())) for node, schedule in self._jobs]
        last = self._runtime.schedule_state.last
        return [(node, tick) for node, tick in ticks if tick is not None and tick.timestamp() > last[node.node_id]]

    def run_due(self, now: datetime | None = None) -> list[tuple[str, datetime, Outcome]]:
        """Execute each job that is due; gives their outcomes."""
        with self._lock:
            return [(node.node_id, tick, self._run(node, tick)) for node, tick in self.due(now)]

    def _run(self, node: Node, tick: datetime) -> Outcome:
        word = f"{node.node_id}/{tick.isoformat()}"
        given = {_MOMENT: tick, "idempotency_key": word}
        names = {entry.name for entry in self._runtime.program(node).inputs}
        inputs = {name: value for name, value in given.items() if name in names}
        outcome = self._runtime.execute(node, inputs, once=word)
        self._note_tick(node, tick)
        return outcome

    def _note_tick(self, node: Node, tick: datetime) -> None:
        row = {"node": node.node_id, "tick": tick.timestamp()}
        self._runtime.write_fact(self._runtime.schedule_state, "vesper.ticked", row)


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock.now(), UTC)
