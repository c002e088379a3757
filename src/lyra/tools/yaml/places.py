"""The folders whose YAML tools are loaded by default: the user's own, and that of a trusted project."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from lyra.config.trust import FolderTrust, trust_for
from lyra.core.user_folder import user_folder
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.yaml.folder import DynamicTools

__all__ = ["sources_here"]

_PROJECTS: Final = os.path.join(".lyra", "tools")


def sources_here(
    workspace: Workspace, *, trusted: FolderTrust | bool | None = None, inside: Collection[str] = ()
) -> list[DynamicTools]:
    """The tools of `~/.config/lyra/tools`, and those files of `.lyra/tools` whose content is trusted, which read no
    variable. `trusted` is as for `load_layers`."""
    own = user_folder({**os.environ, "HOME": os.path.expanduser("~")}) or ""
    mine = os.path.join(own, "tools")
    sources = [DynamicTools(mine, workspace=workspace, inside=inside)] if os.path.isdir(mine) else []
    theirs = os.path.join(workspace.root, _PROJECTS)
    if os.path.isdir(theirs):
        trust = trust_for(workspace.root, trusted)

        def accept(path: str, data: bytes) -> bool:
            return trust.covers(workspace.root, os.path.join(_PROJECTS, os.path.basename(path)), data)

        source = DynamicTools(theirs, workspace=workspace, secrets=(), inside=inside, accept=accept)
        if source.accepted:
            sources.append(source)
    return sources
