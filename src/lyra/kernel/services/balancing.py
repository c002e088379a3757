"""Which service takes a request: the least loaded one of those that a word means.

A word means the service of that name and its instances (`NAME/1`, `NAME/2` …); where there is none, the services with
that capability; where there is none either, those of that type. `Balancer` keeps the index of words; the registry runs
the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from lyra.kernel.services.service import STATUSES

INSTANCE: Final = "/"  # between the name of a service and that of one of its instances


class Balancer:
    """The services by the words that mean them, read anew after each registration."""

    __slots__ = ("_by_word", "_services")

    def __init__(self, services: Callable[[], Mapping[str, dict[str, Any]]]) -> None:
        self._services = services
        self._by_word: dict[str, list[str]] | None = None

    def changed(self) -> None:
        self._by_word = None

    def meant_by(self, word: str) -> list[str]:
        """The names of the services that a word means, in the order of their registration."""
        if self._by_word is None:
            self._by_word = _words(self._services())
        return self._by_word.get(word, [])


def _words(services: Mapping[str, dict[str, Any]]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    capabilities: dict[str, list[str]] = {}
    types: dict[str, list[str]] = {}
    for name, service in services.items():
        names.setdefault(name, []).append(name)
        base, instance, _ = name.rpartition(INSTANCE)
        if base and instance:
            names.setdefault(base, []).append(name)
        for capability in dict.fromkeys(service["capabilities"]):
            capabilities.setdefault(capability, []).append(name)
        types.setdefault(service["service_type"], []).append(name)
    return {**types, **capabilities, **names}


def least_loaded(candidates: Iterable[tuple[str, Mapping[str, Any], Any]]) -> str:
    """Of (name, service, live part): one with a handler and a free slot before others, a healthy one before a degraded
    one, then the smallest part of its capacity in use, then the one that was given the fewest requests so far."""

    def rank(candidate: tuple[str, Mapping[str, Any], Any]) -> tuple[bool, bool, bool, float, int]:
        _, service, live = candidate
        capacity = STATUSES[service["status"]](service["max_concurrent"])
        in_use = live.load / service["max_concurrent"]
        return live.handler is None, capacity <= live.load, service["status"] != "healthy", in_use, live.dispatched

    return min(candidates, key=rank)[0]
