"""HookAnswer: what one hook says, printed by a program or returned by a function, checked against its moment.

A hook may speak the JSON of Claude Code instead (`format = "claude"`), so that a program which was written for it runs
unchanged: a moment is told in that form (`claude_input`), and an exit code or an answer in that form becomes a
HookAnswer (`read_claude_exit`, `read_claude_answer`). A matcher sees each tool under the names that it has there
(`claude_names`). What has no counterpart: `transcript_path` is an empty file, `suppressOutput` and rules that an answer
proposes are passed over. Starts nothing: `hook` does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from lyra.config.hook_settings import HOOK_EVENTS
from lyra.core.checking.check import did_you_mean

ANSWER_KEYS: Final[dict[str, str]] = {
    "decision": "`deny`, `ask` (a person is asked) or `allow` (answers a question, and overrides no deny)",
    "reason": "why, for the model and the user",
    "arguments": "the arguments that the call has from now on; rules decide on these",
    "context": "text that is added for the model",
    "message": "text that is shown to the user",
    "continue": "`false` ends the turn after this",
}
_DECISIONS: Final = ("deny", "ask", "allow")
_TEXTS: Final = ("reason", "context", "message")


class HookFailed(Exception):
    """A hook that gave no answer that can be used; the message says why."""


class HookAnswer(NamedTuple):
    decision: Literal["", "allow", "ask", "deny"] = ""
    reason: str = ""
    arguments: dict[str, Any] | None = None
    context: str = ""
    message: str = ""
    ends_turn: bool = False


def read_answer(event: str, value: Any) -> HookAnswer:
    """Return the answer that a text or a mapping says; None is an answer without anything in it."""
    if value is None:
        return HookAnswer()
    if isinstance(value, str):
        text = value.strip()
        if event == "StatusLine" or not text.startswith("{"):
            return HookAnswer(context=text if "context" in HOOK_EVENTS[event].answers else "")
        value = _decode(text)
    if not isinstance(value, Mapping):
        raise HookFailed(f"its answer is text or an object, not {type(value).__name__}")
    return _check_answer(event, value)


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HookFailed(f"its answer is not JSON: {error}") from None


def _check_answer(event: str, answer: Mapping[Any, Any]) -> HookAnswer:
    for key in answer:
        if key not in ANSWER_KEYS:
            near = did_you_mean(str(key), ANSWER_KEYS)
            raise HookFailed(f"its answer has the unknown key {str(key)[:80]!r}" + (f", not {near!r}" if near else ""))
    for key in _TEXTS:
        if not isinstance(answer.get(key, ""), str):
            raise HookFailed(f"{key} of its answer is not text")
    decision, goes_on, arguments = answer.get("decision", ""), answer.get("continue", True), answer.get("arguments")
    if decision not in ("", *_DECISIONS):
        raise HookFailed(f"the decision of its answer is none of {', '.join(_DECISIONS)}")
    if not isinstance(goes_on, bool):
        raise HookFailed("continue of its answer is not true or false")
    if arguments is not None and not isinstance(arguments, dict):
        raise HookFailed("the arguments of its answer are not an object")
    given = {"context": bool(answer.get("context")), "arguments": arguments is not None, "end": not goes_on}
    wanted = [word for word, is_given in {decision: bool(decision), **given}.items() if is_given]
    useless = next((word for word in wanted if word not in HOOK_EVENTS[event].answers), None)
    if useless is not None:
        word = "continue" if useless == "end" else useless
        raise HookFailed(f"its answer says {word!r}, which means nothing for {event}")
    texts = {key: answer.get(key, "") for key in _TEXTS}
    return HookAnswer(decision=decision, arguments=arguments, ends_turn=not goes_on, **texts)


PROJECT_VARIABLE: Final = "CLAUDE_PROJECT_DIR"
# Fields of an event by the name that they have there.
_CLAUDE_NAMES: Final = {
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
_CLAUDE_DECISIONS: Final = {"approve": "allow", "allow": "allow", "block": "deny", "deny": "deny", "ask": "ask"}


def claude_input(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a moment as Claude Code tells them."""
    event = data["event"]
    fields = {_CLAUDE_NAMES.get(name, name): value for name, value in data.items() if name not in _LEFT_OUT}
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


def claude_names(event: str, value: Any) -> tuple[Any, ...]:
    """Return the texts that a matcher is compared with: a tool may have two names."""
    if event == "SessionStart":
        return (_SOURCES.get(value, value),)
    if event == "Notification":
        return (_KINDS.get(value, value),)
    if event == "SessionEnd":
        return (_REASONS.get(value, "other"),)
    return (value, _ALSO_NAMED[value]) if value in _ALSO_NAMED else (value,)


def read_claude_exit(event: str, reason: str) -> HookAnswer:
    """Return what the exit code 2 with this text on stderr means."""
    if event in _TELLS_LATER:
        return HookAnswer(context=reason)
    if "deny" not in HOOK_EVENTS[event].answers or event == "SubagentStart":
        return HookAnswer(message=reason)
    return HookAnswer(decision="deny", reason=reason)


def read_claude_answer(event: str, text: str) -> HookAnswer:
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
    message = _text_at(answer, "systemMessage")
    context = _text_at(specific, "additionalContext") if "context" in answers else ""
    if answer.get("continue") is False:
        ends = "end" in answers
        return HookAnswer(reason=_text_at(answer, "stopReason"), context=context, message=message, ends_turn=ends)
    given, reason, arguments = _decision(event, answer, specific)
    if given and given not in _CLAUDE_DECISIONS:
        raise HookFailed(f"the decision of its answer is none of {', '.join(_CLAUDE_DECISIONS)}")
    decision: Any = _CLAUDE_DECISIONS.get(given, "")
    if decision == "deny" and event in _TELLS_LATER:
        return HookAnswer(context="\n\n".join(filter(None, (reason, context))), message=message)
    if decision not in ("", *answers):
        raise HookFailed(f"its answer says {given!r}, which means nothing for {event}")
    interrupts = (
        event == "PermissionRequest" and decision == "deny" and _mapping_at(specific, "decision").get("interrupt")
    )
    return HookAnswer(decision, reason, arguments, context, message, ends_turn=bool(interrupts))


def _decision(
    event: str, answer: Mapping[str, Any], specific: Mapping[str, Any]
) -> tuple[str, str, dict[str, Any] | None]:
    """Return the decision as it is written, its reason, and the arguments that it changes."""
    if event == "PermissionRequest":
        decision = _mapping_at(specific, "decision")
        if "updatedInput" in decision:
            raise HookFailed("its answer changes the input of a call that is asked about; PreToolUse can")
        return _text_at(decision, "behavior"), _text_at(decision, "message"), None
    if event == "PreToolUse" and ("permissionDecision" in specific or "updatedInput" in specific):
        changed = specific.get("updatedInput")
        if changed is not None and not isinstance(changed, dict):
            raise HookFailed("updatedInput of its answer is not an object")
        return _text_at(specific, "permissionDecision"), _text_at(specific, "permissionDecisionReason"), changed
    return _text_at(answer, "decision"), _text_at(answer, "reason"), None


def _mapping_at(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = mapping.get(key)
    return value if isinstance(value, dict) else {}


def _text_at(mapping: Mapping[str, Any], key: str) -> str:
    value = mapping.get(key) or ""
    if not isinstance(value, str):
        raise HookFailed(f"{key} of its answer is not text")
    return value
