"""Functions of texts, for the walk over expressions.

`slice`, `trim`, `starts_with`, `ends_with` and patterns are exact, and `join` of a list whose elements are written out.
Of `lower` and `upper` the length is known within bounds, which letters the result has, and that a text
which has no letter to change stays as it is; of `replace` and `split` what follows from whether the text has the part
at all; of a padded text its length and one of its ends. A number that a text writes is any number, and the text is one
of digits. It stands alone: `walk` has a table of these functions, and the solver's terms are built here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import z3

from lyra.vesper.prove.list_calls import slice_list
from lyra.vesper.prove.texts import pattern_condition, text_constant, text_of
from lyra.vesper.prove.values import (
    NULL,
    TRUE,
    ListComprehension,
    ListItems,
    NullValue,
    NumberValue,
    OpaqueValue,
    SymbolicValue,
    Term,
    TextValue,
    TruthValue,
    conj,
    disj,
    implies,
    ite,
    negate,
)

if TYPE_CHECKING:
    from lyra.vesper.prove.flow import NodeWalk
    from lyra.vesper.prove.walk import ExpressionWalk

_Parts = tuple[SymbolicValue, ...]
_STRINGS: Final = z3.ReSort(z3.StringSort())
_EMPTY: Final = z3.StringVal("")
_BLANKS: Final = tuple(chr(code) for code in range(0x3001) if chr(code).isspace())  # there are none beyond
_LONGEST: Final = {"lower": 2, "upper": 3}  # characters that one may become
_DIGITS: Final = z3.Plus(z3.Range("0", "9"))
_SIGN: Final = z3.Option(z3.Union(z3.Re("+"), z3.Re("-")))
WHOLE: Final = z3.Concat(_SIGN, _DIGITS)
_DECIMAL: Final = z3.Concat(WHOLE, z3.Option(z3.Concat(z3.Re("."), _DIGITS)))
_ASCII: Final = z3.Range(text_constant("\0"), text_constant("\x7f"))
_PIECES_MAX: Final = 3  # of a text that is split, in the walk that looks for an input


def constant_text(value: SymbolicValue) -> str | None:
    """Return the text of a constant, None for any other value."""
    if not isinstance(value, TextValue):
        return None
    term = z3.simplify(value.term)
    return text_of(term) if z3.is_string_value(term) else None


def call_on_texts(walk: NodeWalk, parts: _Parts, *, function: str) -> SymbolicValue:
    """Return the value of a function that takes texts only."""
    for part in parts:
        if isinstance(part, OpaqueValue) and not part.kind:
            walk.fail("type_error", walk.open_condition(part.why))
        elif not isinstance(part, TextValue) and not (isinstance(part, OpaqueValue) and part.kind == "string"):
            walk.fail("type_error")
            return NULL
    terms = [z3.simplify(part.term) for part in parts if isinstance(part, TextValue)]
    if len(terms) == len(parts):
        return _FUNCTIONS[function](walk, *terms)
    if function == "matches":
        walk.fail("type_error", walk.open_condition("a pattern that is not modelled"))
    if function in ("starts_with", "ends_with", "matches", "is_zone"):
        return TruthValue(walk.open_condition(f"the function {function}"))
    return walk.any_of(f"the function {function} of a text that is not modelled")


def _match(walk: NodeWalk, text: Term, pattern: Term) -> SymbolicValue:
    condition = walk.compute_once(("matches", text, pattern), lambda: pattern_condition(text, pattern))
    if condition is not None:
        return TruthValue(condition)
    walk.fail("type_error", walk.open_condition("a pattern that is not modelled"))
    return TruthValue(walk.open_condition("a pattern that is not modelled"))


def _change_case(walk: NodeWalk, text: Term, *, function: str) -> SymbolicValue:
    if z3.is_string_value(text):
        return walk.constant(text_of(text).lower() if function == "lower" else text_of(text).upper())

    def make() -> Term:
        result = walk.numbers.fresh_text(function)
        walk.approximate(f"the function {function}", result)
        had, has = z3.Length(text), z3.Length(result)
        ends = ("A", "Z") if function == "lower" else ("a", "z")
        letters = z3.Range(*ends)
        others = z3.Star(z3.Intersect(z3.AllChar(_STRINGS), z3.Complement(letters)))
        plain = z3.Star(z3.Intersect(_ASCII, z3.Complement(letters)))
        walk.numbers.axioms += [
            z3.And(had <= has, has <= _LONGEST[function] * had),
            z3.InRe(result, others),
            implies(z3.InRe(text, plain), result == text),
            implies(z3.InRe(text, z3.Star(_ASCII)), had == has),
        ]
        return result

    return TextValue(walk.compute_once((function, text), make))


def _trim(walk: NodeWalk, text: Term) -> SymbolicValue:
    if z3.is_string_value(text):
        return walk.constant(text_of(text).strip())

    def make() -> Term:
        fresh = walk.numbers.fresh_text
        before, result, after = fresh("blank"), fresh("trimmed"), fresh("blank")
        blank = z3.Union(*(z3.Re(text_constant(char)) for char in _BLANKS))
        blanks, all_of = z3.Star(blank), z3.Full(_STRINGS)
        walk.numbers.axioms += [
            text == z3.Concat(before, result, after),
            z3.InRe(before, blanks),
            z3.InRe(after, blanks),
            z3.Not(z3.InRe(result, z3.Union(z3.Concat(blank, all_of), z3.Concat(all_of, blank)))),
        ]
        return result

    return TextValue(walk.compute_once(("trim", text), make))


def _replace(walk: NodeWalk, text: Term, old: Term, new: Term) -> SymbolicValue:
    walk.fail("type_error", z3.simplify(old == _EMPTY))
    if all(map(z3.is_string_value, (text, old, new))) and text_of(old):
        return walk.constant(text_of(text).replace(text_of(old), text_of(new)))

    def make() -> Term:
        result = walk.numbers.fresh_text("replaced")
        walk.approximate("the function replace", result)
        had, has, gone, come = (z3.Length(part) for part in (text, result, old, new))
        is_there = z3.Contains(text, old)
        walk.numbers.axioms += [
            implies(z3.Not(is_there), result == text),
            implies(come == gone, has == had),
            implies(come <= gone, has <= had),
            implies(come >= gone, has >= had),
            implies(z3.And(is_there, old != _EMPTY), z3.Contains(result, new)),
            # A single character that the new text does not have is nowhere left.
            implies(z3.And(gone == 1, z3.Not(z3.Contains(new, old))), z3.Not(z3.Contains(result, old))),
        ]
        return result

    return TextValue(walk.compute_once(("replace", text, old, new), make))


def _split(walk: NodeWalk, text: Term, separator: Term) -> SymbolicValue:
    walk.fail("type_error", z3.simplify(separator == _EMPTY))
    if walk.list_items is not None:
        items, rest, here = [], text, TRUE
        for _ in range(_PIECES_MAX - 1):
            place = z3.IndexOf(rest, separator, 0)
            has_more = z3.Contains(rest, separator)
            items.append((here, TextValue(z3.If(has_more, z3.SubString(rest, 0, place), rest))))
            behind = place + z3.Length(separator)
            here, rest = conj(here, has_more), z3.SubString(rest, behind, z3.Length(rest) - behind)
        items.append((here, TextValue(rest)))
        walk.numbers.incomplete.add(f"texts of at most {_PIECES_MAX} parts")
        walk.numbers.axioms.append(implies(here, z3.Not(z3.Contains(rest, separator))))
        return ListItems(tuple(items))

    def make_piece() -> SymbolicValue:
        piece = walk.numbers.fresh_text("piece")
        walk.approximate("the pieces of a text", piece)
        is_plain = implies(separator != _EMPTY, z3.Not(z3.Contains(piece, separator)))
        walk.numbers.axioms += [is_plain, z3.Contains(text, piece)]
        return TextValue(piece)

    numbers, source = walk.numbers, walk.new_source(make_piece)
    least = numbers.constant(1)
    alone = implies(separator != _EMPTY, numbers.equal(source.length, least) == z3.Not(z3.Contains(text, separator)))
    numbers.axioms += [numbers.at_most(least, source.length), alone]
    return walk.take_all(source)


def _parse(walk: NodeWalk, text: Term, *, is_whole: bool) -> SymbolicValue:
    numbers = walk.numbers
    walk.fail("not_a_number", z3.simplify(z3.Not(z3.InRe(text, WHOLE if is_whole else _DECIMAL))))
    if z3.is_false(walk.here):
        return NULL
    walk.fail("overflow", walk.open_condition("numbers of texts"))

    def make() -> NumberValue:
        number = numbers.fresh("parsed", whole=is_whole, scale=0 if is_whole else None)
        walk.approximate("numbers of texts", number.term)
        if is_whole:
            numbers.axioms.append(negate(numbers.overflow(number)))
        is_negative, zero = z3.PrefixOf(z3.StringVal("-"), text), numbers.constant(0)
        numbers.axioms.append(ite(is_negative, numbers.at_most(number, zero), numbers.at_most(zero, number)))
        return number

    return walk.compute_once(("parse", is_whole, text), make)  # type: ignore[no-any-return]


def slice_of(walk: NodeWalk, parts: _Parts) -> SymbolicValue:
    """Return a part of a text or a list."""
    target, *bounds = parts
    opaque = [part for part in parts if isinstance(part, OpaqueValue)]
    if opaque and opaque[0].kind not in ("string", "list", "set"):
        return walk.any_of(opaque[0].why)
    if any(not isinstance(bound, NumberValue) or not bound.whole for bound in bounds[:1]) or any(
        not isinstance(bound, NullValue) and not (isinstance(bound, NumberValue) and bound.whole)
        for bound in bounds[1:]
    ):
        walk.fail("type_error")
        return NULL
    if opaque:
        return OpaqueValue(f"a part of {opaque[0].why}", opaque[0].kind)
    if isinstance(target, ListItems | ListComprehension):
        return slice_list(walk, target, tuple(bounds))
    if not isinstance(target, TextValue):
        walk.fail("type_error")
        return NULL
    size = z3.Length(target.term)
    first = _place_of(walk, bounds[0], size)
    last = _place_of(walk, bounds[1], size) if len(bounds) > 1 and isinstance(bounds[1], NumberValue) else size
    return TextValue(z3.simplify(z3.SubString(target.term, first, last - first)))


def _place_of(walk: NodeWalk, bound: SymbolicValue, size: Term) -> Term:
    """Return the place that a bound of a slice means: below 0 it counts from the end."""
    assert isinstance(bound, NumberValue)
    place = z3.simplify(walk.numbers.to_integer(bound))
    back = place + size
    return z3.simplify(z3.If(place < 0, z3.If(back < 0, 0, back), z3.If(place > size, size, place)))


def join(walk: NodeWalk, parts: _Parts) -> SymbolicValue:
    values, separator = parts
    if not isinstance(separator, TextValue) or not _has_texts(walk, values):
        return walk.any_of("the function join of values that are not modelled")
    if isinstance(values, ListItems):
        text, some = _EMPTY, z3.BoolVal(False)
        for here, item in values.items:
            assert isinstance(item, TextValue)
            longer = ite(some, z3.Concat(text, separator.term, item.term), item.term)
            text, some = ite(here, longer, text), disj(some, here)
        return TextValue(z3.simplify(text))
    text = walk.numbers.fresh_text("joined")
    walk.approximate("the function join", text)
    return TextValue(text)


def _has_texts(walk: NodeWalk, values: SymbolicValue) -> bool:
    """Return whether a value is a list of texts only."""
    if isinstance(values, ListItems):
        return all(isinstance(item, TextValue) for _, item in values.items)
    if not isinstance(values, ListComprehension):
        return False
    return isinstance(walk.stage_of(values, walk.canonical(values.source))[1], TextValue)


def pad(walk: NodeWalk, parts: _Parts, *, is_left: bool) -> SymbolicValue:
    subject, width = parts[:2]
    fill = constant_text(parts[2]) if len(parts) > 2 else " "
    if fill is None or not isinstance(subject, TextValue) or not isinstance(width, NumberValue) or not width.whole:
        return walk.any_of("a padded text whose parts are not modelled")
    if len(fill) != 1:
        walk.fail("type_error")
        return NULL
    numbers, text = walk.numbers, walk.numbers.fresh_text("padded")
    walk.approximate("padded texts", text)
    had, has = numbers.from_length(z3.Length(subject.term)), numbers.from_length(z3.Length(text))
    size = z3.If(numbers.less(had, width), *(number.term for number in numbers.align(width, had)))
    keeps = z3.SuffixOf(subject.term, text) if is_left else z3.PrefixOf(subject.term, text)
    numbers.axioms.append(conj(numbers.equal(has, NumberValue(size, True)), keeps))
    return TextValue(text)


def render_whole(walk: ExpressionWalk, number: NumberValue, text: Term) -> None:
    """Know of the text that a whole number is written as: a sign and digits, one of them first that is no 0."""
    natural = z3.Union(z3.Re("0"), z3.Concat(z3.Range("1", "9"), z3.Star(z3.Range("0", "9"))))
    walk.numbers.axioms += [
        z3.InRe(text, z3.Concat(z3.Option(z3.Re("-")), natural)),
        z3.And(z3.Length(text) >= 1, z3.Length(text) <= 20),
        z3.PrefixOf(z3.StringVal("-"), text) == walk.numbers.less(number, walk.numbers.constant(0)),
    ]


_FUNCTIONS: Final[dict[str, Callable[..., SymbolicValue]]] = {
    "starts_with": lambda _, text, start: TruthValue(z3.simplify(z3.PrefixOf(start, text))),
    "ends_with": lambda _, text, end: TruthValue(z3.simplify(z3.SuffixOf(end, text))),
    "matches": _match,
    "lower": partial(_change_case, function="lower"),
    "upper": partial(_change_case, function="upper"),
    "trim": _trim,
    "replace": _replace,
    "split": _split,
    "parse_integer": partial(_parse, is_whole=True),
    "parse_decimal": partial(_parse, is_whole=False),
    "is_zone": lambda walk, text: TruthValue(walk.is_zone(text)),
}
TEXT_CALLS: Final[dict[str, Callable[[Any, _Parts], SymbolicValue]]] = {
    **{name: partial(call_on_texts, function=name) for name in _FUNCTIONS},
    "slice": slice_of,
    "join": join,
    "pad_left": partial(pad, is_left=True),
    "pad_right": partial(pad, is_left=False),
}
