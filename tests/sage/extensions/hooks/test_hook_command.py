"""Hooks that are programs: what they are given, what holds them, and that a blocking one fails closed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lyra.sage.extensions.hooks import Hooks, hook_from
from lyra.sage.extensions.hooks.hook import OUTPUT_BYTES_MAX
from tests.sage.extensions.hooks.support import call, headless, records, user_file
from tests.sage.open_session import Project

WRITE = call("Write", file_path="new.txt", content="new")
DONE = {"text": "Done."}
# Every way in which a program gives no answer that can be used, and a word of what is told.
FAILURES = {
    "exit code": ("exit 3", "exit code is 3"),
    "exit code with words": ("echo broken >&2; exit 1", "broken"),
    "signal": ("kill -9 $$", "signal 9"),
    "time-out": ("sleep 20", "longer than"),
    "missing program": ("/nowhere/check.sh", "exit code is 127"),
    "broken JSON": ("echo '{\"decision\": '", "not JSON"),
    "JSON with something behind it": ("echo '{} {}'", "not JSON"),
    "no UTF-8 in JSON": ('printf \'{"reason": "\\377\\376"\'', "not JSON"),
    "unknown key": ('echo \'{"decison": "deny"}\'', "decison"),
    "unknown decision": ('echo \'{"decision": "block"}\'', "none of"),
    "wrong type": ("echo '{\"continue\": 1}'", "continue"),
    "arguments that are no object": ("echo '{\"arguments\": [1]}'", "arguments"),
    "deep nesting": ('python3 -c \'print("{\\"arguments\\":" * 9000)\'', "not JSON"),
    "too much output": (f"head -c {OUTPUT_BYTES_MAX + 1} /dev/zero", "printed more"),
    "too much on stderr": (f"head -c {OUTPUT_BYTES_MAX + 1} /dev/zero >&2", "printed more"),
}


def settings(event: str, command: str, **more: Any) -> str:
    lines = [f"[[hooks.{event}]]", f"command = '''{command}'''", *(f"{key} = {value}" for key, value in more.items())]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("command", "told"), FAILURES.values(), ids=FAILURES.keys())
async def test_a_blocking_hook_that_fails_denies_the_call(project: Project, command: str, told: str) -> None:
    user_file(project, settings("PreToolUse", command, blocking="true", timeout_s=0.5))
    async with headless(project, WRITE, DONE, allow=("Write",)) as run:
        assert (await run.ask())["status"] == "success"
        assert told in run.outputs()[0]
        assert "it is blocking" in run.outputs()[0]
    assert not (project.folder / "new.txt").exists()


@pytest.mark.parametrize("name", ["exit code", "time-out", "broken JSON"])
async def test_another_hook_that_fails_is_a_warning(project: Project, name: str) -> None:
    """The call is made, and the user is told which hook failed and why."""
    command, told = FAILURES[name]
    user_file(project, settings("PreToolUse", command, timeout_s=0.5))
    async with headless(project, WRITE, DONE, allow=("Write",)) as run:
        await run.ask()
        assert any(level == "warning" and told in text for level, text in run.notices)
    assert (project.folder / "new.txt").exists()


@pytest.mark.parametrize(
    ("event", "status", "turns"),
    [("UserPromptSubmit", "message_refused", 0), ("Stop", "success", 4), ("PostToolUse", "success", 2)],
)
async def test_what_a_failing_blocking_hook_denies(project: Project, event: str, status: str, turns: int) -> None:
    """The message, the end of the turn (three times), the result of a call."""
    user_file(project, settings(event, "exit 7", blocking="true"))
    project.write("a.txt", "alpha")
    replies = ([call("Read", file_path="a.txt")] if event == "PostToolUse" else []) + [DONE] * 4
    async with headless(project, *replies) as run:
        result = await run.ask()
        assert (result["status"], result["turns"]) == (status, turns)
        assert "alpha" not in "".join(run.outputs())


async def test_a_blocking_hook_denies_where_no_sandbox_works(project: Project) -> None:
    """Without a sandbox nothing runs, and what had to be checked is denied."""
    from lyra.sandbox import Sandbox

    hook = hook_from({"event": "PreToolUse", "command": "true", "blocking": True}, source="user")
    hooks = Hooks([hook], folder=str(project.folder), sandbox=Sandbox(tiers=()))
    async with headless(project, WRITE, DONE, hooks=hooks, allow=("Write",)) as run:
        await run.ask()
        assert "no sandbox works here" in run.outputs()[0]
    assert not (project.folder / "new.txt").exists()


# ---------------------------------------------------------------- what holds it
async def test_the_sandbox_lets_it_write_in_the_folder_and_nowhere_else(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no network, sees no other file of the user and none of their variables."""
    monkeypatch.setenv("MY_TOKEN", "abc-secret")
    (project.home / "private").write_text("mine")
    script = f"""\
    echo inside > inside.txt
    cat {project.home}/private > read.txt
    echo x > {project.home}/made
    env > env.txt
    python3 -c 'import socket; socket.create_connection(("1.1.1.1", 80), 2)' && echo reached > reached.txt
    true"""
    user_file(project, settings("UserPromptSubmit", script))
    async with headless(project, DONE) as run:
        await run.ask()
        assert run.notices == []
    assert (project.folder / "inside.txt").exists()
    assert (project.folder / "read.txt").read_text() == ""
    assert not (project.home / "made").exists()
    assert "abc-secret" not in (project.folder / "env.txt").read_text()
    assert not (project.folder / "reached.txt").exists()


async def test_without_the_sandbox_it_has_the_rights_of_the_user_and_no_keys(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    script = f"env > {project.home}/env.txt; cat > {project.home}/input.json"
    user_file(project, settings("UserPromptSubmit", script, sandbox="false"))
    async with headless(project, DONE) as run:
        await run.ask("hello")
    environment = (project.home / "env.txt").read_text()
    assert f"HOME={project.home}" in environment
    assert "sk-secret" not in environment
    assert '"prompt":"hello"' in (project.home / "input.json").read_text()


async def test_a_list_of_words_is_run_without_a_shell(project: Project) -> None:
    """A `$` is no variable, and a program that is not there is a failure, in the sandbox and outside."""
    user_file(
        project,
        """
        [[hooks.UserPromptSubmit]]
        command = ["printf", "%s", "$HOME; x"]
        [[hooks.UserPromptSubmit]]
        command = ["printf", "%s", "$HOME"]
        sandbox = false
        [[hooks.UserPromptSubmit]]
        command = ["no-such-program"]
        sandbox = false
        """,
    )
    async with headless(project, DONE) as run:
        await run.ask("hello")
        assert run.texts("user") == ["hello\n\n[added by a hook]\n$HOME; x\n\n$HOME"]
        assert [text for level, text in run.notices if level == "warning"] == [
            "the hook no-such-program for UserPromptSubmit failed: there is no program no-such-program"
        ]


async def test_a_program_in_the_home_folder_can_be_read_in_the_sandbox(project: Project) -> None:
    """`~/` is the user's home, and of all files there only the program itself is shown."""
    program = project.home / "bin" / "check.sh"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho seen; cat {project.home}/bin/other; true\n")
    program.chmod(0o755)
    (project.home / "bin" / "other").write_text("other file")
    user_file(project, settings("UserPromptSubmit", "~/bin/check.sh two words"))
    async with headless(project, DONE) as run:
        await run.ask("hello")
        assert "seen" in run.texts("user")[0]
        assert "other file" not in run.texts("user")[0]


def is_dead(pid: str) -> bool:
    """Whether a process has ended; one that its parent has not reaped yet has."""
    stat = Path("/proc", pid, "stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


async def test_everything_a_hook_started_ends_with_it(project: Project) -> None:
    user_file(project, settings("UserPromptSubmit", "sleep 61 & echo $! > pid; exit 0", sandbox="false"))
    async with headless(project, DONE) as run:
        await run.ask()
    pid = (project.folder / "pid").read_text().strip()
    async with asyncio.timeout(30):  # a signal that was sent is not yet an end
        while not is_dead(pid):
            await asyncio.sleep(0.01)


async def test_a_plugins_program_is_taken_from_its_own_folder(project: Project) -> None:
    """It can read its folder, and writes in the session's alone."""
    plugin = project.home / "plugin"
    plugin.mkdir()
    (plugin / "check.sh").write_text("cat note.txt; echo x > made; true")
    (plugin / "note.txt").write_text("a note of the plugin")
    hook = hook_from({"event": "UserPromptSubmit", "command": "sh ./check.sh"}, source="plugin:x", base=str(plugin))
    async with headless(project, DONE, hooks=[hook]) as run:
        await run.ask("hello")
        assert run.texts("user") == ["hello\n\n[added by a hook]\na note of the plugin"]
    assert not (plugin / "made").exists()


async def test_long_input_is_given_whole_and_may_be_left_unread(project: Project) -> None:
    """A program that reads nothing does not fail; one that reads gets more than a pipe holds."""
    user_file(project, settings("UserPromptSubmit", "true") + settings("UserPromptSubmit", "cat > log.jsonl"))
    async with headless(project, DONE) as run:
        assert (await run.ask("x" * 90_000))["status"] == "success"
    assert len(records(project)[0]["prompt"]) == 90_000
