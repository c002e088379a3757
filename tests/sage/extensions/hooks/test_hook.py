"""One hook: its settings, its matcher, functions as hooks, and the checks of both."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.config import Config
from lyra.config.hook_settings import HOOK_KEYS
from lyra.errors import ConfigError
from lyra.sage.extensions.hooks import Hook, HookOutcome, Hooks, hook_from
from lyra.sage.extensions.hooks.hook import HookMatcher
from tests.sage.extensions.hooks.support import user_file
from tests.sage.open_session import Project


# ---------------------------------------------------------------- matchers
@pytest.mark.parametrize(
    ("matcher", "matching", "other"),
    [
        ("", ["Edit", "anything", None], []),
        ("*", ["Edit", "anything"], []),
        ("Edit", ["Edit"], ["edit", "MultiEdit", "Editor", None, 3]),
        ("Edit|Write", ["Edit", "Write"], ["Edit|Write", "MultiEdit", ""]),
        ("Edit | Write", ["Edit", "Write"], ["Edit "]),
        ("mcp__.*", ["mcp__files__read"], ["Read", "xmcp__a"]),
        ("(Multi)?Edit|Note.+", ["Edit", "MultiEdit", "NotebookEdit"], ["Editing", "Note"]),
        (".*secret.*", ["a secret plan"], ["a plan"]),
    ],
)
def test_what_a_matcher_matches(matcher: str, matching: list[Any], other: list[Any]) -> None:
    """Names are exact; a pattern has to fit the whole text."""
    assert all(HookMatcher(matcher).matches(value) for value in matching)
    assert not any(HookMatcher(matcher).matches(value) for value in other)


def test_a_pattern_cannot_hang() -> None:
    """A pattern that would take for ever in an ordinary engine is matched in time that grows with the text."""
    assert not HookMatcher("(a+)+b").matches("a" * 100_000)


# ---------------------------------------------------------------- settings
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[hooks.PreTool]]\ncommand = "x"', "the event of a hook is one of"),
        ('[hooks.Stop]\ncommand = "x"', "is a list of hooks"),
        ("[[hooks.Stop]]\ntimeout_s = 1", "has no command"),
        ('[[hooks.Stop]]\ncommand = ""', "a line for the shell or a list of words"),
        ("[[hooks.Stop]]\ncommand = []", "a line for the shell or a list of words"),
        ("[[hooks.Stop]]\ncommand = [1]", "a line for the shell or a list of words"),
        ('[[hooks.Stop]]\ncommand = "x"\nmatcher = "a"', "has nothing to match"),
        ('[[hooks.PreToolUse]]\ncommand = "x"\nmatcher = "(a"', "cannot be read"),
        ('[[hooks.PreToolUse]]\ncommand = "x"\nmatcher = "(?=a)"', "cannot be read"),
        ('[[hooks.Stop]]\ncommand = "x"\ntimeout_s = 0', "timeout_s"),
        ('[[hooks.Stop]]\ncommand = "x"\nblocking = "yes"', "true or false"),
        ('[[hooks.Stop]]\ncommand = "x"\nstatus = 3', "is text"),
        ('[[hooks.Stop]]\ncommand = "x"\nblokcing = true', "has no setting"),
        ('[[hooks.SessionEnd]]\ncommand = "x"\nblocking = true', "has nothing to deny"),
        ('[[hooks.Stop]]\ncommand = "./x.sh"\nsandbox = false', "of every project with your rights"),
        ("hooks = 3", "hooks is a section"),
    ],
)
def test_a_mistake_is_told_with_its_place(project: Project, text: str, message: str) -> None:
    user_file(project, f"\n{text}\n")
    with pytest.raises(ConfigError, match=message) as raised:
        Config.load(project.folder)
    assert str(raised.value.place).endswith("lyra.toml:2")


def test_settings_of_a_file_become_hooks(project: Project) -> None:
    user_file(
        project,
        '[[hooks.PreToolUse]]\nmatcher = "Edit|Write"\ncommand = "~/check.sh"\ntimeout_s = 2.5\nblocking = true\n'
        'status = "checking"\nsandbox = false\n',
    )
    config = Config.load(project.folder)
    (setting,) = config.hooks
    assert set(HOOK_KEYS) == {"command", "matcher", "timeout_s", "blocking", "status", "sandbox", "format"}
    assert (setting.event, setting.matcher, setting.command) == ("PreToolUse", "Edit|Write", "~/check.sh")
    assert (setting.timeout_s, setting.blocking, setting.status, setting.sandbox) == (2.5, True, "checking", False)
    assert setting.place.endswith("lyra.toml:1")
    (hook,) = Hooks.from_config(config, str(project.folder))
    assert (hook.event, hook.name, hook.timeout_s, hook.blocking) == ("PreToolUse", "~/check.sh", 2.5, True)
    assert hook.source == "user"


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"command": "x"}, "has an event and a command"),
        ({"event": "Stopp", "command": "x"}, "did you mean 'Stop'"),
        ({"event": "Stop"}, "has no command"),
        ({"event": "Stop", "command": "x", "colour": "red"}, "has no setting 'colour'"),
        ({"event": "Stop", "command": "x", "sandbox": False}, "a hook of plugin:p runs in the sandbox"),
    ],
)
def test_a_mapping_with_a_mistake_is_refused(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        hook_from(mapping, source="plugin:p")
    assert message in f"{raised.value.message} {raised.value.hint}"


def test_a_mapping_becomes_a_hook() -> None:
    hook = hook_from({"event": "PreToolUse", "command": "x", "matcher": "Edit", "blocking": True}, source="plugin:p")
    assert (hook.source, hook.blocking, hook.is_trusted) == ("plugin:p", True, False)
    assert hook.is_for({"tool": "Edit"})
    assert not hook.is_for({"tool": "Read"})
    assert hook_from({"event": "Stop", "command": "/x", "sandbox": False}, source="user").is_trusted


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("Nothing", print), {}),
        (("Stop", "not a function"), {}),
        (("Stop", print), {"matcher": "x"}),
        (("PreToolUse", print), {"matcher": "("}),
        (("Notification", print), {"blocking": True}),
        (("Stop", print), {"timeout_s": 0}),
    ],
)
def test_a_function_with_a_wrong_setting_is_refused(arguments: tuple[Any, Any], options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Hook(*arguments, **options)


# ---------------------------------------------------------------- functions
async def one(hook: Hook, **data: Any) -> HookOutcome:
    return await Hooks([hook]).run(hook.event, data)


async def test_functions_may_be_async_or_not_and_answer_in_three_ways() -> None:
    async def later(data: dict[str, Any]) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"decision": "deny", "reason": data["tool"]}

    assert (await one(Hook("PreToolUse", later, name="later"), tool="Edit")).reason == "hook later: Edit"
    assert (await one(Hook("PreToolUse", lambda _: "text"))).context == "text"
    assert await one(Hook("PreToolUse", lambda _: None)) == HookOutcome()
    assert (await one(Hook("PreToolUse", lambda _: {"message": "hi"}, name="n"))).messages == ("n: hi",)


async def test_a_blocking_function_does_not_stop_the_loop() -> None:
    """It runs in a thread; one that takes too long has failed."""
    released = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait(_data: dict[str, Any]) -> None:
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result(5)

    running = asyncio.ensure_future(one(Hook("Stop", wait)))
    await asyncio.sleep(0)
    released.set()
    assert await running == HookOutcome()


@pytest.mark.parametrize(
    ("function", "told", "timeout_s"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError", 30),
        (lambda _: 3, "text or an object", 30),
        (lambda _: {"decision": "maybe"}, "none of", 30),
        (lambda _: {"context": 3}, "not text", 30),
        (lambda _: {"arguments": {}}, "means nothing for Stop", 30),
        (lambda _: asyncio.sleep(9), "longer than", 0.05),
    ],
)
async def test_a_function_that_fails(function: Any, told: str, timeout_s: float) -> None:
    """Blocking, it denies; otherwise it is a warning."""
    denied = await one(Hook("Stop", function, blocking=True, timeout_s=timeout_s))
    assert denied.decision == "deny"
    assert told in denied.reason
    passed = await one(Hook("Stop", function, timeout_s=timeout_s))
    assert passed.decision == ""
    assert told in passed.warnings[0]


async def test_a_function_cannot_change_what_the_next_one_sees() -> None:
    seen: list[Any] = []
    hooks = [Hook("Stop", lambda data: data.clear()), Hook("Stop", lambda data: seen.append(data["text"]))]
    await Hooks(hooks).run("Stop", {"text": "x"})
    assert seen == ["x"]


async def test_hooks_of_a_source_can_be_replaced() -> None:
    """As for a plugin that is read again; the others stay."""
    hooks = Hooks(
        [Hook("Stop", lambda _: None, source="plugin:a", name="old"), Hook("Stop", lambda _: None, name="own")]
    )
    hooks.put("plugin:a", [Hook("Stop", lambda _: None, source="plugin:a", name="new")])
    assert [hook.name for hook in hooks.matching("Stop", {})] == ["new", "own"]
    hooks.put("plugin:a", [])
    assert [hook.name for hook in hooks] == ["own"]
    assert hooks.status_for("Stop", {}) == ""
    assert hooks.status_for("PreToolUse", {}) is None
