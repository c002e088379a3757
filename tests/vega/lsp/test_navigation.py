"""From a name to its declaration, and back to its uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra.lsp.texts import Place
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.language import definition, references
from lyra.vega.plan.names import Symbol as Resolved
from lyra.vega.plan.names import Variable
from lyra.vega.syntax.parser import parse_all
from lyra.vega.syntax.source import Source
from tests.cases import each

from .texts import cut, project

EVERYTHING = (Path(__file__).parent.parent / "everything.vega").read_text()
TEAM = 'agent Coder { model "sim/echo" }\nfn ask(what: str, times: int = 1) { return what; }\nconst LIMIT = 3;\n'


def declared(text: str, **others: str) -> str:
    """The name that the cursor leads to, with `|` around it in its file."""
    workspace, path, offset = project(text, **others)
    place = definition(workspace, path, offset)
    if place is None:
        return ""
    there = workspace.text(place.path) or ""
    start = there.rfind("\n", 0, place.at) + 1
    end = there.find("\n", place.end)
    line = there[start : place.at] + "|" + there[place.at : place.end] + "|" + there[place.end : end]
    return line if place.path == path else f"{place.path.rpartition('/')[2]}: {line}"


@each(
    [
        ("let a = 1;\nprint(‸a);\n", "let |a| = 1;"),
        ("let a = 1;\nprint(a‸);\n", "let |a| = 1;"),
        ("let ‸a = 1;\nprint(a);\n", "let |a| = 1;"),
        ("let a = 1;\nlet a = 2;\nprint(‸a);\n", "let |a| = 2;"),
        ("let a = 1;\n{ let a = 2; print(‸a); }\n", "{ let |a| = 2; print(a); }"),
        ("let a = 1;\n{ let a = 2; }\nprint(‸a);\n", "let |a| = 1;"),
        ("fn f(a) { return ‸a; }\n", "fn f(|a|) { return a; }"),
        ("fn f() { return ‸a; }\nlet a = 1;\n", "let |a| = 1;"),
        ("‸f();\nfn f() { }\n", "fn |f|() { }"),
        ("fn f() {\n    g‸();\n    fn g() { }\n}\n", "    fn |g|() { }"),
        ("let l = |x| ‸x + 1;\n", "let l = |x| x + 1;".replace("|x|", "||x||", 1)),
        ("let f = |n| f‸(n - 1);\n", "let |f| = |n| f(n - 1);"),
        ("for x in [1] { print(‸x); }\n", "for |x| in [1] { print(x); }"),
        ("for let i = 0; i‸ < 3; i = i + 1 { }\n", "for let |i| = 0; i < 3; i = i + 1 { }"),
        ("try { } catch Error(why) { print(‸why); }\n", "try { } catch Error(|why|) { print(why); }"),
        ("try { } catch why(why) { print(‸why); }\n", "try { } catch why(|why|) { print(why); }"),
        ("match Ok(1) {\n    Ok(v) => print(‸v),\n    Err(e) => null,\n}\n", "    Ok(|v|) => print(v),"),
        ("parallel { let a = 1; }\nprint(‸a);\n", "parallel { let |a| = 1; }"),
        ('let a = 1;\nprint("it is ${‸a}");\n', "let |a| = 1;"),
        ("agent A { }\nlet p = spawn ‸A;\n", "agent |A| { }"),
        ("agent A { }\nlet p: ‸A = spawn A;\n", "agent |A| { }"),
        ("tool t() { }\nagent A { tools [‸t] }\n", "tool |t|() { }"),
        ("agent A { tools [‸t] tool t() { } }\n", "agent A { tools [t] tool |t|() { } }"),
        ("agent A { }\nsupervisor S { child a = ‸A }\n", "agent |A| { }"),
        ('agent A { }\ntest "t" { mock ‸A { on "x" reply "y" } }\n', "agent |A| { }"),
        ("const N = 3;\nagent A { max_tokens ‸N }\n", "const |N| = 3;"),
        ("fn f(one, two) { }\nf(two‸: 1, one: 2);\n", "fn f(one, |two|) { }"),
        ("fn f(/* f */ a) { return a; }\n‸f(1);\n", "fn |f|(/* f */ a) { return a; }"),
        ("let priority = 1;\nagent A { priority ‸high }\nprint(priority);\n", ""),
        ("‸print(1);\n", ""),
        ("nothing‸();\n", ""),
    ]
)
def test_a_name_leads_to_its_declaration(text, line):
    assert declared(text) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            'import "./team.vega" as team;\nteam::‸ask("x");\n',
            "team.vega: fn |ask|(what: str, times: int = 1) { return what; }",
        ),
        (
            'import "./team.vega" as team;\nlet c = spawn team::Co‸der;\n',
            'team.vega: agent |Coder| { model "sim/echo" }',
        ),
        ('import "./team.vega" as team;\nprint(team::LIM‸IT);\n', "team.vega: const |LIMIT| = 3;"),
        (
            'import "./team.vega" as team;\nteam::ask("x", ti‸mes: 2);\n',
            "team.vega: fn ask(what: str, |times|: int = 1) { return what; }",
        ),
        ('import "./team.vega" as team;\n‸team::ask("x");\n', 'import "./team.vega" as |team|;'),
        ('import "./te‸am.vega" as team;\n', 'team.vega: ||agent Coder { model "sim/echo" }'),
        ('import "./nowhere‸.vega" as team;\n', ""),
        ('import "./team.vega" as team;\nteam::noth‸ing();\n', ""),
    ],
)
def test_a_name_of_another_file_leads_there(text, line):
    assert declared(text, team=TEAM) == line


def test_uses_are_found_in_this_file():
    text = "let a‸ = 1;\nfn f(b) { a = a + b; }\nlet l = |a| a;\nf(a);\n"
    workspace, path, offset = project(text)
    clean, _ = cut(text)
    places = references(workspace, path, offset)
    assert [clean[: place.at].count("\n") for place in places] == [0, 1, 1, 3]
    assert len(references(workspace, path, offset, with_declaration=False)) == 3


def test_uses_are_found_in_files_that_import_it(tmp_path):
    """Open or only on the disk; a file of that name elsewhere is not meant."""
    (tmp_path / "closed.vega").write_text('import "./team.vega" as t;\nt::ask("y");\n')
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "other.vega").write_text('import "../team.vega" as t;\nprint(t::ask("z", times: 3));\n')
    (tmp_path / "stranger.vega").write_text("fn ask() { }\nask();\n")
    main = 'import "./team.vega" as team;\nprint(team::ask("x"));\n'
    workspace, _, _ = project(main, tmp_path, team=TEAM)
    team = f"{tmp_path}/team.vega"
    places = references(workspace, team, TEAM.index("ask"))
    files = sorted(place.path.removeprefix(f"{tmp_path}/") for place in places)
    assert files == ["closed.vega", "deep/other.vega", "main.vega", "team.vega"]
    (named,) = [place for place in references(workspace, team, TEAM.index("times")) if place.path != team]
    assert named.path.endswith("other.vega")


def test_a_use_in_one_file_finds_those_in_all(tmp_path):
    main = 'import "./team.vega" as team;\nprint(team::ask("x"));\n'
    workspace, path, _ = project(main, tmp_path, team=TEAM)
    from_use = references(workspace, path, main.index("ask"))
    from_declaration = references(workspace, f"{tmp_path}/team.vega", TEAM.index("ask"))
    assert sorted(from_use) == sorted(from_declaration)
    assert Place(path, main.index("ask"), main.index("ask") + 3) in from_use


def test_names_mean_what_they_mean_to_the_compiler():
    """In a program with every construct, two names mean one declaration here exactly if they do to the resolver."""
    source = Source("everything.vega", EVERYTHING)
    module = parse_all(source).module
    scopes = resolved(module, source)
    index = Analysis(EVERYTHING, "everything.vega").index
    ours = {use.at: use.symbol for use in index.uses}
    partners: dict[int, object] = {}
    compared = 0
    for offset, meaning in scopes.items():
        if not isinstance(meaning, (Variable, Resolved)) or offset not in ours:
            continue
        compared += 1
        assert partners.setdefault(id(meaning), ours[offset]) is ours[offset], EVERYTHING[offset : offset + 20]
    assert compared > 50
    assert len({id(symbol) for symbol in partners.values()}) == len(partners)


def resolved(module, source):
    """What the compiler's resolver finds, by the place of each name."""
    from lyra.vega.plan.names import ModuleScope, Resolver
    from lyra.vega.syntax import ast
    from lyra.vega.syntax.facts import every_node

    scope = ModuleScope(source, module, is_main=True)
    resolver = Resolver(scope)
    resolver.symbols()
    resolver.resolve()
    return {
        node.at: scope.meanings[id(node)]
        for node in every_node(module.statements)
        if isinstance(node, ast.Name) and id(node) in scope.meanings
    }


def test_the_index_of_every_good_program_covers_its_names():
    """Every name that the resolver knows is a use here, too."""
    source = Source("everything.vega", EVERYTHING)
    module = parse_all(source).module
    index = Analysis(EVERYTHING, "everything.vega").index
    known = {use.at for use in index.uses} | {member.at for member in index.members}
    missing = [EVERYTHING[offset : offset + 20] for offset in resolved(module, source) if offset not in known]
    assert missing == []
