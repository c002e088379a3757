"""Commands about what the agent has: tools and memory."""

from __future__ import annotations

import pytest

from lyra.errors import ConfigError
from tests.sage.commands.shown import rows, run, words
from tests.sage.open_session import Project, say


async def test_tools_with_the_rules_for_them(project: Project) -> None:
    async with project.open(options={"allow": ("Bash(git *)",), "deny": ("WebFetch",)}) as session:
        listed = {row[0]: row[1] for row in rows(await run(session, "/tools"))}
        assert {"Read", "Write", "Bash", "Task", "Remember"} <= set(listed)
        assert (listed["Bash"], listed["WebFetch"], listed["Read"]) == ("allow Bash(git *)", "deny WebFetch", "")
        shown = await run(session, "/tools Bash")
        assert ["command", "required"] in [row[:2] for row in rows(shown)]
        assert words(shown).endswith("allow Bash(git *)")
        with pytest.raises(ConfigError, match="is none of") as caught:
            await run(session, "/tools Bahs")
        assert str(caught.value.hint).startswith("did you mean Bash?")


async def test_memory_is_shown_and_changed(project: Project) -> None:
    """What is added is recalled by the next message, where recall is on; what is forgotten is gone."""
    async with project.open(flags=("sage.recall=true",)) as session:
        assert "nothing is remembered" in words(await run(session, "/memory"))
        await run(session, "/memory add prefers tabs")
        await run(session, "/memory add fact: the tests take a minute")
        assert [(row[1], row[3]) for row in rows(await run(session, "/memory"))] == [
            ("preference", "prefers tabs"),
            ("fact", "the tests take a minute"),
        ]
        assert [row[3] for row in rows(await run(session, "/memory search minute"))] == ["the tests take a minute"]
        assert "fits" in words(await run(session, "/memory search elephants"))
        await say(session, "hello")
        assert session.context().tokens.memory > 0
        await run(session, "/memory forget 1")
        assert [row[0] for row in rows(await run(session, "/memory"))] == ["2"]
        with pytest.raises(ConfigError, match="no item 1"):
            await run(session, "/memory forget 1")
