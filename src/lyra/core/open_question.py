"""The open question of an envelope: a mapping whose keys can also be read as attributes.

On a wire and in a journal it is a plain mapping. A field that the question does not set has an empty default; any other
name is an AttributeError. The kernel asks and answers questions (`kernel.interrupts.interrupt`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class _AttributeMapping(dict[str, Any]):
    """A mapping whose keys can be read as attributes; `FIELDS` are the names with a default."""

    __slots__ = ()
    FIELDS: ClassVar[Mapping[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name in self.FIELDS:
            return self.FIELDS[name]
        raise AttributeError(f"a question has no {name!r}; it has {', '.join({**self.FIELDS, **self})}")


class _Response(_AttributeMapping):
    """The answer to a question."""

    __slots__ = ()
    FIELDS: ClassVar[Mapping[str, Any]] = {"text": "", "approved": None, "decision": "", "data": None}


class OpenQuestion(_AttributeMapping):
    """A question that work waits for; `response` is set once it is answered."""

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
        return _Response(value) if name == "response" and isinstance(value, Mapping) else value
