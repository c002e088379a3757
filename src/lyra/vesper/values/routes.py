"""Where an `http_handler` is reached: a method and a path, in which `{name}` stands for an input.

    route: "POST /orders/{order_id}/payments"

A node that declares none is reached by POST at its bare id. Segments are compared as they are, after percent-decoding.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

import msgspec

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
        """The inputs in a path; None where it is another path."""
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
    """The route that a text means; None for what is none."""
    method, _, path = text.strip().partition(" ")
    path = path.strip()
    if method not in METHODS or not path.startswith("/"):
        return None
    segments = tuple(path.strip("/").split("/")) if path.strip("/") else ()
    if len(segments) > _SEGMENTS_MAX or not all(_SEGMENT.match(segment) for segment in segments):
        return None
    return HttpRoute(method, segments)
