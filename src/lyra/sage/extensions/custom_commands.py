"""Slash commands from Markdown files: `commands/git/commit.md` is `/git:commit`; its text becomes the prompt.

    ---
    description: Write a commit message
    argument_hint: "[scope]"
    allowed_tools: Read, Bash(git diff *)
    ---
    Write a commit message for the staged changes. Scope: $ARG1

`$ARGUMENTS` is all that follows the command, as it was typed; `$ARG1`, `$ARG2` … are its words, split as a shell does;
`$ARGUMENTS_JSON` is the list of words; a name of `arguments` is the word at its place (`$scope`). A value is put in as
text and never looked through again for variables. `@file` attaches a file, as in a prompt (`agent/attachments`).
A file cannot take a name of Sage's own, and those of plugins come before a project's, a project's before the user's.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Collection, Iterable
from typing import Final, Self

import msgspec

from lyra.core.checking.check import Mistake
from lyra.core.clock import Clock
from lyra.errors import ConfigError
from lyra.sage.extensions.extension_files import (
    NAME,
    ExtensionFiles,
    ExtensionPlace,
    MarkdownFile,
    one_line,
)

# The slash commands that Sage has, and those that people expect of it: a file cannot take such a name.
BUILT_IN_COMMANDS: Final = frozenset(
    (
        *("help", "clear", "compact", "init", "config", "checkpoint", "restore", "undo", "cost", "context", "status"),
        *(
            "resume",
            "fork",
            "plan",
            "title",
            "model",
            "effort",
            "output",
            "tools",
            "mcp",
            "permissions",
            "memory",
            "tasks",
        ),
        *("diff", "review", "doctor", "export", "exit", "quit", "agents", "skills", "plugins", "hooks", "mode"),
        *(
            "usage",
            "sessions",
            "trust",
            "login",
            "logout",
            "reload",
            "theme",
            "version",
            "commands",
            "expand",
            "rewind",
        ),
        *("add-dir", "redo"),
    )
)
_KEYS: Final = ("description", "argument_hint", "arguments", "allowed_tools", "model")
_ARGUMENT: Final = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")
_PLACEHOLDER: Final = re.compile(r"\$(ARGUMENTS_JSON\b|ARGUMENTS\b|ARG([1-9][0-9]?)\b|([a-z][a-z0-9_]{0,31})\b)")
_ARGUMENTS_CHARS_MAX: Final = 100_000
_HINT_CHARS_MAX: Final = 120


class CustomCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command. `allowed_tools` are rules: for the message that it becomes, no other call is allowed; None has no
    limit. `model` "" is the session's."""

    name: str
    description: str
    body: str
    argument_hint: str = ""
    arguments: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] | None = None
    model: str = ""
    source: str = ""  # the file
    origin: str = "user"  # or project, plugin
    plugin: str = ""

    def expand(self, args: str = "") -> str:
        """Return the prompt for these arguments; ConfigError where they cannot be split."""
        return expand(self.body, args, self.arguments)


def expand(body: str, args: str, names: Collection[str] = ()) -> str:
    """Return a text with its variables replaced. Where it has none, arguments are put below it, so that they are not
    lost."""
    args = args.strip()
    if len(args) > _ARGUMENTS_CHARS_MAX:
        raise ConfigError(f"the arguments have at most {_ARGUMENTS_CHARS_MAX} characters, not {len(args)}")
    words: list[str] | None = None
    used = False

    def split() -> list[str]:
        nonlocal words
        if words is None:
            words = _words(args)
        return words

    def value(match: re.Match[str]) -> str:
        nonlocal used
        word, number, name = match[1], match[2], match[3]
        if name is not None and name not in names:
            return match[0]
        used = True
        if word == "ARGUMENTS":
            return args
        if word == "ARGUMENTS_JSON":
            return json.dumps(split(), ensure_ascii=False)
        index = int(number) - 1 if number else list(names).index(name)
        return split()[index] if index < len(split()) else ""

    text = _PLACEHOLDER.sub(value, body)
    return text if used or not args else f"{text}\n\n{args}"


def _words(args: str) -> list[str]:
    try:
        return shlex.split(args)
    except ValueError as error:
        raise ConfigError(
            f"the arguments cannot be split into words: {error}", hint="close the quote, or put it in quotes"
        ) from None


class CustomCommands(ExtensionFiles[CustomCommand]):
    """The commands of some places, as their files are now. `reserved` are further names that a file cannot take."""

    KIND = "commands"
    WORD = "a command"

    def __init__(
        self, places: Iterable[ExtensionPlace], *, reserved: Iterable[str] = (), clock: Clock | None = None
    ) -> None:
        self._reserved = BUILT_IN_COMMANDS | {name.lower() for name in reserved}
        super().__init__(places, clock=clock)

    @classmethod
    def load(cls, places: Iterable[ExtensionPlace], *, reserved: Iterable[str] = ()) -> Self:
        return cls(places, reserved=reserved)

    def _read(self, data: bytes, path: str, place: ExtensionPlace) -> tuple[CustomCommand | None, list[Mistake]]:
        file, mistakes = MarkdownFile.parse(data, path, _KEYS, self.WORD)
        if file is None:
            return None, mistakes
        command = self._command(file, place)
        return (None if file.report.mistakes else command), file.report.mistakes

    def _command(self, file: MarkdownFile, place: ExtensionPlace) -> CustomCommand:
        name = self._name(file, place)
        arguments = file.texts("arguments", _ARGUMENT.match, "the name of an argument: small letters, digits and '_'")
        return CustomCommand(
            name=name,
            description=file.text("description") or one_line(file.body.split("\n", 1)[0].lstrip("# "))[:200],
            body=file.body,
            argument_hint=file.text("argument_hint", most=_HINT_CHARS_MAX),
            arguments=arguments or (),
            allowed_tools=file.tools("allowed_tools"),
            model=file.text("model"),
            source=file.path,
            origin=place.origin,
            plugin=place.plugin,
        )

    def _name(self, file: MarkdownFile, place: ExtensionPlace) -> str:
        """Return the name that the path says: folders are joined by `:`, and a plugin's id comes first."""
        inside = os.path.relpath(file.path, os.path.join(place.folder, self.KIND))
        parts = inside[: -len(".md")].split(os.sep)
        for part in parts:
            if not NAME.match(part):
                file.report.add((), f"{one_line(part)!r} is not a name: use letters, digits, '_' and '-'")
        name = ":".join(parts)
        if place.plugin:
            return f"{place.plugin}:{name}"
        if parts[0].lower() in self._reserved:
            file.report.add((), f"/{one_line(parts[0])} is a command of Sage's own, and a file cannot take it")
        return name
