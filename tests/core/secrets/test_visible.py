"""Characters that no screen shows do not reach a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.secrets.visible import visible, without_invisible, without_invisible_data
from tests.cases import each

HIDDEN = {
    "zero-width space": "\u200b",
    "zero-width joiner": "\u200d",
    "zero-width non-joiner": "\u200c",
    "word joiner": "\u2060",
    "invisible times": "\u2062",
    "soft hyphen": "\xad",
    "grapheme joiner": "\u034f",
    "Arabic letter mark": "\u061c",
    "left-to-right mark": "\u200e",
    "right-to-left override": "\u202e",
    "isolate": "\u2066",
    "byte order mark": "\ufeff",
    "Hangul filler": "\u3164",
    "half-width filler": "\uffa0",
    "Mongolian separator": "\u180e",
    "Khmer vowel": "\u17b4",
    "variation selector": "\ufe00",
    "variation selector 16": "\ufe0f",
    "variation selector 256": "\U000e01ef",
    "tag": "\U000e0041",
    "annotation": "\ufff9",
    "musical": "\U0001d173",
    "shorthand": "\U0001bca0",
    "Braille blank": "\u2800",
    "Khitan filler": "\U00016fe4",
    "null notehead": "\U0001d159",
    "noncharacter": "\ufdd0",
    "last of a plane": "\U0001ffff",
    "escape": "\x1b",
    "null": "\0",
    "next line": "\x85",
}


@each(HIDDEN)
def test_what_no_screen_shows_is_left_out(what):
    """Alone, among letters, in a row, and in data."""
    char = HIDDEN[what]
    assert without_invisible(f"a{char}b") == "ab"
    assert without_invisible(f"{char}ab{char}") == "ab"
    assert without_invisible(f"é{char * 3}é") == "éé"
    assert without_invisible_data({f"k{char}": [f"v{char}", 1, None]}) == {"k": ["v", 1, None]}


def test_what_words_are_spelled_with_stays():
    """Persian, Hindi, a family, a heart; lines and tabs."""
    for text in ("می‌خواهم", "क्‍ष", "👨‍👩‍👧", "❤️ and more", "a\n\tb\r\n", "häßlich", "語"):
        assert without_invisible(text) == text
    assert without_invisible("a\u2028b\u2029c") == "a\nb\nc"
    assert without_invisible("\x1b[31mred\u200b", keep_controls=True) == "\x1b[31mred"


@pytest.mark.parametrize("blank", ["\xa0", "\u1680", "\u2003", "\u200a", "\u202f", "\u205f"])
def test_a_blank_of_another_width_is_an_ordinary_one(blank):
    assert without_invisible(f"a{blank}b {blank}c") == "a b  c"


@given(st.text())
def test_a_second_time_changes_nothing(text):
    """What is left has nothing more to leave out, and every visible character of the text is in it."""
    once = without_invisible(text)
    assert without_invisible(once) == once
    assert [char for char in text if char.isalnum() and visible(char) == char] == [
        char for char in once if char.isalnum() and visible(char) == char
    ]
