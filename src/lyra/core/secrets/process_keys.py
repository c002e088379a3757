"""The keys that this OS process knows, from whichever part knows them, for parts that know none themselves.

A part that holds keys adds a source: a function that gives them. The kernel, which knows no providers, masks them in
the texts of errors before they are written or told (`mask_process_keys`). A source that is gone, such as a closed
kernel's, is dropped.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

from lyra.core.secrets.known_keys import KnownKeys

__all__ = ["add_key_source", "mask_process_keys", "process_keys"]

_sources: Final[list[Callable[[], Iterable[str] | None]]] = []


def add_key_source(owner: Any, keys: Callable[[Any], Iterable[str]]) -> None:
    """Have the keys that `keys(owner)` gives known as long as the owner lives."""
    held = weakref.ref(owner)

    def source() -> Iterable[str] | None:
        living = held()
        return None if living is None else keys(living)

    _sources.append(source)


def process_keys() -> tuple[str, ...]:
    """All of them."""
    keys: dict[str, None] = {}
    for source in list(_sources):
        given = source()
        if given is None:
            _sources.remove(source)
        else:
            keys.update(dict.fromkeys(given))
    return tuple(keys)


def mask_process_keys(text: str) -> str:
    """The text with `***` in place of known keys."""
    keys = process_keys() if _sources else ()
    return KnownKeys.of(keys).mask(text) if keys else text
