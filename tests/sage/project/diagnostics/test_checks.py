"""Settings name the programs for a file by patterns; each program runs once for it."""

from __future__ import annotations

from lyra.sage.project.diagnostics.code_problem import CHECK_S, CheckCommand, FileChecks


def programs(checks: FileChecks, path: str) -> list[str]:
    return [command.words[0] for command in checks.for_file(path)]


def test_patterns_choose_programs():
    checks = FileChecks(
        {
            "*.py": {"commands": ("ruff {file}", "mypy {file}"), "language_server": "pylsp"},
            "web/**/*.ts": {"commands": ("tsc",)},
            "src/*.py": {"commands": ("ruff {file}", "other")},
        }
    )
    assert programs(checks, "a.py") == ["ruff", "mypy", "pylsp"]
    assert programs(checks, "src/a.py") == ["ruff", "mypy", "pylsp", "other"]
    assert programs(checks, "deep/src/a.py") == ["ruff", "mypy", "pylsp"]
    assert programs(checks, "web/x/y/a.ts") == programs(checks, "web/a.ts") == ["tsc"]
    assert programs(checks, "a.ts") == programs(checks, "a.pyc") == []
    assert not FileChecks({})
    assert checks


def test_what_a_command_is_made_of():
    (command, server) = FileChecks(
        {"*": {"commands": ("lint 'a b' {file} --x={file}",), "language_server": "ls --stdio", "readable": ("/opt",)}}
    ).for_file("x")
    assert command.argv("my file.py") == ["lint", "a b", "my file.py", "--x=my file.py"]
    assert command.argv("-rf.py") == ["lint", "a b", "./-rf.py", "--x=./-rf.py"]
    assert (command.timeout_s, command.readable, command.is_server) == (CHECK_S, ("/opt",), False)
    assert server == CheckCommand(("ls", "--stdio"), CHECK_S, ("/opt",), is_server=True)


def test_the_name_that_problems_are_shown_with():
    names = {
        line: CheckCommand(tuple(line.split()), 1.0).program
        for line in ("/opt/bin/ruff check", "python -m mypy x", "x -m")
    }
    assert list(names.values()) == ["ruff", "mypy", "x"]
