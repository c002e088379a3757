"""The line of every key, however it is written."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.checking.document import DEPTH_MAX, TooDeep, key_lines

DOCUMENT = '''\
# a comment with [brackets] and = signs
first = 1
"quoted.key" = """
inside = 1
[not.a.table]
\\""" still inside"""""
[table]   # a comment
dotted . "part" . 'last' = [1, # ] not the end
  "]", {inline = 1, other.deep = '}'},
]
date = 1979-05-27 07:32:00
[[list.of]]
in_line = { a = 1, b = { c = "," } }
literal = \'\'\'
[no]
\'\'\'\'\'
[ spaced . "out" ]
last = true
'''


def test_every_way_of_writing_a_key_has_its_line():
    """Tables, dotted, quoted and inline keys, after multi-line strings and arrays."""
    tomllib.loads(DOCUMENT)
    lines = key_lines(DOCUMENT)
    assert lines[("first",)] == 2
    assert lines[("quoted.key",)] == 3
    assert lines[("table",)] == 7
    assert lines[("table", "dotted")] == 8
    assert lines[("table", "dotted", "part", "last")] == 8
    assert lines[("table", "dotted", "part", "last", "other", "deep")] == 9
    assert lines[("table", "date")] == 11
    assert lines[("list", "of")] == 12
    assert lines[("list", "of", "in_line", "b", "c")] == 13
    assert lines[("list", "of", "literal")] == 14
    assert lines[("spaced", "out")] == 17
    assert lines[("spaced", "out", "last")] == 18
    assert not any("no" in path or "not" in path or "inside" in path for path in lines)


def test_escapes_in_a_quoted_key_are_read():
    """A key's path is the one that tomllib gives it."""
    text = '"a\\u0062\\"c" = 1\n'
    assert set(key_lines(text)) == {tuple(tomllib.loads(text))} == {('ab"c',)}


def test_a_mistake_in_a_quoted_key_is_left_to_tomllib():
    """Which says it with its place; here it is only not an error."""
    assert key_lines('"\\1" = 1') == {('"\\1"',): 1}


@pytest.mark.parametrize("text", ["a." * 50_000 + "a = 1", "a = " + "[" * 50_000, "a = " + "{a = " * 50_000])
def test_depth_is_bounded(text):
    """What would cost tomllib minutes or the stack is refused at once, with its line."""
    with pytest.raises(TooDeep) as caught:
        key_lines("\n\n" + text)
    assert caught.value.line == 3
    assert str(DEPTH_MAX) in str(caught.value)


@pytest.mark.parametrize(
    ("begin", "middle", "end", "most"),
    [("a.", "a = 1", "", DEPTH_MAX - 1), ("[", "'x'", "]", DEPTH_MAX), ("{a = ", "1", "}", DEPTH_MAX - 1)],
)
def test_what_is_nested_up_to_the_bound_is_read(begin, middle, end, most):
    """One level more is refused."""
    name = "" if begin == "a." else "a = "
    key_lines(name + begin * most + middle + end * most)
    with pytest.raises(TooDeep):
        key_lines(name + begin * (most + 1) + middle + end * (most + 1))


KEYS = st.text(alphabet="ab-_9", min_size=1, max_size=3) | st.sampled_from(['"x y"', "'#='", '"é"'])
SCALARS = st.sampled_from(
    [
        "1",
        "-2.5",
        "true",
        '"s = [1]"',
        "'lit#'",
        '"""m\n[x]\ny = 1"""',
        "'''\n'' a''''",
        "2020-01-01 10:00:00",
    ]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3).map(lambda items: "[ # c ]\n" + ",\n".join(items) + "\n]"),
    max_leaves=5,
)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=8, unique_by=lambda pair: pair[0].strip("\"'")))
def test_the_paths_are_the_ones_tomllib_finds(pairs):
    """On any document of this shape the keys are the same, and each line is where the key is written."""
    text = "".join(f"{key} = {value} # end\n" for key, value in pairs)
    lines = key_lines(text)
    document: dict[str, Any] = tomllib.loads(text)
    assert set(lines) == {(key,) for key in document}
    rows = text.split("\n")
    for (key,), line in lines.items():
        assert tuple(tomllib.loads(rows[line - 1].split("=", 1)[0] + "= 1") if "=" not in key else {key: 1}) == (key,)


@given(st.text(alphabet="a=[]{}.,\"'#\n\\ 1", max_size=60))
def test_any_text_ends(text):
    """Text that is not TOML gives some answer or TooDeep, never a hang or another error."""
    try:
        key_lines(text)
    except TooDeep:
        return
