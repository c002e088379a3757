"""Checks of Sage's own parts: what is there, what is missing, what is wrong; no key is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra.config import Config
from lyra.sage.commands.doctor import SageCheck, sage_checks
from lyra.sage.session.index import SessionIndex
from lyra.sage.session.usage_log import USAGE_FILE
from tests.sage.commands.shown import rows, run
from tests.sage.open_session import Project

KEY = "sk-ant-" + "a1b2c3d4" * 4


def checks(project: Project, model: str = "sim/echo", *flags: str) -> dict[str, SageCheck]:
    config = Config.load(project.folder, flags=flags)
    return {check.name: check for check in sage_checks(config, str(project.folder), model, project.data)}


async def test_the_command_shows_them_and_the_sandbox(project: Project) -> None:
    async with project.open() as session:
        listed = {row[0]: row[1] for row in rows(await run(session, "/doctor"))}
    assert set(listed) == {
        *("model", "sessions", "index", "usage", "trust", "git", "rg", "prompt_toolkit", "rich", "sandbox"),
        "commands",
    }
    assert listed["model"] == listed["index"] == listed["sessions"] == "ok"


def test_the_model_and_its_key(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether there is a key and which variable has it, never the key itself."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert checks(project, "")["model"].state == "missing"
    assert checks(project, "claude")["model"].state == "problem"
    missing = checks(project, "anthropic/claude-sonnet-4-5")["model"]
    assert (missing.state, "ANTHROPIC_API_KEY" in missing.detail) == ("problem", True)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    there = checks(project, "anthropic/claude-sonnet-4-5")["model"]
    assert there == SageCheck("model", "ok", "anthropic/claude-sonnet-4-5: key from ANTHROPIC_API_KEY")
    assert checks(project, "", "agent.model=sim/echo")["model"].detail == "sim/echo: simulated"


def test_a_folder_that_cannot_be_written(project: Project) -> None:
    project.data.write_text("a file is in the way")
    found = checks(project)
    assert found["sessions"].state == "problem"
    assert "index" not in found


def test_an_index_that_was_damaged_is_said_to_be_new(project: Project) -> None:
    SessionIndex(project.data).close()
    assert checks(project)["index"].detail == "readable"
    (project.data / "index.db").write_text("damaged" * 1_000)
    assert checks(project)["index"].state == "ok", "it was made anew"
    (project.data / USAGE_FILE).write_text("damaged" * 1_000)
    usage = checks(project)["usage"]
    assert (usage.state, USAGE_FILE in usage.detail) == ("problem", True)


def test_the_limit_of_the_day(project: Project) -> None:
    assert checks(project, "sim/echo", "sage.daily_budget_usd=$5")["usage"].detail == "today $0.00 of $5.00"


def test_files_that_wait_for_trust(project: Project) -> None:
    assert checks(project)["trust"].detail == "the folder's files ask for nothing"
    project.write("AGENTS.md", "Run everything.\n")
    waiting = checks(project)["trust"]
    assert (waiting.state, waiting.detail) == ("missing", "AGENTS.md can only tighten")


def test_programs_that_are_not_there(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = checks(project)
    assert (found["git"].state, found["rg"].state) == ("missing", "missing")
    assert found["rg"].how == "install the package ripgrep"
