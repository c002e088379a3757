"""Which programs look at which files: the settings under `[diagnostics."PATTERN"]`, made ready for one workspace."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from lyra.tools.builtin.search_worker import glob_regex

CHECK_S: Final = 5.0
_FILE: Final = "{file}"


class CheckCommand(NamedTuple):
    """One program for one file: its words (of a language server: those that start it), and how long it may take."""

    words: tuple[str, ...]
    timeout_s: float
    readable: tuple[str, ...] = ()
    is_server: bool = False

    @property
    def program(self) -> str:
        """The name that problems are shown with: the program, or the module that an interpreter runs."""
        words = list(self.words)
        module = words[words.index("-m") + 1 :][:1] if "-m" in words[1:-1] else []
        return os.path.basename(module[0] if module else words[0])[:60]

    def argv(self, path: str) -> list[str]:
        """The words with the file in them, each one argument whatever the path is."""
        name = f"./{path}" if path.startswith("-") else path
        return [word.replace(_FILE, name) for word in self.words]


class _Check(NamedTuple):
    matches: re.Pattern[str]
    commands: tuple[CheckCommand, ...]


class FileChecks:
    """The settings of all patterns; a file may match several."""

    def __init__(self, settings: Mapping[str, Mapping[str, Any]]) -> None:
        self._checks = [
            _Check(re.compile(glob_regex(pattern), re.DOTALL), _commands(entry)) for pattern, entry in settings.items()
        ]

    def __bool__(self) -> bool:
        return bool(self._checks)

    def for_file(self, path: str) -> list[CheckCommand]:
        """The programs for a file by its path below the root of the workspace; each once."""
        matching = [check for check in self._checks if check.matches.fullmatch(path)]
        return list(dict.fromkeys(command for check in matching for command in check.commands))


def _commands(entry: Mapping[str, Any]) -> tuple[CheckCommand, ...]:
    timeout_s, readable = float(entry.get("timeout_s", CHECK_S)), tuple(entry.get("readable", ()))
    lines: Sequence[str] = entry.get("commands", ())
    commands = [CheckCommand(tuple(shlex.split(line)), timeout_s, readable) for line in lines]
    if "language_server" in entry:
        commands.append(CheckCommand(tuple(shlex.split(entry["language_server"])), timeout_s, readable, is_server=True))
    return tuple(commands)
