"""What a look ahead holds in place of values: answers that are still to come, and lists that the program will make.

Later    what comes of answers that calls before have not given yet; its type is known, and computing it cannot fail
Made     a list, tuple or dict that the function itself makes, with any of these in it
UNKNOWN  something that was computed in its place already, and is not looked at
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.parallel.safe_values import Foreign, calm, is_plain
from lyra.agents.session.replies import MarkedReply, Reply

if TYPE_CHECKING:
    from lyra.agents.parallel.call import Early

__all__ = ["UNKNOWN", "Later", "Made", "calls_of", "copied", "kind_of", "made_of", "real"]

UNKNOWN: Final = object()


class Later:
    """`kind` is str, int or bool; None where the answer itself may be anything."""

    __slots__ = ("_compute", "calls", "kind")

    def __init__(self, calls: tuple[Early, ...], kind: type | None, compute: Callable[[], Any]) -> None:
        self.calls = calls
        self.kind = kind
        self._compute = compute

    def value(self) -> Any:
        return self._compute()


class Made:
    """A container by its parts: a list for list and tuple, a dict with plain keys for dict."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: type, parts: Any) -> None:
        self.kind = kind
        self.parts = parts

    @property
    def values(self) -> list[Any]:
        return list(self.parts.values()) if self.kind is dict else self.parts


def made_of(value: Any) -> Made | None:
    """A copy of a real list or dict."""
    if type(value) is list:
        return Made(list, list(value))
    if type(value) is dict and all(map(is_plain, value)):
        return Made(dict, dict(value))
    return None


def copied(value: Any) -> Any:
    """A real list or dict of plain values as it is now; everything else as it is."""
    if type(value) not in (list, dict) or not calm(value):
        return value
    if type(value) is dict:
        return Made(dict, {key: copied(part) for key, part in value.items()})
    return Made(list, [copied(part) for part in value])


def calls_of(value: Any) -> Iterator[Early]:
    """The calls whose answers a value needs."""
    if isinstance(value, Later):
        yield from value.calls
    elif isinstance(value, Made):
        for part in value.values:
            yield from calls_of(part)


def real(value: Any) -> Any:
    """The value itself, anew; all answers it needs are there."""
    if isinstance(value, Later):
        return value.value()
    if isinstance(value, Made):
        if value.kind is dict:
            return {key: real(part) for key, part in value.parts.items()}
        return value.kind(real(part) for part in value.parts)
    if value is UNKNOWN:
        raise Foreign("it was computed in its place")
    return value


def kind_of(value: Any) -> type | None:
    """The type of a plain value or of one to come; None when it is neither."""
    if isinstance(value, Later):
        return value.kind
    if isinstance(value, Made):
        return value.kind if value.kind is tuple and all(kind_of(part) for part in value.parts) else None
    kind = type(value)
    if kind in (Reply, MarkedReply):
        return str
    return kind if calm(value) else None
