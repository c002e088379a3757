"""Files of nodes as data with places."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from lyra.errors import ConfigError, LyraError, ParseError
from lyra.vesper.loading import (
    Issue,
    Issues,
    error_of,
    path_text,
    read_document,
    read_source,
    render_issue,
    sort_issues,
)
from lyra.vesper.values.limits import ISSUES_MAX, NODE_FILE_BYTES_MAX


def test_numbers_keep_the_digits_that_are_written() -> None:
    """A number with a point is a Decimal of its text, never a float; its scale stays."""
    data = read_document("a: 99.99\nb: 50000.00\nc: 1e3\nd: -0.10\ne: 7\nf: 9223372036854775808\n").data
    assert [str(data[key]) for key in "abcd"] == ["99.99", "50000.00", "1E+3", "-0.10"]
    assert all(isinstance(data[key], Decimal) for key in "abcd")
    assert data["e"] == 7
    assert data["f"] == 2**63


def test_words_are_those_of_yaml_1_2() -> None:
    data = read_document("a: yes\nb: on\nc: true\nd: ~\ne: 12:30\nf: 2025-01-08T10:00:00Z\ng: 'true'\nh: 0x10\n").data
    assert data == {
        "a": "yes",
        "b": "on",
        "c": True,
        "d": None,
        "e": "12:30",
        "f": "2025-01-08T10:00:00Z",
        "g": "true",
        "h": "0x10",
    }


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\na: 2\n", (2, 1), "written twice"),
        ("a: &x 1\nb: *x\n", (2, 4), "aliases"),
        ("a: !!python/object:os.system 1\n", (1, 4), "tag"),
        ("a: [1\n", (2, 1), "not YAML"),
        ("? [a]\n: 1\n", (1, 3), "a key is a text"),
        ("a: 1e99999\n", (1, 4), "too large"),
        ("a:\n  - " + "[" * 70 + "]" * 70 + "\n", (2, 67), "nested too deeply"),
    ],
)
def test_mistakes_have_a_place(text: str, place: tuple[int, int], words: str) -> None:
    with pytest.raises(ParseError) as caught:
        read_document(text, "x.vsp")
    assert words in str(caught.value)
    assert (caught.value.fields["line"], caught.value.fields["column"]) == place


def test_a_file_has_a_largest_size() -> None:
    with pytest.raises(ParseError, match="bytes"):
        read_document("a: " + "x" * NODE_FILE_BYTES_MAX + "\n")


@pytest.mark.parametrize(
    ("text", "offset", "place"),
    [
        ("k: abc def\n", 4, (1, 8)),
        ("k: 'abc def'\n", 4, (1, 9)),
        ("k: 'a''b c'\n", 2, (1, 8)),  # b stands after two quotes
        ('k: "a\\"b c"\n', 2, (1, 8)),
        ('k: "a\\u0041b"\n', 2, (1, 12)),
        ("k: abc\n  def\n", 4, (2, 3)),
        ("k: 'abc\n\n  def'\n", 4, (3, 3)),
        ("k: |\n  abc\n  def\n", 4, (3, 3)),
        ("k: |\n  abc\n    def\n", 6, (3, 5)),
        ("k: >\n  abc\n  def\n", 4, (3, 3)),
        ("k: abc\n", 99, (1, 7)),
        ("- 1\n- k: abc\n", 1, (2, 7)),
    ],
)
def test_a_character_of_a_text_has_a_place_in_the_file(text: str, offset: int, place: tuple[int, int]) -> None:
    """Quotes, escapes, folding and indentation come between the text and the file."""
    document = read_document(text)
    path = ("k",) if isinstance(document.data, dict) else (1, "k")
    assert document.place_in(path, offset) == place


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("k: 30s  # why\nz: 1\n", "60s", "k: 60s  # why\nz: 1\n"),
        ("{z: [1], k: a, y: 2}\n", 7, "{z: [1], k: 7, y: 2}\n"),
        ("k: 'it''s'\n", "a: b", 'k: "a: b"\n'),
        ('k: "a\\"b" # c\n', Decimal("1.50"), "k: 1.50 # c\n"),
        ("k: yes\n", "true", 'k: "true"\n'),
    ],
)
def test_a_scalar_is_replaced_where_it_stands(text: str, value: object, expected: str) -> None:
    assert read_document(text).with_scalar(("k",), value) == expected


@pytest.mark.parametrize("text", ["k: |\n  a\n  b\n", "k: a\n  b\n", "k: [1]\n", "j: 1\n"])
def test_what_stands_on_several_lines_is_not_replaced(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be changed"):
        read_document(text).with_scalar(("k",), 1)


def test_a_part_without_a_place_has_that_of_the_part_around_it() -> None:
    document = read_document("a:\n  b: 1\n")
    assert document.place(("a", "b")) == (2, 3)
    assert document.value_place(("a", "b")) == (2, 6)
    assert document.place(("a", "c", "d")) == (1, 1)
    assert document.place_in(("a",), 3) == (1, 1)


def test_a_source_is_a_text_with_a_line_break_or_a_path(tmp_path: Path) -> None:
    file = tmp_path / "n.vsp"
    file.write_text("a: 1\n")
    assert read_source("a: 1\n") == ("a: 1\n", "<text>")
    assert read_source(file) == ("a: 1\n", str(file))
    assert read_source(str(file)) == ("a: 1\n", str(file))
    for wrong in (tmp_path / "none.vsp", tmp_path, "x" * 5000, "a\0b"):
        with pytest.raises(ConfigError):
            read_source(wrong)
    file.write_bytes(b"a: \xff\n")
    with pytest.raises(LyraError, match="UTF-8"):
        read_source(file)


def test_remarks_are_kept_once_and_bounded() -> None:
    issues = Issues()
    for number in range(ISSUES_MAX + 10):
        issues.add("error", "x", f"message {number % (ISSUES_MAX + 5)}")
    assert len(issues.items) == ISSUES_MAX
    assert issues.left_out == 5


def test_remarks_are_sorted_by_place_and_shown_with_a_caret() -> None:
    late = Issue(severity="error", code="b", message="late", line=2, column=4, hint="write x")
    early = Issue(severity="info", code="a", message="early", line=1, column=1)
    first = Issue(severity="error", code="c", message="first", line=1, column=1)
    assert sort_issues([late, early, first]) == [first, early, late]
    assert render_issue(late, "n.vsp", "a: 1\nb: wrong\n") == (
        "n.vsp:2:4: error[b]: late\n    b: wrong\n       ^\n    hint: write x"
    )
    error = error_of([early, late], "n.vsp")
    assert (error.place, error.hint) == ("n.vsp:2:4", "write x")
    assert [problem["code"] for problem in error.fields["problems"]] == ["a", "b"]
    assert path_text(("flow", 0, "guards", 1)) == "flow[0].guards[1]"
    assert "…" not in render_issue(late, "n.vsp", "a: 1\n" + "b: " + "x" * 500 + "\n")
