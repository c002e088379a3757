"""Placeholders of the lookahead: for values that depend on pending answers, and for lists that the program will make.

PendingValue   depends on answers of calls that have not answered yet; its type is known, and computing it cannot fail
OwnContainer   a list, tuple or dict that the function itself makes, which may hold any of these
UNKNOWN        a value that the program has computed already and the lookahead does not use
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.parallel.safe_values import StopLookahead, is_data, is_plain
from lyra.agents.session.replies import MarkedReply, Reply

if TYPE_CHECKING:
    from lyra.agents.parallel.call import ParallelCall


UNKNOWN: Final = object()


class PendingValue:
    """`kind` is str, int or bool; None where the answer itself may be anything."""

    __slots__ = ("_compute", "calls", "kind")

    def __init__(self, calls: tuple[ParallelCall, ...], kind: type | None, compute: Callable[[], Any]) -> None:
        self.calls = calls
        self.kind = kind
        self._compute = compute

    def value(self) -> Any:
        return self._compute()


class OwnContainer:
    """A container by its parts: a list for list and tuple, a dict with plain keys for dict."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: type, parts: Any) -> None:
        self.kind = kind
        self.parts = parts

    @property
    def values(self) -> list[Any]:
        return list(self.parts.values()) if self.kind is dict else self.parts


def container_of(value: Any) -> OwnContainer | None:
    """Return a copy of a real list or dict; None for anything else."""
    if type(value) is list:
        return OwnContainer(list, list(value))
    if type(value) is dict and all(map(is_plain, value)):
        return OwnContainer(dict, dict(value))
    return None


def snapshot_of(value: Any) -> Any:
    """Return a copy of a real list or dict of plain values; any other value itself."""
    if type(value) not in (list, dict) or not is_data(value):
        return value
    if type(value) is dict:
        return OwnContainer(dict, {key: snapshot_of(part) for key, part in value.items()})
    return OwnContainer(list, [snapshot_of(part) for part in value])


def calls_of(value: Any) -> Iterator[ParallelCall]:
    """Yield the calls whose answers a value needs."""
    if isinstance(value, PendingValue):
        yield from value.calls
    elif isinstance(value, OwnContainer):
        for part in value.values:
            yield from calls_of(part)


def resolve(value: Any) -> Any:
    """Return the real value of a placeholder whose calls have all answered."""
    if isinstance(value, PendingValue):
        return value.value()
    if isinstance(value, OwnContainer):
        if value.kind is dict:
            return {key: resolve(part) for key, part in value.parts.items()}
        return value.kind(resolve(part) for part in value.parts)
    if value is UNKNOWN:
        raise StopLookahead("it was computed in its place")
    return value


def kind_of(value: Any) -> type | None:
    """Return the type of a plain value or of a pending one; None for anything else."""
    if isinstance(value, PendingValue):
        return value.kind
    if isinstance(value, OwnContainer):
        return value.kind if value.kind is tuple and all(kind_of(part) for part in value.parts) else None
    kind = type(value)
    if kind in (Reply, MarkedReply):
        return str
    return kind if is_data(value) else None
