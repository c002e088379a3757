"""Calls of imported nodes: each is one Effect of the process that calls.

The door checks the rights that the node needs against the Grant of the process, and the node is executed with that
Grant and no other: a program gains nothing by importing a node. The answer is journaled, so that a replay does not
execute the node again; a call that a crash interrupted is repeated with its key, and the host (`nodes` of the run) goes
on with the execution that began. An error of the node is a Vega error with the node's code as its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.core.effect import Effect
from lyra.core.rights.capability import Capability
from lyra.core.tool import Tool
from lyra.errors import ConfigError, ToolError
from lyra.vega.runtime.convert import from_python, to_python
from lyra.vega.values.values import UNSET, Fault

if TYPE_CHECKING:
    from lyra.core.imported_node import ImportedNode, NodeHost
    from lyra.kernel.programs.context import Context
    from lyra.vega.runtime.agents.environment import AgentEnvironment


_INPUTS_FROM: Final = 5  # where the names of a node's inputs begin in its row


def node_row(world: AgentEnvironment, name: str) -> list[str] | None:
    """The import of a node by the name that calls go by; None for every other name."""
    rows = (row for row in world.linked.program.imports if row[0] == "node" and row[2] == name)
    return next(rows, None)


async def call_node(
    world: AgentEnvironment, ctx: Context, row: list[str], arguments: tuple[Any, ...], where: Callable[[], str]
) -> Any:
    """The outputs of a node as a map; a Fault with the node's code where it answers with an error."""
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
        return [Capability.parse(text) for text in _described(world, row).capabilities]

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


def _described(world: AgentEnvironment, row: list[str]) -> ImportedNode:
    file = _host(world, row).read(row[3], row[4])
    if file.node is None:
        raise ConfigError(f"import node {row[1]!r}: {file.problem}")
    return file.node


def node_tool(world: AgentEnvironment, row: list[str]) -> Tool:
    """A node as a tool of an agent."""
    node = _described(world, row)
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
