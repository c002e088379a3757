"""Whether an outcome is what a test case of a node expects.

A case names some of the fields: those have to be as it says, others may be anything. `success` compares how the node
ended; a name with dots (`error.code`) looks inside. Numbers are compared as decimals, so `99.9` is `"99.90"`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from lyra.vesper.values.json_values import json_shape
from lyra.vesper.values.outcome import Outcome

_MISSING = object()


def problems_of(expected: Mapping[str, Any], outcome: Outcome) -> list[str]:
    """What is not as expected, a sentence each."""
    shown = _shown(outcome)
    return [problem for name, value in expected.items() for problem in _differences(name, value, _find(shown, name))]


def _shown(outcome: Outcome) -> dict[str, Any]:
    fields: dict[str, Any] = dict(json_shape(outcome.outputs))
    failure = outcome.error
    if failure is not None:
        fields.update(json_shape(failure.fields))
        fields.setdefault("error_code", failure.code)
        fields.setdefault("message", failure.message)
        fields["error"] = {"code": failure.code, "message": failure.message, **json_shape(failure.fields)}
    fields.setdefault("success", outcome.status == "success")
    fields["status"] = fields.get("status", outcome.status)
    return fields


def _find(fields: Mapping[str, Any], name: str) -> Any:
    if name in fields:
        return fields[name]
    value: Any = fields
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _MISSING
        value = value[part]
    return value


def _differences(name: str, expected: Any, value: Any) -> Iterator[str]:
    if value is _MISSING:
        yield f"{name} is missing, expected {json_shape(expected)!r}"
    elif isinstance(expected, Mapping) and isinstance(value, Mapping):
        for part, inner in expected.items():
            yield from _differences(f"{name}.{part}", inner, value.get(part, _MISSING))
    elif isinstance(expected, list) and isinstance(value, list) and len(expected) == len(value):
        for index, (wanted, given) in enumerate(zip(expected, value, strict=True)):
            yield from _differences(f"{name}[{index}]", wanted, given)
    elif not _equal(expected, value):
        yield f"{name} is {value!r}, expected {json_shape(expected)!r}"


def _equal(expected: Any, value: Any) -> bool:
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    if isinstance(expected, (int, Decimal)) and isinstance(value, (int, str)):
        try:
            return Decimal(value) == Decimal(expected)
        except InvalidOperation:
            return False
    return bool(json_shape(expected) == value)
