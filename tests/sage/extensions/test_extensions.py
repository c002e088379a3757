"""All extensions of a session: changed files count at the next look, broken ones keep their last good version."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lyra.sage.extensions.extensions import PAUSE_S, Extensions
from lyra.sage.extensions.hooks import Hook, Hooks
from lyra.sage.extensions.plugins.store import PluginStore
from lyra.testing import SimClock
from tests.sage.extensions.plugins.support import COMMAND, make
from tests.sage.extensions.support import Desk, put

HOOKS = "[[hooks.Stop]]\ncommand = ['./stop.sh']\n"
SERVERS = "[mcp.servers.a]\ncommand = 'serve'\n"


class Session:
    """The extensions of a desk, and a clock that the test moves."""

    def __init__(self, desk: Desk, **options: Any) -> None:
        self.clock = SimClock(2_000_000_000.0)
        self.extensions = Extensions(str(desk.project), trusted=True, env=desk.env, clock=self.clock, **options)

    def look(self) -> bool:
        self.clock.advance(PAUSE_S)
        return self.extensions.refresh()


@pytest.fixture
def store(desk: Desk) -> PluginStore:
    return PluginStore(env=desk.env)


def install(store: PluginStore, folder: Path, *, hooks: str = HOOKS, enable: bool = True) -> Path:
    """A plugin with a command, a hook and a server."""
    files = {"commands/ship.md": COMMAND, "hooks.toml": hooks, "servers.toml": SERVERS}
    make(
        folder,
        files,
        assets='commands = ["commands/ship.md"]\nhooks = ["hooks.toml"]\nmcp_servers = ["servers.toml"]',
    )
    plugin = store.install(folder, replace=True)
    if enable:
        store.enable(plugin.id)
    return Path(plugin.folder)


def test_everything_of_a_session_is_in_one_place(desk: Desk, store: PluginStore, tmp_path: Path) -> None:
    desk.of_user("commands/go.md", "Go.")
    desk.of_user("skills/x.md", "---\ndescription: d\n---\nX.")
    desk.of_user("agents/docs.md", "---\ndescription: d\n---\nD.")
    install(store, tmp_path / "acme")
    extensions = Session(desk).extensions
    assert {"go", "x", "testing", "acme:ship"} <= set(extensions.slash_commands())
    assert {"Explore", "docs"} <= set(extensions.sub_agents())
    tools = extensions.__lyra_tools__()
    assert [tool.name for tool in tools] == ["Skill"]
    assert list(extensions.hooks()) == ["plugin:acme"]
    assert [server.name for server in extensions.servers()] == ["acme-a"]
    assert extensions.problems == ()


def test_a_command_comes_before_a_skill_of_the_same_name(desk: Desk) -> None:
    desk.of_user("commands/x.md", "Command.")
    desk.of_user("skills/x.md", "---\ndescription: d\n---\nSkill.")
    assert Session(desk).extensions.slash_commands()["x"].body == "Command."


def test_names_of_the_session_can_be_reserved(desk: Desk) -> None:
    desk.of_user("commands/mine.md", "Mine.")
    assert "mine" not in Session(desk, reserved=["mine"]).extensions.slash_commands()


def test_files_that_come_change_and_go_count_at_the_next_look(desk: Desk) -> None:
    session = Session(desk)
    assert not session.look()
    desk.of_user("commands/go.md", "Go.")
    desk.of_user("skills/x.md", "---\ndescription: d\n---\nX.")
    desk.of_project("agents/docs.md", "---\ndescription: d\n---\nD.")
    assert session.look()
    assert {"go", "x"} <= set(session.extensions.slash_commands())
    assert "docs" in session.extensions.sub_agents()
    desk.of_user("commands/go.md", "Go on.")
    assert session.look()
    assert session.extensions.slash_commands()["go"].body == "Go on."
    os.remove(desk.user / "commands/go.md")
    assert session.look()
    assert "go" not in session.extensions.slash_commands()
    assert not session.look()


def test_files_are_looked_at_once_a_second(desk: Desk) -> None:
    session = Session(desk)
    desk.of_user("commands/go.md", "Go.")
    assert not session.extensions.refresh()
    assert session.extensions.refresh(at_once=True)
    assert "go" in session.extensions.slash_commands()


def test_a_file_that_becomes_invalid_keeps_its_last_good_version_and_is_told(desk: Desk) -> None:
    path = desk.of_user("commands/go.md", "Go.")
    session = Session(desk)
    put(path, "---\nx: y\n---\nBroken.")
    assert session.look()
    assert session.extensions.slash_commands()["go"].body == "Go."
    (problem,) = session.extensions.problems
    assert "its last good version is used" in problem
    put(path, "Go again.")
    session.look()
    assert session.extensions.problems == ()
    put(path, "---\nx: y\n---\nBroken.")
    session.look()
    assert len(session.extensions.problems) == 1


def test_a_projects_file_whose_new_content_is_not_trusted_counts_no_more(desk: Desk) -> None:
    """Its last version is gone, too: the file asks for something else now."""
    path = desk.of_project("commands/go.md", "Go.")
    desk.trust()
    clock = SimClock(2_000_000_000.0)
    extensions = Extensions(str(desk.project), trusted=desk.kept_trust(), env=desk.env, clock=clock)
    assert "go" in extensions.slash_commands()
    put(path, "Go elsewhere.")
    extensions.refresh(at_once=True)
    assert "go" not in extensions.slash_commands()


def test_plugins_that_are_enabled_disabled_and_changed_count_at_the_next_look(
    desk: Desk, store: PluginStore, tmp_path: Path
) -> None:
    session = Session(desk)
    home = install(store, tmp_path / "acme", enable=False)
    assert not session.look() or "acme:ship" not in session.extensions.slash_commands()
    store.enable("acme")
    assert session.look()
    assert "acme:ship" in session.extensions.slash_commands()
    put(home / "commands/ship.md", "---\ndescription: d\n---\nSail.")
    assert session.look()
    assert session.extensions.slash_commands()["acme:ship"].body == "Sail."
    store.disable("acme")
    assert session.look()
    assert "acme:ship" not in session.extensions.slash_commands()
    assert (session.extensions.hooks(), session.extensions.servers()) == ({}, [])


def test_a_plugin_that_becomes_invalid_keeps_its_last_good_version(
    desk: Desk, store: PluginStore, tmp_path: Path
) -> None:
    home = install(store, tmp_path / "acme")
    session = Session(desk)
    put(home / "hooks.toml", "broken")
    put(home / "commands/ship.md", "---\nx: y\n---\nBroken.")
    assert session.look()
    assert session.extensions.slash_commands()["acme:ship"].body == "Ship it."
    assert len(session.extensions.hooks()["plugin:acme"]) == 1
    assert any("its last good version is used" in problem for problem in session.extensions.problems)


def test_a_plugin_that_asks_for_more_counts_no_more(desk: Desk, store: PluginStore, tmp_path: Path) -> None:
    install(store, tmp_path / "acme")
    session = Session(desk)
    install(store, tmp_path / "acme", hooks=HOOKS.replace("./stop.sh", "./other.sh"), enable=False)
    assert session.look()
    assert session.extensions.plugins() == ()
    assert "asks for more than you agreed to" in session.extensions.problems[0]


def test_plugins_that_are_gone_or_whose_state_is_broken_count_no_more(
    desk: Desk, store: PluginStore, tmp_path: Path
) -> None:
    home = install(store, tmp_path / "acme")
    session = Session(desk)
    put(store.folder / "enabled.json", "broken")
    session.look()
    assert session.extensions.plugins() == ()
    put(store.folder / "enabled.json", "{}")
    store.enable("acme")
    session.look()
    assert len(session.extensions.plugins()) == 1
    shutil.rmtree(home)
    session.look()
    assert session.extensions.plugins() == ()


def test_hooks_of_plugins_come_and_go_in_a_session(desk: Desk, store: PluginStore, tmp_path: Path) -> None:
    """Those of other sources stay as they are."""
    install(store, tmp_path / "acme")
    session = Session(desk)
    hooks = Hooks([Hook("Stop", lambda data: None)], folder=str(desk.project))
    session.extensions.put_hooks(hooks)
    assert [hook.source for hook in hooks] == ["python", "plugin:acme"]
    store.disable("acme")
    session.look()
    session.extensions.put_hooks(hooks)
    assert [hook.source for hook in hooks] == ["python"]
