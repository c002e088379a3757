"""A node as a picture: every part of its flow is in it, names stay text, nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lyra import vesper
from lyra.vesper.format.picture import draw_node

_SVG = "{http://www.w3.org/2000/svg}"
_FILES = Path(__file__).parents[1] / "files"

_ROUTES = """\
node_id: routes_v1
type: function
intent: go every way
inputs: {n: integer, items: array<integer>}
outputs: {success: {total: integer}, error: {error_code: "enum[small, unavailable]"}}
security: {capabilities_required: [database.read.stock]}
flow:
  - {step: begin, operation: arithmetic, expression: "0", output: total}
  - step: outer
    operation: conditional
    condition: n > 1
    then:
      - step: inner
        operation: conditional
        condition: n > 2
        then: [{step: large, operation: arithmetic, expression: total + 1, output: total}]
        else: [{return_error: small}]
  - step: each
    operation: for_each
    input: items
    as: item
    steps: [{step: add, operation: arithmetic, guards: ["item > 3"], expression: total + item, output: total}]
  - step: halve
    operation: loop
    condition: total > 100
    max_iterations: 5
    steps: [{step: lower, operation: arithmetic, expression: total - 1, output: total}]
  - step: both
    operation: parallel
    steps:
      - {step: left_side, operation: arithmetic, expression: total * 2, output: left}
      - {step: right_side, operation: arithmetic, expression: total * 3, output: right}
  - step: stock
    operation: transaction
    steps: [{step: look, operation: database_query, query: "SELECT amount FROM stock WHERE id = {n}"}]
    on_error: [{error_type: any, return_error: unavailable}]
  - step: ask
    operation: call_node
    node_id: other_v1
    inputs: {n: "{n}"}
"""


def _picture(text: str | Path) -> ET.Element:
    return ET.fromstring(draw_node(vesper.load(text)))


def _texts(picture: ET.Element) -> dict[str, tuple[float, float]]:
    """Return each text of the picture with its place."""
    return {
        "".join(text.itertext()): (float(text.attrib["x"]), float(text.attrib["y"]))
        for text in picture.iter(f"{_SVG}text")
    }


def _boxes(picture: ET.Element, kind: str = "") -> list[tuple[float, float, float, float]]:
    """Return the left, top, right and bottom of the boxes of a kind; of all but frames without one."""
    sides = []
    for box in picture.iter(f"{_SVG}rect"):
        classes = box.attrib.get("class", "").split()
        if "node" in classes and (kind in classes if kind else "frame" not in classes):
            x, y, width, height = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
            sides.append((x, y, x + width, y + height))
    return sides


def test_every_step_has_its_name_and_its_words() -> None:
    """Conditions, limits, queries, ids of nodes and what errors lead to are those of the file."""
    texts = _texts(_picture(_ROUTES)).keys()
    names = {"routes_v1", "begin", "outer", "inner", "large", "add", "lower", "left_side", "right_side", "look", "ask"}
    assert names <= texts
    assert {"n > 1", "n > 2", "yes", "no", "fails with small", "only if item > 3", "total = total + item"} <= texts
    assert {"each: for each item in items", "halve: while total > 100, at most 5 times", "both: at once"} <= texts
    assert {"stock: transaction, all steps or none", "any error", "answers unavailable"} <= texts
    assert {"SELECT amount FROM stock WHERE id = {n}", "runs the node other_v1", "answers total"} <= texts


def test_the_flow_goes_down_and_outcomes_stand_side_by_side() -> None:
    """A step stands below the one before it; the outcomes of a condition are left and right of it, at one height."""
    texts = _texts(_picture(_ROUTES))
    order = ["begin", "outer", "inner", "large", "add", "lower", "left_side", "look", "ask", "end"]
    heights = [texts[name][1] for name in order]
    assert heights == sorted(heights)
    assert texts["large"][0] < texts["inner"][0] < texts["fails with small"][0]
    assert texts["left_side"][1] == texts["right_side"][1]
    assert texts["left_side"][0] < texts["right_side"][0]
    assert texts["any error"][0] > texts["look"][0]


def test_steps_lie_inside_the_frames_around_them_and_no_boxes_overlap() -> None:
    """Loops, parallel steps and transactions are frames; every box lies inside the picture."""
    picture = _picture(_ROUTES)
    frames, boxes, texts = _boxes(picture, "frame"), _boxes(picture), _texts(picture)
    assert len(frames) == 4
    for name, (left, top, right, bottom) in zip(("add", "lower", "left_side", "look"), frames, strict=True):
        x, y = texts[name]
        assert left < x < right
        assert top < y < bottom
    for at, (left, top, right, bottom) in enumerate(boxes):
        assert all(
            right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top for other in boxes[at + 1 :]
        )
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    assert all(0 < left < right < width and 0 < top < bottom < height for left, top, right, bottom in boxes + frames)


def test_kinds_of_steps_differ() -> None:
    """What acts outside, what calls a node, successes and failures are told apart."""
    picture = _picture(_ROUTES)
    assert [len(_boxes(picture, kind)) for kind in ("effect", "call", "success", "failure", "handler")] == [1] * 5


def test_the_payment_node_shows_its_errors_and_its_compensation() -> None:
    """The rules of a call stand at its right, with the steps that undo; the rules of the node stand below."""
    texts = _texts(_picture(_FILES / "payment_handler.vsp"))
    assert {"rows found?", "POST stripe /v1/charges", "within 30s, at most 3 attempts"} <= texts.keys()
    assert {"not all true", "card_declined: compensation", "mark_failed", "rate_limit"} <= texts.keys()
    assert texts["mark_failed"][0] > texts["charge_card"][0]
    assert texts["errors of any step"][1] > texts["answer"][1]
    assert "opens a circuit breaker after 5 failures" in texts


@pytest.mark.parametrize("file", sorted(_FILES.glob("*.vsp")), ids=lambda path: path.stem)
def test_a_picture_loads_nothing_and_is_the_same_again(file: Path) -> None:
    """No address but that of SVG's own name, no script, no picture inside; colours for light and for dark."""
    text = draw_node(vesper.load(file))
    assert text == draw_node(vesper.load(file))
    assert re.findall(r"\w+://[^\"' ]*", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<(script|image|foreignObject|use|a)\b|@import|href|url\((?!#)", text)
    assert "prefers-color-scheme: dark" in text


def test_hostile_names_stay_text() -> None:
    """Marks are escaped; control characters and those that turn the order of text are replaced."""
    evil = '</text><script>alert(1)</script>&\\"\\u202e\\x01\\x1b[31m'
    text = f"""\
node_id: evil_v1
type: function
intent: "{evil}"
outputs: {{total: integer}}
flow:
  - {{step: "{evil}", operation: arithmetic, expression: "1", output: total}}
  - step: branch
    operation: conditional
    condition: "total == 1 AND '</svg><script>' != 'x'"
    then: [{{step: "</rect>", operation: string_template, template: "<image href='http://x/'/>", output: words}}]
"""
    drawn = draw_node(vesper.load(text))
    picture = ET.fromstring(drawn)
    assert {element.tag.removeprefix(_SVG) for element in picture.iter()} == (
        {"svg", "title", "style", "defs", "marker", "path", "rect", "polygon", "text"}
    )
    assert "<script" not in drawn
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\u202a-\u202e\u2066-\u2069]", drawn)
    assert any("<script>alert(1)" in words for words in ("".join(part.itertext()) for part in picture.iter()))


def test_long_texts_are_cut_and_their_whole_is_the_title() -> None:
    """A box grows with wide characters, and no line leaves it."""
    long = " + ".join(["10000"] * 60)
    text = f"""\
node_id: long_v1
type: function
intent: be long
outputs: {{total: integer, words: string}}
flow:
  - {{step: sum, operation: arithmetic, expression: "{long}", output: total}}
  - {{step: wide, operation: string_template, template: "{"漢" * 40}", output: words}}
"""
    picture = _picture(text)
    lines = [words for words in _texts(picture) if "10000 + " in words]
    assert len(lines) <= 4
    assert lines[-1].endswith("…")
    assert any(long in "".join(title.itertext()) for title in picture.iter(f"{_SVG}title"))
    assert max(right - left for left, _, right, _ in _boxes(picture)) > 40 * 11
