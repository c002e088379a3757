"""Every option of `sage` that it shares with `lyra agent` does in a session what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.agent_runner import DONE, call
from tests.cli.sage.conftest import Sage

WRITE = call("Write", file_path="a.txt", content="new")


def written(sage: Sage, *args: str) -> bool:
    """Whether a script that writes a file has written it."""
    path = sage.folder / "a.txt"
    path.unlink(missing_ok=True)
    done = sage("--print", "go", "--model", sage.script(WRITE, DONE), *args)
    assert done.returncode == 0, done.stderr
    return path.exists()


def test_rules_and_modes(sage: Sage) -> None:
    assert not written(sage)
    assert written(sage, "--permission-mode", "accept-edits")
    assert written(sage, "--allowed-tools", "Write")
    assert not written(sage, "--permission-mode", "bypass", "--disallowed-tools", "Write")


def test_limits(sage: Sage) -> None:
    """Of model calls, and of money."""
    model = sage.script(call("Read", file_path="x"), DONE)
    assert sage("-p", "go", "--model", model, "--max-turns", "1").returncode == 4
    price = {"input_usd_per_mtok": 100_000, "output_usd_per_mtok": 100_000}
    dear = sage.script(DONE, price=price)
    assert sage("-p", "go", "--model", dear, "--max-budget-usd", "0.01").returncode == 4


def test_files_and_folders(sage: Sage, tmp_path: Path) -> None:
    """A system prompt, a schema for the answer, a further folder, an audit log and its level."""
    more = tmp_path / "more"
    more.mkdir()
    (more / "b.txt").write_text("text of b")
    system = sage.write("system.txt", "Be a parrot.")
    path = sage.folder.parent / "parrot.json"
    path.write_text(json.dumps({"replies": [{"system": "parrot", "text": "Squawk"}, {"text": "no"}]}))
    assert sage("-p", "hi", "--model", f"sim/script:{path}", "--system", str(system)).stdout == "Squawk\n"
    schema = sage.write("schema.json", json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}))
    model = sage.script({"text": '{"n": 3}'})
    answer = sage.json("-p", "n?", "--model", model, "--json-schema", str(schema), "--output-format", "json")
    assert answer["output"] == {"n": 3}
    model = sage.script(call("Read", file_path=str(more / "b.txt")), DONE)
    lines = sage.lines("-p", "go", "--model", model, "--add-dir", str(more), "--stream-json")
    assert "text of b" in next(line for line in lines if line["type"] == "tool_end")["output"]
    log = tmp_path / "audit.jsonl"
    assert not written(sage, "--audit", str(log), "--audit-level", "detailed")
    assert "Write" in log.read_text()
    refused = sage("-p", "hi", "--model", "sim/echo", "--audit-level", "basic")
    assert refused.returncode == 2


def test_sessions_by_their_short_flags(sage: Sage) -> None:
    first = sage.ask("one")["session_id"]
    assert sage.ask("two", "-c")["session_id"] == first
    assert sage.ask("three", "-r", first)["session_id"] == first
    assert sage.ask("four", "--resume", first)["session_id"] == first
    out = sage.folder / "out.md"
    assert sage("sessions", "export", first, "--output", str(out)).returncode == 0
    assert "three" in out.read_text()


def test_settings_and_tracebacks_before_the_command(sage: Sage, lyra: Any) -> None:
    """`--set`, `--debug` and `--trust-folder` may come before the command."""
    assert sage("--set", "agent.model=sim/echo", "start", "-p", "hi").stdout == "hi\n"
    assert "Traceback" in sage("--debug", "sessions", "show", "nothing").stderr
    sage.write("AGENTS.md", "Be kind.\n")
    assert "AGENTS.md" in sage("-p", "hi", "--model", "sim/echo").stderr
    assert sage("--trust-folder", "start", "-p", "hi", "--model", "sim/echo").stderr == ""
    assert lyra("sage", "--set", "agent.model=sim/echo", "start", "-p", "hi").stdout == "hi\n"
    assert "Traceback" in lyra("sage", "--debug", "sessions", "show", "nothing").stderr
    assert lyra("sage", "--trust-folder", "start", "-p", "hi", "--model", "sim/echo").stderr == ""


@pytest.mark.parametrize(
    "text",
    ['[agent]\nmodel = "sim/echo"\n', '[[hooks.Stop]]\ncommand = "true"\nsandbox = false\n', "[zzz\n", "[a]\nb = 1\n"],
)
def test_a_file_without_trust_never_stops_sage(sage: Sage, text: str) -> None:
    """It is passed over with one note; once the folder is trusted, its mistake is an error."""
    sage.write("lyra.toml", text)
    done = sage("-p", "hi", "--model", "sim/echo")
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert done.stderr.count("note:") == 1
    assert "passed over: lyra.toml" in done.stderr
    assert sage("--trust-folder", "-p", "hi", "--model", "sim/echo").returncode == 2
