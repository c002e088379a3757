"""`--provider NAME=URL`: the addresses behind the names of providers, as commands about nodes are given them."""

from __future__ import annotations

from collections.abc import Iterable

from lyra.errors import ConfigError


def provider_addresses(pairs: Iterable[str]) -> dict[str, str]:
    """The addresses by name; ConfigError for a text that is no NAME=URL."""
    addresses: dict[str, str] = {}
    for pair in pairs:
        name, equals, url = pair.partition("=")
        if not equals or not name or "://" not in url:
            raise ConfigError(f"{pair!r} is no NAME=URL", key="--provider")
        addresses[name] = url
    return addresses
