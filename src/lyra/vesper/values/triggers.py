"""Schedules, routes and durations: when and where nodes are reached, as files spell it.

A scheduled job runs `every 5m`, or by five fields of cron (`0 3 * * 1-5`), in UTC: see `core.schedule`. Nothing here
waits.

The route of an `http_handler` is a method and a path, in which `{name}` stands for an input:
`POST /orders/{order_id}/payments`. A node that declares none is reached by POST at its bare id. Segments are compared
as they are, after percent-decoding. A duration is `500ms`, `30s`, `5m`, `1h`, or a plain number of seconds.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from lyra.core.schedule import Schedule, parse_cron


def schedule_of(text: str) -> Schedule | None:
    """Return the schedule that a text means; None if it is not a schedule."""
    words = text.split()
    if len(words) == 2 and words[0] == "every":
        seconds = seconds_of(words[1])
        return None if seconds is None or seconds < 1.0 else Schedule(every_s=seconds)
    return parse_cron(text)


_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h)\Z")
_UNITS: Final = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}


def seconds_of(value: Any) -> float | None:
    """Return the duration in seconds; None if the text is not a duration or it is not positive."""
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return float(value) if 0 < value < 10**9 else None
    if not isinstance(value, str):
        return None
    match = _DURATION.match(value.strip())
    if match is None:
        return None
    return float(Decimal(match[1]) * _UNITS[match[2]]) or None


METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_SEGMENT: Final = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}\Z|[A-Za-z0-9._~-]+\Z", re.ASCII)
_SEGMENTS_MAX: Final = 32


class HttpRoute(msgspec.Struct, frozen=True):
    method: str
    segments: tuple[str, ...]

    @property
    def path(self) -> str:
        return "/" + "/".join(self.segments)

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs that are part of the path."""
        return tuple(segment[1:-1] for segment in self.segments if segment.startswith("{"))

    def match(self, path: str) -> dict[str, str] | None:
        """Return the inputs in a path; None where it is another path."""
        parts = path.strip("/").split("/") if path.strip("/") else []
        if len(parts) != len(self.segments) or len(parts) > _SEGMENTS_MAX:
            return None
        values: dict[str, str] = {}
        for segment, part in zip(self.segments, map(unquote, parts), strict=True):
            if segment.startswith("{"):
                values[segment[1:-1]] = part
            elif segment != part:
                return None
        return values


def route_of(text: str) -> HttpRoute | None:
    """Return the route that a text means; None if it is not a route."""
    method, _, path = text.strip().partition(" ")
    path = path.strip()
    if method not in METHODS or not path.startswith("/"):
        return None
    segments = tuple(path.strip("/").split("/")) if path.strip("/") else ()
    if len(segments) > _SEGMENTS_MAX or not all(_SEGMENT.match(segment) for segment in segments):
        return None
    return HttpRoute(method, segments)
