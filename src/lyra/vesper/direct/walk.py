"""Questions about parts of a program that need a look at all of it: its names, its loops, its effects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from lyra.vesper import ir
from lyra.vesper.ir import AssignStep, EffectStep, ForEachStep, LoopStep, Step, TransitionStep

_ROUNDS: Final = (
    ForEachStep,
    LoopStep,
    ir.Quantifier,
    ir.MapOver,
    ir.Filter,
    ir.Reduce,
    ir.Aggregate,
    ir.GroupBy,
    ir.MatrixProduct,
    EffectStep,
    TransitionStep,
)


def parts_of(node: Any) -> Iterator[Any]:
    """The node and everything inside it."""
    todo = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, tuple):
            todo.extend(reversed(part))
        elif isinstance(part, msgspec.Struct):
            yield part
            todo.extend(getattr(part, name) for name in reversed(part.__struct_fields__))


def names_in(expression: ir.TypedExpression | None) -> frozenset[str]:
    """All names that an expression mentions; none of none."""
    return frozenset(part.name for part in parts_of(expression) if isinstance(part, ir.NodeVariable))


def needs_meter(program: Any) -> bool:
    return any(isinstance(part, _ROUNDS) for part in parts_of(program))


def acts_outside(step: Step) -> bool:
    return any(isinstance(part, EffectStep | TransitionStep) for part in parts_of(step))


def assigned_names(steps: tuple[Step, ...]) -> list[str]:
    """The variables that steps write, each once, in written order."""
    names: dict[str, None] = {}
    for part in parts_of(steps):
        match part:
            case AssignStep():
                names[part.target] = None
            case EffectStep():
                names.update(dict.fromkeys([part.output, *(name for name, _ in part.extract)]))
            case TransitionStep():
                names[part.output] = None
    names.pop("", None)
    return list(names)
