"""The pictures of `sage` in the documentation are those of the program as it is."""

from __future__ import annotations

import re
from html import unescape
from xml.etree import ElementTree as ET

import pytest

from verify.screenshots.scenes import FOLDER, record
from verify.screenshots.screen_svg import Cell, draw_rows

_FIGURES = re.compile(r"\$\d+\.\d+|\d+ tokens|context \d+ %")  # what depends on the length of paths
_TEXT = re.compile(r"<text [^>]*>(.*?)</text>")
_ANY_ORDER = {"sage-agents.svg"}  # of two sub-agents at work at once, the one that ends first is shown first


def words_of(picture: str) -> list[str]:
    return [_FIGURES.sub("#", unescape(text)) for text in _TEXT.findall(picture)]


@pytest.mark.slow
def test_the_kept_pictures_are_those_of_the_program() -> None:
    """After a change of what `sage` shows: `python -m verify screenshots`. Costs and token counts may differ."""
    pictures = record()
    assert sorted(pictures) == sorted(path.name for path in FOLDER.glob("sage-*.svg"))
    for name, picture in pictures.items():
        shown, kept = words_of(picture), words_of((FOLDER / name).read_text(encoding="utf-8"))
        if name in _ANY_ORDER:
            shown, kept = sorted(shown), sorted(kept)
        assert shown == kept, name


@pytest.mark.parametrize("path", sorted(FOLDER.glob("sage-*.svg")), ids=lambda path: path.name)
def test_a_picture_loads_nothing_and_shows_no_time(path) -> None:
    """It is small and well-formed, has a title, names no other file or address, and no time of a call."""
    text = path.read_text(encoding="utf-8")
    assert len(text) < 8_000
    assert next(ET.fromstring(text).iter("{http://www.w3.org/2000/svg}title")).text
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not any(re.fullmatch(r"\d+ s", words) for words in words_of(text))
    assert "/tmp" not in text


def test_columns_stay_where_they_are() -> None:
    """A word far to the right is placed by its column, and text of a program is escaped."""
    row = [Cell(letter) for letter in "a    <b>"]
    drawn = draw_rows("A & B", [row], 8)
    assert '<text x="58.0" y="29" textLength="25.2">&lt;b&gt;</text>' in drawn
    assert "<title>A &amp; B</title>" in drawn
