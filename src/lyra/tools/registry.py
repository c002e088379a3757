"""A ToolRegistry: tools by name with their middleware; agents get all of them or a part.

    registry = ToolRegistry([read_page, add], middleware=[logging(), timeout(20)])
    registry.register(send_mail)
    Agent("reader", model=…, tools=registry.filter("read_*"))
    result = await registry.call("add", {"a": 1, "b": 2})

Holds Tools, sources of tools (`lyra.tools.source`) and the middleware around them all, the first one outermost. An
Agent takes what is in it when the Agent is made, and of a source what is there at each message. `call` needs no agent:
no permission rules apply, a given `grant` is checked, and every failure becomes a ToolResult with its code.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, overload

from lyra.core.checking.check import did_you_mean
from lyra.core.ids import unique_id
from lyra.core.rights.capability import Grant
from lyra.core.tool import Tool, ToolCall, ToolResult, error_code, rights
from lyra.errors import ConfigError, LyraError, ToolError
from lyra.tools.function import tool, tool_of
from lyra.tools.source import ToolSource, is_source, part_of
from lyra.tools.tool_search import searchable
from lyra.tools.wrapped import Middleware, add_layers, calling, check_middleware, invoke

if TYPE_CHECKING:
    from asyncio import Future

# The registries whose calls are running around this one: a nested call does not wait for a turn, to avoid deadlock.
_inside: Final[ContextVar[tuple[ToolRegistry, ...]]] = ContextVar("lyra_registries", default=())


class ToolRegistry:
    """Iterating gives the Tools in the order they were registered, those of sources last, with their middleware."""

    __slots__ = ("_layers", "_sources", "_tools", "_turns", "_wrapped")

    def __init__(self, tools: Iterable[Any] = (), *, middleware: Iterable[Middleware] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._sources: list[ToolSource] = []
        self._layers: tuple[Middleware, ...] = tuple(check_middleware(item) for item in middleware)
        self._wrapped: dict[str, Tool] = {}
        self._turns = Turns()
        if is_source(tools):
            tools = (tools,)
        for item in tools:
            if is_source(item):
                self._sources.append(item)
            else:
                self.register(item)

    # ------------------------------------------------------------ what is in it
    @overload
    def register(self, function: Any, /, *, replace: bool = False, **options: Any) -> Tool: ...
    @overload
    def register(self, /, *, replace: bool = False, **options: Any) -> Callable[[Any], Tool]: ...
    def register(self, function: Any = None, /, *, replace: bool = False, **options: Any) -> Any:
        """Add a Tool, or make one of a function (`options` are `tool`'s); also as a decorator."""
        if function is None:
            return lambda wrapped: self.register(wrapped, replace=replace, **options)
        new = tool(function, **options) if options else tool_of(function)
        if new.name in self._tools and not replace:
            raise ConfigError(
                f"there is a tool {new.name!r} already", hint="say replace=True, or give it a name", key=new.name
            )
        self._tools[new.name] = new
        self._wrapped.pop(new.name, None)
        return new

    def unregister(self, name: str) -> Tool:
        """Remove a tool and return it. A tool of a source cannot be removed by itself."""
        if name not in self._tools and self.get(name) is not None:
            raise ConfigError(f"tool {name!r} belongs to a source", hint="use filter(without=…)", key=name)
        removed = self[name]
        del self._tools[name]
        self._wrapped.pop(name, None)
        return removed

    def use(self, middleware: Middleware) -> Middleware:
        """Put one more layer around every tool, inside of those there are; also as a decorator. Agents that were made
        before keep the layers they had."""
        self._layers = (*self._layers, check_middleware(middleware))
        self._wrapped.clear()
        return middleware

    def filter(self, *wanted: str | Callable[[Tool], bool], without: Iterable[str] = ()) -> ToolRegistry:
        """Return a registry of the tools that match one of `wanted` (a name, a pattern such as `read_*`, or a function)
        and none of `without`."""
        left_out = (without,) if isinstance(without, str) else tuple(without)

        def fits(candidate: Tool) -> bool:
            wants = not wanted or any(_fits(candidate, rule) for rule in wanted)
            return wants and not any(_fits(candidate, rule) for rule in left_out)

        registry = ToolRegistry(
            (candidate for candidate in self._tools.values() if fits(candidate)), middleware=self._layers
        )
        registry._sources = [part_of(source, fits, ()) for source in self._sources]
        return registry

    def parts(self) -> tuple[Tool | ToolSource, ...]:
        """Return what an Agent uses: the tools, and the sources that it reads at each message."""
        sources = (part_of(source, lambda _: True, self._layers) for source in self._sources)
        return (*(self._add_layers(registered) for registered in self._tools.values()), *sources)

    def _add_layers(self, registered: Tool) -> Tool:
        wrapped = self._wrapped.get(registered.name)
        if wrapped is None:
            wrapped = self._wrapped[registered.name] = add_layers(registered, self._layers)
        return wrapped

    def _current(self) -> dict[str, Tool]:
        """Return the current tools by name. A registered tool goes before one of a source with the same name."""
        current = {name: self._add_layers(known) for name, known in self._tools.items()}
        for source in self._sources:
            for known in source.__lyra_tools__():
                current.setdefault(known.name, add_layers(known, self._layers))
        return current

    # ------------------------------------------------------------ looking one up
    def get(self, name: str) -> Tool | None:
        registered = self._tools.get(name)
        if registered is not None:
            return self._add_layers(registered)
        return self._current().get(name) if self._sources else None

    def __getitem__(self, name: str) -> Tool:
        known = self.get(name)
        if known is None:
            names = self.names
            near = did_you_mean(name, names)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(names) or 'none'}"
            raise ConfigError(f"there is no tool {name!r}", hint=hint, key=name)
        return known

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._current())

    def schemas(self) -> list[dict[str, Any]]:
        """Name, description and schema of each tool, as a model sees them."""
        return [{"name": known.name, "description": known.description, "schema": known.schema} for known in self]

    # ------------------------------------------------------------ calling one
    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, call_id: str = "", grant: Grant | None = None
    ) -> ToolResult:
        """Run a tool. A failure is a result that says so (`is_error`, `error_code`); only a cancellation of the caller
        is raised. `grant` bounds what the tool may do, and need not name the tool itself; without one the tool's own
        `allowed_paths`, `allowed_commands` and `allowed_hosts` hold."""
        try:
            known = self[name]
            call = ToolCall(call_id, name, dict(arguments or {}))
        except (ConfigError, TypeError, ValueError) as error:
            code = "not_found" if isinstance(error, ConfigError) and error.fields.get("key") == name else None
            shown = name if _is_name(name) else "unknown"
            return ToolResult(call_id, shown, _sentence(error), True, code or "invalid_arguments")
        try:
            output = await self._run(known, call, grant)
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; the error becomes the result
            return ToolResult(call_id, name, _sentence(error), True, error_code(error))
        return ToolResult(call_id, name, output)

    async def _run(self, known: Tool, call: ToolCall, grant: Grant | None) -> Any:
        if "ctx" in getattr(known.run, "takes", ()):
            raise ToolError(
                f"tool {known.name} is part of an agent's program: it takes ctx", reason="invalid_arguments"
            )
        own = [*known.needs, *(known.needs_of(call.arguments) if known.needs_of is not None else ())]
        if grant is not None:  # the caller itself calls the tool: of `tool.use` only a deny counts
            grant.check_any("tool.use", (known.name,), implied=True)
            for need in own:
                grant.check(need)
        around = _inside.get()
        nested = self in around
        inside, current_call, right = _inside.set((*around, self)), calling.set(call), rights.set(grant or rights.get())
        search = searchable.set(lambda: [candidate for candidate in self if candidate.deferred])
        try:
            async with self._turns.take_turn(None if nested else known):
                try:
                    from asyncio import timeout

                    async with timeout(known.timeout_s) as scope:
                        return await invoke(known, _arguments(known, call))
                except TimeoutError:
                    if not scope.expired():
                        raise
                    message = f"tool {known.name} took longer than {known.timeout_s:g} s"
                    raise ToolError(message, tool=known.name, reason="timeout") from None
        finally:
            _inside.reset(inside)
            calling.reset(current_call)
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


def _arguments(tool: Tool, call: ToolCall) -> dict[str, Any]:
    if "idempotency_key" in getattr(tool.run, "takes", ()):
        # Without its own id each call is another one: a service must not take it for a repetition.
        return {**call.arguments, "idempotency_key": call.id or unique_id()}
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


def _fits(candidate: Tool, rule: str | Callable[[Tool], bool]) -> bool:
    return fnmatchcase(candidate.name, rule) if isinstance(rule, str) else bool(rule(candidate))


# Which calls may run beside each other: the concurrency of tools, kept for one group of calls.


class Turns:
    """`async with turns.take_turn(tool): …`; at most `limit` calls at once, where one is given."""

    __slots__ = ("_alone", "_limit", "_of_tool", "_running", "_waiting")

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._running = 0
        self._alone = False  # an exclusive call is running
        self._of_tool: dict[str, int] = {}
        self._waiting: list[tuple[Tool, Future[None]]] = []

    @asynccontextmanager
    async def take_turn(self, tool: Tool | None) -> AsyncIterator[None]:
        """Wait for the turn of a call of `tool`; None is a call that runs nothing and does not wait."""
        if tool is None:
            yield
            return
        await self._enter(tool)
        try:
            yield
        finally:
            self._leave(tool)

    async def _enter(self, tool: Tool) -> None:
        if not any(_is_exclusive(other) for other, _ in self._waiting) and self._may(tool):
            self._begin(tool)
            return
        from asyncio import get_running_loop

        turn = get_running_loop().create_future()
        self._waiting.append((tool, turn))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # its turn came, but the call never began
                self._leave(tool)
            else:
                self._waiting = [entry for entry in self._waiting if entry[1] is not turn]
                self._admit()
            raise

    def _may(self, tool: Tool) -> bool:
        if self._alone or (self._limit is not None and self._running >= self._limit):
            return False
        if _is_exclusive(tool):
            return self._running == 0
        most = 1 if tool.concurrency == "sequential" else tool.concurrency
        return not isinstance(most, int) or self._of_tool.get(tool.name, 0) < most

    def _begin(self, tool: Tool) -> None:
        self._running += 1
        self._alone = _is_exclusive(tool)
        self._of_tool[tool.name] = self._of_tool.get(tool.name, 0) + 1

    def _leave(self, tool: Tool) -> None:
        self._running -= 1
        self._alone = False
        left = self._of_tool[tool.name] - 1
        if left:
            self._of_tool[tool.name] = left
        else:
            del self._of_tool[tool.name]
        self._admit()

    def _admit(self) -> None:
        """Start the waiting calls that may begin now, in their order, up to the first exclusive one."""
        still: list[tuple[Tool, Future[None]]] = []
        blocked = False
        for waiting, turn in self._waiting:
            if turn.done():  # cancelled; its task has not run yet
                continue
            if not blocked and self._may(waiting):
                self._begin(waiting)
                turn.set_result(None)
                continue
            blocked = blocked or _is_exclusive(waiting)
            still.append((waiting, turn))
        self._waiting = still


def _is_exclusive(tool: Tool) -> bool:
    return tool.concurrency == "exclusive"
