"""The checker: what it finds, where it says so, what it suggests, and what it leaves alone."""

from __future__ import annotations

import pytest

from lyra.core.policies.retry import ERROR_CLASSES
from lyra.errors import CheckError, ParseError
from lyra.vega import check
from lyra.vega.checker.checker import check_source, parse_and_check
from tests.cases import cases, each
from tests.vega.programs import DOCUMENTS, Programs, blocks_of

AGENT = "agent Coder { }\n"


def problems_of(text, **options):
    return [
        (problem.line, problem.column, problem.severity, problem.message)
        for problem in check(text, "t.vega", **options)
    ]


def errors(text, **options):
    """Line, column and message of each error; a warning here is a failure of the test."""
    all_found = problems_of(text, **options)
    assert all(severity == "error" for _, _, severity, _ in all_found), all_found
    return [(line, column, message) for line, column, _, message in all_found]


def warnings(text):
    all_found = problems_of(text)
    assert all(severity == "warning" for _, _, severity, _ in all_found), all_found
    return [(line, column, message) for line, column, _, message in all_found]


def hint(text):
    return check(text)[0].hint


# ---------------------------------------------------------------- good programs

GOOD = [
    "let x; x = 1; print(x);",
    "let x; print(x != null && x.field == 1);",
    "print(f(1)); fn f(a) { return g(a); } fn g(b) { return b; }",
    "fn f() { return later; } let later = 1; print(f());",
    "let x = 1; let x = x + 1; { let x = $1.00; print(x); }",
    "fn outer() { let n = 0; fn inner() { n = n + 1; return n; } return inner; } print(outer()());",
    "let fact = |n| { if n < 2 { return 1; } return n * fact(n - 1); }; print(fact(5));",
    "fn f(a, b = 2, c: str = \"x\") { } f(1); f(1, 3); f(1, c: \"y\"); f(a: 1, b: 2);",
    "for let i = 0; i < 3; i = i + 1 { if i == 1 { continue; } break; }",
    'for c in "text" { print(c); } for k in {"a": 1} { print(k); } for x in list::range(0, 3) { print(x); }',
    "parallel { let a = 1; let b = 2; } print(a + b);",
    "fn f() { defer { print(1); } try { return 1; } catch Error(reason) { print(reason + 1); } finally { } }",
    'match Ok(1) { Ok(x) => print(x), Err([a, b]) => { print(a); } _ => print("else"), }',
    'receive { ["go", n] => print(n), after 5s => print("late") }',
    'let x: float = 1; let y: list[float] = [1, 2]; let z: map[str, int] = {"a": 1}; let w: int = null;',
    "print($1.00 + $0.50 - $0.10 * 3 < $2.00); print(1h + 30m == 90m); print(2 * 5s); print(\"cost: \" + $1.00);",
    'print("a" + 1); print(1 + "a"); print([1] + [2]); print("a" < "b");',
    "let xs = [1]; list::push(xs, \"a\"); let s: str = xs[1];",
    "let n = 1; n = \"now a text\"; print(n - 1);",
    'print("abc".len()); print([1].has(1)); print([3, 1].sort().len());',
    'const MAX: int = 3; fn f(limit = MAX) { return limit; } print(f());',
    "agent A { } let p = spawn A; let q = spawn A supervised by { strategy restart_all window 500 }; p <- q;",
    "fn w(n: int) { } let p = spawn fn w(1) supervised by { strategy one_for_all max_restarts -1 }; process::link(p);",
    "agent A { } let f = spawn async A; let p = await f; let s = p <~ \"x\"; for c in s { print(c); }",
    'try { throw Broken("x"); } catch Broken(r) { print(r); } catch AgentFailed { } catch Overflow(why) { }',
    "fn f(c: Coder, p: ProcessId, r: Result[str, str], g: fn(int) -> int) -> Response { } agent Coder { }",
    ("agent A { } fn w(x) { } supervisor S { strategy rest_for_one child a = A child b = fn w(1) child c = T } spawn S;"
     "supervisor T { child a = A }"),
    'agent A { } test "t" { mock A { on "x" reply "y" } let p = spawn A; p <- "x"; }',
    ('import node "charge.vsp" as charge; import python "m:f"; import tools from mcp "s"; charge(1); f(2);'
     'agent A { tools [charge, whatever, "Read"] }'),
    "fn f(n) { if n > 0 { return 1; } else { return 2; } }",
    "let budget = 1; print(budget + 1); print(budget::remaining());",
    "process::exit();",
    "let y = match 1 { 1 => 2 == 2, _ => false }; agent A { tools [own] tool own() { } }",
]  # fmt: skip


@each(GOOD)
def test_good_programs_have_nothing_said_about_them(text):
    assert problems_of(text) == []


@pytest.mark.parametrize("text", blocks_of((DOCUMENTS / "001.md").read_text()))
def test_the_examples_of_the_document_are_good_but_for_names_left_out(text):
    """They are parts of programs: nothing but the names declared elsewhere is missing."""
    assert all(message.startswith(("unknown name", "unknown agent")) for _, _, message in errors(text))


# ---------------------------------------------------------------- names


@each(
    [
        ("print(nam);", 1, 7, "unknown name `nam`"),
        ('let x = "a ${nam} b";', 1, 14, "unknown name `nam`"),
        ("fn f() { return nam; }", 1, 17, "unknown name `nam`"),
        ("nam = 1;", 1, 1, "unknown name `nam`"),
        ("{ let inner = 1; } print(inner);", 1, 26, "unknown name `inner`"),
        ("print(x); let x = 1;", 1, 7, "unknown name `x`"),
        ("try { } catch Error(r) { } print(r);", 1, 34, "unknown name `r`"),
        ("match 1 { x => 1, } print(x);", 1, 27, "unknown name `x`"),
        ("for x in [1] { } print(x);", 1, 24, "unknown name `x`"),
        ("let x = {name: 1};", 1, 10, "unknown name `name`"),
        ("strr::len(1);", 1, 1, "unknown module `strr`"),
        ('str::lenn("x");', 1, 6, "`str` has no `lenn`"),
        ("let p = spawn Absent;", 1, 15, "unknown agent `Absent`"),
        ("let x: strin = 1;", 1, 8, "unknown type `strin`"),
        ("fn f(a: list[itn]) { }", 1, 14, "unknown type `itn`"),
        ("fn f() { } fn f() { }", 1, 15, "`f` is already a function here"),
        ("agent A { } agent A { }", 1, 19, "`A` is already an agent here"),
        ("const X = 1; const X = 2;", 1, 20, "`X` is already a constant here"),
        ("fn f() { } let f = 1;", 1, 16, "`f` is already a function here"),
        ("fn f(a, a) { }", 1, 9, "two parameters are called `a`"),
        ("match [1, 2] { [x, x] => 1 }", 1, 20, "`x` is bound twice in this pattern"),
        ("const X = 1; X = 2;", 1, 14, "`X` is a constant and cannot be assigned to"),
        ("fn f() { } f = 1;", 1, 12, "`f` is a function and cannot be assigned to"),
        ("agent A { } let a = A;", 1, 21, "`A` is an agent, not a value"),
        ('agent A { } A <- "x";', 1, 13, "`A` is no process yet"),
        ("agent A { } A();", 1, 13, "`A` is an agent and cannot be called"),
        ("fn f() { } spawn f;", 1, 18, "`f` is a function, not an agent"),
        ("let a = 1; spawn a;", 1, 18, "`a` is a variable, not an agent"),
        ("fn f() { agent A { } }", 1, 10, "an agent is declared at the top level"),
        ('fn f() { import "x.vega" as x; }', 1, 10, "an import is declared at the top level"),
        ("mock A { }", 1, 1, "`mock` stands outside a test"),
    ]
)
def test_names_that_are_wrong(text, line, column, message):
    assert (line, column, message) in errors(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("let coder = 1; print(codr);", "did you mean `coder`?"),
        ("fn review() { } reveiw();", "did you mean `review`?"),
        ("prnt(1);", "did you mean `print`?"),
        ('print(str::lne("x"));', "did you mean `len`?"),
        ("Math::abs(1);", "did you mean `math`?"),
        ("agent Coder { } let c = spawn Codr;", "did you mean `Coder`?"),
        ("agent Coder { } let c = spawn coder;", "did you mean `Coder`?"),
        ("let x: string = \"a\";", "did you mean `str`?"),
        ("let x: boolean = true;", "did you mean `bool`?"),
        ("x = 1;", "a new variable is `let x = …`"),
        ("print(str);", "`str` is a module: `str::len(…)`"),
        ("let m = {name: 1};", 'a key that is a text stands in quotes: `"name"`'),
        ("fn f() { } spawn f;", "write `spawn fn f(…)`"),
        ("let x = 1; x::y;", "`x` is a variable; its parts are reached with `.`"),
    ],
)  # fmt: skip
def test_what_was_probably_meant(text, expected):
    assert hint(text) == expected


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("fn f(a, b) { } f(1);", 1, 16, "`f` also needs `b`"),
        ("fn f(a, b = 1) { } f();", 1, 20, "`f` also needs `a`"),
        ("fn f() { } f(1);", 1, 14, "`f` takes no arguments, and 1 are given"),
        ("fn f(a) { } f(1, 2, 3);", 1, 18, "`f` takes 1 argument, and 3 are given"),
        ("fn f(a, b = 1) { } f(1, 2, 3);", 1, 28, "`f` takes at most 2 arguments, and 3 are given"),
        ("fn f(count) { } f(coutn: 1);", 1, 19, "`f` has no parameter `coutn`"),
        ("fn f(a, b) { } f(a: 1, 2);", 1, 24, "an argument by position cannot follow a named one"),
        ("fn f(a) { } f(1, a: 2);", 1, 18, "`a` is given twice"),
        ("fn f(a = 1, b) { }", 1, 13, "`b` needs a default too"),
        ('fn f(a: int) { } f("x");', 1, 20, "`a` of `f` must be an int, and this is a str"),
        ('fn f(a: int = "x") { }', 1, 15, "`a` must be an int, and this is a str"),
        ("str::len();", 1, 1, "`str::len` also needs `s`"),
        ('str::len("a", 1);', 1, 15, "`str::len` takes 1 argument, and 2 are given"),
        ("str::len(1);", 1, 10, "`s` of `str::len` must be a str, and this is an int"),
        ("print(1, 2);", 1, 10, "`print` takes at most 1 argument, and 2 are given"),
        ("process::sleep(100);", 1, 16, "`duration` of `process::sleep` must be a duration, and this is an int"),
        ("[1].len(2);", 1, 9, "`.len` takes no arguments, and 1 are given"),
        ('"a".lenn();', 1, 5, "a str has no method `lenn`"),
        ("let f = |x| x; f(1, 2);", 1, 21, "`f` takes 1 argument, and 2 are given"),
        ("let x = 1; x(2);", 1, 12, "an int cannot be called"),
        ("fn w(a) { } spawn fn w();", 1, 22, "`w` also needs `a`"),
        ("tool t(p: str) -> str { return p; } t();", 1, 37, "`t` also needs `p`"),
    ],
)
def test_calls_that_do_not_fit(text, line, column, message):
    assert errors(text) == [(line, column, message)]


# ---------------------------------------------------------------- types


@each(
    [
        ('let x: int = "a";', 1, 14, "`x` must be an int, and this is a str"),
        ("let x: int = 1.5;", 1, 14, "`x` must be an int, and this is a float"),
        ("let x: money = 5;", 1, 16, "`x` must be money, and this is an int"),
        ("let x: str = 1; ", 1, 14, "`x` must be a str, and this is an int"),
        ('let x: list[int] = ["a"];', 1, 20, "`x` must be a list[int], and this is a list[str]"),
        ('let x: int = 1; x = "a";', 1, 21, "`x` must be an int, and this is a str"),
        ('let xs: list[int] = [1]; xs[0] = "a";', 1, 34, "what is stored here must be an int, and this is a str"),
        ('const X: int = "a";', 1, 16, "`X` must be an int, and this is a str"),
        ('fn f() -> int { return "a"; }', 1, 24, "what this function gives must be an int, and this is a str"),
        ("fn f() -> str { return 1; }", 1, 24, "what this function gives must be a str, and this is an int"),
        ("fn f(n: int) { let s: str = n; }", 1, 29, "`s` must be a str, and this is an int"),
        ("fn f() -> int { return 1; } let s: str = f();", 1, 42, "`s` must be a str, and this is an int"),
        ("let n = 1; let s: str = n;", 1, 25, "`s` must be a str, and this is an int"),
        ("let n: int[str] = 1;", 1, 8, "`int` takes no types in brackets"),
        ('print("a" - 1);', 1, 7, "`-` cannot join a str and an int"),
        ("print(true + 1);", 1, 7, "`+` cannot join a bool and an int"),
        ("print([1] + 1);", 1, 7, "`+` cannot join a list[int] and an int"),
        ('print(-"a");', 1, 7, "a str has no `-`"),
        ("print(1 < true);", 1, 7, "`<` cannot join an int and a bool"),
        ("let x = 1; x[0];", 1, 12, "an int has no items"),
        ('[1]["a"];', 1, 5, "the index of a list[int] is an int, not a str"),
        ("for x in 5 { }", 1, 10, "an int has no items to go through"),
        ("if 1 { }", 1, 4, "the condition of `if` is a bool, not an int"),
        ('while "x" { }', 1, 7, "the condition of `while` is a bool, not a str"),
        ("let x = 1; x <- 2;", 1, 12, "only a process can be sent to, not an int"),
        ("await 1;", 1, 7, "only a future or a stream can be awaited, not an int"),
        ('fn f(m: map[int]) { let x: str = m["a"]; }', 1, 34, "`x` must be a str, and this is an int"),
        ("fn f(m: map[str, int]) { m[5]; }", 1, 28, "the key of this map must be a str, and this is an int"),
        ('http::get("u").staus;', 1, 16, "a response has no field `staus`"),
        ('"a".len;', 1, 5, "a str has no field `len`"),
        ("(|x| x)(1, 2);", 1, 12, "`|x|` takes 1 argument, and 2 are given"),
        ('let s = "a"; s.name;', 1, 16, "a str has no field `name`"),
    ]
)
def test_kinds_that_are_wrong(text, line, column, message):
    assert errors(text) == [(line, column, message)]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("print($1.00 + 5s);", 1, 7, "`+` cannot join money and a duration"),
        ("print($1.00 + 1);", 1, 7, "`+` cannot join money and an int"),
        ("print(5s - 1);", 1, 7, "`-` cannot join a duration and an int"),
        ("print($1.00 * $2.00);", 1, 7, "`*` cannot join money and money"),
        ("print($1.00 * 1.5);", 1, 7, "`*` cannot join money and a float"),
        ("print($1.00 < 5);", 1, 7, "`<` cannot join money and an int"),
        ("print(5s > $1.00);", 1, 7, "`>` cannot join a duration and money"),
        ("print($1.00 / 5s);", 1, 7, "`/` cannot join money and a duration"),
        ("session budget 10 { }", 1, 16, "the budget of a session must be money, and this is an int"),
        ("session budget 5s { }", 1, 16, "the budget of a session must be money, and this is a duration"),
        ('fn f(p) { p <- "x" timeout 30; }', 1, 28, "`timeout` must be a duration, and this is an int"),
        ('fn f(p) { p <- "x" budget 5s; }', 1, 27, "`budget` must be money, and this is a duration"),
        ("receive { after 5 => 1 }", 1, 17, "`after` must be a duration, and this is an int"),
        ("let cost = $1.00; let limit = 10s; if cost < limit { }", 1, 39, "`<` cannot join money and a duration"),
    ],
)
def test_money_and_durations_are_not_mixed(text, line, column, message):
    assert errors(text) == [(line, column, message)]


def test_how_an_amount_is_written_is_said():
    assert hint("session budget 10 { }") == "an amount of money is written `$0.50`"
    assert "30s" in hint("process::sleep(5);")


def test_what_a_try_waits_for_is_a_warning():
    """A program may want to catch what fails when it is run; what is plainly wrong stays an error."""
    assert [
        severity for _, _, severity, _ in problems_of('try { print("a" - 1); $1.00 + 5s; } catch Error(r) { }')
    ] == ["warning"] * 2
    assert [severity for _, _, severity, _ in problems_of('try { print("a" - 1); } finally { }')] == ["error"]
    assert [severity for _, _, severity, _ in problems_of("try { print(nam); } catch Error(r) { }")] == ["error"]


# ---------------------------------------------------------------- places of jumps, code never reached


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("break;", 1, 1, "`break` stands outside a loop"),
        ("if true { continue; }", 1, 11, "`continue` stands outside a loop"),
        ("while true { let f = || { break; }; }", 1, 27, "`break` stands outside a loop"),
        ("return 1;", 1, 1, "`return` stands outside a function"),
        ("fn f() { defer { return 1; } }", 1, 18, "`return` cannot stand in `defer`"),
        ("while true { defer { break; } }", 1, 22, "`break` stands outside a loop"),
    ],
)
def test_jumps_that_lead_nowhere(text, line, column, message):
    assert errors(text) == [(line, column, message)]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("fn f() { return 1; print(2); print(3); }", 20),
        ("fn f(n) { if n { return 1; } else { throw \"x\"; } print(2); }", 50),
        ("while true { break; print(1); }", 21),
        ("fn f() { { return 1; } print(2); }", 24),
        ("process::exit(\"bye\"); print(1);", 23),
        ("while true { } print(1);", 16),
        ("while true { while true { break; } } print(1);", 38),
        ("for ;; { for x in [1] { break; } } print(1);", 36),
    ],
)  # fmt: skip
def test_code_that_is_never_reached_is_a_warning(text, column):
    """Told once for a block."""
    assert warnings(text) == [(1, column, "this is never reached")]


ASKING = 'agent R { model "sim/echo" } let r = spawn R; '
WAITS = "what follows in `parallel` waits for this statement"


def test_the_last_statement_of_parallel_that_asks_may_be_any():
    assert warnings(ASKING + "parallel { let x = r <- 1; r <- 2; if true { r <- 3; } print(4); }") == []


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("fn f(q) { if q <-1 { } }", 16, "`<-1` sends 1"),
        ("match 1 { x => 1, 2 => 3 }", 19, "this arm is never reached"),
        ("const A = 1; match 1 { A => 2 }", 24, "this binds a new `A`, it is not compared"),
        ("try { } catch BudgetExeeded { }", 15, "no error is called `BudgetExeeded`"),
        ("try { } catch Error { } catch AgentFailed { }", 31, "this `catch` is never reached"),
        ("let x = 1; x == 2;", 12, "this compares, and nothing uses the answer"),
        ('print({"a": 1, "a": 2});', 16, "this key is given twice"),
        ("print($1.00 == 1);", 7, "money never equals an int"),
        ("supervisor S { }", 12, "`S` has no children"),
        (ASKING + "parallel { if true { r <- 1; } r <- 2; }", 58, WAITS),
        (ASKING + "parallel { print(r <- 1); let x = r <- 2; }", 58, WAITS),
    ],
)
def test_what_is_probably_a_mistake_is_a_warning(text, column, message):
    assert warnings(text) == [(1, column, message)]


@pytest.mark.parametrize(
    "text",
    [
        "while true { if true { break; } } print(1);",
        "while true { match 1 { 1 => { break; }, _ => { } } } print(1);",
        "let n = 0; while n < 3 { n = n + 1; } print(n);",
    ],
)
def test_what_follows_a_loop_that_can_be_left_is_reached(text):
    assert problems_of(text) == []


@pytest.mark.parametrize("name", ["net::http", "exec::exec", "file::read", '"tickets.close"', '"fs.*"'])
def test_capabilities_by_any_of_their_names(name):
    assert problems_of(f"agent A {{ capabilities [{name}] }}") == []


def test_a_wrong_catch_has_a_suggestion():
    assert hint("try { } catch BudgetExeeded { }") == "did you mean `BudgetExceeded`?"


# ---------------------------------------------------------------- agents, tools, supervisors

FIELDS = """agent A {
    model ["a", "b"]
    system "x" + "y"
    temperature 0.3
    max_tokens 100
    timeout 30s
    budget $0.50
    retry { max_attempts 3 backoff exponential(100ms, 2.0, 5s) on [rate_limit, overloaded, timeout] }
    circuit_breaker { threshold 5 reset_after 30s }
    rate_limit { requests_per_minute 60 tokens_per_minute 1000 burst 5 strategy backpressure }
    priority high
    memory window(10)
    concurrency 4
    output { name: str, tags: list[str] }
    tools [look, "Read"]
    capabilities [fs::read, "net.http:example.com"]
    tool other(path: str) -> str capabilities [fs::read] allowed_paths ["/p/**"] description "Looks." { return path; }
}
tool look(path: str) -> str { return file::read(path); }
"""


def test_every_field_of_an_agent_is_known():
    assert problems_of(FIELDS) == []


@each(
    [
        ('modle "x"', 11, "an agent has no field `modle`"),
        ("model 5", 17, "`model` is a text or a list of texts"),
        ("model [1]", 18, "`model` is a text"),
        ("system 5", 18, "`system` is a text"),
        ('temperature "hot"', 23, "`temperature` is a number"),
        ("temperature -1", 23, "`temperature` is at least 0"),
        ("max_tokens 1.5", 22, "`max_tokens` is a whole number"),
        ("max_tokens 0", 22, "`max_tokens` is at least 1"),
        ("timeout 30", 19, "`timeout` is a duration, such as `30s`"),
        ("budget 5", 18, "`budget` is an amount of money, such as `$0.50`"),
        ("budget 5s", 18, "`budget` is an amount of money, such as `$0.50`"),
        ("retry 3", 17, "`retry` takes a block"),
        ("timeout { a 1 }", 11, "`timeout` takes no `{ … }`"),
        ("retry { max_atempts 3 }", 19, "`retry` has no setting `max_atempts`"),
        ("retry { max_attempts 0 }", 32, "`max_attempts` is at least 1"),
        ("retry { backoff exponential(5) }", 39, "`exponential` is a duration, such as `30s`"),
        ("retry { backoff exponental(1s) }", 27, "`backoff` is one of exponential, linear, constant"),
        ("retry { on [rate_limits] }", 23, "`on` is one of " + ", ".join(ERROR_CLASSES)),
        ("retry { on rate_limit }", 22, "`on` is a list of words"),
        ("circuit_breaker { reset_after 30 }", 41, "`reset_after` is a duration, such as `30s`"),
        ("rate_limit { burst 1 }", 11, "`rate_limit` says neither requests_per_minute nor tokens_per_minute"),
        ("rate_limit { requests_per_minute 1 strategy que }", 55, "`strategy` is one of queue, reject, backpressure"),
        ("priority hgh", 20, "`priority` is one of realtime, high, normal, low, idle"),
        ("memory windo(3)", 18, "`memory` is none, conversation or window(n)"),
        ("memory window()", 18, "`window` takes one argument"),
        ("concurrency 0", 23, "`concurrency` is at least 1"),
        ("output strin", 18, "unknown type `strin`"),
        ("tools [look]", 18, "unknown tool `look`"),
        ("tools [5]", 18, "a tool is given by its name"),
        ("capabilities [read]", 25, "a capability is written `fs::read`"),
        ("capabilities [fs::reed]", 25, "`fs::reed` is no known capability"),
        ("capabilities [tickets::close]", 25, "`tickets::close` is no known capability"),
        ('capabilities ["fs.reed:/a"]', 25, "there is no capability 'fs.reed'"),
        ("tool t() capabilities [fs::reed] { }", 34, "`fs::reed` is no known capability"),
        ("tool t() -> str allowed_path [] { }", 27, "a tool has no setting `allowed_path`"),
        ('tool t() -> str allowed_paths "x" { }', 41, "`allowed_paths` is a list of texts"),
        ("tool t() { } tool t() { }", 29, "two tools of `A` are called `t`"),
        ("tool t(x: itn) { }", 21, "unknown type `itn`"),
        ("tool t() { return nam; }", 29, "unknown name `nam`"),
    ]
)
def test_a_field_that_is_wrong(inside, column, message):
    assert errors(f"agent A {{ {inside} }}") == [(1, column, message)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('agent A { modle "x" }', "did you mean `model`?"),
        ("agent A { priority hihg }", "did you mean `high`?"),
        ("agent A { retry { bakoff constant(1s) } }", "did you mean `backoff`?"),
        ("agent A { colour 1 }", "there are model, system, "),
        ("agent A { } spawn A supervised by { strategy restrat };", "did you mean `restart`?"),
        ("agent A { } spawn A supervised by { max_restart 3 };", "did you mean `max_restarts`?"),
    ],
)
def test_a_field_that_was_probably_meant(text, expected):
    assert hint(text).startswith(expected)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("agent A { } spawn A supervised by { strategi restart };", 37, "`supervision` has no setting `strategi`"),
        ("agent A { } spawn A supervised by { window $5 };", 44, "`window` is a duration, such as `60s`"),
        ("agent A { } supervisor S { child a = A child a = A }", 40, "two children are called `a`"),
        ("supervisor S { child a = Absent }", 26, "unknown agent `Absent`"),
        ("supervisor S { child a = fn absent() }", 29, "unknown name `absent`"),
        ("agent A { } supervisor S { strategy sotp child a = A }", 37, "`strategy` is one of "),
    ],
)
def test_supervision_that_is_wrong(text, column, message):
    ((line, place, problem),) = errors(text)
    assert (line, place) == (1, column)
    assert problem.startswith(message)


# ---------------------------------------------------------------- imports

FILES = {
    "lib.vega": "fn twice(n: int) -> int { return n * 2; } agent Coder { } const LIMIT = 3; let seen = 0;",
    "bad.vega": "fn f() { return nam; }",
    "broken.vega": "let = 1;",
    "a.vega": 'import "b.vega" as b; fn fa() { return b::fb(); }',
    "b.vega": 'import "a.vega" as a; fn fb() { return a::fa(); }',
}


def load(target, _):
    return (target, FILES[target]) if target in FILES else None


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("lib::twice();", 28, "`lib::twice` also needs `n`"),
        ('lib::twice("x");', 39, "`n` of `lib::twice` must be an int, and this is a str"),
        ("lib::twcie(1);", 33, "`lib` has no `twcie`"),
        ("spawn lib::Codr;", 39, "`lib` has no `Codr`"),
        ("spawn lib::twice;", 34, "`lib::twice` is a function, not an agent"),
        ("print(lib);", 34, "`lib` is an imported file, not a value"),
        ("lib::Coder;", 28, "`lib::Coder` is an agent, not a value"),
    ],
)
def test_imported_names_are_checked(text, column, message):
    assert errors('import "lib.vega" as lib;  ' + text, load=load) == [(1, column, message)]


def test_imports_that_are_right():
    text = 'import "lib.vega"; print(lib::twice(lib::LIMIT) + lib::seen); let c = spawn lib::Coder;'
    assert problems_of(text, load=load) == []
    assert problems_of('import "lib.vega"; lib::anything(1);') == []  # the checker cannot look inside


def test_an_import_that_is_not_there():
    assert errors('import "no.vega" as no; no::f();', load=load) == [(1, 8, "cannot find `no.vega`")]


def test_mistakes_in_an_imported_file_are_told_with_its_name():
    for name, line, column in (("bad.vega", 1, 17), ("broken.vega", 1, 5)):
        (problem,) = check_source(f'import "{name}" as x;', "main.vega", load=load)
        assert (problem.file, problem.line, problem.column) == (name, line, column)


def test_files_that_import_each_other_are_checked_once():
    assert problems_of('import "a.vega" as a; a::fa();', load=load) == []


def test_an_endless_chain_of_imports_ends():
    """A host that finds a new file behind every import does not keep the checker for ever."""
    assert (
        problems_of('import "x1.vega" as x;', load=lambda target, _: (target, f'import "{target[:-5]}1.vega" as x;'))
        == []
    )


# ---------------------------------------------------------------- the whole


def test_several_errors_are_told_in_order():
    text = 'let x: int = "a";\nprint(nam);\nfn f() { undefined(); }\nbreak;\n'
    assert [(line, column) for line, column, _ in errors(text)] == [(1, 14), (2, 7), (3, 10), (4, 1)]


def test_parse_errors_come_alone():
    """A name that is missing because its line could not be read is not worth telling."""
    assert [line for line, _, _ in errors("let = 1;\nprint(nam);")] == [1]


def test_an_error_is_rendered_with_caret_and_hint():
    (problem,) = check("let coder = 1;\nprint(codr);", "r.vega")
    assert problem.render() == (
        "r.vega:2:7: error: unknown name `codr`\n    print(codr);\n          ^~~~\n    hint: did you mean `coder`?"
    )


def test_checked_gives_the_tree_or_raises():
    assert len(parse_and_check("let x = 1;").statements) == 1
    with pytest.raises(CheckError) as raised:
        parse_and_check("print(nam);", "x.vega")
    assert raised.value.place == "x.vega:1:7"
    assert len(raised.value.fields["problems"]) == 1
    with pytest.raises(ParseError):
        parse_and_check("let = 1;")
    parse_and_check("fn f() { return 1; print(2); }")  # a warning stops nothing


def test_functions_of_the_host_are_known():
    assert errors("lookup(1);") == [(1, 1, "unknown name `lookup`")]
    assert check_source("lookup(1);", host_names=["lookup"]) == []


def test_no_more_than_fifty_are_told():
    assert len(check("print(nam);\n" * 500)) == 50


def test_long_chains_are_checked_without_depth():
    assert problems_of("let x = " + " + ".join(["1"] * 20_000) + ";") == []
    assert problems_of("let a = true; if a { }" + " else if a { }" * 3_000) == []


@pytest.mark.parametrize("seed", range(cases(60)))
def test_random_programs_are_judged_without_failing(seed):
    """Whatever they hold: remarks lie inside the source and are in order."""
    programs = Programs.seeded(seed)
    text, _ = programs.spaced(programs.program(10))
    problems = check(text)
    places = [problem.at for problem in problems]
    assert places == sorted(places)
    assert all(0 <= offset <= len(text) for offset in places)


# ---------------------------------------------------------------- maps whose keys are known


def test_a_record_says_what_it_has():
    """A field too few, one too many asked for, and one of the wrong kind; more fields than needed do no harm."""
    record = "let p: {name: str, age: int} = "
    assert errors(record + '{"name": "n"};') == [(1, 32, "`p` lacks `age`")]
    assert errors(record + '{"name": 1, "age": 2};') == [(1, 41, "`name` of `p` must be a str, and this is an int")]
    good = record + '{"name": "n", "age": 2, "more": 3};\n'
    assert errors(good + "print(p.nme);") == [(2, 9, "{name: str, age: int} has no field `nme`")]
    assert errors(good + 'print(p["nme"]);') == [(2, 9, "{name: str, age: int} has no field `nme`")]
    assert errors(good + 'p.age = "x";') == [(2, 9, "what is stored here must be an int, and this is a str")]
    assert hint(good + "print(p.nme);") == "did you mean `name`?"
    assert errors(good + 'let k = "name"; print(p[k]); print(p.age + 1);') == []


def test_a_map_that_is_no_record_may_grow():
    assert (
        errors('for m in [{"a": 1}, {"a": 2}] { m["b"] = 3; print(m.b); } let n = {"a": 1}; n.b = ""; print(n.b);')
        == []
    )


def test_names_that_are_far_too_long_or_many_take_no_time():
    """Looking for what was meant costs in proportion to both."""
    long = "x" * 200_000
    assert len(check(f"let {long} = 1; print({long[1:]}y);")) == 1
    functions = "\n".join(f"fn function_number_{n}() {{ }}" for n in range(3_000))
    problems = check(functions + "\n" + "\n".join(f"fnction_number_{n}();" for n in range(2_000)))
    assert len(problems) == 50
    assert problems[0].hint == "did you mean `function_number_0`?"


def test_names_of_other_languages_get_a_hint():
    assert hint('print("a".length());') == "did you mean `len`?"
    assert hint("[1].append(2);") == "did you mean `push`?"
    assert hint('print(len("a"));') == "did you mean `str::len` or `list::len` or `map::len`?"
    assert hint("sleep(1s);") == "did you mean `process::sleep`?"


def test_functions_of_the_library_cannot_be_assigned_to():
    assert errors("print = 5;") == [(1, 1, "`print` is a function of the library and cannot be assigned to")]
