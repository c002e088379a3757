"""The parser: every construct has its tree, every mistake its place, and one run tells them all."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.core.budgets.money import Money
from lyra.core.limits import VEGA_NESTING_MAX, VEGA_SOURCE_CHARS_MAX
from lyra.errors import ParseError
from lyra.vega import parse
from lyra.vega.syntax import ast
from lyra.vega.syntax.facts import every_node
from lyra.vega.syntax.parser import parse_all
from lyra.vega.syntax.source import Source
from lyra.vega.values.values import Duration
from tests.cases import each
from tests.vega.programs import DOCUMENTS, Programs, blocks_of

SECOND = 1_000_000_000
_SOFT = (
    *("model", "window", "stop", "by", "in", "timeout", "budget", "test", "mock", "async", "supervised", "child", "on"),
    *("reply", "after", "as", "from", "node"),
)


def problems(text):
    return [(problem.line, problem.column, problem.message) for problem in parse_all(Source("t.vega", text)).problems]


def statement(text) -> Any:
    (node,) = parse(text).statements
    return node


def value(text):
    """The value of `let v = …;`."""
    return statement(f"let v = {text};").value


def shown(node):
    """An expression with a parenthesis around everything, so that its structure can be read."""
    match node:
        case ast.Literal():
            return str(node.value)
        case ast.Name():
            return node.name
        case ast.Path():
            return f"{node.module}::{node.name}"
        case ast.Binary():
            return f"({shown(node.left)} {node.operator} {shown(node.right)})"
        case ast.Unary():
            return f"({node.operator}{shown(node.operand)})"
        case ast.Await():
            return f"(await {shown(node.operand)})"
        case ast.Send():
            limits = "".join(
                f" {name} {shown(limit)}"
                for name, limit in (("timeout", node.timeout), ("budget", node.budget))
                if limit
            )
            return f"({shown(node.target)} {'<~' if node.is_stream else '<-'} {shown(node.message)}{limits})"
        case ast.Call():
            return f"{shown(node.callee)}({', '.join(shown(argument.value) for argument in node.arguments)})"
        case ast.MethodCall():
            return (
                f"{shown(node.target)}.{node.name}({', '.join(shown(argument.value) for argument in node.arguments)})"
            )
        case ast.Index():
            return f"{shown(node.target)}[{shown(node.index)}]"
        case ast.Field():
            return f"{shown(node.target)}.{node.name}"
        case ast.ListLiteral():
            return f"[{', '.join(map(shown, node.items))}]"
        case ast.Spawn():
            return f"(spawn {shown(node.target)})"
        case ast.Lambda():
            body: Any = node.body.statements[0]
            return f"(|{', '.join(parameter.name for parameter in node.parameters)}| {shown(body.value)})"
    raise AssertionError(node)


# ---------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    ("text", "structure"),
    [
        ("1 + 2 * 3", "(1 + (2 * 3))"),
        ("1 - 2 - 3", "((1 - 2) - 3)"),
        ("(1 + 2) * 3", "((1 + 2) * 3)"),
        ("a || b && c == d < e + f * g", "(a || (b && (c == (d < (e + (f * g))))))"),
        ("-a * b", "((-a) * b)"),
        ("!a == b", "((!a) == b)"),
        ("- - a", "(-(-a))"),
        ("-a.b(1)[2]", "(-a.b(1)[2])"),
        ("a.b.c(1)(2)", "a.b.c(1)(2)"),
        ("x % 2 == 0 && y", "(((x % 2) == 0) && y)"),
        ('c <- "a" + b', "(c <- (a + b))"),
        ("c <- a || b", "(c <- (a || b))"),
        ("a <- b <- c", "(a <- (b <- c))"),
        ('c <- "x" timeout 30s', "(c <- x timeout 30s)"),
        ('c <- "x" budget $1.00 timeout 30s', "(c <- x timeout 30s budget $1.00)"),
        ('c <- "x" + y timeout t * 2', "(c <- (x + y) timeout (t * 2))"),
        ('c <~ "x"', "(c <~ x)"),
        ("await f", "(await f)"),
        ("await spawn async A", "(await (spawn A))"),
        ('await f <- "x"', "((await f) <- x)"),
        ('spawn A <- "x"', "((spawn A) <- x)"),
        ("|x, y| x + y", "(|x, y| (x + y))"),
        ("|| 1", "(|| 1)"),
        ("a || || 1", "(a || (|| 1))"),
        ("[1, [2, 3,], ]", "[1, [2, 3]]"),
        ("str::len(s)", "str::len(s)"),
        ("x::match", "x::match"),
        ("x.match(1)", "x.match(1)"),
        ("budget + timeout", "(budget + timeout)"),
    ],
)
def test_what_binds_to_what(text, structure):
    assert shown(value(text)) == structure


def test_literals_have_values():
    literals = {
        "null": None,
        "true": True,
        "1": 1,
        "2.5": 2.5,
        '"s"': "s",
        "$0.10": Money(100_000),
        "5m": Duration(300 * SECOND),
        "-9223372036854775808": -(2**63),
    }
    for text, expected in literals.items():
        node = value(text)
        assert isinstance(node, ast.Literal)
        assert node.value == expected
        assert type(node.value) is type(expected)


def test_a_template_has_texts_and_expressions():
    node = value('"a ${x + 1} b ${"c ${y}"}"')
    assert isinstance(node, ast.Interpolation)
    assert node.parts[0] == "a "
    assert shown(node.parts[1]) == "(x + 1)"
    assert node.parts[2] == " b "
    assert isinstance(node.parts[3], ast.Interpolation)
    assert len(node.parts) == 4


def test_maps_lambdas_and_blocks_are_told_apart():
    """`{` begins a map where a value stands; behind `=>` and `|x|` it begins a block unless a key and `:` follow."""
    assert isinstance(value('{"a": 1, 2: b, c: [3],}'), ast.MapLiteral)
    assert isinstance(value("{}"), ast.MapLiteral)
    assert isinstance(value("|x| { return x; }").body.statements[0], ast.Return)
    assert isinstance(value('|x| {"k": x}').body.statements[0].value, ast.MapLiteral)
    assert value("|x| {}").body.statements == []
    arms = value('match v { 1 => {"k": 1}, 2 => { f(); } _ => {} }').arms
    assert [arm.is_value for arm in arms] == [True, False, False]


def test_arguments_may_have_names():
    call = value("f(1, b: 3, spawn: 4,)")
    assert [(argument.name, argument.value.value) for argument in call.arguments] == [("", 1), ("b", 3), ("spawn", 4)]


def test_spawn_in_all_its_forms():
    plain = value("spawn Coder")
    assert (plain.is_async, plain.is_function, plain.supervision) == (False, False, None)
    node = value("spawn async team::Coder supervised by { strategy restart max_restarts 3 window 60s }")
    assert node.is_async
    assert isinstance(node.target, ast.Path)
    assert list(node.supervision.settings) == ["strategy", "max_restarts", "window"]
    assert node.supervision.settings["strategy"].name == "restart"
    worker = value("spawn fn worker(1, x) supervised by { backoff exponential(100ms, 2.0, 5s) }")
    assert worker.is_function
    assert worker.target.callee.name == "worker"
    assert isinstance(value("spawn async"), ast.Spawn)  # an agent may be called async
    assert value("spawn async").target.name == "async"


def test_match_and_receive_have_arms():
    node = value(
        'match x { 0 => "zero", -1 => a, Ok([p, _]) => p, Err(e) => { throw e; } null => return 1, n => n = 2, }'
    )
    kinds = [type(arm.pattern).__name__ for arm in node.arms]
    assert kinds == [
        "LiteralPattern",
        "LiteralPattern",
        "VariantPattern",
        "VariantPattern",
        "LiteralPattern",
        "NamePattern",
    ]
    assert node.arms[1].pattern.value == -1
    assert [arm.is_value for arm in node.arms] == [True, True, True, False, False, False]
    waiting = statement('receive { ["go", n] => f(n), after => 1, after 5s => { g(); } }').value
    assert isinstance(waiting, ast.Receive)
    assert len(waiting.arms) == 2  # a plain `after =>` is a name like any other
    assert waiting.after.value == Duration(5 * SECOND)
    assert waiting.after_body is not None


def test_a_match_statement_ends_with_its_brace():
    """What follows is the next statement, even where it could go on as an expression."""
    assert [type(statement_) for statement_ in parse("match x { _ => 1 } (a)(b); receive { } [1];").statements] == [
        ast.ExpressionStatement
    ] * 4


# ---------------------------------------------------------------- statements


@each(
    [
        ("let x;", ast.Let),
        ("let x: list[int] = [];", ast.Let),
        ("x = 1;", ast.Assign),
        ('m["k"] = 1;', ast.Assign),
        ("r.f = 1;", ast.Assign),
        ("f(1);", ast.ExpressionStatement),
        ("if a { } else if b { } else { }", ast.If),
        ("while a { }", ast.While),
        ("for x in xs { }", ast.ForIn),
        ("for let i = 0; i < n; i = i + 1 { }", ast.For),
        ("for i = 0; i < n; f() { }", ast.For),
        ("for ;; { }", ast.For),
        ("break;", ast.Break),
        ("continue;", ast.Continue),
        ("return;", ast.Return),
        ("return 1;", ast.Return),
        ('throw "x";', ast.Throw),
        ("try { } catch A { } catch B(r) { } finally { }", ast.Try),
        ("try { } finally { }", ast.Try),
        ("parallel { }", ast.Parallel),
        ("session budget $10.00 { }", ast.Session),
        ("defer { }", ast.Defer),
        ("{ }", ast.Block),
        ("fn f(a, b: int = 1,) -> str { }", ast.Function),
        ("tool t(p: str) -> str capabilities [fs::read] { }", ast.Tool),
        ("agent A { }", ast.Agent),
        ("supervisor S { }", ast.Supervisor),
        ("const X: int = 1;", ast.Const),
        ('import "./x.vega" as x;', ast.Import),
        ('test "t" { }', ast.Test),
        ("mock A { }", ast.Mock),
    ]
)
def test_each_statement_has_its_node(text, kind):
    """And it reaches from its first character to its last."""
    node = statement(text)
    assert type(node) is kind
    assert (node.at, node.end) == (0, len(text))


def test_line_breaks_mean_nothing():
    assert len(parse("let\nx\n=\n1\n;\nif\nx\n{\n}\nelse\n{\n}").statements) == 2


def test_a_lone_semicolon_is_passed_over():
    assert statement(";;fn f() { };").name == "f"


def test_soft_words_are_ordinary_names():
    """`test`, `mock`, `in`, `child`, `timeout`, `async` … only mean something where a construct asks for them."""
    for word in _SOFT:
        assert statement(f"let {word} = {word} + 1;").name == word
        assert type(statement(f"{word}({word}: {word});")) is ast.ExpressionStatement
        assert type(statement(f"{word} = 1;")) is ast.Assign


@pytest.mark.parametrize(
    ("text", "error", "has_text"),
    [
        ('throw "text";', "Error", True),
        ('throw Broken("text");', "Broken", True),
        ("throw Broken;", "Broken", False),
        ("throw Broken();", "Broken", False),
        ("throw reason;", "Error", True),
        ("throw make(x);", "Error", True),
        ("throw MESSAGE;", "Error", True),
        ('throw "a" + b;', "Error", True),
    ],
)
def test_throw_names_its_error(text, error, has_text):
    node = statement(text)
    assert node.error == error
    assert (node.value is not None) == has_text


def test_catches_name_errors_and_bind_reasons():
    node = statement("try { } catch BudgetExceeded { } catch AgentFailed(reason) { }")
    assert [(catch.error, catch.binding) for catch in node.catches] == [
        ("BudgetExceeded", ""),
        ("AgentFailed", "reason"),
    ]


# ---------------------------------------------------------------- declarations


def test_an_agent_has_fields_blocks_and_tools():
    text = """agent Coder {
        model ["a", "b"] temperature 0.3
        retry { max_attempts 3 backoff exponential(100ms, 2.0, 5s) on [rate_limit, timeout] }
        memory window(10)
        output { name: str, tags: list[str] }
        tool read(path: str) -> str
            capabilities [fs::read]
            allowed_paths ["/project/**"]
        {
            return file::read(path);
        }
        budget $0.50
    }"""
    node = statement(text)
    assert list(node.fields) == ["model", "temperature", "retry", "memory", "output", "budget"]
    assert list(node.fields["retry"]) == ["max_attempts", "backoff", "on"]
    assert node.fields["output"].type.fields["tags"].parameters[0].name == "str"
    assert text[node.places["memory"] :].startswith("memory")
    assert text[node.places["retry.backoff"] :].startswith("backoff")
    assert node.tools[0].settings["capabilities"].items[0].module == "fs"


def test_a_supervisor_has_settings_and_children():
    node = statement(
        'supervisor S { strategy restart_all window 5s child a = fn w("x") child b = A child c = m::Other }'
    )
    assert list(node.settings) == ["strategy", "window"]
    assert [(child.name, child.is_function) for child in node.children] == [("a", True), ("b", False), ("c", False)]


@pytest.mark.parametrize(
    ("text", "kind", "target", "name"),
    [
        ('import "./x.vega" as y;', "vega", "./x.vega", "y"),
        ('import "../lib/tools.vega";', "vega", "../lib/tools.vega", "tools"),
        ('import node "charge.vsp" as charge;', "node", "charge.vsp", "charge"),
        ('import tools from mcp "server";', "mcp", "server", ""),
        ('import python "mymod:func";', "python", "mymod:func", "func"),
    ],
)
def test_imports(text, kind, target, name):
    node = statement(text)
    assert (node.kind, node.target, node.name) == (kind, target, name)


def test_tests_hold_mocks():
    node = statement('test "it works" { mock Coder { on "sort" reply "done" on ".*" reply "a" + b } f(); }')
    assert node.name == "it works"
    mock = node.body.statements[0]
    assert mock.agent == "Coder"
    assert [reply.pattern for reply in mock.replies] == ["sort", ".*"]


def test_types_are_written_in_brackets():
    written = statement("fn f(a: map[str, list[int]], g: fn(int, str) -> bool, h: fn) -> Result[str, str] { }")
    assert written.parameters[0].type.parameters[1].parameters[0].name == "int"
    assert [parameter.name for parameter in written.parameters[1].type.parameters] == ["int", "str", "bool"]
    assert written.parameters[2].type.parameters == []
    assert [parameter.name for parameter in written.result.parameters] == ["str", "str"]


# ---------------------------------------------------------------- documents


@pytest.mark.parametrize(
    "text", [block for name in ("000.md", "001.md") for block in blocks_of((DOCUMENTS / name).read_text())]
)
def test_every_example_of_the_documents_parses(text):
    parse(text)


def test_random_programs_parse_and_use_every_node():
    """The generator that tests the formatter writes every construct there is."""
    seen = set()
    for seed in range(150):
        programs = Programs.seeded(seed)
        text, _ = programs.spaced(programs.program(8))
        seen |= {type(node).__name__ for node in every_node(parse(text).statements)}
    abstract = {"SyntaxNode", "Expression", "Statement", "Pattern", "Declaration", "Module"}
    nodes = {name for name, value in vars(ast).items() if isinstance(value, type) and issubclass(value, ast.SyntaxNode)}
    assert seen == nodes - abstract


def test_every_node_lies_inside_its_parent():
    for seed in range(30):
        programs = Programs.seeded(seed)
        text, _ = programs.spaced(programs.program(8))
        for node in every_node(parse(text).statements):
            assert 0 <= node.at <= node.end <= len(text)
            for child in every_node([node]):
                assert node.at <= child.at
                assert child.end <= node.end or isinstance(node, ast.Match | ast.Receive | ast.Arm)


# ---------------------------------------------------------------- mistakes


@each(
    [
        ("let x = 1\nlet y = 2;", 1, 10, "missing `;` after this `let`"),
        ("fn f() { return 1 }", 1, 18, "missing `;` after this `return`"),
        ("f()", 1, 4, "missing `;` after this expression"),
        ("x = 1", 1, 6, "missing `;` after this assignment"),
        ("f(1) g(2);", 1, 6, "expected `;` after this expression, found `g`"),
        ("fn f() {\n  if x {\n    g();\n", 2, 8, "this `{` is never closed"),
        ("fn f() {\n  if x {\n    g();\n}\n", 1, 8, "this `{` is never closed"),
        ('agent A {\n  model "x"\n', 1, 9, "this `{` is never closed"),
        ("f(1, 2;", 1, 2, "this `(` is never closed"),
        ("let x = [1, 2;", 1, 9, "this `[` is never closed"),
        ("f();\n}", 2, 1, "this `}` closes nothing"),
        ("let x = ;", 1, 9, "expected an expression, found `;`"),
        ("let x =\nlet y = 1;", 1, 8, "expected an expression, found `let`"),
        ("let = 1;", 1, 5, "expected the name of a variable, found `=`"),
        ("let if = 1;", 1, 5, "`if` is a keyword and cannot be the name of a variable"),
        ("f(a b);", 1, 5, "expected `,` or `)` after the arguments, found `b`"),
        ("fn f(a b) { }", 1, 8, "expected `,` or `)` after the parameters, found `b`"),
        ("1 = 2;", 1, 1, "this cannot be assigned to"),
        ("x += 1;", 1, 3, "there is no `+=`"),
        ("if x = 1 { }", 1, 6, "a condition cannot assign"),
        ("if { }", 1, 4, "`if` has no condition"),
        ("for (let i = 0; i < 1; i = i + 1) { }", 1, 5, "`for` takes no parentheses"),
        ("for a, b in m { }", 1, 6, "expected `;` after the start of `for`, found `,`"),
        ("try { }", 1, 1, "this `try` has neither `catch` nor `finally`"),
        ("try { } catch { }", 1, 15, "`catch` needs the name of an error"),
        ("try { } catch (e) { }", 1, 15, "`catch` needs the name of an error"),
        ("else { }", 1, 1, "this `else` belongs to no `if`"),
        ("catch X { }", 1, 1, "this `catch` belongs to no `try`"),
        ("match x { Some(y) => 1 }", 1, 11, "`Some` is not a variant"),
        ("match x { 1 | 2 => 1 }", 1, 13, "an arm has one pattern"),
        ('match x { "${a}" => 1 }', 1, 11, "a pattern's string has no `${…}` in it"),
        ("match x {\n 1 => 2\n 3 => 4\n}", 2, 8, "missing `,` after this arm"),
        ("receive { after 5s => 1, x => 2 }", 1, 26, "`after` is the last arm of `receive`"),
        ("session 10 { }", 1, 9, "expected `budget` after `session`, found a number"),
        ("let p = spawn A(1);", 1, 16, "an agent takes no arguments"),
        ("let p = spawn A supervised { };", 1, 28, "expected `by` after `supervised`, found `{`"),
        ("p <- m timeout 1s timeout 2s;", 1, 19, "`timeout` is given twice"),
        ('agent A { model "a" model "b" }', 1, 21, "`model` is given twice"),
        ('agent A { model: "a" }', 1, 16, "a field is written without `:`"),
        ("agent A { retry { max_attempts 1 max_attempts 2 } }", 1, 34, "`max_attempts` is given twice"),
        ('import "a-b.vega";', 1, 8, "this import needs a name"),
        ("import x;", 1, 8, "`x` cannot be imported"),
        ("const X;", 1, 8, "expected `=` after the constant's name, found `;`"),
        ('throw A("x", 1);', 1, 7, "an error carries one text"),
        ('"a ${} b";', 1, 4, "there is nothing in this `${}`"),
        ('"a ${1 +} b";', 1, 9, "expected an expression, found `}`"),
        ('"a ${x y} b";', 1, 8, "expected `}` after the expression in the string, found `y`"),
        ("let x = ();", 1, 10, "there is nothing between `(` and `)`"),
        ("let x = (1, 2);", 1, 11, "there are no tuples"),
        ("let x = 9223372036854775808;", 1, 9, "this number is too large for a 64-bit int"),
        ("let x = fn(a) { };", 1, 9, "expected an expression, found `fn`"),
        ('let m = {"a" 1};', 1, 14, "expected `:` between key and value, found a number"),
        ("fn (x) { }", 1, 4, "expected the name of a function, found `(`"),
        ("let x = a.;", 1, 11, "expected a name after `.`, found `;`"),
        ("let x: = 1;", 1, 8, "expected a type, found `=`"),
        ("let x: list[int = 1;", 1, 17, "expected `,` or `]` after the types, found `=`"),
        ("agent A { output { a: str, a: int } }", 1, 28, "`a` is given twice"),
        ("agent A { tool f() { let = 1; } }", 1, 26, "expected the name of a variable, found `=`"),
        ("agent A { 5 }", 1, 11, "expected a field of the agent, found a number"),
        ("supervisor S { window 5s window 6s }", 1, 26, "`window` is given twice"),
        (
            "supervisor S { child a = 5 }",
            1,
            26,
            "expected the name of an agent, a supervisor or `fn name(…)` after `child`, found a number",
        ),
        ("supervisor S {\n  window 5s\n", 1, 14, "this `{` is never closed"),
        ("import tools of mcp;", 1, 14, "expected `from`, found `of`"),
        ("import node x;", 1, 13, "expected a string after `import`, found `x`"),
        ("let p = spawn fn w;", 1, 19, "expected `(` after the function's name, found `;`"),
        ("match x { 1 => 2; 3 => 4 }", 1, 17, "an arm ends with `,`"),
        ("match x { 1 => 2 3 => 4 }", 1, 18, "expected `,` or `}` after an arm, found a number"),
        ("match x { + => 2 }", 1, 11, "expected a pattern, found `+`"),
        ("match x { -a => 2 }", 1, 12, "expected a number after `-`, found `a`"),
        ('match x { -"a" => 2 }', 1, 11, "a string has no sign"),
        ("match x { 9223372036854775808 => 2 }", 1, 11, "this number is too large for a 64-bit int"),
        ("for a.b in xs { }", 1, 9, "`for` binds one plain name"),
        ("mock 5 { }", 1, 6, "expected the name of an agent after `mock`, found a number"),
        ("mock 1.5 { }", 1, 6, "expected the name of an agent after `mock`, found a number"),
        ("mock true { }", 1, 6, "expected the name of an agent after `mock`, found `true`"),
        ("mock A { reply 1 }", 1, 10, "expected `on` in `mock`, found `reply`"),
        ("mock A { on 1 }", 1, 13, "expected a string after `on`, found a number"),
        ('mock A { on "x" 1 }', 1, 17, "expected `reply` after the pattern, found a number"),
        ('let m = {"a": 1; };', 1, 16, "expected `,` or `}` after an entry of the map, found `;`"),
        ("let f = |x y| x;", 1, 12, "expected `|` after the parameters, found `y`"),
    ]
)
def test_a_mistake_has_its_place(text, line, column, message):
    assert problems(text) == [(line, column, message)]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("retrun 1;", "did you mean `return`?"),
        ("function f() { }", "did you mean `fn`?"),
        ("var x = 1;", "did you mean `let`?"),
        ("elif x { }", "did you mean `else if`?"),
        ("let y = a and b;", "did you mean `&&`?"),
        ("match x { Er(y) => 1 }", "did you mean `Err`?"),
        ("x += 1;", "write `x = x + …`"),
        ("session 10 { }", "write `session budget $10.00 {`"),
        ('{"a": 1};', "a `{` that begins a statement opens a block"),
    ],
)
def test_a_mistake_has_a_hint(text, hint):
    mistakes = parse_all(Source("t", text)).problems
    assert mistakes[0].hint == hint


def test_a_brace_that_is_missing_further_in_is_hinted_at():
    """The parser sees the outer one open; the layout says which one was forgotten."""
    (problem,) = parse_all(Source("t", "fn f() {\n    if x {\n        g();\n}\n\nfn h() {\n}\n")).problems
    assert (problem.line, problem.column) == (1, 8)
    assert problem.hint == "the `}` of line 4 stands further left than line 2, whose `{` it closes"


def test_several_mistakes_are_told_in_one_run():
    """Each on its line; what stands between them is read."""
    text = """let a = ;
fn f(x) {
    let b = x +;
    if x { g( ; }
    return b
}
agent A {
    model = "x"
    system "y"
    retry { max_attempts }
}
let c = 'no';
retrun c;
let ok = 1;
"""
    parsed = parse_all(Source("t", text))
    assert [problem.line for problem in parsed.problems] == [1, 3, 4, 5, 8, 10, 12, 12, 13]
    assert [
        statement_.name for statement_ in parsed.module.statements if isinstance(statement_, ast.Function | ast.Agent)
    ] == ["f", "A"]
    assert isinstance(parsed.module.statements[-1], ast.Let)


def test_parse_raises_with_everything():
    with pytest.raises(ParseError) as raised:
        parse("let = 1;\nlet y = ;", "bad.vega")
    error = raised.value
    assert (error.file, error.line, error.column) == ("bad.vega", 1, 5)
    assert [problem.line for problem in error.fields["problems"]] == [1, 2]


@pytest.mark.parametrize(
    "text", ["fn f() {", "f(1,", 'let s = """a', "/* c", '"${', "let x =", "let x = 1 +", "f()", "if a"]
)
def test_a_source_that_only_needs_more_says_so(text):
    """A prompt may then ask for another line."""
    assert parse_all(Source("t", text)).is_unfinished


@pytest.mark.parametrize("text", ["f();", "let = 1;", "fn f() { let }", 'let s = "a', "}", ""])
def test_a_source_that_more_would_not_help_does_not(text):
    assert not parse_all(Source("t", text)).is_unfinished


def test_no_more_than_fifty_mistakes_are_told():
    assert len(problems("let = 1;\n" * 1000)) == 50


@pytest.mark.parametrize(
    "opening",
    [
        "(",
        "[",
        "{",
        "f(",
        "if a {",
        "|x| ",
        "-",
        "!",
        "await ",
        "a <- ",
        "match a { b => ",
        "fn f() {",
        '[{"a": ',
        "a+(b*",
    ],
)
def test_deep_nesting_is_one_mistake(opening):
    """Thousands of levels: no crash, one sentence."""
    mistakes = problems(opening * 4000)
    assert [message for _, _, message in mistakes] == ["this is nested too deeply"]


@pytest.mark.parametrize("link", ["[0]", ".a", "()", ".f()"])
def test_long_chains_behind_a_value_are_bounded(link):
    assert "this is nested too deeply" in [message for _, _, message in problems("x" + link * 4000 + ";")]


def test_nesting_below_the_limit_is_fine():
    levels = VEGA_NESTING_MAX - 10
    parse("let x = " + "(" * levels + "1" + ")" * levels + ";")
    parse("let x = " + "[" * levels + "]" * levels + ";")
    parse("if a {" * levels + "}" * levels)


def test_long_chains_of_operators_and_branches_are_no_nesting():
    parse("let x = " + " + ".join(["1"] * 20_000) + ";")
    parse("if a { }" + " else if a { }" * 5_000)


def test_a_source_has_a_size_limit():
    assert problems(" " * (VEGA_SOURCE_CHARS_MAX + 1))[0][:2] == (1, 1)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('print "x";', "write `print(…)`"),
        ("throw new Error(1);", "errors are thrown by name: `throw Error(…)`"),
        ("let f = (x) => x;", "a function without a name is a lambda: `|x| …`"),
        ("let a, b = 1;", "one `let` for each name"),
        ("let [a, b] = [1, 2];", "to take a list apart: `match list { [a, b] => … }`"),
        ("for i in 0..3 { }", "all ints from 0 up to before 3: `list::range(0, 3)`"),
        ("fn f(x): int { }", "write `fn f(…) -> type {`"),
        ("print(2 ** 3);", "a power is `math::pow(x, y)`"),
        ("if x in xs { }", "whether a list or text has something in it: `whole.has(part)`"),
        ('a <- "x" timeot 5s;', "did you mean `timeout`?"),
        ("print(1), 2;", ""),
    ],
)
def test_habits_of_other_languages_get_a_hint(text, hint):
    assert parse_all(Source("t", text)).problems[0].hint == hint
