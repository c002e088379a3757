"""A Tool from a typed Python function: its schema from the hints, its description from the docstring.

    @tool
    def weather(city: str, days: int = 1) -> str:
        '''The forecast for a city.

        Args:
            city: its name, in English
            days: how many days ahead
        '''

Arguments that a model sends are checked against the hints and converted before the function sees them. A function may
be sync (it runs off the loop) or async, and a method, whose tool is then taken from an object. Parameters that a model
must not choose are left out of the schema: `ctx` (the function is then a part of the agent's program: it acts through
it, and is run again on replay) and `idempotency_key` (the same for every try of one call).
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, Protocol, TypedDict, TypeVar, overload
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import astuple

from lyra.core.checking.check import check_keys
from lyra.core.hints import resolve_hint
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import FunctionTool, Tool
from lyra.errors import CapabilityDenied, ConfigError, ToolError
from lyra.tools.pydantic_types import Adapted, read_foreign, schema_of, with_constraints

if TYPE_CHECKING:
    from typing import Unpack


P = ParamSpec("P")
T = TypeVar("T")

HIDDEN: Final = frozenset({"ctx", "idempotency_key"})
# Options that are passed to the Tool unchanged.
_OPTIONS: Final = (
    *("untrusted", "guarded", "concurrency", "deferred", "timeout_s", "harmless", "folders", "trusted", "polling"),
)
_OWNERS: Final = ("self", "cls")
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
            reference, parts = schema_of(self.type)
        except (TypeError, NotImplementedError):
            raise ConfigError(
                f"tool {name!r} has a parameter that no model can fill in{_culprit(fields)}",
                hint="use plain types, dataclasses, TypedDicts, enums, pydantic models or msgspec Structs; "
                "a union has at most one of them",
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
        """Return the arguments converted to the function's types; a ToolError that a model can act on if they do not
        fit."""
        try:
            read = msgspec.convert(arguments, self.type, strict=False, dec_hook=read_foreign)
        except msgspec.ValidationError as error:
            message = f"bad arguments for {self.name}: {error}"
            raise ToolError(message, tool=self.name, reason="invalid_arguments") from None
        values = zip(self.type.__struct_fields__, astuple(read), strict=True)
        return {field: value.value if isinstance(value, Adapted) else value for field, value in values}


class _Options(TypedDict, total=False):
    """The types of the options of `tool`."""

    name: str | None
    description: str | None
    needs: str | Capability | Iterable[str | Capability]
    needs_of: Callable[[dict[str, Any]], Iterable[Capability]] | None
    idempotent: bool
    untrusted: bool
    guarded: bool
    concurrency: str | int
    deferred: bool
    timeout_s: float | None
    harmless: bool
    folders: tuple[str, ...]
    trusted: bool
    polling: bool
    check: Callable[..., object] | None
    allowed_paths: list[str] | tuple[str, ...]
    allowed_commands: list[str] | tuple[str, ...]
    allowed_hosts: list[str] | tuple[str, ...]


class _Making(Protocol):
    """The decorator that `tool(…)` with options gives."""

    def __call__(self, function: Callable[P, T], /) -> FunctionTool[P, T]: ...


@overload
def tool(function: Callable[P, T], /, **options: Unpack[_Options]) -> FunctionTool[P, T]: ...
@overload
def tool(**options: Unpack[_Options]) -> _Making: ...
def tool(function: Any = None, /, **options: Any) -> Any:
    """Make a Tool of a function: `@tool` or `@tool(name=…, needs=[…], idempotent=True)`; the options are Tool's."""
    if function is None:
        return lambda wrapped: _make(wrapped, **options)
    return _make(function, **options)


def tool_of(value: Any) -> Tool:
    """Return a Tool from a Tool, a function, or an object with `__lyra_tool__` (an Agent)."""
    result: Tool
    if isinstance(value, Tool):
        result = value
    elif hasattr(value, "__lyra_tool__") and not isinstance(value, type):  # an Agent, say
        result = value.__lyra_tool__()
    elif callable(value) and not hasattr(value, "__lyra_tool__"):
        result = _make(value)
    else:
        raise ConfigError(f"{value!r} is not a tool", hint="give a function, or what @tool made of one")
    if getattr(result.run, "is_method", False):
        raise ConfigError(
            f"tool {result.name!r} is a method without its object",
            hint=f"give the object's own: tools=[thing.{result.name}]",
            key="tools",
        )
    return result


def _make(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    needs: Any = (),
    needs_of: Callable[[dict[str, Any]], Iterable[Capability]] | None = None,
    idempotent: bool = False,
    check: Callable[..., object] | None = None,
    **options: Any,
) -> Tool:
    if not callable(function):
        raise ConfigError(f"a tool is made of a function, not {function!r}")
    own_name = name if name is not None else getattr(function, "__name__", type(function).__name__)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"tool {own_name!r} is a generator; a tool gives one value", hint="return a list, or one text", key="tools"
        )
    check_keys(options, (*_OPTIONS, *BOUNDS), f"tool {own_name!r}")
    if options.get("timeout_s") is not None and "ctx" in inspect.signature(function).parameters:
        raise ConfigError(
            f"tool {own_name!r} takes ctx, so timeout_s is not allowed; set time-outs on its effects",
            hint="the effects and agents that it calls have a timeout_s each",
            key="timeout_s",
        )
    text, described = _parse_docstring(inspect.getdoc(function) or "")
    arguments = Arguments(function, own_name, described)
    needs = (needs,) if isinstance(needs, str) else tuple(needs)
    lists = {key: options.pop(key) for key in BOUNDS if key in options}
    if lists:
        needs, needs_of = compile_needs(needs, _defaults(function, arguments), lists, needs_of)
    return FunctionTool(
        name=own_name,
        description=description if description is not None else text,
        schema=arguments.schema,
        needs=tuple(Capability.of(need) for need in needs),
        needs_of=needs_of,
        idempotent=idempotent,
        run=(run := CheckedFunction(function, arguments, check)),
        check=run.check,
        **options,
    )


class CheckedFunction:
    """A function whose arguments are checked first. `is_async`: calling it gives an awaitable; `is_method`: it has to
    be `bound` to an object."""

    __slots__ = ("_more", "arguments", "function", "is_async", "is_method", "takes")

    def __init__(
        self, function: Callable[..., Any], arguments: Arguments, more: Callable[..., object] | None = None
    ) -> None:
        self._more = more  # what else is checked of a call before a person is asked
        self.function = function
        self.arguments = arguments
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 (an object with an async __call__)
        )
        self.is_method = _is_method(function)
        self.takes = frozenset(inspect.signature(function).parameters) & HIDDEN
        if "ctx" in self.takes and not self.is_async:
            raise ConfigError(
                f"tool {arguments.name!r} takes ctx and is not async", hint="ctx belongs to the loop: use `async def`"
            )

    def bind(self, owner: Any) -> CheckedFunction:
        """Return the method bound to its object; a plain function is returned unchanged."""
        return CheckedFunction(self.function.__get__(owner), self.arguments, self._more) if self.is_method else self

    def check(self, **arguments: Any) -> None:
        """Raise the ToolError of a call that cannot work; it is not run."""
        values = self.arguments.read({key: value for key, value in arguments.items() if key not in self.takes})
        if self._more is not None:
            self._more(**values)

    def __call__(self, **arguments: Any) -> Any:
        if not self.takes:
            return self.function(**self.arguments.read(arguments))
        hidden = {key: arguments.pop(key) for key in tuple(arguments) if key in self.takes}
        return self.function(**self.arguments.read(arguments), **hidden)


def _is_method(function: Callable[..., Any]) -> bool:
    """Return whether it is defined in a class and not bound to an object yet."""
    if not inspect.isfunction(function):
        return False
    first = next(iter(inspect.signature(function).parameters), "")
    within = function.__qualname__.rpartition(".")[0]
    return first in _OWNERS and bool(within) and not within.endswith("<locals>")


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """Return the parameters that a model fills in."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise ConfigError(
            f"tool {name!r} does not say what it takes", hint="wrap it in a function with typed parameters"
        ) from None
    return [parameter for parameter in parameters[_is_method(function) :] if parameter.name not in HIDDEN]


def _hint(function: Callable[..., Any], parameter: inspect.Parameter, name: str) -> Any:
    """Return the type of a parameter. One that cannot be looked up is refused: arguments would pass unchecked."""
    if parameter.annotation is parameter.empty:
        return Any
    try:
        return resolve_hint(function, parameter.annotation)
    except Exception:  # noqa: BLE001 - a hint may be any text
        raise ConfigError(
            f"tool {name!r} has the parameter {parameter.name!r} of type {parameter.annotation!r}, "
            "which cannot be looked up",
            hint="define the type in the module, or import it there outside of `if TYPE_CHECKING`",
            key="tools",
        ) from None


def _culprit(fields: list[tuple[Any, ...]]) -> str:
    """Return the parameter that has no schema, for an error message."""
    for name, wanted, *_ in fields:
        try:
            schema_of(wanted)
        except (TypeError, NotImplementedError):
            return f": {name} is {getattr(wanted, '__name__', wanted)}"
    return ""


def _fields(function: Callable[..., Any], name: str) -> list[tuple[Any, ...]]:
    fields: list[tuple[Any, ...]] = []
    for parameter in _parameters(function, name):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigError(
                f"tool {name!r} has the parameter {str(parameter)!r}, which a model cannot name",
                hint="give each parameter a name of its own",
            )
        wanted = with_constraints(_hint(function, parameter, name))
        if parameter.default is parameter.empty:
            fields.append((parameter.name, wanted))
        else:
            fields.append((parameter.name, wanted, _default(parameter.default)))
    return fields


def _defaults(function: Callable[..., Any], arguments: Arguments) -> dict[str, Any]:
    """Return the default of each parameter that a model fills in; None where there is none."""
    known = inspect.signature(function).parameters
    given = {name: known[name].default for name in arguments.type.__struct_fields__}
    return {name: None if value is inspect.Parameter.empty else value for name, value in given.items()}


def _default(value: Any) -> Any:
    """Return the default of a field: lists and mappings are copied for each call."""
    return msgspec.field(default_factory=lambda: type(value)(value)) if isinstance(value, (list, dict, set)) else value


def _parse_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Return the description, and what the docstring says of each parameter."""
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
    match = _ARG_LINE.match(line)
    if match:
        described[match[1].lstrip("*")] = match[2].strip()
        return match[1].lstrip("*")
    if current and line.strip():
        described[current] = f"{described[current]} {line.strip()}"
    return current


def _local(schema: Any) -> Any:
    """References of msgspec's schemas start at the root of this one."""
    if isinstance(schema, dict):
        return {key: _local(value) for key, value in schema.items()}
    return [_local(item) for item in schema] if isinstance(schema, list) else schema


# Bounds that a tool declares for itself: `allowed_paths`, `allowed_commands`, `allowed_hosts` beside what it needs.

NeedsOf = Callable[[dict[str, Any]], Iterable[Capability]]

BOUNDS: Final = {"allowed_paths": "path", "allowed_commands": "command", "allowed_hosts": "host"}
_NAMES: Final[dict[str, frozenset[str]]] = {
    "path": frozenset({"path", "paths", "file", "files", "folder", "directory", "filename"}),
    "command": frozenset({"command", "commands", "cmd"}),
    "host": frozenset({"url", "urls", "host", "hosts"}),
}
_ENDINGS: Final = {"path": ("_path", "_paths", "_file", "_folder"), "command": ("_command",), "host": ("_url", "_host")}


class _Bound(NamedTuple):
    """One right, the part of it that the tool allows itself, and the parameters that name the resource of a call."""

    name: str
    kind: str
    allowed: Grant
    parameters: Mapping[str, Any]  # with the default of each

    def needs(self, arguments: dict[str, Any]) -> list[Capability]:
        needs = [
            need
            for name, default in self.parameters.items()
            for need in self._check_needs(arguments.get(name, default))
        ]
        return needs or [need for layer in self.allowed.layers for need in layer]

    def _check_needs(self, value: Any) -> Iterable[Capability]:
        for text in value if isinstance(value, (list, tuple, set, frozenset)) else (value,):
            if text is None:
                continue
            need = _exact(self.name, self.kind, text)
            self.allowed.check(need)
            yield need


def compile_needs(
    needs: Sequence[Any], parameters: Mapping[str, Any], lists: dict[str, Any], needs_of: NeedsOf | None
) -> tuple[list[Capability], NeedsOf | None]:
    """Return the rights that a tool with these bounds always needs, and a function for those of one call. `parameters`
    maps names to defaults."""
    scopes = {BOUNDS[key]: _scopes(key, value) for key, value in lists.items()}
    always: list[Capability] = []
    bounds: list[_Bound] = []
    for need in needs:
        base = Capability.of(need)
        allowed = scopes.get(base.kind)
        if allowed is None:
            always.append(base)
            continue
        capabilities = [Capability(base.name, scope) for scope in allowed]
        carried = {
            name: default
            for name, default in parameters.items()
            if name in _NAMES[base.kind] or name.endswith(_ENDINGS[base.kind])
        }
        if base.scope != "**":
            raise ConfigError(f"{str(base)!r} already names a scope", hint="leave the scope out or drop the list")
        if carried:
            bounds.append(_Bound(base.name, base.kind, Grant(capabilities), carried))
        else:
            always += capabilities
    unused = set(scopes) - {Capability.of(need).kind for need in needs}
    if unused:
        word = next(key for key, kind in BOUNDS.items() if kind in unused)
        raise ConfigError(f"{word} bounds a right that the tool does not need", hint="name it in needs", key=word)
    if not bounds:
        return always, needs_of

    def find_needs(arguments: dict[str, Any]) -> list[Capability]:
        needs_of_call = [need for bound in bounds for need in bound.needs(arguments)]
        return needs_of_call if needs_of is None else [*needs_of_call, *needs_of(arguments)]

    return always, find_needs


def _scopes(key: str, value: Any) -> list[str]:
    if (
        isinstance(value, str)
        or not isinstance(value, (list, tuple))
        or not all(isinstance(scope, str) for scope in value)
    ):
        raise ConfigError(f"{key} is a list of texts, not {value!r}", key=key)
    return list(value)


def _exact(name: str, kind: str, value: Any) -> Capability:
    """Return the right to the resource that one argument names; an ambiguous value is refused."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        raise CapabilityDenied(f"{value!r} names nothing that could be allowed", capability=name)
    if kind == "path":
        return Capability(name, os.path.realpath(os.path.expanduser(text)))
    if kind == "host" and "://" in text:
        try:
            parts = urlsplit(text)
            text = f"{parts.hostname or ''}:{parts.port}" if parts.port else parts.hostname or ""
        except ValueError:
            text = ""
        if not text:
            raise CapabilityDenied(f"{value!r} names no host", capability=name)
    return Capability(name, text)
