"""A question that work waits for, as its envelope carries it: a mapping whose keys read as attributes too.

On a wire and in a journal it is a plain mapping. What the question does not say reads as nothing said; a name that no
question has is an AttributeError. Who asks, waits and answers is the kernel's to know (`interrupts.interrupt`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = ["Asked"]


class _Read(dict[str, Any]):
    """A mapping whose keys read as attributes; `FIELDS` are those that are always there, with nothing in them."""

    __slots__ = ()
    FIELDS: ClassVar[Mapping[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name in self.FIELDS:
            return self.FIELDS[name]
        raise AttributeError(f"a question has no {name!r}; it has {', '.join({**self.FIELDS, **self})}")


class _Answered(_Read):
    """What came back."""

    __slots__ = ()
    FIELDS: ClassVar[Mapping[str, Any]] = {"text": "", "approved": None, "decision": "", "data": None}


class Asked(_Read):
    """See the module. `response` is there once it is answered."""

    __slots__ = ()
    FIELDS: ClassVar[Mapping[str, Any]] = {
        "id": "",
        "kind": "",
        "question": "",
        "message": "",
        "data": None,
        "response": None,
    }

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        return _Answered(value) if name == "response" and isinstance(value, Mapping) else value
