"""Slash commands in an editor: which are offered, and how the others are done there.

A session of the protocol is bound to its id, and the editor draws the conversation: commands that switch to another
session, leave, or change how a terminal shows things are not offered. A typed one gets a plain answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acp import schema

from lyra.agents.acp.updates import shown_text
from lyra.sage.agent.live import LiveSession
from lyra.sage.commands.registry import COMMANDS, command_list

_LIST: Final = "the editor's list of sessions (session/list)"
ELSEWHERE: Final[Mapping[str, str]] = {
    "resume": f"/resume is for terminals. Here another session is opened from {_LIST}, which loads it (session/load).",
    "fork": f"/fork is for terminals. Here the editor begins a copy (session/fork), or `sage -r ID --fork` does in a "
    f"terminal; it is then in {_LIST}.",
    "exit": "/exit is for terminals. Here the editor closes the session; it can be opened again.",
    "expand": "/expand is for terminals. Here the editor shows and folds the output of tool calls.",
    "output": "/output is for terminals. Here the editor decides how much of tool calls is shown.",
}


def available_commands(live: LiveSession) -> list[schema.AvailableCommand]:
    return [
        schema.AvailableCommand(name=name, description=shown_text(about) or name, input=_input(live, name))
        for name, about in command_list(live, ELSEWHERE)
    ]


def _input(live: LiveSession, name: str) -> schema.AvailableCommandInput | None:
    """The hint for arguments; None for a command of the table that takes none."""
    command = COMMANDS.get(name)
    custom = live.equipment.extensions.slash_commands().get(name) if live.equipment is not None else None
    hint = command.hint if command is not None else (custom.argument_hint if custom is not None else "") or "arguments"
    return schema.AvailableCommandInput(root=schema.UnstructuredCommandInput(hint=shown_text(hint))) if hint else None


def is_command(text: str) -> bool:
    """Whether a prompt is a command; a path at its beginning is none."""
    return text.startswith("/") and "/" not in text[1:].split(maxsplit=1)[0] if text[1:].strip() else text == "/"
