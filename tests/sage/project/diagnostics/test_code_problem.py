"""Problems are read from what programs print, and told apart by their words, not by their lines."""

from __future__ import annotations

import pytest

from lyra.sage.project.diagnostics.code_problem import PROBLEMS_MAX, CheckReport, CodeProblem, describe, read_problems


def read(output: str, *, failed: bool = True) -> list[str]:
    return [problem.shown for problem in read_problems("p", output, root="/work", failed=failed)]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("a.py:3:5: F401 unused", "a.py:3:5: F401 unused (p)"),
        ("a.py:3: error: wrong", "a.py:3: error: wrong (p)"),
        ("/work/src/a.py:3:5: x", "src/a.py:3:5: x (p)"),
        ("./src/../a.go:3:5: x", "a.go:3:5: x (p)"),
        ("/elsewhere/a.py:3:5: x", "/elsewhere/a.py:3:5: x (p)"),
        ("src/a.ts(3,5): error TS1: x", "src/a.ts:3:5: error TS1: x (p)"),
        ("src/a b.cs(3): error: x", "src/a b.cs:3: error: x (p)"),
        ("a.sh:3:5:no blank", "a.sh:3:5: no blank (p)"),
        ("a.py:3:5: \x1b[31mred\u202e", "a.py:3:5: ⟨U+001B⟩[31mred⟨U+202E⟩ (p)"),
    ],
)
def test_places_as_programs_write_them(line, shown):
    assert read(line) == [shown]


def test_lines_without_a_place_count_only_if_there_is_no_other_and_the_program_failed():
    assert read("Found 1 error.\na.py:1:1: x\n  1 | code\n") == ["a.py:1:1: x (p)"]
    assert read("no such option\n\nusage: …\n") == ["no such option (p)", "usage: … (p)"]
    assert read("All checks passed!\n", failed=False) == []
    assert read("12:30:15: it is late", failed=False) == []


def test_problems_are_bounded():
    assert len(read("a.py:1:1: x\n" * 2_000)) == PROBLEMS_MAX
    assert len(read(f"a.py:1:1: {'x' * 5_000}")[0]) < 400
    assert read("a." + "(" * 100_000 + "\n" + "a.b" * 100_000, failed=False) == []


def report(*texts: str, program: str = "lint", failure: str = "") -> CheckReport:
    problems = tuple(CodeProblem(program, "a.py", number, 1, text) for number, text in enumerate(texts, start=1))
    return CheckReport(program, problems, failure)


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ((), (report(),), ["Diagnostics: no problems (lint)"]),
        ((report("x"),), (report("y", "x"),), ["Diagnostics of lint: 1 new, 1 as before", "new: a.py:1:1: y (lint)"]),
        ((report("x"),), (report("x", program="other"),), ["Diagnostics of other: 1 new, 0 as before"]),
        (None, (report("x"),), ["Diagnostics: 1 of lint", "a.py:1:1: x (lint)"]),
        ((), (report(failure="it is gone"),), ["Diagnostics: not known", "lint: it is gone"]),
        ((), (report(), report(program="b", failure="late")), ["Diagnostics: no problems (lint)", "b: late"]),
    ],
)
def test_the_lines_that_show_them(before, after, lines):
    assert describe(before, after).split("\n")[: len(lines)] == lines


def test_long_lists_say_how_many_are_left_out():
    text = describe((report(*map(str, range(30))),), (report(*map(str, range(100))),))
    assert text.count("new: ") == 20
    assert "… and 50 more\n" in text
    assert text.count("before: ") == 5
    assert text.endswith("… and 25 more from before")
