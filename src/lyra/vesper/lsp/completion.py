"""What may be written next in a node: keys of the section, operations, types, names and functions, nodes to call.

`complete` asks one function for each kind of place. Keys and words come from the schema and from the table of
operations, functions from the table of functions, names from the last text that could be read.

`TextCursor` is a place in a text that may not be YAML at this moment: the keys around it, and what is before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.checking.document import Path
from lyra.lsp.language import Item
from lyra.vesper.check.types import element_of
from lyra.vesper.expressions.functions import AGGREGATES, FORMS, PUBLIC_FUNCTIONS, BuiltIn
from lyra.vesper.expressions.parser import KEYWORDS
from lyra.vesper.lsp.analysis import NodeAnalysis, VisibleNames
from lyra.vesper.lsp.schema import STEP_TEXTS, json_schema
from lyra.vesper.nodes.model import Node
from lyra.vesper.nodes.steps import OPERATIONS, STEP_KEYS, Operation
from lyra.vesper.values.names import highest
from lyra.vesper.values.outcome import CODES
from lyra.vesper.values.types import SCALARS, MapType, RecordType, ValueType, describe, without_null

_KEY: Final = re.compile(
    r"""("[^"\n]*"|'[^'\n]*'|[^\s#:{}\[\],&*!|>'"%@`-][^:#\n]*?|-[^\s:#][^:#\n]*?)[ \t]*:(?=[ \t]|$)"""
)
_BLOCK: Final = re.compile(r"[|>][-+0-9]*[ \t]*(?:#.*)?$")
_LINE: Final = re.compile(r"\r\n|\n|\r")
_CHARS_MAX: Final = 1 << 20  # of a text that is looked at
_DEPTH_MAX: Final = 200


class TextCursor(msgspec.Struct):
    """A place in a text. `path` names the mapping or list around a key, and the value itself elsewhere."""

    path: Path = ()
    is_key: bool = True  # a key may begin here
    is_value: bool = False  # a value, or an item of a list
    before: str = ""  # the value's or key's text before the cursor
    words: dict[Path, str] = {}  # plain values on the line of their key, in the whole text
    keys: dict[Path, list[str]] = {}  # of each mapping


class _Frame(msgspec.Struct):
    indent: int
    part: str | int


class _Scan:
    """Reads a text line by line; `frames` are the keys and items around the present line."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.frames: list[_Frame] = []
        self.block_indent = -1  # of the key whose text is a block
        self.result = TextCursor()
        self.is_found = False

    @property
    def path(self) -> Path:
        return tuple(frame.part for frame in self.frames)

    def line(self, text: str, start: int) -> None:
        has_cursor = start <= self.offset <= start + len(text) and not self.is_found
        content = text.lstrip(" ")
        indent = len(text) - len(content)
        if self.block_indent >= 0:
            if not content or indent > self.block_indent:
                if has_cursor and (content or self.offset - start > self.block_indent):
                    self.settle(self.path, text[indent : self.offset - start], is_value=True)
                return
            self.block_indent = -1
        if has_cursor:
            cut = text[: self.offset - start]
            if not cut.strip(" ") and content:
                indent, content = len(cut), ""  # before what stands on the line: as on an empty line
            if not content:
                indent = len(cut)
        if not content or content.startswith("#"):
            if has_cursor and not content:
                self.pop(indent)
                self.settle(self.path, "", is_key=True, is_value=True)
            return
        self.entries(text, indent, start, has_cursor=has_cursor)

    def pop(self, indent: int) -> None:
        """Leave what is indented as far, or further."""
        while self.frames and self.frames[-1].indent >= indent:
            self.frames.pop()

    def entries(self, text: str, indent: int, start: int, *, has_cursor: bool) -> None:
        """Read the dashes, the key and the value of a line."""
        column = indent
        end = self.offset - start if has_cursor else len(text)
        while text[column : column + 1] == "-" and text[column + 1 : column + 2] in ("", " "):
            self.item(column)
            column += 1
            while text[column : column + 1] == " ":
                column += 1
            if has_cursor and end <= column:
                self.settle(self.path, "", is_key=True, is_value=True)
                return
        match = _KEY.match(text, column)
        if match is None or len(self.frames) > _DEPTH_MAX:
            self.read_plain(text[column:end], column, has_cursor=has_cursor)
            return
        if has_cursor and end <= match.end(1):
            self.pop(column)
            self.settle(self.path, text[column:end], is_key=True)
            self.note(match[1])
            return
        self.pop(column)
        self.note(match[1])
        self.frames.append(_Frame(column, match[1].strip("'\"")))
        value_start = match.end()
        value = text[value_start:].strip()
        if _BLOCK.match(value):
            self.block_indent = indent if indent == column else column
        if value and not has_cursor:
            self.result.words.setdefault(self.path, value.strip("'\""))
        if has_cursor:
            self.value(text[value_start:end].lstrip(" "))
        elif value[:1] in ("{", "["):
            self.flow(value)

    def note(self, key: str) -> None:
        self.result.keys.setdefault(self.path, []).append(key.strip("'\""))

    def item(self, column: int) -> None:
        """Enter the next item of a list, whose dashes may stand below the first letter of its key."""
        self.pop(column + 1)
        last = self.frames[-1] if self.frames else None
        if last is not None and last.indent == column and isinstance(last.part, int):
            last.part += 1
        else:
            self.frames.append(_Frame(column, 0))

    def read_plain(self, text: str, column: int, *, has_cursor: bool) -> None:
        """Read what is no key: an item of a list, the next line of a text, or a key that is being written."""
        if not has_cursor:
            if text[:1] in ("{", "["):
                self.flow(text)
            return
        if text[:1] in ("{", "["):
            self.value(text)
            return
        if not (self.frames and isinstance(self.frames[-1].part, int)):
            self.pop(column)
        self.settle(self.path, text, is_key=True, is_value=bool(self.frames))

    def value(self, text: str) -> None:
        if text[:1] in ("{", "["):
            self.flow(text, has_cursor=True)
        else:
            self.settle(self.path, text, is_value=True)

    def flow(self, text: str, *, has_cursor: bool = False) -> None:
        """Read a flow collection up to the end of a text; with the cursor there, what is open is around it."""
        path: list[str | int] = list(self.path)
        open_marks: list[str] = []
        position = word_start = 0
        while position < len(text):
            char = text[position]
            if char in "'\"":
                position = _quote_end(text, position)
                continue
            if char in "{[" and len(open_marks) < _DEPTH_MAX:
                open_marks.append(char)
                path.append(0 if char == "[" else "")
                word_start = position + 1
            elif char in "}]" and open_marks:
                self._word(path, text[word_start:position])
                open_marks.pop()
                path.pop()
                word_start = position + 1
            elif char == "," and open_marks:
                self._word(path, text[word_start:position])
                part = path[-1]
                path[-1] = part + 1 if isinstance(part, int) else ""
                word_start = position + 1
            elif char == ":" and open_marks and path[-1] == "" and text[position + 1 : position + 2] in ("", " "):
                key = text[word_start:position].strip().strip("'\"")
                self.result.keys.setdefault(tuple(path[:-1]), []).append(key)
                path[-1] = key
                word_start = position + 1
            position += 1
        if has_cursor:
            self._settle_in_flow(path, open_marks, text[word_start:].lstrip(" "))

    def _word(self, path: list[str | int], text: str) -> None:
        if text.strip() and path[-1] != "":
            self.result.words.setdefault(tuple(path), text.strip().strip("'\""))

    def _settle_in_flow(self, path: list[str | int], open_marks: list[str], before: str) -> None:
        if not open_marks:
            self.settle(tuple(path), before, is_value=True)
        elif path[-1] == "":
            self.settle(tuple(path[:-1]), before, is_key=True)
        else:
            self.settle(tuple(path), before, is_value=True)

    def settle(self, path: Path, before: str, *, is_key: bool = False, is_value: bool = False) -> None:
        result = self.result
        result.path, result.before, result.is_key, result.is_value = path, before, is_key, is_value
        self.is_found = True


def _quote_end(text: str, position: int) -> int:
    """Return the offset behind a quoted text; the end of the text where it is open."""
    quote = text[position]
    position += 1
    while position < len(text):
        if text[position] == "\\" and quote == '"':
            position += 1
        elif text[position] == quote:
            return position + 1
        position += 1
    return position


def cursor_at(text: str, offset: int) -> TextCursor:
    """Return the place of an offset in a text."""
    text = text[:_CHARS_MAX]
    scan = _Scan(min(offset, len(text)))
    start = 0
    for match in _LINE.finditer(text):
        scan.line(text[start : match.start()], start)
        start = match.end()
    scan.line(text[start:], start)
    return scan.result


# Keys whose text is an expression without braces; elsewhere expressions stand in braces.
_EXPRESSION_KEYS: Final = frozenset(
    {"accumulator", "aggregations", "check", "checks", "condition", "conditions", "constraints", "expression"}
    | {"extract", "function", "group_by", "guard", "guards", "initial", "input", "invariant", "invariants", "left"}
    | {"postconditions", "preconditions", "right", "rules", "set", "verify", "where"}
)
_ACTING_KEYS: Final = ("error_handling", "on_error", "on_success", "retry_policy", "timeout")
_TYPE_WORDS: Final = {
    "array<>": "a list: `array<string>`",
    "map<string, >": "values by keys: `map<string, decimal>`",
    "set<>": "scalars, each once: `set<string>`",
    "decimal(2)": "a number with so many digits after the point",
    "enum[]": "one of some texts: `enum[small, large]`",
}
_DOTTED: Final = re.compile(r"([A-Za-z_]\w*(?:\.\w+|\[\d*\])*)\.\w*\Z")
_PATHS_MAX: Final = 12  # of a name with dots
_EXPRESSION_WORDS: Final = (*sorted(KEYWORDS), "true", "false", "null")


Callees = Mapping[str, Callable[[], Node | None]]  # reads the nodes that can be called, by id


class _Place(NamedTuple):
    known: NodeAnalysis
    cursor: TextCursor
    callees: Callees

    @property
    def step(self) -> Path:
        """The path of the step around the cursor; () where there is none."""
        path = self.cursor.path
        for length in range(len(path), 0, -1):
            if isinstance(path[length - 1], int) and "operation" in self.cursor.keys.get(path[:length], ()):
                return path[:length]
        return ()

    def operation_of(self, step: Path) -> str:
        return self.cursor.words.get((*step, "operation"), "")


def complete(known: NodeAnalysis, cursor: TextCursor, callees: Callees) -> list[Item]:
    """Return all completions at a cursor; the editor filters them by the text before it."""
    place = _Place(known, cursor, callees)
    items: list[Item] = []
    if cursor.is_value:
        for source in (_operations, _types, _nodes, _machines, _rights, _words):
            items = list(source(place))
            if items:
                break
        else:
            items = list(_expression(place))
    if cursor.is_key:
        items = [*_keys(place), *items]
    return list({(item.label, item.kind): item for item in items}.values())


# ---------------------------------------------------------------- keys


def _keys(place: _Place) -> Iterator[Item]:
    path, present = place.cursor.path, set(place.cursor.keys.get(place.cursor.path, ()))
    step = place.step
    operation = OPERATIONS.get(place.operation_of(step)) if step else None
    if path and path[-1] == "inputs" and step and path[:-1] in (step, (*step, "parameters")):
        node_id = highest(place.cursor.words.get((*step, "node_id"), ""), place.callees)
        node = place.callees[node_id]() if node_id is not None else None
        for field in node.inputs if node is not None else ():
            if field.name not in present:
                yield Item(field.name, "field", field.type, field.description, f"{field.name}: ")
        return
    for key, schema in _properties(path).items():
        if key in present:
            continue
        if _is_step(path):
            if operation is not None and not _takes(operation, key):
                continue
            is_needed = operation is not None and key in operation.required
            text = STEP_TEXTS.get(key, "")
            detail = f"{operation.name} needs it" if operation is not None and is_needed else ""
        else:
            detail, text = "", str(schema.get("description", ""))
        yield Item(key, "field", detail, text, f"{key}: " if not _holds_block(schema) else f"{key}:")
    if path == ("error_handling",):
        yield from (Item(code, "error", "", "", f"{code}:") for code in CODES if code not in present)


def _takes(operation: Operation, key: str) -> bool:
    """Return whether a key has an effect on the steps of an operation."""
    if key == "on_result":
        return operation.name == "database_query"
    if key == "on_failure":
        return operation.name == "validation"
    if key in _ACTING_KEYS:
        return operation.acts
    return key in STEP_KEYS or key in operation.settings


def _is_step(path: Path) -> bool:
    return any(_resolve(schema) is _schema()["$defs"]["step"] for schema in _schemas_at(path))


@cache
def _schema() -> dict[str, Any]:
    return json_schema()


def _resolve(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    resolved: dict[str, Any] = _schema()["$defs"][name] if name else schema
    return resolved


def _choices(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas that a part may follow."""
    schema = _resolve(schema)
    yield schema
    for choice in schema.get("anyOf", ()):
        if set(choice) - {"required"}:
            yield from _choices(choice)


def _schemas_at(path: Path) -> list[dict[str, Any]]:
    """Return the schemas that apply to a part."""
    schemas = list(_choices(_schema()))
    for part in path:
        inner: list[dict[str, Any]] = []
        for schema in schemas:
            if isinstance(part, int):
                inner_schema = schema.get("items")
            else:
                inner_schema = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
            if isinstance(inner_schema, dict):
                inner += _choices(inner_schema)
        schemas = inner
    return schemas


def _properties(path: Path) -> dict[str, dict[str, Any]]:
    """Return the keys that a mapping may have, with what the schema says about each."""
    if len(path) > 1 and path[-1] == "parameters":
        return _properties(path[:-1])
    return {key: inner for schema in _schemas_at(path) for key, inner in schema.get("properties", {}).items()}


def _holds_block(schema: dict[str, Any]) -> bool:
    """Return whether the value of a key is a block on the lines below it."""
    return any(choice.get("properties") or "items" in choice for choice in _choices(schema))


def key_text(path: Path) -> str:
    """Return the sentence about a key."""
    if path and _is_step(path[:-1]):
        return STEP_TEXTS.get(str(path[-1]), "")
    schema = _properties(path[:-1]).get(str(path[-1]), {}) if path else {}
    return str(schema.get("description", ""))


# ---------------------------------------------------------------- words


def _operations(place: _Place) -> Iterable[Item]:
    if place.cursor.path[-1:] != ("operation",):
        return ()
    return [
        Item(row.name, "function", "needs " + ", ".join(row.required) if row.required else "", row.text)
        for row in OPERATIONS.values()
    ]


def _words(place: _Place) -> Iterator[Item]:
    for schema in _schemas_at(place.cursor.path):
        kinds = schema.get("type", ())
        words = schema.get("enum", (True, False) if "boolean" in kinds and "string" not in kinds else ())
        for word in words:
            if word is not None:
                yield Item(str(word).lower() if isinstance(word, bool) else str(word), "word")


def _types(place: _Place) -> Iterator[Item]:
    path = place.cursor.path
    if not is_type(path):
        return
    for name in SCALARS:
        yield Item(name, "type")
    for word, text in _TYPE_WORDS.items():
        yield Item(word, "type", "", text)
    node = place.known.node
    for declared in node.types if node is not None else ():
        yield Item(declared.name, "type", "a type of this node")


def is_type(path: Path) -> bool:
    """Return whether the value of a part is a type."""
    if path[-1:] == ("output_type",):
        return True
    fields = path[:1] in (("inputs",), ("outputs",)) or (path[:1] == ("types",) and "fields" in path)
    depth = 2 if path[:1] == ("inputs",) else 3 if path[1:2] and path[1] in ("success", "error") else 2
    depth = path.index("fields") + 2 if path[:1] == ("types",) and "fields" in path else depth
    if fields and len(path) == depth:
        return True
    return (fields and len(path) == depth + 1 and path[-1] in ("type", "items")) or (
        path[:1] == ("types",) and len(path) == 3 and path[-1] in ("base", "type")
    )


def _nodes(place: _Place) -> Iterator[Item]:
    path = place.cursor.path
    if (path[-1:] == ("node_id",) and len(path) > 1) or path[:2] == ("metadata", "dependencies"):
        yield from (Item(node_id, "module", "a node") for node_id in place.callees)


def _machines(place: _Place) -> Iterator[Item]:
    path, node = place.cursor.path, place.known.node
    if node is None or not place.step:
        return
    if path[-1:] == ("state_machine",):
        yield from (Item(machine.name, "word", "a state machine") for machine in node.state_machines)
    elif path[-1:] in (("from",), ("to",)):
        name = place.cursor.words.get((*place.step, "state_machine"), "")
        for machine in node.state_machines:
            if name in ("", machine.name):
                yield from (Item(state, "word", f"a state of {machine.name}") for state in machine.states)


def _rights(place: _Place) -> Iterator[Item]:
    path = place.cursor.path
    if path[:2] == ("security", "sensitive_data"):
        yield from (Item(name, "field") for name in place.known.fields)


# ---------------------------------------------------------------- expressions


def expression_before(path: Path, before: str) -> str | None:
    """Return the text of an expression before a cursor; None where there is no expression."""
    opened = before.replace("{{", "  ").rfind("{")
    if opened >= 0 and "}" not in before[opened:]:
        return before[opened + 1 :]
    is_expression = any(part in _EXPRESSION_KEYS for part in path[1 if path[:1] == ("inputs",) else 0 :])
    return before if is_expression else None


def _expression(place: _Place) -> Iterator[Item]:
    before = expression_before(place.cursor.path, place.cursor.before)
    if before is None or (before.count("'") % 2 and not place.cursor.before.startswith("'")):
        return
    visible = place.known.visible(place.cursor.path)
    dotted = _DOTTED.search(before)
    if dotted is not None:
        yield from _fields(visible, dotted[1])
        return
    if visible.element is not None and isinstance(kind := without_null(visible.element.type), RecordType):
        yield from (Item(field.name, "field", describe(field.type)) for field in kind.fields)
    for name, kind in visible.names.items():
        yield Item(name, "variable", describe(kind))
    for function in PUBLIC_FUNCTIONS:
        yield Item(function.name, "function", function.signature, function_text(function), f"{function.name}($1)")
    for name in AGGREGATES:
        yield Item(name, "function", f"{name}(list)", "of a list's elements", f"{name}($1)")
    for name in FORMS:
        if name == "old" and place.cursor.path[:1] != ("contracts",):
            continue
        yield Item(name, "function", f"{name}(expression)", "", f"{name}($1)")
    yield from (Item(word, "keyword") for word in _EXPRESSION_WORDS)


def _fields(visible: VisibleNames, dotted: str) -> Iterator[Item]:
    kind = type_of(visible, dotted)
    if isinstance(kind, RecordType):
        yield from (Item(field.name, "field", describe(field.type)) for field in kind.fields)


def type_of(visible: VisibleNames, dotted: str) -> ValueType | None:
    """Return the type of a name with dots, such as `order.lines[0]`; None where it is not known."""
    first, *rest = re.split(r"[.\[]", dotted)[:_PATHS_MAX]
    kind = visible.names.get(first)
    for part in rest:
        kind = without_null(kind) if kind is not None else None
        if part.endswith("]"):
            kind = element_of(kind) if kind is not None else None
        elif isinstance(kind, RecordType):
            field = kind.field(part)
            kind = field.type if field is not None else None
        else:
            kind = kind.value if isinstance(kind, MapType) else None
    return without_null(kind) if kind is not None else None


def function_text(function: BuiltIn) -> str:
    """Return the text about a function, with its example and its errors."""
    errors = f"\n\nerrors: {', '.join(function.errors)}" if function.errors else ""
    return f"{function.text}\n\n`{function.example}` is `{function.value}`{errors}"
