"""The formatter: one layout, nothing lost, nothing changed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.errors import ParseError
from lyra.vega import format_source
from lyra.vega.format.formatter import WIDTH
from lyra.vega.syntax.parser import parse
from tests.cases import cases, each
from tests.vega.programs import DOCUMENTS, ROOT, Programs, blocks_of, shape

quick = settings(derandomize=True, deadline=None, max_examples=cases(100))
SOURCES = sorted([*ROOT.glob("examples/**/*.vega"), *ROOT.glob("tests/language/**/*.vega")])


def comments_of(text):
    return sorted(comment for _, comment in parse(text).comments)


def assert_kept(text):
    """Formatting keeps the tree and the comments, and changes nothing the second time."""
    once = format_source(text)
    assert shape(parse(once)) == shape(parse(text)), once
    assert comments_of(once) == [comment.rstrip() for comment in comments_of(text)]
    assert format_source(once) == once
    return once


@quick
@given(st.data())
def test_any_program_keeps_its_tree_and_its_comments(data):
    """parse(fmt(x)) is parse(x) but for places, every comment is there once, and fmt(fmt(x)) is fmt(x)."""
    programs = Programs(lambda count: data.draw(st.integers(0, count - 1)))
    text, comments = programs.spaced(programs.program(3))
    once = assert_kept(text)
    assert comments_of(once) == sorted(comments)


@each(range(cases(150)))
def test_larger_programs_too(seed):
    programs = Programs.seeded(seed)
    text, _ = programs.spaced(programs.program(8))
    assert_kept(text)


@pytest.mark.parametrize(
    "text", [text for name in ("000.md", "001.md") for text in blocks_of((DOCUMENTS / name).read_text())]
)
def test_the_examples_of_the_documents(text):
    assert_kept(text)


@pytest.mark.parametrize("sources", [SOURCES[::5], pytest.param(SOURCES, marks=pytest.mark.long)], ids=["some", "all"])
def test_every_vega_file_of_the_project(sources):
    for path in sources:
        text = path.read_text()
        try:
            parse(text)
        except ParseError:
            continue  # some of them are there to be wrong
        assert_kept(text)


def test_a_wrong_source_is_refused():
    with pytest.raises(ParseError) as raised:
        format_source("let = 1;", "x.vega")
    assert raised.value.place == "x.vega:1:5"


def test_an_empty_source_stays_empty():
    assert format_source("") == ""
    assert format_source("\n\n") == ""
    assert format_source("// only this") == "// only this\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("let   x=1 ;", "let x = 1;\n"),
        ("let x:list[ int ]=[ 1,2, ];", "let x: list[int] = [1, 2];\n"),
        ("x=((1+2))*3;", "x = (1 + 2) * 3;\n"),
        ("x=1+(2*3);", "x = 1 + (2 * 3);\n"),
        ("f((1));", "f(1);\n"),
        ("x = a<-b+c timeout 3s budget $1;", "x = a <- b + c timeout 3s budget $1;\n"),
        ("fn f(a,b:int=1)->str{return 1;}", "fn f(a, b: int = 1) -> str {\n    return 1;\n}\n"),
        ("if a{}else if b{c();}else{}", "if a {} else if b {\n    c();\n} else {}\n"),
        ("for let i=0;i<3;i=i+1{}", "for let i = 0; i < 3; i = i + 1 {}\n"),
        ("for ;;{}", "for ;; {}\n"),
        ("try{}catch A(r){}finally{}", "try {} catch A(r) {} finally {}\n"),
        ("match x{1=>2,_=>{}}", "match x {\n    1 => 2,\n    _ => {}\n}\n"),
        ("receive{after 5s=>1}", "receive {\n    after 5s => 1,\n}\n"),
        ("let f=|x|x+1;", "let f = |x| x + 1;\n"),
        ("list::map(xs,|x|{return x;});", "list::map(xs, |x| {\n    return x;\n});\n"),
        ("agent A{model \"x\" temperature 0.3}", "agent A {\n    model \"x\"\n    temperature 0.3\n}\n"),
        ("agent A{retry{max_attempts 1}}", "agent A {\n    retry { max_attempts 1 }\n}\n"),
        ("agent A{retry{\nmax_attempts 1}}", "agent A {\n    retry {\n        max_attempts 1\n    }\n}\n"),
        ("tool t()->str capabilities[fs::read]{}", "tool t() -> str\n    capabilities [fs::read]\n{}\n"),
        ('import tools from mcp "s";', 'import tools from mcp "s";\n'),
        ('import "./x.vega"as y;', 'import "./x.vega" as y;\n'),
        ("throw A;", "throw A;\n"),
        ('throw Error("x");', 'throw Error("x");\n'),
        ("0xFF;1_000;$1;2e3;", "0xFF;\n1_000;\n$1;\n2e3;\n"),
        ('let m={"a":1};', 'let m = {"a": 1};\n'),
        ('let m={\n"a":1};', 'let m = {\n    "a": 1,\n};\n'),
        ('test"t"{mock A{on"x"reply"y"}}', 'test "t" {\n    mock A {\n        on "x" reply "y"\n    }\n}\n'),
    ],
)  # fmt: skip
def test_the_layout(text, expected):
    assert format_source(text) == expected


def test_comments_stay_with_what_they_stand_by():
    text = """
// first

/* about x */
let x = [1, // one
  2];   // behind
if x { // why
    f(); /* done */
    // last
}
agent A {
    model "m" // which

    // before
    budget $1.00
}
// the end
"""
    assert (
        format_source(text)
        == """// first

/* about x */
let x = [
    1,  // one
    2,
];  // behind
if x {
    // why
    f();  /* done */
    // last
}
agent A {
    model "m"  // which

    // before
    budget $1.00
}
// the end
"""
    )


def test_a_comment_without_a_line_of_its_own_goes_before_its_statement():
    assert format_source("let x = a + /* why */ b;") == "/* why */\nlet x = a + b;\n"


def test_empty_lines_are_kept_one_at_a_time():
    assert format_source("a();\n\n\n\nb();\nc();\n\n{\n\nd();\n\n}\n") == "a();\n\nb();\nc();\n\n{\n    d();\n}\n"


def test_long_lines_are_broken_where_they_can_be():
    names = [f"argument_number_{number}" for number in range(12)]
    for text in (
        f"f({', '.join(names)});",
        f"let x = [{', '.join(names)}];",
        f"let x = {' + '.join(names)};",
        f"let x = {' && '.join(f'{name} == 1' for name in names)};",
        f"fn f({', '.join(names)}) {{ }}",
        f"let x = {{{', '.join(f'{name}: 1' for name in names)}}};",
        f"let x = call({', '.join(names[:5])}, [{', '.join(names[:5])}]).then(|x| {names[0]});",
    ):
        once = format_source(text)
        assert max(map(len, once.splitlines())) <= WIDTH, once
        assert len(once.splitlines()) > 1
        assert_kept(text)


def test_what_follows_breaks_before_what_stands_first():
    """So that a second run, which sees the line ends of the first, changes nothing."""
    settings = "strategy restart max_restarts 3 window 60s backoff exponential(100ms, 2.0, 5s)"
    once = format_source(f"let p = spawn fn worker(process::self(), 12345) supervised by {{ {settings} }};")
    assert once.split("\n")[0] == "let p = spawn fn worker(process::self(), 12345) supervised by {"
    assert format_source(once) == once


def test_a_line_that_fits_exactly_stays():
    text = "f(" + "a" * (WIDTH - 4) + ");"
    assert format_source(text) == text + "\n"
    longer = "f(" + "a" * (WIDTH - 3) + ");"
    assert len(format_source(longer).splitlines()) == 3


def test_strings_of_several_lines_are_not_touched():
    text = 'let x = """one\n      two ${ a  +  b }\n""";\n'
    assert format_source(text) == text


def test_a_first_line_for_the_shell_stays_first():
    assert format_source("#!/usr/bin/env vega\nf( );") == "#!/usr/bin/env vega\nf();\n"


def test_line_ends_of_other_systems_are_read():
    assert format_source("// c\r\nlet x = 1;\r\n") == "// c\nlet x = 1;\n"


def test_the_deepest_source_can_be_formatted():
    levels = 150
    assert_kept("let x = " + "f(" * levels + "1" + ")" * levels + ";")
