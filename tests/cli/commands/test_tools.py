"""`lyra tools`: what there is, what is wrong with a file, and a call that obeys the rules."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cli.agent_runner import DONE

NOTE = """\
name: note
description: Read a note.
params:
  - {name: name, type: string}
  - {name: times, type: integer, default: 1}
implementation: {type: file_read, path: "notes/{{name}}.md"}
"""
LIST = """\
name: files
description: List the files.
params: [{name: where, type: string, default: .}]
implementation: {type: exec, command: [ls, -1, --, "{{where}}"]}
"""


@pytest.fixture
def place(lyra):
    (lyra.folder / "notes").mkdir()
    (lyra.folder / "notes/a.md").write_text("hello\n")
    (lyra.folder / "mine").mkdir()
    (lyra.folder / "mine/note.yaml").write_text(NOTE)
    (lyra.folder / "mine/files.yaml").write_text(LIST)
    return lyra


def test_the_list_names_every_tool_and_where_it_comes_from(place):
    listing = place.json("tools", "list", "--from", "mine")
    homes = {tool["name"]: tool["from"] for tool in listing["tools"]}
    assert homes["Read"] == "built in"
    assert homes["note"] == homes["files"] == "mine"
    assert listing["problems"] == []
    plain = place("tools", "list", "--from", "mine").stdout
    assert "note" in plain
    assert "Read a note." in plain


def test_the_list_has_every_tool_that_an_agent_has(place, run):
    """In the same order, in a folder with tools of its own."""
    (place.folder / ".lyra").mkdir()
    (place.folder / "mine").rename(place.folder / ".lyra/tools")
    lines = run.lines("--model", run.script(DONE), "--trust-project")
    assert [tool["name"] for tool in place.json("tools", "list", "--trust-project")["tools"]] == lines[0]["tools"]


def test_a_tool_that_needs_an_agent_says_so(place):
    done = place("tools", "call", "Recall", "question=tea")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Recall is part of an agent's program" in done.stderr


def test_the_tools_of_servers_are_listed_where_they_may_be_started(place):
    """Nothing is started unless that is asked for; a server that is not there says why."""
    pytest.importorskip("mcp")
    from tests.cli.commands.test_mcp import entry, project

    project(place.folder, theirs=entry(), other=entry("--other"))
    plain = place("tools", "list")
    assert "mcp__" not in plain.stdout
    assert "theirs (consent_required), other (consent_required); --mcp starts them" in plain.stderr
    assert place("mcp", "approve", "theirs", "--yes").returncode == 0
    told = place.json("tools", "list")
    assert {server["name"]: server["state"] for server in told["mcp_servers"]} == {
        "theirs": "disconnected",
        "other": "consent_required",
    }
    assert not any(tool["name"].startswith("mcp__") for tool in told["tools"])
    told = place.json("tools", "list", "--mcp")
    assert {tool["name"]: tool["from"] for tool in told["tools"]}["mcp__theirs__add"] == "MCP server theirs"
    assert "lyra mcp approve other" in told["problems"][0]
    shown = place("tools", "list", "--mcp")
    assert "MCP server theirs" in shown.stdout
    assert "--mcp" not in shown.stderr


def test_the_project_s_tools_are_taken_once_it_is_trusted(place):
    (place.folder / ".lyra").mkdir()
    (place.folder / "mine").rename(place.folder / ".lyra/tools")
    own = place.folder.parent / "home/.config/lyra/tools"
    own.mkdir(parents=True)
    (own / "own.yaml").write_text(NOTE.replace("name: note", "name: own"))
    names = [tool["name"] for tool in place.json("tools", "list")["tools"]]
    assert "own" in names
    assert "note" not in names
    assert "note" in [tool["name"] for tool in place.json("tools", "list", "--trust-project")["tools"]]


def test_a_tool_that_would_take_the_name_of_another_is_left_out(place):
    (place.folder / "mine/read.yaml").write_text(NOTE.replace("name: note", "name: Read"))
    listing = place.json("tools", "list", "--from", "mine")
    assert "the tool 'Read' is left out" in listing["problems"][0]
    assert next(tool for tool in listing["tools"] if tool["name"] == "Read")["from"] == "built in"


def test_check_says_what_is_wrong_and_where(place):
    assert place("tools", "check", "mine/note.yaml").stdout == "mine/note.yaml: ok (note)\n"
    (place.folder / "bad.yaml").write_text(NOTE.replace("params", "parms"))
    done = place("tools", "check", "mine", "bad.yaml", "gone.yaml")
    assert done.returncode == 2
    assert "mine: ok (files, note)" in done.stdout
    assert "bad.yaml:3: a tool has no key 'parms' (did you mean 'params'?)" in done.stdout
    assert "gone.yaml:1: there is no such file" in done.stdout
    told = json.loads(place("tools", "check", "bad.yaml", "--json").stdout)
    assert (told["ok"], told["files"][0]["mistakes"][0]["line"]) == (False, 3)


def test_check_says_everything_that_is_wrong_with_every_file(place):
    """A mistake in the parameters does not hide one in what refers to them, nor a file that cannot be read another."""
    (place.folder / "a.yaml").write_text(NOTE.replace("type: integer", "type: int").replace("{{name}}", "{{nmae}}"))
    (place.folder / "b.yaml").write_text("name: [\n")
    (place.folder / "c.yaml").write_text(LIST.replace("{{where}}", "{{were}}"))
    done = place("tools", "check", "a.yaml", "b.yaml", "c.yaml")
    assert done.returncode == 2
    assert [line.partition(": ")[0] for line in done.stdout.splitlines()] == [
        "a.yaml:5",
        "a.yaml:6",
        "b.yaml:2",
        "c.yaml:4",
    ]


def test_a_call_that_no_rule_allows_is_denied(place):
    done = place("tools", "call", "note", "--arg", "name=a", "--from", "mine")
    assert (done.returncode, done.stdout) == (3, "")
    assert "no person is there to be asked" in done.stderr
    assert "--allow note" in done.stderr


def test_a_call_that_a_rule_allows_is_made(place):
    allowed = ("--from", "mine", "--allow", "note", "--allow", "files")
    assert place("tools", "call", "note", "--arg", "name=a", *allowed).stdout == "hello\n"
    assert place("tools", "call", "note", "--args", '{"name": "a", "times": 2}', *allowed).stdout == "hello\n"
    assert place("tools", "call", "files", *allowed).stdout.split() == ["mine", "notes"]
    told = place.json("tools", "call", "note", "--arg", "name=a", *allowed)
    assert told == {"id": "cli", "name": "note", "output": "hello\n"}


def test_a_private_host_is_reached_where_inside_names_it(place):
    """Without `--inside` nothing is sent to this machine, whatever a rule allows."""

    class Hello(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        here = f"127.0.0.1:{server.server_port}"
        text = f"{{name: near, description: Near., implementation: {{type: http, url: 'http://{here}/'}}}}"
        (place.folder / "mine/near.yaml").write_text(text)
        allowed = ("tools", "call", "near", "--from", "mine", "--allow", "near")
        refused = place(*allowed)
        assert (refused.returncode != 0, "hello" in refused.stdout) == (True, False)
        assert place(*allowed, "--inside", here).stdout.strip() == "hello"
        server.shutdown()


def test_reading_in_the_workspace_needs_no_rule_and_denies_hold(place):
    assert "hello" in place("tools", "call", "Read", "--arg", "file_path=notes/a.md").stdout
    assert place("tools", "call", "Read", "--arg", "file_path=/etc/hostname").returncode == 3
    denied = ("--from", "mine", "--allow", "note", "--deny", "note")
    assert place("tools", "call", "note", "--arg", "name=a", *denied).returncode == 3


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("nite", "--allow", "note"), 2, "did you mean 'note'?"),
        (("note", "--allow", "note"), 2, "'name' is missing"),
        (("note", "--allow", "note", "--arg", "name=b"), 2, "not_found"),
        (("note", "--allow", "note", "--arg", "name=../../x"), 2, "invalid_arguments"),
        (("note", "--allow", "note", "--arg", "name"), 2, "NAME=VALUE"),
        (("note", "--allow", "note", "--args", "{"), 2, "not JSON"),
        (("note", "--allow", "note", "--args", "[]"), 2, "JSON object"),
        (("files", "--allow", "files", "--arg", "where=/nowhere"), 1, "exec_failed"),
    ],
)
def test_a_call_that_fails_says_why(place, args, code, message):
    done = place("tools", "call", *args, "--from", "mine")
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


def test_a_search_shows_nothing_that_read_would_refuse(place):
    """Keys, and what a rule denies: as for an agent."""
    (place.folder / ".env").write_text("SECRET=1\n")
    (place.folder / "a.txt").write_text("SECRET=no\n")
    (place.folder / "b.txt").write_text("SECRET=no\n")
    result = place(
        "tools", "call", "Grep", "--arg", "pattern=SECRET", "--arg", "output_mode=content", "--deny", "Read(b.txt)"
    )
    assert result.stdout == "a.txt:1:SECRET=no\n"
    assert ".env" not in place("tools", "call", "Glob", "--arg", "pattern=**/*").stdout
    assert place("tools", "call", "Read", "--arg", "file_path=.env").returncode == 3


def test_a_command_cannot_read_what_a_rule_denies(place):
    (place.folder / "private").mkdir()
    (place.folder / "private/x").write_text("topsecret\n")
    done = place(
        "tools", "call", "Bash", "--arg", "command=cat private/x; true", "--allow", "Bash", "--deny", "Read(private/**)"
    )
    assert "topsecret" not in done.stdout


def test_a_tool_of_a_file_that_is_named_like_ours_has_no_more_rights(lyra):
    """The built-in one of that name is there, so its file is left out; under another case it is another tool."""
    text = LIST.replace("name: files", "name: write").replace("name: where", "name: file_path")
    (lyra.folder / "w.yaml").write_text(text.replace("{{where}}", "{{file_path}}"))
    call = ("tools", "call", "write", "--from", "w.yaml", "--arg", "file_path=.", "--mode", "accept-edits")
    done = lyra(*call)
    assert done.returncode == 3
    assert "no rule speaks of this write" in done.stderr


def test_a_denial_that_no_rule_changes_says_so_without_that_hint(place):
    call = ("tools", "call", "Write", "--arg", "file_path=.git/x", "--arg", "content=x", "--allow", "Write")
    done = place(*call)
    assert done.returncode == 3
    assert "protected" in done.stderr
    assert "--allow" not in done.stderr


def test_arguments_that_are_nested_too_deep_are_a_mistake_of_the_caller(place):
    deep = '{"command": ' + "[" * 20_000 + "]" * 20_000 + "}"
    done = place("tools", "call", "Bash", "--args", deep)
    assert done.returncode == 2
    assert "--args" in done.stderr


def test_an_argument_needs_no_option(place):
    assert "hello" in place("tools", "call", "Read", "file_path=notes/a.md").stdout
    done = place("tools", "call", "Read", "notes/a.md")
    assert done.returncode == 2
    assert "NAME=VALUE" in done.stderr


def test_a_tool_of_the_project_is_called_once_the_project_is_trusted(place):
    (place.folder / ".lyra").mkdir()
    (place.folder / "mine").rename(place.folder / ".lyra/tools")
    call = ("tools", "call", "note", "--arg", "name=a", "--allow", "note")
    assert place(*call).returncode == 2
    assert place(*call, "--trust-project").stdout == "hello\n"


def test_a_mode_allows_what_no_rule_speaks_of(place, lyra):
    """`--mode accept-edits`: a file of the folder is written; without it the call is refused."""
    call = ("tools", "call", "Write", "--arg", "file_path=new.txt", "--arg", "content=x")
    assert place(*call).returncode == 3
    done = place(*call, "--mode", "accept-edits")
    assert done.returncode == 0, done.stderr
    assert (lyra.folder / "new.txt").read_text() == "x"
