"""ObservedLoop: a `for` of a decorated function as it runs: the real iterator, read one item at a time, and compared
with the items that the lookahead has foreseen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.parallel.expressions import VIEWS
from lyra.agents.parallel.lookahead import ExpectedItems
from lyra.agents.parallel.pending_values import OwnContainer, calls_of, resolve
from lyra.agents.parallel.safe_values import StopLookahead, is_plain, is_same_value

if TYPE_CHECKING:
    from lyra.agents.parallel.group import CallGroup


_MANY: Final = 10_000


class ObservedLoop:
    __slots__ = ("__weakref__", "_count", "_group", "_items", "_sources", "_work", "expected")

    def __init__(
        self,
        group: CallGroup,
        work: Any,
        args: tuple[Any, ...],
        keywords: dict[str, Any],
        expected: ExpectedItems | None,
    ) -> None:
        self._group = group
        self._work = work if args or keywords else None
        self._sources = args if args or keywords else (work,)
        self.expected = expected
        self._count = 0
        self._items = iter(work(*args, **keywords) if args or keywords else work)
        if keywords:
            self._work = ObservedLoop  # a value that `left` refuses: keywords change how the items are read

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
        index = self._count - expected.first
        if index >= len(expected.items):
            if not ended and expected.ends:
                self._group.mispredicted = True
        elif (
            ended
            or any(not call.is_answered for call in calls_of(expected.items[index]))
            or not _is_same(resolve(expected.items[index]), item)
        ):
            self._group.mispredicted = True

    def left(self, own: OwnContainer | None) -> tuple[Iterator[Any], ExpectedItems]:
        """The items still to come; `own` is the lookahead's copy if the loop runs over a list of the function's own."""
        self.expected = ExpectedItems(self._count)
        if self._work is None:
            items = _rest(self._sources[0], self._count) if own is None else _from(own.parts, self._count)
            return items, self.expected
        if self._work is enumerate:
            first = self._sources[1] if len(self._sources) > 1 else 0
            items = _rest(self._sources[0], self._count)
            return (OwnContainer(tuple, list(row)) for row in enumerate(items, first + self._count)), self.expected
        if self._work is zip:
            parts = [_rest(source, self._count) for source in self._sources]
            return (OwnContainer(tuple, list(row)) for row in zip(*parts, strict=False)), self.expected
        raise StopLookahead("the items that the loop reads next are not known")


def _from(parts: list[Any], index: int) -> Iterator[Any]:
    while index < len(parts):
        yield parts[index]
        index += 1


def _rest(source: Any, count: int) -> Iterator[Any]:
    kind = type(source)
    if kind is list:
        return _from(source, count)
    if kind in (tuple, range) or is_plain(source):
        return iter(source[count:]) if kind is not frozenset else iter(list(source)[count:])
    if kind in (dict, set) or kind in VIEWS:
        return iter(list(source)[count : count + _MANY])
    raise StopLookahead(f"it goes through a {kind.__name__}")


def _is_same(expected: Any, item: Any) -> bool:
    if type(expected) is tuple and type(item) is tuple:
        return len(expected) == len(item) and all(map(_is_same, expected, item))
    return is_same_value(expected, item)
