"""Nodes that are kept in a store, as facts of its journal.

A project may keep its nodes in its store instead of a folder: a server that has no checkout of the files runs them, and
when each version was added can be read in the journal. `StoredNodes` is the durable state, by id; a node is added once
and never changed, another text needs another version. `Repository` finds them like those of folders.
"""

from __future__ import annotations

from typing import Any, ClassVar

from lyra.vesper.nodes import Node, load


class StoredNodes:
    """See the module: the texts of nodes by id."""

    NAME: ClassVar[str] = "vesper-nodes"
    KINDS: ClassVar[frozenset[str]] = frozenset({"vesper.added"})

    __slots__ = ("_nodes", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._nodes: dict[str, Node] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        self.texts[data["node"]] = data["text"]

    def dump(self) -> Any:
        return self.texts

    def load(self, data: Any) -> None:
        self.texts = {str(node_id): str(text) for node_id, text in data.items()}
        self._nodes.clear()

    def nodes(self) -> list[Node]:
        """The nodes themselves; read once."""
        for node_id, text in list(self.texts.items()):  # the kernel's thread may add one
            if node_id not in self._nodes:
                self._nodes[node_id] = load(text)
        return list(self._nodes.values())
