"""Sessions in an editor: live output of calls, the model as a setting, closing, pages of the list, links in prompts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import acp
import pytest
from acp import helpers

from tests.sage.acp.test_client import Desk, call, text


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.slow
async def test_the_output_of_a_call_is_live(desk: Desk) -> None:
    """It is shown before the call has ended; then the status says how it ended, and figures follow."""
    slow = call("Bash", command="for n in 1 2 3 4 5 6; do echo line $n; sleep 0.4; done; exit 3")
    async with desk.editor(slow, {"text": "done"}, words=("--allowed-tools", "Bash")) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        await agent.prompt(session_id=session, prompt=text("go"))
        updates = editor.of("tool_call_update")
        live = [update for update in updates if update.status == "in_progress"]
        assert "line 1" in str(live[0].content)
        assert "line 6" not in str(live[0].content)
        assert updates[-1].status == "failed"
        assert "line 6" in str(updates[-1].content)


@pytest.mark.slow
async def test_the_model_of_a_session_and_its_end(desk: Desk) -> None:
    """The model is a setting; a session that is opened again without a named model has the one that it had."""
    async with desk.editor({"text": "One."}) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        link = helpers.resource_link_block("notes.md", "file:///x/notes.md")
        changed = await agent.set_config_option(session_id=session, config_id="model", value="sim/echo")
        assert changed.config_options[0].current_value == "sim/echo"
        await agent.prompt(session_id=session, prompt=[helpers.text_block("see"), link])
        assert "/x/notes.md" in editor.text()  # sim/echo repeats what it was told
        for option, value in (("model", "nothing/here"), ("colour", "red")):
            with pytest.raises(acp.RequestError):
                await agent.set_config_option(session_id=session, config_id=option, value=value)
        await agent.close_session(session_id=session)
        with pytest.raises(acp.RequestError, match="not open"):
            await agent.prompt(session_id=session, prompt=text("x"))
        with pytest.raises(acp.RequestError, match="cursor"):
            await agent.list_sessions(cwd=str(desk.work), cursor="x")
        with pytest.raises(acp.RequestError, match="absolute"):
            await agent.new_session(cwd="work", mcp_servers=[])
    async with desk.editor(model="") as (editor, agent):
        with pytest.raises(acp.RequestError, match="no model is named"):
            await agent.new_session(cwd=str(desk.work), mcp_servers=[])
        loaded = await agent.load_session(cwd=str(desk.work), session_id=session, mcp_servers=[])
        assert loaded.config_options[0].current_value == "sim/echo"
        editor.take()
        await agent.prompt(session_id=session, prompt=text("again"))
        assert editor.text() == "again"


@pytest.mark.slow
async def test_a_model_without_a_key_is_refused_at_once(desk: Desk) -> None:
    """With the variable to set, before the user has typed a prompt."""
    async with desk.editor(model="anthropic/claude-sonnet-4-5") as (_, agent):
        with pytest.raises(acp.RequestError, match="export ANTHROPIC_API_KEY"):
            await agent.new_session(cwd=str(desk.work), mcp_servers=[])
        assert (await agent.list_sessions()).sessions == []


@pytest.mark.slow
async def test_words_that_no_format_can_say_do_not_break_a_session(desk: Desk) -> None:
    """Half of a character, a zero byte, escape sequences: each prompt is answered."""
    async with desk.editor(model="sim/echo") as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        await agent.prompt(session_id=session, prompt=text("\x1b[2Jred \x00"))
        assert "\x1b" not in editor.text()
        editor.take()
        await agent.prompt(session_id=session, prompt=text("half \ud83d"))
        assert editor.text() == "half \N{REPLACEMENT CHARACTER}"
        editor.take()
        await agent.prompt(session_id=session, prompt=text("fine"))
        assert editor.text() == "fine"


@pytest.mark.slow
async def test_a_cancelled_prompt_ends_though_the_editor_leaves_its_question_open(desk: Desk) -> None:
    """The prompt's answer is `cancelled` at once, what was asked about is not done, and the next prompt is answered."""
    edit = call("Write", file_path="new.txt", content="x")
    async with desk.editor(edit, {"text": "Hello."}) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        editor.hold = asyncio.Event()  # never set
        prompt = asyncio.ensure_future(agent.prompt(session_id=session, prompt=text("write it")))
        await editor.until(lambda: editor.asked)
        async with asyncio.timeout(60):
            await agent.cancel(session_id=session)
            assert (await prompt).stop_reason == "cancelled"
            assert (await agent.prompt(session_id=session, prompt=text("hello"))).stop_reason == "end_turn"
        assert editor.text().endswith("Hello.")
        assert not (desk.work / "new.txt").exists()


async def test_an_editor_is_offered_the_wider_rules(desk: Desk) -> None:
    """Beside the exact command its beginning and its program; the chosen one is kept for the folder."""
    script = [call("Bash", command="npm run build"), call("Bash", command="npm run build -- --fast"), {"text": "."}]
    async with desk.editor(*script) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        editor.answer = "always: Bash(npm run build *)"
        await agent.prompt(session_id=session, prompt=text("go"))
        assert len(editor.asked) == 1
        offered = {option.option_id: (option.name, option.kind) for option in editor.asked[0][1]}
        assert offered["always"] == ("Always allow Bash(npm run build)", "allow_always")
        assert offered["always: Bash(npm *)"] == ("Always allow Bash(npm *)", "allow_always")
