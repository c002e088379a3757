"""kill -9 of a session with two sub-agents at work and a command: opened again, all of them are there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lyra.models.provider import Request
from lyra.testing.mock import MockServer
from tests.sage.agent.killed_session import MODEL, tools_of
from tests.sage.agent.task_support import calls, opened, task

MARK = "sleep 317.25"  # a line that no other process of this machine has


class Script:
    """A model behind HTTP: each sub-agent digs once and then thinks until the session was killed."""

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, int]] = Counter()
        self.hangs = True

    def __call__(self, request: Request) -> Any:
        first = request.messages[0].text
        who = first.partition(" ")[0].rstrip(":")
        answers = sum(message.role == "assistant" for message in request.messages)
        self.asked[who, answers] += 1
        if first.startswith("lead: what"):
            return {"text": "told"}
        if who == "lead":
            command = {"name": "Bash", "arguments": {"command": f"echo up; {MARK}", "run_in_background": True}}
            steps = [calls(command), calls(task("one"), task("two", subagent_type="general")), {"text": "told"}]
            return steps[answers] if answers < len(steps) else {"text": "told"}
        if answers == 0:
            return calls({"name": "dig", "arguments": {"name": who}})
        return {"text": f"{who} is done", "first_s": 60.0 if self.hangs else 0.0}


def commands_running() -> list[str]:
    """The pids of processes whose command line has the mark."""
    pids = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if line.split(b"\0")[:2] == [word.encode() for word in MARK.split()]:
            pids.append(pid)
    return pids


def start(folder: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-m", "tests.sage.agent.killed_session", str(folder)]
    return subprocess.Popen(command, env={**os.environ, **env, "PYTHONPATH": path})


def lines_of(path: Path) -> list[str]:
    return sorted(path.read_text().split()) if path.exists() else []


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_two_sub_agents_and_a_command_after_kill_9(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both go on and answer, no finished model or tool call is made again, the command is told to be lost."""
    script = Script()
    async with MockServer(script) as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        child = start(tmp_path, server.env)
        try:
            await until(lambda: script.asked["one", 1] and script.asked["two", 1] and commands_running())
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        await until(lambda: not commands_running())
        before = dict(script.asked)
        script.hangs = False
        settings: dict[str, Any] = {"tools": tools_of(tmp_path), "permissions": {"mode": "bypass"}}
        async with opened(tmp_path, MODEL, goes_on=False, **settings) as session:
            command, *agents = session.tasks.list()
            assert (command.id, command.state, command.text) == ("bash_1", "lost", "up\n")
            assert [record.description for record in agents] == ["work on one", "work on two"]
            await session.until(lambda: all(session.state(record.id) == "done" for record in agents))
            assert [session.tasks.get(record.id).text for record in agents] == ["one is done", "two is done"]
            assert sorted(notice.id for notice in session.notices) == sorted(record.id for record in agents)
            assert await session.say("lead: what came of it?") == "told"
            (told,) = [message.text for message in session.process.messages if "by the program" in message.text]
            assert told.count("is done; TaskOutput gives its answer") == 2
        assert lines_of(tmp_path / "dug.txt") == ["one", "two"]
        again = {asked: count - before.get(asked, 0) for asked, count in script.asked.items()}
        assert {asked: count for asked, count in again.items() if count and asked[0] != "lead"} == {
            ("one", 1): 1,
            ("two", 1): 1,
        }, "only the two calls that were cut off are made again"
