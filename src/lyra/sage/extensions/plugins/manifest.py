"""PluginManifest: what `plugin.toml` says of a plugin: its id and version, and its parts.

    schema = 1
    id = "release-tools"
    name = "Release tools"
    version = "1.2.0"
    description = "Makes releases"

    [assets]
    commands = ["commands/ship.md"]
    skills = ["skills/release"]

A key that is not known, a path that leads out of the plugin or through a link, and a part that is not there are
mistakes. What earlier versions read besides (`GONE`) is passed over. Only this file and the folder's listing are read
here; `plugin` looks into the parts.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

import msgspec

from lyra.core.checking.check import Mistake, Report
from lyra.core.checking.document import parse, text_of
from lyra.core.checking.watched_files import read_plain_file
from lyra.errors import ConfigError, ParseError
from lyra.sage.extensions.extension_files import one_line

MANIFEST: Final = "plugin.toml"
SCHEMA: Final = 1
# The folder that a part lies in, where it has to be a certain one, and how its name ends.
ASSET_KINDS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "commands": ("commands", (".md",)),
    "skills": ("skills", (".md", "")),  # a file, or the folder of a SKILL.md
    "agents": ("agents", (".md",)),
    "hooks": ("", (".toml",)),
    "mcp_servers": ("", (".toml",)),
}
GONE: Final = ("dependencies", "permissions")  # keys of manifests of earlier versions
_GONE_ASSETS: Final = ("tools",)
_KEYS: Final = ("schema", "id", "name", "version", "description", "assets", *GONE)
_NEEDED: Final = ("schema", "id", "name", "version", "description")
_ID: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*\Z")
_ID_CHARS_MAX: Final = 40
_VERSION: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}\Z")
_RESERVED_IDS: Final = frozenset({"lyra", "sage", "user", "project", "plugin", "built-in", "mcp"})
_MANIFEST_BYTES_MAX: Final = 64 * 1024
_ASSETS_MAX: Final = 200


class PluginManifest(msgspec.Struct, frozen=True, kw_only=True):
    """`assets` are the paths of its parts by kind, relative to the plugin's folder; `passed_over` are keys that mean
    nothing any more."""

    id: str
    name: str
    version: str
    description: str
    assets: dict[str, tuple[str, ...]] = {}
    passed_over: tuple[str, ...] = ()


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
        assets=_assets(given.get("assets", {}), folder, report),
        passed_over=_list_gone(given),
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


def _list_gone(given: dict[str, Any]) -> tuple[str, ...]:
    assets = given.get("assets")
    parts = [f"assets.{kind}" for kind in _GONE_ASSETS if isinstance(assets, dict) and kind in assets]
    return (*(key for key in GONE if key in given), *parts)


def _assets(value: Any, folder: str, report: Report) -> dict[str, tuple[str, ...]]:
    given = report.mapping(value, ("assets",), "assets", (*ASSET_KINDS, *_GONE_ASSETS)) or {}
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
