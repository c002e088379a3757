"""What a node needs: other nodes, and rights.

A node depends on the nodes that its `call_node` steps name and on those of `metadata.dependencies`. `dependencies_of`
follows them through a repository and reports those that are not there and those that lead back to where they came
from. `capabilities_of` is the registry of rights: which node needs what.
"""

from __future__ import annotations

import msgspec

from lyra.vesper.check.judge import lowered
from lyra.vesper.nodes import Node
from lyra.vesper.repository.folders import Repository
from lyra.vesper.values.names import is_node_id


class Dependency(msgspec.Struct, frozen=True):
    """A node that another one needs."""

    node: str  # the id of the node that needs it
    needs: str  # as it is written
    target: str | None  # the id it stands for; None: not known
    called: bool  # by a step; else only declared


class Dependencies(msgspec.Struct, frozen=True):
    """All that a node needs, its own needs first."""

    node: str
    direct: tuple[Dependency, ...]
    all: tuple[Dependency, ...]
    missing: tuple[str, ...]
    cycles: tuple[tuple[str, ...], ...]


def names_needed(node: Node) -> dict[str, bool]:
    """The ids that a node names, and whether a step calls them."""
    names: dict[str, bool] = {}
    for step in node.all_steps():
        setting = step.settings.get("node_id") if step.operation == "call_node" else None
        if setting is not None and isinstance(setting.value, str) and setting.value:
            names[setting.value] = True
    for name in node.metadata.dependencies:
        if is_node_id(name) or is_node_id(f"{name}_v1"):
            names.setdefault(name, False)
    return names


def direct_dependencies(node: Node, repository: Repository) -> tuple[Dependency, ...]:
    rows = []
    for name, called in names_needed(node).items():
        target = repository.find(name)
        rows.append(Dependency(node.node_id, name, None if target is None else target.node_id, called))
    return tuple(rows)


def dependencies_of(node: Node, repository: Repository) -> Dependencies:
    """Everything that a node needs, at any distance."""
    rows: list[Dependency] = []
    known = {node.node_id}
    waiting = [node]
    while waiting:
        here = waiting.pop(0)
        for row in direct_dependencies(here, repository):
            rows.append(row)
            if row.target is not None and row.target not in known:
                known.add(row.target)
                waiting.append(repository.resolve(row.target))
    return Dependencies(
        node=node.node_id,
        direct=tuple(row for row in rows if row.node == node.node_id),
        all=tuple(rows),
        missing=tuple(dict.fromkeys(row.needs for row in rows if row.target is None)),
        cycles=tuple(_cycles(_edges(rows))),
    )


def cycles_of(repository: Repository) -> list[tuple[str, ...]]:
    """The circles among all nodes of a repository."""
    rows = [row for node in repository.nodes.values() for row in direct_dependencies(node, repository)]
    return _cycles(_edges(rows))


def _edges(rows: list[Dependency]) -> dict[str, list[str]]:
    edges: dict[str, list[str]] = {}
    for row in rows:
        if row.target is not None:
            edges.setdefault(row.node, []).append(row.target)
    return edges


def _cycles(edges: dict[str, list[str]]) -> list[tuple[str, ...]]:
    """A circle for each edge that leads back to a node on the way to it; written from its smallest id, with that id at
    both ends. The walk keeps its own list of open nodes, so that long chains do not recurse."""
    circles: dict[tuple[str, ...], None] = {}
    finished: set[str] = set()
    for start in sorted(edges):
        way: list[str] = []
        opened = [(start, iter(edges.get(start, ())))] if start not in finished else []
        if opened:
            way.append(start)
        while opened:
            target = next(opened[-1][1], None)
            if target is None:
                opened.pop()
                finished.add(way.pop())
            elif target in way:
                circles[_rotated(way[way.index(target) :])] = None
            elif target not in finished:
                way.append(target)
                opened.append((target, iter(edges.get(target, ()))))
    return list(circles)


def _rotated(circle: list[str]) -> tuple[str, ...]:
    first = circle.index(min(circle))
    return (*circle[first:], *circle[:first], circle[first])


def capabilities_of(repository: Repository) -> dict[str, tuple[str, ...]]:
    """The rights that nodes need, by name, with the ids of the nodes that need each."""
    needs: dict[str, list[str]] = {}
    for node in repository.nodes.values():
        for capability in lowered(node).capabilities:
            needs.setdefault(capability, []).append(node.node_id)
    return {capability: tuple(needs[capability]) for capability in sorted(needs)}
