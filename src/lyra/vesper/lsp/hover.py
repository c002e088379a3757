"""What stands at a place of a node, in a few lines: a name and its type, a function, a key, an operation, a node."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from lyra.lsp.language import Hover
from lyra.vesper.expressions.functions import AGGREGATES, FUNCTIONS
from lyra.vesper.lsp.analysis import NodeAnalysis, TextSpan
from lyra.vesper.lsp.completion import function_text, is_type, key_text
from lyra.vesper.nodes.model import Node
from lyra.vesper.nodes.steps import operation_named
from lyra.vesper.values.types import describe

_CALL: Final = re.compile(r"([A-Za-z_]\w*)\s*\(")
_LINE_MAX: Final = 400  # characters around a place in which a function's name is looked for


def hover(known: NodeAnalysis, offset: int, node_of: Callable[[str], Node | None]) -> Hover | None:
    """Return the hover text of the place at an offset. `node_of` reads a node that is called."""
    span = known.span_at(offset)
    return _name(known, offset) or _function(known, offset, span) or (_part(known, span, node_of) if span else None)


def _name(known: NodeAnalysis, offset: int) -> Hover | None:
    use = known.use_at(offset)
    if use is not None:
        origin = {"parameter": "a parameter of this step", "ambient": "supplied by the caller's context"}.get(
            use.kind, ""
        )
        if use.kind == "variable":
            origin = _origin(known, use.name)
        return Hover(use.at, use.end, _code(f"{use.name}: {describe(use.type)}") + origin)
    occurrence = known.occurrence_at(offset)
    if occurrence is None:
        return None
    kind = known.visible(occurrence.symbol.owner).names.get(occurrence.symbol.name) if occurrence.symbol.owner else None
    variable = known.variables.get(occurrence.symbol.name)
    if kind is None and variable is not None:
        kind = variable.type
    program = known.program
    if kind is None and program is not None:
        kinds = {entry.name: entry.type for entry in (*program.error, *program.success)}
        kind = (kinds | {entry.name: entry.type for entry in program.inputs}).get(occurrence.symbol.name)
    head = f"{occurrence.symbol.name}: {describe(kind)}" if kind is not None else occurrence.symbol.name
    return Hover(occurrence.at, occurrence.end, _code(head) + _origin(known, occurrence.symbol.name))


def _origin(known: NodeAnalysis, name: str) -> str:
    """Say where a name comes from."""
    node, lines = known.node, []
    if node is None:
        return ""
    for fields, what in ((node.inputs, "an input"), (node.success, "an output"), (node.error, "an output of errors")):
        for field in fields:
            if field.name == name:
                rules = [_rule_text(rule) for rule, _ in field.constraints]
                facts = [what, *([field.description] if field.description else []), *rules]
                lines.append("; ".join(facts))
    variable = known.variables.get(name)
    if variable is not None:
        lines.append(f"given by step `{variable.step.name}` ({variable.step.operation})")
    return "\n\n".join(lines)


def _rule_text(rule: object) -> str:
    return ", ".join(f"{key}: {value}" for key, value in rule.items()) if isinstance(rule, dict) else str(rule)


def _function(known: NodeAnalysis, offset: int, span: TextSpan | None) -> Hover | None:
    if span is None or span.is_key:
        return None
    start = max(span.at, offset - _LINE_MAX)
    for match in _CALL.finditer(known.text, start, min(span.end, offset + _LINE_MAX)):
        if match.start(1) <= offset <= match.end(1):
            name = match[1]
            function = FUNCTIONS.get(name)
            if name in AGGREGATES:
                return Hover(match.start(1), match.end(1), _code(f"{name}(list)") + "over a list's elements")
            if function is not None and function.is_public:
                return Hover(match.start(1), match.end(1), _code(function.signature) + function_text(function))
    return None


def _part(known: NodeAnalysis, span: TextSpan, node_of: Callable[[str], Node | None]) -> Hover | None:
    """Describe a key, an operation, or a node that is called."""
    if span.is_key:
        text = key_text(span.path)
        return Hover(span.at, span.end, f"`{span.text}`: {text}") if text else None
    operation = operation_named(span.text) if span.path[-1] == "operation" else None
    if operation is not None:
        needs = f"\n\nneeds: {', '.join(operation.required)}" if operation.required else ""
        takes = f"\n\ntakes: {', '.join(operation.settings)}" if operation.settings else ""
        return Hover(span.at, span.end, f"`{operation.name}`: {operation.text}{needs}{takes}")
    if span.path[-1] == "node_id" and len(span.path) > 1:
        node = node_of(span.text)
        return Hover(span.at, span.end, _node_text(node)) if node is not None else None
    words = re.findall(r"\w+", span.text) if is_type(span.path) else []
    declared = next((item for item in known.node.types if item.name in words), None) if known.node else None
    if declared is not None:
        fields = ", ".join(f"{field.name}: {field.type}" for field in declared.fields)
        return Hover(span.at, span.end, _code(f"{declared.name} {{{fields}}}" if fields else declared.name))
    return None


def _node_text(node: Node) -> str:
    takes = ", ".join(f"{field.name}: {field.type}" for field in node.inputs)
    gives = ", ".join(f"{field.name}: {field.type}" for field in node.success)
    return _code(f"{node.node_id}({takes}) -> {gives or 'nothing'}") + node.intent


def _code(text: str) -> str:
    safe = text.replace("`", "'")
    return f"```\n{safe}\n```\n\n"
