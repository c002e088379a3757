"""Hooks of a plugin: `[[hooks.EVENT]]` in one of its files, held to what the plugin declares.

The command of each hook is one of the plugin's declared commands. It runs in the sandbox, in the plugin's folder, and
may write in the session's folder, so the plugin declares `files = "write"`. What such a hook says is never an answer in
the user's name (`lyra.sage.extensions.hooks`).
"""

from __future__ import annotations

import shlex
from typing import Any

from lyra.config.hook_settings import hook_entries, read_hook
from lyra.core.checking.check import Mistake, Report
from lyra.core.checking.document import Path, parse, text_of
from lyra.core.rights.capability import Capability
from lyra.errors import ConfigError, ParseError
from lyra.sage.extensions.front_matter import one_line
from lyra.sage.extensions.hooks.hook import Hook, hook_from
from lyra.sage.extensions.plugins.manifest import PluginManifest


def read_plugin_hooks(
    data: bytes, path: str, manifest: PluginManifest, *, folder: str
) -> tuple[list[Hook], list[Mistake]]:
    """The hooks of a file of the plugin in `folder`, and the file's mistakes."""
    try:
        document, places = parse(text_of(data, path), "toml", path)
    except ParseError as error:
        return [], [Mistake.of(error)]
    except ConfigError as error:
        return [], [Mistake(path, 1, 1, error.message, error.hint)]
    report = Report(path, places)
    hooks: list[Hook] = []
    given = report.mapping(document, (), "a file of hooks", ("hooks",)) or {}
    where: Path = ("hooks",)
    try:
        for event, number, entry in hook_entries(given.get("hooks", {})):
            where = ("hooks", event, number - 1)
            hooks.append(_hook(event, entry, manifest, folder, f"hooks.{event} {number}"))
    except ConfigError as error:
        report.add(where, one_line(error.message), error.hint)
    if hooks and not manifest.permissions.allows_files("write"):
        report.add(("hooks",), "a hook needs files = 'write', which the plugin does not declare")
    return hooks, report.mistakes


def _hook(event: str, entry: Any, manifest: PluginManifest, folder: str, name: str) -> Hook:
    setting = read_hook(event, entry, name=name)
    line = setting.command if isinstance(setting.command, str) else shlex.join(setting.command)
    right = Capability("process.exec", line)
    if not manifest.permissions.allows(right):
        raise ConfigError(f"{name} needs {right}, which the plugin does not declare")
    return hook_from({"event": event, **entry}, source=f"plugin:{manifest.id}", base=folder)
