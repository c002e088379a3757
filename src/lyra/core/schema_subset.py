"""The part of a JSON schema that `core.schema` can check.

Models, providers and MCP servers take more of JSON Schema than is checked here. `checkable_part` puts a `$ref` into the
schema itself in its place (down to a depth, and for a bounded number of parts), and leaves out keywords that are not
checked, with what they would have decided. What remains never refuses a value that the whole schema takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.core.checking.schema import KEYWORDS, map_parts, schema_problems
from lyra.core.limits import SCHEMA_DEPTH_MAX

__all__ = ["checkable_part"]

_PARTS_MAX: Final = 5_000  # schemas inside one, references followed
_EXACT: Final = ("not", "oneOf")  # a part that says less than it should would refuse too much here
_SAID: Final = frozenset(  # decides nothing by itself
    ("$ref", "$defs", "definitions", "title", "description", "default", "examples", "$schema", "$id", "$comment")
)
_OTHERS: Final = {"patternProperties": "additionalProperties", "prefixItems": "items"}  # says which are "the others"


def checkable_part(schema: Mapping[str, Any], *, drops_mistakes: bool = False) -> Any:
    """A schema without what cannot be checked. Its mistakes stay, for `schema_problems` to tell, or are left out."""
    return _Reader(schema, drops_mistakes).read(schema, 1)


class _Reader:
    """`is_exact` turns false where a part says less than the schema."""

    def __init__(self, root: Mapping[str, Any], drops_mistakes: bool) -> None:
        self._root = root
        self._drops_mistakes = drops_mistakes
        self._parts_left = _PARTS_MAX
        self.is_exact = True

    def read(self, schema: Any, depth: int) -> Any:
        self._parts_left -= 1
        if isinstance(schema, bool) or not (isinstance(schema, Mapping) or self._drops_mistakes):
            return schema
        if not isinstance(schema, Mapping) or depth >= SCHEMA_DEPTH_MAX or self._parts_left < 0:
            return self._open(is_exact=schema == {})
        part: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword in KEYWORDS:
                self._keyword(keyword, value, depth, part)
            elif keyword not in _SAID:
                self.is_exact = False
        for keyword, others in _OTHERS.items():
            if keyword in schema:
                part.pop(others, None)
        if "$ref" in schema:
            target = self.read(self._target(schema["$ref"]), depth + 1)
            if not part:
                return target
            if isinstance(part.setdefault("allOf", []), list):
                part["allOf"].append(target)
        return self._open() if self._drops_mistakes and any(schema_problems(part)) else part

    def _open(self, *, is_exact: bool = False) -> dict[str, Any]:
        """A schema that takes everything."""
        self.is_exact = self.is_exact and is_exact
        return {}

    def _keyword(self, keyword: str, value: Any, depth: int, part: dict[str, Any]) -> None:
        was_exact, self.is_exact = self.is_exact, True
        kept = map_parts(keyword, value, lambda inner: self.read(inner, depth + 1))
        if self.is_exact or keyword not in _EXACT:
            part[keyword] = kept
        self.is_exact = self.is_exact and was_exact

    def _target(self, reference: Any) -> Any:
        """What a reference within the schema leads to; one that leads elsewhere is not followed."""
        target: Any = self._root if isinstance(reference, str) and reference.partition("/")[0] == "#" else None
        for step in str(reference).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, Mapping) else None
        return self._open() if target is None else target
