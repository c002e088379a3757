"""`vega test`: test blocks, each in a run of its own."""

from __future__ import annotations

from tests.cli.vega_runner import Vega, vega

__all__ = ["vega"]

REVIEW = """\
agent Reviewer { model "claude-sonnet-4-20250514" }

let seen = [];

fn review(code) {
    let r = spawn Reviewer;
    list::push(seen, code);
    return r <- "review: " + code;
}

test "a mock answers" {
    mock Reviewer {
        on "good" reply "fine"
        on "review: .*" reply "bad" + "!"
    }
    assert(review("good code") == "fine");
    assert(review("other") == "bad!");
    assert(seen.len() == 2);
}

test "nothing is left of the test before" {
    assert(seen.len() == 0);
}

fn main() { throw "tests do not call main"; }
"""


def test_tests_pass_without_a_key(vega: Vega):
    vega.write("review.vega", REVIEW)
    assert vega("test", "review.vega") == (
        0,
        "ok  review.vega: a mock answers\nok  review.vega: nothing is left of the test before\n2 passed\n",
        "",
    )


def test_a_failure_has_its_place_and_what_was_printed(vega: Vega):
    vega.write(
        "a.vega", 'test "fine" { }\ntest "sum" {\n    print("here");\n    assert(1 + 1 == 3, "one and one");\n}\n'
    )
    vega.write("sub/b.vega", 'test "other" { throw Broken("b"); }')
    vega.write(".hidden/c.vega", 'test "not run" { throw Broken("c"); }')
    done = vega("test")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "ok  a.vega: fine",
        "FAILED  a.vega: sum",
        "    | here",
        "FAILED  sub/b.vega: other",
        "1 passed, 2 failed",
    ]
    assert "error[AssertionFailed]: one and one\n  at a.vega:4:5\n        assert(" in done.stderr
    assert "error[Broken]: b\n  at sub/b.vega:1:16" in done.stderr


def test_an_agent_without_a_mock_is_simulated(vega: Vega):
    vega.write("a.vega", 'agent A { model "claude-x" }\ntest "echo" { let a = spawn A; assert((a <- "hi") == "hi"); }')
    assert vega("test", "a.vega").returncode == 0


def test_a_mock_answers_streams_too(vega: Vega):
    source = """\
agent A { model "claude-x" }
test "stream" {
    mock A { on "x" reply "one two" }
    let a = spawn A;
    assert(await (a <~ "x") == "one two");
}
"""
    vega.write("a.vega", source)
    assert vega("test", "a.vega").returncode == 0


def test_what_no_mock_answers_is_a_failure(vega: Vega):
    source = 'agent A { model "m" }\ntest "t" { mock A { on "x" reply "y" } let a = spawn A; a <- "other"; }'
    vega.write("a.vega", source)
    done = vega("test")
    assert done.returncode == 1
    assert "no reply" in done.stderr


def test_tests_of_an_import_run_where_they_stand(vega: Vega):
    vega.write("lib.vega", 'fn one() { return 1; }\ntest "one" { assert(one() == 1); }')
    vega.write("main.vega", 'import "./lib.vega" as lib;\ntest "main" { assert(lib::one() == 1); }')
    assert vega("test").stdout == "ok  lib.vega: one\nok  main.vega: main\n2 passed\n"
    assert vega("test", "-k", "main").stdout == "ok  main.vega: main\n1 passed\n"


def test_a_wrong_file_is_exit_2_and_the_others_are_tested(vega: Vega):
    vega.write("a.vega", "let x = nope;")
    vega.write("b.vega", 'test "b" { }')
    done = vega("test")
    assert done.returncode == 2
    assert "a.vega:1:9: error: " in done.stderr
    assert done.stdout == "ok  b.vega: b\n1 passed\n"


def test_a_wrong_file_alone_is_not_said_to_have_no_tests(vega: Vega):
    vega.write("a.vega", 'test "a" { assert(nope); }')
    done = vega("test", "a.vega")
    assert (done.returncode, done.stdout) == (2, "")


def test_as_json(vega: Vega):
    vega.write("a.vega", 'test "yes" { }\ntest "no" { assert(false); }')
    told = vega.json("test", code=1)
    assert (told["ok"], told["passed"], told["failed"]) == (False, 1, 1)
    assert [test["name"] for test in told["tests"]] == ["yes", "no"]
    assert told["tests"][1]["error"]["name"] == "AssertionFailed"


def test_no_tests_are_said(vega: Vega):
    assert vega("test").stdout.startswith("no tests found")


def test_agents_without_a_mock_have_the_model_that_is_named(vega: Vega):
    vega.write("script.yaml", "replies:\n  - text: from the script\n")
    source = 'agent A { model "claude-x" }\ntest "t" { let a = spawn A; assert((a <- "hi") == "from the script"); }'
    vega.write("a.vega", source)
    assert vega("test", "a.vega").returncode == 1
    assert vega("test", "a.vega", "--model", "sim/script:script.yaml").returncode == 0


def test_only_tests_with_that_text_in_their_name(vega: Vega):
    vega.write("a.vega", 'test "one" { }\ntest "two" { throw Broken("b"); }')
    assert vega("test", "a.vega", "--match", "one").stdout == "ok  a.vega: one\n1 passed\n"
