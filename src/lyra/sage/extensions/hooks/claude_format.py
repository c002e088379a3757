"""Hooks in the JSON of Claude Code: what a program is given on stdin, and what its answer means.

    [[hooks.PreToolUse]]
    command = "./.claude/hooks/check.py"
    format = "claude"

A moment is told in that form (`to_input`), and an exit code or an answer in that form becomes a HookAnswer
(`read_exit`, `read_output`), so that a program which was written for Claude Code runs unchanged. A matcher is a regular
expression that may match anywhere, and sees each tool under the names that it has there (`names_of`). What has no
counterpart: `transcript_path` is an empty file, `suppressOutput` and rules that an answer proposes are passed over.
Starts nothing: `hook` does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lyra.core.hook_events import HOOK_EVENTS
from lyra.sage.extensions.hooks.answer import HookAnswer, HookFailed

PROJECT_VARIABLE: Final = "CLAUDE_PROJECT_DIR"
# Fields of an event by the name that they have there.
_NAMES: Final = {
    "event": "hook_event_name",
    "tool": "tool_name",
    "arguments": "tool_input",
    "call_id": "tool_use_id",
    "text": "last_assistant_message",
    "kind": "notification_type",
}
_LEFT_OUT: Final = frozenset({"output", "refusals", "error_code", "subject", "reason", "rule", "messages"})
_SOURCES: Final = {"new": "startup"}
_KINDS: Final = {"question": "permission_prompt", "idle": "idle_prompt"}
_REASONS: Final = {"exit": "prompt_input_exit", "clear": "clear"}
_ALSO_NAMED: Final = {"MultiEdit": "Edit", "Task": "Agent", "AskUser": "AskUserQuestion"}  # tools, to matchers
_TAKES_TEXT: Final = ("SessionStart", "UserPromptSubmit", "StatusLine")  # what is printed there is for the model
_TELLS_LATER: Final = ("PostToolUse", "PostToolUseFailure")  # the tool has run: a block is feedback for the model
_DECISIONS: Final = {"approve": "allow", "allow": "allow", "block": "deny", "deny": "deny", "ask": "ask"}


# ---------------------------------------------------------------- what a program is given
def to_input(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a moment as Claude Code tells them."""
    event = data["event"]
    fields = {_NAMES.get(name, name): value for name, value in data.items() if name not in _LEFT_OUT}
    fields["transcript_path"] = os.devnull
    if event == "SessionStart":
        fields["source"] = _SOURCES.get(data["source"], data["source"])
    elif event == "SessionEnd":
        fields["reason"] = _REASONS.get(data["reason"], "other")
    elif event == "Notification":
        fields |= {"notification_type": _KINDS.get(data["kind"], data["kind"]), "title": "Sage"}
    elif event in ("Stop", "SubagentStop"):
        fields["stop_hook_active"] = data.get("refusals", 0) > 0
    elif event == "StatusLine":
        fields["model"] = {"id": data["model"], "display_name": data["model"]}
        fields["workspace"] = {"current_dir": data["cwd"], "project_dir": data["cwd"]}
        fields["cost"] = {"total_cost_usd": fields.pop("cost_usd")}
    elif event == "PreCompact":
        fields["custom_instructions"] = ""
    elif event == "PostToolUse":
        fields["tool_response"] = _response(data["tool"], data["arguments"], data["output"])
    return fields


def _response(tool: str, arguments: Mapping[str, Any], output: str) -> dict[str, Any]:
    if tool == "Bash":
        return {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
    path = arguments.get("file_path")
    named = {"filePath": path, "success": True} if isinstance(path, str) else {}
    return {**named, "output": output}


def names_of(event: str, value: Any) -> tuple[Any, ...]:
    """Return the texts that a matcher is compared with: a tool may have two names."""
    if event == "SessionStart":
        return (_SOURCES.get(value, value),)
    if event == "Notification":
        return (_KINDS.get(value, value),)
    if event == "SessionEnd":
        return (_REASONS.get(value, "other"),)
    return (value, _ALSO_NAMED[value]) if value in _ALSO_NAMED else (value,)


# ---------------------------------------------------------------- what it answers
def read_exit(event: str, reason: str) -> HookAnswer:
    """Return what the exit code 2 with this text on stderr means."""
    if event in _TELLS_LATER:
        return HookAnswer(context=reason)
    if "deny" not in HOOK_EVENTS[event].answers or event == "SubagentStart":
        return HookAnswer(message=reason)
    return HookAnswer(decision="deny", reason=reason)


def read_output(event: str, text: str) -> HookAnswer:
    """Return what is printed on stdout with the exit code 0 means; raises HookFailed."""
    text = text.strip()
    if not text.startswith("{") or event == "StatusLine":
        return HookAnswer(context=text) if event in _TAKES_TEXT else HookAnswer()
    try:
        answer = msgspec.json.decode(text.encode("utf-8", "surrogateescape"), type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HookFailed(f"its answer is not JSON: {error}") from None
    specific = answer.get("hookSpecificOutput") or {}
    if not isinstance(specific, dict):
        raise HookFailed("hookSpecificOutput of its answer is not an object")
    answers = HOOK_EVENTS[event].answers
    message = _text(answer, "systemMessage")
    context = _text(specific, "additionalContext") if "context" in answers else ""
    if answer.get("continue") is False:
        ends = "end" in answers
        return HookAnswer(reason=_text(answer, "stopReason"), context=context, message=message, ends_turn=ends)
    given, reason, arguments = _decision(event, answer, specific)
    if given and given not in _DECISIONS:
        raise HookFailed(f"the decision of its answer is none of {', '.join(_DECISIONS)}")
    decision: Any = _DECISIONS.get(given, "")
    if decision == "deny" and event in _TELLS_LATER:
        return HookAnswer(context="\n\n".join(filter(None, (reason, context))), message=message)
    if decision not in ("", *answers):
        raise HookFailed(f"its answer says {given!r}, which means nothing for {event}")
    interrupts = event == "PermissionRequest" and decision == "deny" and _of(specific, "decision").get("interrupt")
    return HookAnswer(decision, reason, arguments, context, message, ends_turn=bool(interrupts))


def _decision(
    event: str, answer: Mapping[str, Any], specific: Mapping[str, Any]
) -> tuple[str, str, dict[str, Any] | None]:
    """Return the decision as it is written, its reason, and the arguments that it changes."""
    if event == "PermissionRequest":
        decision = _of(specific, "decision")
        if "updatedInput" in decision:
            raise HookFailed("its answer changes the input of a call that is asked about; PreToolUse can")
        return _text(decision, "behavior"), _text(decision, "message"), None
    if event == "PreToolUse" and ("permissionDecision" in specific or "updatedInput" in specific):
        changed = specific.get("updatedInput")
        if changed is not None and not isinstance(changed, dict):
            raise HookFailed("updatedInput of its answer is not an object")
        return _text(specific, "permissionDecision"), _text(specific, "permissionDecisionReason"), changed
    return _text(answer, "decision"), _text(answer, "reason"), None


def _of(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = mapping.get(key)
    return value if isinstance(value, dict) else {}


def _text(mapping: Mapping[str, Any], key: str) -> str:
    value = mapping.get(key) or ""
    if not isinstance(value, str):
        raise HookFailed(f"{key} of its answer is not text")
    return value
