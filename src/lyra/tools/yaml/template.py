"""Templates: texts with placeholders for values, `{{name}}` or `{{.name}}`, found when a file is read and never later.

A value is put into one place of a structure that exists already (an argument, a segment of a path, a value of a query,
a value of JSON), in the form that this place needs. It is never put into a text that is read afterwards, so no value
can become more than a value, and a value that looks like a template is not expanded.

The values are those of the tool's parameters: typed, with defaults, ranges and patterns, against which what a model
sends is checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from lyra.core.checking.check import Report, did_you_mean
from lyra.core.checking.document import Path
from lyra.core.checking.schema import is_equal_json, mismatch, schema_problems
from lyra.core.linear_regex import BadPattern, RegexProgram
from lyra.core.providers import USUAL
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import rights
from lyra.errors import ToolError
from lyra.sandbox.addresses import Lookup
from lyra.sandbox.proxy import system_lookup
from lyra.sandbox.sandbox import Sandbox
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.http_guard import Dial

# ---------------------------------------------------------------- linear regex
# Patterns of parameters: a small subset of regular expressions, matched against a whole text in linear time.

STATES_MAX: Final = 500
REPEAT_MAX: Final = 200
_LENGTH_MAX: Final = 500
_DEPTH_MAX: Final = 20
_READ: Final = frozenset("dwsDWSntrfv")  # letters that may stand behind a backslash
_TOKEN: Final = re.compile(
    r"(?P<class>\[\^?+\]?+(?:[^]\\]|\\.)*+\])|(?P<open>\((?:\?:)?+)|(?P<close>\))|(?P<or>\|)|(?P<count>\{[^}]*\}?)"
    r"|(?P<repeat>[*+?])|(?P<end>\$\Z)|(?P<escape>\\.)|(?P<unfinished>\[.*|\\)|(?P<misplaced>[]^$}])|(?P<char>.)",
    re.DOTALL,
)
_COUNT: Final = re.compile(r"\{([0-9]{1,3})(,?)((?<=,)[0-9]{1,3})?\}")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class Linear:
    """`Linear("[a-z]+").matches("abc")`."""

    __slots__ = ("_program", "text")

    def __init__(self, text: str) -> None:
        if len(text) > _LENGTH_MAX:
            raise BadPattern(f"a pattern has at most {_LENGTH_MAX} characters")
        self.text = text
        _check(text.removeprefix("^"))
        try:
            self._program = RegexProgram(text, size_max=STATES_MAX, flags=re.ASCII)
        except BadPattern as error:
            if str(error).startswith("bad character range"):
                raise BadPattern("a range of a class goes from a character to a later one") from None
            raise

    def matches(self, text: str) -> bool:
        return self._program.matches_whole(text)


def _check(text: str) -> None:
    """Refuse what is not in the subset."""
    depth, before = 0, "or"
    for token in _TOKEN.finditer(text):
        kind, word, start = str(token.lastgroup), token[0], token.start()
        if kind == "open":
            depth += 1
            if text.startswith("(?", start) and word == "(":
                raise BadPattern("look-around, names and flags are not read; a group is ( ) or (?: )")
            if depth > _DEPTH_MAX:
                raise BadPattern("groups are nested too deeply")
        elif kind == "close":
            depth -= 1
            if depth < 0:
                raise BadPattern(f"there is a ')' too many at position {start}")
        elif kind in ("class", "escape", "unfinished"):
            unread = next((char for char in _ESCAPE.findall(word) if char.isalnum() and char not in _READ), None)
            if unread is not None:
                raise BadPattern(f"\\{unread} is not read")
            if kind == "unfinished":
                raise BadPattern("the pattern ends too early")
        elif kind in ("repeat", "count") and before in ("repeat", "count"):
            raise BadPattern(f"a repetition of a repetition at position {start} is not read; use a group")
        elif (
            kind == "misplaced"
            or (kind in ("repeat", "count") and before in ("open", "or"))
            or (kind == "end" and depth > 0)
        ):
            place = f"{word[0]!r} at position {start} is out of place"
            raise BadPattern(f"{place}; for the character itself write \\{word[0]}")
        elif kind == "count":
            count = _COUNT.fullmatch(word)
            if count is None:
                raise BadPattern("a count is {m}, {m,} or {m,n}; a plain brace is \\{")
            least, most = int(count[1]), int(count[3] or count[1])
            if not least <= most <= REPEAT_MAX:
                raise BadPattern(f"a count is at most {REPEAT_MAX}, the smaller first")
        before = kind
    if depth > 0:
        raise BadPattern("a '(' is not closed")


TYPES: Final = ("string", "integer", "number", "boolean", "array", "object")
_KEYS: Final = (
    *("name", "type", "description", "required", "default", "enum", "min", "max"),
    *("pattern", "max_length", "items", "properties"),
)
_ONLY_FOR: Final[dict[str, tuple[str, ...]]] = {
    "min": ("integer", "number"),
    "max": ("integer", "number"),
    "pattern": ("string",),
    "max_length": ("string", "array"),
    "items": ("array",),
    "properties": ("object",),
    "enum": ("string", "integer", "number"),
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_PARAMS_MAX: Final = 50
_ENUM_MAX: Final = 200
_TEXT_MAX: Final = 100_000  # characters of a text without a max_length
_PATTERN_TEXT_MAX: Final = 2_000  # characters of a text with a pattern
_DESCRIPTION_MAX: Final = 2_000


class Param(msgspec.Struct, frozen=True):
    name: str
    type: str
    schema: dict[str, Any]
    required: bool = True
    default: Any = None
    pattern: Linear | None = None

    @property
    def values(self) -> tuple[Any, ...] | None:
        """The values of its enum, if it has one."""
        return tuple(self.schema["enum"]) if "enum" in self.schema else None

    @property
    def may_be_missing(self) -> bool:
        return not self.required and self.default is None

    def read(self, value: Any) -> Any:
        value = self._convert(value)
        wrong = mismatch(value, self.schema, self.name)
        if wrong is None and isinstance(value, float) and not math.isfinite(value):
            wrong = f"{self.name} is not a finite number"
        if wrong is None and isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
            wrong = f"{self.name} holds half a surrogate pair"
        if wrong is None and self.pattern is not None and not self.pattern.matches(value):
            wrong = f"{self.name} does not match the pattern {self.pattern.text}"
        if wrong is not None:
            raise ToolError(f"bad arguments: {wrong}", reason="invalid_arguments")
        return int(value) if self.type == "integer" and isinstance(value, float) else value

    def _convert(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) <= 40:
            if self.type in ("integer", "number") and re.fullmatch(r"-?[0-9]{1,18}", value):
                return int(value)
            if self.type == "number" and re.fullmatch(r"-?[0-9]+\.[0-9]+", value):
                return float(value)
            if self.type == "boolean" and value in ("true", "false"):
                return value == "true"
        return value


class Params:
    """The parameters of a tool. `incomplete`: some could not be read, so an unknown name is no further mistake."""

    __slots__ = ("_all", "_incomplete", "schema")

    def __init__(self, params: list[Param], *, incomplete: bool = False) -> None:
        self._all = {param.name: param for param in params}
        self._incomplete = incomplete
        self.schema: dict[str, Any] = {
            "type": "object",
            "properties": {param.name: _render_schema(param) for param in params},
            "required": [param.name for param in params if param.required],
            "additionalProperties": False,
        }

    def __contains__(self, name: str) -> bool:
        return self._incomplete or name in self._all

    def __getitem__(self, name: str) -> Param:
        return _stand_in(name) if self._incomplete and name not in self._all else self._all[name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._all)

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for each parameter; a ToolError that a model can act on if the arguments are wrong."""
        for name in arguments:
            if name not in self._all:
                near = did_you_mean(str(name), self._all)
                hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(self._all) or 'none'}"
                raise ToolError(f"there is no parameter {str(name)[:80]!r}", hint=hint, reason="invalid_arguments")
        values: dict[str, Any] = {}
        for name, param in self._all.items():
            given = arguments.get(name)
            if given is None and param.required:
                raise ToolError(f"the parameter {name!r} is missing", reason="invalid_arguments")
            values[name] = param.default if given is None else param.read(given)
        return values


def _render_schema(param: Param) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if param.default is not None:
        extra["default"] = param.default
    if param.pattern is not None:
        extra["pattern"] = f"^(?:{param.pattern.text.removeprefix('^').removesuffix('$')})$"
    return {**param.schema, **extra}


# ---------------------------------------------------------------- reading them from a file
def read_params(value: Any, path: Path, report: Report) -> Params:
    if not isinstance(value, list):
        report.add(path, "params is a list: '- name: city', one for each parameter")
        return Params([], incomplete=True)
    if len(value) > _PARAMS_MAX:
        report.add(path, f"a tool has at most {_PARAMS_MAX} parameters, not {len(value)}")
        return Params([], incomplete=True)
    params: list[Param] = []
    incomplete = False
    for index, declared in enumerate(value):
        param = _param(declared, (*path, index), report)
        if param is None:
            incomplete = True
        elif any(param.name == other.name for other in params):
            report.add((*path, index), f"there are two parameters {param.name!r}")
        else:
            params.append(param)
    return Params(params, incomplete=incomplete)


def _stand_in(name: str) -> Param:
    """Return a stand-in for a parameter with a mistake. It fits every use, so that one mistake causes no further
    ones."""
    return Param(name, "string", {"type": "string", "enum": []})


def _param(value: Any, path: Path, report: Report) -> Param | None:
    """One parameter, as far as it can be read; None if its name cannot be."""
    before = len(report.mistakes)
    given = report.mapping(value, path, "a parameter", _KEYS)
    if given is None:
        return None
    name = given.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        report.add((*path, "name"), f"a parameter's name has letters, digits and '_', unlike {name!r}")
        name = None
    required = report.flag(given["required"], (*path, "required"), "required") if "required" in given else None
    kind = report.word(given.get("type", "string"), (*path, "type"), "a parameter's type", TYPES)
    param = None if kind is None else _make_param(name or "it", kind, required, given, path, report)
    if name is None:
        return None
    return param if param is not None and len(report.mistakes) == before else _stand_in(name)


def _make_param(
    name: str, kind: str, required: bool | None, given: dict[str, Any], path: Path, report: Report
) -> Param:
    before = len(report.mistakes)
    for key, kinds in _ONLY_FOR.items():
        if key in given and kind not in kinds:
            report.add((*path, key), f"{key!r} is for {' and '.join(kinds)}, and {name} is {kind}")
    schema = _schema(kind, given, path, report)
    pattern = _pattern(given.get("pattern"), path, report)
    for inner_path, wrong, hint in schema_problems(schema):
        report.add((*path, *inner_path), wrong, hint)
    has_default = given.get("default") is not None
    param = Param(name, kind, schema, not has_default if required is None else required, None, pattern)
    is_sound = len(report.mistakes) == before
    if required and has_default:
        report.add((*path, "default"), f"{name} is required, so its default is never used")
    if has_default and is_sound:
        try:
            return msgspec.structs.replace(param, default=param.read(given["default"]))
        except ToolError as error:
            report.add((*path, "default"), f"the default does not fit: {error.message.removeprefix('bad arguments: ')}")
    return param


def _schema(kind: str, given: dict[str, Any], path: Path, report: Report) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": kind}
    if "description" in given:
        text = report.text(given["description"], (*path, "description"), "a description", most=_DESCRIPTION_MAX)
        schema["description"] = text or ""
    for key, word in (("min", "minimum"), ("max", "maximum")):
        if key in given:
            schema[word] = given[key]
    if kind == "string":
        most = _PATTERN_TEXT_MAX if "pattern" in given else _TEXT_MAX
        schema["maxLength"] = _length(given.get("max_length", most), most, (*path, "max_length"), report)
    elif kind == "array":
        schema["maxItems"] = _length(given.get("max_length", 1_000), 10_000, (*path, "max_length"), report)
        schema["items"] = given.get("items", {})
    elif kind == "object" and "properties" in given:
        schema |= {"properties": given["properties"], "additionalProperties": False}
    if "enum" in given:
        schema["enum"] = _enum(kind, given["enum"], (*path, "enum"), report)
    return schema


def _length(value: Any, most: int, path: Path, report: Report) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        report.add(path, f"max_length is a whole number between 1 and {most}, not {value!r}")
        return most
    return value


def _enum(kind: str, value: Any, path: Path, report: Report) -> list[Any]:
    if not isinstance(value, list) or not 1 <= len(value) <= _ENUM_MAX:
        report.add(path, f"an enum is a list of 1 to {_ENUM_MAX} values")
        return []
    for index, choice in enumerate(value):
        wrong = mismatch(choice, {"type": kind}, "it")
        if wrong:
            report.add((*path, index), f"{choice!r} cannot be a value of the enum: {wrong}")
        elif any(is_equal_json(choice, other) for other in value[:index]):
            report.add((*path, index), f"{choice!r} is in the enum twice")
    return value


def _pattern(value: Any, path: Path, report: Report) -> Linear | None:
    if value is None:
        return None
    if not isinstance(value, str):
        report.add((*path, "pattern"), f"a pattern is a text, not {value!r}")
        return None
    try:
        return Linear(value)
    except BadPattern as error:
        report.add((*path, "pattern"), f"the pattern cannot be used: {error}", "it has to match in linear time")
        return None


_SLOT: Final = re.compile(r"\{\{\s*\.?([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


class Template:
    """`pieces` are texts and, at odd indexes, names of parameters."""

    __slots__ = ("pieces", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces = tuple(_SLOT.split(text))
        if any("{{" in piece or "}}" in piece for piece in self.pieces[::2]):
            raise ValueError("a template is {{name}}: the name of a parameter in two braces")

    @property
    def names(self) -> tuple[str, ...]:
        return self.pieces[1::2]

    @property
    def literal(self) -> str:
        """The text around the placeholders."""
        return "".join(self.pieces[::2])

    @property
    def lone(self) -> str | None:
        """The name, if the template is one placeholder and nothing else."""
        return self.pieces[1] if len(self.pieces) == 3 and not self.literal else None

    @property
    def begins_with_value(self) -> bool:
        return len(self.pieces) > 1 and not self.pieces[0]

    def fill(self, values: Mapping[str, Any], form: Callable[[str], str] = str) -> str | None:
        """Return the text, each value through `form`; None where a value is missing: then the whole text is left
        out."""
        parts: list[str] = []
        for index, piece in enumerate(self.pieces):
            if index % 2 == 0:
                parts.append(piece)
            elif values.get(piece) is None:
                return None
            else:
                parts.append(form(as_text(values[piece])))
        return "".join(parts)


def as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()  # true, 3, 1.5; lists and mappings as JSON


_LEFT_OUT: Final = object()


def bind(shape: Any, values: Mapping[str, Any]) -> Any:
    """Fill in the Templates of a structure. One that is only a placeholder becomes the value itself, with its type. A
    key or an item whose value is missing is left out."""
    bound = _bind(shape, values)
    return None if bound is _LEFT_OUT else bound


def _bind(shape: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(shape, Template):
        if shape.lone is not None:
            value = values.get(shape.lone)
            return _LEFT_OUT if value is None else value
        text = shape.fill(values)
        return _LEFT_OUT if text is None else text
    if isinstance(shape, dict):
        bound = {key: _bind(item, values) for key, item in shape.items()}
        return {key: item for key, item in bound.items() if item is not _LEFT_OUT}
    if isinstance(shape, list):
        return [item for item in (_bind(item, values) for item in shape) if item is not _LEFT_OUT]
    return shape


# ---------------------------------------------------------------- environment
# The environment of YAML tools, given by the program that loads them and never by a file: workspace, sandbox,
# network.

_PROVIDER_KEYS = frozenset(name for usual in USUAL.values() for name in usual.key)


@dataclass(frozen=True, slots=True)
class ToolEnvironment:
    """What every tool of a source gets. `secrets`: variables that headers may name (None: any but the keys of model
    providers); `inside`: hosts of this network (`host:port`) that may be reached although they are not public."""

    workspace: Workspace
    sandbox: Sandbox = field(default_factory=Sandbox)
    secrets: Collection[str] | None = None
    inside: Collection[str] = ()
    env: Mapping[str, str] | None = None
    lookup: Lookup = system_lookup
    dial: Dial | None = None

    def may_use(self, variable: str) -> bool:
        return variable not in _PROVIDER_KEYS if self.secrets is None else variable in self.secrets


class DeclaredTool(NamedTuple):
    """An implementation as a file has it, where it stands, and what it is read with."""

    given: dict[str, Any]
    path: Path
    params: Params
    report: Report
    environment: ToolEnvironment
    timeout_s: float
    needs: list[Capability]


class ToolKind(Protocol):
    """One implementation of a tool."""

    @property
    def idempotent(self) -> bool: ...

    @property
    def untrusted(self) -> bool: ...

    @property
    def rights(self) -> tuple[Capability, ...]:
        """All capabilities that any call may need, except for those to the workspace and to run commands."""

    def needs_of(self, values: Mapping[str, Any]) -> list[Capability]: ...

    async def run(self, values: Mapping[str, Any]) -> str: ...


def select_needs(needs: list[Capability], verb: str) -> list[Capability]:
    """Return the capabilities of one verb in a file's `needs`."""
    return [need for need in needs if need.name == verb]


def narrow_grant(own: Grant) -> Grant:
    """Return the Grant of a call: what the tool's file names, narrowed by the Grant of the process that calls."""
    held = rights.get()
    return own if held is None else held.narrow(own)


def template(value: Any, path: Path, params: Params, report: Report, what: str) -> Template | None:
    """Return a text of the file as a Template, if each placeholder names a parameter."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        report.add(path, f"{what} is a text, not {value!r}")
        return None
    try:
        parsed = Template(value if isinstance(value, str) else str(value))
    except ValueError as error:
        report.add(path, f"{what}: {error}")
        return None
    unknown = [name for name in dict.fromkeys(parsed.names) if name not in params]
    for name in unknown:
        near = did_you_mean(name, params.names)
        hint = f"did you mean {near!r}?" if near else f"params has: {', '.join(params.names) or 'none'}"
        report.add(path, f"{what} names the parameter {name!r}, which is not declared", hint)
    return None if unknown else parsed
