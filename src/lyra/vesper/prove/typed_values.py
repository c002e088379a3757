"""Symbolic values by their declared types: inputs, and what a node computed as an output or a field.

Expressions over the elements of lists (quantifiers, aggregates, transforms) are walked here, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
import z3

from lyra.vesper import ir
from lyra.vesper.prove.folds import FoldWalk, State, terms_of
from lyra.vesper.prove.texts import text_constant
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
    SourceElement,
    SymbolicValue,
    Term,
    TextValue,
    TimeValue,
    TruthValue,
    UnsetValue,
    ValueChoice,
    conj,
    disj,
    implies,
    ite,
    microseconds,
    negate,
    options,
)
from lyra.vesper.prove.walk import UNKNOWN, Env
from lyra.vesper.values.types import (
    ANY,
    STRING,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordType,
    Scalar,
    SetType,
    ValueType,
)


class ListWalk(FoldWalk):
    """Evaluates the expressions over elements."""

    # ------------------------------------------------------------ expressions

    def collection(self, expression: ir.TypedExpression, env: Env) -> SymbolicValue:
        match expression:
            case ir.Quantifier():
                return self._quantifier(expression, env)
            case ir.Aggregate():
                return self.aggregate(expression.function, self.elements(expression.collection, env))
            case ir.MapOver():
                values = self.elements(expression.collection, env)
                return self.map_elements(
                    values, lambda part: self.evaluate(expression.body, {**env, expression.name: part})
                )
            case ir.Filter():
                values = self.elements(expression.collection, env)
                return self.filter_elements(
                    values, lambda part: self.is_true(expression.body, {**env, expression.name: part})
                )
            case ir.Reduce():
                return self._reduce(expression, env)
            case ir.GroupBy():
                return self._group_by(expression, env)
            case ir.MatrixProduct():
                return self._matrix_product(expression, env)
        return self.any_of(f"the expression {type(expression).__name__}, which the prover does not know")

    def elements(self, expression: ir.TypedExpression, env: Env) -> ListItems | ListComprehension:
        """Return a list to walk through; what is no list is a type error."""
        value = self.evaluate(expression, env)
        if isinstance(value, ValueChoice):
            lists = [(guard, part) for guard, part in value.options if isinstance(part, ListItems | ListComprehension)]
            self.per_kind(self.to_list, value)
            is_known = not any(isinstance(part, OpaqueValue) for _, part in value.options)
            if len(lists) == 1 and is_known:
                return lists[0][1]  # the others have failed
            if lists and is_known and all(isinstance(part, ListItems) for _, part in lists):
                parts = [(conj(guard, here), item) for guard, part in lists for here, item in part.items]  # type: ignore[union-attr]
                return ListItems(tuple(parts))
            return self.take_all(self.new_source(lambda: self.any_of("one of several lists", may_fail=False)))
        return self.to_list(value)

    def to_list(self, value: SymbolicValue) -> ListItems | ListComprehension:
        match value:
            case ListItems() | ListComprehension():
                return value
            case OpaqueValue(kind="" | "list" | "set"):
                if not value.kind:
                    self.fail("type_error", self.open_condition(value.why))
                self.approximate(value.why)
                why = value.why
                return self.take_all(self.new_source(lambda: OpaqueValue(why)))
        self.fail("type_error")
        return ListItems(())

    def map_elements(
        self, values: ListItems | ListComprehension, function: Callable[[SymbolicValue], SymbolicValue]
    ) -> ListItems | ListComprehension:
        if isinstance(values, ListItems):
            parts = [(here, self.under(here, lambda item=item: function(item))) for here, item in values.items]  # type: ignore[misc]
            return ListItems(tuple(parts))
        self.fail_for_some(values, function)

        def stage(element: SourceElement) -> tuple[Term, SymbolicValue]:
            present, value = self.stage_of(values, element)
            return present, self.pure(lambda: function(value))[0]

        return ListComprehension(values.source, stage)

    def filter_elements(
        self, values: ListItems | ListComprehension, condition: Callable[[SymbolicValue], Term]
    ) -> ListItems | ListComprehension:
        if isinstance(values, ListItems):
            parts = []
            for here, item in values.items:
                holds = self.under(here, lambda item=item: condition(item))  # type: ignore[misc]
                parts.append((conj(here, holds), item))
            return ListItems(tuple(parts))
        self.fail_for_some(values, lambda part: TruthValue(condition(part)))

        def stage(element: SourceElement) -> tuple[Term, SymbolicValue]:
            present, value = self.stage_of(values, element)
            return conj(present, self.pure(lambda: condition(value))[0]), value

        return ListComprehension(values.source, stage)

    def fail_for_some(self, values: ListComprehension, function: Callable[[SymbolicValue], Any]) -> None:
        """Fail where the function fails for any element; afterwards assume that it fails for none."""
        _, present, value = self.walk_element(values)
        self.under(present, lambda: function(value))
        here = self.here

        def no_failure(element: SourceElement) -> Term:
            present, value = self.stage_of(values, element)
            return implies(conj(here, present), self.pure(lambda: function(value))[1])

        self.learn(values.source, no_failure)

    def exists(self, values: ListComprehension, condition: Callable[[SymbolicValue], Term]) -> Term:
        return self._for_some(values, condition)

    def _for_some(self, values: ListComprehension, condition: Callable[[SymbolicValue], Term]) -> Term:
        """Return whether the condition holds for one element; where it holds, there is an element that shows it."""
        _, present, value = self.walk_element(values)
        holds = self.under(present, lambda: condition(value))
        here, result = self.here, self.numbers.fresh_bool("some")
        self.numbers.axioms.append(implies(conj(here, result), conj(present, holds)))

        def not_this(element: SourceElement) -> Term:
            present, value = self.stage_of(values, element)
            holds, ends = self.pure(lambda: condition(value))
            return implies(conj(here, negate(result), present), conj(ends, negate(holds)))

        self.learn(values.source, not_this)
        return result

    def _quantifier(self, expression: ir.Quantifier, env: Env) -> SymbolicValue:
        values = self.elements(expression.collection, env)

        def holds(part: SymbolicValue) -> Term:
            return self.is_true(expression.body, {**env, expression.name: part})

        is_all = expression.kind == "forall"
        if isinstance(values, ListComprehension):
            if is_all:
                return TruthValue(negate(self._for_some(values, lambda part: negate(holds(part)))))
            return TruthValue(self._for_some(values, holds))
        decided = FALSE  # an earlier element was false for FORALL, true for EXISTS
        for present, item in values.items:
            judged = conj(present, negate(decided))
            truth = self.under(judged, lambda item=item: holds(item))  # type: ignore[misc]
            decided = disj(decided, conj(present, negate(truth) if is_all else truth))
        return TruthValue(negate(decided) if is_all else decided)

    # ------------------------------------------------------------ aggregates

    def count(self, target: ListItems | ListComprehension) -> NumberValue:
        numbers = self.numbers
        if isinstance(target, ListItems):
            total = numbers.constant(0)
            for present, _ in target.items:
                unit = numbers.constant(1)
                total = (
                    unit
                    if z3.is_true(present) and z3.is_true(z3.simplify(total.term == 0))
                    else numbers.add(total, NumberValue(ite(present, unit.term, numbers.constant(0).term), True))
                )
            return NumberValue(z3.simplify(total.term), True)
        element = self.canonical(target.source)
        present, _ = self.stage_of(target, element)
        if z3.is_true(z3.simplify(present)):
            return target.source.length
        unit, zero = numbers.constant(1), numbers.constant(0)
        return self.sum_over(target.source, NumberValue(ite(present, unit.term, zero.term), True))

    def aggregate(self, function: str, values: ListItems | ListComprehension) -> SymbolicValue:
        if function == "count":
            return self.count(values)
        if isinstance(values, ListComprehension):
            return self._aggregate_all(function, values)
        not_null = self.filter_elements(values, lambda part: negate(self.truth(self._is_null(part))))
        assert isinstance(not_null, ListItems)
        if function in ("sum", "avg"):
            total: SymbolicValue = self.numbers.constant(0)
            for present, item in not_null.items:
                total = self.branch(
                    present,
                    lambda total=total, item=item: self.per_kind(lambda a, b: self.arithmetic("+", a, b), total, item),  # type: ignore[misc]
                    lambda total=total: total,  # type: ignore[misc]
                )
            if function == "sum":
                return total
            count = self.count(not_null)
            return self.branch(
                self.numbers.is_zero(count),
                lambda: NULL,
                lambda: self.per_kind(lambda a: self.arithmetic("/", a, count), total),
            )
        best: SymbolicValue = NULL
        for present, item in not_null.items:
            best = self.branch(
                present,
                lambda best=best, item=item: self.per_kind(
                    lambda a, b: self._better_element(function, a, b), best, item
                ),  # type: ignore[misc]
                lambda best=best: best,  # type: ignore[misc]
            )
        return best

    def _better_element(self, function: str, best: SymbolicValue, item: SymbolicValue) -> SymbolicValue:
        self.less(item, item)  # of a kind that has an order
        return item if isinstance(best, NullValue) else self.better_of(function, best, item)

    def _aggregate_all(self, function: str, values: ListComprehension) -> SymbolicValue:
        """Return the aggregate of a list of any length."""
        source, numbers = values.source, self.numbers
        if function in ("min", "max"):
            return self._extreme(function, values)
        self.fail_for_some(values, lambda part: self.per_kind(self._summand, part))
        present, value = self.stage_of(values, self.canonical(source))
        numbers_of = [(guard, part) for guard, part in options(value) if isinstance(part, NumberValue)]
        if any(isinstance(part, OpaqueValue) for _, part in options(value)):
            return self.any_of("a sum of values of any kind")
        if not numbers_of:
            return numbers.constant(0) if function == "sum" else NULL
        term = numbers.constant(0)
        for guard, part in numbers_of:
            left, right = numbers.align(part, term)
            scale = None if left.scale is None or right.scale is None else left.scale
            scale = max(left.scale or 0, right.scale or 0) if scale is not None else None
            whole = all(number.whole for _, number in numbers_of)
            term = NumberValue(ite(conj(present, guard), left.term, right.term), whole, scale)
        total = self.sum_over(source, term)
        self.fail("overflow", self._partial_overflow(source, term, total))
        some = self._for_some(
            values, lambda part: disj(*(guard for guard, n in options(part) if isinstance(n, NumberValue)))
        )
        numbers.axioms.append(implies(negate(disj(some, negate(self.here))), numbers.is_zero(total)))
        zero = numbers.constant(0)
        if function == "sum":
            return total if total.whole else self.choose(((some, total), (negate(some), zero)))
        count_term = disj(*(guard for guard, _ in numbers_of))
        count = self.sum_over(
            source, NumberValue(ite(conj(present, count_term), numbers.constant(1).term, zero.term), True)
        )
        return self.branch(some, lambda: self.arithmetic("/", total, count), lambda: NULL)

    def _summand(self, value: SymbolicValue) -> SymbolicValue:
        if not isinstance(value, NumberValue | NullValue):
            self.fail("type_error", self.open_condition(value.why) if isinstance(value, OpaqueValue) else TRUE)
        return NULL

    def _extreme(self, function: str, values: ListComprehension) -> SymbolicValue:
        self.fail_for_some(values, lambda part: self.per_kind(self._require_order, part))
        _, present, value = self.walk_element(values)
        if not all(isinstance(part, NumberValue | TimeValue | NullValue) for _, part in options(value)):
            return self.any_of("the least or greatest of values that are no numbers")
        is_value = disj(*(guard for guard, part in options(value) if not isinstance(part, NullValue)))
        some = self._for_some(values, lambda part: disj(*(g for g, n in options(part) if not isinstance(n, NullValue))))
        here = self.here
        self.numbers.axioms.append(implies(conj(here, some), conj(present, is_value)))

        def not_better(element: SourceElement) -> Term:
            other_present, other = self.stage_of(values, element)
            worse = self.pure(
                lambda: disj(
                    *(
                        conj(g, h, self.less(b, a) if function == "min" else self.less(a, b))
                        for g, a in options(value)
                        for h, b in options(other)
                        if not isinstance(a, NullValue) and not isinstance(b, NullValue)
                    )
                )
            )[0]
            return implies(conj(here, some, other_present), negate(worse))

        self.learn(values.source, not_better)
        return self.choose(((some, value), (negate(some), NULL)))

    def _require_order(self, value: SymbolicValue) -> SymbolicValue:
        if not isinstance(value, NullValue):
            self.less(value, value)
        return NULL

    def _reduce(self, expression: ir.Reduce, env: Env) -> SymbolicValue:
        values = self.elements(expression.collection, env)
        name = expression.accumulator
        state: State = {name: self.evaluate(expression.initial, env)}

        def body(item: SymbolicValue, current: State) -> State:
            return {name: self.evaluate(expression.body, {**env, expression.name: item, name: current[name]})}

        return self.fold(values, state, body)[name]

    # ------------------------------------------------------------ groups

    def _group_by(self, expression: ir.GroupBy, env: Env) -> SymbolicValue:
        values = self.elements(expression.collection, env)

        def value_of(part: ir.TypedExpression, element: SymbolicValue) -> SymbolicValue:
            return self.evaluate(part, {**env, expression.name: element})

        fields: State = {}
        for name, part in expression.keys:
            fields[name] = self._any_of_list(self.map_elements(values, lambda item, part=part: value_of(part, item)))  # type: ignore[misc]
        for aggregation in expression.aggregations:
            operand = aggregation.operand
            members: ListItems | ListComprehension = values
            if operand is not None:
                members = self.map_elements(values, lambda item, operand=operand: value_of(operand, item))  # type: ignore[misc]
            if expression.keys:  # a group is any part of the list
                members = self.some_of(members)
            fields[aggregation.output] = self.aggregate(aggregation.function, members)
        self.approximate("groups of a list")
        if not expression.aggregations:
            fields["items"] = OpaqueValue("the elements of a group", "list")
        row = RecordValue(fields)
        if not expression.keys:
            return row
        return self.take_all(self.new_source(lambda: self.generalize(row)))

    def _any_of_list(self, values: ListItems | ListComprehension) -> SymbolicValue:
        """Return a value of the kinds that the elements have."""
        if isinstance(values, ListComprehension):
            return self.stage_of(values, self.canonical(values.source))[1]
        return self.choose([(self.numbers.fresh_bool(), item) for _, item in values.items]) if values.items else NULL

    def some_of(self, values: ListItems | ListComprehension) -> ListItems | ListComprehension:
        """Return any part of a list, in its order."""
        if isinstance(values, ListItems):
            return ListItems(tuple((conj(here, self.numbers.fresh_bool()), item) for here, item in values.items))

        def stage(element: SourceElement) -> tuple[Term, SymbolicValue]:
            present, value = self.stage_of(values, element)
            return conj(present, self.numbers.fresh_bool("in_group")), value

        return ListComprehension(values.source, stage)

    def _matrix_product(self, expression: ir.MatrixProduct, env: Env) -> SymbolicValue:
        """Return any matrix of the kinds of number that its factors have; it may fail in any way."""
        values = [self.evaluate(part, env) for part in (expression.left, expression.right)]
        self.fail(UNKNOWN, self.open_condition("a product of matrices"))
        kinds = [self._number_kinds(value, 2) for value in values]
        if None in kinds:
            return self.any_of("a product of matrices")
        parts: list[SymbolicValue] = [self.numbers.fresh("product", whole=True)]
        if any(False in kind for kind in kinds if kind):
            parts.append(NumberValue(parts[0].term, False, None))  # type: ignore[attr-defined]
        flags = [self.numbers.fresh_bool("kind") for _ in parts]
        number = ValueChoice(tuple(zip(flags, parts, strict=True))) if len(parts) > 1 else parts[0]
        row = self.new_source(lambda: self.generalize(number))
        return self.take_all(self.new_source(lambda: self.take_all(row)))

    def _number_kinds(self, value: SymbolicValue, depth: int) -> set[bool] | None:
        """Return whether the numbers in lists of lists are whole; None where something else is there."""
        kinds: set[bool] = set()
        for _, part in options(value):
            inner: set[bool] | None = None
            if depth == 0:
                inner = {part.whole} if isinstance(part, NumberValue) else None
            elif isinstance(part, ListItems):
                inner_kinds = [self._number_kinds(item, depth - 1) for _, item in part.items]
                inner = None if None in inner_kinds else set().union(*(kind for kind in inner_kinds if kind))
            elif isinstance(part, ListComprehension):
                inner = self._number_kinds(self.stage_of(part, self.canonical(part.source))[1], depth - 1)
            if inner is None:
                return None
            kinds |= inner
        return kinds

    # ------------------------------------------------------------ single elements

    def item(self, target: SymbolicValue, index: SymbolicValue) -> SymbolicValue:
        if isinstance(target, NullValue):
            return NULL
        if isinstance(target, OpaqueValue) or isinstance(index, OpaqueValue):
            return self.any_of(next(part.why for part in (target, index) if isinstance(part, OpaqueValue)))
        if isinstance(target, RecordValue) and isinstance(index, TextValue):
            pairs = [(index.term == self.constant(name).term, part) for name, part in target.fields.items()]  # type: ignore[attr-defined]
            return self.choose([*pairs, (negate(disj(*(guard for guard, _ in pairs))), NULL)])
        if (
            not isinstance(target, ListItems | ListComprehension)
            or not isinstance(index, NumberValue)
            or not index.whole
        ):
            self.fail("type_error")
            return NULL
        numbers, zero = self.numbers, self.numbers.constant(0)
        if isinstance(target, ListItems):
            rank, pairs = zero, []
            for present, item in target.items:
                pairs.append((conj(present, numbers.equal(rank, index)), item))
                rank = NumberValue(z3.simplify(rank.term + ite(present, numbers.constant(1).term, zero.term)), True)
            return self.choose([*pairs, (negate(disj(*(guard for guard, _ in pairs))), NULL)])
        inside = conj(numbers.at_most(zero, index), numbers.less(index, self.count(target)))
        element = self.new_element(target.source)
        present, value = self.stage_of(target, element)
        numbers.axioms.append(implies(inside, conj(self.exists_any(target.source), present)))
        self.approximate("an element by its number", *terms_of(value))
        return self.choose(((inside, value), (negate(inside), NULL)))


_INDEX: Final = re.compile(r"\[[0-9]*\]")
_SHORT_MAX: Final = 6  # elements of a list that is walked as a whole, because it never has more


class TypedWalk(ListWalk):
    """Makes values of types, and coerces computed ones."""

    list_items: int | None = None  # the most elements of an input list; None: a list of any length

    # ------------------------------------------------------------ inputs

    def make_symbolic(self, kind: ValueType, name: str) -> SymbolicValue:
        """Return any value of a type."""
        numbers = self.numbers
        match kind:
            case Nullable():
                is_null = numbers.fresh_bool(f"{name}.absent")
                return ValueChoice(((is_null, NULL), (negate(is_null), self.make_symbolic(kind.type, name))))
            case Scalar(kind="integer"):
                number = numbers.fresh(name, whole=True)
                numbers.axioms.append(negate(numbers.overflow(number)))
                return number
            case DecimalType():
                number = numbers.fresh(name, whole=False, scale=kind.scale)
                numbers.note(number)
                numbers.fits(number)
                return number
            case Scalar(kind="duration"):
                return numbers.fresh(name, whole=False, scale=None)
            case Scalar(kind="boolean"):
                return TruthValue(numbers.fresh_bool(name))
            case Scalar(kind="string"):
                return TextValue(numbers.fresh_text(name))
            case EnumType():
                terms = [text_constant(value) for value in kind.values]
                if any(term is None for term in terms):
                    return OpaqueValue("a text with rare characters", "string")
                text = numbers.fresh_text(name)
                numbers.axioms.append(disj(*(text == term for term in terms)))
                return TextValue(text)
            case Scalar(kind="timestamp"):
                number = numbers.fresh(name, whole=True)
                low, high = (numbers.constant(microseconds(time)) for time in TIMES)
                numbers.axioms += [numbers.at_most(low, number), numbers.at_most(number, high)]
                return TimeValue(number)
            case RecordType():
                fields = {}
                for field in kind.fields:
                    is_optional = not field.required and field.default in (msgspec.UNSET, None)
                    declared = Nullable(field.type) if is_optional else field.type
                    fields[field.name] = self.make_symbolic(declared, f"{name}.{field.name}")
                return RecordValue(fields)
            case Array():
                return self._list_of(kind.item, name)
            case Scalar(kind="null"):
                return NULL
        word = {"SetType": "set", "MapType": "map"}.get(type(kind).__name__, "bytes" if kind == Scalar("bytes") else "")
        return OpaqueValue(f"{name}, whose type is not modelled", word)

    def longest(self, path: tuple[str, ...]) -> int | None:
        """Return how many elements a list of the inputs has at most; None of one without a bound."""
        raise NotImplementedError

    def _list_of(self, item: ValueType, name: str) -> SymbolicValue:
        if self.list_items is None:
            return self.take_all(self.new_source(lambda: self.make_symbolic(item, f"{name}[]")))
        most = self.longest(tuple(_INDEX.sub(".*", name).split(".")))
        if most is None or most > _SHORT_MAX:
            self.numbers.incomplete.add(f"lists of at most {self.list_items} elements")
            most = self.list_items
        items, before = [], TRUE
        for index in range(most):
            present = self.numbers.fresh_bool(f"{name}[{index}]")
            self.numbers.axioms.append(implies(present, before))
            items.append((present, self.make_symbolic(item, f"{name}[{index}]")))
            before = present
        return ListItems(tuple(items))

    def coerce_computed(self, kind: ValueType, value: SymbolicValue) -> SymbolicValue:
        """Return a value that the node computed as one of the type."""
        if isinstance(value, ValueChoice):
            return self.per_kind(lambda part: self.coerce_computed(kind, part), value)
        if isinstance(kind, Nullable):
            return NULL if isinstance(value, NullValue | UnsetValue) else self.coerce_computed(kind.type, value)
        if kind == ANY:
            return NULL if isinstance(value, UnsetValue) else value
        if isinstance(value, OpaqueValue):
            fits = value.kind and value.kind == _opaque_kind(kind)
            if not (fits and kind in (Scalar("string"), Scalar("bytes"))):
                self.fail("type_error", self.open_condition(value.why))
            return (
                self.make_symbolic(kind, "computed") if not isinstance(kind, Array) else OpaqueValue(value.why, "list")
            )
        match kind, value:
            case Scalar(kind="integer"), NumberValue(whole=True):
                return value
            case DecimalType(), NumberValue():
                return self._coerce_decimal(kind, value)
            case Scalar(kind="duration"), NumberValue():
                return NumberValue(value.term, False, value.scale)
            case (
                (Scalar(kind="string"), TextValue())
                | (Scalar(kind="boolean"), TruthValue())
                | (Scalar(kind="timestamp"), TimeValue())
            ):
                return value
            case Scalar(kind="null"), NullValue():
                return value
            case EnumType(), TextValue():
                terms = [text_constant(word) for word in kind.values]
                known = disj(*(value.term == term for term in terms if term is not None))
                self.fail(
                    "type_error", conj(negate(known), self.open_condition("rare characters") if None in terms else TRUE)
                )
                return value
            case Array(), ListItems() | ListComprehension():
                return self.map_elements(value, lambda part: self.coerce_computed(kind.item, part))
            case MapType(), RecordValue() if not isinstance(kind.key, EnumType) and kind.key not in (STRING, ANY):
                self.fail("type_error", self.open_condition("maps with other keys than texts"))
                return OpaqueValue("a map", "map")
            case MapType(), RecordValue():
                if isinstance(kind.key, EnumType) and not set(value.fields) <= set(kind.key.values):
                    self.fail("type_error")
                return RecordValue(
                    {name: self.coerce_computed(kind.value, part) for name, part in value.fields.items()}
                )
            case RecordType(), RecordValue():
                return self._coerce_record(kind, value)
            case SetType(), ListItems() | ListComprehension():
                self.fail("type_error", self.open_condition("sets"))
                return OpaqueValue("a set", "set")
        self.fail("type_error")
        return NULL

    def _coerce_decimal(self, kind: DecimalType, value: NumberValue) -> SymbolicValue:
        number = NumberValue(value.term, False, value.scale)
        if kind.scale is None:
            return number
        exact = self.numbers.round_quotient(number, None, kind.scale, "half_even")
        if number.scale is None or number.scale > kind.scale:
            self.fail("type_error", negate(self.numbers.equal(exact, number)))
        self.fail("type_error", self.numbers.overflow(exact))
        return exact

    def _coerce_record(self, kind: RecordType, value: RecordValue) -> SymbolicValue:
        if any(kind.field(name) is None for name in value.fields):
            self.fail("type_error")
        fields: State = {}
        for field in kind.fields:
            is_optional = not field.required and field.default in (msgspec.UNSET, None)
            declared = Nullable(field.type) if is_optional else field.type
            if field.name in value.fields:
                fields[field.name] = self.coerce_computed(declared, value.fields[field.name])
            elif field.default is not msgspec.UNSET:
                fields[field.name] = self.make_symbolic(field.type, field.name) if field.default is not None else NULL
            else:
                if not (is_optional or isinstance(field.type, Nullable)):
                    self.fail("type_error")
                fields[field.name] = NULL
        return RecordValue(fields)


def _opaque_kind(kind: ValueType) -> str:
    match kind:
        case Array():
            return "list"
        case SetType():
            return "set"
        case MapType() | RecordType():
            return "map"
        case Scalar():
            return kind.kind
    return "string" if isinstance(kind, EnumType) else ""
