"""`lyra audit`: says whether a log was touched, and shows what is in it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from lyra.core.event import Event
from lyra.observe import AuditLog


@pytest.fixture
def log(lyra) -> Path:
    """Three decisions between the first and the last record, in the working folder."""
    path = Path(lyra.folder, "audit.jsonl")
    writer = AuditLog(path, now=1.0)
    for number, decision in enumerate(("allow", "deny", "ask")):
        data = {"tool": "Bash", "subject": f"ls {number}\n\x1b[31m", "decision": decision}
        writer(Event(0, 2.0 + number, f"p{number}", "tool.decided", data))
    asyncio.run(writer.close())
    return path


def test_an_untouched_log_is_good(lyra, log):
    done = lyra("audit", "verify", "audit.jsonl", "--json")
    verified = json.loads(done.stdout)
    assert done.returncode == 0
    assert verified["ok"]
    assert verified["records"] == 5
    assert (verified["unended"], verified["missed"], verified["writing"]) == ([], 0, False)
    again = lyra("audit", "verify", "audit.jsonl", "--expect", verified["head"])
    assert again.returncode == 0
    assert verified["head"] in again.stdout


def test_a_touched_log_names_its_line(lyra, log):
    """Exit 1, the file and line, and what happened to it."""
    log.write_bytes(log.read_bytes().replace(b'"deny"', b'"allo"'))
    done = lyra("audit", "verify", "audit.jsonl")
    assert done.returncode == 1
    assert done.stdout.startswith("audit.jsonl:3: changed: ")
    verified = json.loads(lyra("audit", "verify", "audit.jsonl", "--json").stdout)
    assert verified["problem"]["line"] == 3
    assert verified["problem"]["what"] == "changed"


def test_a_cut_end_is_found_with_a_noted_hash(lyra, log):
    head = json.loads(lyra("audit", "verify", "audit.jsonl", "--json").stdout)["head"]
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    alone = lyra("audit", "verify", "audit.jsonl")
    assert alone.returncode == 0
    assert "warning: the run that began at line 1 (1970-01-01 00:00:01) has no end after 4 records" in alone.stdout
    done = lyra("audit", "verify", "audit.jsonl", "--expect", head)
    assert done.returncode == 1
    assert "removed" in done.stdout


def test_show_filters_and_escapes(lyra, log):
    """A record is one line, whatever it holds, and no control character reaches the terminal."""
    done = lyra("audit", "show", "audit.jsonl")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 5
    assert "\x1b" not in done.stdout
    only = json.loads(lyra("audit", "show", "audit.jsonl", "--kind", "tool.decided", "--pid", "p1", "--json").stdout)
    assert [record["fields"]["decision"] for record in only] == ["deny"]
    decided = json.loads(lyra("audit", "show", "audit.jsonl", "--kind", "tool.decided", "--json").stdout)
    assert {record["kind"] for record in decided} == {"tool.decided"}


def test_a_missing_file_is_an_error(lyra):
    done = lyra("audit", "verify", "nowhere.jsonl")
    assert done.returncode == 2
    assert "nowhere.jsonl cannot be read" in done.stderr


@pytest.mark.parametrize("command", ["verify", "show"])
def test_what_is_no_file_is_not_read(lyra, command):
    """A device may never end."""
    done = lyra.real("audit", command, "/dev/zero")
    assert done.returncode == 2
    assert "/dev/zero is not a plain file" in done.stderr


def test_a_log_without_a_record_was_emptied(lyra):
    (lyra.folder / "empty.jsonl").touch()
    done = lyra("audit", "verify", "empty.jsonl")
    assert done.returncode == 1
    assert "empty.jsonl:1: removed: there is no record" in done.stdout


def test_what_is_no_log_is_not_shown_as_an_empty_one(lyra):
    (lyra.folder / "other.txt").write_text("hello\nworld\n")
    done = lyra("audit", "show", "other.txt")
    assert done.returncode == 2
    assert "there is no record in other.txt" in done.stderr
