"""What the records of model and tool calls leave out: settings, ids and, where the user asked for it, content.

Agents add the details of a call right before they publish its record; the listener that makes the span takes them.
A part of the kernel (`PART`), so that agents need not know who listens. Details that are not taken are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any, Final

PART: Final = "call_details"
_KEPT_MAX: Final = 1_000


class CallDetails:
    """`content` says where the texts of a call go: `span`, `event`, both or nowhere."""

    __slots__ = ("_kept", "content")

    def __init__(self, content: Collection[str]) -> None:
        self.content = frozenset(content)
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()

    @property
    def wants_content(self) -> bool:
        return bool(self.content)

    def add(self, span_id: str, details: dict[str, Any]) -> None:
        self._kept[span_id] = details
        while len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)

    def take(self, span_id: str) -> dict[str, Any] | None:
        return self._kept.pop(span_id, None)

    async def close(self) -> None:
        self._kept.clear()
