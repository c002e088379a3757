"""A ToolRegistry: tools by name, gathered in one place, with what goes around them, handed to agents in parts.

    registry = ToolRegistry([read_page, add], middleware=[logging(), timeout(20)])
    registry.register(send_mail)
    Agent("reader", model=…, tools=registry.filter("read_*"))
    result = await registry.call("add", {"a": 1, "b": 2})

Holds Tools, sources of tools (`lyra.tools.source`) and the middleware around them all, the first one outermost. An
Agent takes what is in it when the Agent is made, and of a source what is there at each message. `call` needs no agent:
it asks nobody for permission, keeps to `grant` where one is given, and turns every failure into a ToolResult with its
code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import Any, Final, overload

from lyra.core.checking.check import did_you_mean
from lyra.core.rights.capability import Grant
from lyra.core.tool import Tool, ToolCall, ToolResult, error_code, rights
from lyra.errors import ConfigError, LyraError, ToolError
from lyra.tools.calling import calling, invoke
from lyra.tools.concurrency import Turns
from lyra.tools.function import tool, tool_of
from lyra.tools.source import ToolSource, is_source, part_of
from lyra.tools.tool_search import searchable
from lyra.tools.wrapped import Middleware, check_middleware, layered

__all__ = ["ToolRegistry"]

# The registries whose calls are under way around this one: a tool that calls another waits for nobody's turn.
_inside: Final[ContextVar[tuple[ToolRegistry, ...]]] = ContextVar("lyra_registries", default=())


class ToolRegistry:
    """Iterating gives the Tools in the order they were registered, those of sources last, with their middleware."""

    __slots__ = ("_layers", "_made", "_sources", "_tools", "_turns")

    def __init__(self, tools: Iterable[Any] = (), *, middleware: Iterable[Middleware] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._sources: list[ToolSource] = []
        self._layers: tuple[Middleware, ...] = tuple(check_middleware(each) for each in middleware)
        self._made: dict[str, Tool] = {}
        self._turns = Turns()
        if is_source(tools):
            tools = (tools,)
        for each in tools:
            if is_source(each):
                self._sources.append(each)
            else:
                self.register(each)

    # ------------------------------------------------------------ what is in it
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
        self._made.pop(made.name, None)
        return made

    def unregister(self, name: str) -> Tool:
        """Take a tool out; gives it. One of a source leaves with its source."""
        if name not in self._tools and self.get(name) is not None:
            raise ConfigError(f"tool {name!r} belongs to a source", hint="use filter(without=…)", key=name)
        found = self[name]
        del self._tools[name]
        self._made.pop(name, None)
        return found

    def use(self, middleware: Middleware) -> Middleware:
        """Put one more layer around every tool, inside of those there are; also as a decorator. Agents that were made
        before keep the layers they had."""
        self._layers = (*self._layers, check_middleware(middleware))
        self._made.clear()
        return middleware

    def filter(self, *wanted: str | Callable[[Tool], bool], without: Iterable[str] = ()) -> ToolRegistry:
        """Those that fit one of `wanted` (a name, a pattern such as `read_*`, or a function) and none of `without`."""
        left_out = (without,) if isinstance(without, str) else tuple(without)

        def fits(each: Tool) -> bool:
            wants = not wanted or any(_fits(each, rule) for rule in wanted)
            return wants and not any(_fits(each, rule) for rule in left_out)

        made = ToolRegistry((each for each in self._tools.values() if fits(each)), middleware=self._layers)
        made._sources = [part_of(source, fits, ()) for source in self._sources]
        return made

    def parts(self) -> tuple[Tool | ToolSource, ...]:
        """What an Agent takes: the tools, and the sources that it asks again at each message."""
        sources = (part_of(source, lambda _: True, self._layers) for source in self._sources)
        return (*(self._layered(each) for each in self._tools.values()), *sources)

    def _layered(self, each: Tool) -> Tool:
        found = self._made.get(each.name)
        if found is None:
            found = self._made[each.name] = layered(each, self._layers)
        return found

    def _current(self) -> dict[str, Tool]:
        """All of them now. A tool of a source does not take the place of one that was registered."""
        found = {name: self._layered(each) for name, each in self._tools.items()}
        for source in self._sources:
            for each in source.__lyra_tools__():
                found.setdefault(each.name, layered(each, self._layers))
        return found

    # ------------------------------------------------------------ looking one up
    def get(self, name: str) -> Tool | None:
        found = self._tools.get(name)
        if found is not None:
            return self._layered(found)
        return self._current().get(name) if self._sources else None

    def __getitem__(self, name: str) -> Tool:
        found = self.get(name)
        if found is None:
            names = self.names
            near = did_you_mean(name, names)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(names) or 'none'}"
            raise ConfigError(f"there is no tool {name!r}", hint=hint, key=name)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._current())

    def schemas(self) -> list[dict[str, Any]]:
        """What a model is told of them."""
        return [{"name": each.name, "description": each.description, "schema": each.schema} for each in self]

    # ------------------------------------------------------------ calling one
    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, call_id: str = "", grant: Grant | None = None
    ) -> ToolResult:
        """Run a tool. A failure is a result that says so (`is_error`, `error_code`); only a cancellation of the caller
        is raised."""
        try:
            found = self[name]
            call = ToolCall(call_id, name, dict(arguments or {}))
        except (ConfigError, TypeError, ValueError) as error:
            code = "not_found" if isinstance(error, ConfigError) and error.fields.get("key") == name else None
            shown = name if _is_name(name) else "unknown"
            return ToolResult(call_id, shown, _sentence(error), True, code or "invalid_arguments")
        try:
            output = await self._run(found, call, grant)
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; it is told as the result
            return ToolResult(call_id, name, _sentence(error), True, error_code(error))
        return ToolResult(call_id, name, output)

    async def _run(self, found: Tool, call: ToolCall, grant: Grant | None) -> Any:
        if "ctx" in getattr(found.run, "takes", ()):
            raise ToolError(
                f"tool {found.name} is part of an agent's program: it takes ctx", reason="invalid_arguments"
            )
        if grant is not None:
            for need in (*found.needs, *(found.needs_of(call.arguments) if found.needs_of is not None else ())):
                grant.check(need)
        around = _inside.get()
        nested = self in around
        inside, made, right = _inside.set((*around, self)), calling.set(call), rights.set(grant or rights.get())
        search = searchable.set(lambda: [each for each in self if each.deferred])
        try:
            async with self._turns.of(None if nested else found):
                return await _in_time(found, call)
        finally:
            _inside.reset(inside)
            calling.reset(made)
            rights.reset(right)
            searchable.reset(search)

    # ------------------------------------------------------------ being a collection
    def __iter__(self) -> Iterator[Tool]:
        return iter(tuple(self._current().values()))

    def __len__(self) -> int:
        return len(self._current())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __repr__(self) -> str:
        return f"<ToolRegistry {', '.join(self.names)}>"


async def _in_time(found: Tool, call: ToolCall) -> Any:
    try:
        async with asyncio.timeout(found.timeout_s) as scope:
            return await invoke(found, _arguments(found, call))
    except TimeoutError:
        if not scope.expired():
            raise
        said = f"tool {found.name} took longer than {found.timeout_s:g} s"
        raise ToolError(said, tool=found.name, reason="timeout") from None


def _arguments(found: Tool, call: ToolCall) -> dict[str, Any]:
    if "idempotency_key" in getattr(found.run, "takes", ()):
        return {**call.arguments, "idempotency_key": call.id}
    return call.arguments


def _is_name(name: Any) -> bool:
    try:
        ToolCall("", name)
    except ConfigError:
        return False
    return True


def _sentence(error: Exception) -> str:
    if isinstance(error, LyraError):
        return f"{error.message}. {error.hint}" if error.hint else error.message
    return f"{type(error).__name__}: {error}"


def _fits(each: Tool, rule: str | Callable[[Tool], bool]) -> bool:
    return fnmatchcase(each.name, rule) if isinstance(rule, str) else bool(rule(each))
