"""Rules and git in a real terminal: what "always" may mean, a commit that is asked about and undone."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.sage.terminal.conftest import SageTerminal, call

pytestmark = pytest.mark.slow


def test_always_is_chosen_by_a_number_and_enter_decides_nothing(sage: SageTerminal) -> None:
    """`a` offers the exact command, its beginning and its program; esc goes back, Enter does nothing."""
    script = [
        call("Bash", command="npm run build"),
        call("Bash", command="npm run build -- --fast"),
        {"text": "Built."},
    ]
    screen = sage.script(*script).start()
    screen.wait_for_prompt().line("go").wait_for("a  always, exactly this command, npm run build \\* or npm \\*")
    screen.send("\r").read(0.3)
    screen.send("a").wait_for("Always allow what\\?").wait_for("1  always, exactly this command")
    screen.wait_for("2  always: npm run build \\*").wait_for("3  always: npm \\*")
    screen.send("\r").read(0.3)
    screen.send("\x1b").wait_for("n  no, tell it why")
    screen.send("a").read(0.5)
    screen.send("2").wait_for("allowed from now on: Bash\\(npm run build \\*\\)").wait_for("Built\\.")
    assert screen.text.count("allowed from now on") == 1


def test_a_commit_is_asked_about_and_undone(sage: SageTerminal) -> None:
    """The question says what does not run; /undo takes the commit back and names it."""
    (sage.home / ".gitconfig").write_text("[user]\n\tname = Me\n\temail = me@example.com\n")

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=sage.folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    git("-c", "user.name=Me", "-c", "user.email=m@e", "commit", "-q", "--allow-empty", "-m", "first")
    script = [call("Git", command="commit --allow-empty -m 'Second one'"), {"text": "Committed."}]
    screen = sage.script(*script).start()
    screen.wait_for_prompt().line("commit").wait_for("Allow this git command\\?")
    screen.wait_for("outside the sandbox, without hooks, and no program of its settings runs")
    screen.send("y").wait_for("Committed\\.")
    assert git("log", "-1", "--format=%s") == "Second one"
    commit = git("rev-parse", "HEAD")[:10]
    screen.wait_for_prompt().line("/undo").wait_for(f"its commit was {commit}")
    assert git("log", "-1", "--format=%s") == "first"


def test_a_command_of_the_project_that_waits_for_trust_says_so(sage: SageTerminal) -> None:
    """It is not "no such command": the file and the way to trust it are named."""
    sage.write(".lyra/commands/deploy.md", "Deploy it.\n")
    screen = sage.script({"text": "never"}).start()
    screen.wait_for("Trust these files\\?").send("\r")
    screen.wait_for_prompt().line("/deploy").wait_for("waits for trust: .lyra/commands/deploy.md is new")


def test_a_no_about_one_new_file_refuses_that_file_alone(sage: SageTerminal) -> None:
    """The next one is asked about, and what each key does stands in the question."""
    script = [call("Write", file_path=name, content="x\n") for name in ("a.txt", "b.txt")]
    screen = sage.script(*script, {"text": "One of them."}).start()
    screen.wait_for_prompt().line("go").wait_for("a\\.txt").wait_for("n  no, tell it why").read(0.5)
    screen.send("n").wait_for("type why").send("\r").wait_for("b\\.txt").wait_for("n  no, tell it why").read(0.5)
    screen.send("y").wait_for("One of them\\.")
    assert [path.name for path in sage.folder.glob("*.txt")] == ["b.txt"]


def test_the_developers_tools_and_a_folder_that_is_added(sage: SageTerminal) -> None:
    """A tool of `~/.local/bin` runs by its name; a read outside is asked about, and after /add-dir it is not."""
    tool, more = sage.home / ".local/bin/mytool", sage.folder.parent / "more"
    for folder in (tool.parent, more):
        folder.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho my own tool\n")
    tool.chmod(0o755)
    (more / "a.txt").write_text("heron\n")
    read = call("Read", file_path=str(more / "a.txt"))
    script = [call("Bash", command="mytool > made"), read, {"text": "First."}, read, {"text": "Second."}]
    path = f"{tool.parent}:{os.environ['PATH']}"
    screen = sage.script(*script).start("--allowed-tools", "Bash", PATH=path)
    screen.wait_for_prompt().line("go").wait_for("Allow").read(0.5)
    screen.send("y").wait_for("First\\.").wait_for_prompt()
    assert sage.read("made") == "my own tool\n"
    screen.line(f"/add-dir {more}").wait_for("more").wait_for_prompt()
    screen.line("again").wait_for("Second\\.")
