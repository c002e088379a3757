"""Hook: one function or program, the moment it runs at, and for what.

    Hook("PreToolUse", check, matcher="Edit|Write", blocking=True)
    hook_from({"event": "Stop", "command": "./tests-pass.sh"}, source="plugin:checks")

A function gets the fields of the moment as a dict and gives None, text or a mapping of `ANSWER_KEYS`; it may be async.
One that is not runs in a thread. `source` says where a hook comes from: only the user's own and functions of the
program (`user`, `python`) may answer a question with `allow`, and only their context is not text from outside. A
HookCommand runs a program in the sandbox. What a hook answers is read here, also where the hook was
written for Claude Code.

A HookAnswer is what one hook says, printed by a program or returned by a function, checked against its moment.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from lyra.config.hook_settings import (
    CLAUDE,
    HOOK_EVENTS,
    TIMEOUT_S,
    HookFormat,
    HookSetting,
    check_hook,
    compile_pattern,
    read_hook,
)
from lyra.core.checking.check import did_you_mean, one_of, real
from lyra.core.linear_regex import TooManySteps
from lyra.core.rights.capability import Grant
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, LyraError

if TYPE_CHECKING:
    from lyra.sandbox import Result, Sandbox


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


_TRUSTED: Final = ("user", "python")
_NAME_CHARS_MAX: Final = 80
_TIMEOUTS_S_MAX: Final[dict[str, float]] = {"StatusLine": 1.0}  # a terminal waits for it


class Hook:
    __slots__ = ("_function", "blocking", "command", "event", "matcher", "name", "source", "status", "timeout_s")

    def __init__(
        self,
        event: str,
        function: Callable[[dict[str, Any]], Any] | HookCommand,
        *,
        matcher: str = "",
        blocking: bool = False,
        timeout_s: float = TIMEOUT_S,
        status: str = "",
        name: str = "",
        source: str = "python",
    ) -> None:
        self.event = one_of(event, HOOK_EVENTS, "the event of a hook")
        self.command = function if isinstance(function, HookCommand) else None
        if self.command is None and not callable(function):
            raise ConfigError(f"a hook is a function, not {function!r}", hint="Hook('Stop', check)", key="function")
        self._function: Any = function
        given = name or (self.command.text if self.command is not None else getattr(function, "__qualname__", ""))
        self.name = visible(given or "a function").replace("\n", " ")[:_NAME_CHARS_MAX]
        check_hook(event, matcher, self.name, blocking=blocking)
        self.matcher = HookMatcher(matcher, self.name)
        self.blocking = blocking
        limit_s = real(timeout_s, f"timeout_s of {self.name}", above=0.0)
        self.timeout_s = min(limit_s, _TIMEOUTS_S_MAX.get(event, limit_s))
        self.status = status
        self.source = source

    @property
    def is_trusted(self) -> bool:
        """Whether it may answer a question with `allow`, and its context is the user's own text."""
        return self.source in _TRUSTED

    def is_for(self, data: Mapping[str, Any]) -> bool:
        value = data.get(HOOK_EVENTS[self.event].matches)
        if self.command is not None and self.command.format == CLAUDE:
            return any(self.matcher.finds(name) for name in claude_names(self.event, value))
        return self.matcher.matches(value)

    async def answer(self, data: Mapping[str, Any], *, folder: str, sandbox: Sandbox) -> HookAnswer:
        """Run it with these fields; raises HookFailed for whatever goes wrong."""
        if self.command is not None:
            return await self.command.answer(self.event, data, folder=folder, sandbox=sandbox, timeout_s=self.timeout_s)
        try:
            async with asyncio.timeout(self.timeout_s):
                value = await self._call(dict(data))
        except TimeoutError:
            raise HookFailed(f"it took longer than {self.timeout_s:g} s") from None
        except HookFailed:
            raise
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            raise HookFailed(f"it raised {type(error).__name__}: {error}") from None
        return read_answer(self.event, value)

    async def _call(self, data: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(data)
        value = await asyncio.to_thread(self._function, data)
        return await value if inspect.isawaitable(value) else value

    def __repr__(self) -> str:
        return f"Hook({self.event!r}, {self.name!r}, source={self.source!r})"


def hook_from(mapping: Mapping[str, Any], *, source: str, base: str = "") -> Hook:
    """Return the hook that a mapping describes: `event` and the keys of `[[hooks.EVENT]]`. A relative program is taken
    from the folder `base`, else from the session's. Hooks that are not the user's own cannot leave the sandbox."""
    entry = dict(mapping)
    if "event" not in entry:
        raise ConfigError("a hook has an event and a command", hint='such as {"event": "Stop", "command": "./check"}')
    event = one_of(entry.pop("event"), HOOK_EVENTS, "the event of a hook")
    setting = read_hook(event, entry, name=f"the hook for {event} ({source})")
    if not setting.sandbox and source not in _TRUSTED:
        raise ConfigError(f"a hook of {source} runs in the sandbox", hint="take out sandbox", key="sandbox")
    return _from_setting(setting._replace(base=base), source)


def hook_of(setting: HookSetting) -> Hook:
    """Return the hook of a settings file."""
    return _from_setting(setting, setting.origin)


def _from_setting(setting: HookSetting, source: str) -> Hook:
    command = HookCommand(setting.command, in_sandbox=setting.sandbox, base=setting.base, format=setting.format)
    return Hook(
        setting.event,
        command,
        matcher=setting.matcher,
        blocking=setting.blocking,
        timeout_s=setting.timeout_s,
        status=setting.status,
        source=source,
    )


OUTPUT_BYTES_MAX: Final = 256 * 1024  # of stdout, and of stderr
_REASON_CHARS_MAX: Final = 2_000
_DENIES: Final = 2  # the exit code
_SIGNALS: Final = 128  # exit codes above it: the number of the signal that ended the program
_ENVIRONMENT: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TERM", "TZ", "TMPDIR"),
    *("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "NO_COLOR"),
)


class HookCommand:
    """A hook that is a program: JSON on its stdin, an answer on its stdout, and its exit code. `words` is a line for
    the shell or a list of words. `base` is the folder in which it starts, and from which a relative program is
    taken; "" is the session's. `format` is that of the JSON."""

    __slots__ = ("_base", "_in_sandbox", "_words", "format")

    def __init__(
        self,
        words: str | Sequence[str],
        *,
        in_sandbox: bool = True,
        base: str = "",
        format: HookFormat = "lyra",  # noqa: A002 - the name that settings have
    ) -> None:
        self.format = format
        self._words = words if isinstance(words, str) else tuple(words)
        self._in_sandbox = in_sandbox
        self._base = base

    @property
    def text(self) -> str:
        return self._words if isinstance(self._words, str) else " ".join(self._words)

    async def answer(
        self, event: str, data: Mapping[str, Any], *, folder: str, sandbox: Sandbox, timeout_s: float
    ) -> HookAnswer:
        """Run it with these fields in a folder, named by its real path; raises HookFailed."""
        fields = claude_input(data) if self.format == CLAUDE else data
        payload = msgspec.json.encode(fields, enc_hook=str) + b"\n"
        try:
            if self._in_sandbox:
                result = await self._run_inside(payload, folder, sandbox, timeout_s)
            else:
                result = await self._run_outside(payload, folder, timeout_s)
        except (LyraError, OSError) as error:
            raise HookFailed(f"it could not be started: {error}") from None
        return self._read(event, result, timeout_s)

    async def _run_inside(self, payload: bytes, folder: str, sandbox: Sandbox, timeout_s: float) -> Result:
        from lyra.sandbox import Profile

        grant = Grant([f"fs.read:{folder}/**", f"fs.write:{folder}/**"])
        readable = [path for path in (self._base, self._program()) if path.startswith("/")]
        profile = Profile.of(grant, folder, readable=readable, limits=_limits(timeout_s), env=self._variables(folder))
        if self._base:
            profile = replace(profile, start=self._base)
        return await sandbox.run(self._argv(), profile, stdin=payload, timeout_s=timeout_s, apart=True)

    async def _run_outside(self, payload: bytes, folder: str, timeout_s: float) -> Result:
        from lyra.sandbox.job import Job, LaunchPlan

        env = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | self._variables(folder)
        argv = self._argv()
        program = shutil.which(argv[0], path=env.get("PATH"))
        if program is None:
            raise HookFailed(f"there is no program {argv[0]}")
        plan = LaunchPlan([program, *argv[1:]], env, self._base or folder, "none")
        job = Job(plan, _limits(timeout_s), stdin=payload, timeout_s=timeout_s, apart=True, spill=None)
        try:
            return await job.wait()
        except asyncio.CancelledError:
            await job.end()
            raise

    def _variables(self, folder: str) -> dict[str, str]:
        return {PROJECT_VARIABLE: folder} if self.format == CLAUDE else {}

    def _read(self, event: str, result: Result, timeout_s: float) -> HookAnswer:
        errors = result.errors.text.strip()[:_REASON_CHARS_MAX]
        if "wall" in result.limits_hit:
            raise HookFailed(f"it took longer than {timeout_s:g} s")
        if "output" in result.limits_hit:
            raise HookFailed(f"it printed more than {OUTPUT_BYTES_MAX} bytes")
        if result.limits_hit:
            raise HookFailed(f"it reached its limits: {', '.join(result.limits_hit)}")
        if result.exit_code == _DENIES and self.format == CLAUDE:
            return read_claude_exit(event, errors)
        if result.exit_code == _DENIES and "deny" in HOOK_EVENTS[event].answers:
            return HookAnswer(decision="deny", reason=errors)
        if result.exit_code > _SIGNALS:
            raise HookFailed(f"it was ended by the signal {result.exit_code - _SIGNALS}")
        if result.exit_code != 0:
            raise HookFailed(f"its exit code is {result.exit_code}" + (f": {errors}" if errors else ""))
        read = read_claude_answer if self.format == CLAUDE else read_answer
        return read(event, result.output.text)

    def _argv(self) -> list[str]:
        if isinstance(self._words, str):
            return ["/bin/sh", "-c", _expand_home(self._words)]
        return [_expand_home(self._words[0]), *self._words[1:]]

    def _program(self) -> str:
        """Return the first word, with the home folder in place of `~`: in the sandbox its file can be read."""
        first = self._words.split()[0] if isinstance(self._words, str) else self._words[0]
        return _expand_home(first)


def _expand_home(text: str) -> str:
    return os.path.expanduser("~/") + text[2:] if text.startswith("~/") else text


def _limits(timeout_s: float) -> Any:
    from lyra.sandbox import Limits

    wall_s = max(timeout_s, Limits().wall_s)
    return Limits(wall_s=wall_s, output_bytes=OUTPUT_BYTES_MAX, output_kept_bytes=OUTPUT_BYTES_MAX)


_CHARS_MAX: Final = 2_000  # of the text that is matched
_STEPS_MAX: Final = 50_000


class HookMatcher:
    """Whether a hook is for this tool, source, reason, type or prompt."""

    __slots__ = ("_names", "_pattern", "text")

    def __init__(self, text: str, name: str = "a hook") -> None:
        self.text = text
        self._pattern = compile_pattern(text, name)
        self._names = frozenset(part.strip() for part in text.split("|")) if text not in ("", "*") else None

    def matches(self, value: Any) -> bool:
        if self._names is None:
            return True
        if not isinstance(value, str):
            return False
        if self._pattern is not None:
            return self._pattern.matches_whole(value[:_CHARS_MAX])
        return value in self._names

    def finds(self, value: Any) -> bool:
        """Return whether the pattern matches anywhere in the text, as in Claude Code; a name is the whole of it."""
        if self._pattern is None or not isinstance(value, str):
            return self.matches(value)
        try:
            return self._pattern.search(value[:_CHARS_MAX], 0, _STEPS_MAX)[0] is not None
        except TooManySteps:
            return True  # a guard that cannot be sure looks at the call
