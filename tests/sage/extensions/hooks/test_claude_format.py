"""Hooks in the JSON of Claude Code: they are told, matched and answered as there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lyra.config.hook_settings import HOOK_EVENTS
from lyra.errors import ConfigError
from lyra.sage.extensions.hooks import hook_from
from lyra.sage.extensions.hooks.hook import (
    HookAnswer,
    HookFailed,
    claude_input,
    read_claude_answer,
    read_claude_exit,
)
from tests.sage.extensions.hooks.support import call, headless, records, user_file
from tests.sage.open_session import Project

WRITE = call("Write", file_path="new.txt", content="new")
DONE = {"text": "Done."}


def specific(event: str, **keys: Any) -> str:
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, **keys}})


# ---------------------------------------------------------------- what it is given
BASE = {"session_id": "s", "cwd": "/w"}


@pytest.mark.parametrize(
    ("event", "fields", "told"),
    [
        (
            "PreToolUse",
            {"tool": "Edit", "arguments": {"file_path": "a"}, "call_id": "c"},
            {"tool_name": "Edit", "tool_input": {"file_path": "a"}, "tool_use_id": "c"},
        ),
        (
            "PostToolUse",
            {"tool": "Bash", "arguments": {"command": "ls"}, "call_id": "c", "output": "a"},
            {"tool_response": {"stdout": "a", "stderr": "", "interrupted": False, "isImage": False}},
        ),
        (
            "PostToolUse",
            {"tool": "Write", "arguments": {"file_path": "a"}, "call_id": "c", "output": "ok"},
            {"tool_response": {"filePath": "a", "success": True, "output": "ok"}},
        ),
        (
            "PostToolUseFailure",
            {"tool": "Bash", "arguments": {}, "call_id": "c", "error": "e", "error_code": "x"},
            {"tool_name": "Bash", "error": "e"},
        ),
        ("UserPromptSubmit", {"prompt": "hi"}, {"prompt": "hi"}),
        ("SessionStart", {"source": "new", "model": "m"}, {"source": "startup", "model": "m"}),
        ("SessionStart", {"source": "compact", "model": "m"}, {"source": "compact"}),
        ("SessionEnd", {"reason": "exit"}, {"reason": "prompt_input_exit"}),
        ("Stop", {"text": "t", "refusals": 0}, {"stop_hook_active": False, "last_assistant_message": "t"}),
        (
            "SubagentStop",
            {"text": "t", "refusals": 1, "agent_type": "x"},
            {"stop_hook_active": True, "agent_type": "x"},
        ),
        ("PreCompact", {"trigger": "auto", "messages": 3}, {"trigger": "auto", "custom_instructions": ""}),
        (
            "Notification",
            {"kind": "question", "message": "m"},
            {"notification_type": "permission_prompt", "message": "m", "title": "Sage"},
        ),
        (
            "StatusLine",
            {"model": "m", "mode": "default", "cost_usd": 1.5, "context_tokens": 3},
            {"model": {"id": "m", "display_name": "m"}, "cost": {"total_cost_usd": 1.5}},
        ),
    ],
)
def test_a_moment_is_told_as_there(event: str, fields: dict[str, Any], told: dict[str, Any]) -> None:
    given = claude_input({"event": event, **BASE, **fields})
    assert given | told == given
    assert (given["hook_event_name"], given["session_id"], given["cwd"]) == (event, "s", "/w")
    assert Path(given["transcript_path"]).read_bytes() == b""
    assert not {"event", "tool", "arguments", "call_id", "refusals", "kind", "cost_usd"} & given.keys()


@pytest.mark.parametrize(
    ("event", "matcher", "value", "fits"),
    [
        ("PreToolUse", "Edit|Write", "Write", True),
        ("PreToolUse", "Edit|Write", "MultiEdit", True),
        ("PreToolUse", "Write", "TodoWrite", False),
        ("PreToolUse", "Notebook.*", "NotebookEdit", True),
        ("PreToolUse", "mcp__.*__write", "mcp__files__write_all", True),
        ("PreToolUse", "^Read$", "Read", True),
        ("PreToolUse", "^Read$", "MyRead", False),
        ("PreToolUse", "Agent", "Task", True),
        ("PreToolUse", "", "Bash", True),
        ("PreToolUse", "*", "Bash", True),
        ("SessionStart", "startup|resume", "new", True),
        ("SessionStart", "startup", "resume", False),
        ("Notification", "permission_prompt", "question", True),
        ("Notification", "idle_prompt", "question", False),
    ],
)
def test_a_matcher_matches_as_there(event: str, matcher: str, value: str, fits: bool) -> None:
    hook = hook_from({"event": event, "command": "x", "matcher": matcher, "format": "claude"}, source="user")
    assert hook.is_for({HOOK_EVENTS[event].matches: value}) is fits


# ---------------------------------------------------------------- what it answers
@pytest.mark.parametrize(
    ("event", "printed", "answer"),
    [
        ("PreToolUse", "", HookAnswer()),
        ("PreToolUse", "only words", HookAnswer()),
        ("UserPromptSubmit", "only words\n", HookAnswer(context="only words")),
        ("SessionStart", "only words", HookAnswer(context="only words")),
        ("StatusLine", "{model}", HookAnswer(context="{model}")),
        (
            "PreToolUse",
            specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="no"),
            HookAnswer(decision="deny", reason="no"),
        ),
        ("PreToolUse", specific("PreToolUse", permissionDecision="ask"), HookAnswer(decision="ask")),
        (
            "PreToolUse",
            specific("PreToolUse", permissionDecision="allow", updatedInput={"a": 1}, additionalContext="c"),
            HookAnswer(decision="allow", arguments={"a": 1}, context="c"),
        ),
        ("PreToolUse", '{"decision": "block", "reason": "no"}', HookAnswer(decision="deny", reason="no")),
        ("PreToolUse", '{"decision": "approve"}', HookAnswer(decision="allow")),
        ("UserPromptSubmit", '{"decision": "block", "reason": "no"}', HookAnswer(decision="deny", reason="no")),
        ("Stop", '{"decision": "block", "reason": "on"}', HookAnswer(decision="deny", reason="on")),
        ("PostToolUse", '{"decision": "block", "reason": "mend it"}', HookAnswer(context="mend it")),
        ("PostToolUse", specific("PostToolUse", additionalContext="c"), HookAnswer(context="c")),
        (
            "PermissionRequest",
            specific("PermissionRequest", decision={"behavior": "allow"}),
            HookAnswer(decision="allow"),
        ),
        (
            "PermissionRequest",
            specific("PermissionRequest", decision={"behavior": "deny", "message": "no", "interrupt": True}),
            HookAnswer(decision="deny", reason="no", ends_turn=True),
        ),
        (
            "PreToolUse",
            '{"continue": false, "stopReason": "over", "systemMessage": "hi", "suppressOutput": true, "new": 1}',
            HookAnswer(reason="over", message="hi", ends_turn=True),
        ),
        ("Notification", '{"systemMessage": "hi"}', HookAnswer(message="hi")),
    ],
)
def test_an_answer_means_what_it_means_there(event: str, printed: str, answer: HookAnswer) -> None:
    """Keys that Claude Code does not know are passed over, as there."""
    assert read_claude_answer(event, printed) == answer


@pytest.mark.parametrize(
    ("event", "printed", "problem"),
    [
        ("PreToolUse", '{"decision": ', "not JSON"),
        ("PreToolUse", '{"decision": "perhaps"}', "none of"),
        ("PreToolUse", '{"hookSpecificOutput": 3}', "not an object"),
        ("PreToolUse", specific("PreToolUse", updatedInput=[1]), "not an object"),
        ("PreToolUse", '{"systemMessage": 3}', "not text"),
        ("Stop", '{"decision": "ask"}', "means nothing for Stop"),
        (
            "PermissionRequest",
            specific("PermissionRequest", decision={"behavior": "allow", "updatedInput": {}}),
            "changes the input",
        ),
    ],
)
def test_an_answer_that_cannot_be_used_is_a_failure(event: str, printed: str, problem: str) -> None:
    with pytest.raises(HookFailed, match=problem):
        read_claude_answer(event, printed)


@pytest.mark.parametrize(
    ("event", "answer"),
    [
        ("PreToolUse", HookAnswer(decision="deny", reason="why")),
        ("PermissionRequest", HookAnswer(decision="deny", reason="why")),
        ("UserPromptSubmit", HookAnswer(decision="deny", reason="why")),
        ("Stop", HookAnswer(decision="deny", reason="why")),
        ("SubagentStop", HookAnswer(decision="deny", reason="why")),
        ("PreCompact", HookAnswer(decision="deny", reason="why")),
        ("PostToolUse", HookAnswer(context="why")),
        ("PostToolUseFailure", HookAnswer(context="why")),
        ("SubagentStart", HookAnswer(message="why")),
        ("SessionStart", HookAnswer(message="why")),
        ("SessionEnd", HookAnswer(message="why")),
        ("Notification", HookAnswer(message="why")),
    ],
)
def test_the_exit_code_two(event: str, answer: HookAnswer) -> None:
    assert read_claude_exit(event, "why") == answer


# ---------------------------------------------------------------- as a program
def entry(event: str, command: str, **more: str) -> str:
    lines = [f"[[hooks.{event}]]", f"command = '''{command}'''", 'format = "claude"']
    return "\n".join([*lines, *(f"{key} = {value}" for key, value in more.items())]) + "\n"


async def test_a_program_for_claude_code_runs_unchanged(project: Project) -> None:
    """It reads its JSON, finds its project by the variable, and denies by the exit code; later calls go on."""
    script = project.write(
        ".claude/hooks/guard.py",
        "import json, sys\n"
        "given = json.load(sys.stdin)\n"
        "if given['tool_name'] == 'Write' and given['tool_input']['file_path'].endswith('new.txt'):\n"
        "    print('no new files, please', file=sys.stderr)\n"
        "    sys.exit(2)\n",
    )
    assert script.exists()
    log = 'cat >> "$CLAUDE_PROJECT_DIR"/log.jsonl'
    guard = 'python3 "$CLAUDE_PROJECT_DIR"/.claude/hooks/guard.py'
    user_file(project, entry("PreToolUse", guard, matcher='"Edit|Write"') + entry("Stop", log))
    other = call("Write", file_path="other.txt", content="x")
    async with headless(project, WRITE, other, DONE, allow=("Write",)) as run:
        assert (await run.ask())["status"] == "success"
        assert "no new files, please" in run.outputs()[0]
    assert not (project.folder / "new.txt").exists()
    assert (project.folder / "other.txt").exists()
    (stop,) = records(project)
    assert (stop["hook_event_name"], stop["stop_hook_active"]) == ("Stop", False)
    assert stop["last_assistant_message"] == "Done."


async def test_outside_of_the_sandbox_it_knows_its_project_too(project: Project) -> None:
    user_file(project, entry("Stop", 'cat > "$CLAUDE_PROJECT_DIR"/log.jsonl', sandbox="false"))
    async with headless(project, DONE) as run:
        await run.ask()
    assert len(records(project)) == 1


async def test_feedback_after_a_tool_leaves_its_result(project: Project) -> None:
    user_file(project, entry("PostToolUse", "echo 'run the formatter' >&2; exit 2"))
    async with headless(project, WRITE, DONE, allow=("Write",)) as run:
        await run.ask()
        assert "run the formatter" in run.outputs()[0]
        assert "new.txt" in run.outputs()[0]


async def test_a_failure_is_a_warning_as_there(project: Project) -> None:
    user_file(project, entry("PreToolUse", "exit 1"))
    async with headless(project, WRITE, DONE, allow=("Write",)) as run:
        await run.ask()
        assert any(level == "warning" and "exit code is 1" in text for level, text in run.notices)
    assert (project.folder / "new.txt").exists()


def test_a_format_that_is_not_known_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="lyra, claude"):
        hook_from({"event": "Stop", "command": "x", "format": "cursor"}, source="user")
