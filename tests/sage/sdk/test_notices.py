"""Notices and background tasks in the SDK: typed events, a callback, and questions that the callback answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lyra.errors import ConfigError
from lyra.sage.sdk import PermissionRequest, RunOptions, SageAgentSDK, SageNotice, UnifiedRunOptions
from tests.sage.sdk.test_sdk import DONE, WRITE, call, place, sdk

__all__ = ["place"]  # a fixture

START = call("Task", description="tidy up", prompt="tidy", run_in_background=True)
REPLIES = [
    {"user": "go", **START},
    {"user": "tidy", **call("Bash", command="touch tidied"), "first_s": 0.2},
    {"tool": "Bash", "text": "It is tidy."},
    {"text": "I started it."},
]


def rules(place: Path, *replies: dict[str, Any]) -> str:
    path = place.parent / "rules.json"
    path.write_text(json.dumps({"replies": replies}))
    return f"sim/script:{path}"


async def test_a_task_in_the_background_asks_the_callback_and_its_end_is_told(place: Path) -> None:
    """Between runs as well: the callback is asked and told at once, and the next run has the notices as events."""
    asked: list[PermissionRequest] = []
    told: list[SageNotice] = []
    over = asyncio.Event()

    def ask(request: PermissionRequest) -> bool:
        asked.append(request)
        return True

    def tell(notice: SageNotice) -> None:
        told.append(notice)
        if notice.task is not None and notice.task["state"] != "asks":
            over.set()

    model = rules(place, *REPLIES)
    async with SageAgentSDK(model=model, permission_callback=ask, notice_callback=tell) as open_sdk:
        assert (await open_sdk.run("go")).final_result == "I started it."
        async with asyncio.timeout(60):
            await over.wait()
        events = [event async for event in open_sdk.stream("and now?")]
    assert (place / "tidied").exists()
    assert "touch tidied" in asked[0].question
    notices = [event for event in events if isinstance(event, SageNotice)]
    assert [notice.source for notice in notices][-1] == "task"
    assert notices[-1].type == "notice"
    assert notices[-1].task is not None
    assert notices[-1].task["id"] == asked[0].task
    assert notices[-1].level == "info"
    assert "tidy up" in notices[-1].text
    assert notices[-1].text.endswith(": done")
    assert events[-1].type == "result"
    assert [notice.text for notice in told][-1] == notices[-1].text


async def test_a_callback_that_says_no_denies_the_task(place: Path) -> None:
    over = asyncio.Event()
    made = SageAgentSDK(model=rules(place, *REPLIES), permission_callback=lambda _request: "not now")
    made.with_notice_callback(lambda notice: over.set() if notice.text.endswith(": done") else None)
    async with made as open_sdk:
        await open_sdk.run("go")
        async with asyncio.timeout(60):
            await over.wait()
    assert not (place / "tidied").exists()


async def test_words_of_a_hook_and_changed_files_are_notices(place: Path) -> None:
    """A notice callback that fails does not end the run."""
    settings = place.parent / "home" / ".config" / "lyra"
    (settings / "commands").mkdir(parents=True)
    hook = 'printf \'{"message": "mind the gap"}\''
    (settings / "lyra.toml").write_text(f"[[hooks.UserPromptSubmit]]\ncommand = {json.dumps(hook)}\n")

    def tell(_notice: SageNotice) -> None:
        raise RuntimeError("boom")

    async with SageAgentSDK(model="sim/echo", notice_callback=tell) as open_sdk:
        first = await open_sdk.run("one")
        (settings / "commands" / "deploy.md").write_text("Deploy it.\n")
        (settings / "commands" / "broken.md").write_text("---\nmodel: [\n---\nx\n")
        second = await open_sdk.run("two")
    assert first.is_success
    (notice,) = [event for event in first.events if isinstance(event, SageNotice)]
    assert notice.source == "hook"
    assert notice.text.endswith("mind the gap")
    later = [event for event in second.events if isinstance(event, SageNotice) and event.source == "extensions"]
    assert "new: /deploy" in later[0].text
    assert later[1].level == "warning"
    assert "broken.md" in later[1].text


async def test_a_run_that_asks_nothing_asks_nothing_in_an_open_session(place: Path) -> None:
    """Although the session could ask; and a sync or plain run obeys `interactive=False` as well."""

    def ask(_request: PermissionRequest) -> bool:
        raise AssertionError("no question was expected")

    async with sdk(place, WRITE, DONE, WRITE, DONE, permission_callback=ask) as open_sdk:
        assert (await open_sdk.execute_non_interactive("write")).error_steps
        quiet = UnifiedRunOptions(interactive=False)
        assert (await open_sdk.run_with_options("write", quiet)).error_steps
    assert not (place / "a.txt").exists()


async def test_options_of_a_run_are_refused_in_an_open_session(place: Path) -> None:
    """They would do nothing: the session was opened with others."""
    async with SageAgentSDK(model="sim/echo") as open_sdk:
        with pytest.raises(ConfigError, match="max_steps cannot change"):
            await open_sdk.run_with_options("hi", RunOptions(max_steps=1))
        assert (await open_sdk.run("hi")).final_result == "hi"


async def test_the_end_of_a_command_in_the_background_is_told(place: Path) -> None:
    """Of one that ends by itself, well or not; not of one that was stopped."""
    told: list[tuple[str, str]] = []
    both = asyncio.Event()

    def tell(notice: SageNotice) -> None:
        assert notice.task is not None
        told.append((notice.task["id"], notice.level))
        if len(told) == 2:
            both.set()

    commands = [{"command": command, "run_in_background": True} for command in ("true", "exit 3", "sleep 60")]
    start = {"tool_calls": [{"name": "Bash", "arguments": arguments} for arguments in commands]}
    allowed = {"allowed_tools": ["Bash"], "notice_callback": tell}
    async with sdk(place, start, call("KillShell", bash_id="bash_3"), DONE, **allowed) as open_sdk:
        assert (await open_sdk.run("go")).is_success
        async with asyncio.timeout(60):
            await both.wait()
    assert sorted(told) == [("bash_1", "info"), ("bash_2", "warning")]


async def test_a_task_that_cannot_be_sent_is_refused_and_the_session_goes_on(place: Path) -> None:
    """One that is empty, or has half of a character: the next run works."""
    async with SageAgentSDK(model="sim/echo") as open_sdk:
        for task in ("half \ud83d", ["half \ud83d"], " ", []):
            with pytest.raises(ConfigError, match="task"):
                await open_sdk.run(task)
        assert (await open_sdk.run("fine \N{GRINNING FACE}")).final_result == "fine \N{GRINNING FACE}"
