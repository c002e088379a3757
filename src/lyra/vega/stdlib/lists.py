"""`list::…` and `map::…`, as far as they call no lambda."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

from lyra.core.budgets.money import Money
from lyra.core.limits import VEGA_LIST_ITEMS_MAX
from lyra.vega.stdlib.strings import bounds, check_kinds, need
from lyra.vega.values.operators import add, key, less
from lyra.vega.values.values import BULK, WORK, Duration, Fault, compute_mark, equal

_PIECE: Final = 1 << 20
_SIMPLE = frozenset({int, float, str, bool, type(None), Money, Duration})


def check_length(size: int) -> None:
    if size > VEGA_LIST_ITEMS_MAX:
        raise Fault("LimitExceeded", f"a list may have at most {VEGA_LIST_ITEMS_MAX} items")


def _push(items: Any, item: Any) -> Any:
    need(items, "list", "list::push").append(item)
    return items


def _pop(items: Any) -> Any:
    if not need(items, "list", "list::pop"):
        raise Fault("IndexError", "list::pop of an empty list: there is no index to take from")
    return items.pop()


def _position(function: str, items: Any, index: Any, size: int) -> int:
    check_kinds(function, (items, "list"), (index, "int"))
    if not 0 <= index < size:
        raise Fault("IndexError", f"index {index} is outside a list of length {len(items)}")
    return int(index)


def _insert(items: Any, index: Any, item: Any) -> Any:
    need(items, "list", "list::insert")
    items.insert(_position("list::insert", items, index, len(items) + 1), item)
    return items


def _remove(items: Any, index: Any) -> Any:
    need(items, "list", "list::remove")
    return items.pop(_position("list::remove", items, index, len(items)))


def _index_of(items: Any, item: Any) -> int:
    need(items, "list", "list::index_of")
    for index, other in enumerate(items):
        if equal(other, item):
            WORK.units += index
            return index
    WORK.units += len(items)
    return -1


def _slice(items: Any, start: Any, end: Any = None) -> list[Any]:
    check_kinds("list::slice", (items, "list"), (start, "int"))
    start, end = bounds("list::slice", start, end, len(items))
    WORK.units += max(0, end - start) >> BULK
    return list(items[start:end])


def _concat(items: Any, others: Any) -> Any:
    check_kinds("list::concat", (items, "list"), (others, "list"))
    return add(items, others)


def _range(start: Any, end: Any, step: Any = 1) -> list[int]:
    check_kinds("list::range", (start, "int"), (end, "int"), (step, "int"))
    if step == 0:
        raise Fault("ValueError", "list::range needs a step that is not zero")
    numbers = range(start, end, step)
    check_length((end - start) // step)
    WORK.units += len(numbers) >> BULK
    return list(numbers) if len(numbers) <= _PIECE else _in_pieces(numbers)


def _in_pieces(numbers: range) -> list[int]:
    """Not all at once: between two pieces a signal is heard."""
    out: list[int] = []
    for start in range(0, len(numbers), _PIECE):
        out.extend(numbers[start : start + _PIECE])
    return out


def _reverse(items: Any) -> list[Any]:
    WORK.units += len(need(items, "list", "list::reverse")) >> BULK
    return list(items[::-1])


def _end(function: str, index: int) -> Callable[[Any], Any]:
    def take(items: Any) -> Any:
        if not need(items, "list", function):
            raise Fault("IndexError", f"{function} of an empty list: there is no such index")
        return items[index]

    return take


def _sum(items: Any) -> Any:
    need(items, "list", "list::sum")
    WORK.units += len(items)
    return functools.reduce(add, items) if items else 0


def _unique(items: Any) -> list[Any]:
    need(items, "list", "list::unique")
    WORK.units += len(items)
    kinds = set(map(type, items))
    if len(kinds) == 1 and kinds <= {int, str, Money, Duration}:
        return list(dict.fromkeys(items))
    seen: set[Any] = set()
    alike: dict[int, list[Any]] = {}  # what may be equal, by its mark
    marks: dict[int, int] = {}
    out: list[Any] = []
    for item in items:
        if type(item) in _SIMPLE:
            if type(item) is float and math.isnan(item):  # not a number is never equal, not even to itself
                out.append(item)
                continue
            # Kinds that are never equal to each other must not share a hash; the two kinds of number are.
            mark = ("number", item) if type(item) in (int, float) else (type(item), item)
            if mark not in seen:
                seen.add(mark)
                out.append(item)
        else:
            others = alike.setdefault(compute_mark(item, marks), [])
            if not any(equal(item, other) for other in others):
                others.append(item)
                out.append(item)
    return out


def _flatten(items: Any) -> list[Any]:
    need(items, "list", "list::flatten")
    out: list[Any] = []
    for item in items:
        if type(item) is list:
            out.extend(item)
            check_length(len(out))
        else:
            out.append(item)
    WORK.units += len(items) + (len(out) >> BULK)
    return out


def _zip(items: Any, others: Any) -> list[Any]:
    check_kinds("list::zip", (items, "list"), (others, "list"))
    WORK.units += min(len(items), len(others)) >> 1
    return [[item, other] for item, other in zip(items, others, strict=False)]


def _compare(left: Any, right: Any) -> int:
    return -1 if less(left, right) else int(less(right, left))


def _sort(items: Any) -> list[Any]:
    need(items, "list", "list::sort")
    kinds = set(map(type, items))
    if len(kinds) == 1 and kinds <= {int, str, Money, Duration}:
        WORK.units += len(items)
        return sorted(items)
    WORK.units += len(items) * len(items).bit_length()
    return sorted(items, key=functools.cmp_to_key(_compare))


# ---------------------------------------------------------------- maps


def _has(mapping: Any, wanted: Any) -> bool:
    return key(wanted) in need(mapping, "map", "map::has")


def _get(mapping: Any, wanted: Any, default: Any = None) -> Any:
    return need(mapping, "map", "map::get").get(key(wanted), default)


def _set(mapping: Any, wanted: Any, value: Any) -> Any:
    need(mapping, "map", "map::set")[key(wanted)] = value
    return mapping


def _merge(mapping: Any, other: Any) -> dict[Any, Any]:
    check_kinds("map::merge", (mapping, "map"), (other, "map"))
    WORK.units += (len(mapping) + len(other)) >> BULK
    return {**mapping, **other}


def _keys(mapping: Any) -> list[Any]:
    WORK.units += len(need(mapping, "map", "map::keys")) >> BULK
    return list(mapping)


def _values(mapping: Any) -> list[Any]:
    WORK.units += len(need(mapping, "map", "map::values")) >> BULK
    return list(mapping.values())


def _entries(mapping: Any) -> list[Any]:
    WORK.units += len(need(mapping, "map", "map::entries")) >> 1
    return [list(pair) for pair in mapping.items()]


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "list::len": lambda items: len(need(items, "list", "list::len")),
    "list::push": _push,
    "list::pop": _pop,
    "list::insert": _insert,
    "list::remove": _remove,
    "list::contains": lambda items, item: _index_of(items, item) >= 0,
    "list::index_of": _index_of,
    "list::reverse": _reverse,
    "list::slice": _slice,
    "list::concat": _concat,
    "list::range": _range,
    "list::first": _end("list::first", 0),
    "list::last": _end("list::last", -1),
    "list::sum": _sum,
    "list::unique": _unique,
    "list::flatten": _flatten,
    "list::zip": _zip,
    "list::sorted": _sort,
    "map::len": lambda mapping: len(need(mapping, "map", "map::len")),
    "map::has": _has,
    "map::get": _get,
    "map::set": _set,
    "map::keys": _keys,
    "map::values": _values,
    "map::entries": _entries,
    "map::remove": lambda mapping, wanted: need(mapping, "map", "map::remove").pop(key(wanted), None),
    "map::merge": _merge,
}
