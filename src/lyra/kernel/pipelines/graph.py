"""A picture of a pipeline: SVG as plain text, from the declaration alone.

`svg(config)` draws stages as boxes, gates as diamonds and forks as slanted boxes, in layers from the start to the
end; edges carry the rule that takes them, errors are dashed, loops run back at the side. `edges(config)` is the graph
itself. The same pipeline gives the same bytes. Only the declaration is drawn; nothing runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from lyra.core import svg_graph
from lyra.kernel.pipelines.declaration import AgentConfig, PipelineConfig
from lyra.kernel.pipelines.keys import NodeKind, RunMode

_SPECIAL: Final = ("end", "clarification", "confirmation")
_SYMBOLS: Final = {"eq": "=", "neq": "≠", "gt": ">", "lt": "<", "gte": "≥", "lte": "≤"}

_SHAPES: Final = {NodeKind.GATE: "diamond", NodeKind.FORK: "slanted"}
_STYLE: Final = """\
.agent { fill: #eef4ff; stroke: #4a74c9; } .gate { fill: #fff6df; stroke: #c7952b; }
.fork { fill: #efeafc; stroke: #7a5cc4; } .special { fill: #f1f3f5; stroke: #8a94a1; }
"""


class Edge(NamedTuple):
    source: str
    target: str
    label: str = ""
    kind: str = "next"  # next | rule | error | fork | join | requires | after


def edges(config: PipelineConfig) -> list[Edge]:
    """Every edge of a pipeline, in the order declared."""
    if config.default_run_mode is RunMode.PARALLEL:
        return [edge for stage in config.agents for edge in _needed(stage)]
    routes = {stage.name: _routes(stage) for stage in config.agents}
    for fork in config.agents:
        if fork.node_kind is NodeKind.FORK:
            _meet(fork, routes)
    return [edge for outgoing in routes.values() for edge in outgoing]


def _meet(fork: AgentConfig, routes: dict[str, list[Edge]]) -> None:
    """Redirect the ends of a fork's branches: they lead to the stage where the branches join, not to the end."""
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
    outgoing = [Edge(stage.name, name, "", "fork") for name in stage.branches]
    for rule in stage.routing_rules:
        text = _expression(rule.expr) if rule.expr is not None else _condition(rule.condition, rule.value)
        outgoing.append(Edge(stage.name, rule.target, text, "fork" if fork else "rule"))
    if stage.default_next:
        outgoing.append(
            Edge(
                stage.name,
                stage.default_next,
                f"join {stage.join_strategy}" if fork else "",
                "join" if fork else "next",
            )
        )
    elif not fork and not any(rule.condition is None and rule.expr is None for rule in stage.routing_rules):
        outgoing.append(Edge(stage.name, "end"))
    if stage.error_next:
        outgoing.append(Edge(stage.name, stage.error_next, "error", "error"))
    return outgoing


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
        return f" {op} ".join(_expression(part) for part in expr["exprs"])
    field = expr["field"]
    scope = field.get("agent", field["scope"]) if field["scope"] != "current" else ""
    name = f"{scope}.{field['key']}" if scope else str(field["key"])
    if op in ("exists", "not_exists"):
        return f"{name} {op.replace('_', ' ')}"
    return f"{name} {_SYMBOLS.get(op, op)} {_value(expr.get('value'))}"


# ------------------------------------------------------------------ drawing
def svg(config: PipelineConfig) -> str:
    """The picture, a whole SVG document."""
    return svg_graph.draw_layers(config.name, nodes(config), arrows(config), style=_STYLE, last=("end",))


def nodes(config: PipelineConfig, classes: Mapping[str, str] | None = None) -> list[svg_graph.GraphNode]:
    """The stages, and the places where a pipeline may lead besides them; `classes` are more kinds by name."""
    more = classes or {}
    targets = {edge.target for edge in edges(config)}
    stages = [
        svg_graph.GraphNode(
            stage.name,
            f"{stage.node_kind.value} {more.get(stage.name, '')}".strip(),
            _note(stage),
            _SHAPES.get(stage.node_kind, "box"),
        )
        for stage in config.agents
    ]
    special = [name for name in _SPECIAL if name in targets]
    return stages + [
        svg_graph.GraphNode(name, f"special {more.get(name, '')}".strip(), shape="round") for name in special
    ]


def arrows(config: PipelineConfig, taken: Mapping[tuple[str, str], int] | None = None) -> list[svg_graph.GraphEdge]:
    """The edges; `taken` says how often the pipeline went from one stage to another."""
    drawn = []
    for edge in edges(config):
        count = (taken or {}).get((edge.source, edge.target), 0)
        label = f"{edge.label} ×{count}".strip() if count > 1 else edge.label
        kind = ("error" if edge.kind == "error" else "") + (" taken" if count else "")
        drawn.append(svg_graph.GraphEdge(edge.source, edge.target, label, kind.strip()))
    return drawn


def _note(stage: AgentConfig) -> str:
    parts = [stage.model_role] if stage.model_role else []
    parts += [f"≤ {stage.max_visits} visits"] if stage.max_visits is not None else []
    parts += [f"{stage.max_retries} retries"] if stage.max_retries else []
    return " · ".join(parts)
