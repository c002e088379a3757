"""A source of tools: something whose tools may change while agents have them, such as a folder of YAML files.

Whatever has `__lyra_tools__()` is one: it gives its Tools as they are now, quickly and without raising. An Agent asks
at the start of each message and keeps the answer until that message is answered. `part_of` narrows a source to some of
its tools and puts layers around them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from lyra.core.tool import Tool
from lyra.tools.wrapped import Middleware, layered

__all__ = ["ToolSource", "is_source", "part_of"]


@runtime_checkable
class ToolSource(Protocol):
    def __lyra_tools__(self) -> tuple[Tool, ...]: ...


def is_source(value: Any) -> bool:
    return not isinstance(value, type) and isinstance(value, ToolSource)


def part_of(source: ToolSource, fits: Callable[[Tool], bool], layers: Sequence[Middleware]) -> ToolSource:
    """Those of a source's tools that fit, run through the layers."""
    return _Part(source, fits, tuple(layers))


class _Part:
    __slots__ = ("_fits", "_layers", "_made", "_source")

    def __init__(self, source: ToolSource, fits: Callable[[Tool], bool], layers: tuple[Middleware, ...]) -> None:
        self._source = source
        self._fits = fits
        self._layers = layers
        self._made: dict[str, tuple[Tool, Tool]] = {}  # a tool that has not changed is the same object each time

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        wanted = [tool for tool in self._source.__lyra_tools__() if self._fits(tool)]
        made = {tool.name: self._kept(tool) for tool in wanted}
        self._made = made
        return tuple(after for _, after in made.values())

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(getattr(self._source, "problems", ()))

    def _kept(self, tool: Tool) -> tuple[Tool, Tool]:
        before = self._made.get(tool.name)
        return before if before is not None and before[0] is tool else (tool, layered(tool, self._layers))
