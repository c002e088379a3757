"""A Tool from a typed Python function: its schema from the hints, its description from the docstring.

    @tool
    def weather(city: str, days: int = 1) -> str:
        '''The forecast for a city.

        Args:
            city: its name, in English
            days: how many days ahead
        '''

Arguments that a model sends are checked against the hints and converted before the function sees them. A function may
be sync (it runs off the loop) or async. Parameters that a model must not choose are left out of the schema: `ctx` (the
function is then a part of the agent's program: it acts through it, and is run again on replay) and
`idempotency_key` (the same for every try of one call).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, get_type_hints, overload

import msgspec

from lyra.core.capability import Capability
from lyra.core.tool import Tool
from lyra.errors import ConfigError, ToolError

__all__ = ["Arguments", "tool", "tool_of"]

HIDDEN: Final = frozenset({"ctx", "idempotency_key"})
_HEADING: Final = re.compile(r"^(Args|Arguments|Parameters|Returns?|Raises|Yields|Examples?|Notes?)\s*:\s*$")
_ARG_LINE: Final = re.compile(r"^\s*(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")
_SPHINX_LINE: Final = re.compile(r"^\s*:param\s+(?:[\w\[\], .]+\s+)?(\w+)\s*:\s*(.+)$")


class Arguments:
    """The parameters of one function as a msgspec type: its JSON schema, and the check of what a model sends."""

    __slots__ = ("name", "schema", "type")

    def __init__(self, function: Callable[..., Any], name: str, described: dict[str, str]) -> None:
        self.name = name
        fields = _fields(function, name)
        try:
            self.type = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
            (reference,), parts = msgspec.json.schema_components([self.type])
        except TypeError as error:
            raise ConfigError(
                f"tool {name!r} has a parameter that no model can fill in: {error}",
                hint="use plain types, dataclasses, TypedDicts, enums or msgspec Structs",
            ) from None
        own = parts.pop(reference["$ref"].rpartition("/")[2])
        properties = own.get("properties", {})
        for parameter, text in described.items():
            if parameter in properties:
                properties[parameter] = {**properties[parameter], "description": text}
        self.schema: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "required": own.get("required", []),
            "additionalProperties": False,
        }
        if parts:
            self.schema["$defs"] = parts
            self.schema = _local(self.schema)

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function wants them, or a ToolError that a model can learn from."""
        try:
            read = msgspec.convert(arguments, self.type, strict=False)
        except msgspec.ValidationError as error:
            raise ToolError(f"bad arguments for {self.name}: {error}", tool=self.name) from None
        return {field: getattr(read, field) for field in self.type.__struct_fields__}


@overload
def tool(function: Callable[..., Any], /, **options: Any) -> Tool: ...
@overload
def tool(**options: Any) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a Tool of a function: `@tool` or `@tool(name=…, needs=[…], idempotent=True)`."""
    if function is None:
        return lambda wrapped: _make(wrapped, **options)
    return _make(function, **options)


def tool_of(value: Any) -> Tool:
    """A Tool, whatever was given: one, a function to make one of, or something that knows how to be one."""
    if isinstance(value, Tool):
        return value
    if hasattr(value, "__lyra_tool__"):  # an Agent, say
        made: Tool = value.__lyra_tool__()
        return made
    if callable(value):
        return _make(value)
    raise ConfigError(f"{value!r} is not a tool", hint="give a function, or what @tool made of one")


def _make(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    needs: Any = (),
    needs_of: Callable[[dict[str, Any]], Iterable[Capability]] | None = None,
    idempotent: bool = False,
) -> Tool:
    if not callable(function):
        raise ConfigError(f"a tool is made of a function, not {function!r}")
    own_name = name if name is not None else getattr(function, "__name__", type(function).__name__)
    text, described = _described(inspect.getdoc(function) or "")
    arguments = Arguments(function, own_name, described)
    return Tool(
        name=own_name,
        description=description if description is not None else text,
        schema=arguments.schema,
        needs=tuple(Capability.of(need) for need in ((needs,) if isinstance(needs, str) else needs)),
        needs_of=needs_of,
        idempotent=idempotent,
        run=Checked(function, arguments),
    )


class Checked:
    """A function behind the check of its arguments. `is_async` says whether calling it gives an awaitable."""

    __slots__ = ("arguments", "function", "is_async", "takes")

    def __init__(self, function: Callable[..., Any], arguments: Arguments) -> None:
        self.function = function
        self.arguments = arguments
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 (an object with an async __call__)
        )
        self.takes = frozenset(inspect.signature(function).parameters) & HIDDEN
        if "ctx" in self.takes and not self.is_async:
            raise ConfigError(
                f"tool {arguments.name!r} takes ctx and is not async", hint="ctx belongs to the loop: use `async def`"
            )

    def __call__(self, **arguments: Any) -> Any:
        hidden = {key: arguments.pop(key) for key in tuple(arguments) if key in self.takes}
        return self.function(**self.arguments.read(arguments), **hidden)


def _fields(function: Callable[..., Any], name: str) -> list[tuple[Any, ...]]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - a hint that cannot be looked up: any value will do
        hints = {}
    fields: list[tuple[Any, ...]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in HIDDEN:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigError(
                f"tool {name!r} has the parameter {str(parameter)!r}, which a model cannot name",
                hint="give each parameter a name of its own",
            )
        wanted = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, wanted))
        else:
            fields.append((parameter.name, wanted, _default(parameter.default)))
    return fields


def _default(value: Any) -> Any:
    """Lists and mappings are copied for each call; other values are themselves."""
    return msgspec.field(default_factory=lambda: type(value)(value)) if isinstance(value, (list, dict, set)) else value


def _described(doc: str) -> tuple[str, dict[str, str]]:
    """The description, and what the docstring says of each parameter."""
    text: list[str] = []
    described: dict[str, str] = {}
    section = current = ""
    for line in doc.splitlines():
        sphinx, heading = _SPHINX_LINE.match(line), _HEADING.match(line)
        if sphinx:
            described[sphinx[1]] = sphinx[2].strip()
        elif heading:
            section = heading[1][:3]
        elif section and line.strip() and not line[0].isspace():
            section = ""
            text.append(line)
        elif section in ("Arg", "Par"):
            current = _argument(line, current, described)
        elif not section and not line.lstrip().startswith(":"):
            text.append(line)
    return "\n".join(text).strip(), described


def _argument(line: str, current: str, described: dict[str, str]) -> str:
    found = _ARG_LINE.match(line)
    if found:
        described[found[1].lstrip("*")] = found[2].strip()
        return found[1].lstrip("*")
    if current and line.strip():
        described[current] = f"{described[current]} {line.strip()}"
    return current


def _local(schema: Any) -> Any:
    """References of msgspec's schemas start at the root of this one."""
    if isinstance(schema, dict):
        return {key: _local(value) for key, value in schema.items()}
    return [_local(item) for item in schema] if isinstance(schema, list) else schema
