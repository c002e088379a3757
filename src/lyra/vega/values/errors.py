"""Errors on their way between a Vega program and the rest of Lyra.

What Lyra raises becomes a Fault with the catch name of its code; what a program does not catch becomes a VegaError.
"""

from __future__ import annotations

from lyra.errors import CODES, LyraError, VegaError
from lyra.vega.values.values import Fault

__all__ = ["VegaError", "fault_of"]


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
