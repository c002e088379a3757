"""Sage in a real pseudo-terminal on real models: thoughts, calls, the status line and the commands with figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import warm
from tests.real_models import VENDORS, Answer, Call, FakeVendor, Vendor, write_settings
from tests.sage.terminal.pty_terminal import SAGE, PtyTerminal

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "vendor", [vendor for vendor in VENDORS if vendor.thinks_aloud], ids=lambda vendor: vendor.name
)
def test_a_turn_and_its_figures(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """The answer, the call and how long the model thought are on the screen; the status line has the dollars and the
    share of the published window, /context and /cost the figures behind them."""
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
    (work / "a.txt").write_text("secret word: heron\n")
    write_settings(vendor, home)
    call = Call("Read", {"file_path": str(work / "a.txt")})
    tokens = vendor.window * 3 // 4 - 200
    answers = (
        Answer(thinking="Look.", calls=(call,)),
        Answer("A grey heron.", input_tokens=tokens, cached_tokens=tokens),
    )
    provider.say(*answers)
    env = {"HOME": str(home), **vendor.variables(provider.url)}
    with PtyTerminal([*warm.command(SAGE), "--model", vendor.model], folder=work, env=env) as screen:
        screen.wait_for_prompt().line("Which bird?").wait_for("A grey heron")
        screen.wait_for_prompt().wait_for("context 75 %")
        cost = vendor.cost_usd(*answers)
        assert f"${cost:.2f}" in screen.text
        assert re.search(r"^  Read    a.txt +1 line$", screen.text, re.MULTILINE)
        assert re.search(r"^  thought", screen.text, re.MULTILINE)
        screen.line("/context").wait_for(f"of {vendor.window:,} tokens".replace(",", " "))
        screen.line("/cost").wait_for("this session")
        assert (f"${cost:.2f}" if cost >= 0.1 else f"${cost:.4f}") in screen.text.rpartition("this session")[2]
    assert "heron" in provider.requests[1].results[0]


def test_an_attached_file_and_a_message_in_the_middle_of_a_turn(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path
) -> None:
    """Both reach the model in each vendor's format: the file with the prompt, the message with the tool's result."""
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
    (work / "a.txt").write_text("secret word: heron\n")
    write_settings(vendor, home)
    provider.say(Answer(calls=(Call("Bash", {"command": "sleep 2; echo slept"}),)), Answer("A heron, in French."))
    env = {"HOME": str(home), **vendor.variables(provider.url)}
    command = [*warm.command(SAGE), "--model", vendor.model, "--allowed-tools", "Bash"]
    with PtyTerminal(command, folder=work, env=env) as screen:
        screen.wait_for_prompt().line("Which bird is in @a.txt?").wait_for("Bash    sleep 2.*s  [⠀-⣿]")
        screen.line("answer in French").wait_for("1 message waits")
        screen.wait_for("A heron, in French")
        assert "attached a.txt, 1 line, 19 bytes" in screen.text
    first, second = provider.requests
    assert "secret word: heron" in "".join(first.texts)
    assert "slept" in second.results[0]
    assert "answer in French" in second.texts[-1]
