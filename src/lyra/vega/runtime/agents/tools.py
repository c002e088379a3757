"""A Vega tool as a tool of an agent: a model calls it, and it runs as a process with a Grant of its own.

The schema comes from its parameters. Its process is a fresh fiber with a copy of the main program's variables, so
several calls run at once and none can disturb the program. What it returns is told to the model; what it throws, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lyra.core.rights.capability import Grant
from lyra.core.tool import Tool
from lyra.errors import ConfigError, NoSuchProcess, ToolError
from lyra.kernel.programs.context import Context, OwnContext
from lyra.vega.bytecode.program import Parameter, ToolInfo
from lyra.vega.machine.link import globals_reached
from lyra.vega.machine.snapshot import value_to_data
from lyra.vega.runtime.convert import from_python, to_python
from lyra.vega.runtime.node_calls import node_row, node_tool
from lyra.vega.runtime.output import type_schema
from lyra.vega.syntax.ast import Type
from lyra.vega.values.errors import fault_of
from lyra.vega.values.values import UNSET, Closure, Duration, Fault, Money

if TYPE_CHECKING:
    from lyra.vega.runtime.agents.environment import AgentEnvironment


def tools_of(world: AgentEnvironment, agent: str, settings: Mapping[str, Any]) -> list[Any]:
    """Everything an agent may call: its own tools, those of `tools […]`, and the host's by their names."""
    program = world.linked.program
    own = program.agents.get(agent)
    details = settings.get("tool_settings", {})
    return [
        *(
            _tool(world, info, Closure(info.function), details.get(info.name, {}), settings)
            for info in (own.tools if own is not None else [])
        ),
        *(tool for named in settings.get("tools", ()) for tool in _named_tools(world, named, settings)),
    ]


def _named_tools(world: AgentEnvironment, named: Any, agent: Mapping[str, Any]) -> list[Any]:
    if isinstance(named, Closure):
        shared = {info.function: info for info in world.linked.program.tools.values()}
        info = shared.get(named.function) or _of_function(world, named)
        return [_tool(world, info, named, _shared_settings(world, info), agent)]
    host = world.function(str(named))
    if host is not None:
        return [host]
    row = node_row(world, str(named))
    return [node_tool(world, row)] if row is not None else world.undeclared_tools.find(str(named))


def _of_function(world: AgentEnvironment, closure: Closure) -> ToolInfo:
    """A plain function given as a tool."""
    function = world.linked.program.functions[closure.function]
    return ToolInfo(name=function.name, function=closure.function, parameters=function.parameters)


def _shared_settings(world: AgentEnvironment, info: ToolInfo) -> Mapping[str, Any]:
    from lyra.vega.runtime.rights import settings_of

    return settings_of(world.linked, info.configuration, world.globals) or {}


def _tool(
    world: AgentEnvironment, info: ToolInfo, closure: Closure, settings: Mapping[str, Any], agent: Mapping[str, Any]
) -> Tool:
    run = ToolRun(world, info, closure, world.rights.of_tool(settings, agent))
    description = str(settings.get("description", "")) or info.name.replace("_", " ")
    return Tool(info.name, description, run.schema, run=run, harmless=True)


class ToolRun:
    """Runs one tool; the agent's program hands it its ctx (`takes`)."""

    __slots__ = ("_closure", "_grant", "_info", "_required", "_types", "_world", "schema")

    takes = ("ctx",)
    is_async = True

    def __init__(self, world: AgentEnvironment, info: ToolInfo, closure: Closure, grant: Grant) -> None:
        self._world = world
        self._info = info
        self._closure = closure
        self._grant = grant if world.options.grant is None else world.options.grant.narrow(grant)
        self._types = {parameter.name: _written(parameter) for parameter in info.parameters}
        self._required = [parameter.name for parameter in info.parameters if not parameter.has_default]
        self.schema = {
            "type": "object",
            "properties": {name: type_schema(written) for name, written in self._types.items()},
            "required": self._required,
            "additionalProperties": False,
        }

    def _slots(self) -> list[int] | None:
        """The program's variables that the tool may see: with a journal it gets only these, since the others may have
        moved on when it is run again. A function among them may see any."""
        world = self._world
        assert world.main is not None
        if not world.is_durable:
            return None
        slots = globals_reached(world.linked, self._closure.function)
        seen = value_to_data([world.main.fiber.globals[slot] for slot in slots])
        return None if any(entry[0] == "function" for entry in seen["heap"]) else slots

    async def __call__(self, *, ctx: Context, **arguments: Any) -> Any:
        world = self._world
        try:
            values = self._values(arguments)
        except (Fault, ConfigError) as fault:
            problem = f"bad arguments for {self._info.name}: {getattr(fault, 'text', '') or fault}"
            raise ToolError(problem, tool=self._info.name, reason="invalid_arguments") from None
        if world.record is not None:
            await world.caught_up()
        assert world.main is not None
        seed = world.seed(world.main.fiber, self._closure, values, self._slots(), ctx.own_process)
        # A tool that asks an agent lends it no more than it has.
        child = ctx.spawn(world.programs.process, world.run_id, seed, grant=self._grant)
        try:
            ended = await child.wait()
        except asyncio.CancelledError:  # the call of the tool was cancelled
            if not world.kernel.stopping:
                with suppress(NoSuchProcess):
                    OwnContext(ctx.own_process).stop(child, grace_s=1.0)
            raise
        if ended.error is not None:
            thrown = fault_of(ended.error)
            raise ToolError(f"{thrown.name}: {thrown.text}", tool=self._info.name)
        if ended.reason != "normal":
            raise ToolError(f"{self._info.name} ended: {ended.reason}", tool=self._info.name)
        try:
            return to_python(world.read(ended.result))
        except Fault as fault:
            raise ToolError(f"{fault.name}: {fault.text}", tool=self._info.name) from None

    def _values(self, arguments: Mapping[str, Any]) -> list[Any]:
        """The arguments in order, each of its type; those left out at the end are left out."""
        unknown = [name for name in arguments if name not in self._types]
        if unknown:
            raise Fault("TypeError", f"there is no parameter {unknown[0]!r}")
        missing = [name for name in self._required if name not in arguments]
        if missing:
            raise Fault("TypeError", f"{missing[0]!r} is missing")
        values = [
            _read(arguments[name], written, name) if name in arguments else UNSET
            for name, written in self._types.items()
        ]
        while values and values[-1] is UNSET:
            values.pop()
        return values


def _written(parameter: Parameter) -> Type:
    """The type that a parameter was written with: `str`, `list[int]`."""
    name, _, inner = parameter.type.partition("[")
    parameters = [_written(Parameter("", part.strip())) for part in inner.removesuffix("]").split(",") if part.strip()]
    return Type(at=0, end=0, name=name, parameters=parameters)


_ACCEPTED: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "list": (list,),
    "map": (dict,),
    "duration": (),
    "null": (type(None),),
}


def _read(value: Any, written: Type, name: str) -> Any:
    """What a model sent as the parameter's type; a number in quotes will do for a number."""
    kind = written.name
    if kind == "money":
        return Money.parse(str(value))
    if kind == "duration" and isinstance(value, (int, float)):
        return Duration(int(value * 1_000_000_000))
    if isinstance(value, str) and kind in ("int", "float"):
        try:
            value = int(value) if kind == "int" else float(value)
        except ValueError:
            raise Fault("TypeError", f"{name!r} is {kind}, not {value!r}") from None
    wanted = _ACCEPTED.get(kind)
    if wanted is not None and (not isinstance(value, wanted) or (isinstance(value, bool) and kind != "bool")):
        raise Fault("TypeError", f"{name!r} is {kind}, not {value!r}")
    if written.parameters and kind == "list":
        return [_read(item, written.parameters[0], f"{name}[{index}]") for index, item in enumerate(value)]
    if written.parameters and kind == "map":
        return {key: _read(item, written.parameters[-1], f"{name}.{key}") for key, item in value.items()}
    return from_python(float(value) if kind == "float" else value)
