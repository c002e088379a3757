"""A `for` of a decorated function, as it runs: the real iterator, read one item at a time, and compared with what the
look ahead has foreseen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.parallel.expressions import VIEWS
from lyra.agents.parallel.lookahead import Expected
from lyra.agents.parallel.pending_values import Made, calls_of, real
from lyra.agents.parallel.safe_values import Foreign, is_plain, same

if TYPE_CHECKING:
    from lyra.agents.parallel.group import Group

__all__ = ["Loop"]

_MANY: Final = 10_000


class Loop:
    __slots__ = ("__weakref__", "_count", "_group", "_items", "_sources", "_work", "expected")

    def __init__(
        self, group: Group, work: Any, args: tuple[Any, ...], keywords: dict[str, Any], expected: Expected | None
    ) -> None:
        self._group = group
        self._work = work if args or keywords else None
        self._sources = args if args or keywords else (work,)
        self.expected = expected
        self._count = 0
        self._items = iter(work(*args, **keywords) if args or keywords else work)
        if keywords:
            self._work = Loop  # how it goes through them is not known

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            item = next(self._items)
        except StopIteration:
            self._compare(ended=True)
            raise
        self._compare(item)
        self._count += 1
        return item

    def _compare(self, item: Any = None, *, ended: bool = False) -> None:
        expected = self.expected
        if expected is None:
            return
        at = self._count - expected.at
        if at >= len(expected.items):
            if not ended and expected.ends:
                self._group.strayed = True
        elif (
            ended
            or any(not call.is_answered for call in calls_of(expected.items[at]))
            or not _is_same(real(expected.items[at]), item)
        ):
            self._group.strayed = True

    def left(self, own: Made | None) -> tuple[Iterator[Any], Expected]:
        """What is still to come; `own` is the copy of the function's own list that it goes through."""
        self.expected = Expected(self._count)
        if self._work is None:
            items = _rest(self._sources[0], self._count) if own is None else _from(own.parts, self._count)
            return items, self.expected
        if self._work is enumerate:
            first = self._sources[1] if len(self._sources) > 1 else 0
            items = _rest(self._sources[0], self._count)
            return (Made(tuple, list(row)) for row in enumerate(items, first + self._count)), self.expected
        if self._work is zip:
            parts = [_rest(source, self._count) for source in self._sources]
            return (Made(tuple, list(row)) for row in zip(*parts, strict=False)), self.expected
        raise Foreign("nobody knows what the loop goes through next")


def _from(parts: list[Any], at: int) -> Iterator[Any]:
    while at < len(parts):
        yield parts[at]
        at += 1


def _rest(source: Any, count: int) -> Iterator[Any]:
    kind = type(source)
    if kind is list:
        return _from(source, count)
    if kind in (tuple, range) or is_plain(source):
        return iter(source[count:]) if kind is not frozenset else iter(list(source)[count:])
    if kind in (dict, set) or kind in VIEWS:
        return iter(list(source)[count : count + _MANY])
    raise Foreign(f"it goes through a {kind.__name__}")


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is tuple and type(other) is tuple:
        return len(one) == len(other) and all(map(_is_same, one, other))
    return same(one, other)
