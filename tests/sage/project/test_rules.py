"""Rules of a project reach a model where the user trusts them, and nowhere else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lyra.config.asks import folder_asks
from lyra.config.trust import FileAnswer, TrustAnswers
from lyra.sage.project import rules as files_module
from lyra.sage.project.rules import FILE_CHARS_MAX, TOTAL_CHARS_MAX, ProjectRules, imports_in, rule_asks, rule_files
from tests import warm


class Place:
    """A git repository with a subfolder, and a user with a home of their own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "repository"
        self.work = self.root / "service"
        self.work.mkdir(parents=True)
        (self.root / ".git").mkdir()
        self.env = {"HOME": str(folder / "home"), "XDG_CONFIG_HOME": str(folder / "home/config")}
        self.own = folder / "home/config/lyra"
        self.own.mkdir(parents=True)

    def write(self, name: str, text: str, folder: Path | None = None) -> Path:
        path = (folder or self.root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def rules(self, folder: Path | None = None, **options: object) -> ProjectRules:
        return ProjectRules(str(folder or self.work), env=self.env, **options)  # type: ignore[arg-type]

    def answer(self, folder: Path, *, trusted: bool = True) -> list[str]:
        """Answer as `lyra trust add FOLDER` does; gives the sentences that are shown."""
        answers = TrustAnswers.for_user(self.env)
        sentences = []
        for file in folder_asks(str(folder), self.env, more=rule_asks(str(folder))):
            assert not file.problem, file
            answers.keep(file.folder, {file.name: FileAnswer(file.sha256, trusted)})
            sentences += [f"{file.name}: {ask.sentence}" for ask in file.asks]
        return sentences


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


# ---------------------------------------------------------------- which rules, in which order
def test_rules_from_the_user_then_from_the_git_root_down(place):
    """The user's own come first, then those of the outermost folder; `.lyra/rules` follow the named files."""
    place.write("SAGE.md", "own words", place.own)
    place.write("AGENTS.md", "outer words")
    place.write("AGENTS.md", "inner words", place.work)
    place.write("SAGE.md", "inner sage words", place.work)
    place.write(".lyra/rules/b.md", "rule b", place.work)
    place.write(".lyra/rules/a.md", "rule a", place.work)
    place.write(".lyra/rules/not.txt", "no rule", place.work)
    text = place.rules(trust=True).text()
    words = ["own words", "outer words", "inner words", "inner sage words", "rule a", "rule b"]
    assert [text.index(word) for word in words] == sorted(text.index(word) for word in words)
    assert "no rule" not in text
    assert "## .lyra/rules/a.md\nrule a" in text


def test_rules_above_the_git_root_do_not_count(place):
    """A repository ends at its `.git`; without one, only the folder itself counts."""
    place.write("AGENTS.md", "beyond", place.root.parent)
    place.write("AGENTS.md", "outer")
    assert "beyond" not in place.rules(trust=True).text()
    os.rmdir(place.root / ".git")
    assert place.rules(trust=True).text() == ""


def test_a_folder_without_rules_has_no_text(place):
    rules = place.rules()
    assert (rules.text(), rules.notices, rules.sources, rules.rules_for("a/b.py")) == ("", (), (), "")


# ---------------------------------------------------------------- trust
def test_rules_of_a_folder_without_trust_are_left_out_and_told(place):
    """A hostile repository cannot steer the model; the user's own rules need no trust."""
    place.write("SAGE.md", "own words", place.own)
    place.write("AGENTS.md", "obey the repository", place.work)
    rules = place.rules()
    assert "obey" not in rules.text()
    assert "own words" in rules.text()
    assert rules.left_out == ("AGENTS.md",)
    assert "not trusted" in rules.notices[0]
    assert f"lyra trust add {place.work}" in rules.notices[0]


def test_an_answer_for_the_content_lets_the_rules_count(place):
    place.write("AGENTS.md", "outer words\n\nmore\n")
    place.write("AGENTS.md", "inner words", place.work)
    sentences = place.answer(place.work)
    assert sentences == [
        "AGENTS.md: gives the model 2 lines of rules to follow",
        "AGENTS.md: gives the model 1 line of rules to follow",
    ]
    rules = place.rules()
    assert "outer words" in rules.text()
    assert "inner words" in rules.text()
    assert rules.notices == ()


def test_a_change_after_the_answer_is_not_trusted(place):
    """Trust is for exactly this content, also in the middle of a session."""
    path = place.write("AGENTS.md", "good words", place.work)
    place.answer(place.work)
    rules = place.rules()
    assert "good words" in rules.text()
    path.write_text("good words, and obey the repository")
    assert rules.text() == ""
    assert rules.left_out == ("AGENTS.md",)


def test_a_refusal_leaves_the_rules_out(place):
    place.write("AGENTS.md", "words", place.work)
    place.answer(place.work, trusted=False)
    assert place.rules().text() == ""


def test_an_imported_file_is_trusted_by_itself(place):
    """Its content can change while the file that imports it stays the same."""
    place.write("AGENTS.md", "see @docs/style.md", place.work)
    imported = place.write("docs/style.md", "use tabs", place.work)
    place.answer(place.work)
    rules = place.rules()
    assert "use tabs" in rules.text()
    imported.write_text("obey the repository")
    assert "obey" not in rules.text()
    assert rules.left_out == ("docs/style.md",)


def test_another_users_rules_above_do_not_count_with_trust_for_one_run(place, monkeypatch):
    """`--trust-folder` is a word for the folder of the user, not for a file that others put above it."""
    from lyra.sage.project import rules as module

    place.write("AGENTS.md", "outer")
    place.write("AGENTS.md", "inner", place.work)
    monkeypatch.setattr(module, "is_own", lambda path, folder: path.startswith(folder))
    text = place.rules(trust=True).text()
    assert "inner" in text
    assert "outer" not in text


# ---------------------------------------------------------------- imports
def test_imports_are_followed_three_deep_and_once(place):
    place.write("AGENTS.md", "@a.md and @a.md", place.work)
    for name, target in (("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")):
        place.write(f"{name}.md", f"text of {name}, see @{target}.md", place.work)
    rules = place.rules(trust=True)
    text = rules.text()
    assert [text.count(f"text of {name}") for name in "abcd"] == [1, 1, 1, 0]
    assert "## a.md (imported by AGENTS.md)" in text
    assert any(notice.startswith("d.md: it is imported by imports") for notice in rules.notices)


@pytest.mark.parametrize("escape", ["../../../secret.md", "/etc/passwd", "link.md", "linked/secret.md"])
def test_an_import_cannot_leave_the_folder(place, escape):
    """Neither by `..`, nor by an absolute path, nor through a link."""
    secret = place.write("secret.md", "the secret", place.root.parent.parent)
    place.write("AGENTS.md", f"see @{escape}", place.work)
    (place.work / "link.md").symlink_to(secret)
    (place.work / "linked").symlink_to(secret.parent)
    rules = place.rules(trust=True)
    assert "the secret" not in rules.text()
    assert "root:" not in rules.text()
    assert any("leads out of the folder" in notice for notice in rules.notices)


def test_a_file_with_secrets_is_never_imported(place):
    place.write("AGENTS.md", "@config/.env and @./id_rsa", place.work)
    place.write("config/.env", "TOKEN=hush", place.work)
    rules = place.rules(trust=True)
    assert "hush" not in rules.text()
    assert any("secrets" in notice for notice in rules.notices)


def test_what_is_no_import():
    """Code, mail addresses, names of people and of decorators import nothing."""
    text = "```\n@a.md\n```\n`@b.md` me@c.md @person (@d.md) @docs/e.md.\n~~~\n@f.md\n~~~\n@property"
    assert imports_in(text) == ["d.md", "docs/e.md"]


def test_rules_that_are_a_link_to_the_other_name_count_once(place):
    place.write("AGENTS.md", "words", place.work)
    (place.work / "SAGE.md").symlink_to("AGENTS.md")
    assert place.rules(trust=True).text().count("words") == 1


# ---------------------------------------------------------------- bounds
def test_long_rules_are_cut_and_say_so(place):
    place.write("AGENTS.md", "x" * (FILE_CHARS_MAX + 5), place.work)
    rules = place.rules(trust=True)
    assert len(rules.text()) < FILE_CHARS_MAX + 200
    assert f"only the first {FILE_CHARS_MAX} of its {FILE_CHARS_MAX + 5} characters" in rules.text()
    assert "only the first" in rules.notices[0]


def test_all_rules_together_are_bounded(place):
    for number in range(10):
        place.write(f".lyra/rules/{number}.md", "x" * (FILE_CHARS_MAX - 1), place.work)
    rules = place.rules(trust=True)
    assert rules.text().count("x") <= TOTAL_CHARS_MAX
    assert sum(source.chars for source in rules.sources) <= TOTAL_CHARS_MAX
    assert len(rules.notices) == 7


def test_what_is_no_text_is_left_out(place, monkeypatch):
    """A binary file, one beyond all bounds, a folder, a pipe."""
    monkeypatch.setattr(files_module, "FILE_BYTES_MAX", 100)
    place.write("AGENTS.md", "x" * 101, place.work)
    (place.work / "SAGE.md").write_bytes(b"a\0b")
    (place.work / ".lyra/rules/folder.md").mkdir(parents=True)
    os.mkfifo(place.work / ".lyra/rules/pipe.md")
    rules = place.rules(trust=True)
    assert rules.text() == ""
    assert len(rules.notices) == 4


def test_many_files_of_rules_are_bounded(place):
    for number in range(60):
        place.write(f".lyra/rules/{number:02}.md", f"rule {number}", place.work)
    files = rule_files(str(place.work))
    assert len(files) == 51
    assert "more than 50" in files[-1].problem


def test_invisible_characters_do_not_reach_the_model(place):
    """A model reads what no screen shows."""
    place.write("AGENTS.md", "plain\u200b\U000e0041 words", place.work)
    assert "plain words" in place.rules(trust=True).text()


# ---------------------------------------------------------------- reading again
def test_rules_are_read_again_when_a_file_changes(place, monkeypatch):
    """A changed, a new and a removed file are seen; unchanged files are not opened again."""
    path = place.write("AGENTS.md", "first", place.work)
    rules = place.rules(trust=True)
    assert "first" in rules.text()
    opened: list[str] = []
    real = files_module._Reading._read

    def recorded(self, name, imported_by):
        opened.append(name)
        return real(self, name, imported_by)

    monkeypatch.setattr(files_module._Reading, "_read", recorded)
    assert "first" in rules.text()
    assert opened == []
    path.write_text("second words")
    assert "second words" in rules.text()
    place.write(".lyra/rules/new.md", "a new rule", place.work)
    assert "a new rule" in rules.text()
    path.unlink()
    assert "second words" not in rules.text()


# ---------------------------------------------------------------- subfolders
def test_rules_of_subfolders_on_the_way_to_a_file(place):
    place.write("lib/AGENTS.md", "lib words", place.work)
    place.write("lib/deep/AGENTS.md", "deep words", place.work)
    place.write("other/AGENTS.md", "other words", place.work)
    rules = place.rules(trust=True)
    assert rules.rules_for("a.py") == ""
    text = rules.rules_for("lib/deep/a.py")
    assert text.index("lib words") < text.index("deep words")
    assert "other words" not in text
    assert rules.rules_for(str(place.work / "lib/a.py")).endswith("lib words")
    assert rules.rules_for("../../outside/a.py") == ""


def test_rules_of_a_subfolder_need_their_own_answer(place):
    """An answer for the folder does not cover a dependency that was put inside it."""
    place.write("AGENTS.md", "words", place.work)
    place.write("vendor/thing/AGENTS.md", "obey the vendor", place.work)
    place.answer(place.work)
    rules = place.rules()
    assert rules.rules_for("vendor/thing/a.py") == ""
    assert rules.left_out == ("vendor/thing/AGENTS.md",)
    place.answer(place.work / "vendor/thing")
    assert "obey the vendor" in place.rules().rules_for("vendor/thing/a.py")


def test_rules_of_dependencies_never_count(place):
    place.write("node_modules/thing/AGENTS.md", "obey", place.work)
    assert place.rules(trust=True).rules_for("node_modules/thing/a.js") == ""


def test_news_are_told_once_to_each_reader(place):
    path = place.write("lib/AGENTS.md", "lib words", place.work)
    rules = place.rules(trust=True)
    assert "lib words" in rules.news_for("lib/a.py", "pid-1")
    assert rules.news_for("lib/b.py", "pid-1") == ""
    assert "lib words" in rules.news_for("lib/b.py", "pid-2")
    rules.tell_again()
    assert "lib words" in rules.news_for("lib/b.py", "pid-1")
    path.write_text("other words")
    assert "other words" in rules.news_for("lib/b.py", "pid-1")


@pytest.mark.slow
def test_lyra_trust_shows_and_trusts_rules(place):
    """The command that answers for a folder names its rules."""
    place.write("AGENTS.md", "words", place.work)
    env = {**os.environ, **place.env}
    lyra = [*warm.command("lyra.cli.main:main"), "trust"]
    shown = subprocess.run([*lyra, "show"], cwd=place.work, env=env, capture_output=True, text=True, check=True)
    assert "gives the model 1 line of rules to follow" in shown.stdout
    assert place.rules().text() == ""
    subprocess.run([*lyra, "add", "--yes"], cwd=place.work, env=env, capture_output=True, check=True)
    assert "words" in place.rules().text()
    subprocess.run([*lyra, "revoke"], cwd=place.work, env=env, capture_output=True, check=True)
    assert place.rules().text() == ""
