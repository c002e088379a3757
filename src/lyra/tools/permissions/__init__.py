"""Permissions: may this tool be called with these arguments? Rules decide, and say which of them did.

Read in this order: `rules` (what a person writes), `subjects` (what a call is about), `decision` (the order in which
rules, modes and protected paths are asked), `settings` (where rules come from and who may only tighten), `answers`
(what a person said for good). For command lines: `tools.shell` finds every command in one, `tools.shell.wrappers`
what those run in turn, `tools.shell.command_line` what a rule may match. Nothing here runs anything or
resolves a path.
"""

from typing import Any

from lyra._old_paths import renamed
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


def __getattr__(name: str) -> Any:
    return renamed(__name__, name)
