"""Pictures of graphs: SVG as plain text.

    draw_layers("build", [GraphNode("parse"), GraphNode("check", note="strict")], [GraphEdge("parse", "check", "tree")])

`draw_layers` places nodes in rows from top to bottom, by their longest path from the start or as given in `rows`, and
draws edges between them; edges that lead back run at the right side. `Canvas` is the painter below it, for callers that
place boxes themselves. A node's or an edge's `kind` is a class of the style sheet, so that a caller gives colours with
`style`. With `embedded`, the picture is an `<svg>` element for a page that has the style sheet: no style and no colour
of its own. The same graph gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape as escape_html
from typing import Final, NamedTuple

_ROW: Final = 112  # from one layer to the next
_HEIGHT: Final = 44
_GAP: Final = 56
_MARGIN: Final = 48
_SIDE: Final = 60  # room beside the rows
_LANE: Final = 24  # from one edge that leads back to the next
_CHARACTER: Final = 7.8
_LABEL_LENGTH_MAX: Final = 48
_SHAPE_ROOM: Final = {"diamond": 72}  # beside the text of a node; others: 36

_STYLE: Final = """\
text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: #1c2430; text-anchor: middle; }
.title { font-weight: 600; font-size: 15px; }
.label { font-size: 11px; fill: #55606e; } .back { fill: #ffffff; opacity: 0.85; }
.small { font-size: 10.5px; fill: #6b7684; }
.node { fill: #eef4ff; stroke: #4a74c9; stroke-width: 1.4; }
.edge { fill: none; stroke: #6b7684; stroke-width: 1.4; } .error { stroke: #c23b3b; stroke-dasharray: 5 4; }
"""
_ARROW: Final = (
    '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M 0 0 L 10 5 L 0 10 z" fill="#6b7684"/></marker></defs>'
)

_REFUSED: Final = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\u200d\u2010-\u2029\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)


class GraphNode(NamedTuple):
    """`name` is what edges call it and what is written in it; `note` stands below, smaller. `shape` is box, diamond,
    slanted or round."""

    name: str
    kind: str = ""
    note: str = ""
    shape: str = "box"


class GraphEdge(NamedTuple):
    source: str
    target: str
    label: str = ""
    kind: str = ""


class GraphMark(NamedTuple):
    """A small circle on a node, at its upper left corner; several on one node stand side by side."""

    node: str
    key: str
    kind: str = "mark"
    title: str = ""


class _Placed(NamedTuple):
    node: GraphNode
    x: float  # of its middle
    y: float
    width: float

    @property
    def right(self) -> float:
        return self.x + self.width / 2


class Canvas:
    """Collects shapes; lines lie below boxes, and labels above both."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._boxes: list[str] = []
        self._labels: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "", *, length_max: int | None = None) -> None:
        """Draw a line of text; a long one is cut, and the whole text becomes its title."""
        short, title = _shorten(text, length_max)
        self._boxes.append(f'<text{_kind(kind)} x="{x:.1f}" y="{y:.1f}">{title}{escape(short)}</text>')

    def label(self, x: float, y: float, text: str) -> None:
        """Draw a label of an edge, on its own background."""
        short, title = _shorten(text, _LABEL_LENGTH_MAX)
        width = len(short) * 5.8 + 6
        corner = f'x="{x - width / 2:.1f}" y="{y - 10:.1f}"'
        self._labels.append(f'<rect class="back" {corner} width="{width:.1f}" height="14" rx="3"/>')
        self._labels.append(f'<text class="label" x="{x:.1f}" y="{y:.1f}">{title}{escape(short)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, kind: str = "", *, shape: str = "box", title: str = ""
    ) -> None:
        """Draw a shape whose upper left corner is at x, y."""
        right, bottom, middle = x + width, y + height, y + height / 2
        inside = f"<title>{escape(title)}</title>" if title else ""
        if shape in ("diamond", "slanted"):
            corners = [(x, middle), (x + width / 2, y), (right, middle), (x + width / 2, bottom)]
            if shape == "slanted":
                corners = [(x + 14, y), (right, y), (right - 14, bottom), (x, bottom)]
            points = " ".join(f"{corner_x:.1f},{corner_y:.1f}" for corner_x, corner_y in corners)
            self._boxes.append(f'<polygon{_kind(f"node {kind}")} points="{points}">{inside}</polygon>')
        else:
            size = f'width="{width:.1f}" height="{height:g}" rx="{height / 2 if shape == "round" else 8:g}"'
            self._boxes.append(f'<rect{_kind(f"node {kind}")} x="{x:.1f}" y="{y:.1f}" {size}>{inside}</rect>')

    def curve(self, points: Sequence[tuple[float, float]], kind: str = "") -> None:
        """Draw an arrow along a Bézier curve: the start, two control points and the end."""
        start, *rest = (f"{x:.1f} {y:.1f}" for x, y in points)
        way = f"M {start} C {', '.join(rest)}"
        self._lines.append(f'<path{_kind(f"edge {kind}")} d="{way}" marker-end="url(#arrow)"/>')

    def route(self, points: Sequence[tuple[float, float]], kind: str = "", *, has_arrow: bool = True) -> None:
        """Straight lines from point to point, with an arrow at the end."""
        way = " L ".join(f"{x:.1f} {y:.1f}" for x, y in points)
        end = ' marker-end="url(#arrow)"' if has_arrow else ""
        self._lines.append(f'<path{_kind(f"edge {kind}")} d="M {way}"{end}/>')

    def circle(self, x: float, y: float, radius: float, kind: str, *, key: str = "", title: str = "") -> None:
        """Draw a mark above all boxes; `key` tells a script which mark of an earlier picture it is."""
        known = f' data-key="{escape(key)}"' if key else ""
        inside = f"<title>{escape(title)}</title>" if title else ""
        place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"'
        self._labels.append(f"<circle{_kind(kind)}{known} {place}>{inside}</circle>")

    def element(self, title: str, width: float, height: float) -> str:
        """Return the picture as an `<svg>` element of a page, which has its style sheet."""
        mark = _ARROW.replace(' fill="#6b7684"', "")
        size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
        head = f'<svg {size} class="graph" role="img"><title>{escape(title)}</title>'
        return "\n".join([head, mark, *self._lines, *self._boxes, *self._labels, "</svg>"])

    def document(self, title: str, width: float, height: float, style: str = "") -> str:
        size = f'width="{width:.0f}" height="{height:.0f}"'
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {size} role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}{style}</style>",
            _ARROW,
            f'<rect {size} fill="#ffffff"/>',
        ]
        return "\n".join([*head, *self._lines, *self._boxes, *self._labels, "</svg>"]) + "\n"


def escape(text: str) -> str:
    """Return text as XML: marks escaped; characters that XML refuses, or that turn the order of others, replaced."""
    return escape_html(_REFUSED.sub("\ufffd", text))


def _kind(kind: str) -> str:
    return f' class="{escape(kind.strip())}"' if kind else ""


def _shorten(text: str, length_max: int | None) -> tuple[str, str]:
    if length_max is None or len(text) <= length_max:
        return text, ""
    return text[: length_max - 1] + "…", f"<title>{escape(text)}</title>"


# ------------------------------------------------------------------ layers
def draw_layers(
    title: str,
    nodes: Sequence[GraphNode],
    edges: Sequence[GraphEdge],
    *,
    style: str = "",
    rows: Mapping[str, int] | None = None,
    last: Collection[str] = (),
    embedded: bool = False,
    marks: Sequence[GraphMark] = (),
) -> str:
    """Return the picture as a whole SVG document. `rows` gives the row of each node; without it the rows follow from
    the edges, and the nodes of `last` stand below all others. `marks` are drawn on nodes."""
    if rows is None:
        rows = _layers([node.name for node in nodes], edges)
        bottom_row = max((row for name, row in rows.items() if name not in last), default=-1) + 1
        rows = {name: bottom_row if name in last else row for name, row in rows.items()}
    placed = _place(nodes, rows)
    right = max(place.right for place in placed.values())
    bottom = max(place.y + _HEIGHT / 2 for place in placed.values())
    back = [edge for edge in edges if placed[edge.target].y <= placed[edge.source].y]
    width = right + _MARGIN + _SIDE + _LANE * len(back)
    canvas = Canvas()
    canvas.text(width / 2, _MARGIN - 12, title, "title")
    seen: dict[tuple[str, str], int] = {}
    for edge in edges:
        turn = seen[edge[:2]] = seen.get(edge[:2], -1) + 1
        if edge in back:
            side = right + _LANE + _LANE * back.index(edge)
            source, target = placed[edge.source], placed[edge.target]
            x1, x2 = source.right, target.right
            y1 = source.y if source.node.shape == "diamond" else source.y + 6
            y2 = target.y if target.node.shape == "diamond" else target.y - 6
            pull = side + (2 * side - x1 - x2) / 6  # so that the curve reaches `side`
            canvas.curve([(x1, y1), (pull, y1), (pull, y2), (x2, y2)], edge.kind)
            if edge.label:
                canvas.label(side, (y1 + y2) / 2, edge.label)
        else:
            _draw_down(canvas, edge, placed, turn)
    for place in placed.values():
        _draw_node(canvas, place)
    _draw_marks(canvas, marks, placed)
    if embedded:
        return canvas.element(title, width, bottom + _MARGIN)
    return canvas.document(title, width, bottom + _MARGIN, style)


def _layers(names: Sequence[str], edges: Iterable[GraphEdge]) -> dict[str, int]:
    """Return the length of the longest path from the start to each node, loops left out."""
    follows: dict[str, list[str]] = {name: [] for name in names}
    for edge in edges:
        if edge.source in follows and edge.target in follows and edge.source != edge.target:
            follows[edge.source].append(edge.target)
    is_done: dict[str, bool] = {}  # False while the node is on the current path
    done: list[str] = []
    forward: dict[str, list[str]] = {name: [] for name in names}
    for start in names:
        stack = [(start, iter(follows[start]))] if start not in is_done else []
        is_done.setdefault(start, False)
        while stack:
            name, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                is_done[name] = True
                done.append(name)
                stack.pop()
            elif is_done.get(target, True):  # an edge to a node on the current path is a loop
                forward[name].append(target)
                if target not in is_done:
                    is_done[target] = False
                    stack.append((target, iter(follows[target])))
    layer = dict.fromkeys(names, 0)
    for name in reversed(done):
        for target in forward[name]:
            layer[target] = max(layer[target], layer[name] + 1)
    return layer


def _place(nodes: Sequence[GraphNode], rows: Mapping[str, int]) -> dict[str, _Placed]:
    by_row: dict[int, list[tuple[GraphNode, float]]] = {}
    for node in nodes:
        text = max(len(node.name) * _CHARACTER, len(node.note) * 6.2)
        width = max(text + _SHAPE_ROOM.get(node.shape, 36), 88)
        by_row.setdefault(rows[node.name], []).append((node, width))
    widths = {row: sum(width for _, width in members) + _GAP * (len(members) - 1) for row, members in by_row.items()}
    placed: dict[str, _Placed] = {}
    for number, row in enumerate(sorted(by_row)):
        x = _MARGIN + _SIDE + (max(widths.values()) - widths[row]) / 2
        for node, width in by_row[row]:
            y = _MARGIN + 36 + number * _ROW + _HEIGHT / 2
            placed[node.name] = _Placed(node, x + width / 2, y, width)
            x += width + _GAP
    return placed


def _draw_down(canvas: Canvas, edge: GraphEdge, placed: Mapping[str, _Placed], turn: int) -> None:
    """Draw an edge downwards. `turn` counts edges between the same two nodes, which are drawn side by side."""
    source, target = placed[edge.source], placed[edge.target]
    y1, y2 = source.y + _HEIGHT / 2, target.y - _HEIGHT / 2
    shift = 26.0 * turn
    bend = _bend(source, target, placed)
    middle = (y1 + y2) / 2
    x1, x2 = source.x + shift / 2, target.x + shift / 2
    pull1, pull2 = x1 + bend + shift, x2 + bend + shift
    canvas.curve([(x1, y1), (pull1, middle), (pull2, middle), (x2, y2)], edge.kind)
    if edge.label:
        canvas.label((x1 + 3 * pull1 + 3 * pull2 + x2) / 8, middle + 4 + 14 * turn, edge.label)


def _bend(source: _Placed, target: _Placed, placed: Mapping[str, _Placed]) -> float:
    """Return how far to bend an edge to the side, where another node is in its way; else 0."""
    for place in placed.values():
        if source.y < place.y < target.y:
            part = (place.y - source.y) / (target.y - source.y)
            x = source.x + (target.x - source.x) * part
            if abs(place.x - x) < place.width / 2 + 12:
                away = place.width / 2 + 40
                return (-away if x <= place.x else away) * 4 / 3
    return 0.0


def _draw_node(canvas: Canvas, place: _Placed) -> None:
    node = place.node
    canvas.box(place.x - place.width / 2, place.y - _HEIGHT / 2, place.width, _HEIGHT, node.kind, shape=node.shape)
    canvas.text(place.x, place.y - 2 if node.note else place.y + 4.5, node.name)
    if node.note:
        canvas.text(place.x, place.y + 13, node.note, "small")


def _draw_marks(canvas: Canvas, marks: Sequence[GraphMark], placed: Mapping[str, _Placed]) -> None:
    counts: dict[str, int] = {}
    for mark in marks:
        place = placed[mark.node]
        number = counts[mark.node] = counts.get(mark.node, -1) + 1
        x = place.x - place.width / 2 + 10 + 18 * number
        canvas.circle(x, place.y - _HEIGHT / 2, 8, mark.kind, key=mark.key, title=mark.title)
