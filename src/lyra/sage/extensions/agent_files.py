"""Sub-agents from Markdown files: front matter with settings, and a text that becomes the sub-agent's system prompt.

    ---
    description: Checks that the documentation fits the code
    tools: Read, Glob, Grep
    max_turns: 20
    ---
    You compare the documentation with the code …

`sub_agent_definitions` gives the built-in ones (`builtin_agents`) and those of the files; a file cannot take a built-in
name. A definition only narrows: its permission mode counts where it is tighter than the caller's (`tighter_mode`), its
budget lies inside the caller's. Nothing is started here: that is `lyra.sage.agent`'s.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from lyra.core.budgets.budget import Budget
from lyra.core.checking.check import Mistake
from lyra.errors import LyraError
from lyra.sage.extensions.builtin_agents import BUILT_IN, SubAgentDefinition
from lyra.sage.extensions.extension_files import NAME, ExtensionFiles, ExtensionPlace, MarkdownFile, declared_tools
from lyra.tools.permissions.decision import MODES

__all__ = ["AgentFiles", "SubAgentDefinition", "sub_agent_definitions", "tighter_mode"]

_KEYS: Final = (
    *("name", "description", "tools", "model", "budget", "max_turns", "permission_mode", "worktree", "background"),
)
_TURNS_MAX: Final = 1_000
_RESERVED: Final = frozenset({*(name.lower() for name in BUILT_IN), "general", "task"})
# From the tightest: `plan` only reads, `deny-unasked` asks no question.
_TIGHTNESS: Final = ("plan", "deny-unasked", "default", "accept-edits", "bypass")
assert set(_TIGHTNESS) == set(MODES)


def tighter_mode(own: str, callers: str) -> str:
    """The permission mode of a sub-agent: its own where that is tighter than its caller's, else the caller's."""
    return min(own or callers, callers, key=_TIGHTNESS.index)


class AgentFiles(ExtensionFiles[SubAgentDefinition]):
    """The sub-agents of some places, as their files are now; `definitions` are the built-in ones too."""

    KIND = "agents"
    WORD = "a sub-agent"

    def definitions(self) -> dict[str, SubAgentDefinition]:
        return {**BUILT_IN, **self.entries()}

    def _read(self, data: bytes, path: str, place: ExtensionPlace) -> tuple[SubAgentDefinition | None, list[Mistake]]:
        file, mistakes = MarkdownFile.of(data, path, _KEYS, self.WORD)
        if file is None:
            return None, mistakes
        definition = _definition(file, place)
        return (None if file.report.mistakes else definition), file.report.mistakes


def sub_agent_definitions(places: Iterable[ExtensionPlace]) -> dict[str, SubAgentDefinition]:
    """The sub-agents by name: built-in ones first, then those of the places. Files with mistakes are left out; an
    AgentFiles says which."""
    return AgentFiles(places).definitions()


def _definition(file: MarkdownFile, place: ExtensionPlace) -> SubAgentDefinition:
    name = file.text("name") or os.path.basename(file.path)[: -len(".md")]
    if not NAME.match(name):
        file.report.add(("name",), f"{name!r} is not a name: use letters, digits, '_' and '-'")
    elif name.lower() in _RESERVED and not place.plugin:
        file.report.add(("name",), f"{name} is a name of Sage's own, and a file cannot take it")
    description = file.text("description")
    if "description" not in file.keys:
        file.report.add((), "a sub-agent has a description, by which a model chooses it")
    tools = declared_tools(file, "tools", place)
    return SubAgentDefinition(
        name=f"{place.plugin}:{name}" if place.plugin else name,
        description=description,
        system=file.body,
        tools=tools,
        model=file.text("model"),
        budget=_budget(file),
        max_turns=file.whole("max_turns", least=1, most=_TURNS_MAX),
        permission_mode=file.word("permission_mode", _TIGHTNESS),
        worktree=file.flag("worktree"),
        background=file.flag("background"),
        source=file.path,
        origin=place.origin,
        plugin=place.plugin,
    )


def _budget(file: MarkdownFile) -> str | Mapping[str, Any] | None:
    """The budget as written, once a Budget can be made of it: "$0.50", or a mapping of limits."""
    value = file.keys.get("budget")
    if value is None and "budget" not in file.keys:
        return None
    try:
        if not isinstance(value, (str, Mapping)):
            raise ValueError("an amount such as $0.50, or a mapping of limits")
        Budget.of(value)
    except (LyraError, ValueError, ArithmeticError) as error:
        why = error.message if isinstance(error, LyraError) else str(error)
        file.report.add(("budget",), f"it is not a budget: {why}")
        return None
    return value
