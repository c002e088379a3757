"""The MCP servers of the plugins that count, for a session that begins. Without a plugin nothing is imported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lyra.core.user_folders import data_folder

if TYPE_CHECKING:
    from lyra.mcp.settings import ServerSettings


def plugin_servers(folder: str) -> list[ServerSettings]:
    """The servers, for a session in this folder."""
    if not os.path.isdir(data_folder() / "plugins"):
        return []
    from lyra.sage.extensions.plugins.store import PluginStore

    return [server for plugin in PluginStore().active()[0] for server in plugin.servers(os.path.realpath(folder))]
