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
from lyra.tools.permissions.settings import describe_passed_over


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
        place.permissions(trusted=True)
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
        place.permissions(trusted=True)
    assert caught.value.place == location


def test_the_rest_of_lyra_reads_the_same_file(place):
    """The settings know the section, and one that is nearly called so is told."""
    place.project('[permissions]\nallow = ["Bash"]\n\n[kernel]\nstore = "memory"\n')
    config = Config.load(str(place.work), {"HOME": str(place.home)}, trust=True)
    assert config.kernel.store.reveal() == "memory"
    place.project("[permission]\n")
    with pytest.raises(ConfigError, match="permission") as caught:
        Config.load(str(place.work), {"HOME": str(place.home)}, trust=True)
    assert "permissions" in str(caught.value.hint)
    place.project("permissions = 1\n")
    with pytest.raises(ConfigError, match="section"):
        Config.load(str(place.work), {"HOME": str(place.home)}, trust=True)


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
    """Its denies are meant to hold: ignoring the file would allow what it denies. One of a folder without trust stops
    nothing, and then every call is asked about."""
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
        load(trusted=True)
    assert str(path) in str(caught.value.place)
    if layer == "project":
        outcome = permissions_of(load(), mode="bypass").decide(subject_of("Bash", {"command": "ls"}))
        assert (outcome.decision, outcome.source) == ("ask", f"project: {path}")


@pytest.mark.parametrize(
    "mistake",
    ["deny = 5", 'deny = ["Bash("]', "dney = []", 'mode = "loose"', "protected = 5", "allow = {}", 'ask = [""]'],
)
def test_after_a_mistake_without_trust_every_call_is_asked_about(place, mistake):
    """The key with the mistake does not count, the others do, and a sentence names it."""
    place.user('[permissions]\nallow = ["Bash"]\n')
    place.project("")
    assert place.decide("ls")[0] == "allow"
    protected = "" if "protected" in mistake else 'protected = ["infra"]\n'
    place.project(f"[permissions]\n{protected}{mistake}\n")
    layers = load_layers(str(place.work), home=str(place.home), managed=place.none, trusted=False)
    (sentence,) = describe_passed_over(layers)
    assert sentence.startswith(f"lyra.toml: {mistake.partition(' ')[0]}: ")
    assert sentence.endswith(": until it is mended, every call is asked about")
    assert layers[-1].settings == {**({"protected": ["infra"]} if protected else {}), "ask": ["*"]}
    assert place.decide("ls")[0] == "ask"


@pytest.mark.parametrize("name", ["lyra.toml", ".lyra/permissions.toml", ".lyra/permissions.local.toml"])
@pytest.mark.parametrize("content", ["[x", "\x00", None])
def test_a_file_without_trust_that_cannot_be_read_stops_nothing(place, name, content):
    path = place.work / name
    path.parent.mkdir(exist_ok=True)
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    place.user('[permissions]\nallow = ["Bash"]\n')
    assert place.decide("ls")[0] == "ask"
    with pytest.raises(ConfigError):
        place.permissions(trusted=True)
