"""Answers for good: kept in the user's own folder, by workspace, and read back as rules."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from lyra.errors import ConfigError
from lyra.tools.permissions import Permissions, Rule, subject_of
from lyra.tools.permissions.answers import Answers


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "work").mkdir()
    return str(tmp_path / "work"), str(tmp_path / "home")


def permissions(workspace: str, home: str, **more: Any) -> Permissions:
    kept = Answers(workspace, home=home)
    return Permissions(workspace=workspace, home=home, answers=kept.rules(), keep=kept.add, **more)


def test_an_answer_is_there_the_next_time(place):
    """For another Permissions, and only for exactly that."""
    workspace, home = place
    first = permissions(workspace, home)
    for command, word in (("ls -j *", "always"), ("git push\n", "never")):
        rule = first.answer(subject_of("Bash", {"command": command}), word)
        assert rule is not None
        first.keep(rule)
    again = permissions(workspace, home, attended=False)
    decisions = [
        again.decide(subject_of("Bash", {"command": command})) for command in ("ls -j *", "ls -j 4", "git push")
    ]
    assert [decision.decision for decision in decisions] == ["allow", "deny", "deny"]
    assert decisions[1].rule is None
    assert decisions[2].source.startswith(f"answers: {Answers(workspace, home=home).file}:")


def test_answers_lie_in_the_users_folder_alone(place):
    """Nothing in the project; readable only by its owner; another workspace has others."""
    workspace, home = place
    kept = Answers(workspace, home=home)
    kept.add(Rule("Bash(make)", "allow"))
    assert os.listdir(workspace) == []
    assert kept.file.startswith(os.path.join(home, ".config", "lyra", "answers"))
    assert os.stat(kept.file).st_mode & 0o077 == 0
    assert os.stat(os.path.dirname(kept.file)).st_mode & 0o077 == 0
    assert Answers(home, home=home).rules() == []


def test_the_last_answer_holds(place):
    """A never after an always takes its place, and stands once."""
    workspace, home = place
    kept = Answers(workspace, home=home)
    for effect in ("allow", "deny", "deny"):
        kept.add(Rule("Bash(make)", effect))
    assert [(rule.effect, rule.text) for rule in kept.rules()] == [("deny", "Bash(make)")]


def test_any_text_comes_back_as_it_was(place):
    """Quotes, backslashes, line ends and invisible characters."""
    workspace, home = place
    kept = Answers(workspace, home=home)
    texts = ['Bash(echo "\\\\*" \\?)', "Bash(a\n b)", "Bash(\u202e\U0001f600\x7f\x01)", "Bash(é 'x')"]
    for text in texts:
        kept.add(Rule(text, "allow"))
    assert [rule.text for rule in kept.rules()] == texts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("allow = [", "not TOML"),
        ('workspace = "/elsewhere"\n', "not the answers for"),
        ("allow = []\n", "not the answers for"),
        ('workspace = "{work}"\nallow = "Bash"\n', "a list of rules"),
        ('workspace = "{work}"\ndeny = ["Bash)"]\n', "not a rule"),
    ],
)
def test_a_broken_file_is_an_error_with_its_place(place, text, message):
    """Never a guess."""
    workspace, home = place
    kept = Answers(workspace, home=home)
    Path(kept.file).parent.mkdir(parents=True)
    Path(kept.file).write_text(text.replace("{work}", workspace))
    with pytest.raises(ConfigError, match=message) as caught:
        kept.rules()
    assert kept.file in str(caught.value.place)


def test_two_processes_lose_no_answer(place):
    """Each adds fifty at the same time."""
    workspace, home = place
    script = textwrap.dedent(
        """
        import sys
        from lyra.tools.permissions import Rule
        from lyra.tools.permissions.answers import Answers
        kept = Answers(sys.argv[1], home=sys.argv[2])
        for number in range(50):
            kept.add(Rule(f"Bash({sys.argv[3]}{number})", "allow"))
        """
    )
    running = [subprocess.Popen([sys.executable, "-c", script, workspace, home, name]) for name in ("a", "b")]
    assert [process.wait(timeout=60) for process in running] == [0, 0]
    assert len(Answers(workspace, home=home).rules()) == 100


def test_a_rule_that_is_added_as_an_answer_decides_as_one(tmp_path: Path) -> None:
    """Another answer to the same call takes its place."""
    permissions = Permissions(workspace=str(tmp_path))
    subject = subject_of("Bash", {"command": "make all"})
    assert permissions.decide(subject).decision == "ask"
    permissions.add(Rule("Bash(make all)", "allow"), as_answer=True)
    assert permissions.decide(subject).decision == "allow"
    permissions.add(Rule("Bash(make all)", "deny"), as_answer=True)
    assert permissions.decide(subject).decision == "deny"
