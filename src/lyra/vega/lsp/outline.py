"""What a file declares, as a tree: the outline of an editor."""

from __future__ import annotations

from typing import NamedTuple

from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.index import SymbolIndex
from lyra.vega.syntax import ast


class OutlineEntry(NamedTuple):
    name: str
    role: str
    at: int  # all of it
    end: int
    name_at: int
    name_end: int
    inside: list[OutlineEntry]


def outline(analysis: Analysis) -> list[OutlineEntry]:
    return _entries(analysis.index, analysis.module.statements)


def _entries(index: SymbolIndex, nodes: list[ast.Statement]) -> list[OutlineEntry]:
    entries: list[OutlineEntry] = []
    for node in nodes:
        if isinstance(node, ast.Parallel):
            entries += _entries(index, node.body.statements)
        elif isinstance(node, ast.Test):
            entries.append(
                OutlineEntry(node.name or "test", "test", node.at, node.end, node.at, node.at + len("test"), [])
            )
        else:
            entry = _entry(index, node)
            if entry is not None:
                entries.append(entry)
    return entries


def _entry(index: SymbolIndex, node: ast.SyntaxNode) -> OutlineEntry | None:
    symbol = index.symbol_of(node)
    if symbol is None or not symbol.name:
        return None
    inside: list[OutlineEntry] = []
    parts: list[ast.SyntaxNode] = []
    if isinstance(node, ast.Agent):
        parts = list(node.tools)
    elif isinstance(node, ast.Supervisor):
        parts = list(node.children)
    elif isinstance(node, ast.Function):
        parts = [statement for statement in node.body.statements if isinstance(statement, ast.Function)]
    for part in parts:
        entry = _entry(index, part)
        if entry is not None:
            inside.append(entry)
    return OutlineEntry(symbol.name, symbol.role, node.at, node.end, symbol.at, symbol.end, inside)
