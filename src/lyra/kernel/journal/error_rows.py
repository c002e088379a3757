"""Errors as journal rows, and back.

A program must meet the same exception on replay as it met live, or its `except` clauses would take another way.
Lyra's own errors go by code. Other exceptions go by module and name, with their plain arguments and attributes, and
come back only as a class that is already imported and is an Exception: a journal can not make anything load. Groups
come back with what is in them. What cannot be made again becomes an EffectFailed that keeps the text.

Whatever is raised has a row: an exception whose own text fails, or whose arguments no journal could hold, included.
Keys that this process knows are masked in every text: a failed login likes to quote them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from lyra.core.naming import main_name, named_thing, qualified_name
from lyra.core.policies.retry import error_text
from lyra.core.secrets.process_keys import mask_process_keys
from lyra.errors import EffectFailed, LyraError, error_from_data, error_to_data

# Classes made inside functions cannot be looked up by name; those seen in this OS process are remembered. After a
# restart elsewhere they come back as EffectFailed, so a durable program catches classes of a module.
_local: dict[tuple[str, str], type[BaseException]] = {}
_LOCAL_MAX: Final = 1_000
_DEPTH_MAX: Final = 20  # groups in groups, lists in lists
_TEXT_MAX: Final = 100_000
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class _NotPlain(Exception):
    """A value that a row does not hold."""


def error_to_row(error: BaseException, depth: int = 0) -> dict[str, Any]:
    if isinstance(error, LyraError):
        data = error_to_data(error)
        return {key: _or_text(value) for key, value in data.items()}
    cls = type(error)
    module, _, kind = qualified_name(cls).partition(":")
    if "<locals>" in kind and len(_local) < _LOCAL_MAX:
        _local[module, kind] = cls
    row: dict[str, Any] = {
        "code": "python",
        "type": kind,
        "module": module,
        "message": text_of(error),
        "args": _arguments(error),
    }
    state = _attributes(error)
    if state:
        row["state"] = state
    if isinstance(error, BaseExceptionGroup) and depth < _DEPTH_MAX:
        row["errors"] = [error_to_row(inner, depth + 1) for inner in error.exceptions]
        row["args"] = [text_of(error.message)]
    return row


def error_from_row(data: Any, depth: int = 0) -> BaseException:
    if not isinstance(data, dict) or depth > _DEPTH_MAX:
        return EffectFailed("an error that its journal does not describe")
    if data.get("code") != "python":
        return error_from_data(data)
    args = data.get("args")
    inner = data.get("errors")
    message = str(data.get("message", ""))
    if isinstance(inner, list) and inner:
        parts = [error_from_row(row, depth + 1) for row in inner]
        failures = [part for part in parts if isinstance(part, Exception)]
        return ExceptionGroup(str(args[0]) if isinstance(args, list) and args else message, failures)
    cls = _known_exception(str(data.get("module")), str(data.get("type")))
    error = _rebuilt_exception(cls, args) if cls is not None and isinstance(args, list) else None
    if error is None:
        return EffectFailed(message, type=str(data.get("type")), module=str(data.get("module")))
    state = data.get("state")
    if isinstance(state, dict) and hasattr(error, "__dict__"):
        error.__dict__.update({str(key): value for key, value in state.items()})
    return error


def without_keys(error: Exception) -> Exception:
    """Return the error; where its text holds a known key, the error that its row describes."""
    if isinstance(error, LyraError) and mask_process_keys(error.message) == error.message:
        return error
    clean = error_from_row(error_to_row(error))
    return clean if isinstance(clean, Exception) else error


def text_of(error: object) -> str:
    """Its text, as far as it has one that can be written, without keys that this process knows."""
    return mask_process_keys(error_text(error)[:_TEXT_MAX].encode("utf-8", "replace").decode())


def _rebuilt_exception(cls: type[Exception], args: list[Any]) -> Exception | None:
    """The exception again: without its __init__ when that wants what no journal holds."""
    ways: tuple[Callable[[], Any], ...] = (
        lambda: cls(*args),
        lambda: cls.__new__(cls, *args),
        lambda: cls.__new__(cls),
    )
    for make in ways:
        with suppress(Exception):  # the class is the user's, and so is what it may raise
            error = make()
            if isinstance(error, cls):
                error.args = tuple(args)
                return error
    return None


def _arguments(error: BaseException) -> list[Any]:
    try:
        return [_to_plain(arg) for arg in error.args]
    except _NotPlain:
        return [text_of(error)]


def _attributes(error: BaseException) -> dict[str, Any]:
    """Return what a program may look at in an `except` clause: `error.status`, say. Private names and objects stay
    behind."""
    attributes: dict[str, Any] = {}
    for name, value in getattr(error, "__dict__", {}).items():
        if isinstance(name, str) and not name.startswith("_"):
            try:
                attributes[name] = _to_plain(value)
            except _NotPlain:
                continue
    return attributes


def _or_text(value: Any) -> Any:
    try:
        return _to_plain(value)
    except _NotPlain:
        return text_of(value)


def _to_plain(value: Any, depth: int = 0) -> Any:
    """The value in types that every row holds, or `_NotPlain`."""
    if value is None or type(value) in (bool, float):
        return value
    if isinstance(value, int):
        if _INT_MIN <= value <= _INT_MAX:
            return int(value)
        raise _NotPlain
    if isinstance(value, str):
        return text_of(str(value))
    if depth < _DEPTH_MAX and isinstance(value, (list, tuple)):
        return [_to_plain(item, depth + 1) for item in value]
    if depth < _DEPTH_MAX and isinstance(value, dict):
        return {text_of(key): _to_plain(item, depth + 1) for key, item in value.items()}
    raise _NotPlain


def _known_exception(module: str, name: str) -> type[Exception] | None:
    candidate: Any = _local.get((module, name)) or named_thing(f"{module}:{name}")
    if candidate is None:
        candidate = sys.modules.get("__main__" if module == main_name() else module)
        for part in name.split("."):
            candidate = getattr(candidate, part, None)
    if isinstance(candidate, type) and issubclass(candidate, Exception) and not issubclass(candidate, LyraError):
        return candidate
    return None
