"""A JSON schema that somebody wrote, as a check of answers.

`core.schema` checks a part of JSON Schema and refuses the rest. Providers take more of it, so here a schema is brought
down to what can be checked: a `$ref` into the schema's own `$defs` is put in its place (down to a depth), and a keyword
that is not checked is left out, with what it would have decided. What remains never refuses a value that the whole
schema takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.core.checking.schema import KEYWORDS, mismatch, schema_problems
from lyra.core.limits import SCHEMA_DEPTH_MAX
from lyra.errors import ConfigError

__all__ = ["Checkable"]

_NAMES: Final = ("$defs", "definitions")
_EXACT: Final = ("not", "oneOf")  # a part that says less than it should would refuse too much here
_LISTS: Final = ("anyOf", "oneOf", "allOf")
_SCHEMAS: Final = ("items", "additionalProperties", "not")
_SAID: Final = (*_NAMES, "title", "description", "default", "examples", "$schema", "$id", "$comment")  # decides nothing
_OTHERS: Final = {
    "patternProperties": "additionalProperties",
    "prefixItems": "items",
}  # says which ones are "the others"


class Checkable:
    """`check(value)` raises ValueError with a sentence where the value does not fit."""

    __slots__ = ("_schema",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = _Reader(schema).read(schema, 1)[0]
        for path, problem, hint in schema_problems(self._schema):
            place = ".".join(str(step) for step in path)
            raise ConfigError(f"the schema of output has a mistake at {place}: {problem}", hint=hint, key="output")

    def check(self, value: Any) -> Any:
        wrong = mismatch(value, self._schema)
        if wrong is not None:
            raise ValueError(wrong)
        return value


class _Reader:
    """Gives each part as (what can be checked of it, whether that is all of it)."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._parts = {
            f"#/{word}/{name}": part
            for word in _NAMES
            if isinstance(whole.get(word), Mapping)
            for name, part in whole[word].items()
        }
        self._parts["#"] = whole

    def read(self, schema: Any, depth: int) -> tuple[Any, bool]:
        if not isinstance(schema, Mapping):
            return schema, True
        if depth >= SCHEMA_DEPTH_MAX:
            return {}, not schema
        found: dict[str, Any] = {}
        exact = True
        for keyword, said in schema.items():
            if keyword == "$ref":
                part = self._parts.get(str(said))
                kept, whole = self.read(part, depth + 1) if part is not None else ({}, False)
                found["allOf"] = [*found.get("allOf", ()), kept]
            elif keyword in KEYWORDS:
                kept, whole = self._keyword(keyword, said, depth)
                if keyword == "allOf" and "allOf" in found:
                    kept = [*found["allOf"], *kept]
                if whole or keyword not in _EXACT:
                    found[keyword] = kept
            else:
                whole = keyword in _SAID
            exact = exact and whole
        for keyword, others in _OTHERS.items():
            if keyword in schema:
                found.pop(others, None)
        return found, exact

    def _keyword(self, keyword: str, said: Any, depth: int) -> tuple[Any, bool]:
        if keyword == "properties" and isinstance(said, Mapping):
            read = {key: self.read(part, depth + 1) for key, part in said.items()}
            return {key: part for key, (part, _) in read.items()}, all(whole for _, whole in read.values())
        if keyword in _LISTS and isinstance(said, (list, tuple)):
            several = [self.read(part, depth + 1) for part in said]
            return [part for part, _ in several], all(whole for _, whole in several)
        return self.read(said, depth + 1) if keyword in _SCHEMAS else (said, True)
