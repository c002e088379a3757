"""Every hook event happens in a real run, with the input that the table says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.config.hook_settings import COMMON_FIELDS, HOOK_EVENTS
from lyra.sage.extensions.hooks import Hooks, StatusLine
from tests.sage.extensions.hooks.support import Run, call, headless, records, user_file
from tests.sage.open_session import Project

EVERY_EVENT = "\n".join(f'[[hooks.{event}]]\ncommand = "cat >> log.jsonl"' for event in HOOK_EVENTS)


async def allow_questions(run: Run) -> None:
    """Answer the next question with allow."""
    kernel = run.headless.kernel
    while not (asked := kernel.interrupts.list_interrupts(status="pending")):
        await asyncio.sleep(0.01)
    await kernel.resolve_interrupt(asked[0].id, {"decision": "allow", "approved": True})


@pytest.mark.slow
async def test_every_event_happens_with_the_input_of_the_table(project: Project) -> None:
    """One run with a question, a sub-agent, a failure and a compaction: thirteen commands are run, none is missing, and
    each has exactly the fields that the table names."""
    user_file(project, EVERY_EVENT)
    project.write("a.txt", "alpha")
    replies = (
        call("Read", file_path="a.txt"),
        call("Read", file_path="missing.txt"),
        call("Write", file_path="new.txt", content="new"),
        call("Task", description="look", prompt="Find it.", subagent_type="explore"),
        {"text": "It is in a.txt."},
        {"text": "Done."},
        {"text": "Nothing more."},
        {"text": "A summary of it."},
    )
    async with headless(project, *replies, attended=True) as run:
        answering = asyncio.ensure_future(allow_questions(run))
        assert (await run.ask("Look around"))["status"] == "success"
        await answering
        assert run.headless.process is not None
        await _say_more(run)
        await run.headless.process.compact()
        hooks = run.headless.options.hooks
        assert isinstance(hooks, Hooks)
        await StatusLine(hooks).refresh({"model": "m", "mode": "default", "cost_usd": 0.0, "context_tokens": 10})
    log = records(project)
    by_event: dict[str, dict[str, Any]] = {}
    for record in log:
        by_event.setdefault(record["event"], record)
    assert set(by_event) == set(HOOK_EVENTS)
    for event, record in by_event.items():
        own = set(record) - COMMON_FIELDS.keys()
        assert own == set(HOOK_EVENTS[event].fields), event
        assert record["cwd"] == str(project.folder)
        assert ("agent_type" in record) == event.startswith("Subagent")
        if event != "StatusLine":
            assert record["session_id"] == run.headless.session_id
    assert by_event["PreToolUse"]["tool"] == "Read"
    assert by_event["PreToolUse"]["arguments"] == {"file_path": "a.txt"}
    assert "alpha" in by_event["PostToolUse"]["output"]
    assert by_event["PostToolUseFailure"]["error_code"] == "not_found"
    assert by_event["PermissionRequest"]["tool"] == "Write"
    assert by_event["PermissionRequest"]["subject"] == str(project.folder / "new.txt")
    assert by_event["UserPromptSubmit"]["prompt"] == "Look around"
    assert by_event["SubagentStart"]["agent_type"] == by_event["SubagentStop"]["agent_type"] == "explore"
    assert by_event["SubagentStart"]["prompt"].startswith("Find it.")
    assert by_event["SubagentStop"]["text"] == "It is in a.txt."
    assert (by_event["Stop"]["text"], by_event["Stop"]["refusals"]) == ("Done.", 0)
    assert by_event["Notification"]["kind"] == "question"
    assert by_event["Notification"]["message"].startswith("Allow Write?")
    assert by_event["PreCompact"]["trigger"] == "manual"
    assert by_event["StatusLine"]["model"] == "m"
    assert [record["source"] for record in log if record["event"] == "SessionStart"] == ["new", "compact"]
    assert [record["reason"] for record in log if record["event"] == "SessionEnd"] == ["exit"]


async def _say_more(run: Run) -> None:
    """A second turn, so that there is something to summarise."""
    assert (await run.ask("And now?"))["status"] == "success"
