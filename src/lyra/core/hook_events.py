"""The moments at which hooks run: one table, from which settings, the agent loop and the docs take their names.

A hook gets the fields of its moment as JSON and gives an answer. `answers` are the keys of an answer that have a
meaning there; `matches` is the field that a hook's matcher is compared with. Runs nothing: the agent loop
(`lyra.agents.turn.hook_points`) and sessions say when, `lyra.sage.extensions.hooks` runs the programs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# Fields of every input.
COMMON_FIELDS: Final[dict[str, str]] = {
    "event": "the name of the moment",
    "session_id": "the session",
    "cwd": "the folder of the session",
    "agent_type": "the type of the sub-agent; left out for the session's own agent",
}


class HookEvent(NamedTuple):
    """One moment. `denial` says what a decision of `deny` does; "" where there is nothing to deny."""

    sentence: str
    fields: tuple[str, ...]
    matches: str = ""
    answers: tuple[str, ...] = ()
    denial: str = ""


HOOK_EVENTS: Final[dict[str, HookEvent]] = {
    "PreToolUse": HookEvent(
        "before a tool is used, and before rules decide on it",
        ("tool", "arguments", "call_id"),
        "tool",
        ("deny", "ask", "allow", "arguments", "context", "end"),
        "the tool is not run, and the model is told the reason",
    ),
    "PermissionRequest": HookEvent(
        "before a person is asked about a call, or before it is denied because no person can be asked",
        ("tool", "arguments", "call_id", "subject", "reason", "rule"),
        "tool",
        ("deny", "allow", "end"),
        "the call is denied without a question",
    ),
    "PostToolUse": HookEvent(
        "after a tool gave its result",
        ("tool", "arguments", "call_id", "output"),
        "tool",
        ("deny", "context", "end"),
        "the model gets the reason in place of the result",
    ),
    "PostToolUseFailure": HookEvent(
        "after a tool failed or was denied",
        ("tool", "arguments", "call_id", "error", "error_code"),
        "tool",
        ("deny", "context", "end"),
        "the model gets the reason in place of the error",
    ),
    "UserPromptSubmit": HookEvent(
        "before a message of the user goes to the model",
        ("prompt",),
        "prompt",
        ("deny", "context", "end"),
        "the message is refused, and the turn ends",
    ),
    "SessionStart": HookEvent(
        "when a session begins, goes on, is cleared or was compacted",
        ("source", "model"),
        "source",
        ("context",),
    ),
    "SessionEnd": HookEvent("when a session ends", ("reason",), "reason"),
    "SubagentStart": HookEvent(
        "before a sub-agent begins its task",
        ("prompt",),
        "agent_type",
        ("deny", "context", "end"),
        "the sub-agent does not begin, and its caller is told the reason",
    ),
    "SubagentStop": HookEvent(
        "when a sub-agent has an answer",
        ("text", "refusals"),
        "agent_type",
        ("deny", "end"),
        "the sub-agent goes on with the reason",
    ),
    "PreCompact": HookEvent(
        "before the conversation is shortened",
        ("trigger", "messages"),
        "trigger",
        ("deny",),
        "the conversation stays as it is",
    ),
    "Notification": HookEvent(
        "when a question waits for the user, or the session waits for a message",
        ("kind", "message"),
        "kind",
    ),
    "Stop": HookEvent(
        "when the model has an answer and the turn is about to end",
        ("text", "refusals"),
        "",
        ("deny", "end"),
        "the model goes on with the reason",
    ),
    "StatusLine": HookEvent(
        "when the status line of a terminal is drawn; the first line that is printed is its text",
        ("model", "mode", "cost_usd", "context_tokens"),
        "",
        ("context",),
    ),
}
