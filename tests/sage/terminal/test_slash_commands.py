"""What slash commands ask of the terminal: send a prompt, open another session, show more; and flags in a terminal."""

from __future__ import annotations

import re

import pytest

from tests.sage.terminal.conftest import SageTerminal, call

pytestmark = pytest.mark.slow


def test_a_session_is_opened_in_place_of_another(sage: SageTerminal) -> None:
    """/fork goes on in a copy, and /resume in the first again: its last exchange is shown."""
    replies = [{"text": f"Answer {number}."} for number in ("one", "two", "three", "four")]
    screen = sage.script(*replies).start()
    screen.wait_for_prompt().line("first").wait_for("Answer one").wait_for_prompt()
    screen.line("second").wait_for("Answer two").wait_for_prompt()
    screen.line("/fork 2").wait_for("a copy of the conversation before turn 2").wait_for_prompt()
    screen.line("third").wait_for("Answer three").wait_for_prompt()
    assert "Answer two" not in str(sage.model.requests[-1])
    screen.line("/resume second").wait_for("^  session  1\n  ▸ first ")
    screen.send("\r").wait_for(r"^› /resume \d{8}-\w{6}$").wait_for("Answer two[^$]*Answer two").wait_for_prompt()
    screen.line("fourth").wait_for("Answer four")
    assert "Answer two" in str(sage.model.requests[-1])
    assert "Answer three" not in str(sage.model.requests[-1])


def test_a_command_from_a_file_sends_its_prompt(sage: SageTerminal) -> None:
    """With the tools that the file allows, and no others."""
    own = sage.home / ".config" / "lyra" / "commands"
    own.mkdir(parents=True)
    (own / "look.md").write_text("---\nallowed_tools: Glob\n---\nLook at $ARG1.\n")
    replies = (call("Bash", command="touch made"), {"text": "Looked."})
    screen = sage.script(*replies).start("--allowed-tools", "Bash")
    screen.wait_for_prompt().line("/look src").wait_for("Looked\\.")
    assert "Look at src." in str(sage.model.requests[0])
    assert not (sage.folder / "made").exists()


def test_verbose_shows_the_output_of_calls(sage: SageTerminal) -> None:
    screen = sage.script(call("Bash", command="echo visible-output"), {"text": "Done."})
    terminal = screen.start("-v", "--allowed-tools", "Bash")
    terminal.wait_for_prompt().line("go").wait_for("Done\\.")
    assert re.search("^ +visible-output", terminal.text, re.MULTILINE)


@pytest.mark.parametrize("flags", [("--output-format", "json"), ("--output-mode", "batch")])
def test_a_flag_about_printing_prints_in_a_terminal(sage: SageTerminal, flags: tuple[str, ...]) -> None:
    terminal = sage.script({"text": "Printed answer."}).start(*flags, "go")
    terminal.wait_for("Printed answer\\.")
    assert "context" not in terminal.text, "there is no status line"
