"""Vesper as a `Language` of the language server: each question is asked of the module that answers it.

`NodeTexts` knows the nodes beside each file: those that are open as they are on the screen, the others from the disk. A
node's id is found by its line, so that only the nodes that are called are read whole.

A hover shows what stands at a place in a few lines: a name and its type, a function, a key, an operation, a node.

A name is refused in a renaming where it would change what the node means: the changed text is looked at again, and the
same names must stand at the same places, with the same remarks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from lyra.errors import ConfigError, LyraError
from lyra.lsp.language import Fix, Hover, Item, Language, OutlineEntry, Remark, RenameRefused, word_fixes
from lyra.lsp.texts import OpenTexts, Place, format_edits
from lyra.vesper import ir
from lyra.vesper.check.judge import lower_unchecked
from lyra.vesper.check.state import AMBIENT
from lyra.vesper.expressions.functions import AGGREGATES, FUNCTIONS
from lyra.vesper.expressions.parser import KEYWORDS
from lyra.vesper.format.layout import format_text
from lyra.vesper.loading import Issue
from lyra.vesper.lsp.analysis import NodeAnalysis, Occurrence, TextSpan
from lyra.vesper.lsp.completion import complete, cursor_at, function_text, is_type, key_text
from lyra.vesper.nodes.model import Node, StepDeclaration
from lyra.vesper.nodes.sections import load
from lyra.vesper.nodes.steps import operation_named
from lyra.vesper.repository.folders import node_files, repository_around
from lyra.vesper.values.names import highest, is_identifier
from lyra.vesper.values.types import describe

_CALL: Final = re.compile(r"([A-Za-z_]\w*)\s*\(")
_LINE_MAX: Final = 400  # characters around a place in which a function's name is looked for
_WORDS: Final = frozenset(KEYWORDS | {"true", "false", "null", "success", "error"})


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
        return definition(self.analysis(path), offset, partial(self.nodes.file_of, path))

    def references(self, path: str, offset: int, *, with_declaration: bool) -> list[Place]:
        return references(self.analysis(path), offset, with_declaration=with_declaration)

    def outline(self, path: str) -> list[OutlineEntry]:
        return outline(self.analysis(path))

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
        return find_renamed(self.analysis(path), offset)

    def rename(self, path: str, offset: int, name: str) -> list[Place]:
        return rename(self.analysis(path), offset, name)


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


def definition(known: NodeAnalysis, offset: int, file_of: Callable[[str], str | None]) -> Place | None:
    """Find where the name under an offset is declared; of a node that is called, its file."""
    span = known.span_at(offset)
    if span is not None and not span.is_key and _names_node(span):
        file = file_of(span.text)
        return Place(file, 0, 0) if file is not None else None
    occurrence = known.occurrence_at(offset)
    if occurrence is not None:
        same = [item for item in known.occurrences if item.symbol == occurrence.symbol]
        declared = [item for item in same if item.is_declaration]
        declared = [item for item in declared if item.at <= offset][-1:] or declared[:1]  # the nearest one above
        if declared:
            return Place(known.file, declared[0].at, declared[0].end)
        # The step that gives a name without saying so: `item`, or the name of a step with other characters.
        variable = known.variables.get(occurrence.symbol.name)
        path = occurrence.symbol.owner[:-1] if occurrence.symbol.owner else variable.step.path if variable else None
        if path is None or known.node is None:
            return None
        offset = known.offset_of(*known.node.document.place(path))
        return Place(known.file, offset, offset)
    use = known.use_at(offset)
    step = known.step_around(use.path) if use is not None else None
    if use is not None and use.kind == "parameter" and step is not None and use.name in step.parameters:
        return _key_place(known, step.parameters[use.name].path)
    return _find_part(known, span) if span is not None and not span.is_key else None


def _names_node(span: TextSpan) -> bool:
    return len(span.path) > 1 and (span.path[-1] == "node_id" or span.path[:2] == ("metadata", "dependencies"))


def _key_place(known: NodeAnalysis, path: tuple[str | int, ...]) -> Place | None:
    span = next((span for span in known.spans if span.path == path and span.is_key), None)
    return Place(known.file, span.at, span.end) if span is not None else None


def _find_part(known: NodeAnalysis, span: TextSpan) -> Place | None:
    """Find a type or a state machine that a value names."""
    for word in re.findall(r"\w+", span.text):
        for section in ("types", "state_machines"):
            if section == "types" or span.path[-1] == "state_machine":
                place = _key_place(known, (section, word))
                if place is not None and span.path[0] in ("inputs", "outputs", "types", "flow"):
                    return place
    return None


def references(known: NodeAnalysis, offset: int, *, with_declaration: bool) -> list[Place]:
    """Return every place where the symbol under an offset is written."""
    occurrence = known.occurrence_at(offset)
    if occurrence is None:
        return []
    return [
        Place(known.file, item.at, item.end)
        for item in known.occurrences
        if item.symbol == occurrence.symbol and (with_declaration or not item.is_declaration)
    ]


def find_renamed(known: NodeAnalysis, offset: int) -> tuple[Place, str] | None:
    """Return the place and the name that a rename at the cursor would change; None where it can change nothing."""
    occurrence = known.occurrence_at(offset)
    return None if occurrence is None else (Place(known.file, occurrence.at, occurrence.end), occurrence.symbol.name)


def rename(known: NodeAnalysis, offset: int, name: str) -> list[Place]:
    """Return every place to write the new name at; RenameRefused with the reason where it cannot be given."""
    occurrence = known.occurrence_at(offset)
    if occurrence is None:
        if known.node is None:
            raise RenameRefused(f"the file cannot be read, mend it first: {known.issues[0].message}")
        raise RenameRefused("there is no input, variable or output here; other names stay as they are")
    symbol = occurrence.symbol
    if name == symbol.name:
        return []
    places = [item for item in known.occurrences if item.symbol == symbol]
    if not any(item.is_declaration for item in places):
        raise RenameRefused(f"`{symbol.name}` is a name that the language gives; name it with `as` or `output` first")
    _check_name(known, symbol.name, name)
    text = known.text
    for item in reversed(places):
        text = text[: item.at] + name + text[item.end :]
    after = NodeAnalysis(text, known.file)
    before = NodeAnalysis(known.text, known.file)
    if _count_issues(after) != _count_issues(before) or not _is_same(before, after, places, name):
        raise RenameRefused(f"`{name}` would mean something else at one of these places")
    return [Place(known.file, item.at, item.end) for item in places]


def _check_name(known: NodeAnalysis, old: str, name: str) -> None:
    if not is_identifier(name):
        raise RenameRefused(f"`{name}` is no name: letters, digits and `_`, with no digit first")
    if name in _WORDS or name in AMBIENT:
        raise RenameRefused(f"`{name}` is a word of the language")
    if any(item.symbol.name == name for item in known.occurrences) or name in known.fields or name in known.variables:
        raise RenameRefused(f"`{name}` is already a name in this node")
    node = known.node
    if node is None:
        return
    for test in node.testing.property_tests:
        if re.search(rf"\b{re.escape(old)}\b", f"{test.invariant} {test.verify}"):
            raise RenameRefused(f"the property test `{test.property}` is about `{old}`: change it by hand")
    if any(metric.name == old and metric.type != "counter" for metric in node.observability.metrics):
        raise RenameRefused(f"the metric `{old}` shows the value of that name: change it by hand")
    if "idempotency_key" in (old, name):
        raise RenameRefused("`idempotency_key` is a name with a meaning: executions with the same key are one")


def _count_issues(known: NodeAnalysis) -> Counter[str]:
    return Counter(issue.code for issue in known.issues)


def _is_same(before: NodeAnalysis, after: NodeAnalysis, places: list[Occurrence], name: str) -> bool:
    """Return whether the new name stands exactly where the old one stood, and all others where they were."""
    shift = len(name) - len(places[0].symbol.name)
    starts = {item.at for item in places}
    moved: list[tuple[int, str]] = []
    passed = 0
    for item in before.occurrences:
        moved.append((item.at + passed * shift, name if item.at in starts else item.symbol.name))
        passed += item.at in starts
    return moved == [(item.at, item.symbol.name) for item in after.occurrences]


def outline(known: NodeAnalysis) -> list[OutlineEntry]:
    """Return the sections of a file with their fields and steps."""
    if known.node is None or not known.spans:
        return []
    keys = {span.path: span for span in known.spans if span.is_key}
    ends = _ends(known.spans)
    sections = []
    for path, span in keys.items():
        if len(path) != 1:
            continue
        role = "section"
        if path == ("flow",):
            inside = [_step_entry(known, step, ends) for step in known.node.flow]
        else:
            below = "type" if path == ("types",) else "variable" if path in (("inputs",), ("outputs",)) else "child"
            inside = [
                OutlineEntry(str(inner[-1]), below, key.at, ends[inner], key.at, key.end, [])
                for inner, key in keys.items()
                if len(inner) == 2 and inner[0] == path[0]
            ]
        sections.append(OutlineEntry(span.text or "?", role, span.at, ends[path], span.at, span.end, inside))
    return sections


def _step_entry(known: NodeAnalysis, step: StepDeclaration, ends: dict[tuple[str | int, ...], int]) -> OutlineEntry:
    assert known.node is not None
    start = known.offset_of(*known.node.document.place(step.path))
    inside = [_step_entry(known, inner, ends) for block in step.blocks.values() for inner in block]
    return OutlineEntry(step.name or "?", "step", start, max(start, ends.get(step.path, start)), start, start, inside)


def _ends(spans: list[TextSpan]) -> dict[tuple[str | int, ...], int]:
    """Return where each part ends, with all that is inside it."""
    ends: dict[tuple[str | int, ...], int] = {}
    for span in spans:
        for length in range(1, len(span.path) + 1):
            path = span.path[:length]
            ends[path] = max(ends.get(path, 0), span.end)
    return ends
