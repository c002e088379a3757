"""The picture of the architecture is that of the code."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from verify.structure.layers import read_contracts
from verify.structure.picture import PATH, SUBJECTS, draw
from verify.structure.source_tree import SourceTree


def test_the_kept_picture_is_the_drawn_one() -> None:
    """After a change of the folders or the layers: `make docs`."""
    assert PATH.read_text(encoding="utf-8") == draw()


def test_every_part_is_drawn_in_its_layer() -> None:
    """A part stands below the parts that may import it, with every layer of its own inside."""
    names = [name for name in SourceTree().modules if re.fullmatch(r"lyra\.[a-z]\w*", name)]
    contracts = read_contracts()
    assert set(SUBJECTS) == {name.removeprefix("lyra.") for name in names}
    texts = list(ET.fromstring(draw()).iter("{http://www.w3.org/2000/svg}text"))
    names_drawn = [text.text for text in texts if text.get("class") == "name"]
    assert names_drawn == [name for row in contracts["lyra"].layers for name in row if name in SUBJECTS]
    chips = " · ".join(text.text or "" for text in texts if text.get("class") == "chip").replace("/", "").split(" · ")
    layers_of_cli = [name for row in contracts["lyra.cli"].layers for name in row]
    assert chips[: len(layers_of_cli)] == layers_of_cli
