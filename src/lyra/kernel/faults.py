"""Errors as journal rows, and back.

A program must meet the same exception on replay as it met live, or its `except` clauses would take another way.
Lyra's own errors go by code. Other exceptions go by module and name and come back only as a class that is already
imported and is an Exception: a journal can not make anything load or run. What cannot be found again becomes an
EffectFailed that keeps the text.
"""

from __future__ import annotations

import sys
from typing import Any

from lyra.core.naming import main_name, qualified_name
from lyra.errors import EffectFailed, LyraError, error_from_data, error_to_data

__all__ = ["error_from_row", "error_to_row"]


# Classes made inside functions cannot be looked up by name; those seen in this OS process are remembered. After a
# restart elsewhere they come back as EffectFailed, so a durable program catches classes of a module.
_local: dict[tuple[str, str], type[BaseException]] = {}
_LOCAL_MAX = 1_000


def error_to_row(error: BaseException) -> dict[str, Any]:
    if isinstance(error, LyraError):
        return error_to_data(error)
    cls = type(error)
    module, _, _ = qualified_name(cls).partition(":")
    if "<locals>" in cls.__qualname__ and len(_local) < _LOCAL_MAX:
        _local[module, cls.__qualname__] = cls
    args = [arg for arg in error.args if arg is None or isinstance(arg, (bool, int, float, str))]
    return {
        "code": "python",
        "type": cls.__qualname__,
        "module": module,
        "args": args if len(args) == len(error.args) else [str(error)],
        "message": str(error),
    }


def error_from_row(data: dict[str, Any]) -> BaseException:
    if data.get("code") != "python":
        return error_from_data(data)
    cls = _known_exception(str(data.get("module")), str(data.get("type")))
    args = data.get("args")
    if cls is not None and isinstance(args, list):
        try:
            return cls(*args)
        except TypeError:  # its __init__ wants something else; the class and its text are what matters
            error = cls.__new__(cls)
            error.args = tuple(args)
            return error
    return EffectFailed(str(data.get("message", "")), type=str(data.get("type")), module=str(data.get("module")))


def _known_exception(module: str, name: str) -> type[Exception] | None:
    found: Any = _local.get((module, name))
    if found is None:
        found = sys.modules.get("__main__" if module == main_name() else module)
        for part in name.split("."):
            found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, LyraError):
        return found
    return None
