"""The part of a JSON schema that `core.checking.schema` can check.

Models, providers and MCP servers accept more of JSON Schema than is checked here. `checkable_part` replaces each `$ref`
within the schema by its target (down to a depth, and for a bounded number of parts), and leaves out keywords that are
not checked. The result never refuses a value that the whole schema accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.core.checking.schema import KEYWORDS, map_parts, mismatch, schema_problems
from lyra.core.limits import SCHEMA_DEPTH_MAX
from lyra.errors import ConfigError

_PARTS_MAX: Final = 5_000  # schemas inside a schema, with references followed
_EXACT: Final = ("not", "oneOf")  # dropped where a part of them was left out: a weaker part would refuse more values
_ANNOTATIONS: Final = frozenset(  # decide nothing by themselves
    ("$ref", "$defs", "definitions", "title", "description", "default", "examples", "$schema", "$id", "$comment")
)
# left out: without the key, the value applies to too many items
_OTHERS: Final = {"patternProperties": "additionalProperties", "prefixItems": "items"}


def checkable_part(schema: Mapping[str, Any], *, drops_mistakes: bool = False) -> Any:
    """The schema without what cannot be checked. Mistakes stay, for `schema_problems` to report, or are dropped."""
    return _Reader(schema, drops_mistakes).read(schema, 1)


class _Reader:
    """One pass over a schema; `is_exact` becomes False where the result accepts more than the schema."""

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
            elif keyword not in _ANNOTATIONS:
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
        """A schema that accepts every value."""
        self.is_exact = self.is_exact and is_exact
        return {}

    def _keyword(self, keyword: str, value: Any, depth: int, part: dict[str, Any]) -> None:
        was_exact, self.is_exact = self.is_exact, True
        kept = map_parts(keyword, value, lambda inner: self.read(inner, depth + 1))
        if self.is_exact or keyword not in _EXACT:
            part[keyword] = kept
        self.is_exact = self.is_exact and was_exact

    def _target(self, reference: Any) -> Any:
        """The target of a reference within the schema; other references accept every value."""
        target: Any = self._root if isinstance(reference, str) and reference.partition("/")[0] == "#" else None
        for step in str(reference).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, Mapping) else None
        return self._open() if target is None else target


class CheckedSchema:
    """A JSON schema that a caller wrote, as a check of values: the part of it that `schema.mismatch` can check.

    `what` is named in the ConfigError for a mistake in the schema, `key` is the setting that held it.
    """

    __slots__ = ("_schema",)

    def __init__(self, schema: Mapping[str, Any], what: str, *, key: str) -> None:
        self._schema = checkable_part(schema)
        for path, problem, hint in schema_problems(self._schema):
            place = ".".join(str(step) for step in path)
            raise ConfigError(f"the schema of {what} has a mistake at {place}: {problem}", hint=hint, key=key)

    def check(self, value: Any) -> Any:
        """Return the value; ValueError with a sentence where it does not fit."""
        wrong = mismatch(value, self._schema)
        if wrong is not None:
            raise ValueError(wrong)
        return value
