"""Sage in a real pseudo-terminal where others stop: waits for a provider, cut answers, effort, thinking, compaction, a
silent MCP server. On real models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import warm
from tests.real_models import VENDORS, Answer, Call, FakeVendor, Vendor, write_settings
from tests.sage.terminal.pty_terminal import SAGE, PtyTerminal
from tests.silent_server import silent_server

__all__ = ["silent_server"]

pytestmark = pytest.mark.slow
ANTHROPIC = VENDORS[0]
one_vendor = pytest.mark.parametrize("vendor", [ANTHROPIC], ids=["anthropic"])


@pytest.fixture
def screen(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> Iterator[PtyTerminal]:
    """A terminal with Sage on the vendor's server."""
    with start(vendor, provider, tmp_path) as terminal:
        yield terminal.wait_for_prompt()


def start(
    vendor: Vendor, provider: FakeVendor, folder: Path, *words: str, settings: str = "", model: str = ""
) -> PtyTerminal:
    home, work = folder / "home", folder / "work"
    for path in (home, work):
        path.mkdir(exist_ok=True)
    write_settings(vendor, home)
    if settings:
        (home / ".config/lyra/lyra.toml").write_text(f"{vendor.settings}\n{settings}")
    env = {"HOME": str(home), **vendor.variables(provider.url)}
    return PtyTerminal([*warm.command(SAGE), "--model", model or vendor.model, *words], folder=work, env=env)


# ---------------------------------------------------------------- patience


def test_a_wait_is_counted_down_and_esc_ends_it(vendor: Vendor, provider: FakeVendor, screen: PtyTerminal) -> None:
    provider.say(Answer("slow down", status=429, retry_after="90"), Answer("Here I am."))
    screen.line("Go").wait_for(r"Waits +rate limited, again in (90|89|88) s \(2 of 10\)")
    screen.wait_for(r"again in (87|86|85) s \(2 of 10\)")
    screen.send("\x1b").wait_for("interrupted; what was said stays")
    assert "again in" not in screen.display
    screen.wait_for_prompt().line("Still there?").wait_for("Here I am")


@one_vendor
def test_an_overload_that_ends_leaves_nothing_behind(vendor: Vendor, provider: FakeVendor, screen: PtyTerminal) -> None:
    provider.say(Answer("no room", status=529), Answer("Here I am."))
    screen.line("Go").wait_for(r"overloaded, again in \d s").wait_for("Here I am").wait_for_prompt()
    assert "overloaded" not in screen.text


@one_vendor
def test_a_wait_of_a_sub_agent_is_counted_down_below_its_call(
    vendor: Vendor, provider: FakeVendor, screen: PtyTerminal
) -> None:
    look = Call("Task", {"description": "look", "prompt": "Look.", "subagent_type": "Explore"})
    provider.say(Answer(calls=(look,)), Answer("slow down", status=429, retry_after="90"))
    screen.line("Go").wait_for(r"Explore look[^\n]*\n  Waits +rate limited, again in \d\d s \(2 of 10\)")
    screen.send("\x1b").wait_for("interrupted; what was said stays")


@one_vendor
def test_the_last_error_is_on_the_screen(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    provider.say(Answer("no room", status=529))
    settings = "[retry]\nmax_attempts = 3\ninitial_s = 0.05\n"
    with start(vendor, provider, tmp_path, settings=settings) as screen:
        screen.wait_for_prompt().line("Go").wait_for(r"no room \(anthropic, status 529, after 3 tries\)")


# ---------------------------------------------------------------- long answers, bad calls


@one_vendor
def test_a_cut_answer_is_one_answer_on_the_screen(vendor: Vendor, provider: FakeVendor, screen: PtyTerminal) -> None:
    provider.say(Answer("Once upon a ti", is_cut=True), Answer("me there was a heron."))
    screen.line("A story").wait_for("^  Once upon a time there was a heron\\.$").wait_for_prompt()


@one_vendor
def test_a_cut_call_is_shown_as_failed_and_the_turn_goes_on(
    vendor: Vendor, provider: FakeVendor, screen: PtyTerminal
) -> None:
    cut = Answer(calls=(Call("Write", {}),), raw='{"file_path": "a.txt", "content": "aaa', is_cut=True)
    provider.say(cut, Answer("I do it in pieces."))
    screen.line("Write it").wait_for("reached its limit of").wait_for("I do it in pieces").wait_for_prompt()


@one_vendor
def test_polling_goes_on(vendor: Vendor, provider: FakeVendor, screen: PtyTerminal) -> None:
    poll = Answer("It is still running, I wait.", calls=(Call("BashOutput", {"bash_id": "bash_7"}),))
    provider.say(*[poll] * 8, Answer("It is done."))
    screen.line("Wait for it").wait_for("^  It is done").wait_for_prompt()


# ---------------------------------------------------------------- effort and thinking


@pytest.mark.parametrize("vendor", [VENDORS[0], VENDORS[2]], ids=lambda vendor: vendor.name)
def test_effort_is_toggled_shown_and_sent(vendor: Vendor, provider: FakeVendor, screen: PtyTerminal) -> None:
    """ctrl-t, /effort, the status line and what the vendor gets agree; thinking is folded and can be read."""
    provider.say(Answer("One.", thinking="A deep thought."))
    name = vendor.bare_model
    screen.send("\x14").wait_for("effort: medium").wait_for(rf"^ sage .*{name} medium")
    screen.line("Go").wait_for("^  One").wait_for_prompt()
    assert re.search("^  thought", screen.text, re.MULTILINE)
    assert "A deep thought" not in screen.text
    screen.line("/expand 1").wait_for("A deep thought")
    screen.line("/effort high").wait_for("effort: high").wait_for(rf"^ sage .*{name} high")
    screen.line("/effort").wait_for(r"high .* in use")
    screen.send("\x14").wait_for("effort: none")
    screen.line("Again").wait_for_prompt()
    screen._wait(lambda: len(provider.requests) == 2, "no second request", 20)
    assert [request.asks_to_think for request in provider.requests] == [True, False]
    screen.send("\x14").wait_for(rf"^ sage .*{name} high")


@one_vendor
def test_a_model_that_cannot_think_is_named(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    model = "anthropic/claude-3-5-haiku-20241022"
    with start(vendor, provider, tmp_path, "--effort", "high", model=model) as screen:
        screen.wait_for(f"{model} cannot think: it is asked without effort")


# ---------------------------------------------------------------- compaction


@one_vendor
def test_compact_tells_why_it_failed(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    provider.say(Answer("One."), Answer("Two."), Answer("no room", status=529))
    settings = "[retry]\nmax_attempts = 2\ninitial_s = 0.05\n"
    with start(vendor, provider, tmp_path, settings=settings) as screen:
        screen.wait_for_prompt().line("a").wait_for("^  One").wait_for_prompt()
        screen.line("b").wait_for("^  Two").wait_for_prompt()
        screen.line("/compact").wait_for("the conversation was not shortened: .*no room").wait_for("status 529")


@one_vendor
def test_a_wait_of_compact_is_counted_down_and_esc_ends_it(
    vendor: Vendor, provider: FakeVendor, screen: PtyTerminal
) -> None:
    """As in a turn; the conversation stays, and can be shortened afterwards."""
    waiting = Answer("slow down", status=429, retry_after="90")
    provider.say(Answer("One."), Answer("Two."), waiting, Answer("They said one."), Answer("Three."))
    screen.line("a").wait_for("^  One").wait_for_prompt()
    screen.line("b").wait_for("^  Two").wait_for_prompt()
    screen.line("/compact").wait_for(r"Waits +rate limited, again in (90|89|88) s \(2 of 10\)")
    screen.wait_for(r"again in (87|86|85) s \(2 of 10\)")
    screen.send("\x1b").wait_for("the compaction was interrupted; the conversation is as before")
    assert "again in" not in screen.display
    screen.wait_for_prompt().line("/compact").wait_for(r"tokens before, .* now").wait_for_prompt()
    screen.line("c").wait_for("^  Three").wait_for_prompt()


@one_vendor
def test_a_wait_of_an_automatic_compaction_is_counted_down(
    vendor: Vendor, provider: FakeVendor, screen: PtyTerminal
) -> None:
    waiting, full = Answer("slow down", status=429, retry_after="90"), vendor.window * 95 // 100
    provider.say(Answer("One."), Answer("Two.", input_tokens=full), waiting)
    screen.line("a").wait_for("^  One").wait_for_prompt()
    screen.line("b").wait_for("^  Two").wait_for_prompt()
    screen.line("c").wait_for(r"Waits +rate limited, again in \d\d s \(2 of 10\)")
    screen.send("\x1b").wait_for("interrupted; what was said stays")


@one_vendor
def test_automatic_compaction_says_one_line(vendor: Vendor, provider: FakeVendor, screen: PtyTerminal) -> None:
    full = vendor.window * 95 // 100
    provider.say(Answer("One."), Answer("Two.", input_tokens=full), Answer("They said one and two."), Answer("Seven."))
    screen.line("a").wait_for("^  One").wait_for_prompt()
    screen.line("b").wait_for("^  Two").wait_for_prompt()
    screen.line("c").wait_for("^  Seven").wait_for_prompt()
    assert re.search(r"^  the conversation was shortened: about \d+ tokens are now \d+$", screen.text, re.MULTILINE)


# ---------------------------------------------------------------- a silent MCP server


@one_vendor
def test_a_silent_server_does_not_hold_up_the_prompt(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path, silent_server: str
) -> None:
    """The prompt is there at once; the first turn waits for a few seconds, goes on without the server and says so."""
    settings = f'[mcp.servers.slow]\nurl = "{silent_server}"\ntransport = "http"\nstart_s = 600\n'
    provider.say(Answer("Here I am."))
    with start(vendor, provider, tmp_path, settings=settings) as screen:
        screen.wait_for_prompt().line("Go").wait_for("MCP servers that do not answer yet: slow").wait_for("Here I am")
