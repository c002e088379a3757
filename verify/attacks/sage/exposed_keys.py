"""Attempts to find a provider's key in what Sage keeps or shows.

The key is in the environment, as usual. It is said in prompts, titles, focus texts and memory, printed by tools, put
into files and into the errors of a model's server, through each face: a session, `sage -p` in every format, the editor
protocol, slash commands and hooks. Afterwards all bytes of the home folder (stores, index, search texts, usage, journal
of snapshots, history, memory) and all that was shown are searched for the key in its usual spellings. The only place
that may hold it is a copy of a file that holds it in the project: an undo has to bring it back.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import zlib
from collections.abc import Callable, Collection, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from lyra.errors import LyraError
from lyra.sage.commands.registry import run_command
from lyra.testing.mock import MockServer
from verify.attacks.sage.world import SageWorld, call, sage_world, say
from verify.attacks.scripted_agent import Attempts

__all__ = ["ATTEMPTS", "KEY", "run"]

# No well-known kind of key: only a process that knows it can find it.
KEY: Final = "Zt9mQ4xWv7LrPa2KdN8sYh3BjUc6Ge5TfX1o"
FORM_KEY: Final = "sk-ant-api03-" + "Qw7eRt5yUi9oPa3sDf1gHj6kLz8xCv2bNm4Q"  # known by its form alone
_VARIABLE: Final = "ANTHROPIC_API_KEY"
_SPELLED: Final = {
    "the key": KEY.encode(),
    "the key in base64": base64.b64encode(KEY.encode()),
    "the key in hexadecimal digits": KEY.encode().hex().encode(),
    "half of the key": KEY[:18].encode(),
    "a key of a well-known form": FORM_KEY.encode(),
}
_COPIES: Final = "/files/"  # of the project's files, in the folder of a session


def leaks_in(data: bytes) -> list[str]:
    """Spellings of the key that stand in some bytes."""
    return [what for what, spelled in _SPELLED.items() if spelled in data]


def kept_leaks(world: SageWorld) -> Iterator[str]:
    """Files of the home folder with the key in them; compressed texts are unpacked, databases read row by row."""
    for path in sorted(world.home.rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        name = str(path.relative_to(world.home))
        is_copy = _COPIES in name and not name.endswith(("journal", ".jsonl", ".log", ".json"))
        if is_copy:
            continue
        for what in leaks_in(path.read_bytes() + _unpacked(path)):
            yield f"{what} is in {name}"


def _unpacked(path: Path) -> bytes:
    """The values of a database, and what they are when they are decompressed."""
    if not path.read_bytes().startswith(b"SQLite format 3"):
        return b""
    values = bytearray()
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):  # noqa: S608 - names of the file's own tables
                for value in row:
                    data = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else b""
                    values += data
                    for start in (data, data[1:]):
                        try:
                            values += zlib.decompress(start)
                        except zlib.error:
                            continue
    except sqlite3.Error:
        return bytes(values)
    finally:
        connection.close()
    return bytes(values)


# ---------------------------------------------------------------- in a session
async def _told(session: Any, text: Any, **more: Any) -> str:
    try:
        return json.dumps(await say(session, text, lambda _line: ("allow", None), **more), default=str)
    except LyraError as error:
        return error.render() + repr(error.fields)


async def _prompt(world: SageWorld) -> str:
    async with world.open() as session:
        shown = await _told(session, f"use {KEY} please")
        shown += json.dumps([session.usage(), session.context()], default=str)
    return shown


async def _beside(world: SageWorld) -> str:
    async with world.open() as session:
        return await _told(session, "look at it", beside=f"token={KEY}")


async def _tool_output(world: SageWorld) -> str:
    world.write("settings.txt", f"key = {KEY}\nhex = {KEY.encode().hex()}\n")
    replies = (
        call("Read", file_path="settings.txt"),
        call("Grep", pattern="key", output_mode="content"),
        call("Bash", command="cat settings.txt; base64 -w0 settings.txt"),
        {"text": "done"},
    )
    async with world.open(*replies, allow=("Bash",)) as session:
        return await _told(session, "look")


async def _environment(world: SageWorld) -> str:
    """Commands that look for the key in their environment and in that of their parents."""
    line = "env; cat /proc/self/environ /proc/$PPID/environ /proc/1/environ 2>/dev/null; set"
    async with world.open(call("Bash", command=line), {"text": "done"}, allow=("Bash",)) as session:
        return await _told(session, "look")


async def _written_file(world: SageWorld) -> str:
    replies = (call("Write", file_path="a.txt", content=f"key = {KEY}"), {"text": "done"})
    async with world.open(*replies, mode="accept-edits") as session:
        return await _told(session, "write")


async def _changed_file(world: SageWorld) -> str:
    """A file that holds the key is edited elsewhere, undone, and the session exported."""
    world.write("a.txt", f"key = {KEY}\nx = 1\n")
    replies = (
        call("Read", file_path="a.txt"),
        call("Edit", file_path="a.txt", old_string="x = 1", new_string="x = 2"),
        {"text": "done"},
    )
    async with world.open(*replies, attended=True) as session:
        shown = await _told(session, "edit")
        await session.undo()
        shown += await _command(session, "/export out.md")
    return shown + _text_of(world.folder / "out.md")


async def _answer_of_the_model(world: SageWorld) -> str:
    async with world.open({"text": f"the key is {KEY}, {KEY.encode().hex()}", "thinking": f"hm {KEY}"}) as session:
        return await _told(session, "tell")


async def _error_of_the_server(world: SageWorld) -> str:
    script = {"replies": [{"error": {"kind": "auth", "message": f"invalid x-api-key {KEY}"}}]}
    async with MockServer(script) as server:
        with _variables(world, {**server.env, _VARIABLE: KEY}):
            async with world.open(model="anthropic/scripted") as session:
                shown = await _told(session, "hello")
                failure = session.headless.failure
                return shown + (failure.render() + repr(failure.fields) if failure is not None else "")


async def _slash_commands(world: SageWorld) -> str:
    async with world.open() as session:
        shown = await _told(session, "hello")
        for line in (
            f"/title {KEY}",
            f"/compact {KEY}",
            f"/memory add {KEY}",
            f"/checkpoint {KEY}",
            f"/resume {KEY}",
            f"/permissions allow Bash({KEY})",
            f"/review {KEY}",
            f"/{KEY}",
            "/status",
            "/config",
            "/doctor",
            "/context",
            "/cost",
            "/memory",
            "/export out.json",
        ):
            shown += await _command(session, line)
    return shown + _text_of(world.folder / "out.json")


async def _model_command(world: SageWorld) -> str:
    """The key as a model's name, of a provider and alone, known to this process and only by its form."""
    async with MockServer({"replies": [{"text": "hello"}] * 9}) as server:
        with _variables(world, {**server.env, _VARIABLE: KEY}):
            async with world.open() as session:
                shown = await _told(session, "hello")
                for name in (KEY, f"anthropic/{KEY}", f"openai/{KEY}", FORM_KEY, f"anthropic/{FORM_KEY}"):
                    shown += await _command(session, f"/model {name}")
                    shown += await _told(session, "go on")
                    shown += json.dumps([session.usage(), session.context()], default=str)
                    for line in ("/cost", "/status", "/context", "/model", "/export out.json"):
                        shown += await _command(session, line)
    return shown + _text_of(world.folder / "out.json")


async def _model_flag(world: SageWorld) -> str:
    """The key as the model of `sage -p`, answered and refused by its server, and what later commands show."""
    shown = ""
    words: tuple[str, ...]
    async with MockServer(
        {"replies": [{"text": "hello"}, {"error": {"kind": "bad_request", "message": "no"}}] * 9}
    ) as server:
        with _variables(world, {**server.env, _VARIABLE: KEY}):
            for model in (f"anthropic/{KEY}", f"openai/{KEY}", f"anthropic/{FORM_KEY}", KEY, FORM_KEY):
                for words in (("--stream-json",), ("--output-format", "json"), ("--debug",)):
                    shown += await _sage(world, "-p", "hello", "--model", model, *words)
            for words in (
                ("sessions", "list", "--json"),
                ("usage", "--by", "model"),
                ("status",),
                ("-c", "-p", "more"),
            ):
                shown += await _sage(world, *words)
    return shown


async def _command(session: Any, line: str) -> str:
    try:
        result = await run_command(session, line)
    except LyraError as error:
        # What the user has typed may be shown to them; it is not kept.
        return "" if KEY in line or FORM_KEY in line else error.render() + repr(error.fields)
    return "" if KEY in line or FORM_KEY in line else repr(result.blocks)


async def _titles(world: SageWorld) -> str:
    async with world.open(start={"title": f"work with {KEY}"}) as session:
        shown = await _told(session, "hello")
        session.set_title(f"again {KEY}")
        first = session.id
    async with world.open(start={"resume": first, "fork": True}) as session:
        return shown + await _told(session, "go on")


async def _sub_agents(world: SageWorld) -> str:
    world.write("k.txt", KEY)
    replies = (
        call("Task", description=f"look for {KEY}", prompt=f"use {KEY}", subagent_type="Explore"),
        call("Task", description="look", prompt="read k.txt", subagent_type="Explore"),
        call("Read", file_path="k.txt"),
        {"text": f"It says {KEY}"},
        {"text": "done"},
    )
    async with world.open(*replies) as session:
        return await _told(session, "go")


async def _interrupted(world: SageWorld) -> str:
    async with world.open({"text": f"the key is {KEY} and more", "chunks": 3, "chunk_s": 0.2}) as session:
        lines: list[Any] = []
        async for line in session.send("go"):
            lines.append(line)
            if line["type"] == "text_delta":
                await session.interrupt()
        return json.dumps(lines, default=str)


async def _hooks(world: SageWorld) -> str:
    """What a hook is given: prompts, arguments and outputs."""
    world.write("k.txt", KEY)
    log = world.folder / "hooks.log"
    events = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionStart", "SessionEnd")
    entries = "".join(
        f'[[hooks.{event}]]\ncommand = "cat >> {log}; env >> {log}"\nsandbox = false\n' for event in events
    )
    world.user_file("lyra.toml", entries)
    async with world.open(call("Read", file_path="k.txt"), {"text": f"it is {KEY}"}) as session:
        shown = await _told(session, f"read {KEY}")
    return shown + _text_of(log)


# ---------------------------------------------------------------- other faces
async def _printed(world: SageWorld) -> str:
    world.write("k.txt", KEY)
    shown = ""
    words: tuple[str, ...]
    for words in (("--output-format", "json"), ("--stream-json",), ("--output-mode", "streaming"), ("--verbose",)):
        model = world.script(call("Read", file_path="k.txt"), {"text": f"it is {KEY}"})
        shown += await _sage(world, "-p", f"read it {KEY}", "--model", model, *words)
    for words in (("sessions", "list", "--json"), ("sessions", "list"), ("usage",), ("doctor",), ("status",)):
        shown += await _sage(world, *words)
    with_sessions = world.sessions.glob("2*") if world.sessions.exists() else ()
    for path in list(with_sessions)[:1]:
        shown += await _sage(world, "sessions", "show", path.name)
        shown += await _sage(world, "sessions", "export", path.name, "--format", "json")
    return shown


async def _failing_server(world: SageWorld) -> str:
    script = {"replies": [{"error": {"kind": "bad_request", "message": f"bad header x-api-key: {KEY}"}}]}
    async with MockServer(script) as server:
        with _variables(world, {**server.env, _VARIABLE: KEY}):
            shown = ""
            for words in (("--stream-json",), ("--debug",), ("--output-format", "json"), ()):
                shown += await _sage(world, "-p", "hello", "--model", "anthropic/scripted", *words)
    return shown


async def _editor(world: SageWorld) -> str:
    from verify.attacks.sage.editor import talk

    world.write("k.txt", KEY)
    model = world.script(
        call("Read", file_path="k.txt"),
        call("Bash", command="cat k.txt"),
        {"text": f"it is {KEY}", "thinking": KEY},
    )
    return (await talk(world, model, [f"read {KEY}", "/status", "/nothing"])).told


async def _sage(world: SageWorld, *words: str) -> str:
    done = await asyncio.to_thread(world.sage, *words)
    return done.stdout + done.stderr


def _variables(world: SageWorld, variables: dict[str, str]) -> Any:
    from unittest import mock

    world.env.update(variables)
    return mock.patch.dict("os.environ", variables)


def _text_of(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


ATTEMPTS: Final[dict[str, Callable[[SageWorld], Coroutine[Any, Any, str]]]] = {
    "in a prompt": _prompt,
    "in text beside a prompt": _beside,
    "in the output of tools": _tool_output,
    "in the environment of a command": _environment,
    "in a file that is written": _written_file,
    "in a file that is changed and undone": _changed_file,
    "in the model's answer and thinking": _answer_of_the_model,
    "in the error of the model's server": _error_of_the_server,
    "in slash commands": _slash_commands,
    "as the model of a slash command": _model_command,
    "as the model of sage -p": _model_flag,
    "in titles and forks": _titles,
    "in the work of sub-agents": _sub_agents,
    "in an answer that is cut off": _interrupted,
    "in what hooks are given": _hooks,
    "in what sage -p prints": _printed,
    "in the errors that sage -p prints": _failing_server,
    "in what an editor is told": _editor,
}


def run(names: Collection[str] = ATTEMPTS.keys()) -> Attempts:
    """Say the key in every place, and search for it."""
    effects: list[str] = []
    for what in names:
        attempt = ATTEMPTS[what]
        with sage_world(**{_VARIABLE: KEY}) as world:
            shown = asyncio.run(attempt(world))
            effects += [f"{what}: {leak} was shown" for leak in leaks_in(shown.encode(errors="replace"))]
            effects += [f"{what}: {leak}" for leak in kept_leaks(world)]
    return Attempts(len(names), effects)
