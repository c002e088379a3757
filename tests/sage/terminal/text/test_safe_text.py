"""Text from outside cannot act on the terminal."""

from __future__ import annotations

import pytest

from lyra.sage.terminal.text.styled_lines import exact, exact_lines, for_output, scrub, scrub_lines

HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07after",
    "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1bP+q544e\x1b\\",
    "\x1bc\x1b(0",
    "\x9b31mred\x9d0;t\x9c",
    "a\x08\x08b\x7f\x00",
    "\u202eevil\u202c\u2066x\u2069",
    "zero\u200bwidth\ufeff\u00ad",
    "half \x1b[",
    "\x1b[?1049h\x1b[2J\x1b[H",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("clean", [scrub, exact])
def test_no_control_character_is_left(text: str, clean: object) -> None:
    """Escape sequences, control characters and direction marks do not reach the terminal."""
    cleaned = clean(text)  # type: ignore[operator]
    assert not any(ord(char) < 32 or 0x7F <= ord(char) <= 0x9F for char in cleaned if char != "\n")
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\ufeff") & set(cleaned)


def test_sequences_are_left_out_of_output_and_text_stays() -> None:
    """What a program printed in colour reads as without it."""
    assert scrub("\x1b[1;32mok\x1b[0m and \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\.") == "ok and link."


def test_of_a_line_that_was_overwritten_the_last_state_is_shown() -> None:
    """A progress bar is its last state; Windows line ends are line ends."""
    assert scrub("10 %\r55 %\r100 %\r\nnext\ttab") == "100 %\nnext    tab"
    assert scrub_lines("a\nb\n\n") == ["a", "b"]


def test_what_is_decided_on_shows_every_character() -> None:
    """In commands, paths and diffs invisible characters are shown as their codes, not dropped."""
    assert exact("rm \x1b[8m-rf\u202e x") == "rm ⟨U+001B⟩[8m-rf⟨U+202E⟩ x"
    assert exact("two\nlines") == "two⏎ lines"
    assert exact_lines("a\tb\n\x07\n") == ["a   b", "⟨U+0007⟩"]


def test_the_last_check_lets_no_control_character_pass() -> None:
    """Even a text that passed no other function writes no escape sequence."""
    assert for_output("a\x1b[2J\n\udc80b", unicode=True) == "a?[2J??b"


def test_a_terminal_without_utf8_gets_ascii() -> None:
    """Marks and letters become their nearest ASCII; nothing else is written."""
    assert for_output("“é” … − › 日", unicode=False) == '"e" ... - > ?'
