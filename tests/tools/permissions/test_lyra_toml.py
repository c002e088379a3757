"""`[permissions]` in lyra.toml: the user's says everything, a project's tightens until it is trusted."""

from __future__ import annotations

import json
import os
from contextvars import copy_context
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from lyra.cli.commands.permissions import permissions as command
from lyra.config import Config
from lyra.errors import ConfigError
from lyra.tools.permissions import Permissions, Rule, load_layers, permissions_of, subject_of
from lyra.tools.permissions.answers import Answers


class Place:
    def __init__(self, folder: Path) -> None:
        self.work, self.home, self.none = folder / "work", folder / "home", str(folder / "none")
        self.work.mkdir()
        (self.home / ".config" / "lyra").mkdir(parents=True)

    def user(self, text: str) -> None:
        (self.home / ".config" / "lyra" / "lyra.toml").write_text(text)

    def project(self, text: str) -> None:
        (self.work / "lyra.toml").write_text(text)

    def permissions(self, *, trusted: bool = False) -> Permissions:
        layers = load_layers(str(self.work), home=str(self.home), managed=self.none, trusted=trusted)
        return permissions_of(layers, workspace=str(self.work), home=str(self.home))

    def decide(self, command: str, *, trusted: bool = False) -> tuple[str, str]:
        outcome = self.permissions(trusted=trusted).decide(subject_of("Bash", {"command": command}))
        return outcome.decision, outcome.source


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_users_section_allows(place):
    """With the line of the list that the rule stands in."""
    place.user('[kernel]\nstore = "memory"\n\n[permissions]\nallow = ["Bash(make *)"]\nask = ["Bash(make deploy)"]\n')
    file = place.home / ".config" / "lyra" / "lyra.toml"
    assert place.decide("make all") == ("allow", f"user: {file}:5")
    assert place.decide("make deploy") == ("ask", f"user: {file}:6")


def test_a_projects_section_tightens_until_it_is_trusted(place):
    """Its denies, asks and protected names hold at once, its allows and a loose mode only then."""
    place.user('[permissions]\nallow = ["Bash(make *)"]\n')
    place.project(
        '[permissions]\nmode = "bypass"\nprotected = ["infra"]\nallow = ["Bash"]\n'
        'ask = ["Bash(make x)"]\ndeny = ["Bash(rm *)"]\n'
    )
    assert place.decide("ls")[0] == "ask"
    assert place.decide("make x") == ("ask", "project: lyra.toml:5")
    assert place.decide("rm x") == ("deny", "project: lyra.toml:6")
    write = subject_of("Write", {"file_path": "infra/a"}, workspace=str(place.work))
    assert place.permissions().decide(write).source == "protected"
    assert place.decide("ls", trusted=True) == ("allow", "mode")


def test_a_project_may_choose_a_tighter_mode(place):
    """Plan is tighter than what the user has."""
    place.project('[permissions]\nmode = "plan"\n')
    assert place.decide("ls") == ("deny", "mode")


def test_rules_prove_themselves_there_too(place):
    """A rule that fails its own example is an error with its file and line."""
    place.project('\n[permissions]\ndeny = [{ rule = "Bash(git push *)", match = ["git pull"] }]\n')
    with pytest.raises(ConfigError, match="its own example") as caught:
        place.permissions()
    assert caught.value.place == "project: lyra.toml:3"


@pytest.mark.parametrize(
    ("text", "location", "message"),
    [
        ('[permissions]\nallowed = ["Bash"]\n', "project: lyra.toml:2", "allowed"),
        ('permissions = "none"\n', "lyra.toml:1", "section"),
        ('[permissions]\ndeny = ["Bash)"]\n', "project: lyra.toml:2", "not a rule"),
    ],
)
def test_a_mistake_has_its_place(place, text, location, message):
    """Never passed over."""
    place.project(text)
    with pytest.raises(ConfigError, match=message) as caught:
        place.permissions()
    assert caught.value.place == location


def test_the_rest_of_lyra_reads_the_same_file(place):
    """The settings know the section, and one that is nearly called so is told."""
    place.project('[permissions]\nallow = ["Bash"]\n\n[kernel]\nstore = "memory"\n')
    config = Config.load(str(place.work), {"HOME": str(place.home)}, trust=True)
    assert config.kernel.store.reveal() == "memory"
    place.project("[permission]\n")
    with pytest.raises(ConfigError, match="permission") as caught:
        Config.load(str(place.work), {"HOME": str(place.home)})
    assert "permissions" in str(caught.value.hint)
    place.project("permissions = 1\n")
    with pytest.raises(ConfigError, match="section"):
        Config.load(str(place.work), {"HOME": str(place.home)})


def test_explain_sees_them(place, monkeypatch):
    """`lyra permissions explain` names the rule; answers that were kept are among them."""
    monkeypatch.setenv("HOME", str(place.home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(place.work)
    place.user('[permissions]\nallow = ["Bash(make *)"]\n')
    result = copy_context().run(CliRunner().invoke, command, ["explain", "--json", "Bash", "make all"])
    assert json.loads(result.output)["rule"] == "Bash(make *)"
    Answers(str(place.work)).add(Rule("Bash(make all)", "deny"))
    result = copy_context().run(CliRunner().invoke, command, ["explain", "--json", "Bash", "make all"])
    assert json.loads(result.output)["decision"] == "deny"


def test_the_users_own_settings_are_not_written(tmp_path):
    """Also where the workspace is the home folder: an agent does not answer for its person."""
    permissions = Permissions(workspace=str(tmp_path), home=str(tmp_path), mode="bypass")
    for name in ("answers/x.toml", "lyra.toml", "permissions.toml"):
        path = os.path.join(str(tmp_path), ".config", "lyra", name)
        outcome = permissions.decide(subject_of("Write", {"file_path": path}, workspace=str(tmp_path)))
        assert outcome.decision == "deny"


@pytest.mark.parametrize("kind", ["link to nowhere", "link to itself", "folder", "pipe"])
@pytest.mark.parametrize("layer", ["managed", "user", "project"])
def test_a_file_of_permissions_that_is_none_is_an_error(tmp_path, kind, layer):
    """Its denies are meant to hold: ignoring the file would allow what it denies."""
    home, project = tmp_path / "home", tmp_path / "project"
    places = {
        "managed": tmp_path / "managed.toml",
        "user": home / ".config" / "lyra" / "permissions.toml",
        "project": project / ".lyra" / "permissions.toml",
    }
    for path in places.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    load = partial(load_layers, str(project), home=str(home), managed=str(places["managed"]))
    assert load() == []
    path = places[layer]
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if kind == "link to itself" else tmp_path / "nowhere")
    with pytest.raises(ConfigError) as caught:
        load()
    assert str(path) in str(caught.value.place)
