"""A rename changes every place and no meaning, or says why not."""

from __future__ import annotations

import pytest

from lyra.lsp.language import RenameRefused
from lyra.vega.lsp.language import prepare, rename

from .texts import project

TEAM = 'agent Coder { model "sim/echo" }\nfn ask(what: str, times: int = 1) { return what; }\n'


def renamed(text: str, name: str, **others: str) -> dict[str, str]:
    workspace, path, offset = project(text, **others)
    texts = {}
    places = rename(workspace, path, offset, name)
    for place in sorted(places, key=lambda place: -place.at):
        old = texts.get(place.path) or workspace.text(place.path) or ""
        texts[place.path] = old[: place.at] + name + old[place.end :]
    return {path.rpartition("/")[2].removesuffix(".vega"): text for path, text in texts.items()}


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("let ‸a = 1;\na = a + 1;\n", "let z = 1;\nz = z + 1;\n"),
        ('let a = 1;\nprint("${‸a} a");\n', 'let z = 1;\nprint("${z} a");\n'),
        ("fn f(‸a, b) { return a; }\nf(a: 1, b: 2);\n", "fn f(z, b) { return z; }\nf(z: 1, b: 2);\n"),
        ("agent ‸A { }\nlet p: A = spawn A;\n", "agent z { }\nlet p: z = spawn z;\n"),
        ("agent A { tools [t] tool ‸t() { } }\n", "agent A { tools [z] tool z() { } }\n"),
        ("let a = 1;\n{ let ‸a = 2; print(a); }\nprint(a);\n", "let a = 1;\n{ let z = 2; print(z); }\nprint(a);\n"),
        ("let timeout = 1;\nprint(tim‸eout);\n", "let z = 1;\nprint(z);\n"),
    ],
)
def test_every_place_gets_the_name(text, new):
    assert renamed(text, "z")["main"] == new


def test_other_files_get_it_too():
    main = 'import "./team.vega" as team;\nprint(team::‸ask("x", times: 2));\nlet c = spawn team::Coder;\n'
    assert renamed(main, "inquire", team=TEAM) == {
        "main": main.replace("‸ask", "inquire"),
        "team": TEAM.replace("ask(", "inquire("),
    }
    assert renamed(main.replace("‸", "").replace("times:", "ti‸mes:"), "count", team=TEAM) == {
        "main": main.replace("‸", "").replace("times:", "count:"),
        "team": TEAM.replace("times", "count"),
    }


def test_an_import_is_renamed_in_its_file_alone():
    main = 'import "./team.vega" as te‸am;\nprint(team::ask("x"));\n'
    assert renamed(main, "crew", team=TEAM) == {"main": 'import "./team.vega" as crew;\nprint(crew::ask("x"));\n'}


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("let ‸a = 1;\n", "1a", "no name"),
        ("let ‸a = 1;\n", "", "no name"),
        ("let ‸a = 1;\n", "a b", "no name"),
        ("let ‸a = 1;\n", "_", "no name"),
        ("let ‸a = 1;\n", "agent", "keyword"),
        ("let ‸a = 1;\n", "print", "function of the language"),
        ("let ‸a = 1;\nlet b = 2;\nprint(a);\n", "b", "already a variable"),
        ("let b = 2;\n{ let ‸a = 1; print(b); }\n", "b", "already a variable"),
        ("let b = 1;\nlet ‸a = 2;\nfn f() { return b; }\n", "b", "already a variable"),
        ("fn f(‸a) { let g = |b| a + b; return g; }\n", "b", "already a parameter"),
        ("agent ‸A { }\n", "str", "type"),
        ("agent ‸A { }\nlet p = spawn A supervised by { strategy stop };\n", "async", "something else"),
        ("agent A { }\nlet ‸b = 1;\n", "A", "already an agent"),
        ("print(‸1);\n", "z", "no name here"),
        ("fn f() { let ‸x = 1; print(x);", "y", "cannot be read whole, mend it first: line 1"),
        ('str::‸len("");\n', "z", "no name here"),
    ],
)
def test_a_name_that_would_change_the_meaning_is_refused(text, name, reason):
    with pytest.raises(RenameRefused, match=reason):
        renamed(text, name)


@pytest.mark.parametrize("word", ["model", "timeout", "by", "window", "stop", "test", "in", "child", "after"])
def test_words_that_are_reserved_elsewhere_are_names_here(word):
    """`let timeout = 1;` is a fine variable."""
    assert renamed("let ‸a = 1;\nprint(a + 1);\n", word)["main"] == f"let {word} = 1;\nprint({word} + 1);\n"


def test_what_can_be_renamed_is_told_before():
    workspace, path, offset = project("let total = 1;\nprint(to‸tal);\n")
    place, name = prepare(workspace, path, offset) or ((), "")
    assert (place[1:], name) == ((21, 26), "total")
    for text in ("pr‸int(1);\n", "‸// x\n", 'import "./te‸am.vega";\n'):
        workspace, path, offset = project(text, team=TEAM)
        assert prepare(workspace, path, offset) is None


def test_the_same_name_changes_nothing():
    assert renamed("let ‸a = 1;\n", "a") == {}
