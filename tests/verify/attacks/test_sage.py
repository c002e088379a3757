"""Attacks on Sage's own faces: none has an effect, and the suites would see one if a protection were missing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from lyra.agents.acp import updates
from lyra.core.secrets.known_keys import KnownKeys
from lyra.sage import acp
from lyra.sage.agent.worktrees import git as worktree_git
from lyra.sage.project import rules
from lyra.sage.session import snapshots
from lyra.sandbox.paths import Beneath
from verify.attacks.sage import exposed_keys, injected_commands, paths, screens
from verify.attacks.sage.world import SageWorld

QUICK_KEYS = (
    "in a prompt",
    "in the output of tools",
    "in titles and forks",
    "in what an editor is told",
    "as the model of a slash command",
)
RULES = ("plan mode", "deny rules", "sub-agents", "what commands and skills declare")
UNDONE = ("an undo where a folder is a link now", "a checkpoint where a folder is a link now")
QUICK_PATHS = (*UNDONE, "copies of files outside", "exports over links", "imports of rules", "files of skills")


def attempts_of(effects: list[str]) -> set[str]:
    return {effect.partition(":")[0] for effect in effects}


# ---------------------------------------------------------------- keys
@pytest.mark.slow
def test_no_key_is_kept_or_shown() -> None:
    assert exposed_keys.run(QUICK_KEYS).effects == []


@pytest.mark.slow
def test_without_the_search_for_keys_they_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted hole: known keys are not searched for in texts."""
    monkeypatch.setattr(KnownKeys, "mask", lambda _self, text, **_more: text)
    monkeypatch.setattr(KnownKeys, "may_be_in", lambda _self, _data: False)
    effects = exposed_keys.run(QUICK_KEYS).effects
    assert attempts_of(effects) == set(QUICK_KEYS)
    assert any("session.db" in effect for effect in effects)
    assert any("was shown" in effect for effect in effects)


# ---------------------------------------------------------------- commands
@pytest.mark.slow
def test_no_command_runs_that_was_not_allowed() -> None:
    names = [name for name in injected_commands.ATTEMPTS if name != "names of files for programs"]
    assert injected_commands.run(names).effects == []


@pytest.mark.slow
def test_without_the_rules_commands_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted hole: the modes and deny rules of the attempts are left out, and where no question is needed for the
    attempt, none is asked."""
    usual = SageWorld.open

    def opened(world: SageWorld, *replies: Any, **options: Any) -> Any:
        kept = {name: value for name, value in options.items() if name not in ("mode", "deny")}
        return usual(world, *replies, **{**kept, **allowed})

    monkeypatch.setattr(SageWorld, "open", opened)
    allowed: dict[str, Any] = {}
    assert injected_commands.run(["edited answers"]).effects == ["edited answers: edited was made"]
    allowed["allow"] = ("Bash", "Write")
    assert attempts_of(injected_commands.run(RULES).effects) == set(RULES)


@pytest.mark.slow
def test_without_its_settings_git_runs_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted hole: git obeys the settings of the repository."""
    monkeypatch.setattr(worktree_git, "SETTINGS", ())
    assert injected_commands.run(["worktrees of a hostile repository"]).effects != []


# ---------------------------------------------------------------- paths
@pytest.mark.slow
def test_no_path_leads_outside() -> None:
    assert paths.run(QUICK_PATHS).effects == []


@pytest.mark.slow
def test_without_the_check_of_links_an_undo_writes_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted hole: folders are opened by their names, links among them followed."""

    @contextlib.contextmanager
    def opened(_root: Any, path: str) -> Iterator[tuple[int, str]]:
        descriptor = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            yield descriptor, os.path.basename(path)
        finally:
            os.close(descriptor)

    monkeypatch.setattr(snapshots, "open_parent", opened)
    assert attempts_of(paths.run(UNDONE).effects) == set(UNDONE)


def test_without_the_check_of_links_rules_import_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted hole: an import is opened by its name."""

    class Everywhere(Beneath):
        def open(self, path: str, flags: int = os.O_RDONLY, mode: int = 0, *, links: bool = True) -> int:
            return os.open(os.path.join(self.root, path), flags)

    monkeypatch.setattr(rules, "Beneath", Everywhere)
    assert paths.run(["imports of rules"]).effects != []


# ---------------------------------------------------------------- screens
@pytest.mark.slow
def test_no_text_acts_on_an_editor() -> None:
    assert screens.run(["an editor"]).effects == []


@pytest.mark.slow
def test_without_its_check_a_text_would_act_on_an_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted hole: texts are told as they come."""
    monkeypatch.setattr(acp, "render_text", str)
    monkeypatch.setattr(updates, "render_text", str)
    assert screens.run(["an editor"]).effects != []


@pytest.mark.slow
def test_a_printed_question_allows_nothing() -> None:
    assert screens.run(["a question that the model has printed"]).effects == []
