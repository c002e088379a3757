"""Vesper as a `Language` of the language server: each question is asked of the module that answers it.

`NodeTexts` knows the nodes beside each file: those that are open as they are on the screen, the others from the disk. A
node's id is found by its line, so that only the nodes that are called are read whole.

A hover shows what stands at a place in a few lines: a name and its type, a function, a key, an operation, a node.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from lyra.errors import ConfigError, LyraError
from lyra.lsp.language import Fix, Hover, Item, Language, OutlineEntry, Remark, word_fixes
from lyra.lsp.texts import OpenTexts, Place, format_edits
from lyra.vesper import ir
from lyra.vesper.check.judge import lower_unchecked
from lyra.vesper.expressions.functions import AGGREGATES, FUNCTIONS
from lyra.vesper.format.layout import format_text
from lyra.vesper.loading import Issue
from lyra.vesper.lsp import naming
from lyra.vesper.lsp.analysis import NodeAnalysis, TextSpan
from lyra.vesper.lsp.completion import complete, cursor_at, function_text, is_type, key_text
from lyra.vesper.nodes.model import Node
from lyra.vesper.nodes.sections import load
from lyra.vesper.nodes.steps import operation_named
from lyra.vesper.repository.folders import node_files, repository_around
from lyra.vesper.values.names import highest
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


_NODE_ID: Final = re.compile(r"""^["']?node_id["']?[ \t]*:[ \t]*["']?([a-z][a-z0-9_.]{0,127})""", re.MULTILINE)
_WORD: Final = re.compile(r"[\w.]+|\S|")


class NodeTexts(OpenTexts):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, tuple[str, Node | None]] = {}  # by file: the text it was read from

    def node_ids(self, path: str) -> dict[str, str]:
        """Return the file of each node that a file can call, by id; the file itself is left out."""
        files: dict[str, str] = {}
        for folder in repository_around(path).folders:
            try:
                beside = [str(file.absolute()) for file in node_files(folder)]
            except (ConfigError, OSError, ValueError):
                continue
            beside += [name for name in self.open if str(Path(name).parent) == str(folder.absolute())]
            for file in dict.fromkeys(beside):
                match = _NODE_ID.search(self.text(file) or "") if file != path else None
                if match is not None:
                    files.setdefault(match[1], file)
        return files

    def file_of(self, path: str, name: str) -> str | None:
        """Return the file of the node that a file calls by an id: that version, or the highest."""
        files = self.node_ids(path)
        node_id = highest(name, files)
        return None if node_id is None else files[node_id]

    def node(self, file: str) -> Node | None:
        """Return the node of a file; None where it is none."""
        text = self.text(file) or ""
        known = self._nodes.get(file)
        if known is None or known[0] is not text:
            try:
                node = load(text + "\n")  # a text with a line break is no path
            except LyraError:
                node = None
            known = self._nodes[file] = (text, node)
        return known[1]

    def forget_disk(self) -> None:
        super().forget_disk()
        self._nodes.clear()


class VesperLanguage(Language):
    name = "vesper"
    triggers: ClassVar = (".", "{", ":", " ")

    def __init__(self) -> None:
        self.nodes = NodeTexts()
        super().__init__(self.nodes)
        self._analyses: dict[str, NodeAnalysis] = {}
        self._readable: dict[str, NodeAnalysis] = {}  # the last one that had a node

    def forget(self, path: str) -> None:
        self._analyses.pop(path, None)
        self._readable.pop(path, None)

    def analysis(self, path: str) -> NodeAnalysis:
        """Return the analysis of a file; it is computed once for each text."""
        text = self.nodes.text(path) or ""
        known = self._analyses.get(path)
        if known is None or known.text is not text:
            known = self._look(path, text)
        return known

    def _look(self, path: str, text: str) -> NodeAnalysis:
        known = self._analyses[path] = NodeAnalysis(text, path, partial(self._program, path))
        if known.node is not None:
            self._readable[path] = known
        return known

    def _program(self, path: str, name: str) -> ir.NodeProgram | None:
        node = self._find_called(path, name)
        return None if node is None else lower_unchecked(node)

    def _find_called(self, path: str, name: str) -> Node | None:
        file = self.nodes.file_of(path, name)
        return None if file is None else self.nodes.node(file)

    # ------------------------------------------------------------ answers
    def depends_on(self, path: str, changed: str) -> bool:
        if Path(path).parent not in (Path(changed).parent, Path(changed).parent.parent):
            return False
        self._analyses.pop(path, None)  # a node that it calls may be another one
        return True

    def diagnose(self, path: str, *, thorough: bool) -> list[Remark]:
        """Return all mistakes; `thorough`: with those that follow from the nodes that are called, read again."""
        known = self._look(path, self.nodes.text(path) or "") if thorough else self.analysis(path)
        return [_remark(known, issue) for issue in known.issues]

    def fixes(self, path: str, remark: Remark) -> list[Fix]:
        return word_fixes(remark, self.nodes.text(path) or "")

    def hover(self, path: str, offset: int) -> Hover | None:
        return hover(self.analysis(path), offset, partial(self._find_called, path))

    def definition(self, path: str, offset: int) -> Place | None:
        return naming.definition(self.analysis(path), offset, partial(self.nodes.file_of, path))

    def references(self, path: str, offset: int, *, with_declaration: bool) -> list[Place]:
        return naming.references(self.analysis(path), offset, with_declaration=with_declaration)

    def outline(self, path: str) -> list[OutlineEntry]:
        return naming.outline(self.analysis(path))

    def complete(self, path: str, offset: int) -> list[Item]:
        known = self.analysis(path)
        if known.node is None:
            known = self._readable.get(path, known)
        callees: dict[str, Callable[[], Node | None]] = {
            node_id: partial(self.nodes.node, file) for node_id, file in self.nodes.node_ids(path).items()
        }
        return complete(known, cursor_at(self.nodes.text(path) or "", offset), callees)

    def format(self, path: str) -> list[tuple[int, int, str]]:
        return format_edits(self.nodes.text(path) or "", format_text)

    def find_name(self, path: str, offset: int) -> tuple[Place, str] | None:
        return naming.find_renamed(self.analysis(path), offset)

    def rename(self, path: str, offset: int, name: str) -> list[Place]:
        return naming.rename(self.analysis(path), offset, name)


def _remark(known: NodeAnalysis, issue: Issue) -> Remark:
    start = known.offset_of(issue.line, issue.column)
    span = known.span_at(start)
    if span is not None and span.at == start:
        end = span.end
    else:
        match = _WORD.match(known.text, start)
        end = match.end() if match is not None else start
    line_end = known.text.find("\n", start)
    end = min(end, line_end) if line_end >= 0 else end
    return Remark(start, max(start, end), issue.message, issue.hint, issue.severity)
