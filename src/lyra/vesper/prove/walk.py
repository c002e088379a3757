"""The walk over expressions with symbolic values, shaped like the reference evaluator.

`here` is the condition under which the walk is where it is. What can fail is noted in `raised` with its condition, code
and site, and `here` excludes it from then on. A function that is not in the table, a text in an order and the like give
an `OpaqueValue` value, or an open truth value, and `approximations` says so: such a value may be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import product
from typing import Any, Final

import z3

from lyra.vesper import ir
from lyra.vesper.prove.list_calls import LIST_CALLS
from lyra.vesper.prove.number_calls import NUMBER_CALLS
from lyra.vesper.prove.numbers import NumberEncoding, constant_parts
from lyra.vesper.prove.text_calls import TEXT_CALLS, render_whole
from lyra.vesper.prove.texts import text_constant, text_of
from lyra.vesper.prove.time_calls import TIME_CALLS, part_of_local
from lyra.vesper.prove.values import (
    FALSE,
    NULL,
    TIMES,
    TRUE,
    ListComprehension,
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
    UnsetValue,
    UnsupportedNode,
    ValueChoice,
    choose,
    conj,
    disj,
    ite,
    microseconds,
    negate,
    options,
)
from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX
from lyra.vesper.values.zones import zone_of

Env = Mapping[str, SymbolicValue]
UNJUDGED: Final = "unjudged"  # a name that the host did not supply
UNKNOWN: Final = "unknown"  # any failure
_EVALUATIONS_MAX: Final = 40_000
_OPTIONS_MAX: Final = 64
_COMPARISONS_MAX: Final = 60


class ExpressionWalk:
    """Evaluates expressions; `lists.ListWalk` and `flow.NodeWalk` are built on it."""

    def __init__(self, numbers: NumberEncoding) -> None:
        self.numbers = numbers
        self.here: Term = TRUE
        self.raised: list[tuple[Term, str, str]] = []  # failures: condition, code and site
        self.ends: list[Any] = []  # answers of the node, see flow
        self.reached: list[tuple[str, Term]] = []  # steps, and when they are reached
        self.comparisons: list[
            tuple[Term, NumberValue, NumberValue]
        ] = []  # orders of numbers, and where they are asked for
        self.site = ""
        self.olds: list[tuple[SymbolicValue, list[tuple[Term, str, str]]]] = []
        self.guards: list[tuple[Term, str, str]] = []  # of failures: what decides them where the walk is
        self.approximations: dict[str, list[Term]] = {}  # what is not modelled, with the terms that stand for it
        self._evaluations = 0
        self._made: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self.now = numbers.fresh("now", whole=True)

    # ------------------------------------------------------------ conditions and failures

    def fail(self, code: str, guard: Term = TRUE) -> None:
        """Note that the execution fails here where `guard` holds, and continue where it does not."""
        condition = conj(self.here, guard)
        if not z3.is_false(condition):
            self.guards.append((guard, code, self.site))
            self.raised.append((condition, code, self.site))
            self.here = conj(self.here, negate(guard))

    def approximate(self, why: str, *terms: Term) -> None:
        """Note that the terms may be more than what the node can make them."""
        self.approximations.setdefault(why, []).extend(terms)

    def open_condition(self, why: str) -> Term:
        condition = self.numbers.fresh_bool("open")
        self.approximate(why, condition)
        return condition

    def compute_once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return what a function makes, made once for each key; terms in a key are told apart by their ids."""
        ids = tuple(part.get_id() if isinstance(part, z3.AstRef) else part for part in key)
        if ids not in self._made:
            self._made[ids] = key, make()  # with the terms, which keep their ids as long as they are held
        return self._made[ids][1]

    def is_zone(self, text: Term) -> Term:
        """Return whether a text names a time zone; that is open for a text that is no constant."""
        if z3.is_string_value(text):
            return z3.BoolVal(zone_of(text_of(text)) is not None)
        return self.compute_once(("zone", text), lambda: self.open_condition("the names of time zones"))

    def choose(self, pairs: Any) -> SymbolicValue:
        value = choose(pairs, self.numbers.align)
        if isinstance(value, ValueChoice) and len(value.options) > _OPTIONS_MAX:
            raise UnsupportedNode("a value of too many kinds")
        return value

    def per_kind(self, function: Callable[..., SymbolicValue], *values: SymbolicValue) -> SymbolicValue:
        """Return the function of plain values, for each combination of what the values may be."""
        if not any(isinstance(value, ValueChoice) for value in values):
            return function(*values)
        entry, ends, results, has_failed = self.here, [], [], False
        for combination in product(*map(options, values)):
            guard = z3.simplify(conj(*(condition for condition, _ in combination)))
            self.here = conj(entry, guard)
            if z3.is_false(self.here):
                continue
            before = self.here
            results.append((guard, function(*(value for _, value in combination))))
            has_failed = has_failed or self.here is not before
            ends.append(self.here)
        self.here = disj(*ends) if has_failed else entry
        return self.choose(results)

    def branch(
        self, condition: Term, then: Callable[[], SymbolicValue], otherwise: Callable[[], SymbolicValue]
    ) -> SymbolicValue:
        """Return the value of the branch that the condition chooses."""
        if z3.is_true(condition) or z3.is_false(condition):
            return then() if z3.is_true(condition) else otherwise()
        entry = self.here
        self.here = start = conj(entry, condition)
        first = then()
        first_end, is_plain = self.here, self.here is start
        self.here = start = conj(entry, negate(condition))
        second = otherwise()
        self.here = entry if is_plain and self.here is start else disj(first_end, self.here)
        return self.choose(((condition, first), (negate(condition), second)))

    def under(self, condition: Term, function: Callable[[], Any]) -> Any:
        """Return the function's result; its failures are possible only where the condition holds."""
        entry = self.here
        self.here = start = conj(entry, condition)
        result = function()
        self.here = entry if self.here is start else disj(conj(entry, negate(condition)), self.here)
        return result

    def truth(self, value: SymbolicValue) -> Term:
        """Return the condition that a value is true; null is false, other values are type errors."""

        def to_truth(part: SymbolicValue) -> SymbolicValue:
            match part:
                case TruthValue():
                    return part
                case NullValue() | UnsetValue():
                    return TruthValue(FALSE)
                case OpaqueValue(kind=""):
                    self.fail("type_error", self.open_condition(part.why))
                    return TruthValue(self.open_condition(part.why))
            self.fail("type_error")
            return TruthValue(FALSE)

        result = self.per_kind(to_truth, value)
        assert isinstance(result, TruthValue) or result is NULL
        return z3.simplify(result.term) if isinstance(result, TruthValue) else FALSE

    def is_true(self, expression: ir.TypedExpression, env: Env) -> Term:
        return self.truth(self.evaluate(expression, env))

    def quietly(self, function: Callable[[], Any], here: Term = TRUE) -> tuple[Any, Term, list[tuple[Term, str, str]]]:
        """Return the function's result, the condition that it did not fail, and its failures; the walk's state is
        unchanged."""
        kept = self.here, self.raised, self.ends, self.reached
        self.here, self.raised, self.ends, self.reached = here, [], [], []
        try:
            return function(), self.here, self.raised
        finally:
            self.here, self.raised, self.ends, self.reached = kept

    # ------------------------------------------------------------ expressions

    def evaluate(self, expression: ir.TypedExpression, env: Env) -> SymbolicValue:
        self._evaluations += 1
        if self._evaluations > _EVALUATIONS_MAX:
            raise UnsupportedNode("the node has too many parts")
        match expression:
            case ir.Constant():
                return self.constant(expression.value)
            case ir.NodeVariable():
                return self.lookup(expression.name, env)
            case ir.FieldOf() | ir.Projection():
                is_projection = isinstance(expression, ir.Projection)
                target = self.evaluate(expression.target, env)
                return self.per_kind(
                    lambda part: self.field(part, expression.name, is_projection=is_projection), target
                )
            case ir.ItemOf():
                target, index = self.evaluate(expression.target, env), self.evaluate(expression.index, env)
                return self.per_kind(self.item, target, index)
            case ir.Length():
                return self.per_kind(self.length, self.evaluate(expression.target, env))
            case ir.Negate():
                return self.per_kind(self.negate_value, self.evaluate(expression.operand, env))
            case ir.Not():
                return TruthValue(negate(self.is_true(expression.operand, env)))
            case ir.Arithmetic():
                left, right = self.evaluate(expression.left, env), self.evaluate(expression.right, env)
                return self.per_kind(lambda a, b: self.arithmetic(expression.operator, a, b), left, right)
            case ir.Rounded():
                return self._evaluate_rounding(expression, env)
            case ir.Compare():
                left, right = self.evaluate(expression.left, env), self.evaluate(expression.right, env)
                return self.per_kind(lambda a, b: TruthValue(self.compare(expression.operator, a, b)), left, right)
            case ir.Membership():
                item, collection = self.evaluate(expression.item, env), self.evaluate(expression.collection, env)
                return self.per_kind(lambda a, b: TruthValue(self.is_member(a, b)), item, collection)
            case ir.IsNull():
                return self.per_kind(self._is_null, self.evaluate(expression.operand, env))
            case ir.Logic():
                return self._logic(expression, env)
            case ir.Conditional():
                condition = self.is_true(expression.condition, env)
                then, otherwise = expression.then, expression.otherwise
                return self.branch(condition, lambda: self.evaluate(then, env), lambda: self.evaluate(otherwise, env))
            case ir.Coalesce():
                return self._coalesce(expression.operands, env)
            case ir.Old():
                value, raised = self.olds[expression.slot]
                for condition, code, _ in raised:
                    self.fail(code, condition)
                return value
            case ir.MapOf():
                return RecordValue({name: self.evaluate(part, env) for name, part in expression.entries})
            case ir.ListOf():
                return ListItems(tuple((TRUE, self.evaluate(item, env)) for item in expression.items))
            case ir.TemplateText():
                return self._template(expression, env)
            case ir.FunctionCall():
                return self._call(expression, env)
            case ir.HostCall():
                self.fail(UNJUDGED, self.open_condition(f"the predicate {expression.name} of the embedding program"))
                self.fail(UNKNOWN, self.numbers.fresh_bool())
                return OpaqueValue(f"the predicate {expression.name} of the embedding program")
        return self.collection(expression, env)

    def _coalesce(self, operands: tuple[ir.TypedExpression, ...], env: Env) -> SymbolicValue:
        if not operands:
            return NULL
        value = self.evaluate(operands[0], env)
        is_null = self.truth(self.per_kind(self._is_null, value))
        plain = [(guard, part) for guard, part in options(value) if not isinstance(part, NullValue)]
        return self.branch(is_null, lambda: self._coalesce(operands[1:], env), lambda: self.choose(plain))

    def collection(self, expression: ir.TypedExpression, env: Env) -> SymbolicValue:
        """Return the value of an expression over the elements of a list; lists.ListWalk has them."""
        raise NotImplementedError

    def constant(self, value: Any) -> SymbolicValue:
        match value:
            case None:
                return NULL
            case bool():
                return TruthValue(z3.BoolVal(value))
            case str():
                term = text_constant(value)
                return OpaqueValue("a text with rare characters", "string") if term is None else TextValue(term)
            case datetime():
                return TimeValue(self.numbers.constant(microseconds(value)))
        try:
            constant_parts(value)
        except (AttributeError, TypeError, ValueError):
            return OpaqueValue("a constant that is no number and no text")
        return self.numbers.constant(value)

    def lookup(self, name: str, env: Env) -> SymbolicValue:
        if name not in env:
            self.fail(UNJUDGED)
            return NULL
        value = env[name]
        if isinstance(value, OpaqueValue) and value.why.startswith("`"):  # what the caller supplies may be missing
            self.fail(UNJUDGED, self.open_condition(value.why))
        return self.per_kind(lambda part: NULL if isinstance(part, UnsetValue) else part, value)

    def any_of(self, why: str, *, may_fail: bool = True) -> OpaqueValue:
        if may_fail:
            self.fail(UNKNOWN, self.open_condition(why))
        self.approximate(why)
        return OpaqueValue(why)

    def field(self, target: SymbolicValue, name: str, *, is_projection: bool = False) -> SymbolicValue:
        match target:
            case NullValue():
                return NULL
            case RecordValue() if not is_projection:
                return target.fields.get(name, NULL)
            case ListItems() | ListComprehension():
                return self.map_elements(
                    target, lambda part: self.per_kind(lambda plain: self.field(plain, name), part)
                )
            case OpaqueValue(kind=kind) if kind in ("", "map", "list"):
                return self.any_of(target.why)
        self.fail("type_error")
        return NULL

    def map_elements(
        self, values: ListItems | ListComprehension, function: Callable[[SymbolicValue], SymbolicValue]
    ) -> SymbolicValue:
        raise NotImplementedError

    def item(self, target: SymbolicValue, index: SymbolicValue) -> SymbolicValue:
        raise NotImplementedError

    def length(self, target: SymbolicValue) -> SymbolicValue:
        match target:
            case NullValue():
                return NULL
            case TextValue():
                return self.numbers.from_length(z3.Length(target.term))
            case RecordValue():
                return self.numbers.constant(len(target.fields))
            case ListItems():
                return self.count(target)
            case ListComprehension():
                return self.count(target)
            case OpaqueValue(kind="" as kind) | OpaqueValue(kind=kind):
                if not kind:
                    return self.any_of(target.why)
                number = self.numbers.fresh("length", whole=True)
                self.approximate(target.why, number.term)
                self.numbers.axioms.append(self.numbers.at_most(self.numbers.constant(0), number))
                return number
        self.fail("type_error")
        return NULL

    def count(self, target: ListItems | ListComprehension) -> NumberValue:
        raise NotImplementedError

    # ------------------------------------------------------------ numbers

    def negate_value(self, value: SymbolicValue) -> SymbolicValue:
        return self.arithmetic("-", self.numbers.constant(0), value)

    def check_overflow(self, number: NumberValue) -> NumberValue:
        """Return the result of an operation, which fails where it overflows."""
        self.fail("overflow", self.numbers.overflow(number))
        return number

    def arithmetic(self, operator: str, left: SymbolicValue, right: SymbolicValue) -> SymbolicValue:
        if operator == "+" and isinstance(left, TextValue) and isinstance(right, TextValue):
            return TextValue(z3.Concat(left.term, right.term))
        texts = [
            isinstance(part, TextValue) or (isinstance(part, OpaqueValue) and part.kind == "string")
            for part in (left, right)
        ]
        if operator == "+" and all(texts):
            return OpaqueValue("a text that is not modelled", "string")
        if operator in "+-" and (isinstance(left, TimeValue) or isinstance(right, TimeValue)):
            return self._time_arithmetic(operator, left, right)
        for part in (left, right):
            if not isinstance(part, NumberValue | OpaqueValue) or (isinstance(part, OpaqueValue) and part.kind):
                self.fail("type_error")
                return NULL
        if not isinstance(left, NumberValue) or not isinstance(right, NumberValue):
            return self.any_of(next(part.why for part in (left, right) if isinstance(part, OpaqueValue)))
        match operator:
            case "+":
                return self.check_overflow(self.numbers.add(left, right))
            case "-":
                return self.check_overflow(self.numbers.subtract(left, right))
            case "*":
                return self.check_overflow(self.numbers.multiply(left, right))
        self.fail("division_by_zero", self.numbers.is_zero(right))
        if z3.is_false(self.here):
            return NULL
        if operator == "%":
            return self.check_overflow(self.numbers.remainder(left, right))
        results = self.numbers.divide(left, right)
        return self.per_kind(self.check_overflow, self.choose(results)) if results else NULL

    def _time_arithmetic(self, operator: str, left: SymbolicValue, right: SymbolicValue) -> SymbolicValue:
        numbers, million = self.numbers, self.numbers.constant(1_000_000)
        unknown = [part.why for part in (left, right) if isinstance(part, OpaqueValue) and not part.kind]
        if unknown:
            return self.any_of(unknown[0])
        if isinstance(left, TimeValue) and isinstance(right, TimeValue) and operator == "-":
            return self.choose(numbers.divide(numbers.subtract(left.number, right.number), million))
        if operator == "+" and isinstance(left, NumberValue):
            left, right = right, left
        if not isinstance(left, TimeValue) or not isinstance(right, NumberValue):
            self.fail("type_error")
            return NULL
        micros = numbers.round_quotient(numbers.multiply(right, million), None, 0, "half_even")
        moved = (numbers.add if operator == "+" else numbers.subtract)(left.number, micros)
        number = NumberValue(moved.term, True)
        low, high = (numbers.constant(microseconds(time)) for time in TIMES)
        self.fail("overflow", disj(numbers.less(number, low), numbers.less(high, number)))
        return TimeValue(number)

    def _evaluate_rounding(self, expression: ir.Rounded, env: Env) -> SymbolicValue:
        operand = expression.operand
        scale = self.numbers.constant(expression.scale)
        if not (isinstance(operand, ir.Arithmetic) and operand.operator == "/"):
            value = self.evaluate(operand, env)
            return self.per_kind(lambda part: self.round(part, scale, expression.rounding), value)

        def divide_and_round(left: SymbolicValue, right: SymbolicValue) -> SymbolicValue:
            if not isinstance(left, NumberValue) or not isinstance(right, NumberValue):
                return self.arithmetic("/", left, right)  # the same failures
            self.fail("division_by_zero", self.numbers.is_zero(right))
            if z3.is_false(self.here):
                return NULL
            return self.check_overflow(self.numbers.round_quotient(left, right, expression.scale, expression.rounding))

        return self.per_kind(divide_and_round, self.evaluate(operand.left, env), self.evaluate(operand.right, env))

    def round(self, value: SymbolicValue, scale: SymbolicValue, rounding: str) -> SymbolicValue:
        if isinstance(value, OpaqueValue) and not value.kind:
            return self.any_of(value.why)
        if not isinstance(value, NumberValue) or not isinstance(scale, NumberValue) or not scale.whole:
            self.fail("type_error")
            return NULL
        term = z3.simplify(scale.term)
        if not (z3.is_int_value(term) or z3.is_rational_value(term)):
            return self.any_of("a scale that is not constant")
        digits = int(term.as_long() if z3.is_int_value(term) else term.as_fraction())
        if not 0 <= digits <= DECIMAL_DIGITS_MAX:
            self.fail("type_error")
            return NULL
        return self.check_overflow(self.numbers.round_quotient(value, None, digits, rounding))

    # ------------------------------------------------------------ comparisons

    def _is_null(self, value: SymbolicValue) -> SymbolicValue:
        if isinstance(value, OpaqueValue) and not value.kind:
            return TruthValue(self.open_condition(value.why))
        return TruthValue(z3.BoolVal(isinstance(value, NullValue)))

    def compare(self, operator: str, left: SymbolicValue, right: SymbolicValue) -> Term:
        match operator:
            case "==":
                return self.equal(left, right)
            case "!=":
                return negate(self.equal(left, right))
        if isinstance(left, NullValue) or isinstance(right, NullValue):
            return FALSE
        if (
            isinstance(left, NumberValue)
            and isinstance(right, NumberValue)
            and len(self.comparisons) < _COMPARISONS_MAX
        ):
            self.comparisons.append((self.here, left, right))
        if operator in ("<=", ">="):
            return negate(self.less(*((right, left) if operator == "<=" else (left, right))))
        return self.less(*((left, right) if operator == "<" else (right, left)))

    def less(self, left: SymbolicValue, right: SymbolicValue) -> Term:
        match left, right:
            case NumberValue(), NumberValue():
                return self.numbers.less(left, right)
            case TimeValue(), TimeValue():
                return self.numbers.less(left.number, right.number)
        is_text = [
            isinstance(part, TextValue) or (isinstance(part, OpaqueValue) and part.kind == "string")
            for part in (left, right)
        ]
        if isinstance(left, TextValue) and isinstance(right, TextValue):
            return z3.simplify(left.term < right.term)
        if all(is_text):
            return self.open_condition("the order of texts that are not modelled")
        unknown = [part for part in (left, right) if isinstance(part, OpaqueValue) and not part.kind]
        others = [part for part in (left, right) if part not in unknown]
        if not unknown or any(
            not isinstance(part, NumberValue | TimeValue | TextValue | OpaqueValue) for part in others
        ):
            self.fail("type_error")
            return FALSE
        self.fail("type_error", self.open_condition(unknown[0].why))
        return self.open_condition(unknown[0].why)

    def equal(self, left: SymbolicValue, right: SymbolicValue) -> Term:
        if left is right:
            return TRUE
        match left, right:
            case ValueChoice(), _:
                return disj(*(conj(guard, self.equal(part, right)) for guard, part in left.options))
            case _, ValueChoice():
                return disj(*(conj(guard, self.equal(left, part)) for guard, part in right.options))
            case NullValue(), NullValue():
                return TRUE
            case TruthValue(), TruthValue():
                return z3.simplify(left.term == right.term)
            case NumberValue(), NumberValue():
                return self.numbers.equal(left, right)
            case TextValue(), TextValue():
                return z3.simplify(left.term == right.term)
            case TimeValue(), TimeValue():
                return self.numbers.equal(left.number, right.number)
            case RecordValue(), RecordValue():
                if set(left.fields) != set(right.fields):
                    return FALSE
                return conj(*(self.equal(left.fields[name], right.fields[name]) for name in left.fields))
        kinds = {_kind(left), _kind(right)}
        if len(kinds) > 1 and "" not in kinds:
            return FALSE
        return self.open_condition("the equality of lists, maps or values of any kind")

    def is_member(self, item: SymbolicValue, collection: SymbolicValue) -> Term:
        match collection:
            case NullValue():
                return FALSE
            case RecordValue():
                return disj(*(self.equal(item, self.constant(name)) for name in collection.fields))
            case ListItems():
                return disj(*(conj(here, self.equal(item, part)) for here, part in collection.items))
            case ListComprehension():
                return self.exists(collection, lambda part: self.equal(item, part))
            case TextValue() if isinstance(item, TextValue):
                return z3.simplify(z3.Contains(collection.term, item.term))
            case TextValue() if isinstance(item, OpaqueValue) and item.kind == "string":
                return self.open_condition(item.why)
            case TextValue() if isinstance(item, OpaqueValue) and not item.kind:
                self.fail("type_error", self.open_condition(item.why))
                return self.open_condition(item.why)
            case OpaqueValue(kind=kind) if kind in ("list", "set", "map"):
                return self.open_condition(collection.why)
            case OpaqueValue(kind=kind) if kind in ("", "string"):
                self.fail("type_error", self.open_condition(collection.why))
                return self.open_condition(collection.why)
        self.fail("type_error")
        return FALSE

    def exists(self, values: ListComprehension, condition: Callable[[SymbolicValue], Term]) -> Term:
        raise NotImplementedError

    def _logic(self, expression: ir.Logic, env: Env) -> SymbolicValue:
        left = self.is_true(expression.left, env)

        def right() -> SymbolicValue:
            return TruthValue(self.is_true(expression.right, env))

        match expression.operator:
            case "and":
                return self.branch(left, right, lambda: TruthValue(FALSE))
            case "or":
                return self.branch(left, lambda: TruthValue(TRUE), right)
        return self.branch(left, right, lambda: TruthValue(TRUE))

    # ------------------------------------------------------------ texts and functions

    def _template(self, expression: ir.TemplateText, env: Env) -> SymbolicValue:
        parts = [
            self.constant(part) if isinstance(part, str) else self.evaluate(part, env) for part in expression.parts
        ]
        texts = [self.per_kind(self.render_text, part) for part in parts]
        if not all(isinstance(text, TextValue) for text in texts):
            return OpaqueValue("a text that is not modelled", "string")
        terms = [text.term for text in texts if isinstance(text, TextValue)]
        return TextValue(terms[0] if len(terms) == 1 else z3.Concat(*terms)) if terms else TextValue(z3.StringVal(""))

    def render_text(self, value: SymbolicValue) -> SymbolicValue:
        """Return a value as the text that a template makes of it."""
        match value:
            case NullValue() | UnsetValue():
                return TextValue(z3.StringVal(""))
            case TextValue():
                return value
            case TruthValue():
                return TextValue(ite(value.term, z3.StringVal("true"), z3.StringVal("false")))
            case NumberValue():
                # The text of a decimal depends on its digits, too: each has one of its own here.
                key = value.term if value.whole else self.numbers.name("decimal")
                return TextValue(self.compute_once(("text", key), lambda: self._write_number(value)))
            case TimeValue():
                return TextValue(
                    self.compute_once(("time", value.number.term), lambda: self._open_text("times in texts"))
                )
            case OpaqueValue(kind="string"):
                return value
            case OpaqueValue(kind=""):
                self.fail("type_error", self.open_condition(value.why))
                return OpaqueValue(value.why, "string")
        self.fail("type_error")
        return TextValue(z3.StringVal(""))

    def _open_text(self, why: str) -> Term:
        text = self.numbers.fresh_text()
        self.approximate(why, text)
        return text

    def _write_number(self, number: NumberValue) -> Term:
        text = self._open_text("numbers in texts")
        if number.whole:
            render_whole(self, number, text)
        return text

    def _call(self, expression: ir.FunctionCall, env: Env) -> SymbolicValue:
        function = expression.function
        values = [self.evaluate(part, env) for part in expression.arguments]
        if function == "current_timestamp":
            return TimeValue(self.now)
        if function == "current_year":
            return part_of_local(self, self.now, "year")
        known = _FUNCTIONS.get(function)
        if known is None:
            return self.any_of(f"the function {function}, which the prover does not know")
        return self.per_kind(lambda *parts: known(self, parts), *values)

    def better_of(self, function: str, best: SymbolicValue, item: SymbolicValue) -> SymbolicValue:
        """Return the lesser or the greater of two values, the first of equal ones."""
        is_better = self.less(item, best) if function == "min" else self.less(best, item)
        return self.branch(is_better, lambda: item, lambda: best)


def _kind(value: SymbolicValue) -> str:
    match value:
        case OpaqueValue():
            return value.kind
        case RecordValue():
            return "map"
        case ListItems() | ListComprehension():
            return "list"
        case TextValue():
            return "string"
    return type(value).__name__


_FUNCTIONS: Final[dict[str, Callable[[Any, tuple[SymbolicValue, ...]], SymbolicValue]]] = {
    "len": lambda walk, parts: walk.length(parts[0]),
    **LIST_CALLS,
    **NUMBER_CALLS,
    **TEXT_CALLS,
    **TIME_CALLS,
}
