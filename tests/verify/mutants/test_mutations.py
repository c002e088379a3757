"""The changes that `make mutants` makes: each gives a program that parses and is another one; the sample is fixed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from verify.mutants.mutations import Mutation, mutations_of
from verify.mutants.sample import PARTS, SOURCE, sample
from verify.mutants.trial import _batches, copy_of_source, equivalent, trial

SMALL = '''\
"""A text."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import os
LIMIT: int = 3


def small(a: int, b: bool = True) -> int:
    """Says what it does."""
    if a < LIMIT and b:
        print("é", a)
        return a + 1
    if not b:
        raise ValueError(f"{a + 1}")
    return 0 if a is None else a
'''


def changes(tmp_path: Path, source: str = SMALL) -> list[Mutation]:
    (tmp_path / "small.py").write_text(source)
    return list(mutations_of(Path("small.py"), tmp_path))


def test_the_changes_of_a_file(tmp_path):
    pairs = {(change.before, change.after) for change in changes(tmp_path)}
    assert pairs == {
        ("3", "4"),
        ("True", "False"),
        ("<", "<="),
        ("and", "or"),
        ("a < LIMIT and b", "(not (a < LIMIT and b))"),
        ('print("é", a)', "pass"),
        ("return a + 1", "return None"),
        ("+", "-"),
        ("1", "2"),
        ("not b", "(not (not b))"),
        ('raise ValueError(f"{a + 1}")', "pass"),
        ("return 0 if a is None else a", "return None"),
        ("is", "is not"),
        ("0", "1"),
    }


def test_each_change_parses_and_changes_something(tmp_path):
    before = ast.dump(ast.parse(SMALL))
    for change in changes(tmp_path):
        source = SMALL.encode()
        assert source[change.start : change.end].decode() == change.before
        after = source[: change.start] + change.after.encode() + source[change.end :]
        assert ast.dump(ast.parse(after)) != before


def test_a_key_stays_when_lines_move(tmp_path):
    keys = [change.key for change in changes(tmp_path)]
    assert [change.key for change in changes(tmp_path, "\n\n" + SMALL)] == keys
    assert len(set(keys)) == len(keys)


def test_the_sample_is_fixed_and_another_is_another():
    first = sample()
    assert len(first) == sum(PARTS.values()) == 200
    assert [change.key for change in sample()] == [change.key for change in first]
    assert not {change.key for change in first} & {change.key for change in sample(skip=200)}
    assert all(key in {change.key[:12] for change in first} for key in equivalent())


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_source(tmp_path_factory.mktemp("copy"))


@pytest.mark.slow
def test_a_change_is_made_where_the_tests_run_and_undone(copy):
    """A limit that is tested is missed when it is changed; without the change its test passes."""
    file = Path("lyra/core/rights/scope.py")
    source = (SOURCE / file).read_bytes()
    change = next(change for change in mutations_of(file, SOURCE) if change.before.startswith("return"))
    tests = {"tests/core/rights/test_glob.py": 1.0}
    assert trial(change, tests, copy).killed_by.startswith("tests/core/rights/")
    assert (copy / file).read_bytes() == source
    unchanged = change._replace(after=change.before)
    assert trial(unchanged, tests, copy).killed_by == ""


def test_of_many_tests_the_nearest_are_tried_before_others():
    """The thirty quickest are first, wherever they are."""
    others = {f"tests/a/test_{number}.py": number * 1.0 for number in range(400)}
    near = ["tests/kernel/base/test_slowest.py", "tests/kernel/base/sub/test_it.py", "tests/kernel/bus/test_bus.py"]
    first, second, third = _batches({**others, **dict.fromkeys(reversed(near), 1_000.0)}, "tests/kernel/base")
    assert first.tests == list(others)[:30]
    assert second.tests == [near[1], near[0], near[2], *list(others)[30:177]]
    assert len(third.tests) == 223


@pytest.mark.slow
def test_a_test_that_fails_without_the_change_too_kills_nothing(tmp_path, copy):
    always = tmp_path / "test_always.py"
    always.write_text("def test_it():\n    raise AssertionError\n", encoding="utf-8")
    file = Path("lyra/core/rights/scope.py")
    change = next(change for change in mutations_of(file, SOURCE) if change.before.startswith("return"))
    assert trial(change, {str(always): 0.1, "tests/core/rights/test_glob.py": 1.0}, copy).killed_by.startswith(
        "tests/core/rights/"
    )
