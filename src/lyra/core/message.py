"""A Message: one turn of a conversation with a model.

Owns the neutral form that every provider's wire format is made from and read into: a role, text or parts,
the tool calls an assistant asks for and the results a tool gives back, and a trust label. Never talks to a
provider: `models` does. Messages between processes are plain values and need no class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lyra.core.checking.check import check_keys, one_of
from lyra.core.tool import ToolCall, ToolResult
from lyra.errors import ConfigError

ROLES: Final = ("system", "user", "assistant", "tool")
TRUST: Final = ("trusted", "untrusted")  # untrusted: text from files, the web, other agents


class Message(msgspec.Struct, frozen=True):
    """`content` is text, or a list of parts (mappings with a `type`, such as text or image)."""

    role: str
    content: str | tuple[dict[str, Any], ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    trust: str = "trusted"

    def __post_init__(self) -> None:
        if self.role not in ROLES or self.trust not in TRUST:
            one_of(self.role, ROLES, "role")
            one_of(self.trust, TRUST, "trust")
        if type(self.content) is not str and not isinstance(self.content, str):
            content: Any = self.content
            if not isinstance(content, (list, tuple)):
                raise ConfigError(f"content is text or a list of parts, not {type(content).__name__}", key="content")
            for part in content:
                if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
                    raise ConfigError("a part of a message is a mapping with a 'type'", key="content")
            msgspec.structs.force_setattr(self, "content", tuple(dict(part) for part in content))
        if self.tool_calls == () == self.tool_results:  # most messages: nothing more to check
            return
        for name, kind, role in _OWNERS:
            values = tuple(getattr(self, name))
            if values and self.role != role:
                raise ConfigError(f"only a message of role {role!r} has {name}, not {self.role!r}", key=name)
            for value in values:
                if not isinstance(value, kind):
                    raise ConfigError(f"{name} holds {kind.__name__} values", key=name)
            msgspec.structs.force_setattr(self, name, values)

    @property
    def text(self) -> str:
        """The text of the message, parts that are not text left out."""
        if isinstance(self.content, str):
            return self.content
        return "".join(str(part.get("text", "")) for part in self.content if part["type"] == "text")

    def to_data(self) -> dict[str, Any]:
        content = self.content if isinstance(self.content, str) else [dict(part) for part in self.content]
        data: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_calls:
            data["tool_calls"] = [call.to_data() for call in self.tool_calls]
        if self.tool_results:
            data["tool_results"] = [result.to_data() for result in self.tool_results]
        if self.trust != "trusted":
            data["trust"] = self.trust
        return data

    @classmethod
    def from_data(cls, data: Any) -> Message:
        if not isinstance(data, Mapping):
            raise ConfigError(f"a message is a mapping with a role and content, not {data!r}")
        check_keys(data, cls.__struct_fields__, "a message")
        if "role" not in data:
            raise ConfigError("a message has a role", key="role")
        return cls(
            data["role"],
            data.get("content", ""),
            tuple(ToolCall.from_data(call) for call in _list(data, "tool_calls")),
            tuple(ToolResult.from_data(result) for result in _list(data, "tool_results")),
            data.get("trust", "trusted"),
        )


_OWNERS: Final = (("tool_calls", ToolCall, "assistant"), ("tool_results", ToolResult, "tool"))


def _list(data: Mapping[str, Any], key: str) -> list[Any] | tuple[Any, ...]:
    values = data.get(key, ())
    if not isinstance(values, (list, tuple)):
        raise ConfigError(f"{key} is a list", key=key)
    return values
