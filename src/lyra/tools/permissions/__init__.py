"""Permissions: may this tool be called with these arguments? Rules decide, and say which of them did.

Read in this order: `rules` (what a person writes), `subjects` (what a call is about), `decision` (the order in which
rules, modes and protected paths are asked), `settings` (where rules come from and who may only tighten), `answers`
(what a person said for good). For command lines: `tools.shell` finds every command in one, `tools.shell.wrappers`
what those run in turn, `tools.shell.command_line` what a rule may match. Nothing here runs anything or
resolves a path.

Names are imported at their first use: what an agent calls is read without the settings that decide on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra._imports import look_up_renamed

if TYPE_CHECKING:
    from lyra.tools.permissions.answers import Answers
    from lyra.tools.permissions.decision import MODES, PermissionDecision, Permissions
    from lyra.tools.permissions.rules import Rule
    from lyra.tools.permissions.settings import Layer, load_layers, permissions_of
    from lyra.tools.permissions.subjects import Subject, subject_of

__all__ = [
    "MODES",
    "Answers",
    "Layer",
    "PermissionDecision",
    "Permissions",
    "Rule",
    "Subject",
    "load_layers",
    "permissions_of",
    "subject_of",
]

_HOMES = {
    "MODES": "decision",
    "Answers": "answers",
    "Layer": "settings",
    "PermissionDecision": "decision",
    "Permissions": "decision",
    "Rule": "rules",
    "Subject": "subjects",
    "load_layers": "settings",
    "permissions_of": "settings",
    "subject_of": "subjects",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        return look_up_renamed(__name__, name)
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
