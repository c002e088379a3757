"""Inputs that once showed a divergence, kept in a folder: one small JSON file each.

A file holds the node's id and the inputs. Values that JSON lacks are maps of one key: `$decimal`, `$bytes`,
`$timestamp`, `$set`, `$float`, `$tuple`; a map that has such a key itself is wrapped in `$map`. A differential test
runs all inputs of its node first.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

__all__ = ["Corpus", "from_json", "to_json"]

FILES_MAX: Final = 10_000
_SIZE_MAX: Final = 1024 * 1024


def to_json(value: Any) -> Any:
    match value:
        case float():
            return {"$float": repr(value)}
        case Decimal():
            return {"$decimal": str(value)}
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case datetime():
            return {"$timestamp": value.isoformat()}
        case set() | frozenset():
            return {"$set": [to_json(item) for item in sorted(value, key=repr)]}
        case tuple():
            return {"$tuple": [to_json(item) for item in value]}
        case list():
            return [to_json(item) for item in value]
        case int() if abs(value) >= 2**63 and not isinstance(value, bool):
            return {"$integer": hex(value)}
        case dict():
            plain = {str(key): to_json(item) for key, item in value.items()}
            return {"$map": plain} if any(key.startswith("$") for key in plain) else plain
    return value


def from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    match list(value.items()):
        case [("$float", str(text))]:
            return float(text)
        case [("$decimal", str(text))]:
            return Decimal(text)
        case [("$integer", str(text))]:
            return int(text, 16)
        case [("$bytes", str(text))]:
            return base64.b64decode(text)
        case [("$timestamp", str(text))]:
            return datetime.fromisoformat(text)
        case [("$set", list(items))]:
            return frozenset(from_json(item) for item in items)
        case [("$tuple", list(items))]:
            return tuple(from_json(item) for item in items)
        case [("$map", dict(items))]:
            return {key: from_json(item) for key, item in items.items()}
    return {key: from_json(item) for key, item in value.items()}


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
