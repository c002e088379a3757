"""An editor that asks for what there is not: each request is refused in words, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import acp
import pytest
from acp import helpers

from lyra.agents.acp.agent_sessions import AgentSessions
from lyra.agents.acp.editor_agent import EditorAgent
from lyra.kernel.kernel import Kernel
from tests.agents.acp.test_left_turns import call, done, editing, painter, process_of
from tests.cli.commands.test_acp import Editor

pytestmark = pytest.mark.anyio


async def test_a_session_is_in_the_folder_of_its_agent_or_below_it(tmp_path: Path) -> None:
    """Neither `..`, a link, a name that begins alike nor a name that no folder has leads out of it; a refused session
    leaves no process."""
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "link").symlink_to("/etc")
    async with Kernel(tmp_path / "store.db", programs=[agent := painter("hi")]) as kernel:
        face = EditorAgent(AgentSessions(kernel, agent, folder=str(work)))
        face.on_connect(Editor())
        for cwd in ("work", f"{work}/..", f"{work}/link", f"{work}x", "/", f"{work}/\0", f"{work}/\udcff"):
            with pytest.raises(acp.RequestError):
                await face.new_session(cwd=cwd)
            with pytest.raises(acp.RequestError):
                await face.load_session(cwd=cwd, session_id="x")
        assert not kernel.processes
        assert (await face.list_sessions()).sessions == []
        session = await face.new_session(cwd=f"{work}/sub")
        assert [row.cwd for row in (await face.list_sessions()).sessions] == [str(work / "sub")]
        with pytest.raises(acp.RequestError, match="works in"):
            await face.load_session(cwd="/", session_id=session.session_id)
        for refused in (
            face.set_session_mode(session.session_id, "plan"),
            face.set_config_option("model", session.session_id, "sim/echo"),
            face.fork_session(session.session_id, cwd=str(work)),
        ):
            with pytest.raises(acp.RequestError, match="not found"):  # the session is still open, and has none of these
                await refused
        with pytest.raises(acp.RequestError, match="NUL"):
            await face.list_sessions(cwd="/\0")
        await face.close()


async def test_requests_about_a_session_that_is_not_open_are_refused(tmp_path: Path) -> None:
    """Unknown ids, ids with a path in them and a session that was closed; cancelling one is passed over."""
    async with editing(tmp_path / "store.db", painter("hi", "again")) as (editor, face):
        session_id = (await face.new_session(cwd=str(tmp_path))).session_id
        words: list[Any] = [helpers.text_block("hello")]
        for wrong in ("none", f"../{session_id}", "", "x" * 10_000):
            for request in (
                lambda wrong=wrong: face.prompt(wrong, words),
                lambda wrong=wrong: face.load_session(cwd=str(tmp_path), session_id=wrong),
                lambda wrong=wrong: face.resume_session(cwd=str(tmp_path), session_id=wrong),
                lambda wrong=wrong: face.close_session(wrong),
            ):
                with pytest.raises(acp.RequestError) as caught:
                    await request()
                assert len(str(caught.value)) < 500
            await face.cancel(wrong)
        await face.close_session(session_id)
        with pytest.raises(acp.RequestError, match="not open"):
            await face.prompt(session_id, words)
        await face.resume_session(cwd=str(tmp_path), session_id=session_id)
        assert (await face.prompt(session_id, words)).stop_reason == "end_turn"
        assert editor.text() == "hi"


async def test_the_name_of_a_link_is_shown_as_text(tmp_path: Path) -> None:
    """What an editor links is named, without characters that steer a screen, and is not read."""
    async with editing(tmp_path / "store.db", painter("hi")) as (_, face):
        session_id = (await face.new_session(cwd=str(tmp_path))).session_id
        link: Any = helpers.resource_link_block("n\x1b[2J", "file:///etc/hostname")
        await face.prompt(session_id, [link])
        told = process_of(face, session_id).messages[0].text
        assert "\x1b" not in told
        assert told.endswith("/etc/hostname)")


@pytest.mark.parametrize("word", ["", "yes", "Allow once", "ALLOW", "later", "retry"])
async def test_an_answer_that_is_not_clearly_a_yes_is_a_no(tmp_path: Path, word: str) -> None:
    """An option that was not offered does not let a call run."""
    done.clear()
    async with editing(tmp_path / "store.db", painter(call("paint", colour="red"), "No.")) as (editor, face):
        editor.answer = word
        session_id = (await face.new_session(cwd=str(tmp_path))).session_id
        await face.prompt(session_id, [helpers.text_block("paint")])
        assert editor.of("tool_call_update")[-1].status == "failed"
        assert (editor.text(), done) == ("No.", [])


async def test_what_an_editor_embeds_is_text_from_outside(tmp_path: Path) -> None:
    """It reaches the model beside the user's words, and marks the session; the words of the user alone do not."""
    async with editing(tmp_path / "store.db", painter("hi", "again")) as (_, face):
        session_id = (await face.new_session(cwd=str(tmp_path))).session_id
        process = process_of(face, session_id)
        await face.prompt(session_id, [helpers.text_block("hello")])
        assert not process.kernel.taint.is_tainted(process.pid)
        resource: Any = helpers.resource_block(helpers.embedded_text_resource("file:///x/notes.md", "some notes"))
        await face.prompt(session_id, [helpers.text_block("read this"), resource])
        assert "some notes" in process.messages[2].text
        assert process.kernel.taint.is_tainted(process.pid)
