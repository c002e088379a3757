"""The lexer: every kind of token, exact places, and mistakes that are told once and passed over."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.budgets.money import Money
from lyra.vega.syntax.lexer import KEYWORDS, SIGNS, Tokens, lex
from lyra.vega.syntax.source import Source
from lyra.vega.values.values import Duration
from tests.cases import cases, each

quick = settings(derandomize=True, deadline=None, max_examples=cases(200))
SECOND = 1_000_000_000


def lexed(text):
    return lex(Source("t.vega", text))


def only_token(text):
    """The only token of a text, as kind and value."""
    lexed_text = lexed(text)
    assert not lexed_text.problems, lexed_text.problems
    assert lexed_text.tokens.kinds[1:] == ["end"]
    assert (lexed_text.tokens.starts[0], lexed_text.tokens.ends[0]) == (0, len(text))
    return lexed_text.tokens.kinds[0], lexed_text.tokens.values[0]


def problems(text):
    return [(problem.line, problem.column, problem.message) for problem in lexed(text).problems]


@each([*KEYWORDS, *SIGNS])
def test_a_keyword_and_a_sign_are_their_own_kind(text):
    assert only_token(text)[0] == text


@pytest.mark.parametrize(
    "word", ["model", "window", "stop", "by", "in", "timeout", "budget", "test", "mock", "_x", "été"]
)
def test_words_that_start_no_construct_are_names(word):
    assert only_token(word) == ("name", word)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("0", "int", 0),
        ("42", "int", 42),
        ("1_000_000", "int", 1_000_000),
        ("0xFF", "int", 255),
        ("0b101", "int", 5),
        ("9223372036854775807", "int", 2**63 - 1),
        ("1.5", "float", 1.5),
        ("1e9", "float", 1e9),
        ("2.5e-3", "float", 0.0025),
        ("$0.50", "money", Money(500_000)),
        ("$10", "money", Money(10_000_000)),
        ("$0.000001", "money", Money(1)),
        ("$1_000.00", "money", Money(1_000_000_000)),
        ("100ms", "duration", Duration(SECOND // 10)),
        ("30s", "duration", Duration(30 * SECOND)),
        ("5m", "duration", Duration(300 * SECOND)),
        ("1h", "duration", Duration(3600 * SECOND)),
        ("1.5s", "duration", Duration(SECOND * 3 // 2)),
        ("1_000ms", "duration", Duration(SECOND)),
    ],
)
def test_numbers_money_and_durations(text, kind, value):
    token = only_token(text)
    assert token == (kind, value)
    assert type(token[1]) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('""', ""),
        ('"plain"', "plain"),
        (r'"a\nb\tc\rd\0e"', "a\nb\tc\rd\0e"),
        (r'"\"\\\'\$"', "\"\\'$"),
        (r'"\x41\u00e9\u{1F600}"', "Aé😀"),
        ('"costs $5 and $"', "costs $5 and $"),
        (r'"\${not}"', "${not}"),
        ('"""one\ntwo"""', "one\ntwo"),
        ('"""a "quoted" ""word"""', 'a "quoted" ""word'),
        ('""""""', ""),
    ],
)
def test_strings_and_their_escapes(text, value):
    assert only_token(text) == ("string", value)


def test_a_template_holds_texts_and_tokens():
    """`${…}` may hold strings, braces and further templates; its tokens know their places in the whole source."""
    text = '"a ${f("x", {"k": 1})} b ${"in ${y}"}"'
    kind, parts = only_token(text)
    assert kind == "template"
    assert [part if isinstance(part, str) else None for part in parts] == ["a ", None, " b ", None, ""]
    first, second = parts[1], parts[3]
    assert isinstance(first, Tokens)
    assert first.kinds[:3] == ["name", "(", "string"]
    assert text[first.starts[0] : first.ends[0]] == "f"
    assert second.kinds == ["template", "end"]


def test_places_are_offsets():
    tokens = lexed("let x\n  = 12;").tokens
    assert list(zip(tokens.kinds, tokens.starts, tokens.ends, strict=True)) == [
        ("let", 0, 3),
        ("name", 4, 5),
        ("=", 8, 9),
        ("int", 10, 12),
        (";", 12, 13),
        ("end", 13, 13),
    ]


def test_comments_are_kept_with_their_places():
    """Both kinds, not those in a template, and a first line that starts with `#!`."""
    text = '#!/usr/bin/env vega\n// one\nx /* two\n */ "${a /* three */}" // four'
    assert lexed(text).comments == [
        (0, "#!/usr/bin/env vega"),
        (20, "// one"),
        (29, "/* two\n */"),
        (59, "// four"),
    ]


def test_a_byte_order_mark_and_carriage_returns_are_passed_over():
    lexed_text = lexed("\ufeffx\r\n// c\r\ny")
    assert lexed_text.tokens.values == ["x", "y", None]
    assert lexed_text.comments == [(4, "// c")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('x = "abc', (1, 5, "this string is never closed on its line")),
        ('x = """abc\n', (1, 5, "this string is never closed")),
        ("x /* abc\n", (1, 3, "this comment is never closed")),
        ('"a ${b', (1, 4, "this `${` is never closed")),
        ('"a ${b" + c', (1, 4, "this `${` is never closed")),
        (r'"ab\qc"', (1, 4, r"`\q` is not an escape")),
        (r'"\u{110000}"', (1, 2, "there is no character 110000")),
        (r'"\ud83d"', (1, 2, "there is no character D83D")),
        ("a\n @", (2, 2, "unexpected character `@`")),
        ("'a", (1, 1, "unexpected character `'`")),
        ("a & b", (1, 3, "unexpected character `&`")),
        ("\x07", (1, 1, "unexpected character `U+0007`")),
        ("9223372036854775809", (1, 1, "this number is too large for a 64-bit int")),
        ("1" * 5000, (1, 1, "this number is too large for a 64-bit int")),
        ("0x" + "f" * 5000, (1, 1, "this number is too large for a 64-bit int")),
        ("1e999", (1, 1, "this number is too large for a float")),
        ("5mm", (1, 1, "`5mm` is not a number")),
        ("12abc", (1, 1, "`12abc` is not a number")),
        ("0x1fms", (1, 1, "`0x1fms` is not a number")),
        ("1_", (1, 1, "`1_` is not a number")),
        ("$0.0000001", (1, 1, "an amount of money has at most six decimals")),
        ("$9999999999999999", (1, 1, "this amount of money is too large")),
        ("$5x", (1, 1, "`$5x` is not an amount of money")),
        ("$ 5", (1, 1, "unexpected character `$`")),
        ("0.0000000001s", (1, 1, "this duration is finer than a nanosecond")),
        ("9999999h", (1, 1, "this duration is too long")),
    ],
)
def test_a_mistake_is_told_at_its_place(text, expected):
    assert problems(text) == [expected]


def test_several_mistakes_are_told_in_one_run():
    assert [line for line, _, _ in problems('@\n"abc\n5mm\n"\\q"')] == [1, 2, 3, 4]


def test_strings_inside_strings_have_a_limit():
    """Thousands of them are one mistake, not a crash."""
    assert len(problems('"${' * 5000)) == 1


def test_a_mistake_has_a_hint():
    assert lexed("'a'").problems[0].hint == "strings stand in double quotes"
    assert "ms" in lexed("5mm").problems[0].hint


@quick
@given(st.text())
def test_any_text_gives_tokens_in_order(text):
    """No text makes it fail; tokens do not overlap, and the last is the end."""
    tokens = lexed(text).tokens
    assert tokens.kinds[-1] == "end"
    assert len(tokens.kinds) == len(tokens.values) == len(tokens.starts) == len(tokens.ends)
    places = list(zip(tokens.starts, tokens.ends, strict=True))
    assert all(start <= end for start, end in places)
    assert all(before[1] <= after[0] for before, after in pairwise(places))


@quick
@given(st.text(alphabet=st.characters(exclude_characters='"\\$\n', exclude_categories=["Cs"])))
def test_a_plain_string_is_its_text(text):
    assert only_token(f'"{text}"') == ("string", text)


@quick
@given(st.integers(0, 2**63 - 1))
def test_every_int_reads_back(number):
    assert only_token(str(number)) == ("int", number)


@quick
@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_every_float_reads_back(number):
    kind, value = only_token(repr(number))
    assert (kind, value) == ("float", number)
