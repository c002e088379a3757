"""One mutant: the change is made in a copy of the source, and the tests that reach its line are run there.

Which tests call the function around a change is known from a run of all tests with `verify.recorder`; the quickest
are run first, then those of its own folder, then those of folders ever farther away. What is only reached on import, or
in processes that tests start, has none: then the tests of its folder are run, and those of folders that use its name. A
mutant is killed by the first test that fails, or by tests that do not end, and that pass without the change.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess  # noqa: TID251 - tests of a changed copy run in a process of their own
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

from verify.mutants.mutations import Mutation
from verify.mutants.sample import SOURCE

__all__ = ["Outcome", "copy_of_source", "equivalent", "trial", "try_all"]

ROOT: Final = Path(__file__).parents[2]
_BATCHES: Final = (30, 150, 600)  # how many tests are run, the quickest first
_EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
_START_S: Final = 30.0  # for pytest itself, on a busy machine
_SLACK: Final = 5.0  # how many times as long as recorded a batch may take
_PATIENCE: Final = 2  # how often a batch is tried again, with four times as long
_FOLDER_S: Final = 240.0
_FOLDERS: Final = 3  # how many other folders
# Folders below lyra/ whose tests are not in the folder of the same name.
_TESTED_ELSEWHERE: Final[dict[tuple[str, ...], tuple[str, ...]]] = {("core", "commands"): ("tools", "permissions")}
_TOO_SLOW: Final = "too slow"
# Compare files of the source with each other, and would fail with any change.
_SEE_EVERY_CHANGE: Final = (
    "tests/vega/bytecode/test_opcodes.py::test_the_machine_is_generated_from_its_template_and_the_table",
)


class Outcome(NamedTuple):
    """A mutant, and the test that killed it; "" where none did."""

    mutation: Mutation
    killed_by: str
    tests: int


def equivalent() -> dict[str, str]:
    """Changes that no test can see, by the beginning of their keys, each with the reason."""
    table: dict[str, str] = tomllib.loads(_EQUIVALENT.read_text(encoding="utf-8"))
    return table


def try_all(mutations: list[Mutation], uses: Mapping[str, list[tuple[float, str]]], *, jobs: int) -> Iterator[Outcome]:
    """Try each of these, so many at once, each in a copy of the source of its own."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            copies.put(copy_of_source(Path(folder, str(number))))

        def one(mutation: Mutation) -> Outcome:
            copy = copies.get()
            try:
                return trial(mutation, _functions(uses.get(mutation.key, [])), copy)
            finally:
                copies.put(copy)

        yield from pool.map(one, mutations)


def _functions(tests: list[tuple[float, str]]) -> dict[str, float]:
    """How many seconds each test takes, one with parameters once, as a whole; the quickest first."""
    seconds: dict[str, float] = {}
    for took, test in tests:
        name = test.partition("[")[0]
        seconds[name] = seconds.get(name, 0.0) + took
    return dict(sorted(seconds.items(), key=lambda item: item[1]))


def copy_of_source(folder: Path) -> Path:
    """A copy of the source that can be changed, below `folder`."""
    copy = folder / "src"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return copy


def trial(mutation: Mutation, tests: Mapping[str, float], copy: Path) -> Outcome:
    """Make the change in the copy, run the tests of its function (with their seconds), and undo it."""
    changed = _Changed(copy, mutation)
    try:
        count = 0
        for batch in [*(_batches(tests, _tests_of(mutation.file)) or _of_folders(mutation, copy)), _COUNTED]:
            count += len(batch.tests)
            killed_by = _killer(batch, changed)
            if killed_by:
                return Outcome(mutation, killed_by, count)
        return Outcome(mutation, "", count)
    finally:
        changed.undo()


class _Batch(NamedTuple):
    """Tests that are run together, and the seconds after which they count as too slow."""

    tests: list[str]
    limit_s: float


# Counts work in processes of its own, and so sees what is done for nothing: the last to be tried.
_COUNTED: Final = _Batch(["tests/test_work_budgets.py"], 120.0)


class _Changed:
    """The file of a mutation in a copy of the source: with the change, or as it was."""

    def __init__(self, copy: Path, mutation: Mutation) -> None:
        self.copy = copy
        self._path = copy / mutation.file
        self._source = self._path.read_bytes()
        before, after = self._source[: mutation.start], self._source[mutation.end :]
        self._mutant = before + mutation.after.encode() + after

    def make(self) -> None:
        self._path.write_bytes(self._mutant)

    def undo(self) -> None:
        self._path.write_bytes(self._source)
        os.utime(self._path)


def _killer(batch: _Batch, changed: _Changed) -> str:
    """The first of these tests that fails with the change and passes without it; "" where there is none.

    A test that fails either way, or tests that do not end either way, say nothing about the change; on a busy machine
    those that do not end are given more time first.
    """
    left_out, patience = list(_SEE_EVERY_CHANGE), _PATIENCE
    while True:
        changed.make()
        failing = _failing(batch, changed.copy, left_out)
        if not failing or failing in left_out:
            return ""
        changed.undo()
        if failing == _TOO_SLOW:
            if _failing(batch, changed.copy, left_out) != _TOO_SLOW:
                return failing
            if not patience:
                return ""
            patience, batch = patience - 1, batch._replace(limit_s=4 * batch.limit_s)
            continue
        if not _failing(batch._replace(tests=[failing]), changed.copy, left_out):
            return failing
        left_out.append(failing)


def _batches(tests: Mapping[str, float], own: str) -> list[_Batch]:
    """The quickest tests of all, and then those of the folder `own` and of the folders next to it: of a function that
    thousands of tests call, those know most about it."""

    def distance(name: str) -> int:
        pairs = zip(own.split("/"), name.split("/"), strict=False)
        return -sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    quickest, rest = list(tests)[: _BATCHES[0]], list(tests)[_BATCHES[0] :]
    names = [*quickest, *sorted(rest, key=distance)]
    first, batches = 0, []
    for size in _BATCHES:
        batch = names[first : first + size]
        if batch:
            batches.append(_Batch(batch, _START_S + _SLACK * sum(tests[name] for name in batch)))
        first += size
    return batches


def _of_folders(mutation: Mutation, copy: Path) -> list[_Batch]:
    """The tests of its folder, those with its name or its folder's (as those that start programs have), and those of
    the folders where the name that its line gives a value is used most."""
    line = (copy / mutation.file).read_text(encoding="utf-8").splitlines()[mutation.line - 1]
    name = re.match(r"\s*(\w+)", line)
    used: Counter[str] = Counter()
    if name:
        word = re.compile(rf"\b{name[1]}\b")
        for file in copy.rglob("*.py"):
            used[_tests_of(file.relative_to(copy))] += len(word.findall(file.read_text(encoding="utf-8")))
    own = _tests_of(mutation.file)
    others = [folder for folder, count in used.most_common(_FOLDERS + 1) if count and folder != own]
    batches = [_Batch([folder], _FOLDER_S) for folder in (own, *others[:_FOLDERS])]
    named = [f"**/test_{name}.py" for name in (mutation.file.stem, mutation.file.parent.name)]
    files = [path.relative_to(ROOT).as_posix() for pattern in named for path in Path(ROOT, "tests").glob(pattern)]
    return [*batches[:1], *([_Batch(files, _FOLDER_S)] if files else []), *batches[1:]]


def _tests_of(file: Path) -> str:
    """The nearest folder with tests."""
    folder = Path("tests", *_TESTED_ELSEWHERE.get(file.parts[1:-1], file.parts[1:-1]))
    return next(place for place in (folder, *folder.parents) if (ROOT / place).is_dir()).as_posix()


def _failing(batch: _Batch, copy: Path, left_out: list[str]) -> str:
    """The first of these tests that fails, without its parameters; "too slow" where they do not end."""
    deselected = [f"--deselect={name}" for name in left_out]
    options = ["-x", "-q", "-m", "not timed and not long", "-p", "no:cacheprovider", "-rfE", "--tb=no", *deselected]
    command = [sys.executable, "-m", "pytest", *options, *batch.tests]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    try:
        run = subprocess.run(  # noqa: S603 - pytest, with names of tests
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=batch.limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return _TOO_SLOW
    if run.returncode in (0, 5):
        return ""
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].split()[1].partition("[")[0] if failed else batch.tests[0]
