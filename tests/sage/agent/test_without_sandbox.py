"""Sage where no sandbox works, as on macOS: each command is asked about, and runs only by a person's yes."""

from __future__ import annotations

import os

import pytest

from lyra.sage.commands.doctor import sage_checks
from lyra.sandbox import sandbox
from tests.sage.agent.test_questions_asked import Person, bash, results
from tests.sage.open_session import Project


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another system: no tier works, and there are no descriptors of processes."""
    for tier in (sandbox.Bubblewrap, sandbox.Landlock):
        monkeypatch.setattr(tier, "missing", lambda _self: "this is another system")
    monkeypatch.setattr(sandbox, "_known", {})
    monkeypatch.delattr(os, "pidfd_open")


async def test_each_command_is_asked_about_and_no_rule_answers(project: Project) -> None:
    """Not for a reading command, not in the mode `sandboxed`, not by `Bash` alone; "always" is not offered."""
    commands = ("ls", "echo $HOME > made.txt", "echo $HOME > made.txt")
    for mode in ("default", "sandboxed", "bypass"):
        person = Person("allow")
        options = {"attended": True, "allow": ("Bash",), "mode": mode}
        async with project.open(*bash(*commands), {"text": "."}, options=options) as session:
            lines = await person.talk(session, "go")
        questions = [line for line in lines if line["type"] == "interrupt"]
        assert person.asked == list(commands)
        assert all("no sandbox works here" in line["reason"] for line in questions)
        assert all(line["always"] is None and not line["rules"] for line in questions)
        assert (project.folder / "made.txt").read_text() == f"{project.home}\n"
        assert "the command had all your rights" in results(lines)[1]


async def test_nothing_runs_without_a_person_or_by_a_no(project: Project) -> None:
    for attended in (True, False):
        person = Person("deny")
        options = {"attended": attended, "allow": ("Bash",), "mode": "bypass"}
        async with project.open(*bash("touch made"), {"text": "."}, options=options) as session:
            await person.talk(session, "go")
        assert not (project.folder / "made").exists()


async def test_a_sandbox_that_fails_after_the_question_runs_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The yes was for a command in the sandbox, and is none for one without."""
    monkeypatch.setattr("lyra.sandbox.sandbox.may_work", lambda: True)
    async with project.open(*bash("touch made"), {"text": "."}, options={"attended": True}) as session:
        lines = await Person("allow").talk(session, "go")
    assert "no sandbox works here, so the command does not run" in results(lines)[0]
    assert not (project.folder / "made").exists()


async def test_an_end_is_seen_and_a_time_limit_holds(project: Project) -> None:
    script = [*bash("exit 3"), {"tool_calls": [{"name": "Bash", "arguments": {"command": "sleep 9", "timeout": 0.2}}]}]
    async with project.open(*script, {"text": "."}, options={"attended": True}) as session:
        lines = await Person("allow").talk(session, "go")
    assert "exit code 3" in results(lines)[0]
    assert "it took too long and was ended" in results(lines)[1]


async def test_doctor_says_what_becomes_of_commands(project: Project) -> None:
    async with project.open() as session:
        rows = {check.name: check for check in sage_checks(session.config, session.folder, root=project.data)}
    assert rows["commands"].state == "missing"
    assert "each is asked about" in rows["commands"].detail
