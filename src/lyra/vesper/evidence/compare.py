"""Compares what two paths gave for the same execution: exactly, value by value.

`compare(python, direct)` gives the differences as rows of `path`, `kind` and both values as text; none means that the
paths agree. Decimals agree in value and scale, booleans are not numbers, and timestamps agree to the microsecond. The
code, the phase and the declared fields of an error count; the wording of Lyra's own errors does not.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from lyra.vesper.values.outcome import CODES, NodeFailure, Outcome

DIFFERENCES_MAX: Final = 50
_TEXT_MAX: Final = 200
_ABSENT: Final = object()
_OWN_CODES: Final = frozenset(CODES)
_PLAIN: Final = frozenset({str, int, bool, bytes, type(None)})
_KINDS: Final = {int: "numeric_mismatch", Decimal: "numeric_mismatch", datetime: "timestamp_mismatch"}

Rows = list[dict[str, Any]]


def compare(python: Outcome, direct: Outcome) -> Rows:
    """Return the differences of two outcomes; an empty list for equal ones."""
    if python.status == direct.status and python.unverifiable == direct.unverifiable:
        first, second = python.error, direct.error
        if first is None or second is None:
            if first is second and is_same(python.outputs, direct.outputs):
                return []
        elif (
            first.code == second.code
            and first.phase == second.phase
            and (first.message == second.message or first.code in _OWN_CODES)
            and is_same(first.fields, second.fields)
            and is_same(python.outputs, direct.outputs)
        ):
            return []
    rows: Rows = []
    if python.status != direct.status:
        _add(rows, "root.status", "error_mismatch", _ending(python), _ending(direct))
        return rows
    _values(rows, "root", python.outputs, direct.outputs)
    _failures(rows, python.error, direct.error)
    if sorted(python.unverifiable) != sorted(direct.unverifiable):
        _add(rows, "root.unverifiable", "value_mismatch", python.unverifiable, direct.unverifiable)
    return rows


def compare_ends(python: Outcome | Exception, direct: Outcome | Exception) -> Rows:
    """Return the differences of how two paths ended. A path that raises differs from every other end."""
    if not isinstance(python, Exception) and not isinstance(direct, Exception):
        return compare(python, direct)
    texts = [f"{type(end).__name__}: {end}" if isinstance(end, Exception) else _ending(end) for end in (python, direct)]
    return [{"path": "root", "kind": "crash", "python": _text(texts[0]), "direct": _text(texts[1])}]


def _ending(outcome: Outcome) -> str:
    return outcome.status if outcome.error is None else f"{outcome.status} {outcome.error.code}"


def _failures(rows: Rows, python: NodeFailure | None, direct: NodeFailure | None) -> None:
    if python is None or direct is None:
        if python is not direct:
            _add(rows, "root.error", "error_mismatch", python, direct)
        return
    for name in ("code", "phase"):
        if getattr(python, name) != getattr(direct, name):
            _add(rows, f"root.error.{name}", "error_mismatch", getattr(python, name), getattr(direct, name))
    if python.code == direct.code and python.code not in _OWN_CODES and python.message != direct.message:
        _add(rows, "root.error.message", "error_mismatch", python.message, direct.message)
    _values(rows, "root.error", python.fields, direct.fields)


def is_same(first: Any, second: Any) -> bool:
    """Return whether two values agree in every respect."""
    kind = type(first)
    if kind is not type(second):
        return False
    if kind is dict:
        if not first or len(first) != len(second):
            return not first and not second
        for name, value in first.items():
            other = second.get(name, _ABSENT)
            if type(value) in _PLAIN:
                if type(value) is not type(other) or value != other:
                    return False
            elif not is_same(value, other):
                return False
        return True
    if kind in _PLAIN:
        return bool(first == second)
    if kind is Decimal:
        return bool(first.compare_total(second) == 0)
    if kind is list or kind is tuple:
        return len(first) == len(second) and all(map(is_same, first, second))
    if kind is frozenset:
        return {_exact(item) for item in first} == {_exact(item) for item in second}
    if isinstance(first, datetime):
        return bool(first == second and first.utcoffset() == second.utcoffset())
    return bool(first == second)


def _exact(item: Any) -> tuple[type, Any]:
    """Return a key for an element of a set that no unlike element shares."""
    return type(item), str(item) if isinstance(item, Decimal) else item


def _values(rows: Rows, path: str, python: Any, direct: Any) -> None:
    if len(rows) >= DIFFERENCES_MAX or is_same(python, direct):
        return
    if python is None or direct is None:
        _add(rows, path, "null_mismatch", python, direct)
    elif type(python) is not type(direct):
        _add(rows, path, "type_mismatch", python, direct)
    elif isinstance(python, dict):
        for name in {**python, **direct}:
            if name not in python:
                _add(rows, f"{path}.{name}", "missing_in_python", None, direct[name])
            elif name not in direct:
                _add(rows, f"{path}.{name}", "missing_in_direct", python[name], None)
            else:
                _values(rows, f"{path}.{name}", python[name], direct[name])
    elif isinstance(python, list):
        if len(python) != len(direct):
            _add(rows, path, "length_mismatch", len(python), len(direct))
        for index, pair in enumerate(zip(python, direct, strict=False)):
            _values(rows, f"{path}[{index}]", *pair)
    else:
        _add(rows, path, _KINDS.get(type(python), "value_mismatch"), python, direct)


def _add(rows: Rows, path: str, kind: str, python: Any, direct: Any) -> None:
    if len(rows) < DIFFERENCES_MAX:
        rows.append({"path": path, "kind": kind, "python": _text(python), "direct": _text(direct)})


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + "…"
