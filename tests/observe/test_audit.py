"""The audit log: what is written at which level, and that every later change is found."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lyra import Agent, Grant, Kernel, tool
from lyra.core.event import KINDS as EVENT_KINDS
from lyra.core.event import Event
from lyra.core.rights.capability import Capability
from lyra.errors import ConfigError
from lyra.observe import AuditLog, attach_audit, verify
from lyra.observe.audit import KINDS, LEVELS
from lyra.observe.chain import FIRST, read_links
from tests.agents.support import calls, run, says
from tests.cases import cases

KEY = "sk-ant-" + "planted0123456789abcdef"


def decided(number: int, **fields: Any) -> Event:
    data = {"tool": "Bash", "subject": f"ls {number}", "decision": "allow", "rule": "Bash(ls *)", "tainted": False}
    return Event(0, 100.0 + number, "p1", "tool.decided", {**data, **fields})


def written(path: Path, count: int = 5) -> list[bytes]:
    log = AuditLog(path, now=1.0)
    for number in range(count):
        log(decided(number))
    asyncio.run(log.close())
    return path.read_bytes().splitlines(keepends=True)


# ---------------------------------------------------------------- the chain
def test_records_are_lines_in_a_chain(tmp_path):
    """Each line has its number, its time, who, what, the hash before it and its own; the file is ours alone."""
    lines = [json.loads(line) for line in written(tmp_path / "a.jsonl")]
    assert [list(line) for line in lines] == [["seq", "at", "pid", "kind", "fields", "prev", "hash"]] * 7
    assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]
    assert [line["prev"] for line in lines] == [FIRST, *(line["hash"] for line in lines[:-1])]
    assert lines[3]["at"] == 102.0
    assert lines[3]["fields"]["subject"] == "ls 2"
    assert stat.S_IMODE(os.stat(tmp_path / "a.jsonl").st_mode) == 0o600
    verdict = verify(tmp_path / "a.jsonl")
    assert (verdict.ok, verdict.records, verdict.head) == (True, 7, lines[-1]["hash"])


def test_the_head_of_a_log_shows_later_that_its_end_was_cut_off(tmp_path):
    """Kept elsewhere: the rest of the file alone is a whole chain."""
    path = tmp_path / "a.jsonl"
    log = AuditLog(path, now=1.0)
    log(decided(1))
    log(decided(2))
    head = log.head
    lines = path.read_bytes().splitlines(keepends=True)
    assert verify(path, expect=head).ok
    path.write_bytes(b"".join(lines[:-1]))
    assert verify(path).ok
    assert not verify(path, expect=head).ok
    asyncio.run(log.close())


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> list[bytes]:
    return written(tmp_path_factory.mktemp("audit") / "whole.jsonl", 7)


def problem_of(tmp: Path, lines: list[bytes], expect: str | None = None) -> tuple[int, str] | None:
    path = tmp / "touched.jsonl"
    path.write_bytes(b"".join(lines))
    problem = verify(path, expect=expect).problem
    return None if problem is None else (problem.line, problem.what)


@settings(max_examples=cases(300), deadline=None)
@given(data=st.data())
def test_any_changed_byte_is_found(data, whole, tmp_path_factory):
    """Whichever byte becomes whichever other: the line is named, or the one before when it ate a newline."""
    text = b"".join(whole)
    offset = data.draw(st.integers(0, len(text) - 1))
    byte = data.draw(st.integers(0, 255))
    assume(text[offset] != byte)
    path = tmp_path_factory.getbasetemp() / "byte.jsonl"
    path.write_bytes(text[:offset] + bytes([byte]) + text[offset + 1 :])
    problem = verify(path).problem
    assert problem is not None
    assert problem.line in (text[:offset].count(b"\n") + 1, text[:offset].count(b"\n") + 2)


def test_every_removed_line_is_found(whole, tmp_path):
    """In the middle the next line is named; at the end only a hash that was noted shows it."""
    head = json.loads(whole[-1])["hash"]
    for number in range(len(whole) - 1):
        assert problem_of(tmp_path, whole[:number] + whole[number + 1 :]) == (number + 1, "removed")
    for left in range(1, len(whole)):
        assert problem_of(tmp_path, whole[:left]) is None
        assert problem_of(tmp_path, whole[:left], head) == (left + 1, "removed")
    assert problem_of(tmp_path, [], head) == (1, "removed")
    assert problem_of(tmp_path, whole, head) is None


def test_a_noted_hash_stays_good_while_the_log_grows(whole, tmp_path):
    """What was the last hash once need not be the last one now."""
    for line in whole:
        assert problem_of(tmp_path, whole, json.loads(line)["hash"]) is None
    assert problem_of(tmp_path, whole, "ab" * 32) == (len(whole) + 1, "removed")


def test_every_swap_is_found(whole, tmp_path):
    for first in range(len(whole)):
        for second in range(first + 1, len(whole)):
            lines = list(whole)
            lines[first], lines[second] = lines[second], lines[first]
            assert problem_of(tmp_path, lines) == (first + 1, "reordered")


def test_every_inserted_line_is_found(whole, tmp_path):
    """A line of one's own, an empty one, or a copy of another, at any place."""
    own = b'{"seq":3,"at":1.0,"pid":"","kind":"x","fields":{},"prev":"","hash":"' + b"0" * 64 + b'"}\n'
    for number in range(len(whole)):
        for line in (own, b"\n", *whole):
            problem = problem_of(tmp_path, [*whole[:number], line, *whole[number:]])
            assert problem is not None, (number, line)
            assert problem[1] in ("inserted", "reordered", "changed", "removed")
            assert problem[0] in (number + 1, number + 2)


def test_a_line_written_anew_with_its_own_hash_is_found(whole, tmp_path):
    """The next record still holds the old hash."""
    forged = AuditLog(tmp_path / "other.jsonl", now=1.0)
    for number in range(7):
        forged(decided(number, decision="deny"))
    lines = (tmp_path / "other.jsonl").read_bytes().splitlines(keepends=True)
    asyncio.run(forged.close())
    assert problem_of(tmp_path, [*whole[:3], lines[3], *whole[4:]]) == (4, "changed")


# ---------------------------------------------------------------- runs
def test_a_run_without_an_end_is_told(whole, tmp_path):
    """Of a log that was cut after any line but its last, though every line in it is as it was written."""
    path = tmp_path / "cut.jsonl"
    for left in range(1, len(whole) + 1):
        path.write_bytes(b"".join(whole[:left]))
        verdict = verify(path)
        assert verdict.ok
        assert verdict.unended == (((1, 1.0, left),) if left < len(whole) else ())


def test_a_run_that_goes_on_is_not_one_without_an_end(tmp_path):
    path = tmp_path / "a.jsonl"
    log = AuditLog(path)
    log(decided(1))
    assert verify(path)[3:] == ((), 0, True)
    asyncio.run(log.close())
    assert verify(path)[3:] == ((), 0, False)


def test_a_kernels_log_ends_at_the_kernels_time(tmp_path):
    path = tmp_path / "a.jsonl"
    log = AuditLog(path, now=1.0, clock=lambda: 9.0)
    asyncio.run(log.close())
    assert [link.at for link in read_links(path)] == [1.0, 9.0]


def test_records_missed_until_the_end_are_counted_in_it(tmp_path, monkeypatch):
    path, write = tmp_path / "a.jsonl", os.write
    log = AuditLog(path, failed=lambda error: None)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    log(decided(1))
    monkeypatch.setattr(os, "write", write)
    asyncio.run(log.close())
    verdict = verify(path)
    assert (verdict.ok, verdict.records, verdict.missed, verdict.unended) == (True, 2, 1, ())


# ---------------------------------------------------------------- writers
def test_the_chain_goes_on_in_an_existing_file(tmp_path):
    """A second life of the log begins where the first one ended."""
    path = tmp_path / "a.jsonl"
    written(path, 2)
    written(path, 2)
    verdict = verify(path)
    assert (verdict.ok, verdict.records, verdict.unended) == (True, 8, ())


def test_a_second_writer_is_refused(tmp_path):
    """Two writers would interleave their chains."""
    log = AuditLog(tmp_path / "a.jsonl")
    with pytest.raises(ConfigError, match="another"):
        AuditLog(tmp_path / "a.jsonl")
    asyncio.run(log.close())
    asyncio.run(AuditLog(tmp_path / "a.jsonl").close())


@pytest.mark.parametrize("cut", [1, 2, 40, 200])
def test_what_a_crash_left_of_a_line_is_taken_away_and_told(tmp_path, cut):
    """The next writer goes on after the last whole record, and says how much it took away."""
    path = tmp_path / "a.jsonl"
    data = b"".join(written(path, 3))
    path.write_bytes(data[:-cut])
    assert verify(path).problem is not None
    asyncio.run(AuditLog(path).close())
    *_, opened, _closed = read_links(path)
    assert opened.kind == "audit.opened"
    assert opened.fields["cut_bytes"] > 0
    assert opened.seq == 5
    verdict = verify(path)
    assert verdict.ok
    assert [run.line for run in verdict.unended] == [1]


def test_a_log_that_was_cut_off_in_its_first_line_can_be_used(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(written(path, 0)[0][:30])
    asyncio.run(AuditLog(path).close())
    assert verify(path).ok


def test_a_killed_process_leaves_a_whole_chain(tmp_path):
    """SIGKILL between two writes, wherever it falls, and the log goes on."""
    path = tmp_path / "a.jsonl"
    code = (
        "import sys; from lyra.observe import AuditLog; from lyra.core.event import Event\n"
        "log = AuditLog(sys.argv[1]); print('up', flush=True)\n"
        "while True: log(Event(0, 1.0, 'p1', 'tool.decided', {'tool': 'Bash', 'subject': 'x' * 200}))"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.communicate()
    written(path, 1)
    assert verify(path).ok


@pytest.mark.parametrize(
    "content", [b"not a log\n", b"precious", b'{"seq":1}\n', b"{", b'{"seq":1,', b'{"seq":1,"at":2,"pid":"","mine":3}']
)
def test_a_file_that_is_no_log_is_left_alone(tmp_path, content):
    """Nothing is appended to, or cut from, something else, and who may read it may read it still."""
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    path.chmod(0o755)
    with pytest.raises(ConfigError, match="does not end with a record"):
        AuditLog(path)
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o755


def test_records_that_could_not_be_written_are_counted_by_the_next(tmp_path, monkeypatch):
    """And the callback is told, which can stop the kernel."""
    path, told, write = tmp_path / "a.jsonl", [], os.write
    log = AuditLog(path, failed=told.append)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    log(decided(1))
    log(decided(2))
    monkeypatch.setattr(os, "write", write)
    log(decided(3))
    asyncio.run(log.close())
    assert [str(error) for error in told] == [f"the audit log {path} cannot be written: No space left on device"] * 2
    assert [(link.kind, link.fields.get("missed")) for link in read_links(path)][1:] == [
        ("audit.gap", 2),
        ("tool.decided", None),
        ("audit.closed", None),
    ]
    verdict = verify(path)
    assert (verdict.ok, verdict.missed, verdict.unended) == (True, 2, ())


def test_a_damaged_end_is_not_continued(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = written(path, 3)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1].replace(b"closed", b"opened"))
    with pytest.raises(ConfigError, match="does not end with a record"):
        AuditLog(path)


def test_links_folders_and_pipes_are_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "."):
        with pytest.raises(ConfigError, match="audit log"):
            AuditLog(tmp_path / name)


def test_a_full_disk_is_an_error_and_leaves_no_half_line(tmp_path):
    """Under a limit on file sizes the write is cut short: the record is not there, the chain is whole."""
    code = (
        "import resource, signal, sys; from lyra.observe import AuditLog; from lyra.core.event import Event\n"
        "from lyra.errors import StoreFull\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "log = AuditLog(sys.argv[1]); resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "try:\n"
        "    while True: log(Event(0, 1.0, 'p1', 'tool.decided', {'tool': 'Bash', 'subject': 'x' * 100}))\n"
        "except StoreFull as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.jsonl")], capture_output=True, text=True, check=True
    )
    assert "audit log" in done.stdout
    verdict = verify(tmp_path / "a.jsonl")
    assert verdict.ok
    assert verdict.records > 2
    assert [run.records for run in verdict.unended] == [verdict.records]


# ---------------------------------------------------------------- what is written
def test_every_kind_is_one_of_the_kernels():
    assert set(KINDS) <= set(EVENT_KINDS)
    assert {row.level for row in KINDS.values()} <= set(LEVELS)


def test_secrets_and_long_texts_do_not_get_in(tmp_path):
    """Known secrets in any spelling, what looks like a key, and named fields are blotted out; long texts are cut."""
    log = AuditLog(tmp_path / "a.jsonl", level="basic", secrets=lambda: ["correct horse battery"])
    log(decided(1, subject=f"curl -H 'x: {KEY}' correct%20horse%20battery " + "x" * 10_000, reason="\udcff\x00"))
    log(decided(2, subject="a" * 5_990 + f" {KEY} " + "b" * 9_000))  # the cut falls into the key
    log(Event(0, 1.0, "p1", "capability.denied", {"effect": "tool:X", "error": {"fields": {"api_key": "hunter2"}}}))
    asyncio.run(log.close())
    text = (tmp_path / "a.jsonl").read_text()
    assert "planted" not in text
    assert "horse" not in text
    assert "hunter2" not in text
    assert max(map(len, text.splitlines())) < 10_000
    assert verify(tmp_path / "a.jsonl").ok


def test_no_password_of_a_command_gets_in(tmp_path):
    """Neither in the command itself nor where a question or a reason quotes it, also where it is cut."""
    line = "mysql -pS3CRET db; curl -u ada:S3CRET x.org; tool --password S3CRET; git clone https://a:S3CRET@x.org"
    log = AuditLog(tmp_path / "a.jsonl", level="basic")
    log(decided(1, subject=line, reason=f"no rule allows {line}"))
    log(decided(2, subject=line, tool="mcp__shell__run"))
    asked = {"id": "i1", "kind": "confirmation", "question": f"Allow Bash?\n{line}", "message": "x" * 400 + line}
    log(Event(0, 1.0, "p1", "interrupt.created", asked))
    asyncio.run(log.close())
    text = (tmp_path / "a.jsonl").read_text()
    assert "S3CRET" not in text
    assert text.count("mysql -p*** db; curl -u ada:*** x.org; tool --password ***; git clone https://a:***@") == 4


def test_what_a_command_does_is_in_its_record(tmp_path):
    """Neither a thing that looks like a password nor length hides it, at any level."""
    lines = {
        "echo https://u:p;touch${IFS}pwned;echo${IFS}x@h/": "pwned",
        f"echo {'a' * 400}; touch pwned": "touch pwned",
        f"echo {'a' * 4_000}; touch pwned; echo {'b' * 3_000}": "touch pwned",
        f"echo {'a' * 20_000}; touch pwned": "touch pwned",
    }
    for level in ("basic", "detailed"):
        log = AuditLog(tmp_path / level, level=level)
        for line in lines:
            log(decided(1, subject=line))
        asyncio.run(log.close())
        records = [json.loads(line)["fields"] for line in (tmp_path / level).read_text().splitlines()[1:-1]]
        for record, part in zip(records, lines.values(), strict=True):
            assert part in record["subject"]
        whole = hashlib.sha256(list(lines)[-1].encode()).hexdigest()
        assert f"sha256 {whole}" in records[-1]["subject"]


def test_only_named_fields_are_written(tmp_path):
    log = AuditLog(tmp_path / "a.jsonl")
    log(decided(1, arguments={"content": "whatever it was"}))
    asyncio.run(log.close())
    assert "whatever" not in (tmp_path / "a.jsonl").read_text()


def test_data_of_any_size_and_shape_fits_into_a_line(tmp_path):
    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    log = AuditLog(tmp_path / "a.jsonl", level="detailed")
    wide = {f"k{n}": {f"j{m}": "y" * 5_000 for m in range(60)} for n in range(60)}
    for value in (deep, wide, {1: 2**70, None: b"x"}, [float(1)] * 1000, object()):
        log(Event(0, 1.0, "p1", "process.terminated", {"reason": "x", "error": value}))
    asyncio.run(log.close())
    verdict = verify(tmp_path / "a.jsonl")
    assert (verdict.ok, verdict.records) == (True, 7)
    asyncio.run(AuditLog(tmp_path / "a.jsonl").close())


# ---------------------------------------------------------------- a kernel's
@tool(needs=[Capability("net.http", "example.com")])
def fetch(url: str) -> str:
    """Fetch."""
    return url


async def busy(path: Path, level: str, store: str = "memory") -> list[str]:
    """An agent is denied a right, and a program asks a person."""

    async def asking(ctx: Any) -> Any:
        return (await ctx.ask(f"use {KEY}?", "confirmation")).approved

    async with Kernel(store) as kernel:
        log = attach_audit(kernel, path, level=level)
        agent = Agent("a", model=says(calls("fetch", url="x"), "done"), tools=[fetch])
        process = await kernel.spawn(agent, grant=Grant(allow=["tool.*", "model.*"]))
        await process.send("go")
        handle = await kernel.spawn(asking)
        while not kernel.interrupts.list_interrupts():
            await asyncio.sleep(0)
        kernel.interrupts.resolve_interrupt(kernel.interrupts.list_interrupts()[0].id, {"approved": True})
        assert (await handle.wait()).result is True
        assert (log is None) == (level == "none")
    return [link.kind for link in read_links(path)] if log is not None else []


@pytest.mark.parametrize("store", ["memory", "file"])
def test_levels(tmp_path, store):
    """basic: denials, questions and answers; detailed: calls and processes too; none: no file."""

    def kinds(level: str) -> list[str]:
        target = store if store == "memory" else str(tmp_path / f"{level}.db")
        kinds_: list[str] = run(busy(tmp_path / f"{level}.jsonl", level, target))
        return kinds_

    basic = kinds("basic")
    denied = ["capability.denied", "tool.refused"]
    assert basic == ["audit.opened", *denied, "interrupt.created", "interrupt.resolved", "audit.closed"]
    detailed = kinds("detailed")
    assert {*basic, "tool.called", "process.created", "process.terminated"} <= set(detailed)
    assert kinds("none") == []
    for level in ("basic", "detailed"):
        assert verify(tmp_path / f"{level}.jsonl").ok
        assert "planted" not in (tmp_path / f"{level}.jsonl").read_text()
    denial = next(link for link in read_links(tmp_path / "basic.jsonl") if link.kind == "capability.denied")
    assert denial.fields["effect"] == "tool:fetch"
    assert denial.fields["error"]["fields"]["capability"] == "net.http:example.com"


def test_a_folder_gets_a_file_for_each_kernel(tmp_path):
    """Two kernels at once each have their own chain."""

    async def main() -> None:
        async with Kernel() as first, Kernel() as second:
            assert attach_audit(first, f"{tmp_path}/logs/") is not None
            assert attach_audit(second, tmp_path / "logs") is not None

    run(main())
    files = list((tmp_path / "logs").iterdir())
    assert [verify(file).ok for file in files] == [True, True]


@pytest.mark.parametrize("path", ["file/a.jsonl", "file/logs/", "/proc/none/a.jsonl", "/proc/a.jsonl", "a\0b"])
def test_where_it_cannot_be_written_is_said_at_once(tmp_path, path):
    """A ConfigError that names the path and what to do."""
    (tmp_path / "file").write_text("")

    async def main() -> None:
        async with Kernel() as kernel:
            with pytest.raises(ConfigError, match="audit log") as caught:
                attach_audit(kernel, f"{tmp_path}/{path}" if not path.startswith("/") else path)
            assert "may write" in str(caught.value.hint)

    run(main())


@pytest.mark.parametrize("path", ["no/where/a.jsonl", "no/where/at/all/"])
def test_a_way_that_is_not_there_is_a_mistake(tmp_path, path):
    """One folder is made for a log, and `.lyra` above it; a longer way is not."""

    async def main(path: str) -> None:
        async with Kernel() as kernel:
            attach_audit(kernel, f"{tmp_path}/{path}")

    with pytest.raises(ConfigError, match="No such file or directory"):
        run(main(path))
    assert not (tmp_path / "no").exists()
    run(main("logs/a.jsonl"))
    run(main(".lyra/audit/"))
    assert len(list(tmp_path.glob("logs/*"))) == len(list(tmp_path.glob(".lyra/audit/*"))) == 1


def test_an_unknown_level_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="basic"):
        AuditLog(tmp_path / "a.jsonl", level="basics")


def test_a_record_after_closing_is_dropped(tmp_path):
    log = AuditLog(tmp_path / "a.jsonl")
    asyncio.run(log.close())
    log(decided(1))
    assert verify(tmp_path / "a.jsonl").records == 2


@pytest.mark.parametrize("text", ["hello\n", "{", '{"seq":1,"mine":true}', ""])
def test_a_file_that_is_no_log_stays_as_it_is(tmp_path, text):
    """Its contents and its mode; an empty one may become a log."""
    path = tmp_path / "other"
    path.write_text(text)
    path.chmod(0o755)
    if not text:
        written(path)
        assert verify(path).ok
        return
    with pytest.raises(ConfigError, match="does not end with a record"):
        AuditLog(path)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == (text, 0o755)
