"""Checking what a library function was given."""

from __future__ import annotations

from typing import Any

from lyra.vega.values.values import Fault, kind_of


def need(value: Any, kind: str, function: str) -> Any:
    """The value, if it is of that kind; else a TypeError that names the function."""
    if kind_of(value) != kind:
        raise Fault("TypeError", f"{function} needs {kind}, got {kind_of(value)}")
    return value


def needed(function: str, *pairs: tuple[Any, str]) -> None:
    """Check several values, as for one."""
    for value, kind in pairs:
        if kind_of(value) != kind:
            raise Fault("TypeError", f"{function} needs {kind}, got {kind_of(value)}")
