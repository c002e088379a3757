"""Commands from Markdown files in a session: which there are, and what they become.

Files are read when a list or a command is wanted, and again when they change. Those of a project count where its folder
is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary

from lyra.core.secrets.visible import visible
from lyra.sage.commands.result import SlashResult
from lyra.sage.commands.session_protocol import CommandSession
from lyra.sage.extensions.custom_commands import CustomCommand, CustomCommands
from lyra.sage.extensions.places import extension_places

__all__ = ["custom_commands", "custom_result", "problems_of"]

_read: Final[WeakKeyDictionary[Any, CustomCommands]] = WeakKeyDictionary()


def _files(session: CommandSession, reserved: Iterable[str]) -> CustomCommands:
    files = _read.get(session)
    if files is None:
        trusted = session.config.trust if session.config.trust is not None else session.options.trust
        files = CustomCommands(extension_places(session.folder, trusted=trusted), reserved=reserved)
        _read[session] = files
    else:
        files.refresh()
    return files


def custom_commands(session: CommandSession, reserved: Iterable[str]) -> dict[str, CustomCommand]:
    """The commands by name, as their files are now. `reserved` names cannot be taken by a file."""
    return _files(session, reserved).entries()


def problems_of(session: CommandSession, reserved: Iterable[str]) -> tuple[str, ...]:
    """What is wrong with the files, with file and line."""
    return _files(session, reserved).problems


def custom_result(command: CustomCommand, rest: str) -> SlashResult:
    """The prompt that a command becomes, with the limits that its file sets for it."""
    send_with: dict[str, Any] = {}
    if command.allowed_tools is not None:
        send_with["only"] = command.allowed_tools
    if command.model:
        send_with["model"] = command.model
    return SlashResult.of(f"from {visible(command.source)}", prompt=command.expand(rest), send_with=send_with)
