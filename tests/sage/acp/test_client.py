"""`sage acp` as a process, and the client of the protocol's Python SDK as its editor: one scripted conversation."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import acp
import pytest
from acp import helpers, schema

from tests import warm

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TINY = Path(__file__).parents[2] / "mcp" / "tiny_server.py"


def _read(path: str) -> str:
    return Path(path).read_text()


def _write(path: str, text: str) -> None:
    Path(path).write_text(text)


class Editor:
    """An editor that keeps all updates, answers permission requests with a word, and has one unsaved file."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.answer = "allow"
        self.hold: asyncio.Event | None = None  # questions wait for it
        self.unsaved: dict[str, str] = {}
        self.written: dict[str, str] = {}
        self.seen = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **_more: Any) -> None:
        self.updates.append(update)
        self.seen.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_more: Any) -> Any:
        self.asked.append((tool_call, options))
        self.seen.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.answer == "cancel":
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        outcome = schema.AllowedOutcome(outcome="selected", option_id=self.answer)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(self, session_id: str, path: str, **_more: Any) -> Any:
        text = self.unsaved.get(path)
        return schema.ReadTextFileResponse(content=text if text is not None else _read(path))

    async def write_text_file(self, session_id: str, path: str, content: str, **_more: Any) -> Any:
        self.written[path] = content
        self.unsaved.pop(path, None)
        _write(path, content)
        return schema.WriteTextFileResponse()

    def of(self, kind: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == kind]

    def text(self) -> str:
        return "".join(update.content.text for update in self.of("agent_message_chunk"))

    def take(self) -> None:
        self.updates.clear()
        self.asked.clear()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until updates have made it true."""
        async with asyncio.timeout(60):
            while not condition():
                self.seen.clear()
                await self.seen.wait()


class Desk:
    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.folder = folder
        for name in ("work", "home"):
            (folder / name).mkdir()

    def script(self, *replies: dict[str, Any]) -> str:
        """Replies in their order; where one has a condition, the first that fits."""
        path = self.folder / "script.json"
        kind = "replies" if any("user" in reply or "tool" in reply for reply in replies) else "sequence"
        path.write_text(json.dumps({kind: replies}))
        return f"sim/script:{path}"

    @asynccontextmanager
    async def editor(
        self,
        *replies: dict[str, Any],
        files: bool = False,
        words: tuple[str, ...] = (),
        model: str | None = None,
        **variables: str,
    ) -> AsyncIterator[tuple[Editor, Any]]:
        """A started `sage acp` and its editor. `model` in place of the script; empty: none is named."""
        env = {**os.environ, "HOME": str(self.folder / "home"), "XDG_DATA_HOME": str(self.folder / "data")}
        for name in ("LYRA_AGENT_MODEL", "ANTHROPIC_API_KEY"):
            env.pop(name, None)
        env |= variables
        editor = Editor()
        chosen = self.script(*replies) if model is None else model
        options = (*(("--model", chosen) if chosen else ()), *words)
        program, *start = warm.command("lyra.cli.main:sage")
        command = (*start, "acp", *options)
        async with acp.spawn_agent_process(cast("Any", editor), program, *command, env=env, cwd=self.work) as (
            agent,
            _,
        ):
            offered = schema.FileSystemCapabilities(read_text_file=files, write_text_file=files)
            capabilities = schema.ClientCapabilities(fs=offered)
            await agent.initialize(protocol_version=acp.PROTOCOL_VERSION, client_capabilities=capabilities)
            yield editor, agent


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def text(words: str) -> list[Any]:
    return [helpers.text_block(words)]


@pytest.mark.slow
async def test_a_conversation(desk: Desk) -> None:
    """Prompts with an image and a resource, a plan, an edit that is allowed and one that is not, modes, commands,
    cancelling, and the same session loaded again."""
    (desk.work / "a.py").write_text("one = 1\n")
    edit = {"file_path": "a.py", "old_string": "one = 1", "new_string": "one = 2"}
    replies = (
        {"text": "I see.", "thinking": "Let me look."},
        call("TodoWrite", todos=[{"content": "edit", "status": "in_progress"}]),
        call("Read", file_path="a.py"),
        call("Edit", **edit),
        {"text": "Edited."},
        call("Edit", file_path="a.py", old_string="one = 2", new_string="one = 3"),
        {"text": "Not edited."},
        call("Edit", file_path="a.py", old_string="one = 2", new_string="one = 4"),
        {"text": "Only planned."},
        {"text": "word " * 60, "chunks": 5, "chunk_s": 0.1},
    )
    async with desk.editor(*replies) as (editor, agent):
        new = await agent.new_session(cwd=str(desk.work), mcp_servers=[])
        session = new.session_id
        assert {mode.id for mode in new.modes.available_modes} == {
            "default",
            "accept-edits",
            "plan",
            "sandboxed",
            "deny-unasked",
        }
        names = {command.name for command in editor.of("available_commands_update")[0].available_commands}
        assert {"help", "undo", "cost"} <= names

        resource = helpers.resource_block(helpers.embedded_text_resource("file:///x/notes.md", "some notes"))
        image = helpers.image_block(base64.b64encode(PICTURE).decode(), "image/png")
        done = await agent.prompt(session_id=session, prompt=[helpers.text_block("look"), image, resource])
        assert done.stop_reason == "end_turn"
        assert editor.text() == "I see."
        assert "".join(update.content.text for update in editor.of("agent_thought_chunk")) == "Let me look."

        editor.take()
        await agent.prompt(session_id=session, prompt=text("edit it"))
        assert (desk.work / "a.py").read_text() == "one = 2\n"
        assert [entry.content for entry in editor.of("plan")[0].entries] == ["edit"]
        asked, options = editor.asked[0]
        assert asked.kind == "edit"
        assert (asked.content[0].old_text, asked.content[0].new_text) == ("one = 1\n", "one = 2\n")
        assert {option.kind for option in options} == {"allow_once", "allow_always", "reject_once", "reject_always"}
        ends = {update.tool_call_id: update.status for update in editor.of("tool_call_update") if update.status}
        assert set(ends.values()) == {"completed"}
        starts = {update.kind: update for update in editor.of("tool_call")}
        assert starts["read"].locations[0].path == str(desk.work / "a.py")

        editor.take()
        editor.answer = "deny"
        await agent.prompt(session_id=session, prompt=text("edit it again"))
        assert (desk.work / "a.py").read_text() == "one = 2\n"
        assert "failed" in {update.status for update in editor.of("tool_call_update")}

        editor.take()
        editor.answer = "allow"
        await agent.set_session_mode(session_id=session, mode_id="plan")
        assert editor.of("current_mode_update")[0].current_mode_id == "plan"
        await agent.prompt(session_id=session, prompt=text("edit it in plan mode"))
        assert [call.title for call, _ in editor.asked] == ["Carry out this plan?"]
        assert (desk.work / "a.py").read_text() == "one = 2\n"
        with pytest.raises(acp.RequestError):
            await agent.set_session_mode(session_id=session, mode_id="bypass")

        editor.take()
        await agent.prompt(session_id=session, prompt=text("/status"))
        assert session in editor.text()
        with pytest.raises(acp.RequestError):
            await agent.prompt(session_id=session, prompt=text("/nothing"))

        editor.take()
        running = asyncio.ensure_future(agent.prompt(session_id=session, prompt=text("talk")))
        while not editor.of("agent_message_chunk"):
            editor.seen.clear()
            await editor.seen.wait()
        with pytest.raises(acp.RequestError):
            await agent.prompt(session_id=session, prompt=text("/undo"))
        await agent.cancel(session_id=session)
        assert (await running).stop_reason == "cancelled"

        listed = await agent.list_sessions(cwd=str(desk.work))
        assert [info.session_id for info in listed.sessions] == [session]
        with pytest.raises(acp.RequestError):
            await agent.prompt(session_id="missing", prompt=text("x"))

    async with desk.editor({"text": "Here again."}) as (editor, agent):
        await agent.load_session(cwd=str(desk.work), session_id=session, mcp_servers=[])
        told = [update.content.text for update in editor.of("user_message_chunk")]
        assert told[1:3] == ["edit it", "edit it again"]
        assert "stopped by the user" in editor.text()
        editor.take()
        await agent.prompt(session_id=session, prompt=text("and now?"))
        assert editor.text() == "Here again."
        forked = await agent.fork_session(session_id=session, cwd=str(desk.work), mcp_servers=[])
        assert forked.session_id != session


@pytest.mark.slow
async def test_unsaved_text_of_the_editor_is_what_is_edited(desk: Desk) -> None:
    """Read shows it, and an edit is made on it after the editor has saved it."""
    path = desk.work / "a.py"
    path.write_text("one = 1\n")
    edit = call("Edit", file_path="a.py", old_string="two = 2", new_string="two = 3")
    again = call("Read", file_path="a.py")
    async with desk.editor(again, edit, again, edit, {"text": "done"}, files=True) as (editor, agent):
        editor.unsaved[str(path)] = "one = 1\ntwo = 2\n"
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        await agent.prompt(session_id=session, prompt=text("change two"))
        outputs = [str(update.content) for update in editor.of("tool_call_update") if update.content]
        assert any("not saved" in output and "two = 2" in output for output in outputs)
    assert path.read_text() == "one = 1\ntwo = 3\n"
    assert editor.written[str(path)] == "one = 1\ntwo = 3\n"


@pytest.mark.slow
async def test_a_server_that_the_editor_hands_over_has_tools(desk: Desk) -> None:
    """It is the user's own choice: it is started without a further question, and its calls are asked about."""
    (desk.work / "tiny.py").write_text(TINY.read_text())  # the sandbox of a server sees the folder of the session
    server = schema.McpServerStdio(name="tiny", command=sys.executable, args=[str(desk.work / "tiny.py")], env=[])
    async with desk.editor(call("mcp__tiny__add", a=20, b=22), {"text": "done"}) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[server])).session_id
        await agent.prompt(session_id=session, prompt=text("add"))
        assert editor.asked, [update.content for update in editor.of("tool_call_update")]
        assert editor.asked[0][0].title.startswith("mcp__tiny__add")
        assert "42" in str([update.content for update in editor.of("tool_call_update")])


@pytest.mark.slow
async def test_an_editor_that_goes_away_leaves_a_session_that_goes_on(desk: Desk) -> None:
    async with desk.editor({"text": "word " * 200, "chunks": 5, "chunk_s": 0.2}) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        running = asyncio.ensure_future(agent.prompt(session_id=session, prompt=text("talk")))
        while not editor.of("agent_message_chunk"):
            editor.seen.clear()
            await editor.seen.wait()
        running.cancel()
    async with desk.editor({"text": "Here."}) as (editor, agent):
        await agent.resume_session(cwd=str(desk.work), session_id=session, mcp_servers=[])
        await agent.prompt(session_id=session, prompt=text("still there?"))
        assert editor.text() == "Here."
