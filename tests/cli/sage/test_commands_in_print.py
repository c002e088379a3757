"""`sage -p` without a person: what runs without a rule, by a rule, and in the mode `sandboxed`."""

from __future__ import annotations

import subprocess
from typing import Any

from tests.cli.agent_runner import DONE, call
from tests.cli.sage.conftest import Sage


def ended(sage: Sage, *flags: str, calls: list[dict[str, Any]]) -> list[bool]:
    """Whether each call was made."""
    model = sage.script(*calls, DONE)
    lines = sage.lines("-p", "go", "--model", model, "--stream-json", *flags)
    return [not line["is_error"] for line in lines if line["type"] == "tool_end"]


def test_commands_that_only_read_need_no_rule(sage: Sage) -> None:
    calls = [call("Bash", command="ls | head -2"), call("Bash", command="touch made")]
    assert ended(sage, calls=calls) == [True, False]
    assert not (sage.folder / "made").exists()


def test_the_mode_sandboxed_runs_commands_and_asks_about_the_rest(sage: Sage) -> None:
    """Which is a no where no one can be asked."""
    calls = [call("Bash", command="touch made && echo x"), call("Write", file_path="new", content="x")]
    assert ended(sage, "--permission-mode", "sandboxed", calls=calls) == [True, False]
    assert (sage.folder / "made").exists()
    assert not (sage.folder / "new").exists()


def test_a_commit_is_made_by_a_rule_alone(sage: Sage) -> None:
    """`Git(commit *)` allows it; without a rule, and by one for Bash, it is denied."""
    for words in (["init", "-q"], ["config", "user.name", "Me"], ["config", "user.email", "me@example.com"]):
        subprocess.run(["git", *words], cwd=sage.folder, check=True)
    calls = [call("Git", command="commit --allow-empty -m one")]
    assert ended(sage, calls=calls) == [False]
    assert ended(sage, "--allowed-tools", "Bash(git *)", calls=calls) == [False]
    assert ended(sage, "--allowed-tools", "Git(commit *)", calls=calls) == [True]
    log = subprocess.run(["git", "log", "--format=%s"], cwd=sage.folder, capture_output=True, text=True, check=True)
    assert log.stdout == "one\n"
