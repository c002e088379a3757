"""Vesper nodes behind the server: their evidence for people, and `http_handler` nodes at their own paths.

    def setup(kernel):
        runtime = Runtime(store="nodes.db", nodes=Repository(["nodes"]))
        lyra.server.mount_nodes(kernel, runtime, nodes)

A node's route is looked up after the server's own paths, which it cannot hide, and needs a token like they do. The
runtime is the application's: it is neither opened nor closed here. Its calls block and run in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core.codec import to_plain
from lyra.errors import ConfigError
from lyra.server.http.problems import HttpRefusal

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.http.parts import HttpParts
    from lyra.vesper.nodes import Node
    from lyra.vesper.runtime.runtime import Runtime


_PART: Final = "mounted_nodes"


class MountedNodes:
    """The nodes of one kernel's server."""

    __slots__ = ("entry", "nodes", "runtime")

    def __init__(self, runtime: Runtime, nodes: Iterable[Node]) -> None:
        from lyra.vesper.runtime.entries import HttpEntry

        self.runtime = runtime
        self.nodes = {node.node_id: node for node in nodes}
        self.entry = HttpEntry(runtime, self.nodes.values())

    def get(self, node_id: str) -> Node:
        node = self.nodes.get(node_id)
        if node is None:
            raise HttpRefusal(404, f"no node {node_id[:100]!r}")
        return node

    def has_path(self, path: str) -> bool:
        """Return whether a path is a node's, with any method."""
        return self.entry.has_path(path)

    def routes(self, node_id: str) -> list[str]:
        """Return the routes of a node: METHOD PATH."""
        return [f"{method} {path}" for method, path, name in self.entry.routes() if name == node_id]

    async def close(self) -> None:
        """Called with the kernel; the runtime is the application's."""


def mount_nodes(kernel: Kernel, runtime: Runtime, nodes: Iterable[Node] = ()) -> None:
    """Show these nodes behind the kernel's server, and mount those of type `http_handler`; without `nodes`, those that
    the runtime's store keeps."""
    if _PART in kernel.parts:
        raise ConfigError("nodes are mounted already", hint="mount all of them in one call")
    chosen = list(nodes) or list(runtime.stored_nodes().nodes.values())
    kernel.parts[_PART] = MountedNodes(runtime, chosen)


def get_mounted_nodes(kernel: Kernel) -> MountedNodes | None:
    part: Any = kernel.parts.get(_PART)
    return part if isinstance(part, MountedNodes) else None


# The facts of mounted nodes: a node's evidence in one value, with the step up, the way back, and its past.


class NodeFacts(NamedTuple):
    """A node and what is known about it. `found` are its divergences, `changes` those of its mode; both plain data, the
    newest last."""

    node_id: str
    kind: str
    intent: str
    routes: list[str]
    mode: str
    is_forced: bool
    direct_share: float
    compared: int
    distinct: int  # inputs that were compared, each counted once
    accepted: int  # of them, those past the entry checks
    successes: int  # of them, those with which the node succeeded
    is_complete: bool  # all inputs that the node may accept were compared
    reached: list[str]  # steps, branches and declared errors, in the order of the node
    goals: int  # steps, branches and declared errors that may be reached; 0 before the first search
    unreached: list[str]  # of them
    unreachable: dict[str, str]  # parts that no execution can reach, with the reason
    divergences: int
    is_blocked: bool
    executions: dict[str, int]
    errors: int
    confidence: float  # the lower end, 0 below the minimum of comparisons
    low: float
    high: float
    next_mode: str | None
    lack: str  # why the next mode is not allowed; "" where it is
    rollback_mode: str | None
    needed: float | None  # the confidence that the next mode needs
    timeline: list[tuple[float, int, int]]
    found: list[dict[str, Any]]
    changes: list[dict[str, Any]]

    @property
    def share(self) -> float | None:
        """The share of compared executions that agreed."""
        return (self.compared - self.divergences) / self.compared if self.compared else None


def read_node(mounted: MountedNodes, node_id: str) -> NodeFacts:
    """Return the facts of one node; HttpRefusal where there is none."""
    from lyra.vesper.confidence import interval
    from lyra.vesper.evidence.modes import GATES, MODES, next_step, rollback_mode

    node = mounted.get(node_id)
    evidence = mounted.runtime.evidence(node)
    step = next_step(evidence, mounted.runtime.min_successes)
    low, high = interval(max(evidence.accepted, evidence.divergences), evidence.divergences)
    if evidence.complete and not evidence.divergences:
        low = high = 1.0
    plain = msgspec.to_builtins({"found": evidence.found, "changes": evidence.history}, enc_hook=to_plain)
    return NodeFacts(
        node_id=node_id,
        kind=node.kind,
        intent=str(node.intent),
        routes=mounted.routes(node_id),
        mode=evidence.mode,
        is_forced=evidence.forced,
        direct_share=MODES[evidence.mode].direct_of_10_000 / 10_000,
        compared=evidence.compared,
        distinct=evidence.distinct,
        accepted=evidence.accepted,
        successes=evidence.successes,
        is_complete=evidence.complete,
        reached=[goal for goal in evidence.goals if goal in evidence.reached],
        goals=len([goal for goal in evidence.goals if goal not in evidence.unreachable]),
        unreached=evidence.unreached,
        unreachable=dict(evidence.unreachable),
        divergences=evidence.divergences,
        is_blocked=evidence.blocked,
        executions=dict(evidence.executions),
        errors=evidence.errors,
        confidence=evidence.confidence,
        low=low,
        high=high,
        next_mode=step.mode,
        lack=step.reason,
        rollback_mode=rollback_mode(evidence.mode),
        needed=None if step.mode is None else GATES.get(step.mode),
        timeline=list(evidence.timeline),
        found=plain["found"],
        changes=plain["changes"],
    )


def read_nodes(mounted: MountedNodes) -> list[NodeFacts]:
    return [read_node(mounted, node_id) for node_id in sorted(mounted.nodes)]


# Events of mounted nodes in the server's own feed: changes of mode, divergences, counted executions.

_KINDS: Final = ("vesper.mode", "vesper.diverged", "vesper.compared")
_TOLD: Final = ("node", "mode", "to", "why", "compared")  # fields of a row that hold no input


class NodeNews:
    """See the module. One for each server: `call.parts.get_shared(NodeNews)`."""

    def __init__(self, parts: HttpParts) -> None:
        self._kernel: Kernel = parts.kernel
        self._is_open = False

    async def open(self) -> None:
        """Begin to pass events on; a second call changes nothing."""
        mounted = get_mounted_nodes(self._kernel)
        if self._is_open or mounted is None:
            return
        self._is_open = True
        loop = asyncio.get_running_loop()

        def on_event(event: Any) -> None:
            data = {name: event.data[name] for name in _TOLD if name in event.data}
            try:
                loop.call_soon_threadsafe(self._publish, event.kind, data)
            except RuntimeError:
                return  # the served kernel's loop is closed; the runtime is the application's and lives on

        await asyncio.to_thread(mounted.runtime.on_event, on_event, _KINDS)

    def _publish(self, kind: str, data: dict[str, Any]) -> None:
        if not self._kernel.stopping:
            self._kernel.publish("", kind, data)
