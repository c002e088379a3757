"""What is offered, place by place."""

from __future__ import annotations

import re

import pytest

from lyra.vega import check
from lyra.vega.checker.settings import AGENT_FIELDS, BLOCKS, SUPERVISION, TOOL_SETTINGS
from lyra.vega.lsp.completion import BACKOFFS, FIELD_SNIPPETS, STATEMENT_SNIPPETS, TOP_SNIPPETS, complete
from lyra.vega.stdlib.table import GLOBALS, LIBRARY
from lyra.vega.syntax.lexer import KEYWORDS

from .texts import project

TEAM = '// Writes.\nagent Coder { model "sim/echo" }\nfn ask(what: str) -> str { return what; }\nconst LIMIT = 3;\n'


def items(text: str, **others: str):
    workspace, path, offset = project(text, **others)
    return complete(workspace, path, offset)


def offered(text: str, **others: str) -> set[str]:
    return {item.label for item in items(text, **others)}


def test_a_statement_may_begin_with_names_keywords_and_the_library():
    labels = offered("let total = 1;\nfn f(x) { }\nagent A { }\n‸\n")
    assert {"total", "f", "A"} <= labels
    assert set(KEYWORDS) <= labels
    assert set(GLOBALS) <= labels
    assert set(LIBRARY) <= labels


def test_names_are_those_in_scope():
    text = (
        "let before = 1;\nfn f(given) {\n    let inner = 1;\n    ‸\n    let after = 2;\n}\n"
        "let later = 3;\nfn g(other) { }\n"
    )
    labels = offered(text)
    assert {"given", "inner", "before", "later", "f", "g"} <= labels
    assert not {"after", "other"} & labels


def test_at_the_top_level_a_variable_is_offered_from_its_let_on():
    assert "later" not in offered("‸\nlet later = 1;\n")
    assert "later" in offered("let later = 1;\n‸\n")


def test_names_are_offered_while_the_line_is_broken():
    assert "total" in offered("fn f() {\n    let total = 1;\n    print(to‸\n}\n")
    assert "total" in offered("fn f() {\n    let total = 1;\n    if to‸\n}\n")


def test_names_are_offered_in_a_text_without_a_tree():
    """An open string swallows the file; the names of the text before are still there."""
    workspace, path, _ = project("let total = 1;\nprint(total);\n")
    assert workspace.analysis(path)
    document = workspace.open[path]
    document.text = 'let total = 1;\nprint("${to'
    document._lines = None
    workspace.forget_derived()
    assert "total" in {item.label for item in complete(workspace, path, len(document.text))}


@pytest.mark.parametrize("module", LIBRARY)
def test_behind_a_module_its_functions(module):
    assert offered(f"print({module}::‸);\n") == set(LIBRARY[module])
    assert offered(f"print({module}::le‸);\n") == set(LIBRARY[module])


def test_behind_an_import_what_it_declares():
    assert offered('import "./team.vega" as team;\nteam::‸\n', team=TEAM) == {"Coder", "ask", "LIMIT"}
    assert offered('import "./team.vega" as team;\nlet c = spawn team::‸;\n', team=TEAM) == {"Coder"}


def test_behind_a_dot_the_methods_of_the_kind():
    labels = offered("let xs = [1];\nxs.‸\n")
    assert {"push", "len", "has", "join"} <= labels
    assert "upper" not in labels
    assert "upper" in offered('print("a".‸);\n')
    assert {"upper", "push"} <= offered("fn f(x) { x.‸ }\n")


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("agent A {\n    ‸\n}\n", AGENT_FIELDS),
        ('agent A {\n    model "sim/echo"\n    bud‸\n}\n', AGENT_FIELDS),
        ("agent A { retry { ‸ } }\n", BLOCKS["retry"]),
        ("agent A { rate_limit {\n    ‸\n} }\n", BLOCKS["rate_limit"]),
        ("supervisor S {\n    ‸\n}\n", SUPERVISION),
        ("agent A { }\nlet p = spawn A supervised by { ‸ };\n", SUPERVISION),
        ("tool t(x: str) -> str ‸ { }\n", TOOL_SETTINGS),
        ("agent A { tool t(x: str) ‸ { } }\n", TOOL_SETTINGS),
    ],
)
def test_inside_a_block_its_settings(text, table):
    labels = offered(text)
    assert set(table) <= labels
    assert "while" not in labels
    assert "print" not in labels


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agent A { priority ‸ }\n", {"high", "low", "normal", "realtime", "idle"}),
        ("agent A { memory ‸ }\n", {"none", "conversation", "window"}),
        ("supervisor S { backoff ‸ }\n", set(BACKOFFS)),
        ("agent A { rate_limit { strategy ‸ } }\n", {"queue", "reject", "backpressure"}),
    ],
)
def test_a_setting_offers_its_words(text, words):
    assert offered(text) == words


def test_a_retry_offers_what_it_may_be_on():
    words = BLOCKS["retry"]["on"].split(" ")[1:]
    assert words
    assert offered("agent A { retry { on [‸] } }\n") == set(words)
    assert not set(words) & offered("agent A { tools [‸] }\n")


def test_lists_of_settings_offer_what_fits():
    assert {"t", "own", "f"} <= offered("tool t() { }\nfn f() { }\nagent A { tools [‸] tool own() { } }\n")
    assert "A" not in offered("tool t() { }\nagent A { tools [‸] }\n")
    assert "fs::read" in offered("agent A { capabilities [‸] }\n")
    assert "read" in offered("agent A { capabilities [fs::‸] }\n")


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("agent A { }\nfn f() { }\nlet p = spawn ‸;\n", {"A", "fn", "async"}, {"f", "let"}),
        ("agent A { }\nlet p = spawn async ‸;\n", {"A", "fn"}, {"let"}),
        ("agent A { }\nsupervisor S { child a = ‸ }\n", {"A", "fn"}, {"let"}),
        ('agent A { }\ntest "t" { mock ‸ }\n', {"A"}, {"let"}),
        ("agent A { }\nlet x: ‸\n", {"int", "list", "A"}, {"let", "print"}),
        ("fn f(x: ‸) { }\n", {"int", "list"}, {"let"}),
        ("fn f() -> ‸ { }\n", {"int", "Result"}, {"let"}),
        ("try { } catch ‸\n", {"Error", "BudgetExceeded", "KeyError"}, {"let"}),
    ],
)
def test_each_place_offers_what_fits_there(text, wanted, unwanted):
    labels = offered(text)
    assert wanted <= labels
    assert not unwanted & labels


@pytest.mark.parametrize(
    "text", ["let ‸", "fn ‸", "agent ‸", "// a ‸", "/* a ‸", 'print("a‸', 'print("""a\n‸', "fn f(‸", "const ‸"]
)
def test_nothing_is_offered_where_a_name_is_invented_or_text_is_written(text):
    assert offered(text) == set()


def test_inside_a_string_only_its_expressions():
    assert "total" in offered('let total = 1;\nprint("it is ${‸}");\n')
    assert "len" in offered('let total = 1;\nprint("it is ${str::‸}");\n')
    assert "print" in offered('print("it is ${f("x ${‸')
    assert "print" in offered("print(" + '"${' * 20 + "‸")


def test_inside_an_import_files(tmp_path):
    (tmp_path / "team.vega").write_text(TEAM)
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "deep.vega").write_text("")
    workspace, path, offset = project('import "‸";\n', tmp_path)
    assert {item.label for item in complete(workspace, path, offset)} == {"./team.vega", "./more/"}
    workspace, path, offset = project('import "./more/‸";\n', tmp_path)
    assert {item.label for item in complete(workspace, path, offset)} == {"deep.vega"}


def test_items_say_what_they_are():
    by_name = {
        item.label: item for item in items("// Adds.\nfn add(a: int, b: int) -> int { return a; }\nlet n = 1;\n‸\n")
    }
    assert by_name["add"].detail == "fn add(a: int, b: int) -> int"
    assert by_name["add"].text == "Adds."
    assert by_name["n"].detail == "int"


def test_arguments_can_be_named():
    assert {"what:", "times:"} <= offered("fn ask(what, times = 1) { }\nask(‸);\n")


def filled(snippet: str) -> str:
    """A snippet with its places filled in."""
    text = re.sub(r"\$\{\d+:([^}]*)\}", r"\1", snippet)
    return re.sub(r"(?<!\\)\$\d", "", text).replace("\\$", "$")


@pytest.mark.parametrize("name", TOP_SNIPPETS)
def test_snippets_of_declarations_are_good_programs(name):
    around = 'agent Agent { model "sim/echo" }\n' if name == "supervisor" else ""
    text = around + filled(TOP_SNIPPETS[name][1])
    assert [problem.message for problem in check(text)] == []


@pytest.mark.parametrize("name", STATEMENT_SNIPPETS)
def test_snippets_of_statements_are_good_statements(name):
    """Written into a function where the names they mention are known."""
    text = filled(STATEMENT_SNIPPETS[name][1]).replace("=> ,", "=> null,")
    head = 'agent Agent { model "sim/echo" }\nfn f(condition, list, n, value) {\n'
    assert [problem.message for problem in check(f"{head}{text}\n}}\n")] == []


@pytest.mark.parametrize("name", [name for name in FIELD_SNIPPETS if name in AGENT_FIELDS])
def test_snippets_of_fields_are_good_fields(name):
    text = f"agent A {{ {filled(FIELD_SNIPPETS[name])} }}\n"
    assert [problem.message for problem in check(text)] == []
