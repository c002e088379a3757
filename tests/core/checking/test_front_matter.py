"""Markdown with YAML front matter: split with true line numbers, within bounds, and never more than plain data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.checking.document import HEAD_CHARS_MAX, read_front_matter
from lyra.errors import ConfigError, ParseError


def test_keys_places_and_body() -> None:
    """Lines are those of the file: the first `---` is line 1."""
    head = read_front_matter(b"---\na: x\nb:\n  - 1\n---\nText\nmore\n", "f.md")
    assert head.keys == {"a": "x", "b": [1]}
    assert (head.places["a",], head.places["b", 0]) == ((2, 1), (4, 5))
    assert (head.body, head.body_line) == ("Text\nmore\n", 6)


@pytest.mark.parametrize("data", [b"Text\n---\na: b\n---\n", b"", b" ---\na: b\n---\n", b"----\na: b\n----\n"])
def test_a_file_that_does_not_begin_with_the_fence_has_no_keys(data: bytes) -> None:
    head = read_front_matter(data, "f.md")
    assert (head.keys, head.body) == ({}, data.decode())


@pytest.mark.parametrize("data", [b"---\n---\nT", b"---\n# only a comment\n---\nT", b"\xef\xbb\xbf---\r\n---\r\nT"])
def test_empty_front_matter(data: bytes) -> None:
    """Also with a byte order mark and the line ends of Windows."""
    head = read_front_matter(data, "f.md")
    assert (head.keys, head.body) == ({}, "T")


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        (b"---\na: b\n", 1, "has no end"),
        (b"---\n- a\n---\n", 2, "mapping"),
        (b"---\na: b\na: c\n---\n", 3, "written twice"),
        (b"---\na: &x [1]\nb: *x\n---\n", 3, "aliases"),
        (b"---\na: !!python/object:os.system ls\n---\n", 2, "tag"),
        (b"---\na: [b\n---\n", 3, "not YAML"),
        (b"---\na: " + b"[" * 100 + b"]" * 100 + b"\n---\n", 2, "nested too deeply"),
        (b"---\na: \xff\n---\n", 2, "not UTF-8"),
        (b"---\na: " + b"x" * HEAD_CHARS_MAX + b"\n---\n", 1, "more than"),
        (b"---\na: \x00\n---\n", 1, "not YAML"),
    ],
)
def test_what_is_not_front_matter_is_an_error_with_its_line(data: bytes, line: int, message: str) -> None:
    with pytest.raises(ParseError, match=message) as error:
        read_front_matter(data, "f.md")
    assert (error.value.fields["file"], error.value.fields["line"]) == ("f.md", line)


def test_a_bomb_of_aliases_is_refused_before_it_is_built() -> None:
    """Nine levels of nine references would be a third of a billion values."""
    levels = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    levels += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    with pytest.raises(ParseError, match="aliases"):
        read_front_matter(("---\n" + "\n".join(levels) + "\n---\n").encode(), "f.md")


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: f"---\n{text}\n---\n".encode())))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        head = read_front_matter(data, "f.md")
    except (ParseError, ConfigError):
        return
    assert isinstance(head.keys, dict)
    assert all(isinstance(key, str) for key in head.keys)
