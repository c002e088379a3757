"""Equipment: what the agent of a session has beside the built-in tools: snapshots, skills, hooks, its system prompt.

Made once for a session that is open; `options` gives the HeadlessOptions with everything put in. Files of extensions
are looked at again at each turn (`refresh`). Nothing here decides on a call.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from lyra.agents.headless.headless import HeadlessOptions
from lyra.config import Config
from lyra.config.trust import trust_for
from lyra.core.tool import Tool
from lyra.sage.agent.kept_files import keeping_files
from lyra.sage.extensions.custom_commands import CustomCommands
from lyra.sage.extensions.hooks.hooks import Hooks
from lyra.sage.extensions.places import extension_places
from lyra.sage.extensions.skill_tool import SkillTools
from lyra.sage.extensions.skills import Skills
from lyra.sage.session.snapshots import Snapshots
from lyra.tools.source import ToolSource
from lyra.tools.wrapped import layered

__all__ = ["Equipment"]


class Equipment:
    """What a session in `folder` works with. `place` is the session's own folder."""

    def __init__(self, options: HeadlessOptions, config: Config, folder: str, place: Path) -> None:
        self._given = options
        trust = trust_for(folder, options.trust)
        self.places = extension_places(folder, trusted=trust)
        self.skills = Skills(self.places)
        self.commands = CustomCommands.load(self.places)
        self.hooks = Hooks.from_config(config, folder)
        self.snapshots = Snapshots(place, [folder, *options.also])
        self._folder = folder

    def options(self, **changes: Any) -> HeadlessOptions:
        """The options of the session with all that it has."""
        given = self._given
        return msgspec.structs.replace(
            given,
            tools=(*given.tools, SkillTools(self.skills)),
            wrap=self._wrapped,
            hooks=self.hooks or None,
            **changes,
        )

    def _wrapped(self, tools: Iterable[Tool | ToolSource]) -> list[Tool | ToolSource]:
        keeping = keeping_files(self.snapshots, self._folder)
        return [layered(tool, [keeping]) if isinstance(tool, Tool) else tool for tool in tools]

    def refresh(self) -> list[str]:
        """Look for changed files of extensions; sentences about those that cannot be used."""
        self.skills.refresh()
        self.commands.refresh()
        return [*self.skills.problems, *self.commands.problems]

    def close(self) -> None:
        self.snapshots.close()
