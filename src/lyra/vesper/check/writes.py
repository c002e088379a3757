"""Whether a flow writes a variable whatever its inputs are, where conditions exclude each other or leave no case out.

The type of a variable that only guarded steps write is nullable. `writes_always(program, name)` looks closer before a
remark is made of it: it tries all values of those enum and boolean inputs that conditions compare, and both outcomes of
each other comparison of inputs, the opposite one (`n <= 5` and `n > 5`) being one of them. What else a condition asks
may come out either way. It stands alone: nothing here decides a type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final

from lyra.vesper import ir
from lyra.vesper.check.steps import parts_of
from lyra.vesper.values.types import BOOLEAN, EnumType, Nullable, ValueType

_CASES_MAX: Final = 512
_OPPOSITE: Final = {"!=": "==", "<=": ">", ">=": "<"}

_Case = Mapping[Any, Any]  # the values of inputs by name, and the outcomes of comparisons by what they compare


def writes_always(program: ir.NodeProgram, name: str) -> bool:
    """Return whether each success of a program has written a variable."""
    if any(_may_write_null(part, name) for part in parts_of(program.steps)):
        return False
    inputs = {source.name: source.type for source in program.inputs if source.required}
    assigned = {getattr(part, field, "") for part in parts_of(program.steps) for field in ("target", "output")}
    known = {key: kind for key, kind in inputs.items() if key not in assigned and not isinstance(kind, Nullable)}
    columns = {key: values for key, kind in known.items() if (values := _values_of(kind))}
    atoms: dict[Any, tuple[Any, ...]] = {}
    for part in parts_of(program.steps):
        if isinstance(part, ir.Compare) and _is_settled(part, known):
            atoms[_atom(part)[0]] = (False, True)
    used = {part.name for part in parts_of(program.steps) if isinstance(part, ir.NodeVariable)}
    cases: dict[Any, tuple[Any, ...]] = {key: values for key, values in columns.items() if key in used}
    cases |= {key: values for key, values in atoms.items() if not _names(key[1:]) & columns.keys()}
    total = 1
    for values in cases.values():
        total *= len(values)
    if total > _CASES_MAX:
        return False
    rows = (dict(zip(cases, row, strict=True)) for row in product(*cases.values()))
    return all(_ends_well(program.steps, name, case) for case in rows)


def _may_write_null(part: Any, name: str) -> bool:
    if isinstance(part, ir.EffectStep):
        return name in (part.output, *(extracted for extracted, _ in part.extract))
    return isinstance(part, ir.AssignStep) and part.target == name and isinstance(part.value.type, Nullable)


def _values_of(kind: ValueType) -> tuple[Any, ...]:
    if kind == BOOLEAN:
        return (False, True)
    return kind.values if isinstance(kind, EnumType) else ()


def _names(parts: Any) -> set[str]:
    return {part.name for part in parts_of(parts) if isinstance(part, ir.NodeVariable)}


def _is_settled(part: ir.Compare, known: Mapping[str, ValueType]) -> bool:
    """Return whether a comparison has one outcome in a whole execution, which its opposite has not."""
    plain = (ir.NodeVariable, ir.Constant, ir.Compare)
    return _names(part) <= known.keys() and all(isinstance(inner, plain) for inner in _expressions(part))


def _expressions(part: Any) -> Iterator[ir.TypedExpression]:
    return (inner for inner in parts_of(part) if isinstance(inner, ir.TypedExpression))


def _atom(part: ir.Compare) -> tuple[tuple[Any, ...], bool]:
    """Return what a comparison asks, and whether it asks for the opposite of that."""
    operator = _OPPOSITE.get(part.operator, part.operator)
    sides = (_without_place(part.left), _without_place(part.right))
    return (operator, *sides), operator != part.operator


def _without_place(part: ir.TypedExpression) -> ir.TypedExpression:
    """Return a side of a comparison without its place."""
    return type(part)(**{name: getattr(part, name) for name in part.__struct_fields__ if name != "place"})


def _ends_well(steps: Iterable[ir.Step], name: str, case: _Case) -> bool:
    """Return whether steps write the variable, or end the node, in a case."""
    for step in steps:
        holds = _all_hold(step.guards, case)
        if isinstance(step, ir.ValidateStep):
            if _all_hold((*step.guards, *step.checks), case) is False:
                return True  # with an error
        elif holds is True and _writes(step, name, case):
            return True
    return False


def _writes(step: ir.Step, name: str, case: _Case) -> bool:
    match step:
        case ir.ReturnStep():
            return True
        case ir.AssignStep():
            return step.target == name
        case ir.BranchStep():
            outcome = _judge(step.condition, case)
            sides = {True: (step.then,), False: (step.otherwise,), None: (step.then, step.otherwise)}[outcome]
            return all(_ends_well(side, name, case) for side in sides)
        case ir.ParallelStep() | ir.TransactionStep():
            return _ends_well(step.steps, name, case)
        case ir.EffectStep() if step.found or step.empty:
            return _ends_well(step.found, name, case) and _ends_well(step.empty, name, case)
    return False


def _all_hold(conditions: Iterable[ir.Condition], case: _Case) -> bool | None:
    outcomes = [_judge(condition.expression, case) for condition in conditions]
    return False if False in outcomes else None if None in outcomes else True


def _judge(condition: ir.TypedExpression, case: _Case) -> bool | None:
    """Return the outcome of a condition in a case; None where it may come out either way."""
    match condition:
        case ir.Constant(value=bool() as value):
            return value
        case ir.NodeVariable():
            known = case.get(condition.name)
            return known if isinstance(known, bool) else None
        case ir.Not():
            inner = _judge(condition.operand, case)
            return None if inner is None else not inner
        case ir.Logic():
            left, right = _judge(condition.left, case), _judge(condition.right, case)
            if condition.operator == "implies":
                left = None if left is None else not left
            decisive = condition.operator != "and"
            if left is decisive or right is decisive:
                return decisive
            return None if left is None or right is None else not decisive
        case ir.Membership(item=ir.NodeVariable() as item, collection=ir.ListOf() as values):
            if item.name in case and all(isinstance(value, ir.Constant) for value in values.items):
                return case[item.name] in [value.value for value in values.items if isinstance(value, ir.Constant)]
        case ir.Compare():
            sides = [_value(side, case) for side in (condition.left, condition.right)]
            if condition.operator in ("==", "!=") and all(len(side) == 1 for side in sides):
                return (sides[0] == sides[1]) is (condition.operator == "==")
            key, is_opposite = _atom(condition)
            return None if key not in case else bool(case[key]) is not is_opposite
    return None


def _value(side: ir.TypedExpression, case: _Case) -> tuple[Any, ...]:
    """Return the value of a constant, or of an input in a case; an empty tuple of anything else."""
    if isinstance(side, ir.Constant):
        return (side.value,)
    return (case[side.name],) if isinstance(side, ir.NodeVariable) and side.name in case else ()
