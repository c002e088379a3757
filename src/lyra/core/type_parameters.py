"""Type parameters of the public classes, with defaults: a bare `Agent`, `Effect` or `Handle` in an annotation is one of
anything (`Agent[Any]`), so `mypy --strict` does not ask for the parameter.

Defaults belong to type checkers alone: `typing` has them from Python 3.13 on. Nothing here is read at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVarTuple

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
