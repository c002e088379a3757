"""The folders whose YAML tools are loaded by default: the user's own, and that of a trusted project."""

from __future__ import annotations

import os
from collections.abc import Collection

from lyra.tools.builtin.workspace import Workspace
from lyra.tools.permissions.answers import config_folder
from lyra.tools.yaml.folder import DynamicTools

__all__ = ["sources_here"]


def sources_here(workspace: Workspace, *, trusted: bool, inside: Collection[str] = ()) -> list[DynamicTools]:
    """The tools of `~/.config/lyra/tools`, and of `.lyra/tools` in a trusted project, which read no variable."""
    places: list[tuple[str, tuple[str, ...] | None]] = [(os.path.join(config_folder(), "tools"), None)]
    if trusted:
        places.append((os.path.join(workspace.root, ".lyra", "tools"), ()))
    return [
        DynamicTools(path, workspace=workspace, secrets=secrets, inside=inside)
        for path, secrets in places
        if os.path.isdir(path)
    ]
