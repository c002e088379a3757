"""Reads the import contracts of pyproject.toml: which module is in which layer of which container.

A contract lists layers from top to bottom; modules of one layer, separated by "|", are siblings that do not import each
other. import-linter checks the contracts; this module reads them for the figures and the picture.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from verify.structure.source_tree import Import

__all__ = ["PROJECT", "Contract", "back_up", "read_contracts"]

PROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"


class Contract(NamedTuple):
    """`layers` has the names of modules inside the container, top layer first."""

    container: str
    layers: tuple[tuple[str, ...], ...]

    def row_of(self, module: str) -> tuple[int, str] | None:
        """The layer that a module belongs to, counted from the top, and the layer's member; None outside of all."""
        prefix = f"{self.container}."
        if not module.startswith(prefix):
            return None
        rest = module.removeprefix(prefix)
        for row, members in enumerate(self.layers):
            for member in members:
                if rest == member or rest.startswith(f"{member}."):
                    return row, member
        return None


def read_contracts(project: Path = PROJECT) -> dict[str, Contract]:
    """The contracts of the type "layers", by container."""
    settings = tomllib.loads(project.read_text(encoding="utf-8"))
    contracts: dict[str, Contract] = {}
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["type"] != "layers":
            continue
        rows = [[word.strip(" ()") for word in layer.split("|")] for layer in contract["layers"]]
        for container in contract.get("containers") or [_common_folder(rows)]:
            prefix = f"{container}."
            layers = tuple(tuple(name.removeprefix(prefix) for name in row) for row in rows)
            contracts[container] = Contract(container, layers)
    return contracts


def _common_folder(rows: list[list[str]]) -> str:
    """The container of a contract that names its modules in full."""
    return rows[0][0].rpartition(".")[0]


def back_up(contracts: dict[str, Contract], imports: list[Import]) -> Iterator[Import]:
    """Imports that lead from a lower layer to a higher one, or from one sibling to another."""
    for contract in contracts.values():
        for edge in imports:
            source, target = contract.row_of(edge.source), contract.row_of(edge.target)
            if source and target and source[1] != target[1] and target[0] <= source[0]:
                yield edge
