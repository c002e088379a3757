"""Sage on terminals of every kind: narrow, without colour, dumb, without UTF-8, resized; and its prompt."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest

from tests.sage.terminal.conftest import SageTerminal, call

pytestmark = pytest.mark.slow

SOURCE = "def export(path):\n    pass\n"
EDIT = call("Edit", file_path="export.py", old_string="path", new_string="path, as_json")
READ = call("Read", "Reading `it` first.", file_path="export.py")
CODE = {"text": "Here:\n\n```python\ndef f():\n    return 1\n```\n\n- one\n- two"}
COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|9[0-7]|4[0-7]|38|48)[;m]")
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b]52;c;ZXZpbA==\x07\u202eevil"


def test_forty_columns_are_enough(sage: SageTerminal) -> None:
    """Nothing is wider than the terminal, and figures stand below their line."""
    sage.write("export.py", SOURCE)
    screen = sage.script(READ, EDIT, CODE).start(columns=40)
    screen.wait_for_prompt().line("go").wait_for("Allow this edit")
    assert re.search(r"^  Read    export.py\n          2 lines$", screen.text, re.MULTILINE)
    for words in ("y  once", "n  no, tell it why", "?  why am I asked"):
        assert words in screen.text
    screen.send("y").wait_for("one")
    screen.wait_for_prompt()
    assert re.search(r"^ sage  work", screen.display, re.MULTILINE)
    assert re.search(r"^ +return 1$", screen.text, re.MULTILINE)


def test_no_color_means_no_colour_and_the_same_words(sage: SageTerminal) -> None:
    """With NO_COLOR no sequence sets a colour; the diff keeps its signs."""
    sage.write("export.py", SOURCE)
    screen = sage.script(READ, EDIT, CODE).start(NO_COLOR="1")
    screen.wait_for_prompt().line("go").wait_for("Allow this edit").wait_for(r"1 \+ def export\(path, as_json\)")
    screen.send("y").wait_for("return 1").wait_for_prompt()
    assert not COLOUR.search(screen.raw)


def test_with_colour_added_lines_and_code_have_some(sage: SageTerminal) -> None:
    """The counterpart: the same session on a terminal with colours."""
    sage.write("export.py", SOURCE)
    screen = sage.script(READ, EDIT, CODE).start()
    screen.wait_for_prompt().line("go").wait_for("Allow this edit")
    assert b"\x1b[32m+ " in screen.raw
    assert b"\x1b[32;1;4m, as_json" in screen.raw
    screen.send("y").wait_for("return 1").wait_for_prompt()
    assert re.search(rb"\x1b\[9?[0-9;]+m(def|return)", screen.raw)


def test_a_dumb_terminal_gets_plain_lines(sage: SageTerminal) -> None:
    """No escape sequence at all: questions, answers, the queue and the end work with lines."""
    sage.write("export.py", SOURCE)
    screen = sage.script(READ, EDIT, {"text": "It is **done**."}).start(TERM="dumb")
    screen.wait_for("^›").send("go\n").wait_for("Allow this edit")
    screen.send("\n").read(0.3)
    assert sage.read("export.py") == SOURCE
    screen.send("y\n").wait_for("It is done\\.")
    assert "as_json" in sage.read("export.py")
    screen.wait_for("done.\n›").send("\x04")
    assert screen.wait_for_end() == 0
    assert b"\x1b" not in screen.raw


def test_a_dumb_terminal_interrupts_with_ctrl_c(sage: SageTerminal) -> None:
    """The first Ctrl-C stops the answer, two at the prompt leave."""
    words = "\n\n".join(f"word{number}" for number in range(300))
    screen = sage.script({"text": words, "chunk_s": 0.02}).start(TERM="dumb")
    screen.wait_for("^›").send("go\n").wait_for("word5")
    screen.send("\x03").wait_for("interrupted")
    screen.send("\x03").wait_for("ctrl-c again").send("\x03")
    assert screen.wait_for_end() == 0


def test_the_first_screen_of_a_dumb_terminal_names_keys_that_work_there(sage: SageTerminal) -> None:
    """A terminal of whole lines has no esc and no shift-tab."""
    (sage.home / ".local/share/lyra/sage-history").unlink()
    screen = sage.script({"text": "x"}).start(TERM="dumb")
    screen.wait_for("ctrl-c interrupts").wait_for("^›")
    text = screen.raw.decode()
    assert "/permissions mode changes that" in text
    assert not any(key in text for key in ("esc interrupts", "shift-tab"))


def test_a_locale_without_utf8_gets_ascii(sage: SageTerminal) -> None:
    """Every byte that is written is ASCII, marks and the model's text alike."""
    sage.write("export.py", SOURCE)
    screen = sage.script(READ, EDIT, {"text": "Schön — “done” • ☃"}).start(LC_ALL="C", LANG="C")
    screen.wait_for_prompt().line("go").wait_for("Allow this edit").wait_for(r"1 - def export\(path\):")
    screen.send("y").wait_for('Schon - "done" \\* \\?')
    assert screen.raw.isascii()


def test_hostile_text_cannot_act_on_the_terminal(sage: SageTerminal) -> None:
    """Escape sequences in the model's text, in tool output, in file names and in file contents are neutralised."""
    name = "a\x1b[2Jb.txt"
    sage.write(name, f"content {HOSTILE}\n")
    replies = (
        {"text": f"before {HOSTILE} after &#x202e;x"},
        call("Bash", f"run {HOSTILE}", command="cat *.txt; printf '\\033]0;x\\007end\\n'; exit 3"),
        call("Read", file_path=name),
        call("Write", file_path=f"{name}2", content=f"x {HOSTILE}\n"),
        {"text": "The end."},
    )
    screen = sage.script(*replies).start("--allowed-tools", "Bash")
    screen.wait_for_prompt().line("one").wait_for("before .*red.* after")
    screen.wait_for_prompt().line("two").wait_for("Allow this file to be written")
    screen.send("n").wait_for("type why").line(f"no {'x'}").wait_for("The end")
    screen.wait_for_prompt().send("\x0f").wait_for("content")
    screen.read(0.3)
    for sequence in (b"\x1b]", b"\x07", b"\x1b[2J", b"\x9b", "\u202e".encode(), b"\x1bP"):
        assert sequence not in screen.raw
    assert "owned" not in screen.screen.title


def test_the_prompt_takes_several_lines(sage: SageTerminal) -> None:
    """Alt-enter and a backslash at the end begin a new line; Enter sends all of them."""
    screen = sage.script({"text": "Thanks."}).start()
    screen.wait_for_prompt().send("one\x1b\r").send("two\\\r").send("three\r").wait_for("Thanks")
    assert sage.model.requests[-1].messages[-1].content == "one\ntwo\nthree"
    assert re.search("^› one\n  two\n  three$", screen.text, re.MULTILINE)


def test_a_paste_of_many_lines_is_folded_and_sent_whole(sage: SageTerminal) -> None:
    """A bracketed paste does not submit; its text is a mark on the screen."""
    screen = sage.script({"text": "Thanks."}).start()
    text = "\n".join(f"line {number}" for number in range(30))
    screen.wait_for_prompt().send("look: ").paste(text).wait_for(r"› look: \[paste 1: 30 lines\]")
    assert not sage.model.requests
    screen.send("\r").wait_for("Thanks")
    assert sage.model.requests[-1].messages[-1].content == f"look: {text}"
    assert "line 17" not in screen.text


def test_files_and_commands_are_completed(sage: SageTerminal) -> None:
    """Tab completes `@` to a file of the folder; the menu stands below the prompt."""
    subprocess.run(["git", "init", "-q", str(sage.folder)], check=True)
    sage.write("src/export.py", SOURCE)
    sage.write("src/other.py", "")
    screen = sage.script({"text": "Read it."}).start()
    screen.wait_for_prompt().send("see @exp").wait_for(r"^  src/export.py")
    screen.send("\t").wait_for("^› see @src/export.py")
    screen.send("\r").send("now\r").wait_for("Read it")
    assert sage.model.requests[-1].messages[-1].content.startswith("see @src/export.py now\n")
    screen.wait_for_prompt().send("/exp").wait_for("^  /expand +Show whole")


def test_earlier_prompts_come_back_with_the_up_key(sage: SageTerminal) -> None:
    """The history is of all sessions; it is private."""
    screen = sage.script({"text": "Hello."}).start()
    screen.wait_for_prompt().send("\x1b[A").wait_for("^› an earlier prompt")
    screen.send("\x15").line("a new one").wait_for("Hello").wait_for_prompt().send("\x04")
    screen.wait_for_end()
    path = sage.home / ".local/share/lyra/sage-history"
    assert "a new one" in path.read_text()


def test_finished_lines_are_written_once(sage: SageTerminal) -> None:
    """Printed lines are never redrawn: each is written to the terminal one time."""
    blocks = "\n\n".join(f"Paragraph number {number}." for number in range(40))
    screen = sage.script({"text": blocks, "chunk_s": 0.005}, {"text": "Second."}).start(rows=20)
    screen.wait_for_prompt().line("go").wait_for("number 39").wait_for_prompt()
    screen.line("more").wait_for("Second")
    assert len(re.findall(rb"  Paragraph number 3\.\r+\n", screen.raw)) == 1
    assert screen.text.count("Paragraph number 3.") == 1


def test_a_terminal_that_is_resized_keeps_the_prompt_in_order(sage: SageTerminal) -> None:
    """After a resize there is one prompt and one status line, as wide as the terminal is now."""
    screen = sage.script({"text": "First."}, {"text": "Second."}).start()
    screen.wait_for_prompt().line("go").wait_for("First").wait_for_prompt()
    screen.resize(60, 30).read(0.3)
    screen.resize(80, 25).read(0.5)
    screen.line("more").wait_for("Second").wait_for_prompt()
    assert max(len(line) for line in screen.display.split("\n")) <= 80
    assert screen.display.count(" sage  work") == 1


def test_without_a_model_the_simulated_one_is_offered(sage: SageTerminal) -> None:
    """The variables are named; `s` starts a session with the simulated model, and the first screen says what to try."""
    (sage.home / ".local/share/lyra/sage-history").unlink()
    sage.write(".keep", "")
    screen = sage.start_bare()
    screen.wait_for("ANTHROPIC_API_KEY").wait_for("enter  leave").line("s")
    screen.wait_for("Three things to try").wait_for_prompt()
    screen.line("hello there").wait_for("^  hello there")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("CLAUDE.md",), "import  CLAUDE.md is here: sage import takes over"),
        (
            (".claude/settings.json", ".cursor/rules/a.mdc"),
            "import  .claude and .cursor are here: sage import takes over",
        ),
        ((".claude/settings.json", ".lyra/commands/a.md"), ""),
        (("README.md",), ""),
    ],
)
def test_the_first_screen_tells_of_files_of_other_agents(
    sage: SageTerminal, names: tuple[str, ...], words: str
) -> None:
    """Until something was taken over."""
    (sage.home / ".local/share/lyra/sage-history").unlink()
    for name in names:
        sage.write(name, "{}")
    screen = sage.script({"text": "Hello."}).start("--trust-folder")
    screen.wait_for("Three things to try").wait_for_prompt()
    assert ("sage import" in screen.text) == bool(words)
    assert words in screen.text


def test_without_a_model_enter_leaves(sage: SageTerminal) -> None:
    screen = sage.start_bare()
    screen.wait_for("enter  leave").line("")
    assert screen.wait_for_end() == 2


def test_a_terminated_program_leaves_the_terminal_as_it_was(sage: SageTerminal) -> None:
    """SIGTERM ends it in order: the terminal echoes again, and pastes are no longer bracketed."""
    screen = sage.script({"text": "x"}).start()
    screen.wait_for_prompt()
    assert not screen.echoes()
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.wait_for_end() == 0
    assert screen.echoes()
    assert screen.raw.rfind(b"\x1b[?2004l") > screen.raw.rfind(b"\x1b[?2004h")


def test_ctrl_c_twice_leaves_and_one_clears_the_prompt(sage: SageTerminal) -> None:
    """At an empty prompt the first says how to leave; typed text is cleared before."""
    screen = sage.script({"text": "x"}).start()
    screen.wait_for_prompt().send("some text").wait_for("› some text").send("\x03").wait_for("^›$")
    screen.send("\x03").wait_for("ctrl-c again").send("\x03")
    assert screen.wait_for_end() == 0


def test_a_command_of_the_user_can_be_stopped(sage: SageTerminal) -> None:
    """Esc ends a `!` command with all that it started; the prompt is there at once."""
    screen = sage.script({"text": "x"}).start()
    screen.wait_for_prompt().line("!echo begun; sleep 30; echo never").wait_for("^  begun")
    screen.send("\x1b").wait_for("exit code 143")
    screen.wait_for_prompt()
    assert not re.search("^ +never$", screen.text, re.MULTILINE)


def test_output_modes_show_more_or_less_of_calls(sage: SageTerminal) -> None:
    """/output verbose shows the output of calls whole, compact not even that of those that failed, text the last
    lines."""
    good = call("Bash", command="echo first-output; seq 3; echo visible-output")
    bad = call("Bash", command="echo bad-output; false")
    replies = (good, bad, {"text": "One."}, good, bad, {"text": "Two."}, good, bad, {"text": "Three."})
    screen = sage.script(*replies).start("--allowed-tools", "Bash")
    screen.wait_for_prompt().line("go").wait_for("One\\.").wait_for_prompt()
    assert len(re.findall("^ +visible-output", screen.text, re.MULTILINE)) == 1
    assert not re.search("^ +first-output", screen.text, re.MULTILINE)
    assert len(re.findall("^ +bad-output", screen.text, re.MULTILINE)) == 1
    screen.line("/output compact").wait_for("output: compact").wait_for_prompt()
    screen.line("go").wait_for("Two\\.").wait_for_prompt()
    assert len(re.findall("^ +bad-output", screen.text, re.MULTILINE)) == 1
    screen.line("/output verbose").wait_for("output: verbose").wait_for_prompt()
    screen.line("go").wait_for("Three\\.")
    assert len(re.findall("^ +visible-output", screen.text, re.MULTILINE)) == 2
    assert len(re.findall("^ +first-output", screen.text, re.MULTILINE)) == 1
    assert len(re.findall("^ +bad-output", screen.text, re.MULTILINE)) == 2
