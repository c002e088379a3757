"""Signature help, colours, the outline, the layout and the lenses."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from lyra.lsp.texts import format_edits
from lyra.vega import format_source
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.hover import signature_help
from lyra.vega.lsp.language import COLOUR_TYPES, MODIFIERS, colour_words, outline, overlaps

from .texts import project

EVERYTHING = (Path(__file__).parent.parent / "everything.vega").read_text()


# ---------------------------------------------------------------- signature help


def helped(text: str, **others: str) -> tuple[str, str]:
    workspace, path, offset = project(text, **others)
    told = signature_help(workspace, path, offset)
    if told is None:
        return "", ""
    return told.label, told.parameters[told.active] if told.parameters else ""


@pytest.mark.parametrize(
    ("text", "label", "active"),
    [
        ("fn f(a: int, b = 2) -> int { return a; }\nf(‸);\n", "fn f(a: int, b = 2) -> int", "a: int"),
        ("fn f(a: int, b = 2) -> int { return a; }\nf(1, ‸);\n", "fn f(a: int, b = 2) -> int", "b = 2"),
        ("fn f(a, b) { }\nf(b: ‸);\n", "fn f(a, b)", "b"),
        ("fn f(a, b) { }\nf([1, 2], g(‸\n", "", ""),
        ("fn f(a, b) { }\nf([1, 2, ‸]);\n", "fn f(a, b)", "a"),
        ('str::replace("a", ‸);\n', "str::replace(s: str, old: str, new: str) -> str", "old: str"),
        ("print(‸);\n", "print(value?)", "value?"),
        ("let xs = [1];\nxs.push(‸);\n", ".push(item) -> list", "item"),
        ("let l = |x, y| x;\nl(1, ‸);\n", "l(x, y)", "y"),
        ("fn w(a) { }\nspawn fn w(‸);\n", "fn w(a)", "a"),
        ("‸\n", "", ""),
        ("fn f(‸) { }\n", "", ""),
        ("list::each([1], |x| { ‸ });\n", "", ""),
    ],
)
def test_a_call_shows_its_parameters(text, label, active):
    assert helped(text) == (label, active)


def test_a_call_into_another_file_shows_its_parameters():
    text = 'import "./team.vega" as team;\nteam::ask("x", ‸);\n'
    assert helped(text, team="fn ask(what: str, times = 1) { }\n") == ("fn ask(what: str, times = 1)", "times = 1")


# ---------------------------------------------------------------- colours


def colours(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {
        text[token.at : token.at + token.length]: (token.type, token.modifiers)
        for token in colour_words(Analysis(text, "x"))
    }


def test_words_are_coloured_by_what_they_mean():
    text = 'agent A { model "m" }\nconst N = 1;\nfn f(p) { let v = p; str::len(v.x); return N; }\nlet q = spawn A;\n'
    colour_of = colours(text)
    assert colour_of["A"] == ("class", ())
    assert colour_of["model"] == ("property", ())
    assert colour_of["N"] == ("variable", ("readonly",))
    assert colour_of["f"] == ("function", ("declaration",))
    assert colour_of["p"][0] == "parameter"
    assert colour_of["v"][0] == "variable"
    assert colour_of["str"] == ("namespace", ("defaultLibrary",))
    assert colour_of["len"] == ("function", ("defaultLibrary",))
    assert colour_of["x"] == ("property", ())
    assert colour_of["spawn"] == ("keyword", ())


def test_names_inside_strings_are_coloured_too():
    assert colours('let a = 1;\nprint("${match a { 1 => 2, _ => 3 }}");\n')["match"] == ("keyword", ())


def test_colours_are_in_order_never_overlap_and_stay_on_their_line():
    end = 0
    for token in colour_words(Analysis(EVERYTHING, "x")):
        assert token.at >= end
        end = token.at + token.length
        assert "\n" not in EVERYTHING[token.at : end]
        assert token.type in COLOUR_TYPES
        assert set(token.modifiers) <= set(MODIFIERS)


# ---------------------------------------------------------------- outline


def test_the_outline_is_what_a_file_declares():
    text = (
        'import "./x.vega" as x;\nconst N = 1;\nagent A { tool t() { } }\nsupervisor S { child c = A }\n'
        'fn f() { fn g() { } }\nlet v = 1;\ntest "it works" { }\nprint(1);\n'
    )
    symbols = outline(Analysis(text, "x"))
    assert [(symbol.role, symbol.name) for symbol in symbols] == [
        ("import", "x"),
        ("constant", "N"),
        ("agent", "A"),
        ("supervisor", "S"),
        ("function", "f"),
        ("variable", "v"),
        ("test", "it works"),
    ]
    assert [[part.name for part in symbol.inside] for symbol in symbols[2:5]] == [["t"], ["c"], ["g"]]
    for symbol in symbols:
        assert symbol.at <= symbol.name_at <= symbol.name_end <= symbol.end


# ---------------------------------------------------------------- layout


def laid_out(text: str) -> str:
    for start, end, new in format_edits(text, format_source):
        text = text[:start] + new + text[end:]
    return text


@pytest.mark.parametrize(
    "text", ["let   a=1;\n", "fn f( ){return 1;}\nlet b = 2;\n", "print( 1 ) ;", EVERYTHING.replace("    ", "  ")]
)
def test_a_text_gets_its_layout(text):
    assert laid_out(text) == format_source(text)


def test_only_the_lines_that_change_are_touched():
    text = "let a = 1;\nlet   b = 2;\nlet c = 3;\n"
    assert format_edits(text, format_source) == [(11, 24, "let b = 2;\n")]
    assert format_edits("let a = 1;\n", format_source) == []


def test_line_ends_stay_as_they_are():
    assert laid_out("let   a = 1;\r\nlet b = 2;\r\n") == "let a = 1;\r\nlet b = 2;\r\n"


def test_a_broken_text_is_left_as_it_is():
    assert format_edits("let   a = ;\n", format_source) == []


# ---------------------------------------------------------------- lenses

REVIEWS = """\
agent Reviewer { model "sim/echo" }
fn main() {
    let one = spawn Reviewer;
    let two = spawn Reviewer;
    let a = one <- "is it safe?";
    let b = two <- "is it fast?";
    print(a + b);
}
"""


def test_without_a_plan_there_are_no_lenses(monkeypatch):
    monkeypatch.setitem(sys.modules, "lyra.vega.compiler.compiler", None)
    assert overlaps(REVIEWS, "x") == []


def call(line: int, *, file: str = "x", in_loop: bool = False) -> dict[str, object]:
    return {"line": line, "file": file, "in_loop": in_loop}


def test_lenses_are_what_the_plan_says(monkeypatch):
    """In order of place; calls of other files are named with them; of a broken text, none."""
    groups = [
        {"calls": [call(6), call(5), call(3, file="/work/team.vega")]},
        {"calls": [call(9, in_loop=True)]},
        {"calls": [call(12), call(12)]},
    ]

    class Plan:
        def to_data(self):
            return {"groups": groups}

    plan = ModuleType("lyra.vega.compiler.compiler")
    plan.plan_of = lambda text, name, load=None: Plan()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lyra.vega.compiler.compiler", plan)
    assert overlaps(REVIEWS, "x") == [
        (5, "overlaps with team.vega:3, line 6"),
        (6, "overlaps with team.vega:3, line 5"),
        (9, "overlaps with the other turns of its loop"),
        (12, "overlaps with another call of this line"),
    ]


def test_calls_that_overlap_say_so():
    """The real plan: two calls of an agent that keeps no memory."""
    pytest.importorskip("lyra.vega.compiler.compiler")
    assert overlaps("let x = ;", "x") == []
    overlapping = dict(overlaps(REVIEWS, "x"))
    assert overlapping == {5: "overlaps with line 6", 6: "overlaps with line 5"}
