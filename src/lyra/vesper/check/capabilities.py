"""Capabilities: what the operations of a node need, against what the node declares.

A capability is a dotted name; `*` stands for any part, and at the end for any rest. `needed` says which capability
an act implies; `covering` finds the declared one that covers it. The right to write a table covers reading it. A
provider of HTTP is covered by its own name or by a host that has the name as a label: `stripe` by
`network.http_client.api.stripe.com`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lyra.core.rights.capability import Capability
from lyra.errors import ConfigError

DANGEROUS: Final = ("filesystem.write", "exec.shell_command", "network.raw_socket")
_HTTP: Final = "network.http_client"
_READ, _WRITE = "database.read.", "database.write."


def matches(pattern: str, capability: str) -> bool:
    """Whether a declared capability covers one that is needed."""
    wanted, parts = capability.split("."), pattern.split(".")
    for index, part in enumerate(parts):
        if part == "*" and index == len(parts) - 1:
            return len(wanted) > index
        if index >= len(wanted) or part not in ("*", wanted[index]):
            return False
    is_table = pattern.startswith((_READ, _WRITE))  # `users` is a table, `users.orders` a table of a schema
    return len(wanted) == len(parts) if is_table else len(wanted) >= len(parts)


def covering(capability: str, declared: Iterable[str]) -> str | None:
    """The capability to ask for: the declared one that names the same thing, the needed one where a pattern covers it,
    None where nothing does."""
    declared = list(declared)
    if any(matches(pattern, capability) for pattern in declared):
        return capability
    if capability.startswith(f"{_HTTP}."):
        provider = capability.removeprefix(f"{_HTTP}.")
        for pattern in declared:
            host = pattern.removeprefix(f"{_HTTP}.")
            if host != pattern and (provider in host.split(".") or host == provider):
                return pattern
    if capability.startswith(_READ):
        table = capability.removeprefix(_READ)
        return next((capability for pattern in declared if matches(pattern, _WRITE + table)), None)
    return None


def overlap(required: str, denied: str) -> bool:
    """Whether a denied capability covers a required one or a part of it."""
    return matches(denied, required) or matches(required, denied)


def denied_capability(text: str) -> Capability | None:
    """The capability that a denial means; `network` means all of `network.*`. None where it means none."""
    for spelling in (text, f"{text}.*"):
        try:
            return Capability.parse(spelling)
        except ConfigError:
            continue
    return None
