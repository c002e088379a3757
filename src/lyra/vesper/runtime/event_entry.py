"""Nodes that are executed for events of the kernel's bus.

A node of the type `event_handler` names its events in its metadata; a step `event_subscribe` names an event and the
node that handles it. Either is subscribed once when its node is loaded, however often it is loaded or executed. The
handler's inputs are the values of the event's data by name; the whole event is the ambient object `event`. The
publisher waits until handlers have run; a handler that fails is told as an error of the bus, not to the publisher.

The bus keeps nothing. An event whose publication a crash interrupted is published again by the node that goes on; a
handler that has begun goes on by itself, and is not executed a second time for the same publication. Handlers that are
handed to the runtime (`Runtime(handlers=…)`) are subscribed before that; those that are added later may miss it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from lyra.core.rights.capability import Capability
from lyra.errors import EffectFailed
from lyra.vesper.check.walk import parts_of
from lyra.vesper.effects.performers import PUBLISHED_KEY
from lyra.vesper.ir import Constant, EffectStep, MapOf
from lyra.vesper.values.json_values import json_shape

if TYPE_CHECKING:
    from lyra.kernel import Kernel
    from lyra.kernel.bus.bus import BusMessage
    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.nodes import Node
    from lyra.vesper.runtime.kernel_thread import KernelThread
    from lyra.vesper.runtime.runtime import Runtime


class EventEntry:
    """The subscriptions of one runtime."""

    def __init__(self, runtime: Runtime, thread: KernelThread) -> None:
        self._runtime = runtime
        self._thread = thread
        self._subscribed: set[tuple[str, str]] = set()  # event and handler

    def subscriptions(self) -> list[tuple[str, str]]:
        """Each event with the node that handles it."""
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
        """Subscribe event_handlers to a kernel that has not started: before interrupted executions go on."""
        for node in handlers:
            for event in node.metadata.events if node.kind == "event_handler" else ():
                self._subscribe(kernel, event, node.node_id, node)

    def loaded(self, program: NodeProgram) -> None:
        """Make the subscriptions of a node's `event_subscribe` steps, before its first execution."""
        for event, handler in _steps(program):
            if self._may_subscribe(event):
                self._thread.post(partial(self._subscribe, event=event, handler=handler))

    def _may_subscribe(self, event: str) -> bool:
        return self._runtime.grant.allows(Capability.parse(f"events.subscribe.{event}"))

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
            raise EffectFailed(f"{message.type}: no node {handler!r} is known", kind="unknown_node")
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
    """The events and handlers of `event_subscribe` steps that are written out."""
    pairs = []
    for part in parts_of((program.steps, program.rules)):
        if isinstance(part, EffectStep) and part.kind == "event.subscribe" and isinstance(part.request, MapOf):
            texts: dict[str, Any] = {
                name: value.value for name, value in part.request.entries if isinstance(value, Constant)
            }
            if "event_type" in texts and "handler" in texts:
                pairs.append((str(texts["event_type"]), str(texts["handler"])))
    return pairs
