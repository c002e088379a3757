"""The fixed sample: of each part of Lyra a number of changes, chosen by their keys alone.

A change stays in the sample for as long as its function stays as it is, wherever it stands in its file.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import lyra
from verify.mutants.mutations import Mutation, mutations_of
from verify.surface.taps import function_of, tap_calls

__all__ = ["PARTS", "SOURCE", "sample", "tap_functions"]

SOURCE: Final = Path(lyra.__file__).parents[1]
# Part → how many of its changes.
PARTS: Final = {
    "lyra/kernel": 60,
    "lyra/core": 25,
    "lyra/agents": 40,
    "lyra/tools/permissions": 15,
    "lyra/vega": 60,
}


def sample(parts: dict[str, int] = PARTS, *, skip: int = 0) -> list[Mutation]:
    """The sample, or another of the same size: `skip` leaves out the first so many of it."""
    chosen: list[Mutation] = []
    for part, count in parts.items():
        first = skip * count // sum(parts.values())
        chosen += _sorted_mutations(part)[first : first + count]
    return chosen


@cache
def _sorted_mutations(part: str) -> list[Mutation]:
    mutations = (mutation for file in _files(part) for mutation in mutations_of(file, SOURCE))
    return sorted(mutations, key=lambda mutation: mutation.key)


def _files(part: str) -> list[Path]:
    return sorted(path.relative_to(SOURCE) for path in (SOURCE / part).rglob("*.py"))


def tap_functions(used: Callable[[str], None]) -> None:
    """From now on, tell of each call of a function around a sampled change, by the change's key."""
    keys: dict[tuple[str, str], list[str]] = {}
    for mutation in sample():
        module = ".".join(mutation.file.with_suffix("").parts).removesuffix(".__init__")
        keys.setdefault((module, mutation.function), []).append(mutation.key)
    for (module, function), ids in keys.items():
        value: Any = importlib.import_module(module)
        for name in function.split(".") if function else ():
            value = inspect.getattr_static(value, name, None)
        found = function_of(value) if function else None
        if found is not None:
            tap_calls(found, partial(_each, used, ids))


def _each(used: Callable[[str], None], keys: list[str]) -> None:
    for key in keys:
        used(key)
