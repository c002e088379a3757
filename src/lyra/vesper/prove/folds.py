"""Lists of any length in the walk, and what is known after all elements of one.

A `ElementSource` is a list of any length. The walk looks at single elements of it, each as good as any other: what was
assumed of all (`FORALL`, constraints) holds for each one, and what fails for one of them fails. A fold over such a list
is proved by one induction step: bounds of what an element adds become bounds of the sum, and a variable of a loop keeps
those of its candidate invariants that the loop's body keeps (see `keep_invariants`). The same sum over the same list is
the same number, so that a loop that adds up and `SUM` agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import z3

from lyra.vesper.prove.values import (
    TRUE,
    UNSET,
    ElementSource,
    ListComprehension,
    ListItems,
    NumberValue,
    OpaqueValue,
    RecordValue,
    SourceElement,
    SymbolicValue,
    Term,
    TextValue,
    TimeValue,
    TruthValue,
    ValueChoice,
    conj,
    disj,
    implies,
    negate,
    options,
)
from lyra.vesper.prove.walk import ExpressionWalk

LEMMA_RLIMIT: Final = 300_000
_LEMMAS_MAX: Final = 600  # of one walk; what more would show is not known
_BOUNDS: Final = (0, 1, 10, 100, 1_000, 10_000, 100_000, 10**6, 10**9, 10**12, 10**15, 10**19, 10**24)
_FACT_DEPTH_MAX: Final = 2
_ROUNDS_MAX: Final = 6  # in which the kinds of a loop's variables must settle
State = dict[str, SymbolicValue]
Walked = tuple[ElementSource, SourceElement]


class FoldWalk(ExpressionWalk):
    """Walks through lists of any length; `lists.ListWalk` evaluates expressions with it, `flow.NodeWalk` steps."""

    steps_max = 10_000_000  # of an execution, and so elements that it can walk through
    constants: tuple[int, ...] = ()  # of the node: candidates for bounds
    assumed: Term = TRUE  # what holds for all accepted inputs
    _fact_depth = 0
    _lemmas = 0
    input_axioms = 0  # those about the types of inputs, which come first
    axiom_variables: list[frozenset[int]]  # of each axiom, as far as they were asked for

    # ------------------------------------------------------------ sources

    def new_source(self, make: Callable[[], SymbolicValue]) -> ElementSource:
        length = self.numbers.fresh("count", whole=True)
        limit = self.numbers.constant(self.steps_max)  # a longer list ends at the limit of steps, not at a contract
        self.numbers.axioms.append(self.numbers.at_most(self.numbers.constant(0), length))
        self.numbers.axioms.append(self.numbers.at_most(length, limit))
        return ElementSource(length, make)

    def take_all(self, source: ElementSource) -> ListComprehension:
        return ListComprehension(source, lambda element: (TRUE, element.value))

    def exists_any(self, source: ElementSource) -> Term:
        return self.numbers.less(self.numbers.constant(0), source.length)

    def new_element(self, source: ElementSource) -> SourceElement:
        """Return an element of which only what holds for all of them is known; there is none in an empty list."""
        element = SourceElement(source.make())
        source.elements.append(element)
        for fact in list(source.facts):
            self._apply(fact, source, element)
        return element

    def learn(self, source: ElementSource, fact: Callable[[SourceElement], Term]) -> None:
        source.facts.append(fact)
        for element in list(source.elements):
            self._apply(fact, source, element)

    def _apply(self, fact: Callable[[SourceElement], Term], source: ElementSource, element: SourceElement) -> None:
        """Add a fact about an element; a fact that looks at elements itself is not followed without end."""
        if self._fact_depth >= _FACT_DEPTH_MAX:
            return
        self._fact_depth += 1
        try:
            self.numbers.axioms.append(implies(self.exists_any(source), fact(element)))
        finally:
            self._fact_depth -= 1

    def canonical(self, source: ElementSource) -> SourceElement:
        return source.elements[0] if source.elements else self.new_element(source)

    def stage_of(self, values: ListComprehension, element: SourceElement) -> tuple[Term, SymbolicValue]:
        if id(values) not in element.stages:
            element.stages[id(values)] = values, *values.stage(element)
        _, present, value = element.stages[id(values)]
        return present, value

    def walk_element(self, values: ListComprehension) -> tuple[SourceElement, Term, SymbolicValue]:
        """Return any element, with the condition that it is in the list, and its value there."""
        element = self.new_element(values.source)
        present, value = self.stage_of(values, element)
        return element, conj(self.exists_any(values.source), present), value

    def pure(self, function: Callable[[], Any]) -> tuple[Any, Term]:
        """Return the function's result and the condition that nothing in it fails."""
        result, ends, _ = self.quietly(function)
        return result, ends

    # ------------------------------------------------------------ folds

    def holds_always(self, condition: Term) -> bool:
        """Return whether the condition follows from what is known here: the induction step of a fold."""
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return bool(z3.is_true(condition))
        self._lemmas += 1
        if self._lemmas > _LEMMAS_MAX:
            return False
        solver = z3.Solver()
        solver.set("rlimit", LEMMA_RLIMIT)
        asked = self.assumed, self.here, z3.Not(condition)
        solver.add(*self.numbers.axioms[: self.input_axioms], *self.relevant(*asked), *asked)
        answer = solver.check()
        return bool(answer == z3.unsat)

    def relevant(self, *conditions: Term) -> list[Term]:
        """Return the axioms behind those about inputs that share a variable with a condition or with such an axiom."""
        axioms, variables = self.numbers.axioms, self.axiom_variables
        variables += map(self._variables_of, axioms[len(variables) :])
        known = self.variables_in(*conditions)
        left = list(zip(axioms[self.input_axioms :], variables[self.input_axioms :], strict=True))
        chosen: list[Term] = []
        while near := [pair for pair in left if pair[1] & known]:
            left = [pair for pair in left if not pair[1] & known]
            chosen += [axiom for axiom, _ in near]
            known = known.union(*(names for _, names in near))
        return chosen

    def variables_in(self, *terms: Term) -> frozenset[int]:
        """Return the ids of the variables in some terms."""
        return frozenset[int]().union(*map(self._variables_of, terms))

    def _variables_of(self, term: Term) -> frozenset[int]:
        names: frozenset[int] = self.compute_once(
            ("variables", term), lambda: frozenset(part.get_id() for part in _variables(term))
        )
        return names

    def bounds_of(self, number: NumberValue) -> tuple[int | None, int | None]:
        """Return whole numbers between which a number always is, as far as candidates are."""
        constants = sorted({*_BOUNDS, *(abs(value) for value in self.constants)})
        low = high = None
        if self.holds_always(self.numbers.at_most(self.numbers.constant(0), number)):
            low = 0
        if self.holds_always(self.numbers.at_most(number, self.numbers.constant(0))):
            high = 0
        if high is None:
            high = self._least(constants, lambda bound: self.numbers.at_most(number, self.numbers.constant(bound)))
        if low is None:
            low = self._least(constants, lambda bound: self.numbers.at_most(self.numbers.constant(-bound), number))
            low = None if low is None else -low
        return low, high

    def _least(self, bounds: list[int], condition: Callable[[int], Term]) -> int | None:
        if not self.holds_always(condition(bounds[-1])):
            return None
        first, last = 0, len(bounds) - 1
        while first < last:
            middle = (first + last) // 2
            if self.holds_always(condition(bounds[middle])):
                last = middle
            else:
                first = middle + 1
        return bounds[last]

    def sum_over(self, source: ElementSource, summand: NumberValue) -> NumberValue:
        """Return the sum of a term over all elements; the term speaks of the canonical element."""
        numbers = self.numbers
        summand = NumberValue(z3.simplify(summand.term, som=True), summand.whole, summand.scale)
        constant = _constant_of(summand.term)
        if constant is not None:
            return numbers.multiply(source.length, NumberValue(summand.term, summand.whole, summand.scale))
        key = summand.term.get_id()
        if key in source.sums:
            total: NumberValue = source.sums[key][0]
        else:
            total = numbers.fresh("sum", whole=summand.whole, scale=summand.scale)
            numbers.note(total)
            source.sums[key] = total, summand, {}
        self._limit_sum(source, total, summand)
        return total

    def _limit_sum(self, source: ElementSource, total: NumberValue, summand: NumberValue) -> None:
        """Add what the induction over the list gives under the present condition: bounds, and sums that are larger."""
        numbers, here = self.numbers, self.here
        self.here = conj(here, self.exists_any(source))
        low, high = self.bounds_of(summand)
        known = source.sums[summand.term.get_id()][2]
        known["bounds"] = low, high
        axioms = []
        if low is not None:
            axioms.append(numbers.at_most(numbers.multiply(source.length, numbers.constant(low)), total))
        if high is not None:
            axioms.append(numbers.at_most(total, numbers.multiply(source.length, numbers.constant(high))))
        for other_total, other, _ in list(source.sums.values()):
            if other_total is total:
                continue
            if self.holds_always(numbers.at_most(summand, other)):
                axioms.append(numbers.at_most(total, other_total))
            if self.holds_always(numbers.at_most(other, summand)):
                axioms.append(numbers.at_most(other_total, total))
        self.here = here
        self.numbers.axioms += [implies(conj(self.assumed, here), axiom) for axiom in axioms]

    def _partial_overflow(self, source: ElementSource, summand: NumberValue, total: NumberValue) -> Term:
        """Return whether a partial sum may overflow: open, unless the bounds of the summands exclude it."""
        simplified = z3.simplify(summand.term, som=True)
        constant = _constant_of(simplified)
        known = source.sums.get(simplified.get_id())
        flag = (
            self.numbers.fresh_bool("overflow")
            if known is None
            else known[2].setdefault("flag", self.numbers.fresh_bool("overflow"))
        )
        low, high = (
            (constant, constant)
            if constant is not None
            else known[2].get("bounds", (None, None))
            if known
            else (None, None)
        )
        if low is None or high is None or (not total.whole and total.scale is None):
            return flag
        limit = 2**63 - 1 if total.whole else 10**30
        numbers = self.numbers
        high_end = numbers.multiply(source.length, numbers.constant(max(int(high) + 1, 0)))
        low_end = numbers.multiply(source.length, numbers.constant(min(int(low) - 1, 0)))
        beyond = disj(numbers.less(numbers.constant(limit), high_end), numbers.less(low_end, numbers.constant(-limit)))
        numbers.axioms.append(implies(conj(self.assumed, self.here, flag), beyond))
        return flag

    def generalize(self, value: SymbolicValue) -> SymbolicValue:
        """Return any value of the same kind."""
        match value:
            case ValueChoice():
                guards = [self.numbers.fresh_bool("kind") for _ in value.options[1:]]
                pairs: list[tuple[Term, SymbolicValue]] = []
                before = TRUE
                for guard, (_, part) in zip([*guards, TRUE], value.options, strict=True):
                    pairs.append((conj(before, guard), self.generalize(part)))
                    before = conj(before, negate(guard))
                return ValueChoice(tuple(pairs))
            case TruthValue():
                return TruthValue(self.numbers.fresh_bool())
            case NumberValue():
                return self.numbers.fresh("any", whole=value.whole, scale=value.scale)
            case TimeValue():
                return TimeValue(self.numbers.fresh("any", whole=True))
            case TextValue():
                return TextValue(self.numbers.fresh_text())
            case RecordValue():
                return RecordValue({name: self.generalize(part) for name, part in value.fields.items()})
            case ListItems():
                return OpaqueValue("a list that a loop changes", "list")
            case ListComprehension():
                return OpaqueValue("a list that a loop changes", "list")
        return value

    def fold(
        self, values: ListItems | ListComprehension, state: State, body: Callable[[SymbolicValue, State], State]
    ) -> State:
        """Return the state after the last element. `body` gives the state after one, and may fail."""
        if isinstance(values, ListItems):
            for present, item in values.items:
                changed = self.under(present, lambda state=state, item=item: body(item, state))  # type: ignore[misc]
                state = self.join_states(present, changed, state)
            return state
        source = values.source
        element, _, value = self.walk_element(values)
        present, _ = self.stage_of(values, element)

        def round_of(current: State) -> State:
            changed = self.under(present, lambda: body(value, current))
            return self.join_states(present, changed, current)

        return self.keep_invariants(state, round_of, (source, element))

    def join_states(self, condition: Term, first: State, second: State) -> State:
        if z3.is_true(condition) or z3.is_false(condition):
            return first if z3.is_true(condition) else second
        names = {**first, **second}
        return {
            name: first[name]
            if first.get(name) is second.get(name)
            else self.choose(((condition, first.get(name, UNSET)), (negate(condition), second.get(name, UNSET))))
            for name in names
        }

    def keep_invariants(
        self, state: State, round_of: Callable[[State], State], walked: Walked | None, limits: Mapping[str, Any] = {}
    ) -> State:
        """Return the state after any number of rounds; with a source, after one for each element.

        Variables become any value of their kind; kinds are widened until a round keeps them. Of the candidates about a
        number (its sign, its order to the value before the first round, and the limit that it does not pass if it lay
        on its way) those are kept that hold before and that a round keeps, tried again until none falls away. Where
        each round adds what only depends on its element, the sum over all elements is added to the value before.
        """
        entry, numbers = self.here, self.numbers
        within = entry if walked is None else conj(entry, self.exists_any(walked[0]))
        shape, changed = self._settle_kinds(state, round_of)
        state = base = {name: state.get(name, UNSET) for name in shape}
        if walked is not None and any(_turns_decimal(shape[name], state[name]) for name in changed):
            # A sum that begins with the integer 0 and continues with decimals: the first round is walked by itself.
            base, _, _ = self.quietly(lambda: round_of(state), within)
            shape, changed = self._settle_kinds(base, round_of)
        start = {name: self.generalize(shape[name]) if name in changed else base[name] for name in shape}
        candidates = []
        for name in changed:
            first = state[name]
            if isinstance(first, NumberValue) and isinstance(start[name], NumberValue):
                relations = _relations(self, first, limits.get(name))
                near = [relation for relation in relations if self.keeps(relation, first)]
                candidates += [(name, relation) for relation in near if self.keeps(relation, base[name])]
        while True:
            known = conj(within, *(relation(start[name]) for name, relation in candidates))
            kept: list[Any] = []

            def run_round(kept: list[Any] = kept) -> State:
                after = round_of(start)
                kept += [pair for pair in candidates if self.keeps(pair[1], after[pair[0]])]  # noqa: B023
                return after

            after, _, _ = self.quietly(run_round, known)
            if len(kept) == len(candidates):
                break
            candidates = kept
        final = {name: self.generalize(shape[name]) if name in changed else base[name] for name in shape}
        progress = TRUE
        if walked is not None:
            self.here = within
            progress = self._add_sums((state, base), (start, after), final, walked)
        if base is not state:
            self.here = within
            round_of(state)
        self.here = conj(known, progress)
        round_of(start)  # this time its failures and answers count
        self.here = entry
        for name, relation in candidates:
            numbers.axioms.append(implies(conj(self.assumed, entry), relation(final[name])))
        return final if walked is None else self.join_states(self.exists_any(walked[0]), final, state)

    def keeps(self, relation: Callable[[Any], Term], value: SymbolicValue) -> bool:
        return isinstance(value, NumberValue) and self.holds_always(relation(value))

    def _settle_kinds(self, state: State, round_of: Callable[[State], State]) -> tuple[State, set[str]]:
        """Return a value of each kind that a variable has in some round, and the variables that rounds change."""
        shape, changed = dict(state), set(state)
        for _ in range(_ROUNDS_MAX):
            start = {name: self.generalize(value) for name, value in shape.items()}
            after, _, _ = self.quietly(lambda start=start: round_of(start), self.here)  # type: ignore[misc]
            names = {**shape, **after}
            changed = {name for name in names if after.get(name, UNSET) is not start.get(name, UNSET)}
            wider = {name: shape.get(name, UNSET) for name in names}
            wider |= {name: self._widen(wider[name], after.get(name, UNSET)) for name in changed}
            if all(_shape(wider[name]) == _shape(shape.get(name, UNSET)) for name in names):
                return shape, changed
            shape = wider
        return {name: OpaqueValue("a variable that changes its kind in a loop") for name in shape}, set(shape)

    def _widen(self, known: SymbolicValue, after: SymbolicValue) -> SymbolicValue:
        parts: dict[Any, SymbolicValue] = {}
        for _, value in (*options(known), *options(after)):
            key = _shape(value)[:2] if isinstance(value, NumberValue) else _shape(value)
            other = parts.get(key)
            if isinstance(value, NumberValue) and isinstance(other, NumberValue) and other.scale != value.scale:
                parts[key] = NumberValue(value.term, value.whole, None)  # each round may add digits
            else:
                parts[key] = value
        if len(parts) == 1:
            return next(iter(parts.values()))
        return ValueChoice(tuple((self.numbers.fresh_bool("kind"), value) for value in parts.values()))

    def _add_sums(self, firsts: tuple[State, State], round_: tuple[State, State], final: State, walked: Walked) -> Term:
        """Give those numbers their value to which each round adds what no variable of the loop decides.

        `firsts` are the states before the first round and before those that are walked as one, `round_` those before
        and after one of them. Returns what is known of the numbers at the start of a round, by what a round adds.
        """
        numbers, (state, base), (start, after), (source, element) = self.numbers, firsts, round_, walked
        number = numbers.fresh("round", whole=True)
        zero, unit = numbers.constant(0), numbers.constant(1)
        known = [numbers.at_most(zero, number), numbers.at_most(numbers.add(number, unit), source.length)]
        changed = [name for name in start if after[name] is not start[name]]
        havoc = [term for name in changed for term in terms_of(start[name])]

        def find_summand(before: SymbolicValue, behind: SymbolicValue) -> NumberValue | None:
            """Return the summand of a round, as a term about the canonical element."""
            if not isinstance(before, NumberValue) or not isinstance(behind, NumberValue):
                return None
            difference = numbers.subtract(behind, before)
            term = _pull_out(z3.simplify(difference.term, som=True), z3.simplify(numbers.align(before, behind)[0].term))
            if any(_mentions(term, variable) for variable in havoc):
                return None
            return self.about_canonical(source, element, NumberValue(term, difference.whole, difference.scale))

        for name in changed:
            first, last = state[name], final[name]
            summand = find_summand(start[name], after[name])
            if summand is None or not isinstance(first, NumberValue) or not isinstance(last, NumberValue):
                continue
            if base is not state:
                once = find_summand(first, base[name])
                if once is None or not z3.is_true(numbers.equal(once, summand)):
                    continue
            total = self.sum_over(source, summand)
            numbers.axioms.append(numbers.equal(last, numbers.add(first, total)))
            low, high = self.bounds_of(summand)
            begin = start[name]
            assert isinstance(begin, NumberValue)
            so_far = numbers.subtract(begin, first)
            if low is not None:
                known.append(numbers.at_most(numbers.multiply(number, numbers.constant(low)), so_far))
            if high is not None:
                known.append(numbers.at_most(so_far, numbers.multiply(number, numbers.constant(high))))
        return conj(*known)

    def about_canonical(self, source: ElementSource, element: SourceElement, number: NumberValue) -> NumberValue:
        """Return the term with the canonical element in place of this one."""
        canonical = self.canonical(source)
        pairs: list[tuple[Term, Term]] = []
        _pair_terms(element.value, canonical.value, pairs)
        term = z3.simplify(z3.substitute(number.term, *pairs), som=True) if pairs else number.term
        return NumberValue(term, number.whole, number.scale)


def _turns_decimal(shape: SymbolicValue, first: SymbolicValue) -> bool:
    """Return whether a variable begins as an integer and is an integer or a decimal later."""
    kinds = [part for _, part in options(shape)]
    return (
        isinstance(first, NumberValue)
        and first.whole
        and len(kinds) > 1
        and all(isinstance(part, NumberValue) for part in kinds)
    )


def _relations(walk: FoldWalk, first: NumberValue, limit: SymbolicValue | None) -> list[Callable[[Any], Term]]:
    at_most, zero = walk.numbers.at_most, walk.numbers.constant(0)
    relations: list[Callable[[Any], Term]] = [
        lambda value: at_most(zero, value),
        lambda value: at_most(value, zero),
        lambda value: walk.numbers.less(zero, value),
        lambda value: at_most(first, value),
        lambda value: at_most(value, first),
    ]
    if isinstance(limit, NumberValue):
        relations.append(lambda value: disj(at_most(value, limit), at_most(value, first)))
        relations.append(lambda value: disj(at_most(limit, value), at_most(first, value)))
    return relations


def _constant_of(term: Term) -> int | float | None:
    if z3.is_int_value(term):
        return int(term.as_long())
    if z3.is_rational_value(term):
        fraction = term.as_fraction()
        return int(fraction) if fraction.denominator == 1 else float(fraction)
    return None


def _shape(value: SymbolicValue) -> tuple[Any, ...]:
    match value:
        case ValueChoice():
            return ("choice", frozenset(_shape(part) for _, part in value.options))
        case NumberValue():
            return ("number", value.whole, value.scale)
        case RecordValue():
            return ("record", tuple((name, _shape(part)) for name, part in value.fields.items()))
        case OpaqueValue():
            return ("opaque", value.kind)
        case ListItems() | ListComprehension():
            return ("opaque", "list")
    return (type(value).__name__,)


def terms_of(value: SymbolicValue) -> list[Term]:
    match value:
        case ValueChoice():
            return [term for guard, part in value.options for term in (*_variables(guard), *terms_of(part))]
        case TruthValue() | NumberValue() | TextValue():
            return _variables(value.term)
        case TimeValue():
            return _variables(value.number.term)
        case RecordValue():
            return [term for part in value.fields.values() for term in terms_of(part)]
    return []


def _variables(term: Term) -> list[Term]:
    """Return the variables of a term. The solver's own calls are several times quicker than `children`."""
    context = term.ctx.ref()
    variables, todo, seen = [], [term.as_ast()], set()
    while todo:
        part = todo.pop()
        key = z3.Z3_get_ast_id(context, part)
        if key in seen or z3.Z3_get_ast_kind(context, part) != z3.Z3_APP_AST:
            continue
        seen.add(key)
        count = z3.Z3_get_app_num_args(context, part)
        todo += [z3.Z3_get_app_arg(context, part, index) for index in range(count)]
        if not count and z3.Z3_get_decl_kind(context, z3.Z3_get_app_decl(context, part)) == z3.Z3_OP_UNINTERPRETED:
            variables.append(z3.z3._to_expr_ref(part, term.ctx))
    return variables


def _mentions(term: Term, variable: Term) -> bool:
    return any(part.eq(variable) for part in _variables(term))


def _pull_out(term: Term, begin: Term) -> Term:
    """Return `ite(c, begin + a, begin + b) - begin` with the difference inside the branches."""
    if not _mentions(term, begin):
        return term

    def inside(part: Term) -> Term:
        if z3.is_app_of(part, z3.Z3_OP_ITE):
            return z3.If(part.arg(0), inside(part.arg(1)), inside(part.arg(2)))
        return z3.simplify(part - begin, som=True)

    whole = z3.simplify(term + begin, som=True)
    return z3.simplify(inside(whole)) if z3.is_app_of(whole, z3.Z3_OP_ITE) else term


def _pair_terms(left: SymbolicValue, right: SymbolicValue, pairs: list[tuple[Term, Term]]) -> None:
    """Collect which variables of one element stand for which of another of the same source."""
    match left, right:
        case RecordValue(), RecordValue():
            for name in left.fields:
                _pair_terms(left.fields[name], right.fields[name], pairs)
        case ValueChoice(), ValueChoice():
            for (guard, part), (other_guard, other) in zip(left.options, right.options, strict=True):
                pairs.extend(zip(_variables(guard), _variables(other_guard), strict=True))
                _pair_terms(part, other, pairs)
        case (TruthValue(), TruthValue()) | (NumberValue(), NumberValue()) | (TextValue(), TextValue()):
            pairs.extend(zip(_variables(left.term), _variables(right.term), strict=True))  # type: ignore[attr-defined]
        case TimeValue(), TimeValue():
            pairs.append((left.number.term, right.number.term))
