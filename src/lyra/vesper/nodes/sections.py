"""From a `.vsp` file or its text to a `Node`: each section is read by a table of its keys.

`read_node` gives the node as far as it can be read, with every remark on the way; `load` raises them as one error.
Neither judges what the node means: that is `lyra.vesper.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import Any, Final

import msgspec

from lyra.core.checking.document import Path
from lyra.errors import ParseError
from lyra.vesper.loading import ERROR, Issue, error_of, read_document, read_source, sort_issues
from lyra.vesper.nodes.model import (
    ChangelogEntry,
    Contracts,
    ContractText,
    DeclaredAlert,
    DeclaredMetric,
    DifferentialTests,
    ErrorHandling,
    FieldDeclaration,
    MachineDeclaration,
    Metadata,
    MoveDeclaration,
    Node,
    NodeLogging,
    NodeRates,
    NodeTracing,
    Observability,
    Performance,
    PropertyTest,
    Security,
    Setting,
    TestCase,
    Testing,
    TypeDeclaration,
)
from lyra.vesper.nodes.reader import Form, SectionReader
from lyra.vesper.nodes.steps import StepReader
from lyra.vesper.values.limits import CONTRACTS_MAX, FIELDS_MAX, INPUTS_MAX
from lyra.vesper.values.names import is_identifier, is_node_id

_ANSWERS: Final = ("success", "error")
_SIBLING_CONSTRAINTS: Final = ("pattern", "min", "max", "min_length", "max_length")


class Sections:
    """Reads the sections of one file."""

    def __init__(self, reader: SectionReader, steps: StepReader) -> None:
        self.reader = reader
        self.steps = steps

    # ------------------------------------------------------------ simple sections
    def metadata(self, value: Any, path: Path) -> Metadata:
        reader = self.reader
        table = {
            "author": reader.text,
            "created": reader.text,
            "version": reader.text,
            "description": reader.text,
            "tags": reader.texts,
            "dependencies": reader.texts,
            "route": reader.text,
            "events": reader.texts,
            "schedule": reader.text,
            "changelog": self._list_of(
                ChangelogEntry, {"version": reader.text, "date": reader.text, "changes": reader.texts}
            ),
        }
        return Metadata(**reader.section(value, path, table))

    def performance(self, value: Any, path: Path) -> Performance:
        reader = self.reader
        numbers = ("expected_latency_ms", "p99_latency_ms", "max_latency_ms", "cpu_limit_cores", "timeout_seconds")
        table: dict[str, Form] = dict.fromkeys(numbers, reader.number)
        table |= {"memory_limit_mb": reader.integer, "rate_limit": self._rates}
        return Performance(**reader.section(value, path, table))

    def _rates(self, value: Any, path: Path) -> NodeRates:
        read = self.reader.section(value, path, {"per_user": self.reader.text, "global": self.reader.text})
        return NodeRates(per_user=read.get("per_user", ""), overall=read.get("global", ""))

    def security(self, value: Any, path: Path) -> Security:
        reader = self.reader
        table = {
            "capabilities_required": reader.texts,
            "denied_capabilities": reader.texts,
            "sensitive_data": lambda item, item_path: item if isinstance(item, bool) else reader.texts(item, item_path),
            "audit_level": reader.choice("basic", "none", "detailed"),
            "compliance": reader.texts,
        }
        return Security(**reader.section(value, path, table))

    def observability(self, value: Any, path: Path) -> Observability:
        reader = self.reader
        metric_table = {
            "name": reader.text,
            "type": reader.choice("counter", "gauge", "histogram"),
            "labels": reader.texts,
            "buckets": reader.numbers,
        }
        alert_table = {
            "condition": reader.text,
            "severity": reader.choice("warning", "info", "error", "critical"),
            "notify": reader.texts,
        }
        logging_table = {
            "level": reader.choice("none", "debug", "info", "warning", "error"),
            "structured": reader.flag,
            "include_request_id": reader.flag,
        }
        table = {
            "metrics": self._list_of(DeclaredMetric, metric_table),
            "alerts": self._list_of(DeclaredAlert, alert_table),
            "tracing": self._part(NodeTracing, {"enabled": reader.flag, "sample_rate": reader.number}),
            "logging": self._part(NodeLogging, logging_table),
        }
        return Observability(**reader.section(value, path, table))

    def testing(self, value: Any, path: Path) -> Testing:
        reader = self.reader
        property_table = {
            **dict.fromkeys(("property", "description", "invariant", "verify"), reader.text),
            "strategy": reader.choice("hypothesis", "quickcheck"),
        }
        case_table = {
            "name": reader.text,
            "description": reader.text,
            "inputs": reader.mapping,
            "expected_output": reader.mapping,
            "answers": reader.mapping,
            "steps": lambda item, item_path: tuple(reader.items(item, item_path)),
        }
        table = {
            "property_tests": self._list_of(PropertyTest, property_table),
            "test_cases": self._list_of(TestCase, case_table),
            "differential_tests": self._part(
                DifferentialTests, {"enabled": reader.flag, "sample_size": reader.integer}
            ),
        }
        return Testing(**reader.section(value, path, table))

    def _part(self, kind: Callable[..., Any], table: Mapping[str, Form]) -> Form:
        def read(value: Any, path: Path) -> Any:
            return kind(**self.reader.section(value, path, table))

        return read

    def _list_of(self, kind: Callable[..., Any], table: Mapping[str, Form]) -> Form:
        def read(value: Any, path: Path) -> tuple[Any, ...]:
            items = enumerate(self.reader.items(value, path))
            return tuple(kind(**self.reader.section(item, (*path, index), table)) for index, item in items)

        return read

    # ------------------------------------------------------------ fields
    def fields(self, value: Any, path: Path, *, what: str) -> tuple[FieldDeclaration, ...]:
        """Read inputs, outputs or the fields of a type: by name, the text of a type or a mapping."""
        mapping = self.reader.mapping(value, path)
        limit = INPUTS_MAX if what == "input" else FIELDS_MAX
        if len(mapping) > limit:
            self.reader.error("limit", f"more than {limit} entries", path)
            return ()
        fields = [self.field(name, item, (*path, name), what=what) for name, item in mapping.items()]
        return tuple(field for field in fields if field is not None)

    def field(self, name: str, value: Any, path: Path, *, what: str) -> FieldDeclaration | None:
        if not is_identifier(name):
            self.reader.error("bad_name", f"{name!r} is no name for a field", path, hint="letters, digits and _")
            return None
        if isinstance(value, str):
            return FieldDeclaration(name, value, path)
        if isinstance(value, list) and all(isinstance(item, str) for item in value) and value:
            return FieldDeclaration(name, "enum", path, values=tuple(value))
        if not isinstance(value, dict):
            self.reader.error("missing_type", f"{what} `{name}` has no type", path, hint=f"{name}: string")
            return FieldDeclaration(name, "any", path)
        return self._field(name, value, path, what=what)

    def _field(self, name: str, value: dict[str, Any], path: Path, *, what: str) -> FieldDeclaration:
        reader = self.reader
        table: dict[str, Form] = {
            "type": reader.text,
            "required": reader.flag,
            "default": lambda item, _: item,
            "constraints": lambda item, _: item,
            "values": reader.texts,
            "scale": reader.integer,
            "sensitive": reader.flag,
            "description": reader.text,
            "items": reader.text,
            "example": lambda item, _: item,
            **dict.fromkeys(_SIBLING_CONSTRAINTS, lambda item, _: item),
        }
        read = reader.section(value, path, table)
        if not read.get("type"):
            if "values" not in read:
                reader.error("missing_type", f"{what} `{name}` has no type", path, hint=f"type: {_a_type(value)}")
            read["type"] = "enum" if "values" in read else "any"
        if read["type"] == "array" and read.get("items"):
            read["type"] = f"array<{read['items']}>"
        return FieldDeclaration(
            name=name,
            type=read["type"],
            path=path,
            required=read.get("required", True),
            default=value.get("default", msgspec.UNSET),
            constraints=self.constraints(value, path),
            values=read.get("values", ()),
            scale=read.get("scale"),
            sensitive=read.get("sensitive"),
            description=read.get("description", ""),
        )

    def constraints(self, value: dict[str, Any], path: Path) -> tuple[tuple[Any, Path], ...]:
        """Return the texts and one-key maps of `constraints`, and the constraints that are written beside it."""
        listed = value.get("constraints")
        constraints: list[tuple[Any, Path]] = []
        if isinstance(listed, (str, dict)):
            listed_path = (*path, "constraints")
            if isinstance(listed, str):
                constraints.append((listed, listed_path))
            else:
                constraints += [({key: item}, (*listed_path, key)) for key, item in listed.items()]
        else:
            for index, item in enumerate(self.reader.items(listed, (*path, "constraints"))):
                item_path = (*path, "constraints", index)
                if isinstance(item, dict):
                    constraints += [({key: inner}, (*item_path, key)) for key, inner in item.items()]
                else:
                    constraints.append((item, item_path))
        constraints += [({key: value[key]}, (*path, key)) for key in _SIBLING_CONSTRAINTS if key in value]
        return tuple(constraints)

    def outputs(self, value: Any, path: Path) -> tuple[tuple[FieldDeclaration, ...], tuple[FieldDeclaration, ...]]:
        """Read success and error fields; a mapping with neither key has success fields only."""
        mapping = self.reader.mapping(value, path)
        is_nested = any(isinstance(mapping.get(key), dict) and "type" not in mapping[key] for key in _ANSWERS) or (
            bool(mapping) and all(key in _ANSWERS and not isinstance(mapping[key], str) for key in mapping)
        )
        if not is_nested:
            return self.fields(value, path, what="output"), ()
        for key in mapping:
            if key not in _ANSWERS:
                self.reader.unknown_key(key, (*path, key), _ANSWERS)
        success = self.fields(mapping.get("success"), (*path, "success"), what="output")
        error = self.fields(mapping.get("error"), (*path, "error"), what="error field")
        return success, error

    def types(self, value: Any, path: Path) -> tuple[TypeDeclaration, ...]:
        declarations = []
        for name, item in self.reader.mapping(value, path).items():
            item_path = (*path, name)
            if not is_identifier(name):
                self.reader.error("bad_name", f"{name!r} is no name for a type", item_path)
                continue
            mapping = self.reader.mapping(item, item_path)
            table: dict[str, Form] = {
                "fields": lambda inner, _: inner,
                "constraints": lambda inner, _: inner,
                "base": self.reader.text,
                "values": self.reader.texts,
                "scale": self.reader.integer,
                "description": self.reader.text,
                "type": self.reader.text,
                **dict.fromkeys(_SIBLING_CONSTRAINTS, lambda inner, _: inner),
            }
            read = self.reader.section(mapping, item_path, table)
            base = read.get("base") or read.get("type") or ("enum" if "values" in read else "")
            if not base and "fields" not in mapping:
                self.reader.error("missing_type", f"type `{name}` has neither fields nor a base", item_path)
                continue
            declarations.append(
                TypeDeclaration(
                    name=name,
                    path=item_path,
                    fields=self.fields(mapping.get("fields"), (*item_path, "fields"), what="field"),
                    base=FieldDeclaration(name, base, item_path, values=read.get("values", ()), scale=read.get("scale"))
                    if base
                    else None,
                    constraints=self.constraints(mapping, item_path),
                )
            )
        return tuple(declarations)

    # ------------------------------------------------------------ contracts
    def contracts(self, value: Any, path: Path) -> Contracts:
        table = dict.fromkeys(("preconditions", "postconditions", "invariants"), self._contract_texts)
        return Contracts(**self.reader.section(value, path, table))

    def _contract_texts(self, value: Any, path: Path) -> tuple[ContractText, ...]:
        items = [value] if isinstance(value, str) else self.reader.items(value, path)
        if len(items) > CONTRACTS_MAX:
            self.reader.error("limit", f"more than {CONTRACTS_MAX} contracts", path)
            return ()
        texts = []
        for index, item in enumerate(items):
            item_path = path if isinstance(value, str) else (*path, index)
            if isinstance(item, bool):
                texts.append(ContractText("true" if item else "false", item_path))
            elif isinstance(item, dict) and len(item) == 1:
                (label, sentence) = next(iter(item.items()))
                texts.append(ContractText(f"{label}: {sentence}", item_path, is_prose=True))
            elif isinstance(item, str):
                texts.append(ContractText(item, item_path))
            else:
                self.reader.wrong("a condition", item, item_path)
        return tuple(texts)

    # ------------------------------------------------------------ errors and state machines
    def error_handling(self, value: Any, path: Path) -> tuple[ErrorHandling, ...]:
        rules = []
        for code, item in self.reader.mapping(value, path).items():
            item_path = (*path, code)
            mapping = self.reader.mapping({"action": item} if isinstance(item, str) else item, item_path)
            settings = {key: Setting(inner, (*item_path, key)) for key, inner in mapping.items()}
            compensation = settings.pop("compensation_steps", None)
            steps = (
                self.steps.steps(compensation.value, compensation.path, parent=f"{code}.compensation", depth=1)
                if compensation
                else ()
            )
            rules.append(ErrorHandling(code, item_path, settings, steps))
        return tuple(rules)

    def state_machines(self, value: Any, path: Path) -> tuple[MachineDeclaration, ...]:
        return tuple(
            self._machine(name, item, (*path, name)) for name, item in self.reader.mapping(value, path).items()
        )

    def _machine(self, name: str, value: Any, path: Path) -> MachineDeclaration:
        reader = self.reader
        table = {
            "initial": reader.text,
            "states": lambda item, item_path: tuple(item) if isinstance(item, dict) else reader.texts(item, item_path),
            "transitions": self._moves,
            "description": reader.text,
        }
        read = reader.section(value, path, table)
        states = read.get("states", ())
        return MachineDeclaration(
            name=name,
            path=path,
            initial=read.get("initial") or (states[0] if states else ""),
            states=states,
            moves=read.get("transitions", ()),
        )

    def _moves(self, value: Any, path: Path) -> tuple[MoveDeclaration, ...]:
        moves = []
        for index, item in enumerate(self.reader.items(value, path)):
            item_path = (*path, index)
            mapping = self.reader.mapping(item, item_path)
            table: dict[str, Form] = {
                "from": self.reader.texts,
                "to": self.reader.texts,
                "guard": lambda inner, _: inner,
                "description": self.reader.text,
            }
            read = self.reader.section(mapping, item_path, table)
            if "from" not in read or "to" not in read:
                self.reader.error("missing_key", "a transition has `from` and `to`", item_path)
                continue
            guard = Setting(mapping["guard"], (*item_path, "guard")) if mapping.get("guard") is not None else None
            moves += [
                MoveDeclaration(source, target, item_path, guard) for source in read["from"] for target in read["to"]
            ]
        return tuple(moves)


def _a_type(value: dict[str, Any]) -> str:
    """Return a type that fits what a field without one says."""
    return "decimal" if "scale" in value else "string"


_REQUIRED: Final = ("node_id", "type", "intent")
NODE_KEYS: Final = (
    *("node_id", "type", "intent", "idempotent", "metadata", "inputs", "outputs", "types", "contracts", "flow"),
    *("error_handling", "performance", "security", "observability", "testing", "documentation", "state_machines"),
)


# Keys of other formats, and keys that stand in another section.
_OTHER_KEYS: Final = {
    **dict.fromkeys(("steps", "tasks", "nodes", "workflow"), "`flow`"),
    **dict.fromkeys(("id", "name"), "`node_id`"),
    **dict.fromkeys(("description", "version", "tags", "author"), "`metadata: {KEY: …}`"),
    **dict.fromkeys(("preconditions", "postconditions", "invariants"), "`contracts: {KEY: …}`"),
    **dict.fromkeys(("test_cases", "property_tests"), "`testing: {KEY: …}`"),
    **dict.fromkeys(("capabilities_required", "sensitive_data"), "`security: {KEY: …}`"),
    **dict.fromkeys(("capabilities", "permissions"), "`security: {capabilities_required: […]}`"),
    "tests": "`testing`",
}
_YAML_HINTS: Final = (
    ("mapping values are not allowed", "a text with a colon and a blank in it stands in quotes"),
    ("cannot start any token", "a text that begins with this character stands in quotes"),
    ("did not find expected", "a text that begins with { or [, or has a comma or a bracket in it, stands in quotes"),
)


def load(source: str | FilePath) -> Node:
    """Return the node of a file, or of a text (which has a line break). ParseError where the text is no YAML,
    CheckError where it is no node; `fields["problems"]` has all remarks."""
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
    """Return the node as far as it can be read, and the remarks of the reader, in order of place. There is no node
    where the file is no mapping. ParseError where the text is no YAML."""
    try:
        document = read_document(text, file, reads_on=True)
    except ParseError as error:
        line, column = int(error.fields["line"]), int(error.fields["column"])
        hint = next((hint for words, hint in _YAML_HINTS if words in error.message), "")
        if "\t" in "".join(text.splitlines()[line - 1 : line]):
            hint = "a tab does not indent in YAML: write blanks"
        issue = Issue(severity=ERROR, code="syntax", message=error.message, line=line, column=column, hint=hint)
        raise error_of([issue], file, parsing=True) from None
    reader = SectionReader(document)
    for path, place in document.repeated:
        message = f"key {str(path[-1])[:80]!r} is written twice"
        reader.issues.add(ERROR, "syntax", message, path=path, place=place, hint="the first value is read")
    values = _values(reader, document.data)
    issues = sort_issues(reader.issues.items)
    if values is None:
        return None, issues
    return Node(document=document, issues=tuple(issues), **values), issues


def _values(reader: SectionReader, data: Any) -> dict[str, Any] | None:
    if not isinstance(data, dict):
        reader.error("wrong_form", "the file is no mapping of a node's keys", ())
        return None
    for key in data:
        if key not in NODE_KEYS:
            word = _OTHER_KEYS.get(str(key), "").replace("KEY", str(key))
            reader.unknown_key(key, (key,), NODE_KEYS, hint=f"write {word}" if word else "")
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
