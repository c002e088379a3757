"""Attempts to lead Sage out of the project by paths: links that are swapped in before an undo, ids of sessions, imports
of rules, files of skills and plugins, names of commands, exports, and files that an editor is asked for.

A folder outside holds a file with a secret word. After each attempt it must be as it was, and the word must stand in
nothing that was shown, sent to the model or kept.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import acp

from lyra.agents.acp.editor_agent import EditorAgent
from lyra.agents.headless.options import HeadlessOptions
from lyra.errors import LyraError
from lyra.sage.acp import SageSessions
from lyra.sage.commands.registry import run_command
from lyra.testing.mock import MockServer
from verify.attacks.sage.editor import AttackedEditor, talk
from verify.attacks.sage.world import SageWorld, call, sage_world, say
from verify.attacks.scripted_agent import Attempts, state_of

__all__ = ["ATTEMPTS", "SECRET", "run"]

SECRET: Final = "outsideword7731"  # noqa: S105 - a word that is looked for
_OUT: Final = ("../outside/secret.md", "{outside}/secret.md", "x/../../outside/secret.md", "link.md", "door/secret.md")


def _out(world: SageWorld) -> list[str]:
    return [path.format(outside=world.outside) for path in _OUT]


def _link_out(world: SageWorld, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "link.md").symlink_to(world.outside / "secret.md")
    (folder / "door").symlink_to(world.outside)


# ---------------------------------------------------------------- undo
async def _undo(world: SageWorld, swap: Callable[[SageWorld], None], how: str) -> str:
    """Edit a file below a folder, swap something for a link, and go back."""
    world.write("dir/secret.md", "before\n")
    replies = (
        call("Read", file_path="dir/secret.md"),
        call("Edit", file_path="dir/secret.md", old_string="before", new_string="after"),
        call("Write", file_path="dir/new.md", content="new\n"),
        call("Bash", command="mkdir -p dir/sub && echo x > dir/sub/y && rm -f dir/gone"),
        {"text": "done"},
    )
    shown = ""
    async with world.open(*replies, mode="accept-edits", allow=("Bash",)) as session:
        await session.checkpoint("start")
        await say(session, "go")
        swap(world)
        for force in (False, True):
            try:
                restored = await (session.undo(force=force) if how == "undo" else session.restore("start", force=force))
                shown += repr(restored)
            except LyraError as error:
                shown += error.render() + repr(error.fields)
    return shown


def _swap_folder(world: SageWorld) -> None:
    shutil.rmtree(world.folder / "dir")
    (world.folder / "dir").symlink_to(world.outside)


def _swap_file(world: SageWorld) -> None:
    (world.folder / "dir" / "secret.md").unlink()
    (world.folder / "dir" / "secret.md").symlink_to(world.outside / "secret.md")


def _hard_link(world: SageWorld) -> None:
    """A name of the outside file in the project: what is put there is a new file."""
    (world.folder / "dir" / "secret.md").unlink()
    os.link(world.outside / "plain.md", world.folder / "dir" / "secret.md")


def _undo_of(swap: Callable[[SageWorld], None], how: str) -> Callable[[SageWorld], Coroutine[Any, Any, str]]:
    async def attempt(world: SageWorld) -> str:
        return await _undo(world, swap, how)

    return attempt


async def _copies(world: SageWorld) -> str:
    """Files outside that links lead to are not copied for an undo."""
    _link_out(world, world.folder)
    replies = (
        call("Bash", command="echo x >> a.txt; ls -la; cat link.md door/secret.md"),
        *(call("Edit", file_path=path, old_string="outside", new_string="x") for path in _out(world)),
        *(call("Write", file_path=path, content="x") for path in _out(world)),
        {"text": "done"},
    )
    async with world.open(*replies, mode="accept-edits", allow=("Bash",), max_turns=30) as session:
        shown = repr(await say(session, "go"))
        await session.checkpoint("now")
    return shown


# ---------------------------------------------------------------- ids of sessions
_IDS: Final = (
    "../../../../outside",
    "../outside",
    "/",
    "..",
    ".",
    "%2e%2e/x",
    "20261117-ab/../..",
    "*",
    "'; DROP TABLE",
)


async def _session_ids(world: SageWorld) -> str:
    (world.outside / "record.json").write_text('{"id": "outside", "folder": "x"}')
    async with world.open() as session:
        await say(session, "hello")
        for text in (*_IDS, str(world.outside)):
            with suppress(LyraError):
                await run_command(session, f"/resume {text}")
    shown = ""
    for text in (*_IDS[:4], str(world.outside)):
        for words in (
            ("sessions", "rm", text),
            ("sessions", "show", text),
            ("-p", "x", "--model", "sim/echo", "-r", text),
        ):
            done = await asyncio.to_thread(world.sage, *words)
            shown += done.stdout + done.stderr
            if done.returncode == 0:
                shown += f"{SECRET}: {words} succeeded"
    with suppress(OSError):
        (world.outside / "record.json").unlink()
    return shown


async def _linked_session(world: SageWorld) -> str:
    """A link among the sessions is removed, not followed."""
    async with world.open() as session:
        await say(session, "hello")
        session_id = session.id
    shutil.rmtree(world.sessions / session_id)
    (world.sessions / session_id).symlink_to(world.outside)
    done = await asyncio.to_thread(world.sage, "sessions", "rm", session_id)
    return done.stdout + done.stderr


async def _exports(world: SageWorld) -> str:
    """An export over a link of the project replaces the link."""
    _link_out(world, world.folder)
    async with world.open() as session:
        await say(session, "hello")
        for line in ("/export link.md", "/export link.md --force"):
            with suppress(LyraError):
                await run_command(session, line)
        (world.folder / "link2.md").symlink_to(world.outside / "secret.md")
        await asyncio.to_thread(world.sage, "sessions", "export", session.id, "-o", "link2.md")
    return ""


# ---------------------------------------------------------------- what is read for the model
async def _requests(world: SageWorld, *replies: dict[str, Any], prompt: str = "go", **options: Any) -> str:
    """All that a model's server was sent in one turn."""
    async with MockServer({"sequence": [*replies, {"text": "done"}]}) as server:
        os.environ.update(server.env)
        async with world.open(model="anthropic/scripted", **options) as session:
            lines = await say(session, prompt, lambda _line: ("deny", None))
        return repr(server.requests) + repr(lines)


async def _imports(world: SageWorld) -> str:
    """Rules of a trusted project import files outside of it, by their name or through links."""
    _link_out(world, world.folder)
    _link_out(world, world.folder / ".lyra" / "rules")
    imports = "\n".join(f"See @{path}" for path in _out(world))
    world.write("AGENTS.md", f"Rules.\n{imports}\n@~/../outside/secret.md\n")
    world.write("SAGE.md", imports)
    return await _requests(world, trusted=True)


async def _linked_rules(world: SageWorld) -> str:
    for name in ("AGENTS.md", "SAGE.md"):
        (world.folder / name).symlink_to(world.outside / "secret.md")
    (world.folder / ".lyra").mkdir()
    (world.folder / ".lyra" / "rules").symlink_to(world.outside)
    return await _requests(world, trusted=True)


async def _skills(world: SageWorld) -> str:
    """Files beside a skill, and a skill that is itself a link."""
    folder = world.folder / ".lyra" / "skills" / "own"
    _link_out(world, folder)
    (folder / "SKILL.md").write_text("---\ndescription: x\n---\nRead the files.\n")
    (folder.parent / "linked.md").symlink_to(world.outside / "secret.md")
    calls = [call("Skill", name="own", file=path) for path in (*_out(world), "../linked.md")]
    calls += [call("Skill", name=name) for name in ("own", "linked", "../../../../outside/secret", *_out(world))]
    return await _requests(world, *calls, trusted=True, max_turns=30)


async def _commands(world: SageWorld) -> str:
    """Custom commands that are links, and names that are paths."""
    folder = world.folder / ".lyra" / "commands"
    _link_out(world, folder)
    shown = ""
    async with world.open(trusted=True) as session:
        for name in ("link", "door:secret", *(path.removesuffix(".md") for path in _out(world))):
            try:
                shown += repr((await run_command(session, f"/{name}")).prompt)
            except LyraError as error:
                shown += error.render()
    return shown


async def _plugins(world: SageWorld) -> str:
    """Assets of a plugin outside of its folder."""
    shown = ""
    for number, path in enumerate(("../outside", str(world.outside), "door", "link.md", "../../outside/secret.md")):
        folder = world.root / f"plugin{number}"
        _link_out(world, folder)
        (folder / "plugin.toml").write_text(
            f'schema = 1\nid = "p{number}"\nname = "P"\nversion = "1.0"\ndescription = "x"\n[assets]\n'
            f'commands = ["{path}"]\nskills = ["{path}"]\n[permissions]\n'
        )
        done = await asyncio.to_thread(world.sage, "plugins", "install", str(folder))
        shown += done.stdout + done.stderr
    return shown


async def _tools(world: SageWorld) -> str:
    """The tools themselves, in a session that asks a person who says no."""
    _link_out(world, world.folder)
    calls = [call(tool, file_path=path) for path in _out(world) for tool in ("Read",)]
    calls += [call("Grep", pattern=SECRET[:10], path=path, output_mode="content") for path in ("..", "door", "link.md")]
    calls += [call("Bash", command=f"cat {path}") for path in _out(world)]
    paths = " ".join(f"@{path}" for path in _out(world))
    return await _requests(world, *calls, prompt=f"look at {paths}", attended=True, allow=("Bash",), max_turns=30)


# ---------------------------------------------------------------- an editor
async def _editor(world: SageWorld) -> str:
    """The editor is asked for no file outside, and no session begins in a folder that is no absolute path."""
    _link_out(world, world.folder)
    calls = [call("Read", file_path=path) for path in _out(world)]
    calls += [call("Write", file_path=path, content="x") for path in _out(world)]
    editor = AttackedEditor()
    await talk(world, world.script(*calls, {"text": "done"}), ["go"], editor=editor, max_turns=30)
    outside = [path for path in (*editor.read, *editor.written) if not path.startswith(f"{world.folder}/")]
    shown = f"{SECRET}: the editor was asked for {outside}" if outside else ""
    agent = EditorAgent(SageSessions(HeadlessOptions(model="sim/echo", folder=str(world.folder))))
    agent.on_connect(editor)
    for cwd in ("../outside", "outside", ""):
        with suppress(acp.RequestError):
            await agent.new_session(cwd=cwd)
            shown += f"{SECRET}: a session began in {cwd!r}"
    for text in _IDS:
        with suppress(acp.RequestError):
            await agent.load_session(str(world.folder), text)
            shown += f"{SECRET}: the session {text!r} was opened"
    await agent.close()
    return shown + editor.told


ATTEMPTS: Final[dict[str, tuple[int, Callable[[SageWorld], Coroutine[Any, Any, str]]]]] = {
    "an undo where a folder is a link now": (2, _undo_of(_swap_folder, "undo")),
    "an undo where a file is a link now": (2, _undo_of(_swap_file, "undo")),
    "an undo where a file is another name of one outside": (2, _undo_of(_hard_link, "undo")),
    "a checkpoint where a folder is a link now": (2, _undo_of(_swap_folder, "restore")),
    "a checkpoint where a file is a link now": (2, _undo_of(_swap_file, "restore")),
    "copies of files outside": (11, _copies),
    "ids of sessions": (25, _session_ids),
    "a link among the sessions": (1, _linked_session),
    "exports over links": (3, _exports),
    "imports of rules": (11, _imports),
    "rules that are links": (3, _linked_rules),
    "files of skills": (14, _skills),
    "names of commands": (7, _commands),
    "assets of plugins": (5, _plugins),
    "tools and prompts": (18, _tools),
    "files and sessions of an editor": (22, _editor),
}


def run(names: Collection[str] = ATTEMPTS.keys()) -> Attempts:
    """Make the attempts; each change outside, and each place where the secret word stands, is an effect."""
    effects: list[str] = []
    for what in names:
        with sage_world() as world:
            (world.outside / "secret.md").write_text(f"{SECRET}\n")
            (world.outside / "plain.md").write_text("plain\n")
            before = state_of(world.outside)
            shown = asyncio.run(ATTEMPTS[what][1](world))
            if state_of(world.outside) != before:
                effects.append(f"{what}: a file outside was changed")
            if SECRET in shown:
                position = shown.index(SECRET)
                effects.append(f"{what}: told {shown[max(0, position - 60) : position + 120]!r}")
            effects += [
                f"{what}: the word is in {path.relative_to(world.home)}"
                for path in world.home.rglob("*")
                if path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes()
            ]
    return Attempts(sum(ATTEMPTS[what][0] for what in names), effects)
