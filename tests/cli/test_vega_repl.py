"""`vega repl`, with its lines piped in."""

from __future__ import annotations

from tests.cli.vega_runner import Vega, vega

__all__ = ["vega"]


def typed(vega: Vega, *lines: str, **options: str) -> tuple[list[str], str]:
    done = vega("repl", *(f"--{key}={value}" for key, value in options.items()), given="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_values_are_shown_and_kept(vega: Vega):
    out, err = typed(vega, "1 + 2", '"a" + it', "let x = [1];", "x[0] = 2;", "x", "null", "print(x.len())")
    assert (out, err) == (["3", '"a3"', "[2]", "1"], "")


def test_functions_see_later_values_and_may_be_replaced(vega: Vega):
    out, _ = typed(
        vega,
        "let x = 10;",
        "fn f(n) { return n + x; }",
        "let g = |n| n * x;",
        "f(1)",
        "let x = 20;",
        "f(1)",
        "g(2)",
        "fn f(n) { return -n; }",
        "f(1)",
        "const K = 3;",
        "K + x",
    )
    assert out == ["11", "21", "40", "-1", "23"]


def test_unfinished_lines_go_on(vega: Vega):
    out, err = typed(vega, "fn f(n) {", "    if n > 0 {", '        return "yes";', "    }", "}", "f(", "1", ")")
    assert (out, err) == (['"yes"'], "")


def test_agents_and_processes_stay(vega: Vega):
    out, err = typed(
        vega,
        'agent A { model "claude-x" }',
        "let a = spawn A;",
        'a <- "one"',
        "fn w(p) { while true { receive { n => { p <- n * 2; } } } }",
        "let p = spawn fn w(process::self());",
        "p <- 21;",
        "receive { n => n, after 5s => 0 }",
        'a <- "two"',
        model="sim/echo",
    )
    assert (out, err) == (['"one"', "42", '"two"'], "")


def test_an_error_does_not_end_it(vega: Vega):
    out, err = typed(
        vega, "nope", "let x = 5;", "[1][x]", "let y = ;", "x", 'throw Broken("b");', "process::exit();", "x"
    )
    assert out == ["5", "5"]
    assert "<repl>:1:1: error: unknown name `nope`\n    nope\n    ^~~~" in err
    assert "error[IndexError]: " in err
    assert "error[Broken]: b" in err
    assert "<repl>:1:9: error" in err


def test_type_and_dis_run_nothing(vega: Vega):
    out, err = typed(vega, "let x = 5;", ":type x + 1", ":type [x]", ":dis x = 9;", "x", ":type nope", ":odd", ":help")
    assert out[:2] == ["int", "list"]
    assert any("GLOBAL_SET" in line for line in out)
    assert "5" in out
    assert any(":quit" in line for line in out)
    assert "unknown name `nope`" in err
    assert "there is no command :odd" in err


def test_quit_ends_it(vega: Vega):
    assert typed(vega, "1", ":quit", "2")[0] == ["1"]
