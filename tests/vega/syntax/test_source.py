"""Places in a source and how a remark about one is shown."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.errors import CheckError
from lyra.vega.syntax.source import Source, source_error
from tests.cases import cases

quick = settings(derandomize=True, deadline=None, max_examples=cases(200))


def test_lines_and_columns_count_characters_from_one():
    source = Source("a.vega", "ab\n\u00e9😀x\n")
    assert [source.place(offset) for offset in (0, 2, 3, 5, 6, 7)] == [(1, 1), (1, 3), (2, 1), (2, 3), (2, 4), (3, 1)]
    assert source.place(99) == (3, 1)
    assert [source.line(number) for number in (0, 1, 2, 3, 4)] == ["", "ab", "é😀x", "", ""]


@quick
@given(st.text(alphabet="ab\n\r\t"), st.integers(0, 40))
def test_a_place_is_where_the_character_stands(text, offset):
    source = Source("a", text)
    offset = min(offset, len(text))
    line, column = source.place(offset)
    assert text[:offset].count("\n") == line - 1
    assert len(text[:offset].rpartition("\n")[2]) == column - 1


def test_a_remark_is_shown_with_its_line_a_caret_and_a_hint():
    source = Source("review.vega", "let a = 1;\nlet x = codr;\n")
    problem = source.problem(19, 23, "unknown name `codr`", hint="did you mean `coder`?")
    assert problem.render() == (
        "review.vega:2:9: error: unknown name `codr`\n"
        "    let x = codr;\n"
        "            ^~~~\n"
        "    hint: did you mean `coder`?"
    )
    assert str(problem) == "review.vega:2:9: error: unknown name `codr`"


def test_the_caret_stands_under_its_character_after_tabs():
    assert Source("a", "\tlet x").problem(5, 6, "m").render().splitlines()[1:] == ["    \tlet x", "    \t    ^"]


def test_a_caret_stays_on_its_line():
    """A remark over several lines is marked to the end of the first; one behind the last character has one caret."""
    source = Source("a", "abc\ndef")
    assert source.problem(1, 7, "m").render().splitlines()[2] == "     ^~"
    assert source.problem(3, 3, "m").render().splitlines()[2] == "       ^"


def test_a_long_line_is_cut_around_its_caret():
    source = Source("a", "x" * 5000 + "Y" + "x" * 5000)
    _, line, caret = source.problem(5000, 5001, "m").render().splitlines()
    assert len(line) < 200
    assert line[caret.index("^")] == "Y"


def test_a_warning_says_so():
    problem = Source("a", "x").problem(0, 1, "m", severity="warning")
    assert problem.render().startswith("a:1:1: warning: m")
    assert not problem.is_error


def test_the_error_speaks_with_its_first_error():
    source = Source("a", "x\ny")
    problems = [source.problem(0, 1, "only a warning", severity="warning"), source.problem(2, 3, "bad", hint="h")]
    error = source_error(CheckError, problems)
    assert (error.message, error.line, error.column, error.hint) == ("bad", 2, 1, "h")
    assert error.fields["problems"] == problems


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    source = Source("t", "\ufeffab\ncd")
    assert [source.place(offset) for offset in (0, 1, 2, 4)] == [(1, 1), (1, 1), (1, 2), (2, 1)]
    assert source.line(1) == "ab"
    assert Source("t", "\ufeff").place(0) == (1, 1)
