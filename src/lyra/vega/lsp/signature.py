"""Which function is being called at the cursor, and which of its parameters comes next."""

from __future__ import annotations

from typing import NamedTuple

from lyra.vega.checker.nodes import node_heading
from lyra.vega.checker.signatures import signature_text
from lyra.vega.lsp import texts
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.context import CursorContext, context_at
from lyra.vega.lsp.project import Project
from lyra.vega.lsp.symbols import MemberReference, SourceSymbol
from lyra.vega.stdlib.table import METHODS, LibraryEntry
from lyra.vega.syntax import ast


class Help(NamedTuple):
    label: str
    parameters: list[str]  # each as it stands in the label
    active: int
    text: str = ""


def signature_help(project: Project, path: str, offset: int) -> Help | None:
    known = project.whole(path)
    text = project.text(path)
    if known is None or text is None:
        return None
    context = context_at(text, offset)
    for opened in reversed(context.opened):
        if opened.sign == "(" and opened.what == "call":
            named = _named(context, opened.place)
            callee = _callee(project, known, context, opened.place, offset)
            return callee._replace(active=_active(callee, opened.commas, named)) if callee is not None else None
        if opened.sign == "{":
            return None
    return None


def _named(context: CursorContext, index: int) -> str:
    """The name of the argument that is being written, if it is given by name."""
    inside = context.tokens[index + 1 :]
    for token_index in range(len(inside) - 1, 0, -1):
        if inside[token_index].kind == ",":
            break
        if inside[token_index].kind == ":" and inside[token_index - 1].is_word:
            return inside[token_index - 1].value
    return ""


def _active(callee: Help, commas: int, named: str) -> int:
    for index, parameter in enumerate(callee.parameters):
        if named and parameter.split(":")[0].split("=")[0].strip(" ?") == named:
            return index
    return min(commas, max(0, len(callee.parameters) - 1))


def _callee(project: Project, known: Analysis, context: CursorContext, index: int, offset: int) -> Help | None:
    tokens = context.tokens
    name = tokens[index - 1].value
    sign = tokens[index - 2].kind if index > 1 else ""
    before = tokens[index - 3].value if index > 2 else ""
    visible = known.index.visible(offset)
    if sign == "::":
        module = visible.get(before)
        if module is not None and module.role == "import":
            meaning = project.meaning(MemberReference(0, 0, module, before, name), known.name)
            other = project.analysis(meaning[0]) if meaning is not None else None
            return _declared(other, meaning[1]) if meaning is not None and other is not None else None
        return _library(f"{before}::", name, texts.entry_of(before, name))
    if sign == ".":
        kind = known.kind_of(visible[before]).name if before in visible else "any"
        return _method(name, [kind] if kind in METHODS else list(METHODS))
    if name in visible:
        return _node(project, known, visible[name]) or _declared(known, visible[name])
    return _library("", name, texts.entry_of("", name))


def _node(project: Project, known: Analysis, symbol: SourceSymbol) -> Help | None:
    """An imported node: its inputs are its parameters."""
    imported = symbol.node
    node = (
        project.node(imported.target, known.name)
        if isinstance(imported, ast.Import) and imported.kind == "node"
        else None
    )
    if node is None:
        return None
    label = node_heading(symbol.name, node)
    inside = label[label.index("(") + 1 : label.index(") -> ")]
    return Help(label, inside.split(", ") if inside else [], 0, node.intent)


def _library(lead: str, name: str, entry: LibraryEntry | None) -> Help | None:
    if entry is None:
        return None
    label = lead + signature_text(name, entry)
    inside = label[label.index("(") + 1 : label.rindex(")")]
    return Help(label, inside.split(", ") if inside else [], 0, entry.text)


def _method(name: str, kinds: list[str]) -> Help | None:
    for kind in kinds:
        module, _, function = METHODS[kind].get(name, f"{kind}::{name}").partition("::")
        entry = texts.entry_of(module, function)
        if entry is not None:
            rest = entry._replace(parameters=entry.parameters[1:], required=max(0, entry.required - 1))
            return _library(".", name, rest)
    return None


def _declared(known: Analysis, symbol: SourceSymbol) -> Help | None:
    node = symbol.node
    if isinstance(node, ast.Let) and isinstance(node.value, ast.Lambda):
        parameters = texts.parameters(known.source, node.value.parameters)
        return Help(f"{node.name}({', '.join(parameters)})", parameters, 0)
    if not isinstance(node, (ast.Function, ast.Tool)):
        return None
    above = texts.comment_above(known.source, known.module.comments, node.at)
    return Help(texts.heading(known.source, symbol), texts.parameters(known.source, node.parameters), 0, above)
