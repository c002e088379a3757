"""The keys that this OS process knows, from whichever part knows them, for parts that know none themselves.

A part that holds keys adds a source: a function that gives them. The kernel, which knows no providers, masks them in
the texts of errors before they are written or told (`mask_process_keys`). A source is dropped when its owner says so
or is gone. One that fails, such as at a variable that is no longer set, counts with the keys that it gave last: its
mistake is its owner's, and must not reach the errors of other kernels.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

from lyra.core.secrets.known_keys import KnownKeys

_sources: Final[dict[object, Callable[[], Iterable[str] | None]]] = {}


def add_key_source(owner: Any, keys: Callable[[Any], Iterable[str]]) -> Callable[[], None]:
    """Have the keys that `keys(owner)` gives known as long as the owner lives; gives a function that ends it."""
    held = weakref.ref(owner)
    given: tuple[str, ...] = ()

    def source() -> Iterable[str] | None:
        nonlocal given
        living = held()
        if living is None:
            return None
        try:
            given = tuple(keys(living))
        except Exception:  # noqa: BLE001 (see the module)
            return given
        return given

    _sources[source] = source
    return lambda: _drop(source)


def _drop(source: object) -> None:
    _sources.pop(source, None)


def process_keys() -> tuple[str, ...]:
    """All of them."""
    keys: dict[str, None] = {}
    for source in list(_sources.values()):
        given = source()
        if given is None:
            _drop(source)
        else:
            keys.update(dict.fromkeys(given))
    return tuple(keys)


def mask_process_keys(text: str) -> str:
    """Return the text with `***` in place of known keys."""
    keys = process_keys() if _sources else ()
    return KnownKeys.prepare(keys).mask(text) if keys else text
