"""The type that an annotation of a function names, also where it is text (`from __future__ import annotations`).

A name is looked up in the function's module, in its closure, and among the variables of the functions around it that
are still running: so a class that is local to the function which declares a tool, an effect or a program is found.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVarTuple, get_type_hints


def resolve_hint(function: Any, annotation: Any) -> Any:
    """Return the annotated type; raises an error of any kind where a part of it cannot be looked up."""
    while isinstance(function, functools.partial):
        function = function.func
    known: Any = inspect.unwrap(function)
    if not inspect.isroutine(known):
        known = getattr(known, "__init__" if isinstance(known, type) else "__call__")
    known = getattr(known, "__func__", known)  # of a bound method
    holder = SimpleNamespace(__annotations__={"hint": annotation})
    module = getattr(known, "__globals__", {})
    try:
        return get_type_hints(holder, module, _closure(known), include_extras=True)["hint"]
    except NameError:
        return get_type_hints(holder, module, {**_around(known), **_closure(known)}, include_extras=True)["hint"]


def _closure(function: Any) -> dict[str, Any]:
    """Return the variables of a function's closure; a name without a value yet is left out."""
    enclosed: dict[str, Any] = {}
    names = function.__code__.co_freevars if inspect.isfunction(function) else ()
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        with contextlib.suppress(ValueError):
            enclosed[name] = cell.cell_contents
    return enclosed


def _around(function: Any) -> dict[str, Any]:
    """Return the variables of the running functions that the function is defined in."""
    outer = getattr(function, "__qualname__", "").split(".<locals>")[:-1]
    names = {".<locals>".join(outer[: depth + 1]) for depth in range(len(outer))}
    variables: dict[str, Any] = {}
    frame = sys._getframe(1) if names else None
    while frame is not None:
        if frame.f_code.co_qualname in names and frame.f_globals is function.__globals__:
            variables = {**frame.f_locals, **variables}  # the innermost one is met first, and wins
        frame = frame.f_back
    return variables


# Type parameters of the public classes, with defaults: a bare `Agent`, `Effect` or `Handle` in an annotation is one
# of anything (`Agent[Any]`), so `mypy --strict` does not ask for the parameter.

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    Out_co = TypeVar("Out_co", covariant=True, default=Any)  # what an agent answers
    Result_co = TypeVar("Result_co", covariant=True, default=Any)  # what a program, an effect or a tool gives
    Piece_co = TypeVar("Piece_co", covariant=True, default=Any)  # what a stream gives, piece by piece
    Parameters = ParamSpec("Parameters", default=...)  # what an effect or a tool takes
else:
    from typing import ParamSpec, TypeVar

    Out_co = TypeVar("Out_co", covariant=True)
    Result_co = TypeVar("Result_co", covariant=True)
    Piece_co = TypeVar("Piece_co", covariant=True)
    Parameters = ParamSpec("Parameters")

Taken = TypeVarTuple("Taken")  # the arguments of a program or an effect that are given by their place
