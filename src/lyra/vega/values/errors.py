"""Errors on their way between a Vega program and the rest of Lyra.

What Lyra raises becomes a Fault with the catch name of its code; what a program does not catch becomes a VegaError.
"""

from __future__ import annotations

from lyra.errors import CODES, LyraError, VegaError
from lyra.vega.values.values import ErrorValue, Fault

__all__ = ["VegaError", "fault_of", "uncaught"]


def fault_of(error: BaseException) -> Fault:
    """The error as a Vega `catch` sees it."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, LyraError):
        fields = error.fields
        if "name" in fields and "text" in fields:  # a VegaError, or one that came back from a journal
            return Fault(str(fields["name"]), str(fields["text"]))
        partial = fields.get("partial")  # of an answer that its budget cut: a Vega error has no fields, only a text
        return Fault(CODES[error.code].catch, f"{error.message}: {partial}" if partial else error.message)
    return Fault(type(error).__name__, str(error))


def uncaught(error: BaseException, file: str = "", line: int = 0, column: int = 0) -> VegaError:
    """The error of a program that Lyra ended: an error of Lyra's keeps its name, and with it its exit code."""
    if isinstance(error, VegaError):
        return error
    fault = fault_of(error) if isinstance(error, LyraError) else Fault("ProcessExit", str(error))
    return VegaError.of(ErrorValue(fault.name, fault.text, file, line, column))
