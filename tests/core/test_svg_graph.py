"""Pictures of graphs: nodes in rows, edges between them, text that stays text."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from lyra.core.svg_graph import Canvas, GraphEdge, GraphMark, GraphNode, draw_layers

_SVG = "{http://www.w3.org/2000/svg}"


def _tops(picture: str) -> dict[str, float]:
    """Each text of the picture, and how far down it stands."""
    return {"".join(text.itertext()): float(text.attrib["y"]) for text in ET.fromstring(picture).iter(f"{_SVG}text")}


def test_nodes_stand_below_those_that_lead_to_them() -> None:
    """A longer way decides, a loop does not; what is last stands below all."""
    nodes = [
        GraphNode("end", shape="round"),
        GraphNode("a"),
        GraphNode("b", note="twice"),
        GraphNode("c", shape="diamond"),
        GraphNode("d"),
    ]
    edges = [
        GraphEdge("a", "b"),
        GraphEdge("b", "c"),
        GraphEdge("a", "c"),
        GraphEdge("c", "a", "again", "error"),
        GraphEdge("a", "end"),
    ]
    picture = draw_layers("loop", nodes, edges, last=("end",))
    tops = _tops(picture)
    assert tops["a"] == tops["d"] < tops["b"] < tops["c"] < tops["end"]
    assert {"loop", "twice", "again"} <= tops.keys()
    assert picture.count('<path class="edge') == len(edges)
    assert picture == draw_layers("loop", nodes, edges, last=("end",))


def test_boxes_of_a_row_stand_side_by_side_inside_the_picture() -> None:
    """However long their names are; the left and the right margin are equal."""
    names = ["a", "a name that needs a wide box", "b"]
    picture = ET.fromstring(draw_layers("row", [GraphNode(name) for name in names], []))
    boxes = [box for box in picture.iter(f"{_SVG}rect") if "node" in box.attrib.get("class", "")]
    sides = [(float(box.attrib["x"]), float(box.attrib["x"]) + float(box.attrib["width"])) for box in boxes]
    assert len(sides) == len(names)
    assert all(right < left for (_, right), (left, _) in pairwise(sides))
    assert sides[0][0] == pytest.approx(float(picture.attrib["width"]) - sides[-1][1], abs=1)


def test_rows_can_be_given() -> None:
    tops = _tops(
        draw_layers(
            "layers", [GraphNode("low"), GraphNode("high")], [GraphEdge("low", "high")], rows={"low": 1, "high": 0}
        )
    )
    assert tops["high"] < tops["low"]


def test_kinds_are_classes_and_the_style_gives_their_colours() -> None:
    picture = draw_layers("k", [GraphNode("x", "core")], [], style=".core { fill: red; }")
    assert 'class="node core"' in picture
    assert ".core { fill: red; }" in picture


def test_text_is_escaped_and_cut() -> None:
    canvas = Canvas()
    canvas.text(0, 0, "<b>" * 20, length_max=10)
    canvas.box(0, 0, 10, 10, title="<i>")
    picture = canvas.document("<&>", 20, 20)
    words = ["".join(text.itertext()) for text in ET.fromstring(picture).iter(f"{_SVG}text")]
    assert words == ["<b>" * 20 + "<b><b><b>…"]  # its whole is its title
    assert "<i>" not in picture


def _boxes(picture: str) -> list[tuple[float, float, float]]:
    """Left and right side and top of each node."""
    shapes = [shape.attrib for shape in ET.fromstring(picture).iter(f"{_SVG}rect") if "node" in shape.get("class", "")]
    return [(float(at["x"]), float(at["x"]) + float(at["width"]), float(at["y"])) for at in shapes]


def _starts(picture: str) -> list[float]:
    """Where each edge begins, from the left."""
    paths = [path.attrib["d"] for path in ET.fromstring(picture).iter(f"{_SVG}path") if "edge" in path.get("class", "")]
    return [float(re.findall(r"[\d.]+", path)[0]) for path in paths]


def test_nodes_of_a_row_stand_beside_each_other_on_the_picture() -> None:
    nodes = [GraphNode(name) for name in ("first", "second", "third", "below")]
    picture = draw_layers("row", nodes, [GraphEdge("first", "below")])
    (_, right, top), (left, next_right, next_top), (last, _, _), (_, _, below) = _boxes(picture)
    assert top == next_top < below
    assert right < left
    assert next_right < last
    width, height = (float(ET.fromstring(picture).attrib[side]) for side in ("width", "height"))
    assert all(0 < left < right < width and 0 < top < height for left, right, top in _boxes(picture))


def test_edges_between_the_same_nodes_are_drawn_side_by_side() -> None:
    nodes = [GraphNode("a"), GraphNode("b")]
    (alone,) = _starts(draw_layers("one", nodes, [GraphEdge("a", "b")]))
    ((left, right, _), _) = _boxes(draw_layers("one", nodes, [GraphEdge("a", "b")]))
    assert alone == (left + right) / 2
    first, second, third = _starts(draw_layers("three", nodes, [GraphEdge("a", "b", label) for label in "xyz"]))
    assert first < second < third
    assert second - first == third - second


def test_an_embedded_picture_has_no_style_and_shows_its_marks() -> None:
    """It stands in a page whose policy allows no inline style; texts of outside are escaped, in marks too."""
    nodes = [GraphNode("a", "current"), GraphNode("<b>")]
    marks = [
        GraphMark("a", "token-1", "envelope", "here"),
        GraphMark("a", "token-2"),
        GraphMark("<b>", "x", title="<i>"),
    ]
    text = draw_layers("<t>", nodes, [GraphEdge("a", "<b>", kind="taken")], embedded=True, marks=marks)
    assert text.startswith("<svg viewBox=")
    assert "<style" not in text
    assert 'fill="#' not in text
    assert text.count("<circle") == 3
    assert 'data-key="token-1"' in text
    assert 'class="edge taken"' in text
    for word in ("<b>", "<i>", "<t>"):
        assert word not in text
