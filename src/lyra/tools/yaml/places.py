"""The folders whose YAML tools are loaded by default: the user's own, and that of a trusted project.

This module stands alone: where there are no such folders, what reads the files is not loaded.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from lyra.config.trust import FolderTrust, trust_for
from lyra.core.user_folders import user_folder
from lyra.tools.builtin.workspace import Workspace

if TYPE_CHECKING:
    from lyra.tools.yaml.folder import DynamicTools

_PROJECTS: Final = os.path.join(".lyra", "tools")


def sources_here(
    workspace: Workspace, *, trusted: FolderTrust | bool | None = None, inside: Collection[str] = ()
) -> list[DynamicTools]:
    """Return the tools of `~/.config/lyra/tools`, and those files of `.lyra/tools` whose content is trusted, which read
    no variable. `trusted` is as for `load_layers`."""
    own = user_folder({**os.environ, "HOME": os.path.expanduser("~")}) or ""
    mine, theirs = os.path.join(own, "tools"), os.path.join(workspace.root, _PROJECTS)
    has_mine, has_theirs = os.path.isdir(mine), os.path.isdir(theirs)
    if not has_mine and not has_theirs:
        return []
    from lyra.tools.yaml.folder import DynamicTools

    sources = [DynamicTools(mine, workspace=workspace, inside=inside)] if has_mine else []
    if has_theirs:
        trust = trust_for(workspace.root, trusted)

        def accept(path: str, data: bytes) -> bool:
            return trust.covers(workspace.root, os.path.join(_PROJECTS, os.path.basename(path)), data)

        source = DynamicTools(theirs, workspace=workspace, secrets=(), inside=inside, accept=accept)
        if source.accepted:
            sources.append(source)
    return sources
