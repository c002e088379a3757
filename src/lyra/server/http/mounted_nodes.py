"""Vesper nodes behind the server: their evidence for people, and `http_handler` nodes at their own paths.

    def setup(kernel):
        runtime = Runtime(store="nodes.db", nodes=Repository(["nodes"]))
        lyra.server.mount_nodes(kernel, runtime, nodes)

A node's route is looked up after the server's own paths, which it cannot hide, and needs a token like they do. The
runtime is the application's: it is neither opened nor closed here. Its calls block and run in threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from lyra.errors import ConfigError
from lyra.server.http.problems import HttpRefusal

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
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
        """Whether a path is a node's, with any method."""
        return self.entry.has_path(path)

    def routes(self, node_id: str) -> list[str]:
        """The routes of a node: METHOD PATH."""
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


def mounted_nodes(kernel: Kernel) -> MountedNodes | None:
    part: Any = kernel.parts.get(_PART)
    return part if isinstance(part, MountedNodes) else None
