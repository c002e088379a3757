"""Sessions on the command line: going on, copies, lists, exports; `lyra agent` goes on with them, too."""

from __future__ import annotations

import json
from typing import Any

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
