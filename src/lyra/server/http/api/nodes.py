"""Nodes: their mode and evidence, an execution, a promotion; and the routes of `http_handler` nodes."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from lyra.core.codec import to_plain
from lyra.errors import ConfigError, Denied
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestBody
from lyra.server.http.mounted_nodes import MountedNodes, NodeFacts, get_mounted_nodes, read_node, read_nodes
from lyra.server.http.problems import HttpRefusal
from lyra.server.identity import Caller


class NodeView(msgspec.Struct, kw_only=True):
    """A node and what is known about it; `confidence` is the share of agreement that is at least likely, 0 below a
    minimum of comparisons, and `confidence_low` and `confidence_high` are its interval. `direct_share` is the share of
    executions that the direct path answers. `distinct` inputs were compared, of which `accepted` came past the entry
    checks and `successes` succeeded; `complete` says that there are no others. `reached` and `unreached` name steps,
    branches and declared errors, both empty before `vesper verify`; `unreachable` has those that no execution can
    reach, with the reason. `next_mode` is the mode above, `lack` why the evidence does not allow it
    ("" where it does), `rollback_mode` the one that a rollback leads to. `shared` says that mode and evidence are those
    of all shards of a cluster."""

    node_id: str
    kind: str
    intent: str
    routes: list[str]
    mode: str
    forced: bool
    confidence: float
    confidence_low: float
    confidence_high: float
    direct_share: float
    next_mode: str | None
    lack: str
    rollback_mode: str | None
    compared: int
    distinct: int
    accepted: int
    successes: int
    complete: bool
    reached: list[str]
    unreached: list[str]
    unreachable: dict[str, str]
    divergences: int
    blocked: bool
    executions: dict[str, int]
    errors: int
    shared: bool = False


class NodeList(msgspec.Struct):
    nodes: list[NodeView]


class NodeDetail(NodeView, kw_only=True):
    """With its changes of mode and, for the operator, its divergences, the newest last; sensitive values are not
    kept. `timeline` has the time and the executions compared and diverged so far, at some moments of its past."""

    history: list[dict[str, Any]]
    found: list[dict[str, Any]]
    timeline: list[tuple[float, int, int]]


class ExecuteBody(RequestBody):
    inputs: dict[str, Any]


class ExecuteAnswer(msgspec.Struct, kw_only=True):
    status: str
    outputs: dict[str, Any] | None
    error: dict[str, Any] | None
    trace_id: str


class ModeBody(RequestBody):
    """`force` sets a mode against the evidence."""

    mode: str
    force: bool = False


def _require_nodes(call: HttpCall) -> MountedNodes:
    mounted = get_mounted_nodes(call.kernel)
    if mounted is None:
        raise HttpRefusal(404, "this server has no nodes", hint="lyra.server.mount_nodes(kernel, runtime, nodes)")
    return mounted


def _fields(facts: NodeFacts) -> dict[str, Any]:
    return {
        "node_id": facts.node_id,
        "kind": facts.kind,
        "intent": facts.intent,
        "routes": facts.routes,
        "mode": facts.mode,
        "forced": facts.is_forced,
        "confidence": facts.confidence,
        "confidence_low": facts.low,
        "confidence_high": facts.high,
        "direct_share": facts.direct_share,
        "next_mode": facts.next_mode,
        "lack": facts.lack,
        "rollback_mode": facts.rollback_mode,
        "compared": facts.compared,
        "distinct": facts.distinct,
        "accepted": facts.accepted,
        "successes": facts.successes,
        "complete": facts.is_complete,
        "reached": facts.reached,
        "unreached": facts.unreached,
        "unreachable": facts.unreachable,
        "divergences": facts.divergences,
        "blocked": facts.is_blocked,
        "executions": facts.executions,
        "errors": facts.errors,
    }


def _detail(mounted: MountedNodes, node_id: str, caller: Caller) -> NodeDetail:
    facts = read_node(mounted, node_id)
    divergences = facts.found if caller.is_operator else []  # they have the inputs of all users
    shared = mounted.runtime.is_shared
    return NodeDetail(
        **_fields(facts), shared=shared, history=facts.changes, found=divergences, timeline=facts.timeline
    )


def _all(mounted: MountedNodes) -> list[NodeView]:
    return [NodeView(**_fields(facts), shared=mounted.runtime.is_shared) for facts in read_nodes(mounted)]


async def list_nodes(call: HttpCall) -> NodeList:
    mounted = get_mounted_nodes(call.kernel)
    return NodeList([] if mounted is None else await asyncio.to_thread(_all, mounted))


async def get_node(call: HttpCall) -> NodeDetail:
    return await asyncio.to_thread(_detail, _require_nodes(call), call.path["node_id"], call.caller)


async def execute(call: HttpCall) -> ExecuteAnswer:
    mounted = _require_nodes(call)
    node = mounted.get(call.path["node_id"])
    outcome = await asyncio.to_thread(mounted.runtime.execute, node, call.body.inputs)
    failure = outcome.error
    if failure is None:
        outputs = msgspec.to_builtins(outcome.outputs, enc_hook=to_plain)
        return ExecuteAnswer(status="success", outputs=outputs, error=None, trace_id=outcome.trace_id)
    error = {**failure.fields, "code": failure.code, "message": failure.message, "phase": failure.phase}
    plain = msgspec.to_builtins(error, enc_hook=to_plain)
    return ExecuteAnswer(status="error", outputs=None, error=plain, trace_id=outcome.trace_id)


def _require_operator(call: HttpCall) -> None:
    if not call.caller.is_operator:
        raise Denied("the mode of a node is for the operator", hint="use a token that is bound to no user")


async def promote(call: HttpCall) -> NodeDetail:
    _require_operator(call)
    mounted, node_id = _require_nodes(call), call.path["node_id"]
    await asyncio.to_thread(mounted.runtime.promote, mounted.get(node_id))
    return await asyncio.to_thread(_detail, mounted, node_id, call.caller)


async def set_mode(call: HttpCall) -> NodeDetail:
    _require_operator(call)
    mounted, node_id = _require_nodes(call), call.path["node_id"]
    node = mounted.get(node_id)
    await asyncio.to_thread(mounted.runtime.set_mode, node, call.body.mode, force=call.body.force)
    return await asyncio.to_thread(_detail, mounted, node_id, call.caller)


async def roll_back(call: HttpCall) -> NodeDetail:
    _require_operator(call)
    mounted, node_id = _require_nodes(call), call.path["node_id"]
    facts = await asyncio.to_thread(read_node, mounted, node_id)
    if facts.rollback_mode is None:
        raise ConfigError(f"{node_id} is in {facts.mode}, the lowest mode")
    await asyncio.to_thread(mounted.runtime.set_mode, mounted.get(node_id), facts.rollback_mode)
    return await asyncio.to_thread(_detail, mounted, node_id, call.caller)


async def handle_route(call: HttpCall) -> RawAnswer:
    """Execute the node behind its own path."""
    entry = _require_nodes(call).entry
    method, target = call.path["method"], call.path["target"]
    reply = await asyncio.to_thread(entry.handle, method, target, call.headers, call.raw_body)
    headers = {name: value for name, value in reply.headers.items() if name != "content-type"}
    return RawAnswer(reply.body, reply.headers["content-type"], reply.status, headers)


# Not in the table: the paths are those that the nodes declare.
NODE_ROUTE: Final = Endpoint(
    "nodes.route", "*", "*", "A path of an http_handler node", handle_route, query=None, is_work=True
)
_PATH: Final = "/api/nodes/{node_id}"

ENDPOINTS: Final = (
    Endpoint(
        "nodes.list",
        "GET",
        "/api/nodes",
        "The Vesper nodes of this server, with mode and confidence",
        list_nodes,
        answer=NodeList,
    ),
    Endpoint(
        "nodes.get",
        "GET",
        _PATH,
        "One node with its history and divergences",
        get_node,
        answer=NodeDetail,
        statuses=(404,),
    ),
    Endpoint(
        "nodes.execute",
        "POST",
        f"{_PATH}/execute",
        "Execute a node",
        execute,
        body=ExecuteBody,
        answer=ExecuteAnswer,
        is_work=True,
        statuses=(404,),
    ),
    Endpoint(
        "nodes.promote",
        "POST",
        f"{_PATH}/promote",
        "Move a node one mode up, if its evidence allows it; for the operator",
        promote,
        answer=NodeDetail,
        statuses=(404, 409),
    ),
    Endpoint(
        "nodes.rollback",
        "POST",
        f"{_PATH}/rollback",
        "Take a node back to a mode that does not rely on the direct path; for the operator",
        roll_back,
        answer=NodeDetail,
        statuses=(404,),
    ),
    Endpoint(
        "nodes.mode",
        "POST",
        f"{_PATH}/mode",
        "Set the mode of a node; for the operator",
        set_mode,
        body=ModeBody,
        answer=NodeDetail,
        statuses=(404, 409),
    ),
)
