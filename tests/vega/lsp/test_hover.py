"""Types and costs of what is under the pointer."""

from __future__ import annotations

import pytest

from lyra.vega.lsp.hover import hover
from lyra.vega.stdlib.table import GLOBALS, LIBRARY
from lyra.vega.syntax.lexer import KEYWORDS

from .texts import project

CODER = """\
// Writes code.
// Slowly.
agent Coder {
    model "claude-sonnet-4-5"
    budget $0.50
    timeout 30s
    capabilities [fs::read]
    tool look(path: str) -> str capabilities [fs::read] { return path; }
}
"""


def shown(text: str, **others: str) -> str:
    workspace, path, offset = project(text, **others)
    told = hover(workspace, path, offset)
    return told.text if told is not None else ""


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        ("let ‸a = 1;\n", "let a: int"),
        ("let a = [1, 2];\nprint(‸a);\n", "let a: list[int]"),
        ("let a: map = {};\nprint(‸a);\n", "let a: map"),
        ("let a = $1.50;\nlet ‸b = a * 2;\n", "let b: money"),
        ('let a = str::len("x");\nprint(‸a);\n', "let a: int"),
        ('let a = json::parse("1");\nprint(‸a);\n', "let a"),
        ('for ‸c in "abc" { }\n', "let c: str"),
        ("for ‸n in [1, 2] { }\n", "let n: int"),
        ("try { } catch Error(‸e) { }\n", "let e: str"),
        ("const ‸LIMIT = 5;\n", "const LIMIT: int = 5"),
        ('fn f(a: int, ‸b: str = "x") { }\n', 'b: str = "x"'),
        ('fn ‸f(a: int, b = 2) -> str { return ""; }\n', "fn f(a: int, b = 2) -> str"),
        ("fn f(n) { return n; }\nlet x = ‸f(1);\n", "fn f(n)"),
        ("agent A { }\nsupervisor S { child ‸a = A }\n", "child a"),
    ],
)
def test_names_show_their_types(text, heading):
    assert f"```vega\n{heading}\n```" in shown(text)


def test_an_agent_shows_who_answers_and_what_that_costs():
    """Model, price of a thousand tokens, budget, what it may do, and the comment above it."""
    text = shown(CODER + "let c = spawn ‸Coder;\n")
    assert "Writes code.\nSlowly." in text
    assert "- model: `claude-sonnet-4-5`" in text
    assert "- price: $0.003 in, $0.015 out per 1k tokens" in text
    assert "- budget: `$0.50` a call" in text
    assert "- capabilities: `[fs::read]`" in text
    assert "- tool: `look(path: str)` with `[fs::read]`" in text


def test_an_agent_that_may_do_nothing_says_so():
    assert "- capabilities: none" in shown("agent A { }\nlet c = spawn ‸A;\n")
    assert "- capabilities: none" not in shown(CODER + "let c = spawn ‸Coder;\n")


def test_a_variable_that_holds_a_process_shows_the_agent_behind_it():
    text = shown(CODER + 'let c = spawn Coder;\nprint(‸c <- "hi");\n')
    assert "let c: process" in text
    assert "per 1k tokens" in text


@pytest.mark.parametrize(
    ("output", "kind"), [("", "str"), ("output { title: str }", "{ title: str }"), ("output list", "list")]
)
def test_an_answer_shows_its_type_and_what_asking_costs(output, kind):
    agent = CODER.replace("budget", f"{output}\n    budget") if output else CODER
    text = shown(agent + 'let c = spawn Coder;\nlet r = c <- "hi";\nprint(‸r);\n')
    assert f"let r: {kind}" in text
    assert "per 1k tokens" in text
    arrow = shown(agent + 'let c = spawn Coder;\nlet r = c ‸<- "hi";\n')
    assert f"Asks agent `Coder`; the answer is `{kind}`." in arrow
    assert "- budget: `$0.50` a call" in arrow


def test_an_arrow_to_an_unknown_agent_says_what_it_does():
    assert "a stream of its text" in shown(CODER + 'let c = spawn Coder;\nfor x in c <‸~ "hi" { }\n')
    assert shown('fn f(p) { return p ‸<- "hi"; }\n').startswith("Sends a message")


def test_a_price_that_is_not_in_the_table_is_said_to_be_unknown():
    assert "- price: unknown" in shown('agent ‸A { model "anthropic/claude-from-tomorrow" }\n')
    assert "- price: unknown" in shown('agent ‸A { model "unknown" }\n')
    assert "- price: free" in shown('agent ‸A { model "sim/echo" }\n')


def test_a_price_of_the_settings_is_the_one_shown(tmp_path):
    (tmp_path / "lyra.toml").write_text(
        '[prices."anthropic/claude-sonnet-4-5"]\ninput_usd_per_mtok = 30.0\noutput_usd_per_mtok = 150.0\n'
    )
    workspace, path, offset = project('agent ‸A { model "claude-sonnet-4-5" }\n', tmp_path)
    told = hover(workspace, path, offset)
    assert told is not None
    assert "- price: $0.03 in, $0.15 out per 1k tokens" in told.text
    (tmp_path / "lyra.toml").write_text("[prices\n")
    told = hover(workspace, path, offset)
    assert told is not None
    assert "- price: $0.003 in, $0.015 out per 1k tokens" in told.text


def test_the_text_of_a_model_shows_its_price():
    assert "per 1k tokens" in shown('agent A { model "claude-‸sonnet-4-5" }\n')


def test_every_function_of_the_library_shows_its_signature_and_its_sentence():
    for module, names in {**LIBRARY, "": GLOBALS}.items():
        for name, entry in names.items():
            lead = f"{module}::" if module else ""
            text = shown(f"print({lead}‸{name});\n")
            assert entry.text in text
            assert f"{lead}{name}(" in text
            assert ("effect" in text.splitlines()[-1]) == (entry.how == "effect")


def test_methods_show_the_function_behind_them():
    assert "list::push" in shown("let xs = [1];\nxs.‸push(2);\n")
    assert "str::upper" in shown('print("a".‸upper());\n')


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("agent A { ‸budget $1.00 }\n", "Takes an amount of money."),
        ("agent A { retry { ‸max_attempts 3 } }\n", "Takes a whole number, at least 1"),
        ("agent A { ‸retry { max_attempts 3 } }\n", "Takes a block `{ … }`."),
        ("agent A { }\nlet p = spawn A supervised by { ‸strategy restart };\n", "one of"),
        ('tool t() ‸description "x" { }\n', "Takes a text."),
        ('print(‸str::len(""));\n', "A module of the library"),
        ("try { } catch ‸KeyError { }\n", "a key that a map does not have"),
    ],
)
def test_settings_modules_and_errors_explain_themselves(text, part):
    assert part in shown(text)


def test_keywords_have_a_sentence():
    from lyra.vega.lsp.texts import KEYWORD_TEXTS

    assert set(KEYWORD_TEXTS) == set(KEYWORDS)
    assert "Starts a process" in shown("agent A { }\nlet p = ‸spawn A;\n")


def test_names_of_other_files_are_described_as_there():
    text = shown('import "./team.vega" as team;\nlet c = spawn team::‸Coder;\n', team=CODER)
    assert "per 1k tokens" in text
    assert "`Coder`" in shown('import "./team.vega" as ‸team;\n', team=CODER)


@pytest.mark.parametrize("text", ["‸\n", "// wo‸rd\n", 'print("wo‸rd");\n', "print(1‸2);\n", "let x = nobo‸dy;\n", ""])
def test_nothing_is_shown_where_there_is_nothing(text):
    assert shown(text) == ""


def test_a_broken_text_still_shows_what_can_be_read():
    assert "let a: int" in shown("let a = 1;\nprint(‸a);\nlet b = ;\n")


def test_an_imported_node_shows_its_inputs_and_outputs(tmp_path):
    """Hover and signature help say what the file declares; the checker's remark stands at the argument."""
    from lyra.vega.lsp.hover import signature_help
    from lyra.vesper.runtime.faces import read_file

    node = (
        "node_id: twice_v1\ntype: function\nintent: Double a number\ninputs: {n: integer}\n"
        "outputs: {twice: integer}\nflow:\n"
        "  - {step: double, operation: arithmetic, expression: n * 2, output: twice}\n"
    )
    (tmp_path / "twice.vsp").write_text(node)
    workspace, path, offset = project('import node "twice.vsp" as twice;\ntw‸ice(1);\n', tmp_path)
    workspace.read_node = read_file
    told = hover(workspace, path, offset)
    assert told is not None
    assert "twice(n: int) -> {twice: int}" in told.text
    assert "Double a number" in told.text
    shown_help = signature_help(workspace, path, offset + len("ice("))
    assert shown_help is not None
    assert shown_help.parameters == ["n: int"]
    workspace, path, _ = project('import node "twice.vsp" as twice;\ntwice(‸"x");\n', tmp_path)
    workspace.read_node = read_file
    known = workspace.analysis(path)
    assert known is not None
    assert [problem.message for problem in known.check()] == ["`n` of `twice` must be an int, and this is a str"]
