"""The nodes of some folders or of a store, by id and version, and what each needs.

A `Repository` reads the `.vsp` files of its folders, not of folders inside them, when it is first asked. A bare id
stands for the highest version there is, an id with a version for exactly that. Where two files have the same id, the
file of the earlier folder counts, in one folder the first by name. Files that are no nodes are kept as `broken` with
the reason. A project may keep its nodes in its store instead: `StoredNodes` is that durable state, by id; a node is
added once and never changed, another text needs another version.

A node depends on the nodes that its `call_node` steps name and on those of `metadata.dependencies`. `dependencies_of`
follows them through a repository and reports those that are not there and those that lead back to where they came
from. `capabilities_of` is the registry of rights: which node needs what.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from lyra.errors import ConfigError, LyraError
from lyra.vesper.check.judge import lower_unchecked
from lyra.vesper.nodes import Node, load
from lyra.vesper.values.names import bare_id, highest, is_node_id, version_of

NODES_FOLDER: Final = "nodes"  # beside a file or in the working folder
FILES_MAX: Final = 10_000  # of one folder


class BrokenFile(msgspec.Struct, frozen=True):
    """A file that is no node, and why."""

    file: str
    reason: str


class Repository:
    """See the module. `nodes` are known without a file and count before those of the folders."""

    def __init__(self, folders: Iterable[str | Path] = (), *, nodes: Iterable[Node] = ()) -> None:
        self.folders = tuple(dict.fromkeys(Path(folder) for folder in folders))
        self._given = {node.node_id: node for node in nodes}
        self._nodes: dict[str, Node] | None = None
        self._broken: list[BrokenFile] = []

    # ------------------------------------------------------------------ nodes
    @property
    def nodes(self) -> dict[str, Node]:
        """All nodes by id, in order of bare id and version."""
        if self._nodes is None:
            self._nodes = self._read()
        return self._nodes

    @property
    def broken(self) -> list[BrokenFile]:
        """The files that could not be read."""
        self.nodes  # noqa: B018 - reads the files
        return self._broken

    def refresh(self) -> None:
        """Read the folders again when the next question comes."""
        self._nodes = None

    def move(self, folders: Iterable[Path]) -> None:
        """Read these folders in place of those that are known."""
        self.folders = tuple(dict.fromkeys(folders))
        self.refresh()

    def include(self, folders: Iterable[Path]) -> None:
        """Read these folders too, after those that are known."""
        together = tuple(dict.fromkeys((*self.folders, *folders)))
        if together != self.folders:
            self.folders = together
            self.refresh()

    def find(self, name: str) -> Node | None:
        """Return the node that an id names: that version, or the highest version of a bare id."""
        if name in self._given:
            return self._given[name]
        node_id = highest(name, self.nodes)
        return None if node_id is None else self.nodes[node_id]

    def resolve(self, name: str) -> Node:
        """Return the node that an id names; ConfigError with the nearest known ids for an unknown one."""
        node = self.find(name)
        if node is None:
            known = ", ".join(self.versions(bare_id(name))) or ", ".join(list(self.nodes)[:10])
            raise ConfigError(f"no node {name!r} is known", hint=f"known: {known}" if known else None, key="NODE")
        return node

    def versions(self, name: str) -> list[str]:
        """Return the ids of all versions of a node, the lowest first."""
        return [node_id for node_id in self.nodes if bare_id(node_id) == bare_id(name)]

    # ------------------------------------------------------------------ files
    def _read(self) -> dict[str, Node]:
        self._broken = []
        nodes = dict(self._given)
        for folder in self.folders:
            for path in node_files(folder):
                node = self._load(path)
                if node is not None:
                    nodes.setdefault(node.node_id, node)
        return {key: nodes[key] for key in sorted(nodes, key=lambda node_id: (bare_id(node_id), version_of(node_id)))}

    def _load(self, path: Path) -> Node | None:
        try:
            return load(path)
        except LyraError as error:
            self._broken.append(BrokenFile(str(path), error.message))
            return None


def node_files(folder: Path) -> list[Path]:
    """Return the node files of a folder; an empty list where the folder does not exist."""
    files = sorted(path for path in folder.glob("*.vsp") if path.is_file()) if folder.is_dir() else []
    if len(files) > FILES_MAX:
        raise ConfigError(f"{folder} has more than {FILES_MAX} nodes", key="FOLDER")
    return files


def repository_around(file: str | Path) -> Repository:
    """Return the nodes that a file can call: its siblings, those of `nodes/` beside it and of `nodes/` in the working
    folder. A folder counts as the place of its files."""
    path = Path(file)
    folder = path if path.is_dir() else path.parent
    return Repository((folder, folder / NODES_FOLDER, Path(NODES_FOLDER)))


# ---------------------------------------------------------------- stored


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
        """Return the nodes themselves; read once."""
        for node_id, text in list(self.texts.items()):  # the kernel's thread may add one
            if node_id not in self._nodes:
                self._nodes[node_id] = load(text)
        return list(self._nodes.values())


# ---------------------------------------------------------------- dependencies


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
    """Return the ids that a node names, and whether a step calls them."""
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
    """Return the circles among all nodes of a repository."""
    rows = [row for node in repository.nodes.values() for row in direct_dependencies(node, repository)]
    return _cycles(_edges(rows))


def _edges(rows: list[Dependency]) -> dict[str, list[str]]:
    edges: dict[str, list[str]] = {}
    for row in rows:
        if row.target is not None:
            edges.setdefault(row.node, []).append(row.target)
    return edges


def _cycles(edges: dict[str, list[str]]) -> list[tuple[str, ...]]:
    """Return a circle for each edge that leads back to a node on the way to it; written from its smallest id, with that
    id at both ends. The walk keeps its own list of open nodes, so that long chains do not recurse."""
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
                circles[_rotate(way[way.index(target) :])] = None
            elif target not in finished:
                way.append(target)
                opened.append((target, iter(edges.get(target, ()))))
    return list(circles)


def _rotate(circle: list[str]) -> tuple[str, ...]:
    first = circle.index(min(circle))
    return (*circle[first:], *circle[:first], circle[first])


def capabilities_of(repository: Repository) -> dict[str, tuple[str, ...]]:
    """Return the rights that nodes need, by name, with the ids of the nodes that need each."""
    needs: dict[str, list[str]] = {}
    for node in repository.nodes.values():
        for capability in lower_unchecked(node).capabilities:
            needs.setdefault(capability, []).append(node.node_id)
    return {capability: tuple(needs[capability]) for capability in sorted(needs)}
