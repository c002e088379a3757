"""Hooks in a real terminal: the status line, their messages, and what they deny."""

from __future__ import annotations

import pytest

from tests.sage.terminal.conftest import SageTerminal, call

pytestmark = pytest.mark.slow

HOOKS = r"""
[[hooks.StatusLine]]
command = '''printf '\033[2Jdeploy freeze\nsecond line''''

[[hooks.PreToolUse]]
matcher = "Bash"
command = '''echo '{"decision": "deny", "reason": "frozen", "message": "nothing runs today"}' '''

[[hooks.Stop]]
command = "exit 9"
"""


def test_hooks_are_seen_in_the_terminal(sage: SageTerminal) -> None:
    """The first line of the status program is in the status line without its escape sequence; a hook's message and a
    failed hook are lines of the conversation; the denied command does not run."""
    folder = sage.home / ".config" / "lyra"
    folder.mkdir(parents=True)
    (folder / "lyra.toml").write_text(HOOKS)
    screen = sage.script(call("Bash", command="touch made.txt"), {"text": "I could not."}).start()
    screen.wait_for_prompt().wait_for("deploy freeze")
    assert "second line" not in screen.text
    screen.line("go").wait_for("I could not")
    screen.wait_for("nothing runs today")
    screen.wait_for("the hook exit 9 for Stop failed: its exit code is 9")
    assert "frozen" in screen.text
    assert not (sage.folder / "made.txt").exists()
