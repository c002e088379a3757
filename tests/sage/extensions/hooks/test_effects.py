"""What the answers of hooks do in a real run: deny, ask, allow, change, add, withhold, and have the model go on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from lyra.agents.headless import headless as session_hooks
from lyra.agents.headless.headless import Headless
from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.turn.hook_points import REFUSALS_MAX
from lyra.errors import ApprovalRefused
from lyra.sage.extensions.hooks import Hook, Hooks
from tests.sage.extensions.hooks.support import Run, answering, call, headless, records, seen, user_file
from tests.sage.open_session import Project

DONE = {"text": "Done."}


def write(content: str = "new", path: str = "new.txt") -> dict[str, Any]:
    return call("Write", file_path=path, content=content)


def decisions(run: Run) -> list[tuple[str, str, str]]:
    """Collect (decision, source, subject) of every decision on a call."""
    log: list[tuple[str, str, str]] = []

    def note(event: Any) -> None:
        log.append((event.data["decision"], event.data["source"], event.data["subject"]))

    run.headless.kernel.on_event(note, kinds=("tool.decided",))
    return log


# ---------------------------------------------------------------- before a call
async def test_a_command_denies_a_call_with_exit_code_2(project: Project) -> None:
    """The file is not written although a rule allows it, and the model and the audit are told what stderr says."""
    user_file(project, '[[hooks.PreToolUse]]\nmatcher = "Write"\ncommand = "echo not on fridays >&2; exit 2"\n')
    async with headless(project, write(), DONE, allow=("Write",)) as run:
        log = decisions(run)
        assert (await run.ask())["status"] == "success"
        assert "not on fridays" in run.outputs()[0]
    assert not (project.folder / "new.txt").exists()
    assert log == [("deny", "hook", str(project.folder / "new.txt"))]


async def test_a_matcher_leaves_other_tools_alone(project: Project) -> None:
    user_file(project, '[[hooks.PreToolUse]]\nmatcher = "Edit|MultiEdit"\ncommand = "exit 2"\n')
    async with headless(project, write(), DONE, allow=("Write",)) as run:
        await run.ask()
    assert (project.folder / "new.txt").exists()


async def test_ask_makes_a_question_of_what_a_rule_allows(project: Project) -> None:
    """With a person the question is asked and says why; without one the call is denied."""
    hooks = [answering("PreToolUse", {"decision": "ask", "reason": "sure?"}, matcher="Write")]
    async with headless(project, write(), DONE, hooks=hooks, allow=("Write",)) as run:
        await run.ask()
        assert "a hook asks" in run.outputs()[0]
    assert not (project.folder / "new.txt").exists()
    async with headless(project, write(), DONE, hooks=hooks, allow=("Write",), attended=True) as run:
        asked = asyncio.ensure_future(run.ask())
        while not (pending := run.headless.kernel.interrupts.list_interrupts(status="pending")):
            await asyncio.sleep(0.01)
        assert "sure?" in pending[0].message
        await run.headless.kernel.resolve_interrupt(pending[0].id, {"approved": True, "decision": "allow"})
        await asked
    assert (project.folder / "new.txt").exists()


@pytest.mark.parametrize("event", ["PreToolUse", "PermissionRequest"])
async def test_allow_answers_a_question_where_no_person_is_there(project: Project, event: str) -> None:
    hooks = [answering(event, {"decision": "allow", "reason": "it is a draft"}, matcher="Write")]
    async with headless(project, write(), DONE, hooks=hooks) as run:
        log = decisions(run)
        await run.ask()
    assert (project.folder / "new.txt").read_text() == "new"
    assert log[-1] == ("allow", "hook", str(project.folder / "new.txt"))


@pytest.mark.parametrize("event", ["PreToolUse", "PermissionRequest"])
@pytest.mark.parametrize("options", [{"deny": ("Write",)}, {"mode": "plan"}, {"mode": "deny-unasked"}], ids=str)
async def test_allow_overrides_no_denial(project: Project, event: str, options: dict[str, Any]) -> None:
    """A deny rule, the mode `plan` and the mode `deny-unasked` hold against it."""
    async with headless(project, write(), DONE, hooks=[answering(event, {"decision": "allow"})], **options) as run:
        await run.ask()
    assert not (project.folder / "new.txt").exists()


async def test_allow_opens_no_protected_path_and_nothing_outside(project: Project) -> None:
    hooks = [answering("PreToolUse", {"decision": "allow"})]
    replies = (write(path=".git/config"), write(path="../outside.txt"), DONE)
    async with headless(project, *replies, hooks=hooks) as run:
        await run.ask()
    assert not (project.folder / ".git").exists()
    assert not (project.folder.parent / "outside.txt").exists()


@pytest.mark.parametrize("source", ["project", "plugin:x"])
async def test_allow_of_a_project_or_a_plugin_is_passed_over(project: Project, source: str) -> None:
    """Only the user's own hooks and those of the program answer for the user; the run says that one tried."""
    hooks = [
        Hook(event, lambda _: {"decision": "allow"}, source=source) for event in ("PreToolUse", "PermissionRequest")
    ]
    async with headless(project, write(), DONE, hooks=hooks) as run:
        await run.ask()
        assert any(level == "warning" and "says allow" in text for level, text in run.notices)
    assert not (project.folder / "new.txt").exists()


async def test_changed_arguments_are_what_runs_and_what_is_recorded(project: Project) -> None:
    """The file, the audit, the line of the call and the next hook have the new arguments; the model is told."""
    log: list[dict[str, Any]] = []
    change = {"arguments": {"file_path": "safe.txt", "content": "changed"}}
    hooks = [answering("PreToolUse", change, matcher="Write"), seen("PreToolUse", log), seen("PostToolUse", log)]
    async with headless(project, write(), DONE, hooks=hooks, allow=("Write",)) as run:
        audit = decisions(run)
        await run.ask()
        started = next(line for line in run.lines if line["type"] == "tool_start")
        assert "safe.txt" in run.outputs()[0]
    assert (project.folder / "safe.txt").read_text() == "changed"
    assert not (project.folder / "new.txt").exists()
    assert audit == [("allow", "flags: --allowed-tools", str(project.folder / "safe.txt"))]
    assert started["arguments"] == change["arguments"]
    assert [data["arguments"] for data in log] == [change["arguments"]] * 2


async def test_rules_decide_on_changed_arguments(project: Project) -> None:
    """What a hook changes a call to is denied where a rule denies it."""
    hooks = [answering("PreToolUse", {"arguments": {"file_path": "keep.txt", "content": "x"}})]
    async with headless(project, write(), DONE, hooks=hooks, allow=("Write",), deny=("Write(keep.txt)",)) as run:
        await run.ask()
    assert not (project.folder / "keep.txt").exists()


async def test_an_allow_for_other_arguments_is_void(project: Project) -> None:
    """The user's hook allows the call as it was; a project's hook changes it afterwards, so nothing is allowed."""
    later = Hook("PreToolUse", lambda _: {"arguments": {"file_path": "b.txt", "content": "x"}}, source="project")
    hooks = [answering("PreToolUse", {"decision": "allow"}), later]
    async with headless(project, write(), DONE, hooks=hooks) as run:
        await run.ask()
    assert not (project.folder / "b.txt").exists()


async def test_the_first_deny_counts_and_ends_the_row(project: Project) -> None:
    log: list[dict[str, Any]] = []
    hooks = [
        answering("PreToolUse", {"decision": "allow"}),
        answering("PreToolUse", {"decision": "ask"}),
        answering("PreToolUse", {"decision": "allow"}),
        answering("PreToolUse", {"decision": "deny", "reason": "no"}, name="last-word"),
        seen("PreToolUse", log),
    ]
    async with headless(project, write(), DONE, hooks=hooks, allow=("Write",)) as run:
        await run.ask()
        assert "hook last-word: no" in run.outputs()[0]
    assert log == []


async def test_continue_false_ends_the_turn(project: Project) -> None:
    """The call is not followed by another one of the model, and the run says so with a status of its own."""
    hooks = [answering("PostToolUse", {"continue": False, "reason": "that is enough"})]
    async with headless(project, write(), DONE, hooks=hooks, allow=("Write",)) as run:
        result = await run.ask()
        assert result["status"] == "ended_by_hook"
        assert any("that is enough" in line["message"] for line in run.lines if line["type"] == "error")
    assert result["turns"] == 1


# ---------------------------------------------------------------- after a call
async def test_what_hooks_add_comes_with_the_result(project: Project) -> None:
    project.write("a.txt", "alpha")
    hooks = [
        answering("PreToolUse", {"context": "before"}),
        answering("PostToolUse", "after"),
        answering("PostToolUseFailure", "it failed"),
    ]
    replies = (call("Read", file_path="a.txt"), call("Read", file_path="missing.txt"), DONE)
    async with headless(project, *replies, hooks=hooks) as run:
        await run.ask()
        good, bad = run.outputs()
        ended = [line["output"] for line in run.lines if line["type"] == "tool_end"]
    assert good.endswith("[added by a hook]\nbefore\n\n[added by a hook]\nafter")
    assert "alpha" in good
    assert bad.endswith("[added by a hook]\nit failed")
    assert ended == [good, bad]


async def test_a_withheld_result_does_not_reach_the_model(project: Project) -> None:
    project.write("a.txt", "the secret plan")
    hooks = [answering("PostToolUse", {"decision": "deny", "reason": "it is confidential"})]
    async with headless(project, call("Read", file_path="a.txt"), DONE, hooks=hooks) as run:
        await run.ask()
        assert run.outputs()[0].startswith("the result of Read is withheld: ")
        assert run.outputs()[0].endswith("it is confidential")
        assert "secret plan" not in str(run.lines)


# ---------------------------------------------------------------- messages and sessions
async def test_a_message_is_refused_before_the_model_is_asked(project: Project) -> None:
    hooks = [answering("UserPromptSubmit", {"decision": "deny", "reason": "no names"}, matcher=".*Anna.*")]
    async with headless(project, DONE, hooks=hooks) as run:
        result = await run.ask("Write to Anna")
        assert (result["status"], result["turns"]) == ("message_refused", 0)
        assert any("no names" in line["message"] for line in run.lines if line["type"] == "error")
        assert run.texts("user") == []
        assert (await run.ask("Write to them"))["status"] == "success"


async def test_what_hooks_add_to_a_message(project: Project) -> None:
    """SessionStart adds to the first message alone, UserPromptSubmit to each."""
    hooks = [answering("SessionStart", "rules of the house"), answering("UserPromptSubmit", "it is Monday")]
    async with headless(project, DONE, DONE, hooks=hooks) as run:
        await run.ask("one")
        await run.ask("two")
        assert run.texts("user") == [
            "one\n\n[added by a hook]\nrules of the house\n\n[added by a hook]\nit is Monday",
            "two\n\n[added by a hook]\nit is Monday",
        ]


async def test_context_of_a_project_counts_as_text_from_outside(project: Project) -> None:
    """That of the user does not: it is the user's own text."""
    for source, tainted in (("user", False), ("project", True), ("plugin:x", True)):
        hooks = [Hook("UserPromptSubmit", lambda _: "more", source=source)]
        async with headless(project, DONE, hooks=hooks) as run:
            await run.ask()
            assert run.headless.kernel.taint.is_tainted(run.headless.session_id) is tainted, source
        hooks = [Hook("SessionStart", lambda _: "more", source=source)]
        async with headless(project, DONE, hooks=hooks) as run:
            assert run.headless.kernel.taint.is_tainted(run.headless.session_id) is tainted, source


@pytest.mark.parametrize(
    ("raised", "reason"), [(None, "exit"), (ValueError(), "error"), (asyncio.CancelledError(), "cancelled")]
)
async def test_the_end_of_a_session_has_a_reason(project: Project, raised: BaseException | None, reason: str) -> None:
    log: list[dict[str, Any]] = []
    with contextlib.suppress(ValueError, asyncio.CancelledError):
        async with headless(project, DONE, hooks=[seen("SessionEnd", log)]):
            if raised is not None:
                raise raised
    assert [data["reason"] for data in log] == [reason]


async def test_messages_and_the_status_are_shown_to_the_user(project: Project) -> None:
    """Also those of a hook that runs before the first turn; a notification's is in the turn that asks."""
    hooks = [
        answering("SessionStart", {"message": "welcome"}, name="greeter"),
        answering("PreToolUse", {"message": "looked at it"}, name="looker", status="looking"),
        answering("Notification", {"message": "rang the bell"}, name="bell", matcher="question"),
    ]
    async with headless(project, write(), DONE, hooks=hooks, attended=True) as run:
        asked = asyncio.ensure_future(run.ask())
        while not (pending := run.headless.kernel.interrupts.list_interrupts(status="pending")):
            await asyncio.sleep(0.01)
        assert run.headless.hooks is not None
        while not run.headless.hooks._notices:  # its hook runs beside the question
            await asyncio.sleep(0.01)
        await run.headless.kernel.resolve_interrupt(pending[0].id, {"approved": False, "decision": "deny"})
        await asked
        assert run.notices == [
            ("info", "greeter: welcome"),
            ("status", "looking"),
            ("info", "looker: looked at it"),
            ("info", "bell: rang the bell"),
        ]


async def test_hooks_are_told_of_a_session_that_waits_for_its_user(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once no message came for a while after a turn; not while a turn runs, and not where no person is there."""
    monkeypatch.setattr(session_hooks, "_IDLE_S", 0.05)
    for attended in (True, False):
        log: list[dict[str, Any]] = []
        async with headless(project, DONE, hooks=[seen("Notification", log)], attended=attended) as run:
            await run.ask()
            while attended and not log:  # its hook runs beside the session
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
        assert [data["kind"] for data in log] == (["idle"] if attended else [])


@pytest.mark.slow
async def test_a_slow_hook_does_not_keep_a_program_from_ending(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All hooks of SessionEnd have a few seconds together, and a command that takes longer is killed."""
    monkeypatch.setattr(session_hooks, "_END_S", 4.0)  # time for the command to begin
    user_file(project, '[[hooks.SessionEnd]]\ncommand = "echo begun > begun.txt; sleep 600; echo x > ended.txt"\n')
    began_s = asyncio.get_running_loop().time()
    async with headless(project, DONE) as run:
        await run.ask()
    assert asyncio.get_running_loop().time() - began_s < 25
    assert (project.folder / "begun.txt").exists()
    assert not (project.folder / "ended.txt").exists()


async def test_an_interrupt_ends_a_running_hook(project: Project) -> None:
    user_file(project, '[[hooks.PreToolUse]]\ncommand = "echo begun > begun.txt; sleep 60"\n')
    async with headless(project, write(), DONE, allow=("Write",)) as run:
        asked = asyncio.ensure_future(run.ask())
        while not (project.folder / "begun.txt").exists():
            await asyncio.sleep(0.01)
        assert run.headless.stop()
        assert (await asked)["status"] == "interrupted"
    assert not (project.folder / "new.txt").exists()


async def test_hooks_of_another_kind_that_raise_do_not_end_the_session(project: Project) -> None:
    """Outside a turn there is nothing to deny: the user is told, and the session goes on."""

    class Broken:
        def status_for(self, event: str, _data: Any) -> str | None:
            return "" if event.startswith("Session") else None

        async def run(self, _event: str, _data: Any) -> Any:
            raise RuntimeError("broken")

    options = HeadlessOptions(model="sim/echo", folder=str(project.folder), hooks=Broken())
    lines: list[Any] = []
    async with Headless(options) as run:
        assert (await run.ask("hello", lines.append)).error is None
    assert any(line["type"] == "notice" and "RuntimeError: broken" in line["text"] for line in lines)


# ---------------------------------------------------------------- sub-agents
TASK = call("Task", description="look", prompt="Find it.", subagent_type="explore")


async def test_a_sub_agent_that_is_refused_does_not_begin(project: Project) -> None:
    hooks = [answering("SubagentStart", {"decision": "deny", "reason": "one is enough"}, matcher="explore")]
    async with headless(project, TASK, DONE, hooks=hooks) as run:
        assert (await run.ask())["turns"] == 2
        assert "one is enough" in run.outputs()[0]


async def test_a_sub_agent_has_the_hooks_of_its_caller(project: Project) -> None:
    """Its calls are denied by them, its task gets what they add, and it goes on where they do not let it stop."""
    project.write("a.txt", "alpha")
    log: list[dict[str, Any]] = []
    hooks = [
        answering("SubagentStart", "look in a.txt"),
        seen("SubagentStart", log),
        seen(
            "PreToolUse",
            log,
            lambda data: {"decision": "deny", "reason": "not this"} if data["tool"] == "Read" else None,
        ),
        seen("SubagentStop", log, lambda data: {"decision": "deny"} if not data["refusals"] else None),
        seen("Stop", log),
    ]
    replies = (TASK, call("Read", file_path="a.txt"), {"text": "No."}, {"text": "It is alpha."}, DONE)
    async with headless(project, *replies, hooks=hooks) as run:
        await run.ask()
        assert run.outputs() == ["It is alpha."]
    assert [(data["event"], data.get("agent_type")) for data in log] == [
        ("PreToolUse", None),
        ("SubagentStart", "explore"),
        ("PreToolUse", "explore"),
        ("SubagentStop", "explore"),
        ("SubagentStop", "explore"),
        ("Stop", None),
    ]
    assert len({data["session_id"] for data in log}) == 1


# ---------------------------------------------------------------- the end of a turn and the window
async def test_stop_has_the_model_go_on_until_it_may_end(project: Project) -> None:
    hooks = [
        Hook("Stop", lambda data: {"decision": "deny", "reason": "run the tests"} if not data["refusals"] else None)
    ]
    async with headless(project, {"text": "Done."}, {"text": "Tests pass."}, hooks=hooks) as run:
        result = await run.ask()
        assert (result["text"], result["turns"]) == ("Tests pass.", 2)
        assert run.texts("user")[1].startswith("Do not stop yet.")
        assert run.texts("user")[1].endswith("run the tests")


async def test_stop_cannot_go_on_for_ever(project: Project) -> None:
    """A hook that never lets go is passed over after three times, and the user is told."""
    async with headless(project, *[DONE] * 4, hooks=[answering("Stop", {"decision": "deny"})]) as run:
        result = await run.ask()
        assert (result["status"], result["turns"]) == ("success", REFUSALS_MAX + 1)
        assert any(level == "warning" and "refused it 3 times" in text for level, text in run.notices)


async def test_a_denied_compaction_leaves_the_conversation_as_it_is(project: Project) -> None:
    deny = [True]
    hooks = Hooks(
        [
            Hook("PreCompact", lambda _: {"decision": "deny", "reason": "keep it"} if deny[0] else None),
            answering("SessionStart", "the rules again", matcher="compact"),
        ],
        folder=str(project.folder),
    )
    replies = ({"text": "1"}, {"text": "2"}, {"text": "a summary"}, {"text": "3"})
    async with headless(project, *replies, hooks=hooks) as run:
        process = run.headless.process
        assert process is not None
        await run.ask("one")
        await run.ask("two")
        with pytest.raises(ApprovalRefused, match="keep it"):
            await process.compact()
        session = run.headless.kernel.parts["agents"].sessions[run.headless.session_id]
        assert session.window.start == 0
        deny[0] = False
        await process.compact()
        assert session.window.start == 2
        assert session.window.summary == "a summary\n\n[added by a hook]\nthe rules again"


async def test_a_hook_that_changes_what_a_person_edited_is_a_denial(project: Project) -> None:
    """Hooks see the edited arguments, and cannot change them again behind the person's back."""
    log: list[dict[str, Any]] = []
    edited = {"file_path": "edited.txt", "content": "e"}
    for change in (False, True):
        answer = (lambda data: {"arguments": {**data["arguments"], "content": "!"}}) if change else None
        async with headless(project, write(), DONE, hooks=[seen("PreToolUse", log, answer)], attended=True) as run:
            asked = asyncio.ensure_future(run.ask())
            while not (pending := run.headless.kernel.interrupts.list_interrupts(status="pending")):
                await asyncio.sleep(0.01)
            answered = {"approved": True, "decision": "allow", "data": {"arguments": edited}}
            await run.headless.kernel.resolve_interrupt(pending[0].id, answered)
            await asked
        assert log[-1]["arguments"] == edited
        assert (project.folder / "edited.txt").exists() is not change
        (project.folder / "edited.txt").unlink(missing_ok=True)


async def test_known_keys_are_masked_for_hooks(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt with a key of a provider reaches a hook without it."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-REDACTED")
    user_file(
        project,
        '[providers.anthropic]\napi_key = "env:ANTHROPIC_API_KEY"\n'
        '[[hooks.UserPromptSubmit]]\ncommand = "cat >> log.jsonl"\n',
    )
    async with headless(project, DONE) as run:
        await run.ask("my key is sk-ant-REDACTED ok?")
    (record,) = records(project)
    assert "secret-0123456789" not in str(record)
    assert record["prompt"].startswith("my key is ")
