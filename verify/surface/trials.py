"""Tries entries one by one: with the entry switched off, a test that uses it must fail.

Which tests use an entry is known from a run of all tests with `verify.recorder`. Of those the quickest whose names and
files speak of the entry are run, in a process of their own in which the entry is off; the first that fails shows the
entry. What was shown stands in `shown.toml`, which the next trial begins with: a test that still fails is enough.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import signal
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final, NamedTuple

import pytest

from verify.surface.entries import KINDS, Entry
from verify.surface.evidence import all_tests, usage_of
from verify.surface.taps import TAPPED, switch_off

__all__ = ["SHOWN", "Trial", "candidates", "part_of", "shown", "trial", "try_all", "write_shown"]

SHOWN: Final = Path(__file__).parent / "shown.toml"
_SITE: Final = Path(__file__).parent / "site"
_BATCHES: Final = (4, 12, 60)  # how many tests are tried, first and then
_LIMIT_S: Final = 30.0  # a test that takes longer fails: those that are tried take a few seconds
_BEGINS, _FAILS, _TOO_LONG = "begins ", "fails ", "too long"
# Their fixtures take long, and they speak of no entry.
_SLOW_TO_BEGIN: Final = (
    *("tests/verify/", "tests/test_surface.py", "tests/test_structure.py", "tests/test_glossary.py"),
    "tests/test_examples.py",
)
_REFUSES: Final = re.compile(r"wrong|refuse|invalid|mistake|nonsense|bad_|rejected|hostile")

Uses = Mapping[str, list[tuple[float, str]]]  # entry → the tests that use it, with their seconds


class Trial(NamedTuple):
    """An entry, and the test that failed when it was off; "" where none did."""

    entry: str
    test: str


# ---------------------------------------------------------------- which tests
def candidates(entry: Entry, tests: list[tuple[float, str]]) -> list[str]:
    """The tests to try, the likeliest first; of one with parameters, two.

    That a wrong value is refused does not show what a right one does."""
    tests = [(seconds, test) for seconds, test in tests if not test.startswith(_SLOW_TO_BEGIN)]
    if entry.kind != "error":
        tests = [(seconds, test) for seconds, test in tests if not _REFUSES.search(test.partition("::")[2])]
    ranked = sorted(tests, key=lambda row: (-_speaks(entry, row[1]) + min(row[0], 5.0), row[1]))
    chosen: list[str] = []
    count: dict[str, int] = {}
    for _, test in ranked:
        plain = test.partition("[")[0]
        count[plain] = count.get(plain, 0) + 1
        if count[plain] <= 2:
            chosen.append(test)
    return chosen


def _speaks(entry: Entry, test: str) -> float:
    """How much the name of a test and its file speak of an entry."""
    file, _, name = test.partition("::")
    places = [part.removeprefix("test_").removesuffix(".py") for part in file.split("/")]
    near = sum(part in places for part in entry.home.split(".") if part != "lyra")
    words = [part for word in entry.words[-2:] for part in re.split(r"[._-]", word.lower()) if len(part) > 2]
    return near + 2.0 * sum(word in name for word in words)


# ---------------------------------------------------------------- one trial
class _Teller:
    """A plugin that tells which test begins, and of the first that fails."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tell(f"{_BEGINS}{nodeid}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._tell(f"{_FAILS}{report.nodeid}")


def trial(entry: Entry, tests: list[str]) -> Trial:
    """Run these tests with the entry off, in a child of this process."""
    tests = list(tests)
    for size in _BATCHES:
        batch, tests = tests[:size], tests[size:]
        failed = _in_child(entry, batch) if batch else ""
        if failed:
            return Trial(entry.id, failed.partition("[")[0])
    return Trial(entry.id, "")


def _run(entry: Entry, tests: list[str], tell: Callable[[str], object]) -> None:
    switch_off(entry)
    os.environ["LYRA_SURFACE_OFF"] = entry.id  # and in the programs that the tests start
    os.environ["PYTHONPATH"] = os.pathsep.join((str(_SITE), str(_SITE.parents[2]), os.environ.get("PYTHONPATH", "")))
    pytest.main([*tests, "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"], plugins=[_Teller(tell)])


def _in_child(entry: Entry, tests: list[str]) -> str:
    """The first of these tests that fails, or does not end, in a child process; "" where all pass."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        try:
            _run(entry, tests, lambda line: os.write(writer, f"{line}\n".encode()))
        finally:
            os._exit(0)
    os.close(writer)
    lines = _lines(reader)
    os.close(reader)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    failed = [line[len(_FAILS) :] for line in lines if line.startswith(_FAILS)]
    begun = [line[len(_BEGINS) :] for line in lines if line.startswith(_BEGINS)]
    endless = begun[-1:] if lines and lines[-1] == _TOO_LONG else []
    return next(iter((*failed, *endless)), "")


def _lines(reader: int) -> list[str]:
    """What the child told, with `_TOO_LONG` at the end where it stood still."""
    text = b""
    while select.select([reader], [], [], _LIMIT_S)[0]:
        piece = os.read(reader, 65536)
        text += piece
        if not piece or _FAILS.encode() in text:
            return text.decode().splitlines()
    return [*text.decode().splitlines(), _TOO_LONG]


# ---------------------------------------------------------------- all of them
def try_all(
    entries: list[Entry],
    uses: Uses,
    *,
    jobs: int,
    progress: Callable[[int, int], None],
) -> Iterator[Trial]:
    """Try each of these entries, in `jobs` processes, with the test that showed it last first."""
    known = shown()
    readers = [_worker(entries[number::jobs], known, uses) for number in range(jobs)]
    done = 0
    while readers:
        for reader in select.select(readers, [], [])[0]:
            line = reader.readline()
            if not line:
                readers.remove(reader)
                reader.close()
                continue
            done += 1
            progress(done, len(entries))
            yield Trial(*json.loads(line))


def _worker(entries: list[Entry], known: Mapping[str, str], uses: Uses) -> IO[bytes]:
    """A process that tries these entries, each in a child of its own; what it writes, a line for each."""
    reader, writer = os.pipe()
    if not os.fork():
        try:
            for entry in entries:
                outcome = trial(entry, _ordered(entry, known, uses))
                os.write(writer, json.dumps(outcome).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writer)
    return open(reader, "rb", buffering=0)


def _ordered(entry: Entry, known: Mapping[str, str], uses: Uses) -> list[str]:
    before = known.get(entry.id)
    likely = candidates(entry, uses.get(entry.id) or _readers(entry))
    return [*([before] if before else []), *(test for test in likely if test != before)]


def _readers(entry: Entry) -> list[tuple[float, str]]:
    """The tests whose source uses the entry, where no test uses it in its own process: programs that tests start do."""
    return [(1.0, test) for test in all_tests() if (usage := usage_of(test)) is not None and usage.uses(entry)]


def part_of(entries: list[Entry], count: int) -> list[Entry]:
    """So many of these entries, always the same ones."""
    return sorted(entries, key=lambda entry: hashlib.sha256(entry.id.encode()).digest())[:count]


def shown() -> dict[str, str]:
    """What was shown so far: entry → test."""
    if not SHOWN.exists():
        return {}
    tables: Mapping[str, Mapping[str, str]] = tomllib.loads(SHOWN.read_text(encoding="utf-8"))
    return {f"{kind}:{name}": test for kind, rows in tables.items() for name, test in rows.items()}


def write_shown(tests: Mapping[str, str]) -> None:
    lines = ["# Entry → a test that fails with the entry switched off. Written by `python -m verify surface --try`."]
    for kind in TAPPED:
        rows = [entry.name for entry in KINDS[kind]() if tests.get(entry.id)]
        lines += ["", f"[{kind}]", *(f"{json.dumps(row)} = {json.dumps(tests[f'{kind}:{row}'])}" for row in rows)]
    SHOWN.write_text("\n".join(lines) + "\n", encoding="utf-8")
