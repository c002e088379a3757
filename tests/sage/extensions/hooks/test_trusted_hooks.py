"""Hooks of a project run once its file is trusted, in the sandbox, and the question of trust names them."""

from __future__ import annotations

import pytest

from lyra.config import Config
from lyra.config.asks import folder_asks
from lyra.errors import ConfigError
from tests import trusting
from tests.sage.extensions.hooks.support import headless, records, user_file
from tests.sage.open_session import Project

DONE = {"text": "Done."}
HOOK = '[[hooks.UserPromptSubmit]]\ncommand = "cat >> log.jsonl"\n'


async def test_a_projects_hook_does_not_run_in_a_folder_without_trust(project: Project) -> None:
    """The configuration says what was passed over."""
    project.write("lyra.toml", HOOK)
    assert Config.load(project.folder).passed_over == ["hooks.UserPromptSubmit"]
    async with headless(project, DONE) as run:
        await run.ask()
    assert records(project) == []


async def test_a_projects_hook_runs_where_the_user_trusts_its_file(project: Project) -> None:
    """A word for the run is enough, and so is the answer to the question, until the file changes."""
    project.write("lyra.toml", HOOK)
    async with headless(project, DONE, trusted=True) as run:
        await run.ask("once")
    assert [record["prompt"] for record in records(project)] == ["once"]
    trusting.answer(project.folder)
    async with headless(project, DONE) as run:
        await run.ask("kept")
    assert [record["prompt"] for record in records(project)] == ["once", "kept"]
    project.write("lyra.toml", HOOK.replace("cat >>", "tee -a >"))
    async with headless(project, DONE) as run:
        await run.ask("changed")
    assert len(records(project)) == 2


def test_the_question_of_trust_names_every_hook(project: Project) -> None:
    project.write(
        "lyra.toml",
        '[[hooks.PreToolUse]]\nmatcher = "Edit|Write"\ncommand = "./check.sh"\n'
        '[[hooks.PreToolUse]]\ncommand = ["python3", "a b.py"]\n'
        '[[hooks.Stop]]\ncommand = "./\\u202etests.sh"\n',
    )
    (file,) = folder_asks(str(project.folder))
    assert [(ask.name, ask.sentence) for ask in file.asks] == [
        (
            "hook PreToolUse",
            "runs ./check.sh before a tool is used, and before rules decide on it, for Edit|Write",
        ),
        ("hook PreToolUse", "runs python3 'a b.py' before a tool is used, and before rules decide on it"),
        ("hook Stop", "runs ./⟨U+202E⟩tests.sh when the model has an answer and the turn is about to end"),
    ]


async def test_a_projects_hook_starts_in_the_folder_of_its_file(project: Project) -> None:
    """A session in a folder below finds the program, and the hook writes in the session's folder alone."""
    project.write("lyra.toml", '[[hooks.UserPromptSubmit]]\ncommand = "./.lyra/hooks/where.sh"\n')
    script = project.write(".lyra/hooks/where.sh", "#!/bin/sh\npwd; touch above.txt below/below.txt; true\n")
    script.chmod(0o755)
    (project.folder / "below").mkdir()
    above = project.folder
    project.folder = project.folder / "below"
    async with headless(project, DONE, trusted=True) as run:
        await run.ask("hello")
        assert run.texts("user") == [f"hello\n\n[added by a hook]\n{above}"]
    assert (above / "below" / "below.txt").exists()
    assert not (above / "above.txt").exists()


def test_a_project_cannot_leave_the_sandbox(project: Project) -> None:
    project.write("lyra.toml", '[[hooks.Stop]]\ncommand = "/bin/true"\nsandbox = false\n')
    with pytest.raises(ConfigError, match="runs in the sandbox"):
        Config.load(project.folder, trust=True)


async def test_hooks_of_the_user_come_before_those_of_the_project(project: Project) -> None:
    user_file(project, '[[hooks.UserPromptSubmit]]\ncommand = "echo user"\n')
    project.write("lyra.toml", '[[hooks.UserPromptSubmit]]\ncommand = "echo project"\n')
    async with headless(project, DONE, trusted=True) as run:
        await run.ask("hello")
        assert run.texts("user") == ["hello\n\n[added by a hook]\nuser\n\nproject"]
