"""What settings change in a terminal: the keys of vi, colours, a bell; and pictures from the clipboard."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from tests.real_models import PIXEL
from tests.sage.terminal.conftest import SageTerminal, call

pytestmark = pytest.mark.slow


def settings(sage: SageTerminal, name: str, value: str) -> None:
    """Write a setting into the user's file."""
    section, _, field = name.partition(".")
    path = sage.home / ".config/lyra/lyra.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'[{section}]\n{field} = "{value}"\n')


def test_the_keys_of_vi_edit_the_prompt(sage: SageTerminal) -> None:
    """Esc leaves the insertion, `dw` removes a word, Enter sends, and the next prompt begins with an insertion."""
    settings(sage, "sage.keys", "vi")
    screen = sage.script({"text": "First."}, {"text": "Second."}).start()
    screen.wait_for_prompt().send("drop this").wait_for("^› drop this")
    screen.send("\x1b").wait_for("^: drop this")
    screen.send("0dw").wait_for("^: this$")
    screen.send("\r").wait_for("First\\.")
    screen.wait_for_prompt().line("dw").wait_for("Second\\.")
    assert [str(request.messages[-1].content) for request in sage.model.requests] == ["this", "dw"]


def test_without_the_setting_escape_leaves_the_prompt_as_it_is(sage: SageTerminal) -> None:
    screen = sage.script({"text": "First."}).start()
    screen.wait_for_prompt().send("drop this").wait_for("^› drop this")
    screen.send("\x1b").read(0.3)
    screen.send("0dw").wait_for("^› drop this0dw$")


@pytest.mark.parametrize(
    ("notify", "sequence"), [("off", b""), ("bell", b"\x07"), ("desktop", b"\x1b]9;Sage asks\x07")]
)
def test_a_person_is_told_that_something_waits(sage: SageTerminal, notify: str, sequence: bytes) -> None:
    """Once for the question, and once for the end of the turn."""
    settings(sage, "sage.notify", notify)
    screen = sage.script(call("Bash", command="touch made.txt"), {"text": "Done."}).start()
    screen.wait_for_prompt()
    assert b"\x07" not in screen.raw
    screen.line("go").wait_for("Allow this command")
    assert screen.raw.count(b"\x07") == bool(sequence)
    assert sequence in screen.raw
    screen.send("y").wait_for("Done\\.").wait_for_prompt()
    assert screen.raw.count(b"\x07") == 2 * bool(sequence)
    assert (b"Sage is done" in screen.raw) == (notify == "desktop")


@pytest.mark.parametrize(("theme", "colour"), [("dark", b"\x1b[32m"), ("colour-blind", b"\x1b[94m")])
def test_a_theme_changes_the_colours(sage: SageTerminal, theme: str, colour: bytes) -> None:
    """Lines that an edit adds are green, or blue."""
    settings(sage, "sage.theme", theme)
    sage.write("a.py", "one\n")
    edit = call("Edit", file_path="a.py", old_string="one", new_string="two")
    screen = sage.script(call("Read", file_path="a.py"), edit, {"text": "Done."}).start(
        "--permission-mode", "accept-edits"
    )
    screen.wait_for_prompt().line("go").wait_for("Done\\.")
    assert colour in screen.raw


def test_a_picture_of_the_clipboard_goes_with_the_prompt(sage: SageTerminal) -> None:
    """Ctrl-V puts a mark into the prompt; the picture is sent where its mark still stands."""
    programs = sage.home / "bin"
    programs.mkdir()
    picture = sage.home / "picture.png"
    picture.write_bytes(base64.b64decode(PIXEL))
    (programs / "xclip").write_text(f'#!/bin/sh\ncase "$*" in *image/png*) exec /bin/cat {picture};; esac\nexit 1\n')
    (programs / "xclip").chmod(0o755)
    path = f"{programs}:/usr/local/bin:/usr/bin:/bin"
    screen = sage.script({"text": "A dot."}, {"text": "No dot."}).start(DISPLAY=":0", PATH=path)
    screen.wait_for_prompt().send("what is \x16").wait_for("^› what is \\[image 1: 70 bytes\\]")
    screen.send("\r").wait_for("A dot\\.")
    assert [part["type"] for part in sage.model.requests[-1].messages[-1].content] == ["text", "image"]
    picture.write_bytes(b"")
    screen.wait_for_prompt().send("and \x16").wait_for("no picture in the clipboard")
    screen.line("now?").wait_for("No dot")
    assert re.search(r"^› and now\?$", screen.text, re.MULTILINE)
    assert str(sage.model.requests[-1].messages[-1].content) == "and now?"


def test_variables_are_settings_too(sage: SageTerminal) -> None:
    sage.write("a.py", "one\n")
    edit = call("Edit", file_path="a.py", old_string="one", new_string="two")
    variables: dict[str, Any] = {"LYRA_SAGE_KEYS": "vi", "LYRA_SAGE_NOTIFY": "bell", "LYRA_SAGE_THEME": "colour-blind"}
    screen = sage.script(call("Read", file_path="a.py"), edit, {"text": "Done."}).start(
        "--permission-mode", "accept-edits", **variables
    )
    screen.wait_for_prompt().line("go").wait_for("Done\\.").wait_for_prompt()
    assert b"\x1b[94m" in screen.raw
    assert b"\x07" in screen.raw
    screen.send("word").wait_for("^› word")
    screen.send("\x1b").wait_for("^: word")


# ---------------------------------------------------------------- /theme


def test_a_theme_is_chosen_from_samples_and_kept(sage: SageTerminal) -> None:
    """The list shows each theme in its own colours; the one that is taken counts at once and in the next session."""
    settings(sage, "sage.notify", "off")
    file = sage.home / ".config/lyra/lyra.toml"
    file.write_text(f"# mine\n{file.read_text()}\n[agent]\nmax_tokens = 900\n")
    edit = call("Write", file_path="a.txt", content="x\n")
    screen = sage.script(edit, {"text": "Done."}).start("--allowed-tools", "Write")
    screen.wait_for_prompt().line("/theme").wait_for("colour-blind +\\+ added").wait_for("blue and yellow in place")
    assert b"\x1b[32m+ added" in screen.raw  # dark
    assert b"\x1b[94m+ added" in screen.raw  # colour-blind
    screen.send("blind\r").wait_for("theme: colour-blind, kept in").wait_for_prompt()
    assert file.read_text() == ('# mine\n[sage]\ntheme = "colour-blind"\nnotify = "off"\n\n[agent]\nmax_tokens = 900\n')
    before = len(screen.raw)
    screen.line("go").wait_for("Done\\.").wait_for_prompt()
    assert b"\x1b[94m" in screen.raw[before:]
    assert b"\x1b[32m" not in screen.raw[before:]
    edit = call("Write", file_path="b.txt", content="x\n")
    again = sage.script(edit, {"text": "Done."}).start("--allowed-tools", "Write")
    again.wait_for_prompt().line("go").wait_for("Done\\.").wait_for_prompt()
    assert b"\x1b[94m" in again.raw
    again.line("/theme dark").wait_for("theme: dark, kept").wait_for_prompt()
    assert 'theme = "dark"\n' in file.read_text()


def test_a_file_with_the_theme_elsewhere_is_left_as_it_is(sage: SageTerminal) -> None:
    settings(sage, "sage.notify", "off")
    file = sage.home / ".config/lyra/lyra.toml"
    file.write_text('sage = { notify = "off" }\n')
    screen = sage.script({"text": "."}).start()
    screen.wait_for_prompt().line("/theme light").wait_for("sage.theme cannot be set there").wait_for(
        "under \\[sage\\]"
    )
    assert file.read_text() == 'sage = { notify = "off" }\n'
