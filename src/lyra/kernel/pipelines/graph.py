"""A picture of a pipeline: SVG as plain text, from the declaration alone.

`svg(config)` draws stages as boxes, gates as diamonds and forks as slanted boxes, in layers from the start to the
end; edges carry the rule that takes them, errors are dashed, loops run back at the side. `edges(config)` is the graph
itself. The same pipeline gives the same bytes. Draws nothing that is not declared, and runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final, NamedTuple

from lyra.kernel.pipelines.declaration import AgentConfig, PipelineConfig
from lyra.kernel.pipelines.keys import NodeKind, RunMode

__all__ = ["Edge", "edges", "svg"]

_ROW: Final = 112  # from one layer to the next
_HEIGHT: Final = 44
_GAP: Final = 56
_MARGIN: Final = 48
_CHARACTER: Final = 7.8
_LABEL_LENGTH_MAX: Final = 48
_SPECIAL: Final = ("end", "clarification", "confirmation")
_SYMBOLS: Final = {"eq": "=", "neq": "≠", "gt": ">", "lt": "<", "gte": "≥", "lte": "≤"}

_STYLE: Final = """\
text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: #1c2430; text-anchor: middle; }
.title { font-weight: 600; font-size: 15px; }
.label { font-size: 11px; fill: #55606e; } .back { fill: #ffffff; opacity: 0.85; }
.small { font-size: 10.5px; fill: #6b7684; }
.agent { fill: #eef4ff; stroke: #4a74c9; } .gate { fill: #fff6df; stroke: #c7952b; }
.fork { fill: #efeafc; stroke: #7a5cc4; } .special { fill: #f1f3f5; stroke: #8a94a1; }
.edge { fill: none; stroke: #6b7684; stroke-width: 1.4; } .error { stroke: #c23b3b; stroke-dasharray: 5 4; }
.node { stroke-width: 1.4; }
"""
_ARROW: Final = (
    '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M 0 0 L 10 5 L 0 10 z" fill="#6b7684"/></marker></defs>'
)


class Edge(NamedTuple):
    source: str
    target: str
    label: str = ""
    kind: str = "next"  # next | rule | error | fork | join | requires | after


class _Node(NamedTuple):
    name: str
    kind: str
    note: str
    x: float
    y: float
    width: float


def edges(config: PipelineConfig) -> list[Edge]:
    """Every edge of a pipeline, in the order declared."""
    if config.default_run_mode is RunMode.PARALLEL:
        return [edge for stage in config.agents for edge in _needed(stage)]
    routes = {stage.name: _routes(stage) for stage in config.agents}
    for fork in config.agents:
        if fork.node_kind is NodeKind.FORK:
            _meet(fork, routes)
    return [edge for found in routes.values() for edge in found]


def _meet(fork: AgentConfig, routes: dict[str, list[Edge]]) -> None:
    """Branches do not lead to the end: where nothing follows, they lead to the place where they meet."""
    join = fork.default_next or "end"
    label = f"join {fork.join_strategy}"
    ways = [edge.target for edge in routes[fork.name] if edge.kind == "fork"]
    seen: set[str] = set()
    while ways:
        name = ways.pop()
        if name in seen or name == join or name not in routes:
            continue
        seen.add(name)
        routes[name] = [
            edge._replace(target=join, label=edge.label or label, kind="join") if edge.target == "end" else edge
            for edge in routes[name]
        ]
        ways += [edge.target for edge in routes[name]]
    if seen:
        routes[fork.name] = [edge for edge in routes[fork.name] if edge.kind != "join"]


def _needed(stage: AgentConfig) -> list[Edge]:
    label = "any" if stage.join_strategy == "any" and len(stage.requires) > 1 else ""
    requires = [Edge(name, stage.name, label, "requires") for name in stage.requires]
    return requires + [Edge(name, stage.name, "after", "after") for name in stage.after]


def _routes(stage: AgentConfig) -> list[Edge]:
    fork = stage.node_kind is NodeKind.FORK
    found = [Edge(stage.name, name, "", "fork") for name in stage.branches]
    for rule in stage.routing_rules:
        text = _expression(rule.expr) if rule.expr is not None else _condition(rule.condition, rule.value)
        found.append(Edge(stage.name, rule.target, text, "fork" if fork else "rule"))
    if stage.default_next:
        found.append(
            Edge(
                stage.name,
                stage.default_next,
                f"join {stage.join_strategy}" if fork else "",
                "join" if fork else "next",
            )
        )
    elif not fork and not any(rule.condition is None and rule.expr is None for rule in stage.routing_rules):
        found.append(Edge(stage.name, "end"))
    if stage.error_next:
        found.append(Edge(stage.name, stage.error_next, "error", "error"))
    return found


def _condition(condition: str | None, value: Any) -> str:
    return "" if condition is None else f"{condition} = {_value(value)}"


def _value(value: Any) -> str:
    return (
        {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, bool) else str(value)
    )


def _expression(expr: Mapping[str, Any]) -> str:
    op = expr["op"]
    if op == "always":
        return "always"
    if op == "not":
        return f"not ({_expression(expr['expr'])})"
    if op in ("and", "or"):
        return f" {op} ".join(_expression(each) for each in expr["exprs"])
    field = expr["field"]
    scope = field.get("agent", field["scope"]) if field["scope"] != "current" else ""
    name = f"{scope}.{field['key']}" if scope else str(field["key"])
    if op in ("exists", "not_exists"):
        return f"{name} {op.replace('_', ' ')}"
    return f"{name} {_SYMBOLS.get(op, op)} {_value(expr.get('value'))}"


# ------------------------------------------------------------------ layers
def _layers(names: list[str], found: list[Edge]) -> dict[str, int]:
    """How far each node is from the start by its longest way, loops left out."""
    order = {name: index for index, name in enumerate(names)}
    follows: dict[str, list[str]] = {name: [] for name in names}
    for edge in found:
        if edge.source in order and edge.target in order and edge.source != edge.target:
            follows[edge.source].append(edge.target)
    state: dict[str, int] = {}
    done: list[str] = []
    forward: dict[str, list[str]] = {name: [] for name in names}
    for start in names:
        stack = [(start, iter(follows[start]))] if start not in state else []
        if stack:
            state[start] = 1
        while stack:
            name, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                state[name] = 2
                done.append(name)
                stack.pop()
            elif state.get(target) != 1:  # an edge to a node on the way is a loop
                forward[name].append(target)
                if target not in state:
                    state[target] = 1
                    stack.append((target, iter(follows[target])))
    layer = dict.fromkeys(names, 0)
    for name in reversed(done):
        for target in forward[name]:
            layer[target] = max(layer[target], layer[name] + 1)
    return layer


def _place(config: PipelineConfig, found: list[Edge]) -> dict[str, _Node]:
    stages = {stage.name: stage for stage in config.agents}
    targets = {edge.target for edge in found}
    names = [*stages, *(name for name in _SPECIAL if name in targets)]
    layer = _layers(names, found)
    if "end" in layer:
        layer["end"] = max(depth for name, depth in layer.items() if name != "end") + 1
    rows: dict[int, list[str]] = {}
    for name in names:
        rows.setdefault(layer[name], []).append(name)
    widths = {name: _width(name, stages.get(name)) for name in names}
    whole = max(sum(widths[name] for name in row) + _GAP * (len(row) - 1) for row in rows.values())
    placed: dict[str, _Node] = {}
    for number, depth in enumerate(sorted(rows)):
        row = rows[depth]
        x = _MARGIN + 60 + (whole - sum(widths[name] for name in row) - _GAP * (len(row) - 1)) / 2
        for name in row:
            stage = stages.get(name)
            kind = stage.node_kind.value if stage is not None else "special"
            y = _MARGIN + 36 + number * _ROW + _HEIGHT / 2
            placed[name] = _Node(name, kind, _note(stage), x + widths[name] / 2, y, widths[name])
            x += widths[name] + _GAP
    return placed


def _note(stage: AgentConfig | None) -> str:
    if stage is None:
        return ""
    parts = [stage.model_role] if stage.model_role else []
    parts += [f"≤ {stage.max_visits} visits"] if stage.max_visits is not None else []
    parts += [f"{stage.max_retries} retries"] if stage.max_retries else []
    return " · ".join(parts)


def _width(name: str, stage: AgentConfig | None) -> float:
    text = max(len(name) * _CHARACTER, len(_note(stage)) * 6.2)
    return max(text + (72 if stage is not None and stage.node_kind is NodeKind.GATE else 36), 88)


# ------------------------------------------------------------------ drawing
def svg(config: PipelineConfig) -> str:
    """The picture, a whole SVG document."""
    found = edges(config)
    nodes = _place(config, found)
    right = max(node.x + node.width / 2 for node in nodes.values())
    bottom = max(node.y + _HEIGHT / 2 for node in nodes.values())
    loops = [edge for edge in found if edge.source in nodes and edge.target in nodes and _is_loop(edge, nodes)]
    width, height = right + _MARGIN + 60 + 24 * len(loops), bottom + _MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {size} role="img">',
        f"<title>{escape(config.name)}</title>",
        f"<style>{_STYLE}</style>",
        _ARROW,
        f'<rect {size} fill="#ffffff"/>',
        f'<text class="title" x="{width / 2:.1f}" y="{_MARGIN - 12}">{escape(config.name)}</text>',
    ]
    shapes: list[str] = []
    labels: list[str] = []
    seen: dict[tuple[str, str], int] = {}
    for edge in found:
        pair = (edge.source, edge.target)
        seen[pair] = seen.get(pair, 0) + 1
        side = right + 24 + 24 * loops.index(edge) if edge in loops else 0.0
        _draw_edge(edge, nodes, side, seen[pair] - 1, shapes, labels)
    lines += shapes
    for node in nodes.values():
        lines += _draw_node(node)
    return "\n".join([*lines, *labels, "</svg>"]) + "\n"


def _is_loop(edge: Edge, nodes: Mapping[str, _Node]) -> bool:
    return nodes[edge.target].y <= nodes[edge.source].y


def _draw_edge(
    edge: Edge, nodes: Mapping[str, _Node], side: float, turn: int, shapes: list[str], labels: list[str]
) -> None:
    source, target = nodes[edge.source], nodes[edge.target]
    if side:
        x1, x2 = source.x + source.width / 2, target.x + target.width / 2
        y1 = source.y if source.kind == "gate" else source.y + 6
        y2 = target.y if target.kind == "gate" else target.y - 6
        pull = side + (2 * side - x1 - x2) / 6  # so that the curve comes as far as `side`
        way = f"M {x1:.1f} {y1:.1f} C {pull:.1f} {y1:.1f}, {pull:.1f} {y2:.1f}, {x2:.1f} {y2:.1f}"
        at = (side, (y1 + y2) / 2)
    else:
        y1, y2 = source.y + _HEIGHT / 2, target.y - _HEIGHT / 2
        shift = 26.0 * turn
        bend = _bend(source, target, nodes)
        middle = (y1 + y2) / 2
        x1, x2 = source.x + shift / 2, target.x + shift / 2
        c1, c2 = x1 + bend + shift, x2 + bend + shift
        way = f"M {x1:.1f} {y1:.1f} C {c1:.1f} {middle:.1f}, {c2:.1f} {middle:.1f}, {x2:.1f} {y2:.1f}"
        part = 0.5
        at = (_bezier(x1, c1, c2, x2, part), _bezier(y1, middle, middle, y2, part) + 4 + 14 * turn)
    name = "edge error" if edge.kind == "error" else "edge"
    shapes.append(f'<path class="{name}" d="{way}" marker-end="url(#arrow)"/>')
    if edge.label:
        text = edge.label if len(edge.label) <= _LABEL_LENGTH_MAX else edge.label[: _LABEL_LENGTH_MAX - 1] + "…"
        full = f"<title>{escape(edge.label)}</title>" if text != edge.label else ""
        width = len(text) * 5.8 + 6
        corner = f'x="{at[0] - width / 2:.1f}" y="{at[1] - 10:.1f}"'
        labels.append(f'<rect class="back" {corner} width="{width:.1f}" height="14" rx="3"/>')
        labels.append(f'<text class="label" x="{at[0]:.1f}" y="{at[1]:.1f}">{full}{escape(text)}</text>')


def _bend(source: _Node, target: _Node, nodes: Mapping[str, _Node]) -> float:
    """To the side, where another node stands straight in the way."""
    for node in nodes.values():
        if source.y < node.y < target.y:
            part = (node.y - source.y) / (target.y - source.y)
            x = source.x + (target.x - source.x) * part
            if abs(node.x - x) < node.width / 2 + 12:
                away = node.width / 2 + 40
                return (-away if x <= node.x else away) * 4 / 3
    return 0.0


def _bezier(a: float, b: float, c: float, d: float, part: float) -> float:
    rest = 1 - part
    return a * rest**3 + 3 * b * rest**2 * part + 3 * c * rest * part**2 + d * part**3


def _draw_node(node: _Node) -> list[str]:
    left, right = node.x - node.width / 2, node.x + node.width / 2
    top, bottom = node.y - _HEIGHT / 2, node.y + _HEIGHT / 2
    if node.kind == "gate":
        points = f"{left:.1f},{node.y:.1f} {node.x:.1f},{top:.1f} {right:.1f},{node.y:.1f} {node.x:.1f},{bottom:.1f}"
        shape = f'<polygon class="node gate" points="{points}"/>'
    elif node.kind == "fork":
        points = (
            f"{left + 14:.1f},{top:.1f} {right:.1f},{top:.1f} {right - 14:.1f},{bottom:.1f} {left:.1f},{bottom:.1f}"
        )
        shape = f'<polygon class="node fork" points="{points}"/>'
    else:
        radius = _HEIGHT / 2 if node.kind == "special" else 8
        shape = (
            f'<rect class="node {node.kind}" x="{left:.1f}" y="{top:.1f}" width="{node.width:.1f}" '
            f'height="{_HEIGHT}" rx="{radius}"/>'
        )
    y = node.y - 2 if node.note else node.y + 4.5
    lines = [shape, f'<text x="{node.x:.1f}" y="{y:.1f}">{escape(node.name)}</text>']
    if node.note:
        lines.append(f'<text class="small" x="{node.x:.1f}" y="{node.y + 13:.1f}">{escape(node.note)}</text>')
    return lines
