"""A JSON schema that a caller wrote, as a check of answers: the part of it that `core.checking.schema` can check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lyra.core.checking.schema import mismatch, schema_problems
from lyra.core.checking.schema_subset import checkable_part
from lyra.errors import ConfigError

__all__ = ["Checkable"]


class Checkable:
    """`check(value)` raises ValueError with a sentence where the value does not fit."""

    __slots__ = ("_schema",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = checkable_part(schema)
        for path, problem, hint in schema_problems(self._schema):
            place = ".".join(str(step) for step in path)
            raise ConfigError(f"the schema of output has a mistake at {place}: {problem}", hint=hint, key="output")

    def check(self, value: Any) -> Any:
        wrong = mismatch(value, self._schema)
        if wrong is not None:
            raise ValueError(wrong)
        return value
