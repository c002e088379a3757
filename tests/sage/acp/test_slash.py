"""Slash commands in an editor: each that is offered does what it says there, the others are answered with words."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import helpers

from lyra.sage.acp import ELSEWHERE, is_command
from lyra.sage.commands.registry import ALIASES, COMMANDS
from tests.sage.acp.test_client import Desk, call, text

# Every command of the table that is offered, with arguments, and words that its answer has.
SHOWN = {
    "help": ("help undo", "Restore files"),
    "context": ("context", "tokens"),
    "cost": ("cost", "this session"),
    "status": ("status", "sim/script"),
    "diff": ("diff", "a.txt"),
    "effort": ("effort", "medium"),
    "rewind": ("rewind", "restores files and conversation"),
    "add-dir": ("add-dir", "/add-dir FOLDER adds one"),
    "checkpoint": ("checkpoint here", "/restore here"),
    "restore": ("restore here", "back at"),
    "tools": ("tools Read", "file_path"),
    "mcp": ("mcp", "no MCP server"),
    "memory": ("memory add tabs, not blanks", "AGENTS.md; it counts"),
    "tasks": ("tasks", "no sub-agent"),
    "commands": ("commands", "git-commit"),
    "config": ("config", "every setting has its default"),
    "doctor": ("doctor", "sandbox"),
    "export": ("export told.md", "wrote"),
    "permissions": ('permissions allow "Bash(ls)"', "allow Bash(ls)"),
    "undo": ("undo", "turn 1 is undone"),
    "redo": ("redo", "as before the undo"),
    "clear": ("clear", "a new conversation begins"),
    "compact": ("compact", "nothing to compact"),
}
CHANGING = {"title", "plan", "model"}
PROMPTS = {"init", "review"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_every_command_is_offered_or_answered() -> None:
    """A new command of the table needs a row here, or a sentence in ELSEWHERE."""
    assert {*SHOWN, *CHANGING, *PROMPTS, *ELSEWHERE} == set(COMMANDS)
    assert {"resume", "fork", "exit"} <= set(ELSEWHERE)


def test_a_path_is_no_command() -> None:
    assert is_command("/undo 3")
    assert is_command("/")
    assert not is_command("/usr/lib is broken")
    assert not is_command("undo")


@pytest.mark.slow
async def test_what_is_offered_does_what_it_says(desk: Desk) -> None:
    """Each command that shows something shows it, and undo restores the file."""
    write = call("Write", file_path="a.txt", content="new")
    async with desk.editor(write, {"text": "done"}) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        offered = {command.name for command in editor.of("available_commands_update")[0].available_commands}
        assert offered & set(COMMANDS) == set(COMMANDS) - set(ELSEWHERE)
        await agent.prompt(session_id=session, prompt=text("write"))
        for command, expected in SHOWN.values():
            editor.take()
            done = await agent.prompt(session_id=session, prompt=text(f"/{command}"))
            assert done.stop_reason == "end_turn"
            assert expected in editor.text(), command
        assert (desk.work / "a.txt").exists()  # undone, and done again
        assert (desk.work / "told.md").exists()


@pytest.mark.slow
async def test_what_is_not_offered_is_answered_with_how_it_is_done(desk: Desk) -> None:
    """As a message and not as an error; /help does not list it, and nothing becomes of the session."""
    async with desk.editor({"text": "Here."}) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        await agent.prompt(session_id=session, prompt=text("hi"))
        for typed in (*ELSEWHERE, *(alias for alias, name in ALIASES.items() if name in ELSEWHERE), "fork 1"):
            editor.take()
            done = await agent.prompt(session_id=session, prompt=text(f"/{typed}"))
            assert done.stop_reason == "end_turn"
            assert "Here " in editor.text()
        editor.take()
        await agent.prompt(session_id=session, prompt=text("/resume"))
        assert "session/list" in editor.text()
        assert "session/load" in editor.text()
        editor.take()
        await agent.prompt(session_id=session, prompt=text("/help"))
        assert "/undo" in editor.text()
        assert not any(f"/{name}" in editor.text() for name in ELSEWHERE)
        listed = await agent.list_sessions(cwd=str(desk.work))
        assert [info.session_id for info in listed.sessions] == [session]


@pytest.mark.slow
async def test_what_a_command_changes_the_editor_is_told(desk: Desk) -> None:
    """Title, mode and model; a mode that was not offered stays out of reach; a prompt that is a path is sent."""
    replies = ({"text": "One."}, {"text": "A plan."}, {"text": "A path."})
    async with desk.editor(*replies) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id

        async def prompt(words: str, **more: Any) -> Any:
            editor.take()
            return await agent.prompt(session_id=session, prompt=text(words), **more)

        await prompt("hi")
        await prompt("/title A better name")
        assert [update.title for update in editor.of("session_info_update")] == ["A better name"]
        await prompt("/plan add a flag")
        assert [update.current_mode_id for update in editor.of("current_mode_update")] == ["plan"]
        assert "A plan." in editor.text()
        await prompt("/plan off")
        assert [update.current_mode_id for update in editor.of("current_mode_update")] == ["default"]
        with pytest.raises(acp.RequestError, match="stays default"):
            await prompt("/permissions mode bypass")
        await prompt("/status")
        assert "bypass" not in editor.text()
        await prompt("/usr/lib is broken")
        assert editor.text() == "A path."
        await prompt("/model sim/echo")
        (update,) = editor.of("config_option_update")
        assert update.config_options[0].current_value == "sim/echo"
        resource = helpers.resource_block(helpers.embedded_text_resource("file:///x/notes.md", "some notes"))
        editor.take()
        await agent.prompt(session_id=session, prompt=[helpers.text_block("/init all of it"), resource])
        assert "all of it" in editor.text()
        assert "some notes" in editor.text()  # what is embedded goes with the prompt that a command becomes


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["go", "change", "cancel"])
async def test_a_plan_ends_with_a_decision(desk: Desk, answer: str) -> None:
    """Approved, it is carried out in the same prompt and the mode is left; else the session stays in plan mode."""
    async with desk.editor({"text": "I will add a flag."}, {"text": "Carried out."}) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        await agent.set_session_mode(session_id=session, mode_id="plan")
        editor.take()
        editor.answer = answer
        ended = await agent.prompt(session_id=session, prompt=text("plan it"))
        assert ended.stop_reason == "end_turn"
        (asked, options) = editor.asked[-1]
        assert asked.title == "Carry out this plan?"
        assert [(option.option_id, option.kind) for option in options] == [
            *(("go", "allow_once"), ("change", "reject_once"), ("keep", "reject_once")),
        ]
        modes = [update.current_mode_id for update in editor.of("current_mode_update")]
        assert ("Carried out." in editor.text(), modes) == ((True, ["default"]) if answer == "go" else (False, []))


@pytest.mark.slow
async def test_a_file_that_a_prompt_names_is_attached(desk: Desk) -> None:
    """As in a terminal: its lines go with the prompt, and its size is told."""
    (desk.work / "a.txt").write_text("one\ntwo\nthree\n")
    async with desk.editor({"text": "{user}"}) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        await agent.prompt(session_id=session, prompt=text("see @a.txt:2-2"))
        assert "attached a.txt:2-2, 1 line" in editor.text()
        assert "2\ttwo" in editor.text()
        assert "three" not in editor.text()


@pytest.mark.slow
async def test_a_compaction_can_be_cancelled(desk: Desk) -> None:
    """A command that takes long: the prompt ends as cancelled, and one that changes something is refused meanwhile."""
    slow = {"text": "word " * 200, "chunks": 5, "chunk_s": 0.2}
    async with desk.editor({"text": "One."}, {"text": "Two."}, slow, {"text": "Three."}) as (_, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        for words in ("one", "two"):
            await agent.prompt(session_id=session, prompt=text(words))
        running = asyncio.ensure_future(agent.prompt(session_id=session, prompt=text("/compact")))
        await asyncio.wait([running], timeout=0.3)  # it is sent before the next one
        with pytest.raises(acp.RequestError, match="under way"):
            await agent.prompt(session_id=session, prompt=text("/undo"))
        while not running.done():  # until the compaction has begun there is nothing to cancel
            await agent.cancel(session_id=session)
            await asyncio.wait([running], timeout=0.1)
        assert (await running).stop_reason == "cancelled"
