"""A run of the tests ends with what was skipped and why, and fails where a part is skipped that is here."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests import conftest, skips
from tests.cases import each
from tests.skips import PARTS, Part, Skipped, main, summary

ROOT = Path(__file__).parents[1]
MARKS = ((), ("long",), ("timed",), ("long", "timed"))
PLANTED = """
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_of_a_part(n):
    pytest.skip("Erlang is not here")

@pytest.mark.skipif(True, reason="this provider takes no images")
def test_of_a_case(): ...

def test_that_runs(): ...
"""


def _planted(monkeypatch: pytest.MonkeyPatch, *, is_here: bool) -> None:
    monkeypatch.setattr(skips, "PARTS", (Part("Erlang", "Erlang", lambda: is_here),))


@pytest.mark.parametrize(
    "workers",
    [pytest.param((), id="alone", marks=pytest.mark.long), pytest.param(("--forks", "2"), id="by workers")],
)
def test_a_run_tells_what_it_skipped(tmp_path: Path, monkeypatch, capsys, workers):
    """The parts with their reasons and how many tests each left out; a part that is here fails the run."""
    (tmp_path / "test_planted.py").write_text(PLANTED)
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    path = tmp_path / "skips"
    command = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", *workers, str(tmp_path)]
    env = {**os.environ, "LYRA_TESTS_SKIPS": str(path)}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=env, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
    _planted(monkeypatch, is_here=False)
    assert main(str(path)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "skipped:",
        "  some cases (1): this provider takes no images",
        "  Erlang (2): Erlang is not here",
        "  no_such_module (1): could not import 'no_such_module': No module named 'no_such_module'",
    ]
    _planted(monkeypatch, is_here=True)
    assert main(str(path)) == 1
    assert "  Erlang (2): Erlang is not here  <- it is here: its tests must run\n" in capsys.readouterr().out


def test_a_run_that_skips_nothing_says_so(tmp_path: Path, capsys):
    assert main(str(tmp_path / "none")) == 0
    assert capsys.readouterr().out == "nothing was skipped\n"


def test_a_module_that_is_here_is_not_skipped():
    assert summary([Skipped("t", "could not import 'msgspec': broken")])[1] == 1


def _reasons() -> list[str]:
    """The texts with which the tests skip themselves."""
    texts = []
    for file in Path(__file__).parent.rglob("*.py"):
        source = file.read_text()
        if file.name in ("test_skips.py", "test_limits.py") or ".skip" not in source:
            continue
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in ("skip", "skipif"):
                texts += [node.value for node in ast.walk(call) if isinstance(node, ast.Constant)]
    return [text for text in texts if isinstance(text, str)]


def test_every_part_is_one_that_some_test_can_skip():
    """A reason that is worded anew takes its part along."""
    elsewhere = {"bubblewrap", "Landlock", "PostgreSQL", "Redis", "Erlang"}  # worded outside the tests
    texts = "\n".join(_reasons())
    assert [part.name for part in PARTS if part.name not in elsewhere and not part.is_meant(texts)] == []


TOOLS = ("python", "ruff", "lint-imports", "mypy")
STUB = """#!/bin/sh
echo "$(basename "$0") $*"
case "$*" in *"$FAILING"*) exit 1;; *tests.again*) exit 1;; esac
"""


@pytest.mark.parametrize("failing", ["pytest -m not timed", "pytest -m timed and", "tests.skips", "nothing"])
def test_a_run_ends_with_the_list_whatever_failed(tmp_path: Path, failing: str):
    """What continuous integration calls, with programs that only say their names; one of them fails."""
    for name in ("Makefile", ".ci/run"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in (
        ".ci/postgres",
        ".ci/iproute2",
        ".ci/redis",
        ".ci/erlang",
        ".ci/bubblewrap",
        ".ci/ripgrep",
        ".ci/node",
        ".ci/tools",
        ".ci/chromium",
        *map(".venv/bin/{}".format, TOOLS),
    ):
        stub = tmp_path / name
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text(STUB, encoding="utf-8")
        stub.chmod(0o755)
    for name in ("pyproject.toml", "hatch_build.py", "proto/lyra/engine/v1/engine.proto"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_time.py").write_text("pytest.mark.timed", encoding="utf-8")
    for name in (".made", ".installed", ".installed-check"):
        (tmp_path / ".venv" / name).touch()
    env = {**os.environ, "FAILING": failing, "MAKEFLAGS": "", "ARGS": ""}
    done = subprocess.run([tmp_path / ".ci/run"], env=env, capture_output=True, text=True, check=False, timeout=60)
    lines = [line for line in done.stdout.splitlines() if line.startswith("python -m")]
    assert "python -m tests.skips" in lines[-1], done.stdout + done.stderr
    assert any("-m timed and not long tests/test_time.py" in line for line in lines)
    assert (done.returncode == 0) == (failing == "nothing"), done.stderr


@each([*conftest.LONG, *conftest.NOT_LONG])
def test_every_name_of_a_long_test_is_one_of_a_test(name: str):
    """A test that was renamed would be run again by `make test`, or by nobody."""
    file, _, function = name.partition("::")
    place = ROOT / "tests" / file
    assert place.exists()
    assert not function or f"def {function.partition('[')[0]}" in place.read_text(encoding="utf-8")


def test_two_runs_try_every_test():
    """What `make test` leaves out, `make verify` runs, timed or not."""
    tried = []
    for marked in ("not timed and not long", "timed and not long", "long and not timed", "long and timed"):
        assert f'MARKED="{marked}"' in (ROOT / "Makefile").read_text(encoding="utf-8")
        expression = Expression.compile(marked)
        tried += [marks for marks in MARKS if expression.evaluate(lambda name, /, **_: name in marks)]  # noqa: B023
    assert sorted(tried) == sorted(MARKS)
