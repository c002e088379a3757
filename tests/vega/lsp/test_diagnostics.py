"""What an editor underlines, and what it offers to mend."""

from __future__ import annotations

from lyra.lsp.language import Remark
from lyra.vega import check
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.language import diagnose, fixes_of
from lyra.vega.lsp.project import Project
from lyra.vega.syntax.parser import Parsed, parse_all
from lyra.vega.syntax.source import Source

from .texts import project

TEAM = 'agent Coder { model "sim/echo" }\nfn ask(what: str) -> str { let c = spawn Coder; return c <- what; }\n'


def remarks(text: str):
    return diagnose(Analysis(text, "/work/main.vega"))


def known_of(workspace: Project, path: str) -> Analysis:
    known = workspace.analysis(path)
    assert known is not None
    return known


def mended(text: str) -> str:
    for remark in reversed(remarks(text)):
        for fix in fixes_of(remark, text)[:1]:
            text = text[: fix.at] + fix.text + text[fix.end :]
    return text


def test_a_good_text_has_none():
    assert remarks('print("hi");\n') == []


def test_a_mistake_has_its_place_its_sentence_and_its_hint():
    (remark,) = remarks("let total = 1;\nprint(totl);\n")
    assert (remark.at, remark.end) == (21, 25)
    assert remark.message == "unknown name `totl`"
    assert remark.hint == "did you mean `total`?"
    assert remark.severity == "error"


def test_code_that_is_never_reached_is_faded():
    (remark,) = remarks("fn f() {\n    return 1;\n    print(2);\n}\n")
    assert remark.is_unneeded
    assert remark.severity == "warning"


def test_a_mistake_never_underlines_more_than_its_line():
    (remark,) = remarks("fn f() {\n    return;\n    for x in [1] {\n        print(x);\n    }\n}\n")
    assert (
        "\n" not in "fn f() {\n    return;\n    for x in [1] {\n        print(x);\n    }\n}\n"[remark.at : remark.end]
    )


def test_mistakes_of_an_import_stand_at_the_import():
    """With their own places beside them."""
    workspace, path, _ = project(
        'import "./team.vega" as team;\nprint(team::ask("x"));\n', team="let x = ;\nlet y = z;\n"
    )
    known = known_of(workspace, path)
    (remark,) = diagnose(known)
    assert known.text[remark.at : remark.end] == '"./team.vega"'
    assert "`team.vega` has a mistake" in remark.message
    (there,) = remark.elsewhere
    assert (there.file, there.line) == ("/work/team.vega", 1)


def test_a_mistake_two_imports_away_stands_at_the_import_that_leads_there():
    texts = {"one": 'import "./two.vega" as two;\n', "two": "print(absent);\n", "three": "const A = 1;\n"}
    main = 'import "./three.vega" as three;\nimport "./one.vega" as one;\n'
    workspace, path, _ = project(main, **texts)
    (remark,) = diagnose(known_of(workspace, path))
    assert main[remark.at : remark.end] == '"./one.vega"'


def test_an_import_that_is_open_counts_as_it_is_on_the_screen(tmp_path):
    (tmp_path / "team.vega").write_text("fn other() { }\n")
    workspace, path, _ = project('import "./team.vega" as team;\nprint(team::ask("x"));\n', tmp_path, team=TEAM)
    assert diagnose(known_of(workspace, path)) == []
    workspace.remove(f"{tmp_path}/team.vega")
    (remark,) = diagnose(known_of(workspace, path))
    assert remark.message == "`team` has no `ask`"


def test_a_missing_import_is_told():
    workspace, path, _ = project('import "./nowhere.vega" as x;\n')
    (remark,) = diagnose(known_of(workspace, path))
    assert remark.message == "cannot find `./nowhere.vega`"


def test_what_only_the_compiler_sees_is_told_when_asked():
    text = "print(1);\nfn main(one, two) { print(one + two); }\n"
    known = Analysis(text, "/work/main.vega")
    assert diagnose(known) == []
    (remark,) = diagnose(known, thorough=True)
    assert remark.message == "`main` has at most one parameter: the arguments"
    assert text[remark.at :].startswith("fn main")


def test_a_circle_of_imports_is_told_at_the_import():
    main = 'import "./one.vega" as one;\nconst A = 1;\n'
    workspace, path, _ = project(main, one='import "./main.vega" as main;\n')
    (remark,) = diagnose(known_of(workspace, path), thorough=True)
    assert main[remark.at : remark.end] == '"./one.vega"'
    assert "imports itself" in remark.message


def test_a_hint_that_names_a_word_can_be_taken():
    text = (
        'agent A { modle "sim/echo" capabilities [fs::raed] }\nlet total = 1;\nprint(totl);\n'
        'let s: string = str::uper("a")\n'
    )
    assert mended(text) == (
        'agent A { modle "sim/echo" capabilities [fs::raed] }\nlet total = 1;\nprint(totl);\n'
        'let s: string = str::uper("a");\n'
    )
    assert mended(mended(text)) == (
        'agent A { model "sim/echo" capabilities [fs::read] }\nlet total = 1;\nprint(total);\n'
        'let s: str = str::upper("a");\n'
    )


def test_a_keyword_of_another_language_can_be_mended():
    assert mended("var x = 1;\n") == "let x = 1;\n"
    assert mended("function f() { }\n") == "fn f() { }\n"
    assert mended("if true and false { }\n") == "if true && false { }\n"


def test_a_hint_without_a_word_offers_nothing():
    (remark,) = remarks('print("a;\n')
    assert fixes_of(remark, 'print("a;\n') == []


def test_of_several_words_that_may_be_meant_each_is_a_fix():
    remark = Remark(6, 11, "unknown name `slice`", "did you mean `str::slice` or `list::slice`?")
    assert [fix.text for fix in fixes_of(remark, "print(slice);\n")] == ["str::slice", "list::slice"]


# ---------------------------------------------------------------- imports are checked once


def test_an_import_is_checked_again_only_when_it_or_its_own_imports_change(monkeypatch):
    read: list[str] = []

    def noted(source: Source) -> Parsed:
        read.append(source.name)
        return parse_all(source)

    monkeypatch.setattr("lyra.vega.checker.checker.parse_all", noted)
    texts = {"one": 'import "./two.vega" as two;\nfn f() { return two::g(); }\n', "two": "fn g() { return 1; }\n"}
    workspace, path, _ = project('import "./one.vega" as one;\nprint(one::f());\n', **texts)

    def checked() -> list[str]:
        read.clear()
        diagnose(known_of(workspace, path))
        return [name.rpartition("/")[2] for name in read]

    def changed(name: str, text: str) -> None:
        workspace.open[f"/work/{name}.vega"].text = text
        workspace.forget_derived()

    assert checked() == ["one.vega", "two.vega"]
    assert checked() == []
    changed("main", 'import "./one.vega" as one;\nprint(one::f() + 1);\n')
    assert checked() == []
    changed("two", "fn g() { return absent; }\n")
    assert checked() == ["one.vega", "two.vega"]
    (remark,) = diagnose(known_of(workspace, path))
    assert "unknown name `absent`" in remark.message


def test_files_in_a_circle_and_in_a_diamond_are_told_about_as_by_the_checker():
    """The same remarks as `vega check` has, whatever was kept."""
    texts = {
        "one": 'import "./main.vega" as main;\nimport "./two.vega" as two;\nfn f() { return two::g() + main::A; }\n',
        "two": "fn g() { return 1; }\nprint(absent);\n",
        "three": 'import "./two.vega" as two;\nprint(two::h());\n',
        "broken": "let = ;\n",
    }
    main = 'import "./one.vega" as one;\nimport "./three.vega" as three;\nimport "./broken.vega" as broken;\n'
    main += "const A = 1;\nprint(one::f(), one::nothing, broken::whatever);\ntry { } catch Odd { }\n"
    workspace, path, _ = project(main, **texts)
    wanted = check(main, path, load=workspace.load)
    for _ in range(2):
        known = known_of(workspace, path)
        told = known.check()
        assert {str(problem) for problem in told} == {str(problem) for problem in wanted}
    assert len({problem.file for problem in wanted}) >= 3
