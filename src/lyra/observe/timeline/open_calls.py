"""Tool calls that have begun and have no result yet, as the rows of a run tell them.

A tool that takes `ctx` is a part of the program: its effect only admits the call and ends at once, without a value. Its
result is a row of its own, written when the tool is done. Rows of an older version have none; there the next call of
the model says that the tool is done. This module reads no row by itself and changes no step or message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

Item = TypeVar("Item")

_TOOL: Final = "tool:"
_OUTPUT: Final = ("read", "output")  # the form and the name of the row of a result


class OpenCalls(Generic[Item]):
    """What a reader keeps of each open call, by the process and the branch of it that the call runs in."""

    __slots__ = ("_items", "_may_run_inside")

    def __init__(self) -> None:
        self._may_run_inside: set[tuple[str, str]] = set()
        self._items: dict[tuple[str, str], Item] = {}

    def begin(self, pid: str, row: Mapping[str, Any]) -> None:
        """An effect began: that of a tool inside the program may be repeated."""
        if str(row.get("name", "")).startswith(_TOOL) and row.get("idempotent"):
            self._may_run_inside.add((pid, str(row.get("key"))))

    def is_admitted(self, pid: str, row: Mapping[str, Any]) -> bool:
        """Whether the end of an effect only lets a tool begin."""
        place = (pid, str(row.get("key")))
        if place not in self._may_run_inside:
            return False
        self._may_run_inside.discard(place)
        return row.get("value") is None and not row.get("blob") and not row.get("error")

    def put(self, pid: str, row: Mapping[str, Any], item: Item) -> None:
        self._items[pid, _branch(row)] = item

    def take(self, pid: str, row: Mapping[str, Any]) -> Item | None:
        """The call whose result this row is; None where it is another row."""
        if (row.get("form"), row.get("name")) != _OUTPUT:
            return None
        return self._items.pop((pid, _branch(row)), None)

    def take_all(self, pid: str) -> list[Item]:
        """All calls of a process: they are over."""
        places = [place for place in self._items if place[0] == pid]
        return [self._items.pop(place) for place in places]


def _branch(row: Mapping[str, Any]) -> str:
    return str(row.get("key")).rpartition("/")[0]
