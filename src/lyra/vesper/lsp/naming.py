"""From a name in a node to its declaration, its uses and another name; the outline of a file.

A name is refused where it would change what the node means: the changed text is looked at again, and the same names
must stand at the same places, with the same remarks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Final

from lyra.lsp.language import OutlineEntry, RenameRefused
from lyra.lsp.texts import Place
from lyra.vesper.check.state import AMBIENT
from lyra.vesper.expressions.parser import KEYWORDS
from lyra.vesper.lsp.analysis import NodeAnalysis, Occurrence, TextSpan
from lyra.vesper.nodes.model import StepDeclaration
from lyra.vesper.values.names import is_identifier

_WORDS: Final = frozenset(KEYWORDS | {"true", "false", "null", "success", "error"})


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
