"""The reference page of Sage: its slash commands, from the table that `run_command` reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lyra.sage.commands.registry import ALIASES, COMMANDS

_PAGE: Final = """\
# Slash commands

{written}

In a session of `sage` a line that begins with `/` is a command. In brackets: what may be left out. Words with blanks
are put in quotes. Beside these there are [commands of your own](../how-to/extend-sage.md) and prompts of MCP servers
(`/SERVER:PROMPT`). [Use Sage's commands](../how-to/sage-commands.md) shows them at work.

{commands}

Other names: {aliases}.
"""


def pages(written: str, table: Callable[..., str]) -> dict[str, str]:
    rows = [(f"`{command.usage}`", command.help) for command in COMMANDS.values()]
    aliases = ", ".join(f"`/{name}` is `/{command}`" for name, command in ALIASES.items())
    return {"slash-commands.md": _PAGE.format(written=written, commands=table(("command", ""), rows), aliases=aliases)}
