"""Questions to the solver about one walk, and its answers as inputs.

Every question has a limit of the solver's own steps (`rlimit`), not of time: the same node has the same verdict on
every machine. An answer is proved (`unsat`), inputs that may show the opposite, or nothing within the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any, Final

import z3

from lyra.vesper.prove.flow import NodeWalk
from lyra.vesper.prove.numbers import RealEncoding
from lyra.vesper.prove.texts import text_of
from lyra.vesper.prove.values import (
    EPOCH,
    ListItems,
    NullValue,
    NumberValue,
    OpaqueValue,
    RecordValue,
    SymbolicValue,
    Term,
    TextValue,
    TimeValue,
    TruthValue,
    ValueChoice,
    conj,
)

_HOPS: Final = 2  # from one axiom to the next, to what decides a term
_UNSCALED_DIGITS: Final = 6  # after the point, of a decimal without a scale


class NoModelInput(Exception):
    """The model has a value of which nothing is known; the message names it."""


def ask(flow: NodeWalk, *conditions: Term, rlimit: int) -> tuple[str, Any]:
    """Return `unsat`, `sat` with a model, or `unknown`, for accepted inputs with these conditions."""
    condition = z3.simplify(conj(flow.assumed, *conditions))
    if z3.is_false(condition):
        return "unsat", None
    solver = z3.Solver()
    solver.set("rlimit", rlimit)
    first = flow.numbers.axioms[: flow.input_axioms]
    solver.add(*first, *flow.relevant(condition, *first), condition)
    answer = solver.check()
    return str(answer), solver.model() if answer == z3.sat else None


def approximations_in(flow: NodeWalk, terms: list[Term]) -> list[str]:
    """Return what is not modelled of that which decides some terms."""
    inputs = flow.variables_in(*(term for value in flow.inputs.values() for term in _terms(value)))
    known = flow.variables_in(*terms) - inputs
    flow.relevant()  # all axioms' variables are known then
    left = flow.axiom_variables[flow.input_axioms :]
    for _ in range(_HOPS):
        near = [variables for variables in left if variables & known]
        left = [variables for variables in left if not variables & known]
        known = known.union(*near) - inputs
    return sorted(why for why, parts in flow.approximations.items() if flow.variables_in(*parts) & known)


def input_of(flow: NodeWalk, model: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a model as plain JSON; `defaults` gives those of which a model says nothing."""
    inputs = {}
    for name, value in flow.inputs.items():
        try:
            inputs[name] = _to_plain(flow, value, model)
        except NoModelInput:
            if name not in defaults:
                raise
            inputs[name] = defaults[name]
    return inputs


def _to_plain(flow: NodeWalk, value: SymbolicValue, model: Any) -> Any:
    match value:
        case ValueChoice():
            for guard, part in value.options:
                if z3.is_true(model.eval(guard, model_completion=True)):
                    return _to_plain(flow, part, model)
            raise NoModelInput("a value of no kind")
        case NullValue():
            return None
        case TruthValue():
            return z3.is_true(model.eval(value.term, model_completion=True))
        case NumberValue():
            number = _fraction(model.eval(value.term, model_completion=True))
            if value.whole:
                return round(number)
            if not isinstance(flow.numbers, RealEncoding):
                assert value.scale is not None
                return str(Decimal(number.numerator).scaleb(-value.scale, Context(prec=100)))
            digits = _UNSCALED_DIGITS if value.scale is None else value.scale
            context = Context(prec=200, rounding=ROUND_HALF_EVEN)
            exact = context.divide(Decimal(number.numerator), Decimal(number.denominator))
            return format(exact.quantize(Decimal(1).scaleb(-digits), context=context), "f")
        case TextValue():
            return text_of(model.eval(value.term, model_completion=True))
        case TimeValue():
            number = _fraction(model.eval(value.number.term, model_completion=True))
            time = EPOCH + timedelta(microseconds=round(number))
            return time.isoformat().replace("+00:00", "Z")
        case RecordValue():
            return {name: _to_plain(flow, part, model) for name, part in value.fields.items()}
        case ListItems():
            present = [part for here, part in value.items if z3.is_true(model.eval(here, model_completion=True))]
            return [_to_plain(flow, part, model) for part in present]
        case OpaqueValue():
            raise NoModelInput(value.why)
    raise NoModelInput("a list of any length")


def _fraction(term: Term) -> Fraction:
    if z3.is_algebraic_value(term):
        term = term.approx(20)
    if z3.is_int_value(term):
        return Fraction(term.as_long())
    return Fraction(term.numerator_as_long(), term.denominator_as_long())


def block(flow: NodeWalk, model: Any) -> Term:
    """Return the condition that some input differs from that of a model."""
    terms = [term for value in flow.inputs.values() for term in _terms(value)]
    parts = [term != model.eval(term, model_completion=True) for term in terms]
    return z3.Or(*parts) if parts else z3.BoolVal(False)


def _terms(value: SymbolicValue) -> list[Term]:
    match value:
        case ValueChoice():
            return [term for guard, part in value.options for term in (guard, *_terms(part))]
        case TruthValue() | NumberValue() | TextValue():
            return [value.term]
        case TimeValue():
            return [value.number.term]
        case RecordValue():
            return [term for part in value.fields.values() for term in _terms(part)]
        case ListItems():
            return [term for here, part in value.items for term in (here, *_terms(part))]
    return []
