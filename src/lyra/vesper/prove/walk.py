"""The walk over expressions with symbolic values, shaped like the reference evaluator.

`here` is the condition under which the walk is where it is. What can fail is noted in `raised` with its condition, code
and site, and `here` excludes it from then on. A function that is not in the table, a text in an order and the like give
an `Opaque` value, or an open truth value, and `approximations` says so: such a value may be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, Final

import z3

from lyra.vesper import ir
from lyra.vesper.prove.numbers import Numbers, constant_parts
from lyra.vesper.prove.texts import pattern_condition, text_constant
from lyra.vesper.prove.values import (
    FALSE,
    NULL,
    TRUE,
    Bool,
    Choice,
    Comprehension,
    Items,
    Null,
    Num,
    Opaque,
    Record,
    Term,
    Text,
    Time,
    Unset,
    Unsupported,
    Value,
    choose,
    conj,
    disj,
    ite,
    negate,
    options,
)
from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX

Env = Mapping[str, Value]
UNJUDGED: Final = "unjudged"  # a name that the host did not supply
UNKNOWN: Final = "unknown"  # any failure
_EVALUATIONS_MAX: Final = 40_000
_OPTIONS_MAX: Final = 64
_COMPARISONS_MAX: Final = 60


class Walk:
    """Evaluates expressions; `lists.Lists` and `flow.Flow` are built on it."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.here: Term = TRUE
        self.raised: list[tuple[Term, str, str]] = []  # failures: condition, code and site
        self.ends: list[Any] = []  # answers of the node, see flow
        self.reached: list[tuple[str, Term]] = []  # steps, and when they are reached
        self.comparisons: list[tuple[Term, Num, Num]] = []  # orders of numbers, and where they are asked for
        self.site = ""
        self.olds: list[tuple[Value, list[tuple[Term, str, str]]]] = []
        self.approximations: set[str] = set()
        self._evaluations = 0
        self._texts: dict[Any, tuple[Term, Any]] = {}  # with what must be kept, so that its id stays its own
        self.now = numbers.fresh("now", whole=True)

    # ------------------------------------------------------------ conditions and failures

    def fail(self, code: str, guard: Term = TRUE) -> None:
        """Note that the execution fails here where `guard` holds, and go on where it does not."""
        condition = conj(self.here, guard)
        if not z3.is_false(condition):
            self.raised.append((condition, code, self.site))
            self.here = conj(self.here, negate(guard))

    def open_condition(self, why: str) -> Term:
        self.approximations.add(why)
        return self.numbers.fresh_bool("open")

    def choose(self, pairs: Any) -> Value:
        value = choose(pairs, self.numbers.align)
        if isinstance(value, Choice) and len(value.options) > _OPTIONS_MAX:
            raise Unsupported("a value of too many kinds")
        return value

    def each(self, function: Callable[..., Value], *values: Value) -> Value:
        """Return the function of plain values, for each combination of what the values may be."""
        if not any(isinstance(value, Choice) for value in values):
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

    def branch(self, condition: Term, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
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
        """Return what the function gives; its failures are possible where the condition holds only."""
        entry = self.here
        self.here = start = conj(entry, condition)
        result = function()
        self.here = entry if self.here is start else disj(conj(entry, negate(condition)), self.here)
        return result

    def truth(self, value: Value) -> Term:
        """Return the condition that a value is true; null is false, other values are type errors."""

        def plain(part: Value) -> Value:
            match part:
                case Bool():
                    return part
                case Null() | Unset():
                    return Bool(FALSE)
                case Opaque(kind=""):
                    self.fail("type_error", self.open_condition(part.why))
                    return Bool(self.open_condition(part.why))
            self.fail("type_error")
            return Bool(FALSE)

        result = self.each(plain, value)
        assert isinstance(result, Bool) or result is NULL
        return z3.simplify(result.term) if isinstance(result, Bool) else FALSE

    def is_true(self, expression: ir.TypedExpression, env: Env) -> Term:
        return self.truth(self.evaluate(expression, env))

    def quietly(self, function: Callable[[], Any], here: Term = TRUE) -> tuple[Any, Term, list[tuple[Term, str, str]]]:
        """Return what the function gives, the condition that it did not fail, and its failures; the walk stays."""
        kept = self.here, self.raised, self.ends, self.reached
        self.here, self.raised, self.ends, self.reached = here, [], [], []
        try:
            return function(), self.here, self.raised
        finally:
            self.here, self.raised, self.ends, self.reached = kept

    # ------------------------------------------------------------ expressions

    def evaluate(self, expression: ir.TypedExpression, env: Env) -> Value:
        self._evaluations += 1
        if self._evaluations > _EVALUATIONS_MAX:
            raise Unsupported("the node has too many parts")
        match expression:
            case ir.Constant():
                return self.constant(expression.value)
            case ir.NodeVariable():
                return self.lookup(expression.name, env)
            case ir.FieldOf() | ir.Projection():
                is_projection = isinstance(expression, ir.Projection)
                target = self.evaluate(expression.target, env)
                return self.each(lambda part: self.field(part, expression.name, is_projection=is_projection), target)
            case ir.ItemOf():
                target, index = self.evaluate(expression.target, env), self.evaluate(expression.index, env)
                return self.each(self.item, target, index)
            case ir.Length():
                return self.each(self.length, self.evaluate(expression.target, env))
            case ir.Negate():
                return self.each(self.negated, self.evaluate(expression.operand, env))
            case ir.Not():
                return Bool(negate(self.is_true(expression.operand, env)))
            case ir.Arithmetic():
                left, right = self.evaluate(expression.left, env), self.evaluate(expression.right, env)
                return self.each(lambda a, b: self.arithmetic(expression.operator, a, b), left, right)
            case ir.Rounded():
                return self._rounded(expression, env)
            case ir.Compare():
                left, right = self.evaluate(expression.left, env), self.evaluate(expression.right, env)
                return self.each(lambda a, b: Bool(self.compare(expression.operator, a, b)), left, right)
            case ir.Membership():
                item, collection = self.evaluate(expression.item, env), self.evaluate(expression.collection, env)
                return self.each(lambda a, b: Bool(self.is_member(a, b)), item, collection)
            case ir.IsNull():
                return self.each(self._is_null, self.evaluate(expression.operand, env))
            case ir.Logic():
                return self._logic(expression, env)
            case ir.Old():
                value, raised = self.olds[expression.slot]
                for condition, code, _ in raised:
                    self.fail(code, condition)
                return value
            case ir.MapOf():
                return Record({name: self.evaluate(part, env) for name, part in expression.entries})
            case ir.ListOf():
                return Items(tuple((TRUE, self.evaluate(item, env)) for item in expression.items))
            case ir.TemplateText():
                return self._template(expression, env)
            case ir.FunctionCall():
                return self._call(expression, env)
            case ir.Host():
                self.fail(UNJUDGED, self.open_condition(f"the predicate {expression.name} of the embedding program"))
                self.fail(UNKNOWN, self.numbers.fresh_bool())
                return Opaque(f"the predicate {expression.name} of the embedding program")
        return self.collection(expression, env)

    def collection(self, expression: ir.TypedExpression, env: Env) -> Value:
        """Return the value of an expression over the elements of a list; lists.Lists has them."""
        raise NotImplementedError

    def constant(self, value: Any) -> Value:
        match value:
            case None:
                return NULL
            case bool():
                return Bool(z3.BoolVal(value))
            case str():
                term = text_constant(value)
                return Opaque("a text with rare characters", "string") if term is None else Text(term)
        try:
            constant_parts(value)
        except (AttributeError, TypeError, ValueError):
            return Opaque("a constant that is no number and no text")
        return self.numbers.constant(value)

    def lookup(self, name: str, env: Env) -> Value:
        if name not in env:
            self.fail(UNJUDGED)
            return NULL
        value = env[name]
        if isinstance(value, Opaque) and value.why.startswith("`"):  # what the caller supplies may be missing
            self.fail(UNJUDGED, self.open_condition(value.why))
        return self.each(lambda part: NULL if isinstance(part, Unset) else part, value)

    def any_of(self, why: str, *, may_fail: bool = True) -> Opaque:
        if may_fail:
            self.fail(UNKNOWN, self.open_condition(why))
        self.approximations.add(why)
        return Opaque(why)

    def field(self, target: Value, name: str, *, is_projection: bool = False) -> Value:
        match target:
            case Null():
                return NULL
            case Record() if not is_projection:
                return target.fields.get(name, NULL)
            case Items() | Comprehension():
                return self.mapped(target, lambda part: self.each(lambda plain: self.field(plain, name), part))
            case Opaque(kind=kind) if kind in ("", "map", "list"):
                return self.any_of(target.why)
        self.fail("type_error")
        return NULL

    def mapped(self, values: Items | Comprehension, function: Callable[[Value], Value]) -> Value:
        raise NotImplementedError

    def item(self, target: Value, index: Value) -> Value:
        raise NotImplementedError

    def length(self, target: Value) -> Value:
        match target:
            case Null():
                return NULL
            case Text():
                return self.numbers.of_length(z3.Length(target.term))
            case Record():
                return self.numbers.constant(len(target.fields))
            case Items():
                return self.count(target)
            case Comprehension():
                return self.count(target)
            case Opaque(kind="" as kind) | Opaque(kind=kind):
                if not kind:
                    return self.any_of(target.why)
                self.approximations.add(target.why)
                number = self.numbers.fresh("length", whole=True)
                self.numbers.axioms.append(self.numbers.at_most(self.numbers.constant(0), number))
                return number
        self.fail("type_error")
        return NULL

    def count(self, target: Items | Comprehension) -> Num:
        raise NotImplementedError

    # ------------------------------------------------------------ numbers

    def negated(self, value: Value) -> Value:
        return self.arithmetic("-", self.numbers.constant(0), value)

    def checked(self, number: Num) -> Num:
        """Return the result of an operation, which fails where it overflows."""
        self.fail("overflow", self.numbers.overflow(number))
        return number

    def arithmetic(self, operator: str, left: Value, right: Value) -> Value:
        if operator == "+" and isinstance(left, Text) and isinstance(right, Text):
            return Text(z3.Concat(left.term, right.term))
        texts = [
            isinstance(part, Text) or (isinstance(part, Opaque) and part.kind == "string") for part in (left, right)
        ]
        if operator == "+" and all(texts):
            return Opaque("a text that is not modelled", "string")
        for part in (left, right):
            if not isinstance(part, Num | Opaque) or (isinstance(part, Opaque) and part.kind):
                self.fail("type_error")
                return NULL
        if not isinstance(left, Num) or not isinstance(right, Num):
            return self.any_of(next(part.why for part in (left, right) if isinstance(part, Opaque)))
        match operator:
            case "+":
                return self.checked(self.numbers.add(left, right))
            case "-":
                return self.checked(self.numbers.subtract(left, right))
            case "*":
                return self.checked(self.numbers.multiply(left, right))
        self.fail("division_by_zero", self.numbers.is_zero(right))
        if z3.is_false(self.here):
            return NULL
        if operator == "%":
            return self.checked(self.numbers.remainder(left, right))
        results = self.numbers.divide(left, right)
        return self.each(self.checked, self.choose(results)) if results else NULL

    def _rounded(self, expression: ir.Rounded, env: Env) -> Value:
        operand = expression.operand
        scale = self.numbers.constant(expression.scale)
        if not (isinstance(operand, ir.Arithmetic) and operand.operator == "/"):
            value = self.evaluate(operand, env)
            return self.each(lambda part: self.round(part, scale, expression.rounding), value)

        def divided(left: Value, right: Value) -> Value:
            if not isinstance(left, Num) or not isinstance(right, Num):
                return self.arithmetic("/", left, right)  # the same failures
            self.fail("division_by_zero", self.numbers.is_zero(right))
            if z3.is_false(self.here):
                return NULL
            return self.checked(self.numbers.round_quotient(left, right, expression.scale, expression.rounding))

        return self.each(divided, self.evaluate(operand.left, env), self.evaluate(operand.right, env))

    def round(self, value: Value, scale: Value, rounding: str) -> Value:
        if isinstance(value, Opaque) and not value.kind:
            return self.any_of(value.why)
        if not isinstance(value, Num) or not isinstance(scale, Num) or not scale.whole:
            self.fail("type_error")
            return NULL
        term = z3.simplify(scale.term)
        if not (z3.is_int_value(term) or z3.is_rational_value(term)):
            return self.any_of("a scale that is not constant")
        digits = int(term.as_long() if z3.is_int_value(term) else term.as_fraction())
        if not 0 <= digits <= DECIMAL_DIGITS_MAX:
            self.fail("type_error")
            return NULL
        return self.checked(self.numbers.round_quotient(value, None, digits, rounding))

    # ------------------------------------------------------------ comparisons

    def _is_null(self, value: Value) -> Value:
        if isinstance(value, Opaque) and not value.kind:
            return Bool(self.open_condition(value.why))
        return Bool(z3.BoolVal(isinstance(value, Null)))

    def compare(self, operator: str, left: Value, right: Value) -> Term:
        match operator:
            case "==":
                return self.equal(left, right)
            case "!=":
                return negate(self.equal(left, right))
        if isinstance(left, Null) or isinstance(right, Null):
            return FALSE
        if isinstance(left, Num) and isinstance(right, Num) and len(self.comparisons) < _COMPARISONS_MAX:
            self.comparisons.append((self.here, left, right))
        if operator in ("<=", ">="):
            return negate(self.less(*((right, left) if operator == "<=" else (left, right))))
        return self.less(*((left, right) if operator == "<" else (right, left)))

    def less(self, left: Value, right: Value) -> Term:
        match left, right:
            case Num(), Num():
                return self.numbers.less(left, right)
            case Time(), Time():
                return self.numbers.less(left.number, right.number)
        is_text = [
            isinstance(part, Text) or (isinstance(part, Opaque) and part.kind == "string") for part in (left, right)
        ]
        if all(is_text):
            return self.open_condition("the order of texts")
        unknown = [part for part in (left, right) if isinstance(part, Opaque) and not part.kind]
        others = [part for part in (left, right) if part not in unknown]
        if not unknown or any(not isinstance(part, Num | Time | Text | Opaque) for part in others):
            self.fail("type_error")
            return FALSE
        self.fail("type_error", self.open_condition(unknown[0].why))
        return self.open_condition(unknown[0].why)

    def equal(self, left: Value, right: Value) -> Term:
        if left is right:
            return TRUE
        match left, right:
            case Choice(), _:
                return disj(*(conj(guard, self.equal(part, right)) for guard, part in left.options))
            case _, Choice():
                return disj(*(conj(guard, self.equal(left, part)) for guard, part in right.options))
            case Null(), Null():
                return TRUE
            case Bool(), Bool():
                return z3.simplify(left.term == right.term)
            case Num(), Num():
                return self.numbers.equal(left, right)
            case Text(), Text():
                return z3.simplify(left.term == right.term)
            case Time(), Time():
                return self.numbers.equal(left.number, right.number)
            case Record(), Record():
                if set(left.fields) != set(right.fields):
                    return FALSE
                return conj(*(self.equal(left.fields[name], right.fields[name]) for name in left.fields))
        kinds = {_kind(left), _kind(right)}
        if len(kinds) > 1 and "" not in kinds:
            return FALSE
        return self.open_condition("the equality of lists, maps or values of any kind")

    def is_member(self, item: Value, collection: Value) -> Term:
        match collection:
            case Null():
                return FALSE
            case Record():
                return disj(*(self.equal(item, self.constant(name)) for name in collection.fields))
            case Items():
                return disj(*(conj(here, self.equal(item, part)) for here, part in collection.items))
            case Comprehension():
                return self.exists(collection, lambda part: self.equal(item, part))
            case Text() if isinstance(item, Text):
                return z3.simplify(z3.Contains(collection.term, item.term))
            case Text() if isinstance(item, Opaque) and item.kind == "string":
                return self.open_condition(item.why)
            case Text() if isinstance(item, Opaque) and not item.kind:
                self.fail("type_error", self.open_condition(item.why))
                return self.open_condition(item.why)
            case Opaque(kind=kind) if kind in ("list", "set", "map"):
                return self.open_condition(collection.why)
            case Opaque(kind=kind) if kind in ("", "string"):
                self.fail("type_error", self.open_condition(collection.why))
                return self.open_condition(collection.why)
        self.fail("type_error")
        return FALSE

    def exists(self, values: Comprehension, condition: Callable[[Value], Term]) -> Term:
        raise NotImplementedError

    def _logic(self, expression: ir.Logic, env: Env) -> Value:
        left = self.is_true(expression.left, env)

        def right() -> Value:
            return Bool(self.is_true(expression.right, env))

        match expression.operator:
            case "and":
                return self.branch(left, right, lambda: Bool(FALSE))
            case "or":
                return self.branch(left, lambda: Bool(TRUE), right)
        return self.branch(left, right, lambda: Bool(TRUE))

    # ------------------------------------------------------------ texts and functions

    def _template(self, expression: ir.TemplateText, env: Env) -> Value:
        parts = [
            self.constant(part) if isinstance(part, str) else self.evaluate(part, env) for part in expression.parts
        ]
        texts = [self.each(self.shown, part) for part in parts]
        if not all(isinstance(text, Text) for text in texts):
            return Opaque("a text that is not modelled", "string")
        terms = [text.term for text in texts if isinstance(text, Text)]
        return Text(terms[0] if len(terms) == 1 else z3.Concat(*terms)) if terms else Text(z3.StringVal(""))

    def shown(self, value: Value) -> Value:
        """Return a value as the text that a template makes of it."""
        match value:
            case Null() | Unset():
                return Text(z3.StringVal(""))
            case Text():
                return value
            case Bool():
                return Text(ite(value.term, z3.StringVal("true"), z3.StringVal("false")))
            case Num():
                # The text of a decimal depends on its digits, too: each has one of its own here.
                key = ("number", value.term.get_id() if value.whole else self.numbers.name("decimal"))
                return Text(self._open_text(key, value.term, "numbers in texts"))
            case Time():
                return Text(self._open_text(("time", value.number.term.get_id()), value.number.term, "times in texts"))
            case Opaque(kind="string"):
                return value
            case Opaque(kind=""):
                self.fail("type_error", self.open_condition(value.why))
                return Opaque(value.why, "string")
        self.fail("type_error")
        return Text(z3.StringVal(""))

    def _open_text(self, key: Any, kept: Any, why: str) -> Term:
        """Return a text of which only its origin is known: the same for the same key."""
        self.approximations.add(why)
        if key not in self._texts:
            self._texts[key] = self.numbers.fresh_text(), kept
        return self._texts[key][0]

    def _call(self, expression: ir.FunctionCall, env: Env) -> Value:
        function = expression.function
        values = [self.evaluate(part, env) for part in expression.arguments]
        if function == "current_timestamp":
            return Time(self.now)
        if function == "current_year":
            self.approximations.add("the present year")
            return self.numbers.fresh("year", whole=True)
        known = _FUNCTIONS.get(function)
        if known is None:
            return self.any_of(f"the function {function}, which the prover does not know")
        return self.each(lambda *parts: known(self, parts), *values)

    def absolute(self, parts: tuple[Value, ...]) -> Value:
        (value,) = parts
        if isinstance(value, Opaque) and not value.kind:
            return self.any_of(value.why)
        if not isinstance(value, Num):
            self.fail("type_error")
            return NULL
        number = value
        below = self.numbers.less(number, self.numbers.constant(0))
        return self.branch(below, lambda: self.negated(number), lambda: number)

    def of_texts(self, function: str, parts: tuple[Value, ...]) -> Value:
        """Return the value of a function that takes texts only."""
        for part in parts:
            if isinstance(part, Opaque) and not part.kind:
                self.fail("type_error", self.open_condition(part.why))
            elif not isinstance(part, Text) and not (isinstance(part, Opaque) and part.kind == "string"):
                self.fail("type_error")
                return NULL
        terms = [part.term for part in parts if isinstance(part, Text)]
        is_plain = len(terms) == len(parts)
        if is_plain and function == "starts_with":
            return Bool(z3.simplify(z3.PrefixOf(terms[1], terms[0])))
        if is_plain and function == "ends_with":
            return Bool(z3.simplify(z3.SuffixOf(terms[1], terms[0])))
        if function == "matches":
            key = ("matches", *(term.get_id() for term in terms))
            if is_plain and key not in self._texts:
                self._texts[key] = pattern_condition(terms[0], z3.simplify(terms[1])), terms
            if is_plain and self._texts[key][0] is not None:
                return Bool(self._texts[key][0])
            self.fail("type_error", self.open_condition("a pattern that is not modelled"))
        if function in ("lower", "upper", "trim"):
            if not is_plain:
                return Opaque(f"the function {function}", "string")
            return Text(self._open_text((function, terms[0].get_id()), terms[0], f"the function {function}"))
        return Bool(self.open_condition(f"the function {function}"))


def _kind(value: Value) -> str:
    match value:
        case Opaque():
            return value.kind
        case Record():
            return "map"
        case Items() | Comprehension():
            return "list"
        case Text():
            return "string"
    return type(value).__name__


_FUNCTIONS: Final[dict[str, Callable[[Walk, tuple[Value, ...]], Value]]] = {
    "len": lambda walk, parts: walk.length(parts[0]),
    "abs": Walk.absolute,
    "round": lambda walk, parts: walk.round(parts[0], parts[1], "half_even"),
    **{
        name: lambda walk, parts, name=name: walk.of_texts(name, parts)  # type: ignore[misc]
        for name in ("lower", "upper", "trim", "starts_with", "ends_with", "matches")
    },
}
