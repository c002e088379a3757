"""Attempts by single calls: none has an effect, and each suite would see one if a mend were missing."""

from __future__ import annotations

import asyncio

import pytest

from lyra.agents.turn import admission, model_effect
from lyra.core.secrets import known_keys, visible
from lyra.core.tool import ToolCall
from lyra.mcp import tools, transports
from lyra.tools.permissions import decision, rules
from lyra.tools.shell import command_line
from verify.attacks import command_rules, keys, leaving_data, mcp_text
from verify.attacks.scripted_agent import working_tiers

pytestmark = pytest.mark.skipif(not working_tiers(), reason="needs a sandbox")


def test_no_attempt_with_a_known_key_has_an_effect():
    """In calls, in each tier; in what tools say; in a provider's errors."""
    tried = keys.run()
    assert tried.effects == []
    assert tried.attempts >= 100 + len(keys.CALLS) * len(working_tiers())


@pytest.mark.slow
def test_without_the_refusal_a_masked_call_is_another_call(monkeypatch):
    """A planted bug: the call is made with a mask in the key's place. A folder is emptied, a file says something
    else."""
    masks = model_effect._call
    monkeypatch.setattr(
        model_effect, "_call", lambda call, known: ToolCall(call.id, call.name, masks(call, known).arguments)
    )
    with keys._known_key():
        effects = "\n".join(asyncio.run(keys._calls(working_tiers()[0])).effects)
    for effect in ("a mask that is a pattern", "a.txt was changed", "a file's content (", "a tool was given '***'"):
        assert effect in effects


@pytest.mark.slow
def test_without_spellings_a_key_is_shown(monkeypatch):
    """A planted bug: a key is looked for as it is, and whole."""
    monkeypatch.setattr(known_keys, "_SPELLERS", (str,))
    monkeypatch.setattr(known_keys, "_part_length", len)
    monkeypatch.setattr(known_keys, "_PART_LEAST", 1_000)
    monkeypatch.setattr(known_keys, "_ends_like_key", lambda _key: False)
    known_keys._prepare.cache_clear()
    try:
        effects = "\n".join(keys.run(()).effects)
    finally:
        monkeypatch.undo()
        known_keys._prepare.cache_clear()
    for what in ("base64", "hex", "percent signs", "the first half", "the last 20", "the first 8"):
        assert f"{what}: " in effects


def test_no_data_leaves_by_an_allowed_host():
    """By a path, a query, a name or a redirect; by a command's own requests, in each tier."""
    tried = leaving_data.run()
    assert tried.effects == []
    assert tried.attempts >= 80 + len(leaving_data.COMMANDS) * len(working_tiers())


@pytest.mark.slow
def test_where_stars_are_an_answer_data_leaves(monkeypatch):
    """A planted bug: a pattern of stars and the beginning of a name count as a tool's name."""
    monkeypatch.setattr(decision, "_is_answer", lambda rule, subject: rule._every or rule.names(subject))
    effects = asyncio.run(leaving_data._stars()).effects
    assert len(effects) == len(leaving_data.STARS)


@pytest.mark.slow
def test_where_a_host_is_an_answer_data_leaves(monkeypatch):
    """Planted bugs: a rule that names a host counts for every URL on it, and a line reaches hosts of a pattern."""
    monkeypatch.setattr(rules.Rule, "_is_url", lambda self, _subject: self._url is not None and self._url[1].literal)
    monkeypatch.setattr(admission, "_without_host_patterns", lambda grant: grant)
    fetched = asyncio.run(leaving_data._fetches(attended=False))
    effects = "\n".join((fetched + asyncio.run(leaving_data._commands(working_tiers()[0]))).effects)
    for what in ("a query (", "a path (", "an answer for a host (", "a name below an allowed pattern ("):
        assert what in effects


def test_no_attempt_on_command_rules_has_an_effect():
    """What a deny names is not run by another way, and a wildcard covers no option that writes a file."""
    tried = command_rules.run()
    assert tried.effects == []
    assert tried.attempts == (len(command_rules.DENIED) + len(command_rules.WRITES)) * len(working_tiers())


@pytest.mark.slow
def test_without_the_tables_attempts_on_command_rules_succeed(monkeypatch):
    """Planted bugs: arguments of unknown programs and written files are not looked at."""
    monkeypatch.setattr(command_line.CommandLine, "may_run", lambda self, glob: False)
    monkeypatch.setattr(command_line._Texts, "_read_written_files", lambda self: None)
    command_line._read_line.cache_clear()
    try:
        effects = "\n".join(asyncio.run(command_rules._denied(working_tiers()[0])).effects)
    finally:
        command_line._read_line.cache_clear()
    for line in ("unheard-of-wrapper touch", "mkfifo p; echo", "echo 'touch pwned' > s; sh s", "pwned was made"):
        assert line in effects


@pytest.mark.slow
def test_no_attempt_of_an_mcp_server_has_an_effect():
    """Its replies hold up nothing, and what it says has no invisible characters."""
    pytest.importorskip("mcp")
    tried = mcp_text.run(working_tiers()[:1])
    assert tried.effects == []
    assert tried.attempts >= len(mcp_text.REPLIES) + 20 * len(mcp_text.HIDDEN)


@pytest.mark.slow
def test_without_its_mends_an_mcp_server_is_heard(monkeypatch):
    """Planted bugs: brackets are not counted, and nothing is left out of what a server says."""
    pytest.importorskip("mcp")
    monkeypatch.setattr(transports, "CONTAINERS_MAX", 10**9)
    monkeypatch.setattr(tools, "without_invisible", lambda text: text)
    assert "lists_in_lists" in mcp_text.REPLIES
    replies = {"lists_in_lists": mcp_text._around("[", [f"{mcp_text._LIST},", 8_000], "1]")}
    monkeypatch.setattr(mcp_text, "REPLIES", replies)
    monkeypatch.setattr(mcp_text, "_HELD_CPU_S_MAX", 0.3)
    tier = working_tiers()[0]
    assert "the loop stood still" in "".join(asyncio.run(mcp_text._replies(tier)).effects)
    effects = asyncio.run(mcp_text._hidden(tier, "tags", mcp_text.HIDDEN["tags"])).effects
    assert f"tags in say_text ({tier})" in effects
    assert visible.without_invisible("a\U000e0041b") == "ab"
