"""Sage in a real pseudo-terminal, its model a scripted one behind HTTP: the flows of a working day."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lyra.sage.agent.session_core import STORE_FILE
from tests.cases import first
from tests.sage.terminal.conftest import SageTerminal, call

pytestmark = pytest.mark.slow

EDIT = call(
    "Edit",
    "Now the edit.",
    file_path="export.py",
    old_string="def export(path):",
    new_string="def export(path, as_json):",
)
READ = call("Read", "I'll look at it.", file_path="export.py")
EXPLORE = {"subagent_type": "Explore"}
SOURCE = "import os\n\n\ndef export(path):\n    pass\n"


def test_an_edit_is_shown_and_allowed(sage: SageTerminal) -> None:
    """The diff stands on the screen before the edit is made; Enter alone does not make it, `y` does."""
    sage.write("export.py", SOURCE)
    screen = sage.script(READ, EDIT, {"text": "It has a **flag** now."}).start()
    screen.wait_for_prompt().line("add a flag to @export.py")
    screen.wait_for("Allow this edit\\?")
    assert re.search(r"^  Read    export.py +5 lines$", screen.text, re.MULTILINE)
    assert re.search(r"^  Edit    export.py +\+1  −1$", screen.text, re.MULTILINE)
    assert re.search(r"^ +4 − def export\(path\):$", screen.text, re.MULTILINE)
    assert re.search(r"^ +4 \+ def export\(path, as_json\):$", screen.text, re.MULTILINE)
    screen.send("\r").read(0.3)
    assert sage.read("export.py") == SOURCE
    screen.send("?").wait_for("Asked because")
    screen.send("y").wait_for("It has a flag now\\.")
    assert "as_json" in sage.read("export.py")
    screen.wait_for_prompt().send("\x04")
    assert screen.wait_for_end() == 0
    assert "go on with: sage -c" in screen.text


def test_a_denied_call_does_nothing_and_the_model_is_told_why(sage: SageTerminal) -> None:
    """`n` takes a reason; the call is not made, and the reason is in the next request."""
    sage.write("export.py", SOURCE)
    screen = sage.script(READ, EDIT, {"text": "I left it."}).start()
    screen.wait_for_prompt().line("go").wait_for("Allow this edit")
    screen.send("n").wait_for("type why")
    screen.line("keep the signature").wait_for("I left it")
    assert sage.read("export.py") == SOURCE
    assert "keep the signature" in str(sage.model.requests[-1].messages[-1])
    assert re.search(r"denied: keep the signature", screen.text)


def test_a_call_can_be_edited_before_it_is_allowed(sage: SageTerminal) -> None:
    """`e` puts the argument into the prompt; what is submitted is what runs."""
    screen = sage.script(call("Bash", command="echo first > out.txt"), {"text": "Done."}).start()
    screen.wait_for_prompt().line("go").wait_for("Allow this command")
    screen.send("e").wait_for("^edit › echo first")
    screen.send("\x15").line("echo second > out.txt").wait_for("Done\\.")
    assert sage.read("out.txt") == "second\n"
    assert len(re.findall("^  Bash    echo second > out", screen.text, re.MULTILINE)) == 1


def test_an_edit_that_was_edited_is_shown_as_it_was_made(sage: SageTerminal) -> None:
    """In the file's diff, which is not that of the question; a notebook has one, too, cell by cell."""
    sage.write("export.py", SOURCE)
    sage.write("a.ipynb", json.dumps({"cells": [{"cell_type": "code", "source": "a = 1", "outputs": []}]}))
    change = call("NotebookEdit", notebook_path="a.ipynb", cell=0, new_source="a = 2")
    replies = (READ, EDIT, call("Read", file_path="a.ipynb"), change, {"text": "Done."})
    screen = sage.script(*replies).start()
    screen.wait_for_prompt().line("go").wait_for("Allow this edit")
    screen.send("e").wait_for("^edit › def export")
    screen.send("\x15").line("def export(path, form):").wait_for("Allow this change of a notebook")
    assert re.search(r"^ +4 \+ def export\(path, form\):$", screen.text, re.MULTILINE)
    assert re.search(r"^ +2 − a = 1$", screen.text, re.MULTILINE)
    assert re.search(r"^ +2 \+ a = 2$", screen.text, re.MULTILINE)
    screen.send("e").wait_for("^edit › a = 2")
    screen.send("\x15").line("a = 3").wait_for("Done\\.")
    assert re.search(r"^ +2 \+ a = 3$", screen.text, re.MULTILINE)
    assert json.loads(sage.read("a.ipynb"))["cells"][0]["source"] == "a = 3"


def test_the_branch_is_that_of_now_within_a_turn(sage: SageTerminal) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=sage.folder, check=True)
    asks_on = call("Bash", command="rm x")
    screen = sage.script(call("Git", command="switch -c topic"), asks_on, {"text": "Done."}).start()
    screen.wait_for_prompt().wait_for(r" sage  work  main ").line("go").wait_for("Allow this git command")
    screen.send("y").wait_for("Allow this command").wait_for(r" sage  work  topic ")
    screen.send("y").wait_for("Done\\.")


def test_a_session_that_is_open_elsewhere_is_refused_and_not_shown(sage: SageTerminal) -> None:
    sage.script({"text": "Here."}).start().wait_for_prompt().line("what is the first").wait_for("Here\\.")
    (store,) = (sage.home / ".local/share/lyra").rglob(STORE_FILE)
    second = sage.start()
    second.wait_for_prompt().line(f"/resume {store.parent.name}").wait_for("is open in another program")
    assert "what is the first" not in second.text


def test_a_note_before_the_first_prompt_is_broken_between_words(sage: SageTerminal) -> None:
    sage.write("AGENTS.md", "Use tabs.\n")
    screen = sage.script({"text": "."}).start(columns=40)
    screen.wait_for("enter  decide nothing").send("\r").wait_for_prompt()
    words = " ".join(line.strip() for line in screen.text.splitlines())
    assert "you are asked again when they change" in words
    assert "nothing is decided: the question comes again at the next start" in words


def test_always_is_a_rule_from_then_on(sage: SageTerminal) -> None:
    """`a` says in words what it allows, and the same call is not asked about again."""
    command = call("Bash", command="touch again; echo again")
    screen = sage.script(command, command, {"text": "Twice."}).start()
    screen.wait_for_prompt().line("go").wait_for("a  always, exactly this command")
    screen.send("a").read(0.6)
    if "Twice" not in screen.text:  # where it may mean more than this command, a number says what
        screen.send("1")
    screen.wait_for("Twice")
    assert (
        len(re.findall("Bash    touch again", screen.text)) == 2
    )  # the question with its result, and the other result
    assert re.search(
        r"allowed from now on\n +1 line\n +again\n  Bash    touch again; echo again +1 line\n", screen.text
    )


def test_an_interrupt_in_a_stream_keeps_what_was_said(sage: SageTerminal) -> None:
    """Esc stops the answer, what was said stays on the screen and in the conversation, the prompt is ready."""
    words = " ".join(f"word{number}" for number in range(400))
    screen = sage.script({"text": words, "chunk_s": 0.02}, {"text": "Second answer."}).start()
    screen.wait_for_prompt().line("tell me").wait_for("word9 ")
    screen.send("\x1b").wait_for("interrupted")
    screen.wait_for_prompt()
    assert "word5" in screen.text
    screen.line("go on").wait_for("Second answer")
    sent = str(sage.model.requests[-1].messages)
    assert "word5" in sent
    assert "stopped by the user" in sent


def test_an_interrupt_in_a_tool_stops_it(sage: SageTerminal) -> None:
    """Ctrl-C ends a command that runs; the prompt is ready and the session goes on."""
    command = call("Bash", command="sleep 30; echo late > late.txt")
    screen = sage.script(command, {"text": "Fine."}).start("--allowed-tools", "Bash")
    screen.wait_for_prompt().line("go").wait_for("Bash    sleep 30.*s  [⠀-⣿]")
    screen.send("\x03").wait_for("interrupted")
    screen.wait_for_prompt().line("next").wait_for("Fine")
    assert not (sage.folder / "late.txt").exists()


def test_typed_input_waits_while_the_agent_works(sage: SageTerminal) -> None:
    """A message that is typed during an answer is told to wait, and is sent afterwards."""
    words = " ".join(f"word{number}" for number in range(60))
    screen = sage.script({"text": words, "chunk_s": 0.03}, {"text": "And the second."}).start()
    screen.wait_for_prompt().line("first").wait_for("word3")
    screen.line("and then").wait_for("esc interrupts · 1 message waits")
    screen.wait_for("^› and then")
    screen.wait_for("And the second")
    assert str(sage.model.requests[-1].messages[-1].content) == "and then"


def test_waiting_messages_come_back_to_the_prompt_when_it_is_interrupted(sage: SageTerminal) -> None:
    """Nothing that was typed is lost, and nothing is sent that the person did not send again."""
    words = " ".join(f"word{number}" for number in range(400))
    screen = sage.script({"text": words, "chunk_s": 0.02}).start()
    screen.wait_for_prompt().line("first").wait_for("word3")
    screen.line("and then").wait_for("1 message waits")
    screen.send("half a sent").wait_for("^› half a sent")
    screen.send("\x1b").wait_for("interrupted")
    screen.wait_for_prompt().wait_for("^› and then\n  half a sent$")
    assert len(sage.model.requests) == 1


def test_a_message_reaches_the_model_at_the_next_tool_boundary(sage: SageTerminal) -> None:
    """What is sent while a command runs is in the very next request, after the result of the command, and stands on the
    screen as such; it is not sent a second time."""
    slow = call("Bash", command="sleep 2; echo slept")
    screen = sage.script(slow, {"text": "I use tabs then."}).start("--allowed-tools", "Bash")
    screen.wait_for_prompt().line("indent it").wait_for("Bash    sleep 2.*s  [⠀-⣿]")
    screen.line("with tabs, please").wait_for("1 message waits")
    screen.wait_for("I use tabs then").wait_for_prompt()
    assert re.search(r"^› with tabs, please\n  sent in the middle of its work$", screen.text, re.MULTILINE)
    assert "slept" in str(sage.model.requests[-1].messages[-2])
    assert "with tabs, please" in str(sage.model.requests[-1].messages[-1])
    screen.read(0.5)
    assert len(sage.model.requests) == 2


def test_a_command_that_only_reads_is_answered_at_once(sage: SageTerminal) -> None:
    """`/status` while a command of the agent runs; `/compact`, which changes something, waits."""
    slow = call("Bash", command="sleep 3; touch slept")
    screen = sage.script(slow, {"text": "Done."}).start("--allowed-tools", "Bash")
    screen.wait_for_prompt().line("go").wait_for("Bash    sleep 3.*s  [⠀-⣿]")
    screen.line("/status").wait_for("^  sandbox ")
    screen.line("/compact").wait_for("1 message waits")
    assert not (sage.folder / "slept").exists()
    assert "tokens before" not in screen.text
    screen.wait_for("Done\\.").wait_for("one turn only|tokens before")


def test_a_file_is_attached_with_its_size(sage: SageTerminal) -> None:
    """`@path:10-12` goes to the model with the prompt; the screen says how much it is."""
    sage.write("export.py", "".join(f"row {number}\n" for number in range(1, 50)))
    screen = sage.script({"text": "Three rows."}).start()
    screen.wait_for_prompt().line("explain @export.py:10-12 please").wait_for("Three rows")
    assert "attached export.py:10-12, 3 lines" in screen.text
    asked = str(sage.model.requests[-1].messages[-1].content)
    assert "row 12" in asked
    assert "row 13" not in asked


@pytest.mark.parametrize("ended", first(["killed", "closed"], 1))
def test_what_was_typed_survives_a_crash_and_a_closed_terminal(sage: SageTerminal, ended: str) -> None:
    """Also what waited for the end of the turn; the next session of the folder has both in its prompt, once."""
    words = " ".join(f"word{number}" for number in range(400))
    screen = sage.script({"text": words, "chunk_s": 0.05}, {"text": "Sent."}).start()
    screen.wait_for_prompt().line("first").wait_for("word3")
    screen.line("and then").wait_for("1 message waits")
    screen.send("half a sentence").wait_for("^› half a sentence")
    screen.read(0.6)
    os.kill(screen.pid, signal.SIGKILL if ended == "killed" else signal.SIGHUP)
    screen.wait_for_end()
    again = sage.start()
    again.wait_for_prompt().wait_for("^› and then\n  half a sentence$")
    again.send("\r").wait_for("Sent\\.")
    again.wait_for_prompt().send("\x04").wait_for_end()
    last = sage.start()
    last.wait_for_prompt().read(0.3)
    assert "half a sentence" not in last.display


def test_a_session_goes_on_after_kill_9(sage: SageTerminal) -> None:
    """`sage -c` shows the last exchange, says what was in doubt, and the model knows the conversation."""
    sage.script({"text": "I know the number 4711."}, call("Bash", command="sleep 20"), {"text": "It was 4711."})
    screen = sage.start("--allowed-tools", "Bash")
    screen.wait_for_prompt().line("remember 4711").wait_for("I know the number")
    screen.wait_for_prompt().line("now sleep").wait_for("Bash    sleep 20")
    screen.read(0.3)
    os.kill(screen.pid, signal.SIGKILL)
    screen.wait_for_end()
    again = sage.start("-c")
    again.wait_for_prompt().wait_for("in doubt: Bash sleep 20")
    again.wait_for("^› now sleep")
    again.line("which number?").wait_for("It was 4711")
    assert "remember 4711" in str(sage.model.requests[-1].messages)


def test_plan_mode_refuses_to_write(sage: SageTerminal) -> None:
    """Shift-tab goes to accept-edits and plan; in plan nothing is written, and nothing is asked."""
    sage.script(call("Write", file_path="new.py", content="x = 1\n"), {"text": "I cannot write here."})
    screen = sage.start()
    screen.wait_for_prompt().send("\x1b[Z").wait_for("^ sage  accept-edits ")
    screen.send("\x1b[Z").wait_for("^ sage  plan ")
    screen.line("write a file").wait_for("I cannot write here")
    assert not (sage.folder / "new.py").exists()
    assert "Allow" not in screen.text
    assert re.search(r"^  Write   new.py +denied", screen.text, re.MULTILINE)


def test_accept_edits_shows_the_diff_without_a_question(sage: SageTerminal) -> None:
    """An edit that the mode allows is made at once, and what it changed is on the screen."""
    sage.write("export.py", SOURCE)
    screen = sage.script(READ, EDIT, {"text": "Done."}).start("--permission-mode", "accept-edits")
    screen.wait_for_prompt().line("go").wait_for("Done\\.")
    assert "Allow" not in screen.text
    assert re.search(r"^ +4 \+ def export\(path, as_json\):$", screen.text, re.MULTILINE)
    assert "as_json" in sage.read("export.py")


def test_an_image_is_sent_by_its_path(sage: SageTerminal) -> None:
    """A path to a picture in the prompt goes to the model as a picture, with or without an `@`."""
    (sage.folder / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    screen = sage.script({"text": "I see a dot."}).start()
    screen.wait_for_prompt().line("what is in shot.png?").wait_for("I see a dot")
    assert "image shot.png, 72 bytes" in screen.text
    kinds = [part["type"] for part in sage.model.requests[-1].messages[-1].content]
    assert kinds == ["text", "image"]


def test_a_command_of_the_user_runs_in_their_shell_and_the_model_reads_its_output(sage: SageTerminal) -> None:
    """`!` runs without a question; the output is shown and goes with the next prompt."""
    screen = sage.script({"text": "Two lines."}).start()
    screen.wait_for_prompt().line("!echo one; echo two; false").wait_for("^  two$").wait_for("exit code 1")
    screen.wait_for_prompt().line("how many lines?").wait_for("Two lines")
    asked = str(sage.model.requests[-1].messages[-1].content)
    assert "how many lines?" in asked
    assert "one\\ntwo" in asked or "one\ntwo" in asked


def test_thinking_is_folded_and_ctrl_o_shows_it(sage: SageTerminal) -> None:
    """One line says that it thought; ctrl-o shows what, and the output of tools."""
    sage.write("export.py", SOURCE)
    thinking: dict[str, Any] = {"thinking": "The secret plan.", **READ}
    screen = sage.script(thinking, {"text": "Done."}).start()
    screen.wait_for_prompt().line("go").wait_for("Done\\.")
    assert re.search("^  thought", screen.text, re.MULTILINE)
    assert "secret plan" not in screen.text
    screen.send("\x0f").wait_for("The secret plan").wait_for("4  def export")
    screen.line("/expand 2").wait_for(r"2  Read export.py")


def test_a_question_of_the_agent_is_answered_by_number(sage: SageTerminal) -> None:
    """AskUser shows its options, and the chosen one goes back."""
    ask = call("AskUser", question="Which colour?", options=["red", "blue"])
    screen = sage.script(ask, {"text": "Blue it is."}).start()
    screen.wait_for_prompt().line("go").wait_for("> Which colour\\?").wait_for("2\\. blue")
    screen.wait_for("^answer ›").line("2").wait_for("Blue it is")
    assert "blue" in str(sage.model.requests[-1].messages[-1])


def test_a_question_while_the_person_types_takes_none_of_the_keys(sage: SageTerminal) -> None:
    """Letters of a message that is being typed never answer a question; the draft is there afterwards."""
    words = " ".join(f"word{number}" for number in range(20))
    reply = {**call("Bash", command="touch made.txt", text=words), "chunk_s": 0.03}
    screen = sage.script(reply, {"text": "Done."}).start()
    screen.wait_for_prompt().line("go").wait_for("word2")
    end = time.monotonic() + 8
    while "Allow this command" not in screen.text and time.monotonic() < end:
        screen.send("y").read(0.03)
    for _ in range(10):
        screen.send("y").read(0.02)
    assert not (sage.folder / "made.txt").exists()
    screen.read(0.8)
    screen.send("y").wait_for("Done\\.")
    assert (sage.folder / "made.txt").exists()
    screen.wait_for_prompt().wait_for("^› yyy")


def test_a_message_typed_at_a_question_answers_nothing(sage: SageTerminal) -> None:
    """Words that have the letters of answers in them, also as their first letter, are a message that waits."""
    screen = sage.script(call("Bash", command="touch made.txt"), {"text": "Done."}).start()
    screen.wait_for_prompt().line("go").wait_for("Allow this command")
    screen.read(1.0)
    for word in ("add a test", "you may say yes"):
        for letter in word:
            screen.send(letter).read(0.05)
        assert not (sage.folder / "made.txt").exists()
        screen.send("\r").read(0.4)
    screen.read(1.0)
    screen.send("n").read(0.8)
    screen.send("\r").wait_for("Done\\.").wait_for_prompt()
    asked = str(sage.model.requests[-1].messages[-1])
    assert "add a test" in asked
    assert "you may say yes" in asked
    assert not (sage.folder / "made.txt").exists()


def test_a_letter_at_the_end_of_a_word_answers_nothing(sage: SageTerminal) -> None:
    """The person stops after the `y` of a word: it belongs to the word, however long nothing follows."""
    screen = sage.script(call("Bash", command="touch made.txt"), {"text": "Done."}).start()
    screen.wait_for_prompt().line("go").wait_for("Allow this command")
    screen.read(1.0)
    screen.send("wh").send("y").wait_for("› why")
    screen.read(1.0)
    assert "Allow this command" in screen.display
    assert not (sage.folder / "made.txt").exists()


def test_calls_in_parallel_have_a_line_each(sage: SageTerminal) -> None:
    """Two commands that run at the same time are both live, each with its own time."""
    both = {
        "tool_calls": [
            {"name": "Grep", "arguments": {"pattern": "export"}},
            {"name": "Glob", "arguments": {"pattern": "*.py"}},
        ]
    }
    sage.write("export.py", SOURCE)
    screen = sage.script(both, {"text": "Both."}).start()
    screen.wait_for_prompt().line("go").wait_for("Both\\.")
    assert re.search(r"^  Grep    export +1 file", screen.text, re.MULTILINE)
    assert re.search(r"^  Glob    \*\.py +1 file", screen.text, re.MULTILINE)


def test_undo_goes_back_across_a_compaction(sage: SageTerminal) -> None:
    """A turn before the conversation was compacted is undone: files and conversation are as before it."""
    sage.write("export.py", SOURCE)
    replies = ({"text": "I see five lines."}, READ, EDIT, {"text": "Edited."}, {"text": "Third."}, {"text": "SUMMARY"})
    screen = sage.script(*replies, {"text": "After."}).start("--permission-mode", "accept-edits")
    screen.wait_for_prompt().line("first, look").wait_for("I see five")
    screen.wait_for_prompt().line("second, edit").wait_for("Edited\\.")
    screen.wait_for_prompt().line("third").wait_for("Third\\.")
    screen.wait_for_prompt().line("/compact").wait_for("tokens")
    assert "as_json" in sage.read("export.py")
    screen.wait_for_prompt().line("/undo 2").wait_for("export.py")
    screen.wait_for_prompt().line("after").wait_for("After\\.")
    assert sage.read("export.py") == SOURCE
    sent = str(sage.model.requests[-1].messages)
    assert "first, look" in sent
    assert "second, edit" not in sent
    assert "SUMMARY" not in sent


def test_sub_agents_in_parallel_have_a_line_each(sage: SageTerminal) -> None:
    """Two sub-agents of one turn are live at the same time; each has its own line when it is done."""
    both = {
        "tool_calls": [
            {"name": "Task", "arguments": {"description": f"look at {word}", "prompt": f"{word}?", **EXPLORE}}
            for word in ("apples", "pears")
        ]
    }
    slow = {"text": "one two three four five", "chunk_s": 0.25}
    screen = sage.script(both, slow, slow, {"text": "Both are known."}).start()
    screen.wait_for_prompt().line("go")
    screen.wait_for(r"Explore look at apples .*\n  Explore look at pears ").wait_for("Both are known")
    screen.wait_for_prompt()
    assert re.search(r"^  Explore look at apples ", screen.text, re.MULTILINE)
    assert re.search(r"^  Explore look at pears .* tokens", screen.text, re.MULTILINE)


def test_a_sub_agent_in_the_background_is_told_of_and_asks(sage: SageTerminal) -> None:
    """Its question comes to the prompt although no turn runs; a notice tells that it is done."""
    start = call("Task", description="tidy up", prompt="tidy", run_in_background=True)
    replies = [
        {"user": "go", **start},
        {"user": "tidy", **call("Bash", command="touch tidied"), "first_s": 0.5},
        {"tool": "Bash", "text": "It is tidy."},
        {"text": "I started it."},
    ]
    screen = sage.rules(*replies).start()
    screen.wait_for_prompt().line("go").wait_for("I started it")
    screen.wait_for("tidy up .*asks:").wait_for("Allow this\\?").wait_for("touch tidied")
    screen.send("y").wait_for("tidy up .*: done")
    assert (sage.folder / "tidied").exists()


def test_a_tool_of_an_mcp_server_is_asked_about_and_called(sage: SageTerminal) -> None:
    """Its line has the server's name; the question shows its arguments; the result goes to the model."""
    pytest.importorskip("mcp")
    tiny = Path(__file__).parents[2] / "mcp" / "tiny_server.py"
    prefix = os.path.realpath(sys.prefix)  # the sandbox shows the folder itself, not a link to it
    seen = json.dumps([prefix, sys.base_prefix, str(tiny.parent)])
    settings = sage.home / ".config/lyra/lyra.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        f'[mcp.servers.tiny]\ncommand = "{prefix}/bin/python"\nargs = ["-IS", "{tiny}"]\nreadable = {seen}\n'
    )
    screen = sage.script(call("mcp__tiny__add", a=2, b=3), {"text": "It is five."}).start()
    screen.wait_for_prompt().line("add").wait_for("Allow this call of mcp__tiny__add")
    assert re.search(r"^  tiny    add a=2, b=3$", screen.text, re.MULTILINE)
    screen.send("y").wait_for("It is five")
    assert "5" in str(sage.model.requests[-1].messages[-1])


def test_no_log_line_reaches_the_terminal(sage: SageTerminal) -> None:
    """What the libraries log goes to `sage.log`; that another key has signed a session is told as an error, once."""
    screen = sage.script({"text": "First."}, {"text": "Second."}).start()
    screen.wait_for_prompt().line("one").wait_for("First")
    screen.wait_for_prompt().send("\x04").wait_for_end()
    (sage.home / ".config/lyra/store.key").write_text("ab" * 32)
    again = sage.start("-c")
    again.wait_for_end()
    shown = again.text.replace("\n", "")
    assert shown.startswith("error[tampered]: ")
    assert shown.count("another user or machine") == 1
    assert "lyra store adopt" in shown


def test_changed_files_of_extensions_are_told_before_the_next_prompt(sage: SageTerminal) -> None:
    """A new command, and one that cannot be used, each once."""
    screen = sage.script({"text": "First."}, {"text": "Second."}, {"text": "Third."}).start()
    screen.wait_for_prompt().line("one").wait_for("First")
    commands = sage.home / ".config/lyra/commands"
    commands.mkdir(parents=True)
    (commands / "ship.md").write_text("Ship it.")
    (commands / "bad.md").write_text("---\nx: y\n---\nBroken.")
    screen.wait_for_prompt().line("two").wait_for("extensions were read again: new: /ship")
    screen.wait_for("bad.md").wait_for("Second")
    screen.wait_for_prompt().line("three").wait_for("Third")
    assert screen.text.count("read again") == 1
    assert screen.text.count("bad.md") == 1
