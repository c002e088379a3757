"""Settings of hooks: programs that run at moments of a session, `[[hooks.EVENT]]` in `lyra.toml`.

    [[hooks.PreToolUse]]
    matcher = "Edit|Write"
    command = ".lyra/hooks/check.sh"
    blocking = true

`HOOK_KEYS` is the table of keys, `HOOK_EVENTS` that of the moments, from which the agent loop and the docs take their
names, too: `answers` are the keys of an answer that mean something there, `matches` the field that a matcher is
compared with. A project's hooks count once its file is trusted, and run in the sandbox always. Starts nothing:
`lyra.sage.extensions.hooks` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from lyra.config.keys import HOOKS
from lyra.config.values import shape, to_number
from lyra.core.checking.check import check_keys, one_of, real
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.core.linear_regex import RegexProgram


TIMEOUT_S: Final = 60.0
_TIMEOUT_S_MAX: Final = 3600.0
_PATTERN_SIZE_MAX: Final = 1_000
_PATTERN_CHARS: Final = frozenset("\\^$.*+?()[]{}")
_TEXT_CHARS_MAX: Final = 4_000

HookFormat = Literal["lyra", "claude"]
CLAUDE: Final[HookFormat] = "claude"
FORMATS: Final[tuple[HookFormat, ...]] = ("lyra", "claude")

HOOK_KEYS: Final[dict[str, str]] = {
    "command": "The program: a line for the shell, or a list of words without one. It starts in the session's folder, "
    "a project's in the folder of its file.",
    "matcher": "For which tools, sources, reasons, types and the like: a name, names with a bar between them, or a "
    "pattern of the whole; unsaid or `*` is all of them.",
    "timeout_s": "How long it may take; 60 unsaid.",
    "blocking": "`true`: where it fails, what it was asked about is denied. A decision of its own counts in any case.",
    "status": "What is shown while it runs.",
    "format": "`claude`: it is given and answers JSON as hooks of Claude Code do, and a matcher may match a part.",
    "sandbox": "`false` runs it with your rights, in your own file alone; else it can write in the session's folder "
    "and has no network.",
}


class HookSetting(NamedTuple):
    """One hook as a file has it. `base` is the folder that it starts in; "" is that of the session."""

    event: str
    command: str | tuple[str, ...]
    matcher: str = ""
    timeout_s: float = TIMEOUT_S
    blocking: bool = False
    status: str = ""
    sandbox: bool = True
    format: HookFormat = "lyra"
    origin: Literal["user", "project"] = "user"
    place: str = ""
    base: str = ""


def hook_entries(table: Any) -> Iterator[tuple[str, int, Any]]:
    """(event, number, entry) of everything under `hooks`; raises ConfigError where it is not a list of tables."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{HOOKS} is a section, not {shape(table)}", hint="write [[hooks.PreToolUse]]", key=HOOKS)
    for event, entries in table.items():
        one_of(event, HOOK_EVENTS, "the event of a hook")
        if not isinstance(entries, list):
            hint = f"write [[{HOOKS}.{event}]], with two brackets"
            raise ConfigError(f"{HOOKS}.{event} is a list of hooks, not {shape(entries)}", hint=hint, key=event)
        for number, entry in enumerate(entries, 1):
            yield event, number, entry


def read_hook(event: str, entry: Any, *, name: str) -> HookSetting:
    """Return one hook; a ConfigError names it by `name` and says what was wanted."""
    one_of(event, HOOK_EVENTS, f"the event of {name}")
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{name} is a table, not {shape(entry)}", key=name)
    check_keys(entry, HOOK_KEYS, name)
    if "command" not in entry:
        raise ConfigError(f"{name} has no command", hint='such as command = "./check.sh"', key=f"{name}.command")
    setting = HookSetting(
        event,
        _command(entry["command"], name),
        _text(entry, "matcher", name),
        real(to_number(entry.get("timeout_s", TIMEOUT_S)), f"{name}.timeout_s", above=0.0, most=_TIMEOUT_S_MAX),
        _flag(entry, "blocking", name, default=False),
        _text(entry, "status", name),
        _flag(entry, "sandbox", name, default=True),
        CLAUDE if one_of(entry.get("format", "lyra"), FORMATS, f"{name}.format") == CLAUDE else "lyra",
    )
    check_hook(event, setting.matcher, name, blocking=setting.blocking)
    # Refuse to run a program of whichever folder a session is in with the user's rights.
    words = setting.command.split() if isinstance(setting.command, str) else setting.command
    if not setting.sandbox and "/" in words[0] and not words[0].startswith(("/", "~/")):
        raise ConfigError(
            f"{name} would run {words[0]} of every project with your rights",
            hint="name the program by its whole path, or leave the sandbox on",
            key=f"{name}.sandbox",
        )
    return setting


def check_hook(event: str, matcher: str, name: str, *, blocking: bool) -> None:
    """Raise ConfigError where the event has no use for a matcher or for `blocking`, or the matcher cannot be read."""
    facts = HOOK_EVENTS[event]
    if blocking and not facts.denial:
        raise ConfigError(
            f"{name} is blocking, and {event} has nothing to deny", hint="take out blocking", key=f"{name}.blocking"
        )
    if matcher not in ("", "*") and not facts.matches:
        raise ConfigError(f"{name} has a matcher, and {event} has nothing to match", hint="take out matcher", key=name)
    compile_pattern(matcher, name)


def compile_pattern(matcher: str, name: str) -> RegexProgram | None:
    """Return the pattern of a matcher; None for one that is a name, or several with `|`."""
    if matcher == "*" or not _PATTERN_CHARS.intersection(matcher):
        return None
    from lyra.core.linear_regex import BadPattern, RegexProgram

    try:
        return RegexProgram(matcher, size_max=_PATTERN_SIZE_MAX)
    except BadPattern as error:
        raise ConfigError(f"the matcher of {name} cannot be read: {error}", key=f"{name}.matcher") from None


def _command(value: Any, name: str) -> str | tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    good = isinstance(words, list) and all(isinstance(word, str) and "\0" not in word for word in words)
    if not good or not words or not words[0].strip() or sum(map(len, words)) > _TEXT_CHARS_MAX:
        raise ConfigError(
            f"{name}.command is a line for the shell or a list of words, of at most {_TEXT_CHARS_MAX} characters",
            hint='such as "./check.sh" or ["python3", "check.py"]',
            key=f"{name}.command",
        )
    return value if isinstance(value, str) else tuple(value)


def _text(entry: Mapping[str, Any], key: str, name: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str) or len(value) > _TEXT_CHARS_MAX:
        raise ConfigError(f"{name}.{key} is text, not {shape(value)}", key=f"{name}.{key}")
    return value.strip()


def _flag(entry: Mapping[str, Any], key: str, name: str, *, default: bool) -> bool:
    value = entry.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{name}.{key} is true or false, not {shape(value)}", key=f"{name}.{key}")
    return value


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
