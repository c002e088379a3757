"""A grant in words: what a process may do, and what it may not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lyra.core.rights.capability import ANY_NAME, VERBS, Capability
from lyra.server.dashboard.html import Html, tag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lyra.core.rights.capability import Grant


_SHOWN_MAX: Final = 30


def grant_words(grant: Grant) -> Html:
    """The rules of a grant; of one that was narrowed on its way, each step that still holds."""
    layers = [layer for layer in grant.layers if not _is_everything(layer)]
    parts: list[Html] = []
    if not layers:
        parts.append(tag("p", "Everything" + (", except:" if grant.deny else ".")))
    for layer in layers:
        parts.append(_rules(layer) if layer else tag("p", "Nothing."))
        if layer is not layers[-1]:
            parts.append(tag("p", "and of these only:", class_="note"))
    if grant.deny:
        parts.append(tag("p", "Never:", class_="note") if layers else tag("span", ""))
        parts.append(_rules(grant.deny))
    return tag("div", parts, class_="grant")


def _is_everything(layer: Iterable[Capability]) -> bool:
    return any(str(rule) == ANY_NAME for rule in layer)


def _rules(rules: Iterable[Capability]) -> Html:
    listed = list(rules)
    rows = [_rule(rule) for rule in listed[:_SHOWN_MAX]]
    if len(listed) > _SHOWN_MAX:
        rows.append(tag("li", f"and {len(listed) - _SHOWN_MAX} more", class_="note"))
    return tag("ul", rows)


def _rule(rule: Capability) -> Html:
    text = str(rule)
    verb = VERBS.get(text.partition(":")[0])
    return tag("li", tag("code", text), f" {verb.sentence}" if verb is not None else None)
