"""Nothing that Lyra or the user's programs obey can be written; and the attempts would be seen if it could."""

from __future__ import annotations

import asyncio
import logging

import pytest

from lyra.sandbox import paths as interpreters
from lyra.sandbox.landlock_tier import ClosedFolders
from lyra.sandbox.paths import without_links
from lyra.sandbox.protected import find_appeared
from lyra.sandbox.running_commands import RunningCommand
from lyra.sandbox.sandbox import examine
from verify.attacks import obeyed
from verify.attacks.obeyed import (
    afterwards,
    closed_folders,
    environments,
    named_files,
    names,
    own_files,
    repositories,
)

pytestmark = pytest.mark.slow
_ENTRIES_MAX = 2_000
TIERS = [state.name for state in asyncio.run(examine()) if state.works]


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "lyra.sandbox")


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("family", obeyed.FAMILIES)
def test_no_attempt_has_an_effect(tier, family, monkeypatch):
    """One in eight of them, with smaller heaps of files; `make security` tries all."""
    monkeypatch.setattr("lyra.sandbox.protected.SANDBOX_SCAN_ENTRIES_MAX", _ENTRIES_MAX)
    result = obeyed.run((family,), (tier,), every=8)
    assert result.attempts >= 6
    assert result.failures == []


def test_there_are_enough_attempts():
    """Hundreds on Lyra's files, dozens on each of the others, each with a name of its own."""
    assert len(own_files.LAYOUTS) * len(own_files._ATTEMPTS) > 200
    assert len(list(repositories._orders())) + len(repositories._OTHERS) + len(repositories._NAMED) > 60
    assert len(closed_folders.ATTEMPTS) > 50
    assert len(environments._TARGETS) * 2 + len(environments._OTHERS) > 40
    assert len(names.WAYS) >= 10
    assert len(named_files.ATTEMPTS) > 40
    assert len(afterwards.ATTEMPTS) > 70


@pytest.fixture
def tier():
    if not TIERS:
        pytest.skip("no sandbox works here")
    asyncio.run(examine())  # it is tried before a bug is planted
    return TIERS[0]


def test_without_setting_aside_attempts_succeed(tier, monkeypatch):
    """A planted bug: nothing is renamed after a command."""
    monkeypatch.setattr("lyra.sandbox.protected.set_aside", lambda root, paths: ())
    assert obeyed.run(("repositories",), (tier,), every=8).failures
    assert any(".npmrc" in failure for failure in obeyed.run(("names",), (tier,), every=20).failures)


def test_without_places_attempts_succeed(tier, monkeypatch):
    """A planted bug: Lyra's own files are files like any other."""
    from lyra.sandbox import protected, sandbox
    from lyra.sandbox.protection import protected_places

    for module in (protected, sandbox):
        monkeypatch.setattr(module, "places_in", lambda root: protected_places.NOTHING)
    failures = obeyed.run(("own files",), (tier,), every=4).failures
    assert any("permissions.toml" in failure for failure in failures)


def test_without_a_check_of_writes_attempts_succeed(tier, monkeypatch):
    """A planted bug: the file tools do not look for the shape of a repository."""
    for module in ("lyra.tools.builtin.workspace", "lyra.sandbox.protection.obeyed"):
        monkeypatch.setattr(f"{module}.made_repository", lambda root, path: None)
    failures = obeyed.run(("repositories",), (tier,), every=4).failures
    assert any("by Writes" in failure for failure in failures)


def test_without_targets_attempts_succeed(tier, monkeypatch):
    """A planted bug: neither links nor git's settings protect a file."""
    from lyra.sandbox import protected
    from lyra.sandbox.protection import obeyed as obeyed_files
    from lyra.sandbox.protection.protected_places import NOTHING

    monkeypatch.setattr(obeyed_files, "_look", lambda roots: obeyed_files._Targets({}, (), ()))
    monkeypatch.setattr(protected, "find_named_places", lambda *given: NOTHING)
    failures = obeyed.run(("named files",), (tier,), every=2).failures
    assert len([failure for failure in failures if "by Write" in failure]) > 20
    assert len([failure for failure in failures if "by a command" in failure]) > 18
    attempt = "the same, by Write"
    monkeypatch.setattr(repositories, "_orders", lambda: ())
    monkeypatch.setattr(repositories, "_OTHERS", {})
    monkeypatch.setattr(repositories, "_NAMED", {attempt: repositories._NAMED[attempt]})
    assert any(attempt in failure for failure in obeyed.run(("repositories",), (tier,)).failures)


def test_without_a_check_of_installations_attempts_succeed(tier, monkeypatch):
    """A planted bug: whatever an environment names is shown."""

    def everything(environments, visible):
        programs = [program for environment in environments for program in interpreters._programs(environment)]
        paths = {without_links(program) for program in programs}
        return [(path, path) for path in paths if path.startswith("/tmp/lyra-obeyed") and "project" not in path]

    for module in ("bubblewrap", "landlock_tier"):
        monkeypatch.setattr(f"lyra.sandbox.{module}.interpreter_mounts", everything)
    failures = obeyed.run(("environments",), (tier,), every=3).failures
    assert any("a secret was read" in failure for failure in failures)


@pytest.mark.parametrize(
    ("switched_off", "attempt"),
    [
        ("lyra.sandbox.protected.LinkFollower.follow", "by a new link"),
        ("lyra.sandbox.protected._by_links", "a dangling link"),
        ("lyra.sandbox.running_commands._mark_names", "after the death of Lyra"),
    ],
)
def test_without_the_look_behind_links_and_deaths_attempts_succeed(tier, monkeypatch, switched_off, attempt):
    """Planted bugs: links are not followed, what they lead to is not compared, marks are not read."""
    nothing = {"follow": None, "_by_links": set(), "_mark_names": []}[switched_off.rpartition(".")[2]]
    monkeypatch.setattr(switched_off, lambda *_: nothing)
    monkeypatch.setitem(afterwards._SPECIAL, "behind a heap of files", afterwards._beside)
    assert any(attempt in failure for failure in obeyed.run(("afterwards",), (tier,), every=3).failures)


def test_without_a_search_to_the_end_attempts_succeed(tier, monkeypatch):
    """Planted bugs: the search afterwards has the bound of the one before, and each look is for its own command."""
    monkeypatch.setattr("lyra.sandbox.protected.SANDBOX_SCAN_ENTRIES_MAX", _ENTRIES_MAX)
    monkeypatch.setattr("lyra.sandbox.protected.SANDBOX_SCAN_AFTER_MAX", _ENTRIES_MAX)
    monkeypatch.setattr(
        RunningCommand, "look", lambda self, most: find_appeared(self._profile, self._before, most=most)
    )
    failures = obeyed.run(("afterwards",), (tier,), every=100).failures
    assert any("heap" in failure for failure in failures)
    assert any("beside" in failure for failure in failures)


def test_without_closed_names_attempts_succeed(monkeypatch):
    """A planted bug: the process that makes files for commands makes any."""
    if "landlock" not in TIERS:
        pytest.skip("landlock does not work here")
    add = ClosedFolders.add
    monkeypatch.setattr(ClosedFolders, "add", lambda self, fd, names: add(self, fd, []))
    assert obeyed.run(("closed folders",), ("landlock",), every=4).failures
