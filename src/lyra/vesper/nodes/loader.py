"""From a `.vsp` file or its text to a `Node`.

`read_node` gives the node as far as it can be read, with every remark on the way; `load` raises them as one error.
Neither judges what the node means: that is `lyra.vesper.check`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any, Final

from lyra.core.checking.document import Path
from lyra.errors import ParseError
from lyra.vesper.loading.document import read_document, read_source
from lyra.vesper.loading.issues import ERROR, Issue, error_of, sorted_issues
from lyra.vesper.nodes.model import Node
from lyra.vesper.nodes.reader import SectionReader
from lyra.vesper.nodes.sections import Sections
from lyra.vesper.nodes.steps import StepReader
from lyra.vesper.values.names import is_identifier, is_node_id

_REQUIRED: Final = ("node_id", "type", "intent")
NODE_KEYS: Final = (
    "node_id",
    "type",
    "intent",
    "idempotent",
    "metadata",
    "inputs",
    "outputs",
    "types",
    "contracts",
    "flow",
    "error_handling",
    "performance",
    "security",
    "observability",
    "testing",
    "documentation",
    "state_machines",
)


def load(source: str | FilePath) -> Node:
    """The node of a file, or of a text (which has a line break). ParseError where the text is no YAML, CheckError where
    it is no node; `fields["problems"]` has all remarks."""
    text, file = read_source(source)
    try:
        node, issues = read_node(text, file)
    except ParseError as error:
        error.fields.setdefault("problems", [])
        raise
    if node is None or any(issue.severity == ERROR for issue in issues):
        raise error_of(issues, file, parsing=any(issue.code == "syntax" for issue in issues))
    return node


def read_node(text: str, file: str = "<text>") -> tuple[Node | None, list[Issue]]:
    """The node as far as it can be read, and the remarks of the reader, in order of place. There is no node where the
    file is no mapping. ParseError where the text is no YAML."""
    try:
        document = read_document(text, file, reads_on=True)
    except ParseError as error:
        line, column = int(error.fields["line"]), int(error.fields["column"])
        issue = Issue(severity=ERROR, code="syntax", message=error.message, line=line, column=column)
        raise error_of([issue], file, parsing=True) from None
    reader = SectionReader(document)
    for path, place in document.repeated:
        message = f"key {str(path[-1])[:80]!r} is written twice"
        reader.issues.add(ERROR, "syntax", message, path=path, place=place, hint="the first value is read")
    values = _values(reader, document.data)
    issues = sorted_issues(reader.issues.items)
    if values is None:
        return None, issues
    return Node(document=document, issues=tuple(issues), **values), issues


def _values(reader: SectionReader, data: Any) -> dict[str, Any] | None:
    if not isinstance(data, dict):
        reader.error("wrong_form", "the file is no mapping of a node's keys", ())
        return None
    for key in data:
        if key not in NODE_KEYS:
            reader.unknown_key(key, (key,), NODE_KEYS)
    for key in _REQUIRED:
        if data.get(key) in (None, ""):
            reader.error("missing_key", f"the node has no `{key}`", (key,) if key in data else ())
    steps = StepReader(reader)
    sections = Sections(reader, steps)
    values = _heads(reader, data)
    table: dict[str, Callable[[Any, Path], Any]] = {
        "metadata": sections.metadata,
        "types": sections.types,
        "contracts": sections.contracts,
        "flow": steps.steps,
        "error_handling": sections.error_handling,
        "performance": sections.performance,
        "security": sections.security,
        "observability": sections.observability,
        "testing": sections.testing,
        "documentation": reader.mapping,
        "state_machines": sections.state_machines,
        "idempotent": reader.flag,
    }
    for key, form in table.items():
        if data.get(key) is not None:
            values[key] = form(data[key], (key,))
    values["inputs"] = sections.fields(data.get("inputs"), ("inputs",), what="input")
    values["success"], values["error"] = sections.outputs(data.get("outputs"), ("outputs",))
    return values


def _heads(reader: SectionReader, data: dict[str, Any]) -> dict[str, Any]:
    node_id, kind = data.get("node_id"), data.get("type")
    if isinstance(node_id, str) and node_id and not is_node_id(node_id):
        reader.error(
            "bad_node_id",
            f"{node_id[:80]!r} is no id of a node",
            ("node_id",),
            hint="lower-case words and a version, such as payment_handler_v1",
            value=True,
        )
    if isinstance(kind, str) and kind and not is_identifier(kind):
        reader.error("bad_type", f"{kind[:80]!r} is no type of a node", ("type",), value=True)
    return {
        "node_id": reader.text(node_id, ("node_id",)),
        "kind": reader.text(kind, ("type",)),
        "intent": reader.text(data.get("intent"), ("intent",)),
    }
