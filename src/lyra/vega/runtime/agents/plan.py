"""What the declaration of an agent becomes: the lyra Agent made from its settings, and what Vega adds.

Vega adds memory, concurrency, a time-out and a budget for each call. A World makes one AgentPlan for equal settings, so
that all processes of the agent share concurrency, rate limits and circuit breaker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.agents.agent import Agent
from lyra.core.budgets.money import Money
from lyra.core.effect import Effect
from lyra.core.policies.policy import CircuitBreaker, RateLimit, Retry
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import Tool
from lyra.errors import ConfigError, NoSuchProcess, ToolError
from lyra.kernel.process.replay import upcoming
from lyra.kernel.programs.context import Context, OwnContext
from lyra.kernel.programs.registry import program_of
from lyra.models.settings import Timeouts
from lyra.vega.bytecode.program import Parameter, ToolInfo
from lyra.vega.machine.link import globals_reached
from lyra.vega.machine.snapshot import value_from_data, value_to_data
from lyra.vega.runtime.agents.undeclared_tools import AgentEnvironment, is_undeclared
from lyra.vega.runtime.convert import (
    backoff,
    from_python,
    read_type_text,
    schema_of_type,
    seconds,
    to_python,
    type_schema,
)
from lyra.vega.syntax.ast import Type
from lyra.vega.values.values import UNSET, Closure, Duration, Fault, fault_of

if TYPE_CHECKING:
    from lyra.core.imported_node import ImportedNode, NodeHost
    from lyra.kernel.process.process import Process


class AgentPlan:
    __slots__ = (
        "agent",
        "budget",
        "concurrency",
        "keeps",
        "name",
        "older",
        "output",
        "priority",
        "program",
        "timeout_s",
        "try_timeout_s",
        "turns",
    )

    def __init__(self, world: AgentEnvironment, name: str, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.older: dict[str, AgentPlan] = {}  # before its settings changed, by the names of their calls
        memory = settings.get("memory", "none")
        self.keeps = memory != "none"
        self.concurrency: int | None = settings.get("concurrency")
        self.turns = None if self.concurrency is None else asyncio.Semaphore(self.concurrency)
        self.priority: str | None = settings.get("priority")
        self.budget: Money | None = settings.get("budget")
        # The time of a call with all its tries; where `retry` names `timeout`, that of each try instead.
        timeout_s = seconds(settings["timeout"], "timeout") if "timeout" in settings else None
        is_for_tries = "timeout" in settings.get("retry", {}).get("on", ())
        self.timeout_s: float | None = None if is_for_tries else timeout_s
        self.try_timeout_s: float | None = timeout_s if is_for_tries else None
        self.output = read_type_text(settings["output"]) if "output" in settings else None
        options = _options(world, name, settings, memory)
        if self.try_timeout_s is not None:
            options["timeouts"] = Timeouts(first_s=None, idle_s=None, total_s=self.try_timeout_s)
        self.agent = Agent(name, **options)
        # Held here: `name_plan` gives the program its own name, and an unused program is made anew without it.
        self.program = program_of(self.agent)


def _options(world: AgentEnvironment, name: str, settings: Mapping[str, Any], memory: Any) -> dict[str, Any]:
    """Return the settings as lyra's Agent takes them."""
    models = models_of(world, settings)
    if not models and name in world.mocks:
        models = ["sim/echo"]  # it will not be asked
    if not models:
        raise ConfigError(f"agent {name} has no model", hint=f'say `model "…"` in agent {name}, or run with --model')
    model, *fallback = models
    for model_name in models:
        world.runtime.settings.need(model_name)  # from here on its keys are known, and kept out of what it is asked
    options: dict[str, Any] = {
        "model": model,
        "fallback": fallback,
        "system": str(settings.get("system", "")),
        "tools": [] if name in world.mocks else tools_of(world, name, settings),
    }
    if any(is_undeclared(tool) for tool in options["tools"]):
        options["permissions"] = world.undeclared_tools.permissions(options["tools"])
    for plain in ("temperature", "max_tokens", "min_tokens", "fit_budget"):
        if plain in settings:
            options[plain] = settings[plain]
    if "retry" in settings:
        options["retry"] = _retry(settings["retry"])
    if "circuit_breaker" in settings:
        breaker: dict[str, Any] = dict(settings["circuit_breaker"])
        breaker |= {name: value.seconds for name, value in breaker.items() if type(value) is Duration}
        options["circuit_breaker"] = CircuitBreaker(per="call", **breaker)
    if "rate_limit" in settings:
        options["rate_limit"] = RateLimit(**settings["rate_limit"])
    if "output" in settings:
        options["output"] = schema_of_type(settings["output"])
    if isinstance(memory, list):  # window(n): so many messages, of which the last is the user's
        options["context"] = {"kind": "sliding", "turns": (int(memory[1]) + 1) // 2}
    return options


def models_of(world: AgentEnvironment, settings: Mapping[str, Any]) -> list[Any]:
    """Return the model of an agent, and those that it falls back to."""
    models = settings.get("model") if world.options.model is None else world.options.model
    return models if isinstance(models, list) else [models] if models else []


def _retry(settings: Mapping[str, Any]) -> Retry:
    options: dict[str, Any] = {"max_attempts": settings.get("max_attempts", 3)}
    if "backoff" in settings:
        options["backoff"] = backoff(settings["backoff"])
    if "on" in settings:
        options["on"] = tuple(settings["on"])
    return Retry(**options)


# ---------------- A Vega tool as a tool of an agent: a model calls it, and it runs as a process with its own Grant
# Its process is a fresh fiber with a copy of the main program's variables, so several calls run at once and none can
# disturb the program.


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
        *(tool for named in settings.get("tools", ()) for tool in _make_tools(world, named, settings)),
    ]


def _make_tools(world: AgentEnvironment, named: Any, agent: Mapping[str, Any]) -> list[Any]:
    if isinstance(named, Closure):
        shared = {info.function: info for info in world.linked.program.tools.values()}
        function = world.linked.program.functions[named.function]
        plain = ToolInfo(name=function.name, function=named.function, parameters=function.parameters)
        info = shared.get(named.function) or plain
        from lyra.vega.runtime.rights import settings_of

        return [_tool(world, info, named, settings_of(world.linked, info.configuration, world.globals) or {}, agent)]
    host = world.function(str(named))
    if host is not None:
        return [host]
    row = node_row(world, str(named))
    return [node_tool(world, row)] if row is not None else world.undeclared_tools.find(str(named))


def _tool(
    world: AgentEnvironment, info: ToolInfo, closure: Closure, settings: Mapping[str, Any], agent: Mapping[str, Any]
) -> Tool:
    run = ToolRun(world, info, closure, world.rights.grant_for_tool(settings, agent))
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
        self._types = {parameter.name: _parse_type(parameter) for parameter in info.parameters}
        self._required = [parameter.name for parameter in info.parameters if not parameter.has_default]
        self.schema = {
            "type": "object",
            "properties": {name: type_schema(written) for name, written in self._types.items()},
            "required": self._required,
            "additionalProperties": False,
        }

    def _slots(self) -> list[int] | None:
        """Return the program's variables that the tool may see: with a journal it gets only these, since the others may
        have moved on when it is run again. A function among them may see any."""
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
            await world.wait_until_caught_up()
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
        """Return the arguments in order, each of its type; those left out at the end are left out."""
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


def _parse_type(parameter: Parameter) -> Type:
    """Return the type that a parameter was written with: `str`, `list[int]`."""
    name, _, inner = parameter.type.partition("[")
    parameters = [
        _parse_type(Parameter("", part.strip())) for part in inner.removesuffix("]").split(",") if part.strip()
    ]
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
    """Read what a model sent as the parameter's type; a number in quotes will do for a number."""
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


# ---------------- Calls of imported nodes: each is one Effect of the process that calls
# The door checks what the node needs against the Grant of the process: a program gains nothing by importing a node. The
# answer is journaled; a call that a crash interrupted is repeated with its key, and the host continues with the
# execution that began.

_INPUTS_FROM: Final = 5  # where the names of a node's inputs begin in its row


def node_row(world: AgentEnvironment, name: str) -> list[str] | None:
    """Return the import of a node by the name that calls go by; None for every other name."""
    rows = (row for row in world.linked.program.imports if row[0] == "node" and row[2] == name)
    return next(rows, None)


async def call_node(
    world: AgentEnvironment, ctx: Context, row: list[str], arguments: tuple[Any, ...], where: Callable[[], str]
) -> Any:
    """Return the outputs of a node as a map; a Fault with the node's code where it answers with an error."""
    names = row[_INPUTS_FROM:]
    given = zip(names, arguments, strict=False)
    inputs = {name: to_python(value) for name, value in given if value is not UNSET}
    if len(arguments) > len(names) and len(row) > _INPUTS_FROM - 1:
        raise Fault("TypeError", f"{row[2]} takes {len(names)} arguments, got {len(arguments)}")
    return from_python(await perform(world, ctx, row, inputs, where))


async def perform(
    world: AgentEnvironment, ctx: Context, row: list[str], inputs: Mapping[str, Any], where: Callable[[], str]
) -> Any:
    """Execute a node through the door."""
    name, runtime = row[2], world.runtime

    async def vega_node(inputs: Mapping[str, Any], *, idempotency_key: str) -> list[Any]:
        host = _host(world, row)
        answer = await host.call(row[3], row[4], inputs, key=idempotency_key, grant=ctx.grant)
        return list(runtime.keys.without_key(list(answer), f"what {name} gave"))

    def needs(inputs: Mapping[str, Any]) -> list[Capability]:
        runtime.keys.check_no_key(inputs, f"an input of {name}")
        return [Capability.parse(text) for text in _read_node(world, row).capabilities]

    def about(_: Any) -> str:
        return f"node {name} ({where()})"

    effect = Effect(vega_node, name=f"vega.node.{name}", needs=needs, idempotent=True, about=about)
    outputs, code, message = await ctx.do(effect, dict(inputs))
    if code:
        raise Fault(code, message or code)
    return outputs


def _host(world: AgentEnvironment, row: list[str]) -> NodeHost:
    nodes = world.options.nodes
    if nodes is None:
        raise ConfigError(
            f"the program imports the node {row[1]!r}, and this host executes none",
            hint="`vega run` does; from Python: vega.run(…, nodes=ImportableNodes())",
        )
    if len(row) < _INPUTS_FROM:
        raise ConfigError(f"import node {row[1]!r}: the program was compiled without it", hint="compile it again")
    return nodes


def _read_node(world: AgentEnvironment, row: list[str]) -> ImportedNode:
    file = _host(world, row).read(row[3], row[4])
    if file.node is None:
        raise ConfigError(f"import node {row[1]!r}: {file.problem}")
    return file.node


def node_tool(world: AgentEnvironment, row: list[str]) -> Tool:
    """Return a node as a tool of an agent."""
    node = _read_node(world, row)
    return Tool(
        row[2],
        node.intent,
        dict(node.schema),
        needs=tuple(Capability.parse(text) for text in node.capabilities),
        run=_NodeTool(world, row),
        harmless=node.is_pure,
    )


class _NodeTool:
    """Executes a node for a model; the agent's program hands it its ctx (`takes`)."""

    __slots__ = ("_row", "_world")

    takes = ("ctx",)
    is_async = True

    def __init__(self, world: AgentEnvironment, row: list[str]) -> None:
        self._world = world
        self._row = row

    async def __call__(self, *, ctx: Context, **arguments: Any) -> Any:
        try:
            return await perform(self._world, ctx, self._row, arguments, lambda: "a tool call")
        except Fault as fault:
            raise ToolError(f"{fault.name}: {fault.text}", tool=self._row[2], node_code=fault.name) from None


# ---------------- Settings that a migration changed: calls that were made keep theirs, calls to come have the new ones
# The newest plan of an agent knows the older ones by the names that their calls have in the journal: `agent:NAME` at
# first, `agent:NAME~1` after the first change. A replay takes the plan that the call was made with.

# What decides how a call is made and nothing else: the outcome of the calls before is in the journal.
HARMLESS: Final = (
    *("model", "system", "temperature", "max_tokens", "min_tokens", "fit_budget", "timeout", "budget", "priority"),
    *("retry", "rate_limit", "circuit_breaker"),
)


class SettingChange(NamedTuple):
    """Settings of one agent as they were and as they are; one that is absent was, or is, not said."""

    agent: str
    old: dict[str, Any]
    new: dict[str, Any]

    def to_data(self) -> list[Any]:
        return [self.agent, value_to_data(self.old), value_to_data(self.new)]

    @classmethod
    def from_data(cls, data: list[Any]) -> SettingChange:
        agent, old, new = data
        return cls(str(agent), value_from_data(old), value_from_data(new))

    @property
    def keys(self) -> list[str]:
        return sorted({*self.old, *self.new})

    def apply(self, settings: dict[str, Any]) -> dict[str, Any]:
        return _replace(settings, self.old, self.new)

    def revert(self, settings: dict[str, Any]) -> dict[str, Any]:
        return _replace(settings, self.new, self.old)


def _replace(settings: dict[str, Any], was: Mapping[str, Any], becomes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with one part in place of another; as they are where they do not have that part."""
    keys = {*was, *becomes}
    if any(_part(settings, key) != _part(was, key) for key in keys):
        return settings
    kept = {key: becomes.get(key, value) for key, value in settings.items() if key not in keys or key in becomes}
    return {**kept, **becomes}


def _part(settings: Mapping[str, Any], key: str) -> Any:
    return repr(value_to_data(settings[key])) if key in settings else None


def is_alike(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Return whether two settings are the same, in whatever order they were said."""
    return left.keys() == right.keys() and all(_part(left, key) == _part(right, key) for key in left)


def difference(agent: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> SettingChange:
    keys = [key for key in {**old, **new} if _part(old, key) != _part(new, key)]
    return SettingChange(
        agent, {key: old[key] for key in keys if key in old}, {key: new[key] for key in keys if key in new}
    )


class SettingVersions:
    """All changes of settings in a run, in order."""

    __slots__ = ("_by_agent",)

    def __init__(self, setting_changes: Iterable[SettingChange] = ()) -> None:
        self._by_agent: dict[str, list[SettingChange]] = {}
        for setting_change in setting_changes:
            self._by_agent.setdefault(setting_change.agent, []).append(setting_change)

    def __contains__(self, agent: str) -> bool:
        return agent in self._by_agent

    def versions(self, agent: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
        """Return an agent's settings before each change and after the last, oldest first, from those of any version."""
        setting_changes = self._by_agent.get(agent, [])
        for setting_change in setting_changes:
            settings = setting_change.apply(settings)
        versions = [settings]
        for setting_change in reversed(setting_changes):
            versions.append(setting_change.revert(versions[-1]))
        return versions[::-1]


def name_plan(plan: AgentPlan, version: int) -> None:
    """Calls with the settings of a later version go by their own name."""
    if version:
        plan.program.__qualname__ = f"{plan.name}~{version}"


def plan_of_call(process: Process, plan: AgentPlan) -> AgentPlan:
    """Return the plan for the call that a process comes to: of one in its journal, the plan that it was made with."""
    entry = upcoming(process) if plan.older else None
    return plan if entry is None or entry.kind != "spawn" else plan.older.get(entry.name, plan)
