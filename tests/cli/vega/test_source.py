"""`vega check`, `compile`, `disasm`, `fmt` and `new`."""

from __future__ import annotations

from lyra.cli.vega.group import COMMANDS
from tests.cli.vega_runner import Vega, vega

__all__ = ["vega"]


def test_check_says_every_mistake_with_its_place(vega: Vega):
    vega.write("good.vega", "let x = 1;\nprint(x);\n")
    assert vega("check", "good.vega") == (0, "", "")
    vega.write("wrong.vega", 'let ä = "ü"; let x = nope;\nfn f(a) { return a; }\nf(1, 2);\n')
    done = vega("check", "good.vega", "wrong.vega")
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert lines[0] == "wrong.vega:1:22: error: unknown name `nope`"
    assert lines[1:3] == ['    let ä = "ü"; let x = nope;', " " * 25 + "^~~~"]
    assert any(line.startswith("wrong.vega:3:") for line in lines)


def test_check_as_json(vega: Vega):
    vega.write("wrong.vega", "let x = nope;")
    told = vega.json("check", "wrong.vega", code=2)
    assert not told["ok"]
    assert told["problems"][0] == {
        "file": "wrong.vega",
        "line": 1,
        "column": 9,
        "severity": "error",
        "message": "unknown name `nope`",
        "hint": "",
    }


def test_check_follows_imports(vega: Vega):
    vega.write("lib.vega", "fn one() { return nope; }")
    vega.write("main.vega", 'import "./lib.vega" as lib;\nimport "./gone.vega" as gone;\nprint(lib::one());')
    done = vega("check", "main.vega")
    assert done.returncode == 2
    assert "main.vega:2:8: error: cannot find `./gone.vega`" in done.stderr
    assert "lib.vega:1:19: error: unknown name `nope`" in done.stderr


def test_warnings_are_no_mistakes(vega: Vega):
    vega.write("odd.vega", "fn f() {\n    return 1;\n    print(2);\n}\nf();\n")
    done = vega("check", "odd.vega")
    assert done.returncode == 0
    assert "odd.vega:3:5: warning: " in done.stderr


def test_compile_writes_beside_the_source_and_disasm_reads_both(vega: Vega):
    vega.write(
        "fib.vega", "fn fib(n) {\n    if n < 2 { return n; }\n    return fib(n - 1) + fib(n - 2);\n}\nprint(fib(10));\n"
    )
    assert vega("compile", "fib.vega") == (0, "", "")
    assert vega("run", "fib.vgb").stdout == "55\n"
    shown = vega("disasm", "fib.vega").stdout
    assert "fib(n)" in shown
    assert "CALL" in shown
    assert vega("disasm", "fib.vgb").stdout == shown
    vega.write("wrong.vega", "let = 1;")
    assert vega("compile", "wrong.vega").returncode == 2
    assert not (vega.folder / "wrong.vgb").exists()
    assert vega("disasm", "wrong.vega").returncode == 2


def test_fmt_changes_files_in_place_and_checks_without(vega: Vega):
    vega.write("a.vega", "let   x=1; // kept\nprint( x );\n")
    done = vega("fmt", "--check", "a.vega")
    assert done.returncode == 1
    assert "a.vega" in done.stderr
    assert vega("fmt", "a.vega") == (0, "", "")
    formatted = (vega.folder / "a.vega").read_text()
    assert formatted == "let x = 1;  // kept\nprint(x);\n"
    assert vega("fmt", "--check", "a.vega").returncode == 0
    assert vega("fmt", "-", given="print( 1 );").stdout == "print(1);\n"


def test_fmt_leaves_a_wrong_file_alone(vega: Vega):
    vega.write("wrong.vega", "let   = 1;")
    done = vega("fmt", "wrong.vega")
    assert done.returncode == 2
    assert "wrong.vega:1:7: error" in done.stderr
    assert (vega.folder / "wrong.vega").read_text() == "let   = 1;"


def test_new_makes_a_project_that_runs_and_is_tested(vega: Vega):
    assert vega("new", "team").returncode == 0
    project = vega.folder / "team"
    assert sorted(path.name for path in project.iterdir()) == [".gitignore", "README.md", "greeting.vega", "main.vega"]
    vega.folder = project
    assert vega("run", "main.vega", "--model", "sim/echo", "--", "Ada").stdout == "Say hello to Ada.\n"
    done = vega("test")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 passed")
    assert vega("check", "main.vega", "greeting.vega") == (0, "", "")
    assert vega("fmt", "--check", "main.vega", "greeting.vega").returncode == 0


def test_new_overwrites_nothing(vega: Vega):
    vega.write("team/notes.txt", "mine")
    done = vega("new", "team")
    assert done.returncode == 2
    assert "team already exists" in done.stderr
    assert [path.name for path in (vega.folder / "team").iterdir()] == ["notes.txt"]
    assert vega("new", "-- odd\n").returncode == 2


def test_help_lists_every_command(vega: Vega):
    shown = vega("--help").stdout
    for name, row in COMMANDS.items():
        assert f"  {name} " in shown
        assert row.help in shown
    done = vega("chekc", "x.vega")
    assert done.returncode == 2
    assert "did you mean 'check'?" in done.stderr
    assert vega("--version").stdout.startswith("vega ")


def test_the_sentence_of_each_row_is_the_commands_own():
    import importlib

    for name, row in COMMANDS.items():
        command = getattr(importlib.import_module(row.module), row.attribute or name)
        assert command.get_short_help_str(limit=200) == row.help


def test_check_says_what_is_wrong_with_a_file(vega: Vega):
    """One line a mistake and exit code 2, or the same as data."""
    vega.write("good.vega", "print(1);")
    vega.write("wrong.vega", "let x = nope;")
    assert vega("check", "good.vega").returncode == 0
    done = vega("check", "wrong.vega")
    assert done.returncode == 2
    assert "wrong.vega:1:9: error: unknown name `nope`" in done.stdout + done.stderr
    (problem,) = vega.json("check", "wrong.vega", code=2)["problems"]
    assert (problem["line"], problem["column"]) == (1, 9)


def test_compile_writes_where_it_is_told_to(vega: Vega):
    vega.write("main.vega", "print(2);")
    assert vega("compile", "main.vega", "--output", "out.vgb").returncode == 0
    assert not (vega.folder / "main.vgb").exists()
    assert vega("run", "out.vgb").stdout == "2\n"
