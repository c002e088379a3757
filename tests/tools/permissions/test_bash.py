"""A real bash is the judge: whatever makes it run `rm`, a deny for `rm` has seen."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lyra.core.ids import make_random
from lyra.tools.shell.command_line import read_line
from lyra.tools.shell.text_glob import TextGlob
from tests.cases import cases
from tests.tools.shell.test_command_line import HARMLESS, RUNS_RM
from verify.fuzz.fuzz import command_line

BASH = shutil.which("bash")
RM = TextGlob("rm *")
PROGRAMS = ("bash", "sh", "env", "xargs", "timeout", "nohup", "true", "echo", "cat", "printf", "test", "find", "nice")

pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash")


class Judge:
    """Runs lines where `rm` is a program that only notes that it ran."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.work, self.note = folder / "bin", folder / "work", folder / "ran"
        self.programs.mkdir()
        self.work.mkdir()
        script = self.programs / "rm"
        script.write_text(f"#!/bin/sh\n: >> {self.note}\n")
        script.chmod(0o755)
        for name in PROGRAMS:
            program = shutil.which(name)
            if program:
                (self.programs / name).symlink_to(program)

    def runs_rm(self, line: str) -> bool:
        self.note.unlink(missing_ok=True)
        (self.work / "x").touch()
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [str(BASH), "-c", line],
                cwd=self.work,
                env={"PATH": str(self.programs), "HOME": str(self.work)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=3,
                check=False,
                process_group=0,
            )
        return self.note.exists()


def unseen(judge: Judge, lines: list[str]) -> list[str]:
    passed = [line for line in lines if not read_line(line).is_touched_by(RM) and "\0" not in line]
    return [line for line in passed if judge.runs_rm(line)]


def test_the_judge_sees_rm(tmp_path: Path):
    """The other way round: of the lines that are written to run `rm`, bash does run many here."""
    judge = Judge(tmp_path)
    simple = [line for line in RUNS_RM if line.startswith(("rm", "git status", "(", "{", "eval", "bash -c 'rm"))]
    assert sum(judge.runs_rm(line) for line in simple) > 20


def test_harmless_lines_are_harmless(tmp_path: Path):
    """What the tests call harmless is."""
    assert not unseen(Judge(tmp_path), HARMLESS)


@pytest.mark.slow
def test_no_made_up_line_runs_rm_unseen(tmp_path: Path):
    """Thousands of lines of a shell's own pieces; those that a deny would let pass are run."""
    lines = [command_line(make_random(seed)) for seed in range(cases(6_000))]
    lines = [line for line in lines if "rm" in line and not os.path.isabs(line)]
    assert not unseen(Judge(tmp_path), lines)
