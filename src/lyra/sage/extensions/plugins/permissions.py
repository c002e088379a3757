"""PluginPermissions: all that the parts of one plugin may use, as its manifest declares it and its user agrees to it.

    [permissions]
    tools = ["Read", "Bash(git diff *)"]     # for its commands, skills and sub-agents
    commands = ["./check.sh", "git diff *"]  # lines that its hooks, servers and tools run
    hosts = ["api.example.com"]              # hosts that its servers and tools reach
    variables = ["EXAMPLE_TOKEN"]            # variables of the environment that they are given
    files = "read"                           # the session's folder: none, read or write

What is not named is not allowed. A declaration is checked when the plugin is read, against each of its parts; `grant`
holds while a tool of it runs, whatever the process that calls it may do besides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

import msgspec

from lyra.core.checking.check import Report
from lyra.core.rights.capability import Capability, Grant
from lyra.errors import ConfigError
from lyra.sage.extensions.front_matter import one_line
from lyra.tools.permissions.rules import Rule

FILES: Final = ("none", "read", "write")
_LISTS: Final = ("tools", "commands", "hosts", "variables")
_VERBS: Final = {"commands": "process.exec", "hosts": "net.http", "variables": "secrets.read"}
_ENTRIES_MAX: Final = 50
_ENTRY_CHARS_MAX: Final = 500


class PluginPermissions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    files: str = "none"

    @classmethod
    def read(cls, value: Any, report: Report) -> Self:
        """The table `[permissions]`; what is wrong goes to the report."""
        path = ("permissions",)
        given = report.mapping(value, path, "permissions", (*_LISTS, "files")) or {}
        lists: dict[str, tuple[str, ...]] = {key: _texts(given[key], key, report) for key in _LISTS if key in given}
        for index, tool in enumerate(lists.get("tools", ())):
            _check(report, (*path, "tools", index), Rule, tool, "allow")
        for key, verb in _VERBS.items():
            for index, scope in enumerate(lists.get(key, ())):
                _check(report, (*path, key, index), _rule_of_grant, verb, scope)
        files = report.word(given["files"], (*path, "files"), "files", FILES) if "files" in given else "none"
        return cls(files=files or "none", **lists)

    # ------------------------------------------------------------ what they cover
    def covers(self, other: PluginPermissions) -> bool:
        """Whether all that `other` declares is declared here."""
        lists = all(set(getattr(other, key)) <= set(getattr(self, key)) for key in _LISTS)
        return lists and FILES.index(other.files) <= FILES.index(self.files)

    def allows(self, capability: Capability) -> bool:
        """Whether a command line or a host is covered. A pattern with a wildcard covers no chain of commands."""
        return self._outside.allows(capability)

    def allows_files(self, level: str) -> bool:
        return FILES.index(level) <= FILES.index(self.files)

    def grant(self, folder: str) -> Grant:
        """The rights of its tools in a session's folder."""
        verbs = {"none": (), "read": ("fs.read",), "write": ("fs.read", "fs.write")}[self.files]
        return Grant([*self._rights, *(Capability(verb, f"{folder.rstrip('/')}/**") for verb in verbs)])

    @property
    def _outside(self) -> Grant:
        return Grant(self._rights)

    @property
    def _rights(self) -> list[Capability]:
        return [Capability(verb, scope) for key, verb in _VERBS.items() for scope in getattr(self, key)]

    # ------------------------------------------------------------ for a person
    def described(self) -> list[str]:
        """Everything that a person agrees to, one line each."""
        words = {
            "tools": "commands, skills and sub-agents of it use the tools",
            "commands": "it runs the commands",
            "hosts": "it reaches the hosts",
            "variables": "it is given your variables",
        }
        lines = [f"{words[key]}: {', '.join(getattr(self, key))}" for key in _LISTS if getattr(self, key)]
        if self.files != "none":
            lines.append({"read": "it reads", "write": "it reads and writes"}[self.files] + " the session's folder")
        return [one_line(line) for line in lines]

    def to_data(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def _texts(value: Any, key: str, report: Report) -> tuple[str, ...]:
    path = ("permissions", key)
    if not isinstance(value, list) or len(value) > _ENTRIES_MAX:
        report.add(path, f"{key} is a list of at most {_ENTRIES_MAX} texts")
        return ()
    for index, text in enumerate(value):
        if not isinstance(text, str) or not 0 < len(text) <= _ENTRY_CHARS_MAX or one_line(text) != text:
            report.add((*path, index), f"it is one line of at most {_ENTRY_CHARS_MAX} visible characters")
    return tuple(dict.fromkeys(text for text in value if isinstance(text, str) and text))


def _rule_of_grant(verb: str, scope: str) -> Grant:
    return Grant([Capability(verb, scope)])


def _check(report: Report, path: tuple[str | int, ...], make: Callable[..., object], *arguments: str) -> None:
    try:
        make(*arguments)
    except ConfigError as error:
        report.add(path, error.message, error.hint)
