"""Programs that need no kernel, test blocks as programs, and what a REPL keeps."""

from __future__ import annotations

import pytest

from lyra.errors import SourceError
from lyra.vega import VegaError
from lyra.vega import compile as compile_vega
from lyra.vega.plain import is_plain, run_plain, test_program
from lyra.vega.repl import ReplSession


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print(1);", True),
        ("fn main(args) { print(args); }", True),
        ("print(list::map([1], |x| x));", True),
        ("print(time::now());", False),
        ('agent A { model "sim/echo" }', False),
        ("fn w() {} spawn fn w();", False),
        ('fn unused() { return file::read("x"); }', False),
        ("session budget $1.00 { print(1); }", False),
        ("receive { x => {}, after 0s => {} }", False),
        ('process::exit("x");', False),
    ],
)
def test_a_program_is_plain_if_it_asks_for_nothing_but_printing(source, expected):
    assert is_plain(compile_vega(source)) is expected


def test_a_plain_program_runs_as_any_other():
    lines: list[str] = []
    program = compile_vega(
        "fn fib(n) { if n < 2 { return n; } return fib(n - 1) + fib(n - 2); } print(fib(15)); fn main(a) { return a; }"
    )
    assert run_plain(program, lines.append, ["x"]) == ["x"]
    assert lines == ["610"]
    with pytest.raises(VegaError) as raised:
        run_plain(compile_vega("\n  throw Broken(1);", "a.vega"), lines.append)
    assert (raised.value.fields["name"], raised.value.place) == ("Broken", "a.vega:2:3")


def test_a_test_block_runs_after_the_top_level_and_without_main():
    program = compile_vega('print("top"); fn main() { print("main"); } test "t" { print("test"); }')
    lines: list[str] = []
    run_plain(test_program(program, program.tests[0]), lines.append)
    assert lines == ["top", "test"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2", False),
        ("fn f() {", True),
        ("fn f() {}", False),
        ("f(1,", True),
        ("let x = ;", False),
        ('"""a', True),
        ("", False),
        ("if x { 1; } else {", True),
    ],
)
def test_unfinished_text_is_known(text, expected):
    assert ReplSession.is_unfinished(text) is expected


def test_a_wrong_piece_changes_nothing():
    session = ReplSession()
    session.compile("let x = 1;")
    size = len(session.program.functions)
    with pytest.raises(SourceError):
        session.compile("let x = nope;")
    assert len(session.program.functions) == size
    assert session.type_of("x") == "any"  # nothing ran yet, so the type is unknown


def test_what_is_declared_is_known_to_all_later_pieces_until_it_is_declared_anew():
    session = ReplSession()
    for text in ("fn f() -> int { return 1; }", "let x = 1;", "print(f());", "fn f(a: int) -> int { return a; }"):
        session.compile(text)
    session.compile("print(f(2));")
    with pytest.raises(SourceError):
        session.compile("print(f());")


@pytest.mark.parametrize(("text", "column"), [("let y = ;", 9), ("let y: int = true", 14), ("print(nope)", 7)])
def test_an_error_shows_what_was_typed(text, column):
    """A `;` that the user did not type is on a line of its own."""
    session = ReplSession()
    with pytest.raises(SourceError) as caught:
        session.compile(text)
    line = caught.value.line
    assert session.text.splitlines()[line - 1] == text
    assert caught.value.column == column


def test_a_copy_may_be_tried_on():
    session = ReplSession()
    session.compile("let x = 1;")
    other = session.copy()
    other.compile("let y = x;")
    assert len(other.program.functions) > len(session.program.functions)
    with pytest.raises(SourceError):
        session.compile("y")
