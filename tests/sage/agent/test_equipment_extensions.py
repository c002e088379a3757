"""Extensions in a session: suggested skills, commands of plugins, memory between sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.errors import ConfigError
from lyra.sage.commands.registry import run_command
from lyra.sage.extensions.plugins.store import PluginStore
from tests.sage.extensions.plugins.support import COMMAND, make
from tests.sage.extensions.support import put
from tests.sage.open_session import Project, call, say

SKILL = "---\ndescription: Makes a release\ntriggers: {keywords: [release]}\n---\nRelease it.\n"


def own(project: Project, name: str, text: str) -> Path:
    return put(project.home / ".config" / "lyra" / name, text)


def told(session: Any) -> str:
    """The last message of the user, as the model was sent it."""
    return str([message.text for message in session.messages if message.role == "user"][-1])


async def test_a_skill_that_fits_is_suggested(project: Project) -> None:
    """Beside the message: the model is told that it was the program, and the record has what the user typed."""
    own(project, "skills/release.md", SKILL)
    async with project.open() as session:
        await say(session, "make a release")
        assert "(Notice by the program, not by the user: Skills that may fit this message: release" in told(session)
        assert session.turns[-1].prompt == "make a release"
        await say(session, "look around")
        assert "Skills that may fit" not in told(session)


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
        assert (result.prompt, result.send_with["only"]) == ("Ship it.", ())
        store.disable("acme")
        with pytest.raises(ConfigError, match="acme:ship"):
            await run_command(session, "/acme:ship")


async def test_memory_is_shared_by_sessions_and_recalled_on_request(project: Project) -> None:
    async with project.open(call("Remember", text="prefers tabs", kind="preference"), {"text": "ok"}) as session:
        await say(session, "remember that")
    async with project.open() as session:
        assert [item.text for item in session.process.memory.items()] == ["prefers tabs"]
        await say(session, "hello")
        assert session.context().tokens.memory == 0
    async with project.open(flags=("sage.recall=true",)) as session:
        await say(session, "hello")
        assert session.context().tokens.memory > 0
