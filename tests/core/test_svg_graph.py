"""Pictures of graphs: nodes in rows, edges between them, text that stays text."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from lyra.core.svg_graph import Canvas, GraphEdge, GraphNode, draw_layers

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
