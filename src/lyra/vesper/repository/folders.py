"""The nodes of some folders, by id and version.

A `Repository` reads the `.vsp` files of its folders, not of folders inside them, when it is first asked. A bare id
stands for the highest version there is, an id with a version for exactly that. Where two files have the same id, the
file of the earlier folder counts, in one folder the first by name. Files that are no nodes are kept as `broken` with
the reason. `lyra.vesper.nodes` reads the files; nothing here judges them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from lyra.errors import ConfigError, LyraError
from lyra.vesper.nodes import Node, load
from lyra.vesper.values.names import bare_id, highest, version_of

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

    def include(self, folders: Iterable[Path]) -> None:
        """Read these folders too, after those that are known."""
        together = tuple(dict.fromkeys((*self.folders, *folders)))
        if together != self.folders:
            self.folders = together
            self.refresh()

    def find(self, name: str) -> Node | None:
        """The node that an id stands for: that version, or the highest one of a bare id."""
        if name in self._given:
            return self._given[name]
        node_id = highest(name, self.nodes)
        return None if node_id is None else self.nodes[node_id]

    def resolve(self, name: str) -> Node:
        """The node that an id stands for; ConfigError with the nearest known ids where there is none."""
        node = self.find(name)
        if node is None:
            known = ", ".join(self.versions(bare_id(name))) or ", ".join(list(self.nodes)[:10])
            raise ConfigError(f"no node {name!r} is known", hint=f"known: {known}" if known else None, key="NODE")
        return node

    def versions(self, name: str) -> list[str]:
        """The ids of all versions of a node, the lowest first."""
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
    """The files of a folder; none where there is no such folder."""
    files = sorted(path for path in folder.glob("*.vsp") if path.is_file()) if folder.is_dir() else []
    if len(files) > FILES_MAX:
        raise ConfigError(f"{folder} has more than {FILES_MAX} nodes", key="FOLDER")
    return files


def repository_around(file: str | Path) -> Repository:
    """The nodes that a file can call: its siblings, those of `nodes/` beside it and of `nodes/` in the working folder.
    A folder counts as the place of its files."""
    path = Path(file)
    folder = path if path.is_dir() else path.parent
    return Repository((folder, folder / NODES_FOLDER, Path(NODES_FOLDER)))
