"""Hooks of a live session: those of the settings files and of the program, told the session's id and its moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lyra.agents.declaration.hooks import HookOutcome
from lyra.errors import ConfigError
from lyra.sage.extensions.hooks import Hook, Hooks
from tests.sage.extensions.hooks.support import records, seen, user_file
from tests.sage.open_session import Project, call, say

LOGGED = "".join(
    f'[[hooks.{event}]]\ncommand = "cat >> log.jsonl"\n' for event in ("SessionStart", "SessionEnd", "Stop")
)


async def test_a_session_tells_hooks_how_it_begins_and_ends(project: Project) -> None:
    """New, cleared, resumed; each with the id of the session. Another model is no new session."""
    user_file(project, LOGGED)
    async with project.open() as session:
        await say(session, "hello")
        await session.set_model("sim/echo")
        await session.clear()
        session_id = session.id
    async with project.open(resume=""):
        pass
    log = records(project)
    assert [(record["event"], record.get("source") or record.get("reason")) for record in log] == [
        ("SessionStart", "new"),
        ("Stop", None),
        ("SessionEnd", "clear"),
        ("SessionStart", "clear"),
        ("SessionEnd", "exit"),
        ("SessionStart", "resume"),
        ("SessionEnd", "exit"),
    ]
    assert {record["session_id"] for record in log} == {session_id}


async def test_context_of_the_start_survives_another_model(project: Project) -> None:
    """It waits for the first message, whichever model that is for."""
    hooks = Hooks([Hook("SessionStart", lambda _: "the rules")], folder=str(project.folder))
    async with project.open(options={"hooks": hooks}) as session:
        await session.set_model("sim/echo")
        await say(session, "hello")
        assert session.messages[0].text == "hello\n\n[added by a hook]\nthe rules"


async def test_hooks_of_the_program_are_joined_by_those_of_the_files(project: Project) -> None:
    user_file(project, LOGGED)
    log: list[dict[str, Any]] = []
    hooks = Hooks([seen("Stop", log)], folder=str(project.folder))
    async with project.open(options={"hooks": hooks}) as session:
        await say(session, "hello")
    assert [data["session_id"] for data in log] == [session.id]
    assert "Stop" in [record["event"] for record in records(project)]


async def test_hooks_of_the_files_are_never_left_out(project: Project) -> None:
    """A program with hooks of another kind, which could not run them, is told so."""

    class Other:
        def status_for(self, _event: str, _data: Mapping[str, Any]) -> str | None:
            return None

        async def run(self, _event: str, _data: Mapping[str, Any]) -> HookOutcome:
            return HookOutcome()

    async with project.open(options={"hooks": Other()}) as session:
        await say(session, "hello")
    user_file(project, LOGGED)
    with pytest.raises(ConfigError, match="Other cannot run"):
        async with project.open(options={"hooks": Other()}):
            pass


async def test_two_sessions_with_the_same_hooks_have_their_own_ids(project: Project) -> None:
    log: list[dict[str, Any]] = []
    hooks = Hooks([seen("Stop", log)], folder=str(project.folder))
    async with project.open(options={"hooks": hooks}) as left, project.open(options={"hooks": hooks}) as right:
        await say(left, "hello")
        await say(right, "hello")
    assert [data["session_id"] for data in log] == [left.id, right.id]


async def test_sub_agents_of_a_session_have_its_hooks(project: Project) -> None:
    """Those that are tasks of the session, too: they begin, call tools and stop with its hooks, in its name."""
    project.write("a.txt", "alpha")
    log: list[dict[str, Any]] = []
    events = ("SubagentStart", "PreToolUse", "SubagentStop", "Stop", "UserPromptSubmit")
    hooks = Hooks([seen(event, log) for event in events], folder=str(project.folder))
    replies = (
        call("Task", description="look", prompt="Find it.", subagent_type="Explore"),
        call("Read", file_path="a.txt"),
        {"text": "It is alpha."},
        {"text": "Done."},
    )
    async with project.open(*replies, options={"hooks": hooks}) as session:
        lines = await say(session, "go")
    assert lines[-1]["text"] == "Done."
    assert [(data["event"], data.get("agent_type"), data["session_id"] == session.id) for data in log] == [
        ("UserPromptSubmit", None, True),
        ("PreToolUse", None, True),
        ("SubagentStart", "Explore", True),
        ("PreToolUse", "Explore", True),
        ("SubagentStop", "Explore", True),
        ("Stop", None, True),
    ]
