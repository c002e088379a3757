"""Sessions on the command line: going on, copies, lists, exports; `lyra agent` goes on with them, too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.agent_runner import DONE, Runner, call
from tests.cli.sage.conftest import Sage


def conversation(sage: Sage, session: str) -> list[str]:
    """The words of a session, without those of tools."""
    messages = sage.json("sessions", "show", session, "--json")["messages"]
    return [_text(message["content"]) for message in messages if message["role"] != "tool"]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def test_a_session_goes_on(sage: Sage) -> None:
    """`-c` with the newest of this folder, `-r` with one by the beginning of its id."""
    first = sage.ask("one")["session_id"]
    assert sage.ask("two", "-c")["session_id"] == first
    second = sage.ask("other")["session_id"]
    assert second != first
    assert sage.ask("three", "-r", first[:-1])["session_id"] == first
    assert conversation(sage, first) == ["one", "one", "two", "two", "three", "three"]
    assert sage.ask("four", "--continue")["session_id"] == first, "the one that was used last"


def test_the_newest_session_is_that_of_the_folder(sage: Sage) -> None:
    sage.ask("here")
    elsewhere = sage.folder.parent / "elsewhere"
    elsewhere.mkdir()
    done = sage("-p", "-c", "x", "--model", "sim/echo", cwd=elsewhere)
    assert (done.returncode, "there is no session" in done.stderr) == (2, True)


def test_a_copy_leaves_the_session(sage: Sage) -> None:
    """`--fork`, and `--fork-before N` with the conversation before a turn."""
    first = sage.ask("one")["session_id"]
    sage.ask("two", "-c")
    copy = sage.ask("three", "-r", first, "--fork")["session_id"]
    early = sage.ask("four", "-r", first, "--fork-before", "2")["session_id"]
    assert len({first, copy, early}) == 3
    assert conversation(sage, first) == ["one", "one", "two", "two"]
    assert conversation(sage, copy) == ["one", "one", "two", "two", "three", "three"]
    assert conversation(sage, early) == ["one", "one", "four", "four"]
    done = sage("-p", "x", "--fork", "--model", "sim/echo")
    assert (done.returncode, "name it with -r" in done.stderr) == (2, True)
    late = sage("-p", "x", "-r", first, "--fork-before", "9", "--model", "sim/echo")
    assert (late.returncode, "there is no turn 9" in late.stderr) == (2, True)


def _mode(sage: Sage, *words: str) -> str:
    return str(sage.lines("-p", "x", "--stream-json", *words)[0]["permission_mode"])


def test_a_session_keeps_its_permission_mode(sage: Sage) -> None:
    """That which was chosen for it, unless a flag names another; a copy has it, too."""
    assert _mode(sage, "--model", "sim/echo", "--permission-mode", "plan") == "plan"
    assert _mode(sage, "-c") == "plan"
    assert _mode(sage, "-c", "--fork") == "plan"
    assert _mode(sage, "-c", "--permission-mode", "accept-edits") == "accept-edits"
    assert _mode(sage, "-c") == "accept-edits"
    assert _mode(sage, "--model", "sim/echo") == "default", "a new session has its own"


def test_a_session_does_not_keep_bypass(sage: Sage) -> None:
    """Calls without questions are for the run that asked for them. The next one says that it is not kept."""
    assert _mode(sage, "--model", "sim/echo", "--permission-mode", "bypass") == "bypass"
    done = sage("-p", "x", "-c")
    assert "the mode bypass of the session is not kept" in done.stderr
    assert sage.json("sessions", "list", "--json")[0]["mode"] == ""
    assert _mode(sage, "-c") == "default"


def test_the_mode_of_the_permission_files_is_not_kept(sage: Sage) -> None:
    """It is that of the files as they are now: only a choice of the user belongs to the session."""
    path = sage.home / ".config" / "lyra" / "permissions.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('mode = "accept-edits"\n')
    assert _mode(sage, "--model", "sim/echo") == "accept-edits"
    path.write_text("")
    assert _mode(sage, "-c") == "default"


def test_a_session_gets_a_new_title(sage: Sage) -> None:
    """`--title` with `-c` and `-r`."""
    first = sage.ask("one", "--title", "old")["session_id"]
    sage.ask("two", "-c", "--title", "new")
    assert sage.json("sessions", "list", "--json")[0]["title"] == "new"
    sage.ask("three", "-r", first, "--title", "newer")
    assert sage.json("sessions", "list", "--json")[0]["title"] == "newer"
    sage.ask("four", "-c")
    assert sage.json("sessions", "list", "--json")[0]["title"] == "newer"


@pytest.mark.parametrize("words", [("-p", "x", "-r"), ("sessions", "show"), ("sessions", "rm"), ("sessions", "export")])
def test_an_unknown_session_is_bad_usage(sage: Sage, words: tuple[str, ...]) -> None:
    done = sage(*words, "zz", LYRA_AGENT_MODEL="sim/echo")
    assert done.returncode == 2
    assert "there is no session 'zz'" in done.stderr
    assert "sage sessions list" in done.stderr


@pytest.mark.parametrize("words", [("-c",), ("-c", "--fork")])
def test_a_damaged_session_names_itself_and_a_way_on(sage: Sage, words: tuple[str, ...]) -> None:
    """`sage -c` says which session it is, how it is removed and which other one there is; both ways work."""
    other = sage.ask("one")["session_id"]
    broken = sage.ask("two")["session_id"]
    (store,) = (sage.home / ".local" / "share").rglob(f"{broken}/session.db")
    store.write_bytes(b"not a store" * 100)
    done = sage("-p", "x", *words)
    assert done.returncode == 1
    assert f"the session {broken} (two) cannot be read any more" in done.stderr
    assert f"sage sessions rm {broken}; or go on with another one: sage -r {other}" in done.stderr
    assert sage.ask("three", "-r", other)["session_id"] == other
    assert sage("sessions", "rm", broken).returncode == 0
    assert sage.ask("four", "-c")["session_id"] == other


def test_wrong_sessions(sage: Sage) -> None:
    """An unknown id names the nearest; `-c` and `-r` together are a mistake."""
    first = sage.ask("one")["session_id"]
    done = sage("-p", "x", "-r", first[:-2] + "zz", "--model", "sim/echo")
    assert done.returncode != 0
    assert f"did you mean {first}?" in done.stderr
    assert sage("-p", "x", "-c", "-r", first, "--model", "sim/echo").returncode == 2
    assert sage("-p", "x", "-r", "", "--model", "sim/echo").returncode == 2


def test_sessions_are_listed_shown_exported_and_removed(sage: Sage) -> None:
    first = sage.ask("fix the parser", "--title", "parsers")["session_id"]
    second = sage.ask("something else")["session_id"]
    assert [record["id"] for record in sage.json("sessions", "list", "--json")] == [second, first]
    assert [record["id"] for record in sage.json("sessions", "list", "--json", "--search", "parser")] == [first]
    assert [record["id"] for record in sage.json("sessions", "list", "--json", "--limit", "1")] == [second]
    assert sage.json("sessions", "list", "--json", "--here")
    assert "parsers" in sage("sessions", "list").stdout
    assert "fix the parser" in sage("sessions", "show", first).stdout
    exported = sage.folder / "talk.json"
    assert sage("sessions", "export", first, "--format", "json", "-o", str(exported)).returncode == 0
    assert json.loads(exported.read_text())["session"]["title"] == "parsers"
    assert sage("sessions", "export", first).stdout.startswith("# parsers")
    assert sage("sessions", "rm", first[:-1], second).returncode == 0
    assert sage.json("sessions", "list", "--json") == []
    assert "no sessions yet" in sage("sessions", "list").stderr


def test_lyra_agent_goes_on_with_a_session(sage: Sage, run: Runner) -> None:
    """`lyra agent --continue` and `--resume`."""
    first = sage.ask("one")["session_id"]
    form = ("--model", "sim/echo", "--output-format", "json")
    again = json.loads(run("--continue", *form, task="two").stdout)
    by_id = json.loads(run("--resume", first, *form, task="three").stdout)
    assert again["session_id"] == by_id["session_id"] == first
    assert conversation(sage, first) == ["one", "one", "two", "two", "three", "three"]
    assert json.loads(run("-r", first, *form, task="four").stdout)["session_id"] == first
    assert run("-c", "--store", "a.db", *form).returncode == 2
    looped = run.script(call("Read", file_path="x"), DONE)
    assert run("--max-steps", "1", "--model", looped).returncode == 4


def test_another_model_may_go_on(sage: Sage) -> None:
    first = sage.ask("one")["session_id"]
    assert sage.ask("two", "-c", "--model", sage.script(DONE))["text"] == "All done."
    assert conversation(sage, first)[-1] == "All done."
