"""Commands from Markdown files in a session: which there are, and what they become.

The session's equipment reads the files, and reads them again when they change. Those of a project count where its
folder is trusted.
"""

from __future__ import annotations

from typing import Any

from lyra.core.secrets.visible import visible
from lyra.sage.commands.result import SlashResult
from lyra.sage.commands.session_protocol import CommandSession
from lyra.sage.extensions.custom_commands import CustomCommand


def custom_commands(session: CommandSession) -> dict[str, CustomCommand]:
    """The commands by name, as their files are now; skills that a person may start are among them."""
    if session.equipment is None:
        return {}
    session.equipment.extensions.refresh(at_once=True)
    return session.equipment.extensions.slash_commands()


def problems_of(session: CommandSession) -> tuple[str, ...]:
    """What is wrong with the files, with file and line."""
    return session.equipment.extensions.problems if session.equipment is not None else ()


def custom_result(command: CustomCommand, rest: str) -> SlashResult:
    """The prompt that a command becomes, with the limits that its file sets for it."""
    send_with: dict[str, Any] = {}
    if command.allowed_tools is not None:
        send_with["only"] = command.allowed_tools
    if command.model:
        send_with["model"] = command.model
    return SlashResult.of(f"from {visible(command.source)}", prompt=command.expand(rest), send_with=send_with)
