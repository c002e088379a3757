"""An import is done again without harm, keeps what a person has edited, and is taken back as a whole."""

from __future__ import annotations

import os

import pytest

from lyra.errors import ConfigError
from lyra.sage.imports.apply import ImportState, compare
from lyra.sage.imports.sources import AGENTS, plan, project_place
from tests.sage.imports.support import Desk

HOOKS = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}


def filled(desk: Desk) -> None:
    desk.put("CLAUDE.md", "Use tabs.\n")
    desk.put(".claude/commands/ship.md", "Ship it.")
    desk.put(".claude/settings.json", HOOKS)


def test_a_second_run_changes_nothing(desk: Desk) -> None:
    filled(desk)
    assert set(desk.take_over()[0].values()) == {"new"}
    before = desk.files()
    assert set(desk.take_over()[0].values()) == {"same"}
    assert desk.files() == before


def test_what_changes_there_changes_here(desk: Desk) -> None:
    """And what is gone there goes here; an import of one agent leaves what came from another."""
    filled(desk)
    desk.put(".cursorrules", "Old.")
    desk.take_over()
    desk.put(".claude/commands/ship.md", "Sail.")
    (desk.project / "CLAUDE.md").unlink()
    (desk.project / ".cursorrules").unlink()
    assert desk.take_over("claude")[0] == {
        ".lyra/commands/ship.md": "change",
        "lyra.toml": "same",
        ".lyra/rules/claude.md": "remove",
    }
    assert desk.files()[".lyra/commands/ship.md"] == "Sail.\n"
    assert ".lyra/rules/cursor-rules.md" in desk.files()


def test_what_a_person_wrote_or_edited_is_kept(desk: Desk) -> None:
    filled(desk)
    own = desk.put(".lyra/commands/ship.md", "My own.")
    assert desk.take_over()[0][".lyra/commands/ship.md"] == "kept"
    own.unlink()
    desk.take_over()
    own.write_text("Edited.")
    desk.put(".claude/commands/ship.md", "Sail.")
    assert desk.take_over()[0][".lyra/commands/ship.md"] == "kept"
    assert desk.undo()[".lyra/commands/ship.md"] == "kept"
    assert own.read_text() == "Edited."


def test_undo_removes_all_that_was_written(desk: Desk) -> None:
    """And nothing else: a file of settings loses its block alone, and folders of the user's stay."""
    filled(desk)
    desk.put("lyra.toml", '[log]\nlevel = "debug"\n')
    desk.put(".lyra/commands/own.md", "Own.")
    before = desk.files()
    desk.take_over()
    assert desk.files() != before
    assert set(desk.undo().values()) == {"remove"}
    assert desk.files() == before
    assert not (desk.project / ".lyra/rules").exists()
    assert desk.undo() == {}
    desk.put(".claude/settings.json", HOOKS, home=True)
    desk.put(".claude/CLAUDE.md", "Briefly.", home=True)
    desk.take_over("claude", user=True)
    assert set(desk.files(user=True)) == {"SAGE.md", "imported/claude.md", "lyra.toml"}
    desk.undo(user=True)
    assert desk.files(user=True) == {}


def test_rules_of_a_user_stand_beside_their_own(desk: Desk) -> None:
    desk.put(".config/lyra/SAGE.md", "Be brief.\n", home=True)
    desk.put(".claude/CLAUDE.md", "Use tabs.\n", home=True)
    desk.put(".codex/AGENTS.md", "Use blanks.\n", home=True)
    desk.take_over(user=True)
    text = desk.files(user=True)["SAGE.md"]
    assert text.startswith("Be brief.\n\n<!-- sage import: begin -->\n@imported/claude.md\n\n@imported/codex.md\n")
    desk.undo(user=True)
    assert desk.files(user=True) == {"SAGE.md": "Be brief.\n"}


def test_nothing_is_written_by_a_look(desk: Desk) -> None:
    filled(desk)
    place = project_place(str(desk.project))
    state = ImportState(place)
    planned, _ = plan(place, tuple(AGENTS))
    assert {change.act for change in compare(place, planned, tuple(AGENTS), state)} == {"new"}
    assert desk.files() == {}


def test_a_settings_file_above_is_not_hidden(desk: Desk) -> None:
    (desk.project.parent / "lyra.toml").write_text('[log]\nlevel = "debug"\n')
    desk.put(".claude/settings.json", HOOKS)
    assert desk.take_over()[0] == {"lyra.toml": "kept"}


def test_nothing_is_written_through_a_link(desk: Desk) -> None:
    """A repository could bring one to any folder of its user, as the place or as the file."""
    outside = desk.home / "outside"
    outside.mkdir()
    desk.put(".claude/commands/ship.md", "Ship it.")
    os.symlink(outside, desk.project / ".lyra")
    with pytest.raises(ConfigError, match="behind a link"):
        desk.take_over()
    (desk.project / ".lyra").unlink()
    (desk.project / ".lyra/commands").mkdir(parents=True)
    os.symlink(outside / "file", desk.project / ".lyra/commands/ship.md")
    with pytest.raises(ConfigError, match="cannot be read"):
        desk.take_over()
    assert list(outside.iterdir()) == []


def test_nothing_is_read_through_a_link_of_a_project(desk: Desk) -> None:
    desk.put("secret.md", "the key", home=True)
    (desk.project / ".claude/commands").mkdir(parents=True)
    os.symlink(desk.home / "secret.md", desk.project / ".claude/commands/show.md")
    os.symlink(desk.home / "secret.md", desk.project / "CLAUDE.md")
    os.symlink(desk.home, desk.project / ".cursor")
    done, _ = desk.take_over()
    assert done == {}


def test_links_among_the_files_of_a_user_are_theirs(desk: Desk) -> None:
    """Such as those into a repository with the settings of several machines; undo leaves the link and what it names."""
    settings = desk.home / "dotfiles"
    (settings / "commands").mkdir(parents=True)
    (settings / "SAGE.md").write_text("Be brief.\n")
    desk.own.mkdir(parents=True)
    for name in ("SAGE.md", "commands"):
        os.symlink(settings / name, desk.own / name)
    desk.put(".claude/CLAUDE.md", "Use tabs.", home=True)
    desk.put(".claude/commands/ship.md", "Ship it.", home=True)
    desk.take_over("claude", user=True)
    assert "@imported/claude.md" in (settings / "SAGE.md").read_text()
    assert (settings / "commands/ship.md").read_text() == "Ship it.\n"
    desk.undo(user=True)
    assert (settings / "SAGE.md").read_text() == "Be brief.\n"
    assert (desk.own / "SAGE.md").is_symlink()
    assert not (settings / "commands/ship.md").exists()
