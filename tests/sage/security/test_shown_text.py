"""No text acts on the screen of an editor or of a list: controls of 7 and 8 bits, directions, ends of lines."""

from __future__ import annotations

import re

import pytest

from lyra.agents.acp.updates import call_title, render_text
from lyra.cli.render import printable
from tests.sage.open_session import Project, say
from verify.attacks.terminal_text import TEXTS

ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("what", TEXTS)
def test_an_editor_is_told_nothing_that_acts(what: str) -> None:
    """Also 8-bit forms of sequences, backspaces and carriage returns, which a terminal obeys."""
    assert not ACTING.search(render_text(TEXTS[what]))
    assert not ACTING.search(call_title("Bash", {"command": TEXTS[what]}))


def test_ordinary_text_stays_as_it_is() -> None:
    assert render_text("a\tb\r\nc ä 漢\n") == "a\tb\nc ä 漢\n"
    assert render_text("x\x1b[2J\x9b1m\r") == "x␛[2J⟨U+009B⟩1m␍"


@pytest.mark.parametrize("what", TEXTS)
def test_a_command_prints_nothing_that_acts(what: str) -> None:
    assert not ACTING.search(printable(TEXTS[what]))


async def test_the_title_of_a_session_is_one_line(project: Project) -> None:
    """Otherwise it could look like further sessions in a list."""
    async with project.open(title="mine\n20260101-abcdef  now  1 turns  another\x1b[2J") as session:
        await say(session, "hello")
        assert session.title == "mine 20260101-abcdef now 1 turns another⟨U+001B⟩[2J"
