"""Errors on their way between a Vega program and the rest of Lyra.

What Lyra raises becomes a Fault with the catch name of its code; what a program does not catch becomes a VegaError.
"""

from __future__ import annotations

from typing import Self

from lyra.errors import CODES, LyraError
from lyra.vega.values import ErrorValue, Fault

__all__ = ["VegaError", "fault_of"]


class VegaError(LyraError):
    """An error that a program did not catch: `name` (as `catch` knows it), `text`, `file`, `line`, `column`."""

    @classmethod
    def of(cls, error: ErrorValue) -> Self:
        place = f"{error.file}:{error.line}:{error.column}" if error.line else error.file or None
        return cls(
            f"{error.name}: {error.text}",
            place=place,
            name=error.name,
            text=error.text,
            file=error.file,
            line=error.line,
            column=error.column,
            trace=list(error.trace),
        )

    def render(self) -> str:
        lines = [f"error[{self.fields['name']}]: {self.fields['text']}"]
        if self.place:
            lines.append(f"  at {self.place}")
        return "\n".join(lines)


def fault_of(error: BaseException) -> Fault:
    """The error as a Vega `catch` sees it."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, LyraError):
        fields = error.fields
        if "name" in fields and "text" in fields:  # a VegaError, or one that came back from a journal
            return Fault(str(fields["name"]), str(fields["text"]))
        return Fault(CODES[error.code].catch, error.message)
    return Fault(type(error).__name__, str(error))
