"""A Tool: a name, a schema, the Capabilities it needs, and the function that runs it.

Owns the declaration, and the two values that travel between a model and a tool: `ToolCall` (please run
this) and `ToolResult` (this came out). Whether a call is allowed is the kernel's door's to say, and where
tools are kept the registry's; nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from lyra.core.capability import Capability
from lyra.core.check import known_keys, short_text
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import ConfigError

__all__ = ["Tool", "ToolCall", "ToolResult", "caller", "check_tool_name"]

# The process whose call a tool is running; empty outside of any.
caller: Final[ContextVar[str]] = ContextVar("lyra_caller", default="")

_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_NAME: Final = _LETTERS | frozenset("0123456789_-")


def check_tool_name(name: Any) -> str:
    """A letter or `_`, then letters, digits, `_` and `-`: what every model provider accepts."""
    text = short_text(name, "a tool's name", most=NAME_LENGTH_MAX)
    if not text or text[0] not in _LETTERS | {"_"} or not _NAME.issuperset(text):
        raise ConfigError(
            f"{text!r} is not a tool's name",
            hint="start with a letter; use letters, digits, '_' and '-'",
            key="name",
        )
    return text


class Tool(msgspec.Struct, frozen=True):
    """`schema` is a JSON schema of the arguments (an object); `run` takes them as keywords."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    needs: tuple[Capability, ...] = ()
    idempotent: bool = False
    run: Callable[..., Any] | None = None
    needs_of: Callable[[dict[str, Any]], Iterable[Capability]] | None = None  # what one call needs besides

    def __post_init__(self) -> None:
        put = msgspec.structs.force_setattr
        check_tool_name(self.name)
        schema: object = self.schema or {"type": "object", "properties": {}}
        if not isinstance(schema, Mapping) or schema.get("type") != "object":
            raise ConfigError(f"the schema of tool {self.name!r} describes an object", key="schema")
        if self.run is not None and not callable(self.run):
            raise ConfigError(f"tool {self.name!r} is run by a function", key="run")
        put(self, "schema", dict(schema))
        put(self, "needs", tuple(Capability.of(need) for need in self.needs))

    def __get__(self, owner: Any, kind: Any = None) -> Tool:
        """In a class it is a method: an object's tool runs with that object."""
        bound = getattr(self.run, "bound", None)
        if owner is None or bound is None:
            return self
        run = bound(owner)
        return self if run is self.run else msgspec.structs.replace(self, run=run)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calling it is calling the function it was made of: for tests, and for code outside any agent."""
        if self.run is None:
            raise ConfigError(f"tool {self.name!r} has nothing to run", key="run")
        return getattr(self.run, "function", self.run)(*args, **kwargs)


class ToolCall(msgspec.Struct, frozen=True):
    """A model asks for a tool to be run; `id` ties the result to it."""

    id: str
    name: str
    arguments: dict[str, Any] = {}

    def __post_init__(self) -> None:
        short_text(self.id, "a tool call's id", most=NAME_LENGTH_MAX)
        check_tool_name(self.name)
        arguments: object = self.arguments
        if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
            raise ConfigError(f"the arguments of {self.name!r} are a mapping of names to values", key="arguments")

    def to_data(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "arguments": dict(self.arguments)}

    @classmethod
    def from_data(cls, data: Any) -> ToolCall:
        return cls(**_fields(data, cls, "a tool call"))


class ToolResult(msgspec.Struct, frozen=True):
    """What came out of a tool; an error is told to the model, which may do better next time."""

    id: str
    name: str
    output: Any = None
    is_error: bool = False

    def __post_init__(self) -> None:
        short_text(self.id, "a tool result's id", most=NAME_LENGTH_MAX)
        check_tool_name(self.name)
        if not isinstance(self.is_error, bool):
            raise ConfigError(f"is_error is true or false, not {self.is_error!r}", key="is_error")

    def to_data(self) -> dict[str, Any]:
        data = {"id": self.id, "name": self.name, "output": self.output}
        return {**data, "is_error": True} if self.is_error else data

    @classmethod
    def from_data(cls, data: Any) -> ToolResult:
        return cls(**_fields(data, cls, "a tool result"))


def _fields(data: Any, cls: type[msgspec.Struct], what: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ConfigError(f"{what} is a mapping, not {data!r}")
    known_keys(data, cls.__struct_fields__, what)
    for name in ("id", "name"):
        if name not in data:
            raise ConfigError(f"{what} has a {name!r}", key=name)
    return dict(data)
