"""What steps of the IR read and write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lyra.vesper.ir import AssignStep, EffectStep, ForEachStep, NodeVariable, TransitionStep, TypedExpression


def parts_of(part: Any) -> Iterator[Any]:
    """The part and everything inside it."""
    rest = [part]
    while rest:
        item = rest.pop()
        if isinstance(item, (list, tuple)):
            rest.extend(reversed(item))
        elif isinstance(item, msgspec.Struct):
            yield item
            rest.extend(getattr(item, name) for name in reversed(item.__struct_fields__))


def depth_of(part: Any) -> int:
    """How deep the expressions inside are, at most."""
    deepest = 0
    rest = [(part, 0)]
    while rest:
        item, depth = rest.pop()
        if isinstance(item, (list, tuple)):
            rest.extend((inner, depth) for inner in item)
        elif isinstance(item, msgspec.Struct):
            depth = depth + 1 if isinstance(item, TypedExpression) else 0
            deepest = max(deepest, depth)
            rest.extend((getattr(item, name), depth) for name in item.__struct_fields__)
    return deepest


def names_in(part: Any) -> set[str]:
    """All names that expressions inside mention."""
    return {item.name for item in parts_of(part) if isinstance(item, NodeVariable)}


def writes_of(part: Any) -> set[str]:
    """The variables that steps inside write."""
    names: set[str] = set()
    for item in parts_of(part):
        if isinstance(item, AssignStep):
            names.add(item.target)
        elif isinstance(item, EffectStep):
            names.update(name for name in (item.output, *(name for name, _ in item.extract)) if name)
        elif isinstance(item, TransitionStep) and item.output:
            names.add(item.output)
        elif isinstance(item, ForEachStep):
            names.add(item.variable)
    return names
