"""A source of tools: an object whose tools may change while agents use them, such as a folder of YAML files.

Any object with `__lyra_tools__()` is one: the method returns the current Tools, quickly and without raising. An Agent
calls it at the start of each message and keeps the tools until that message is answered. `part_of` narrows a source to
some of its tools and puts layers around them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from lyra.core.tool import Tool
from lyra.tools.wrapped import Middleware, add_layers


@runtime_checkable
class ToolSource(Protocol):
    def __lyra_tools__(self) -> tuple[Tool, ...]: ...


def is_source(value: Any) -> bool:
    return not isinstance(value, type) and isinstance(value, ToolSource)


def part_of(source: ToolSource, fits: Callable[[Tool], bool], layers: Sequence[Middleware]) -> ToolSource:
    """Return a source with the tools for which `fits` is true, each wrapped in the layers."""
    return _PartialSource(source, fits, tuple(layers))


class _PartialSource:
    __slots__ = ("_fits", "_layers", "_source", "_wrapped")

    def __init__(self, source: ToolSource, fits: Callable[[Tool], bool], layers: tuple[Middleware, ...]) -> None:
        self._source = source
        self._fits = fits
        self._layers = layers
        self._wrapped: dict[str, tuple[Tool, Tool]] = {}  # a tool that has not changed is the same object each time

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        wanted = [tool for tool in self._source.__lyra_tools__() if self._fits(tool)]
        wrapped = {tool.name: self._wrap(tool) for tool in wanted}
        self._wrapped = wrapped
        return tuple(after for _, after in wrapped.values())

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(getattr(self._source, "problems", ()))

    def _wrap(self, tool: Tool) -> tuple[Tool, Tool]:
        before = self._wrapped.get(tool.name)
        return before if before is not None and before[0] is tool else (tool, add_layers(tool, self._layers))
