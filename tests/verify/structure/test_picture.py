"""The picture of the architecture is that of the code."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from verify.structure.layers import read_contracts
from verify.structure.picture import PATH, SUBJECTS, draw
from verify.structure.source_tree import SourceTree


@pytest.fixture(scope="module")
def drawn() -> str:
    return draw()


def test_the_kept_picture_is_the_drawn_one(drawn: str) -> None:
    """After a change of the folders or the layers: `make docs`."""
    assert PATH.read_text(encoding="utf-8") == drawn


def test_every_part_is_drawn_in_its_layer(drawn: str) -> None:
    """A part stands below the parts that may import it, with every layer of its own inside."""
    names = [name for name in SourceTree().modules if re.fullmatch(r"lyra\.[a-z]\w*", name)]
    contracts = read_contracts()
    assert set(SUBJECTS) == {name.removeprefix("lyra.") for name in names}
    texts = list(ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text"))
    names_drawn = [text.text for text in texts if text.get("class") == "name"]
    assert names_drawn == [name for row in contracts["lyra"].layers for name in row if name in SUBJECTS]
    chips = " · ".join(text.text or "" for text in texts if text.get("class") == "chip").replace("/", "").split(" · ")
    layers_of_cli = [name for row in contracts["lyra.cli"].layers for name in row]
    assert chips[: len(layers_of_cli)] == layers_of_cli
