"""`vega repl`, with its lines piped in."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
from pathlib import Path

from tests import warm
from tests.cli.vega_runner import TARGET, Vega, vega

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


def test_dis_of_a_name_shows_that_function(vega: Vega):
    out, _ = typed(vega, "fn twice(n) {", "return n * 2;", "}", ":dis twice", ":dis twice(1)")
    assert sum("MUL" in line for line in out) == 1
    assert sum("CALL" in line for line in out) == 1


def test_quit_ends_it(vega: Vega):
    assert typed(vega, "1", ":quit", "2")[0] == ["1"]


def test_at_a_terminal_it_prompts_and_ctrl_c_ends_what_runs(vega: Vega):
    """Only what runs: variables are still there. Lines are kept for the next time."""
    fd, end = pty.openpty()
    env = {**vega.env, "TERM": "dumb"}
    repl = subprocess.Popen(
        [*warm.command(TARGET), "repl"], cwd=vega.folder, env=env, stdin=end, stdout=end, stderr=end
    )
    os.close(end)
    try:
        until(fd, b"vega> ")
        os.write(fd, b"let x = 5;\n")
        until(fd, b"vega> ")
        os.write(fd, b"fn f() {\n")
        until(fd, b"  ... ")
        os.write(fd, b"return x + 2; }\n")
        until(fd, b"vega> ")
        os.write(fd, b'print("on"); while true { process::sleep(1ms); }\n')
        until(fd, b"on\r\n")
        repl.send_signal(signal.SIGINT)
        assert b"interrupted" in until(fd, b"vega> ")
        os.write(fd, b"f()\n")
        assert b"7" in until(fd, b"vega> ")
        os.write(fd, b"\x04")
        assert repl.wait(timeout=30) == 0
    finally:
        repl.kill()
        repl.wait()
        os.close(fd)
    kept = list(Path(vega.env["HOME"]).rglob("vega_history"))
    assert not kept or "let x = 5;" in kept[0].read_text()  # without readline there is no history


def until(fd: int, wanted: bytes) -> bytes:
    """What comes up to and with this."""
    received = b""
    while wanted not in received:
        ready, _, _ = select.select([fd], [], [], 30)
        assert ready, received
        received += os.read(fd, 4096)
    return received


def test_every_agent_has_the_model_that_is_named(vega: Vega):
    """And the session the budget that is given."""
    lines = ('agent A { model "claude-x" }', "let a = spawn A;", 'a <- "hi"')
    out, _ = typed(vega, *lines, model="sim/echo")
    assert out[-1] == '"hi"'
    vega.write(
        "priced.yaml", "price: {input_usd_per_mtok: 1000, output_usd_per_mtok: 1000}\nreplies:\n  - text: done\n"
    )
    out, err = typed(vega, *lines, model="sim/script:priced.yaml", budget="0.000001")
    assert "budget" in err.lower()
    assert '"done"' not in out
