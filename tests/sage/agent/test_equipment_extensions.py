"""Extensions in a session: skills, commands of plugins, and no memory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra.errors import ConfigError
from lyra.sage.commands.registry import run_command
from lyra.sage.extensions.plugins.store import PluginStore
from tests.sage.extensions.plugins.support import COMMAND, make
from tests.sage.extensions.support import put
from tests.sage.open_session import Project, say

SKILL = "---\ndescription: Makes a release\n---\nRelease it.\n"


def own(project: Project, name: str, text: str) -> Path:
    return put(project.home / ".config" / "lyra" / name, text)


async def test_a_skill_is_read_by_the_model_and_started_by_a_person(project: Project) -> None:
    own(project, "skills/release.md", SKILL)
    reply = {"tool_calls": [{"name": "Skill", "arguments": {"name": "release"}}]}
    async with project.open(reply, {"text": "done"}) as session:
        lines = await say(session, "go")
        assert [line["output"] for line in lines if line["type"] == "tool_end"] == ["Release it."]
        result = await run_command(session, "/release now")
        assert result.prompt == "Release it.\n\nnow"


async def test_a_plugin_that_is_enabled_counts_in_the_open_session(project: Project, tmp_path: Path) -> None:
    async with project.open() as session:
        store = PluginStore()
        store.install(make(tmp_path / "acme", {"commands/ship.md": COMMAND}, assets='commands = ["commands/ship.md"]'))
        store.enable("acme")
        result = await run_command(session, "/acme:ship")
        assert (result.prompt, result.send_with) == ("Ship it.", {})
        store.disable("acme")
        with pytest.raises(ConfigError, match="acme:ship"):
            await run_command(session, "/acme:ship")


async def test_a_session_has_no_memory_beside_the_rules(project: Project) -> None:
    """A setting of an earlier version is named in a note, and changes nothing."""
    async with project.open(flags=("sage.recall=true",)) as session:
        assert {"Read", "Remember", "Recall"} & set(session.headless.agent.tools) == {"Read"}
        (note,) = session.headless.config.notes
        assert note.startswith("--set sage.recall: sage.recall means nothing any more: ")
