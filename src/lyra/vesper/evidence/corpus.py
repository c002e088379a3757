"""Inputs that once showed a divergence, kept in a folder: one small JSON file each.

A file holds the node's id and the inputs, values that JSON lacks as `values.tagged` writes them. A differential test
runs all inputs of its node first.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.vesper.values.json_values import from_json, to_json

FILES_MAX: Final = 10_000
_SIZE_MAX: Final = 1024 * 1024


class Corpus:
    """The folder of old failures."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, node_id: str, inputs: Mapping[str, Any]) -> Path:
        """Keep inputs; the same ones are kept once."""
        data = msgspec.json.encode({"node_id": node_id, "inputs": to_json(dict(inputs))})
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{node_id}-{blake2b(data, digest_size=8).hexdigest()}.json"
        path.write_bytes(data)
        return path

    def of(self, node_id: str) -> list[dict[str, Any]]:
        """The kept inputs of a node, in the order of their files' names."""
        kept = []
        for path in sorted(self._folder.glob("*.json"))[:FILES_MAX]:
            if path.stat().st_size > _SIZE_MAX:
                continue
            content = msgspec.json.decode(path.read_bytes())
            if content["node_id"] == node_id:
                kept.append(from_json(content["inputs"]))
        return kept
