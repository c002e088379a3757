"""The grammar of expressions."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.errors import ParseError
from lyra.vesper.expressions.functions import AGGREGATES, FORMS, FUNCTIONS
from lyra.vesper.expressions.parser import has_placeholder, parse_expression, parse_template
from lyra.vesper.expressions.terms import (
    BinaryTerm,
    CallTerm,
    IndexTerm,
    ListTerm,
    LiteralTerm,
    MemberTerm,
    NameTerm,
    NullTestTerm,
    PlaceholderTerm,
    QuantifierTerm,
    StarTerm,
    Term,
    UnaryTerm,
    format_term,
    is_same,
    names_in,
)
from tests.cases import cases


def grouped(text: str) -> str:
    """The tree with all its parentheses."""
    return _grouped(parse_expression(text))


def _grouped(term: Term) -> str:
    match term:
        case BinaryTerm():
            return f"({_grouped(term.left)} {term.operator} {_grouped(term.right)})"
        case UnaryTerm():
            return f"({term.operator} {_grouped(term.operand)})"
        case QuantifierTerm():
            where = "" if term.collection is None else f" IN {_grouped(term.collection)}"
            return f"({term.kind} {term.name}{where}: {_grouped(term.body)})"
        case NullTestTerm():
            return f"({_grouped(term.operand)} IS {'NOT ' if term.negated else ''}NULL)"
    return format_term(term)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a + b * c", "(a + (b * c))"),
        ("a - b - c", "((a - b) - c)"),
        ("a / b % c", "((a / b) % c)"),
        ("-a * b", "((- a) * b)"),
        ("--a", "(- (- a))"),
        ("- a.b[0]", "(- a.b[0])"),
        ("a => b => c", "(a => (b => c))"),
        ("a OR b AND c", "(a OR (b AND c))"),
        ("NOT a AND b", "((NOT a) AND b)"),
        ("NOT a == b", "(NOT (a == b))"),
        ("NOT NOT a", "(NOT (NOT a))"),
        ("a NOT IN b", "(NOT (a IN b))"),
        ("a IN [1, 2] OR b CONTAINS 'x'", "((a IN [1, 2]) OR (b CONTAINS 'x'))"),
        ("a IS NULL AND b.c IS NOT NULL", "((a IS NULL) AND (b.c IS NOT NULL))"),
        ("a is_not", None),
        ("FORALL x IN y.z: x > 0 OR b", "(FORALL x IN y.z: ((x > 0) OR b))"),
        ("EXISTS x: x.a", "(EXISTS x: x.a)"),
        ("a AND FORALL x: b => c", "(a AND (FORALL x: (b => c)))"),
        ("NOT EXISTS x IN y: x", "(NOT (EXISTS x IN y: x))"),
        ("(a + b) * c", "((a + b) * c)"),
        ("a == b AND c < d + 1", "((a == b) AND (c < (d + 1)))"),
        ("f() + g(a, [b])", "(f() + g(a, [b]))"),
        ("COUNT(*)", "COUNT(*)"),
        ("x == NULL", "(x == null)"),
        ("a.IN.true", "a.IN.true"),
        ("balance - {amount}", "(balance - {amount})"),
        ("[]", "[]"),
    ],
)
def test_precedence(text: str, tree: str | None) -> None:
    if tree is None:
        with pytest.raises(ParseError):
            parse_expression(text)
    else:
        assert grouped(text) == tree


def test_literals() -> None:
    for text, value in [
        ("12", 12),
        ("1.50", Decimal("1.50")),
        ("'it\\'s'", "it's"),
        ('"a\\"b"', 'a"b'),
        ("'^\\d+$'", "^\\d+$"),
        ("'a\\\\b'", "a\\b"),
        ("'a\\nb'", "a\nb"),
        ("true", True),
        ("false", False),
        ("null", None),
    ]:
        term = parse_expression(text)
        assert isinstance(term, LiteralTerm)
        assert term.value == value
        assert type(term.value) is type(value)


@pytest.mark.parametrize(
    ("text", "offset", "message", "hint"),
    [
        ("", 0, "an expression is expected", ""),
        ("a +", 3, "an expression is expected instead of the end", ""),
        ("a b", 2, "unexpected `b`", ""),
        ("a and b", 2, "unexpected `and`", "upper case: AND"),
        ("a = b", 2, "unexpected `=`", "=="),
        ("a < b < c", 6, "unexpected `<`", "do not chain"),
        ("a == b == c", 7, "unexpected `==`", "do not chain"),
        ("a && b", 2, "unexpected character '&'", "AND"),
        ("(a", 2, "`)` is expected", ""),
        ("a)", 1, "unexpected `)`", ""),
        ("f(a,)", 4, "an expression is expected", ""),
        ("'abc", 0, "no closing quote", ""),
        ("a.1", 1, None, ""),
        ("a..b", 2, "the name of a field", ""),
        ("FORALL 1: a", 7, "the name of a variable", ""),
        ("FORALL x IN y a", 14, "`:` is expected", ""),
        ("a IS b", 5, "`NULL` is expected", ""),
        ("1.", 1, None, ""),
        ("a $ b", 2, "unexpected character '$'", ""),
        ("__import__('os').system('x') ;", 29, "unexpected character ';'", ""),
        ("{a", 2, "`}` is expected", ""),
    ],
)
def test_a_mistake_has_its_offset(text: str, offset: int, message: str | None, hint: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_expression(text)
    error = caught.value
    if message is not None:
        assert error.fields["offset"] == offset
        assert message in error.message
    assert hint in (error.hint or "")


def test_lengths_and_depths_are_bounded() -> None:
    """No file can exhaust the stack."""
    for text in (
        "(" * 100 + "a" + ")" * 100,
        "[" * 100 + "]" * 100,
        "-" * 1000 + "a",
        "NOT " * 500 + "a",
        " + ".join(["a"] * 1000),
        "a" + ".b" * 1000,
        "a" + "[0]" * 1000,
        "f(" * 200 + ")" * 200,
        " => ".join(["a"] * 900),
        "a" * 5000,
        "{" * 100 + "a" + "}" * 100,
        "1" * 4097,
    ):
        with pytest.raises(ParseError):
            parse_expression(text)
    assert isinstance(parse_expression(" AND ".join(["a"] * 100)), BinaryTerm)


def test_a_single_equals_sign_is_for_sql() -> None:
    assert format_term(parse_expression("id = {x}", sql=True)) == "id == {x}"


def test_names_in_a_term() -> None:
    assert names_in(parse_expression("a.b + FORALL_x > 0 AND (FORALL c IN d: f(c, {e}))")) == {
        "a",
        "FORALL_x",
        "c",
        "d",
        "e",
    }


# ------------------------------------------------------------------ printing
_NAMES = st.sampled_from(["a", "b", "total_2", "_x", "users", "SUM_of"])
_LITERALS: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 10**20),
    st.decimals(0, 10**6, places=3, allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12),
)


def _grow(inner: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    operators = ["=>", "OR", "AND", "==", "!=", "<", "<=", ">", ">=", "IN", "CONTAINS", "+", "-", "*", "/", "%"]
    lists = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(
        st.builds(lambda o, x, y: BinaryTerm(operator=o, left=x, right=y), st.sampled_from(operators), inner, inner),
        st.builds(lambda o, x: UnaryTerm(operator=o, operand=x), st.sampled_from(["-", "NOT"]), inner),
        st.builds(lambda x, n: NullTestTerm(operand=x, negated=n), inner, st.booleans()),
        st.builds(lambda x, n: MemberTerm(target=x, name=n), inner, _NAMES),
        st.builds(lambda x, y: IndexTerm(target=x, index=y), inner, inner),
        st.builds(lambda n, x: CallTerm(function=n, arguments=x), _NAMES, lists),
        st.builds(lambda x: ListTerm(items=x), lists),
        st.builds(lambda x: PlaceholderTerm(operand=x), inner),
        st.builds(
            lambda k, n, c, b: QuantifierTerm(kind=k, name=n, collection=c, body=b),
            st.sampled_from(["FORALL", "EXISTS"]),
            _NAMES,
            st.one_of(st.none(), _NAMES.map(lambda n: NameTerm(name=n))),
            inner,
        ),
    )


_TERMS: st.SearchStrategy[Term] = st.recursive(
    st.one_of(_NAMES.map(lambda n: NameTerm(name=n)), _LITERALS.map(lambda v: LiteralTerm(value=v))),
    _grow,
    max_leaves=20,
)


@given(_TERMS)
@settings(max_examples=cases(600), deadline=None)
def test_the_printed_form_parses_to_the_same_tree(term: Term) -> None:
    text = format_term(term)
    parsed = parse_expression(text)
    assert is_same(parsed, term), text
    assert format_term(parsed) == text


def test_offsets_point_into_the_text() -> None:
    text = "  amount + fee.rate >= SUM(items.price)"
    term = parse_expression(text)
    assert isinstance(term, BinaryTerm)
    assert text[term.sign : term.sign + 2] == ">="
    assert text[term.left.start : term.left.end] == "amount + fee.rate"
    assert text[term.right.start : term.right.end] == "SUM(items.price)"


def test_random_texts_give_only_errors_of_lyra() -> None:
    """Any text is a tree or a ParseError."""
    source = random.Random(7)
    pieces = [
        "a",
        "1",
        ".5",
        "'",
        '"',
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        " ",
        "AND",
        "NOT",
        "IN",
        "IS",
        "NULL",
        "FORALL",
        ":",
        ".",
        ",",
    ]
    pieces += ["==", "=>", "<", "-", "*", "\\", "é", "\0", "COUNT", "*", "old("]
    for _ in range(4_000):
        text = "".join(source.choice(pieces) for _ in range(source.randrange(14)))
        for parse in (parse_expression, parse_template):
            offset = 0
            try:
                parse(text)
            except ParseError as error:
                offset = error.fields["offset"]
            assert 0 <= offset <= len(text)


# ------------------------------------------------------------------ templates
def test_a_template_is_texts_and_terms() -> None:
    template = parse_template("a {x.y} {{b}} {f('}')}!")
    assert [part if isinstance(part, str) else format_term(part) for part in template.parts] == [
        "a ",
        "x.y",
        " {b} ",
        "f('}')",
        "!",
    ]
    assert template.single is None
    assert template.text is None


def test_a_single_placeholder_stands_alone() -> None:
    single = parse_template("{amount}").single
    assert single is not None
    assert format_term(single) == "amount"
    assert parse_template(" {amount}").single is None
    assert parse_template("{a}{b}").single is None
    assert parse_template("").text == ""
    assert parse_template("{{}}").text == "{}"


@pytest.mark.parametrize(
    ("text", "offset"),
    [("{", 0), ("a {b", 2), ("}", 0), ("a } b", 2), ("{}", 1), ("{a b}", 3), ("{a;}", 2), ("x{{{", 3)],
)
def test_a_mistake_in_a_template_has_its_offset(text: str, offset: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse_template(text)
    assert caught.value.fields["offset"] == offset


def test_templates_are_bounded() -> None:
    for text in ("{a}" * 300, "x" * 70_000, "{" + "a" * 5_000 + "}"):
        with pytest.raises(ParseError):
            parse_template(text)


def test_escaped_braces_are_no_placeholder() -> None:
    assert has_placeholder("{a}")
    assert not has_placeholder("{{a}}")


def test_the_table_of_functions_is_complete() -> None:
    """Names do not collide, and each function has a sentence for the reference."""
    assert not {*FUNCTIONS} & {*FORMS}
    assert all(function.text and function.name == name for name, function in FUNCTIONS.items())
    assert AGGREGATES == ("SUM", "COUNT", "AVG", "MIN", "MAX")
    assert isinstance(parse_expression("COUNT(*)"), CallTerm)
    assert StarTerm() == StarTerm()
