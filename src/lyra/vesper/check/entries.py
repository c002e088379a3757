"""Rules about how handlers and jobs are reached: `route`, `events` and `schedule` in the metadata of a node."""

from __future__ import annotations

from typing import Final

from lyra.vesper.check.state import CheckState
from lyra.vesper.ir.program import NodeProgram
from lyra.vesper.values.routes import METHODS, route_of
from lyra.vesper.values.schedules import schedule_of

__all__ = ["entries"]

_TYPES: Final = {"route": "http_handler", "events": "event_handler", "schedule": "scheduled_job"}


def entries(program: NodeProgram, state: CheckState) -> None:
    metadata = state.node.metadata
    for key, kind in _TYPES.items():
        if getattr(metadata, key) and program.kind != kind:
            state.warn("no_effect", f"`{key}` belongs to the type {kind}", ("metadata", key))
    for key in ("events", "schedule"):
        if program.kind == _TYPES[key] and not getattr(metadata, key):
            state.info("no_entry", f"nothing starts this {program.kind}: it has no `{key}`", ("type",))
    if metadata.route:
        _route(program, state)
    if metadata.schedule and schedule_of(metadata.schedule) is None:
        message = "`schedule` is `every DURATION` (a second or more), or five fields of cron"
        state.error("bad_value", message, ("metadata", "schedule"), value=True)


def _route(program: NodeProgram, state: CheckState) -> None:
    path = ("metadata", "route")
    route = route_of(state.node.metadata.route)
    if route is None:
        message = f"`route` is a method ({', '.join(METHODS)}) and a path, such as `POST /orders`"
        state.error("bad_value", message, path, value=True)
        return
    inputs = {entry.name for entry in program.inputs}
    for name in route.names:
        if name not in inputs:
            state.error("unknown_name", f"there is no input `{name}`", path, value=True)
