"""PluginManifest: what `plugin.toml` says of a plugin: its id and version, its parts, what it needs and may use.

    schema = 1
    id = "release-tools"
    name = "Release tools"
    version = "1.2.0"
    description = "Makes releases"
    dependencies = ["git-tools>=1.0"]

    [assets]
    commands = ["commands/ship.md"]
    skills = ["skills/release"]

    [permissions]
    tools = ["Read"]

A key that is not known, a path that leads out of the plugin or through a link, and a part that is not there are
mistakes. Only this file and the folder's listing are read here; `plugin` looks into the parts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self

import msgspec

from lyra.core.checking.check import Mistake, Report
from lyra.core.checking.document import parse, text_of
from lyra.core.checking.watched_files import read_plain_file
from lyra.core.rights.capability import Capability, Grant
from lyra.errors import ConfigError, ParseError
from lyra.sage.extensions.extension_files import one_line
from lyra.tools.permissions.rules import Rule

# ---------------------------------------------------------------- permissions

FILES: Final = ("none", "read", "write")
_LISTS: Final = ("tools", "commands", "hosts", "variables")
_VERBS: Final = {"commands": "process.exec", "hosts": "net.http", "variables": "secrets.read"}
_ENTRIES_MAX: Final = 50
_ENTRY_CHARS_MAX: Final = 500


class PluginPermissions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that the parts of one plugin may use, as its manifest declares it and its user agrees to it."""

    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    files: str = "none"

    @classmethod
    def read(cls, value: Any, report: Report) -> Self:
        """Return the table `[permissions]`; what is wrong goes to the report."""
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
        """Return whether all that `other` declares is declared here."""
        lists = all(set(getattr(other, key)) <= set(getattr(self, key)) for key in _LISTS)
        return lists and FILES.index(other.files) <= FILES.index(self.files)

    def allows(self, capability: Capability) -> bool:
        """Return whether a command line or a host is covered. A pattern with a wildcard covers no chain of commands."""
        return self._outside.allows(capability)

    def allows_files(self, level: str) -> bool:
        return FILES.index(level) <= FILES.index(self.files)

    def grant(self, folder: str) -> Grant:
        """Return the rights of its tools in a session's folder."""
        verbs = {"none": (), "read": ("fs.read",), "write": ("fs.read", "fs.write")}[self.files]
        return Grant([*self._rights, *(Capability(verb, f"{folder.rstrip('/')}/**") for verb in verbs)])

    @property
    def _outside(self) -> Grant:
        return Grant(self._rights)

    @property
    def _rights(self) -> list[Capability]:
        return [Capability(verb, scope) for key, verb in _VERBS.items() for scope in getattr(self, key)]

    # ------------------------------------------------------------ for a person
    def describe(self) -> list[str]:
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


MANIFEST: Final = "plugin.toml"
SCHEMA: Final = 1
# The folder that a part lies in, where it has to be a certain one, and how its name ends.
ASSET_KINDS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "commands": ("commands", (".md",)),
    "skills": ("skills", (".md", "")),  # a file, or the folder of a SKILL.md
    "agents": ("agents", (".md",)),
    "tools": ("", (".yaml", ".yml", ".toml", ".json")),
    "hooks": ("", (".toml",)),
    "mcp_servers": ("", (".toml",)),
}
_KEYS: Final = ("schema", "id", "name", "version", "description", "dependencies", "assets", "permissions")
_NEEDED: Final = ("schema", "id", "name", "version", "description")
_ID: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*\Z")
_ID_CHARS_MAX: Final = 40
_VERSION: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}\Z")
_DEPENDENCY: Final = re.compile(r"([a-z][a-z0-9-]{0,39})(?:>=([0-9.]{1,30}))?\Z")
_RESERVED_IDS: Final = frozenset({"lyra", "sage", "user", "project", "plugin", "built-in", "mcp"})
_MANIFEST_BYTES_MAX: Final = 64 * 1024
_ASSETS_MAX: Final = 200
_LIST_MAX: Final = 50


class PluginDependency(NamedTuple):
    """A plugin that has to be enabled; `least` is the smallest version, "" any."""

    id: str
    least: str = ""

    def __str__(self) -> str:
        return f"{self.id}>={self.least}" if self.least else self.id


class PluginManifest(msgspec.Struct, frozen=True, kw_only=True):
    """`assets` are the paths of its parts by kind, relative to the plugin's folder."""

    id: str
    name: str
    version: str
    description: str
    dependencies: tuple[PluginDependency, ...] = ()
    assets: dict[str, tuple[str, ...]] = {}
    permissions: PluginPermissions = PluginPermissions()


def version_key(version: str) -> tuple[int, ...]:
    """Return a version as numbers that compare: 1.10 comes after 1.9, and 1.0 is 1."""
    numbers = [int(part) for part in version.split(".") if part]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def read_manifest(folder: str) -> tuple[PluginManifest | None, list[Mistake]]:
    """Return the manifest of a plugin's folder, or what is wrong with it."""
    path = os.path.join(folder, MANIFEST)
    try:
        data = read_plain_file(path, _MANIFEST_BYTES_MAX, follow_links=False)
        document, places = parse(text_of(data, path), "toml", path)
    except OSError as error:
        return None, [Mistake(path, 1, 1, f"it cannot be read: {error.strerror}")]
    except ParseError as error:
        return None, [Mistake.from_error(error)]
    except ConfigError as error:
        return None, [Mistake(path, 1, 1, error.message, error.hint)]
    report = Report(path, places)
    manifest = _manifest(document, folder, report)
    mistakes = sorted(report.mistakes, key=lambda mistake: mistake.line)
    return (None if mistakes else manifest), mistakes


def _manifest(document: Any, folder: str, report: Report) -> PluginManifest:
    given = report.mapping(document, (), "a plugin", _KEYS) or {}
    for key in _NEEDED:
        if key not in given:
            report.add((), f"a plugin has a key {key!r}")
    if "schema" in given and (type(given["schema"]) is not int or given["schema"] != SCHEMA):
        report.add(("schema",), f"schema is {SCHEMA}, the only one that this version reads")
    return PluginManifest(
        id=_id(given, report),
        name=_line(given, "name", report, most=80),
        version=_version(given, report),
        description=_line(given, "description", report, most=300),
        dependencies=_dependencies(given, report),
        assets=_assets(given.get("assets", {}), folder, report),
        permissions=PluginPermissions.read(given.get("permissions", {}), report),
    )


def _id(given: dict[str, Any], report: Report) -> str:
    value = given.get("id", "")
    if "id" in given and (not isinstance(value, str) or not _ID.match(value) or len(value) > _ID_CHARS_MAX):
        report.add(("id",), f"an id has small letters, digits and single '-', at most {_ID_CHARS_MAX} characters")
        return ""
    if value in _RESERVED_IDS:
        report.add(("id",), f"{value} is a name of Sage's own, and no plugin can take it")
    return str(value)


def _line(given: dict[str, Any], key: str, report: Report, *, most: int) -> str:
    if key not in given:
        return ""
    text = report.text(given[key], (key,), key, most=most)
    line = one_line(text) if text is not None else ""
    if text is not None and not line:
        report.add((key,), f"{key} has no visible character")
    return line


def _version(given: dict[str, Any], report: Report) -> str:
    value = given.get("version", "")
    if "version" in given and (not isinstance(value, str) or not _VERSION.match(value)):
        report.add(("version",), "a version is a text of numbers and dots, such as '1.2.0'")
        return ""
    return str(value)


def _dependencies(given: dict[str, Any], report: Report) -> tuple[PluginDependency, ...]:
    value = given.get("dependencies", [])
    if not isinstance(value, list) or len(value) > _LIST_MAX:
        report.add(("dependencies",), f"dependencies is a list of at most {_LIST_MAX} ids")
        return ()
    dependencies = []
    for index, text in enumerate(value):
        match = _DEPENDENCY.match(text) if isinstance(text, str) else None
        if match is None or (match[2] and not _VERSION.match(match[2])) or match[1] == given.get("id"):
            report.add(("dependencies", index), "a dependency is another plugin's id, or such as 'other>=1.2'")
        else:
            dependencies.append(PluginDependency(match[1], match[2] or ""))
    return tuple(dependencies)


# ---------------------------------------------------------------- the parts
def _assets(value: Any, folder: str, report: Report) -> dict[str, tuple[str, ...]]:
    given = report.mapping(value, ("assets",), "assets", ASSET_KINDS) or {}
    assets: dict[str, tuple[str, ...]] = {}
    for kind, paths in given.items():
        if kind not in ASSET_KINDS:
            continue
        if not isinstance(paths, list) or len(paths) > _ASSETS_MAX:
            report.add(("assets", kind), f"{kind} is a list of at most {_ASSETS_MAX} paths")
            continue
        checked = [_asset(path, ("assets", kind, index), folder, report) for index, path in enumerate(paths)]
        assets[kind] = tuple(path for path in checked if path)
        for path in {path for path in assets[kind] if assets[kind].count(path) > 1}:
            report.add(("assets", kind), f"{one_line(path)} is named twice")
    return assets


def _asset(value: Any, path: tuple[str | int, ...], folder: str, report: Report) -> str:
    """Return the normal form of a part's path; "" where it cannot be one."""
    kind = str(path[1])
    home, endings = ASSET_KINDS[kind]
    if not isinstance(value, str) or not value or len(value) > 300 or not value.isprintable():
        report.add(path, "a path is a short text")
        return ""
    inside = os.path.normpath(value)
    parts = inside.split("/")
    if value.startswith(("/", "~")) or "\\" in value or ".." in value.split("/") or parts[0].startswith("."):
        report.add(path, f"{value!r} leads out of the plugin, or is hidden")
        return ""
    if home and (parts[0] != home or len(parts) < 2):
        report.add(path, f"{kind} lie in the folder {home}/")
        return ""
    if os.path.splitext(inside)[1].lower() not in endings:
        report.add(path, f"the name of such a file ends in {', '.join(ending for ending in endings if ending)}")
        return ""
    problem = _problem_on_disk(folder, parts)
    if problem:
        report.add(path, f"{value!r} {problem}")
        return ""
    return inside


def _problem_on_disk(folder: str, parts: list[str]) -> str:
    whole = folder
    for part in parts:
        whole = os.path.join(whole, part)
        if os.path.islink(whole):
            return "is a link, or lies behind one"
    return "" if os.path.exists(whole) else "does not exist"
