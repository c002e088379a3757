"""Folders of plugins that the tests write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.sage.extensions.support import put

MANIFEST = """\
schema = 1
id = "{id}"
name = "Some name"
version = "{version}"
description = "Some words"
{head}

[assets]
{assets}
"""
COMMAND = "---\ndescription: Ships\n---\nShip it.\n"
SKILL = "---\ndescription: Releases\n---\nRelease it.\n"
AGENT = "---\ndescription: Checks\n---\nCheck it.\n"


def make(folder: Path, files: dict[str, str] | None = None, **parts: Any) -> Path:
    """A plugin's folder with a manifest made of `id`, `version`, `head` and `assets`."""
    given = {"id": "acme", "version": "1.0", "head": "", "assets": "", **parts}
    put(folder / "plugin.toml", MANIFEST.format(**given))
    for name, text in (files or {}).items():
        put(folder / name, text)
    return folder
