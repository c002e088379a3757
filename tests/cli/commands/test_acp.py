"""`lyra acp` as a process, and the client of the protocol's Python SDK as its editor."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import acp
import pytest
from acp import helpers, schema

from tests import warm

pytestmark = pytest.mark.anyio
SETUP = """
import os, subprocess, sys
from lyra import Agent, tool
from lyra.models.sim import SimProvider

RULES = {"ask": ["paint"], "allow": ["pick"]}
print("a line of the file")

@tool
async def paint(colour: str) -> str:
    "Paint the wall."
    print("a line of the tool", flush=True)
    subprocess.run(["echo", "a line of a program"])
    with open("wall.txt", "w") as file:
        file.write(colour)
    return f"it is {colour}"

@tool
async def pick(ctx) -> str:
    "Ask for a colour."
    answer = await ctx.ask("Which colour?", "clarification", message="1. red\\n2. teal")
    return answer.text

def setup(kernel):
    script = SCRIPT
    painter = Agent("painter", model=SimProvider(script=script), tools=[paint, pick], permissions=RULES)
    kernel.register(painter)
    kernel.register(Agent("other", model="sim/echo"))
"""


class Editor:
    """An editor that keeps all updates and answers permission requests with a word."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.answer = "allow"
        self.hold: asyncio.Event | None = None  # questions wait for it
        self.was_asked = asyncio.Event()
        self.seen = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **_more: Any) -> None:
        self.updates.append(update)
        self.seen.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_more: Any) -> Any:
        self.asked.append((tool_call, options))
        self.was_asked.set()
        if self.hold is not None:
            await self.hold.wait()
        outcome = schema.AllowedOutcome(outcome="selected", option_id=self.answer)
        return schema.RequestPermissionResponse(outcome=outcome)

    def of(self, kind: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == kind]

    def text(self) -> str:
        return "".join(update.content.text for update in self.of("agent_message_chunk"))

    async def until(self, words: str) -> None:
        async with asyncio.timeout(60):
            while words not in self.text():
                self.seen.clear()
                await self.seen.wait()


def written_setup(folder: Path, *replies: Any) -> Path:
    rows = [{"text": reply} if isinstance(reply, str) else reply for reply in replies]
    file = folder / "agents.py"
    file.write_text(SETUP.replace("SCRIPT", repr({"sequence": rows})))
    return file


@asynccontextmanager
async def editing(
    folder: Path, *words: str, load: str = "agents.py", home: Path | None = None
) -> AsyncIterator[tuple[Editor, Any, Any]]:
    """A started `lyra acp`, its editor and what it said at the beginning."""
    editor = Editor()
    home = home or folder
    env = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
    options = (*(("--load", str(folder / load)) if load else ()), *words)
    program, *start = warm.command("lyra.cli.main:main")
    command = (*start, "acp", *options)
    async with acp.spawn_agent_process(cast("Any", editor), program, *command, env=env, cwd=folder) as (
        agent,
        _,
    ):
        begun = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        yield editor, agent, begun


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"id": "c1", "name": name, "arguments": arguments}]}


def text(words: str) -> list[Any]:
    return [helpers.text_block(words)]


@pytest.mark.slow
async def test_a_conversation_with_an_agent_of_ones_own(tmp_path: Path) -> None:
    """Text, a call that the editor allows and one that it does not, a question in words, commands, cancelling; what the
    file, a tool or a program prints never reaches the protocol."""
    slow = {"text": "word " * 60, "chunk_s": 0.1}
    written_setup(
        tmp_path,
        {"thinking": "hm", **call("paint", colour="red")},
        "Painted.",
        call("paint", colour="blue"),
        "Not painted.",
        call("pick"),
        "You like it.",
        slow,
    )
    async with editing(tmp_path, "--agent", "painter", "--db", "memory") as (editor, agent, begun):
        assert begun.agent_info.name == "painter"
        assert begun.agent_capabilities.load_session is False
        session = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
        done = await agent.prompt(session_id=session.session_id, prompt=text("paint it"))
        assert done.stop_reason == "end_turn"
        assert editor.text() == "Painted."
        assert (tmp_path / "wall.txt").read_text() == "red"
        asked, options = editor.asked[0]
        assert (asked.tool_call_id, asked.raw_input) == ("c1", {"colour": "red"})
        assert [option.option_id for option in options] == ["allow", "always", "deny", "never"]
        assert [update.status for update in editor.of("tool_call_update")][-1] == "completed"
        editor.answer = "deny"
        await agent.prompt(session_id=session.session_id, prompt=text("paint it blue"))
        assert (tmp_path / "wall.txt").read_text() == "red"
        assert [update.status for update in editor.of("tool_call_update")][-1] == "failed"
        editor.answer = "2"
        await agent.prompt(session_id=session.session_id, prompt=text("ask me"))
        assert [option.name for option in editor.asked[-1][1]][:2] == ["red", "teal"]
        assert "text='2'" in str(editor.of("tool_call_update")[-1].content)
        commands = [row.name for row in editor.of("available_commands_update")[0].available_commands]
        assert commands == ["cost", "compact"]
        await agent.prompt(session_id=session.session_id, prompt=text("/cost"))
        assert "tokens in" in editor.text()
        prompt = asyncio.ensure_future(agent.prompt(session_id=session.session_id, prompt=text("go on")))
        await editor.until("word word")
        with pytest.raises(acp.RequestError):
            await agent.prompt(session_id=session.session_id, prompt=text("me too"))
        await agent.cancel(session_id=session.session_id)
        assert (await prompt).stop_reason == "cancelled"


@pytest.mark.slow
async def test_a_session_is_loaded_again_and_its_open_question_is_asked_anew(tmp_path: Path) -> None:
    """With a store the conversation is there after the program has ended; a call that waited for an answer runs once it
    is allowed."""
    store = str(tmp_path / "store.db")
    written_setup(tmp_path, "Hello.", call("paint", colour="red"))
    async with editing(tmp_path, "--agent", "painter", "--db", store) as (editor, agent, begun):
        assert begun.agent_capabilities.load_session is True
        session = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=text("good morning"))
        editor.hold = asyncio.Event()
        prompt = asyncio.ensure_future(agent.prompt(session_id=session.session_id, prompt=text("paint")))
        await editor.was_asked.wait()
    prompt.cancel()
    written_setup(tmp_path, "Painted.")
    async with editing(tmp_path, "--agent", "painter", "--db", store) as (editor, agent, _):
        listed = (await agent.list_sessions(cwd=str(tmp_path))).sessions
        assert [(row.session_id, row.title) for row in listed] == [(session.session_id, "good morning")]
        assert (await agent.list_sessions(cwd="/nowhere")).sessions == []
        await agent.load_session(cwd=str(tmp_path), session_id=session.session_id, mcp_servers=[])
        await editor.until("Painted.")
        assert editor.of("user_message_chunk")[0].content.text == "good morning"
        assert (tmp_path / "wall.txt").read_text() == "red"
        with pytest.raises(acp.RequestError):
            await agent.load_session(cwd=str(tmp_path), session_id="none", mcp_servers=[])


@pytest.mark.slow
async def test_an_agent_of_a_file_is_named_by_the_file(tmp_path: Path) -> None:
    """--agent FILE.py:NAME needs no setup(kernel)."""
    (tmp_path / "own.py").write_text('import lyra\nechoing = lyra.Agent("echo", model="sim/echo")\n')
    async with editing(tmp_path, "--agent", "own.py:echoing", load="") as (editor, agent, begun):
        assert begun.agent_info.name == "echo"
        session = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=text("good morning"))
        assert editor.text() == "good morning"


SCRIBE = """---
description: Keeps the notes of this folder
tools: Read, Write
---
You keep notes.
"""


MODEL = ("--set", "agent.model=sim/script:replies.json")


def declared_agent(folder: Path, text: str, *replies: Any, name: str = "scribe") -> None:
    """A folder with an agent of a file that names no model, and what MODEL answers."""
    rows = [{"text": reply} if isinstance(reply, str) else reply for reply in replies]
    (folder / ".lyra" / "agents").mkdir(parents=True, exist_ok=True)
    (folder / ".lyra" / "agents" / f"{name}.md").write_text(text)
    (folder / "replies.json").write_text(json.dumps({"sequence": rows}))


def refused(folder: Path, *words: str) -> str:
    """What `lyra acp` says where it ends with exit code 2, before a line of the protocol."""
    env = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    done = warm.run("lyra.cli.main:main", ["acp", *words], cwd=folder, env=env)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    return done.stderr


@pytest.mark.slow
async def test_an_agent_of_the_folder_is_served_by_its_name(tmp_path: Path) -> None:
    """--agent NAME alone finds .lyra/agents/NAME.md: it has the model of the settings and the tools that its file names
    and no others, asks as the rest of Lyra does and writes the audit log, works in the folder alone, and its sessions
    are loaded again."""
    write = call("Write", file_path="notes.txt", content="milk")
    declared_agent(tmp_path, SCRIBE, write, "Noted.", call("Bash", command="touch ran"), "No shell.")
    audit = tmp_path / "audit.jsonl"
    words = (
        "--agent",
        "scribe",
        "--trust-folder",
        "--db",
        str(tmp_path / "store.db"),
        *MODEL,
        "--set",
        f"audit.file={audit}",
    )
    async with editing(tmp_path, *words, load="") as (editor, agent, begun):
        assert begun.agent_info.name == "scribe"
        session = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=text("note: milk"))
        assert (editor.text(), (tmp_path / "notes.txt").read_text()) == ("Noted.", "milk")
        assert [asked.raw_input["file_path"] for asked, _ in editor.asked] == ["notes.txt"]
        await agent.prompt(session_id=session.session_id, prompt=text("run something"))
        assert editor.of("tool_call_update")[-1].status == "failed"
        assert (len(editor.asked), (tmp_path / "ran").exists()) == (1, False)
        with pytest.raises(acp.RequestError, match="works in"):
            await agent.new_session(cwd="/", mcp_servers=[])
    assert '"Write"' in audit.read_text()
    declared_agent(tmp_path, SCRIBE, call("Read", file_path="notes.txt"), "Milk.")
    async with editing(tmp_path, *words, load="") as (editor, agent, _):
        await agent.load_session(cwd=str(tmp_path), session_id=session.session_id, mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=text("what is there?"))
        assert editor.of("tool_call_update")[-1].status == "completed"
        assert editor.text().endswith("Milk.")


@pytest.mark.slow
async def test_a_session_of_another_folder_does_not_go_on_in_this_one(tmp_path: Path) -> None:
    """Two folders with an agent of one name and one store: neither lists nor loads the other's sessions."""
    first, second = tmp_path / "first", tmp_path / "second"
    words = ("--agent", "scribe", "--trust-folder", "--db", str(tmp_path / "store.db"), *MODEL)
    for folder in (first, second):
        folder.mkdir()
        declared_agent(folder, SCRIBE, "Hello.")
    async with editing(first, *words, load="", home=tmp_path) as (_, agent, _begun):
        session = await agent.new_session(cwd=str(first), mcp_servers=[])
    async with editing(second, *words, load="", home=tmp_path) as (_, agent, _begun):
        assert (await agent.list_sessions()).sessions == []
        with pytest.raises(acp.RequestError, match="no session"):
            await agent.load_session(cwd=str(second), session_id=session.session_id, mcp_servers=[])


def tiny_server(folder: Path) -> Any:
    """An MCP server that the editor hands over, with a tool that adds."""
    shutil.copy(Path(__file__).parents[2] / "mcp" / "tiny_server.py", folder / "tiny.py")
    variables = [schema.EnvVariable(name="TINY_KEY", value="env:NOT_A_REFERENCE")]
    return schema.McpServerStdio(name="tiny", command=sys.executable, args=[str(folder / "tiny.py")], env=variables)


@pytest.mark.slow
async def test_servers_of_the_editor_are_tools_of_their_session_alone(tmp_path: Path) -> None:
    """What the editor hands over with a session can be called there, once the user has allowed it; another session of
    the same agent has no such tool, and neither has this one when it is opened again without them. A server that
    cannot be used is refused in words."""
    add = {"tool_calls": [{"id": "c1", "name": "mcp__tiny__add", "arguments": {"a": 20, "b": 22}}]}
    written_setup(tmp_path, add, "Added.", add, "There is none.", add, "Gone.")
    server = tiny_server(tmp_path)
    async with editing(tmp_path, "--agent", "painter", "--db", str(tmp_path / "store.db")) as (editor, agent, begun):
        assert begun.agent_capabilities.mcp_capabilities.http is True
        first = await agent.new_session(cwd=str(tmp_path), mcp_servers=[server])
        second = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
        await agent.prompt(session_id=first.session_id, prompt=text("add"))
        assert [asked.title for asked, _ in editor.asked] == ["mcp__tiny__add"]
        assert "42" in str(editor.of("tool_call_update")[-1].content)
        await agent.prompt(session_id=second.session_id, prompt=text("add"))
        assert "there is no tool" in str(editor.of("tool_call_update")[-1].content)
        await agent.load_session(cwd=str(tmp_path), session_id=first.session_id, mcp_servers=[])
        await agent.prompt(session_id=first.session_id, prompt=text("add again"))
        assert "there is no tool" in str(editor.of("tool_call_update")[-1].content)
        assert len(editor.asked) == 1
        for wrong, words in (
            (schema.HttpMcpServer(type="http", name="far", url="nonsense", headers=[]), "no address of HTTP"),
            (schema.SseMcpServer(type="sse", name="far", url="https://example.org", headers=[]), "not spoken"),
            (schema.McpServerStdio(name="a/b", command="x", args=[], env=[]), "cannot be the name"),
            (schema.McpServerStdio(name="none", command="", args=[], env=[]), "no command"),
        ):
            with pytest.raises(acp.RequestError, match=words):
                await agent.new_session(cwd=str(tmp_path), mcp_servers=[wrong])


@pytest.mark.slow
@pytest.mark.parametrize(("tools", "count"), [("Read", 0), ("Read, mcp__tiny__*", 1)])
async def test_an_agent_of_the_folder_has_the_servers_that_its_file_names(
    tmp_path: Path, tools: str, count: int
) -> None:
    """Servers of the editor are limited by the agent's file, as those of the configuration are."""
    add = {"tool_calls": [{"id": "c1", "name": "mcp__tiny__add", "arguments": {"a": 20, "b": 22}}]}
    declared_agent(tmp_path, SCRIBE.replace("Read, Write", tools), add, "Done.")
    words = ("--agent", "scribe", "--trust-folder", "--db", "memory", *MODEL)
    async with editing(tmp_path, *words, load="") as (editor, agent, _begun):
        session = await agent.new_session(cwd=str(tmp_path), mcp_servers=[tiny_server(tmp_path)])
        await agent.prompt(session_id=session.session_id, prompt=text("add"))
        assert len(editor.asked) == count
        assert ("42" in str(editor.of("tool_call_update")[-1].content)) is bool(count)


@pytest.mark.slow
def test_an_agent_of_the_folder_counts_once_the_folder_is_trusted(tmp_path: Path) -> None:
    """Without trust the file is not read as an agent and the command says why; an unknown name is answered with the
    nearest one and with all there are; a worktree of its own is refused; without a model it says where one is named."""
    declared_agent(tmp_path, SCRIBE)
    declared_agent(tmp_path, SCRIBE.replace("tools: Read, Write", "worktree: true"), name="mender")
    untrusted = refused(tmp_path, "--agent", "scribe")
    assert "not trusted" in untrusted
    assert "--trust-folder" in untrusted
    unknown = refused(tmp_path, "--agent", "scrbe", "--trust-folder")
    assert "did you mean 'scribe'? there are: Explore, Plan, Review, mender, scribe" in unknown
    assert "there are: Explore, Plan, Review" in refused(tmp_path, "--agent", "scrbe")
    assert "--load FILE.py" in refused(tmp_path)
    assert "worktree" in refused(tmp_path, "--agent", "mender", "--trust-folder")
    assert "in the agent's file, set LYRA_AGENT_MODEL" in refused(tmp_path, "--agent", "scribe", "--trust-folder")


@pytest.mark.slow
def test_stdout_carries_json_lines_alone(tmp_path: Path) -> None:
    """Every line of stdout is a JSON-RPC message, also where the file, a tool and its programs print; what they print
    is on stderr."""
    written_setup(tmp_path, call("paint", colour="red"), "Painted.")
    new = {"cwd": str(tmp_path), "mcpServers": []}
    command = [
        *warm.command("lyra.cli.main:main"),
        "acp",
        "--load",
        "agents.py",
        "--agent",
        "painter",
        "--db",
        "memory",
    ]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:

        def write(line: Any) -> None:
            assert program.stdin is not None
            program.stdin.write(f"{line if isinstance(line, str) else json.dumps({'jsonrpc': '2.0', **line})}\n")
            program.stdin.flush()

        write({"id": 1, "method": "initialize", "params": {"protocolVersion": 1}})
        write("no json")
        write({"id": 2, "method": "session/new", "params": new})
        messages = []
        assert program.stdout is not None
        for line in program.stdout:
            message = json.loads(line)
            messages.append(message)
            if message.get("id") == 2:
                prompt = {"sessionId": message["result"]["sessionId"], "prompt": [{"type": "text", "text": "paint"}]}
                write({"id": 3, "method": "session/prompt", "params": prompt})
            elif message.get("method") == "session/request_permission":
                outcome = {"outcome": {"outcome": "selected", "optionId": "allow"}}
                write({"id": message["id"], "result": outcome})
            elif message.get("id") == 3:
                break
        rest, errors = program.communicate(timeout=60)
    messages += [json.loads(line) for line in rest.splitlines()]
    assert program.returncode == 0, errors
    assert {message.get("jsonrpc") for message in messages} == {"2.0"}
    assert {1, 2, 3} <= {message.get("id") for message in messages}
    for printed in ("a line of the file", "a line of the tool", "a line of a program"):
        assert printed in errors


@pytest.mark.slow
def test_an_agent_that_is_not_there_is_named(tmp_path: Path) -> None:
    """An unknown name has a did-you-mean; without a name, and with several agents, they are listed; an object that is
    no agent is refused."""
    written_setup(tmp_path, "hi")
    for words, expected in (
        (["--load", "agents.py", "--agent", "paintr"], "did you mean 'painter'"),
        (["--load", "agents.py"], "painter"),
        (["--agent", "agents.py:setup"], "is no Agent"),
    ):
        assert expected in refused(tmp_path, *words)
