"""A ToolRegistry: tools by name, gathered in one place and handed to agents in parts.

    registry = ToolRegistry([read_page, add])
    registry.register(send_mail)
    Agent("reader", model=…, tools=registry.filter("read_*"))

Holds Tools and nothing else. An Agent takes what is in it when the Agent is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, overload

from lyra.core.check import did_you_mean
from lyra.core.tool import Tool
from lyra.errors import ConfigError
from lyra.tools.function import tool, tool_of

__all__ = ["ToolRegistry"]


class ToolRegistry:
    """Iterating gives the Tools in the order they were registered."""

    __slots__ = ("_tools",)

    def __init__(self, tools: Iterable[Any] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for each in tools:
            self.register(each)

    @overload
    def register(self, function: Any, /, *, replace: bool = False, **options: Any) -> Tool: ...
    @overload
    def register(self, /, *, replace: bool = False, **options: Any) -> Callable[[Any], Tool]: ...
    def register(self, function: Any = None, /, *, replace: bool = False, **options: Any) -> Any:
        """Add a Tool, or make one of a function (`options` are `tool`'s); also as a decorator."""
        if function is None:
            return lambda wrapped: self.register(wrapped, replace=replace, **options)
        made = tool(function, **options) if options else tool_of(function)
        if made.name in self._tools and not replace:
            raise ConfigError(
                f"there is a tool {made.name!r} already", hint="say replace=True, or give it a name", key=made.name
            )
        self._tools[made.name] = made
        return made

    def unregister(self, name: str) -> Tool:
        """Take a tool out; gives it."""
        found = self[name]
        del self._tools[name]
        return found

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def __getitem__(self, name: str) -> Tool:
        found = self._tools.get(name)
        if found is None:
            near = did_you_mean(name, self._tools)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(self._tools) or 'none'}"
            raise ConfigError(f"there is no tool {name!r}", hint=hint, key=name)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def filter(self, *wanted: str | Callable[[Tool], bool], without: Iterable[str] = ()) -> ToolRegistry:
        """Those that fit one of `wanted` (a name, a pattern such as `read_*`, or a function) and none of `without`."""
        left_out = (without,) if isinstance(without, str) else tuple(without)
        return ToolRegistry(
            each
            for each in self
            if (not wanted or any(_fits(each, rule) for rule in wanted))
            and not any(_fits(each, rule) for rule in left_out)
        )

    def schemas(self) -> list[dict[str, Any]]:
        """What a model is told of them."""
        return [{"name": each.name, "description": each.description, "schema": each.schema} for each in self]

    def __iter__(self) -> Iterator[Tool]:
        return iter(tuple(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"<ToolRegistry {', '.join(self._tools)}>"


def _fits(each: Tool, rule: str | Callable[[Tool], bool]) -> bool:
    return fnmatchcase(each.name, rule) if isinstance(rule, str) else bool(rule(each))
