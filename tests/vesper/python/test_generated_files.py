"""Generated files: they are formatted, pass linters and type checkers, and run on their own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lyra.errors import SourceError
from lyra.vesper.check.judge import program_of
from lyra.vesper.direct.run import run as run_direct
from lyra.vesper.ir import NodeProgram
from lyra.vesper.nodes import load
from lyra.vesper.python.generate import HEADER, generate, source
from lyra.vesper.python.layout import SourceComment
from lyra.vesper.python.run import run as run_python
from lyra.vesper.values.outcome import new_execution
from tests.vesper.python.examples import EXAMPLES

ROOT = Path(__file__).parents[3]
NODE_FILES = sorted(
    file
    for part in ("tests/language/vesper", "tests/vesper/files", "examples")
    for file in (ROOT / part).rglob("*.vsp")
)
_IDS = [program.node_id for program in EXAMPLES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    for program in EXAMPLES:
        (folder / f"{generate(program).function}.py").write_text(source(program), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder_of_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the modules of all valid node files of this project."""
    folder = tmp_path_factory.mktemp("nodes")
    assert write_modules(NODE_FILES, folder) > 200
    return folder


def write_modules(files: list[Path], folder: Path) -> int:
    """Write the modules of those of the node files that are valid, and return how many there are."""
    for file in files:
        with suppress(SourceError):  # some are wrong on purpose
            (folder / f"{file.parent.name}_{file.stem}.py").write_text(source(program_of(load(file))), encoding="utf-8")
    return len(list(folder.iterdir()))


def _run(*command: str, cwd: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MYPYPATH": str(ROOT / "src")}
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


class _WithoutComments(ast.NodeTransformer):
    def visit_SourceComment(self, node: SourceComment) -> None:
        return None


@pytest.mark.parametrize("program", EXAMPLES, ids=_IDS)
def test_the_text_reads_back_as_the_same_tree(program: NodeProgram) -> None:
    """The text is the tree and nothing else: what is imported is what `run` compiles."""
    text = source(program)
    assert text.startswith(HEADER + "\n")
    tree = _WithoutComments().visit(generate(program).tree)
    assert _body(ast.parse(text)) == _body(tree)


def _body(tree: ast.Module) -> list[str]:
    """The statements as text; documentation is compared by its words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.kind = None
    return [ast.unparse(ast.fix_missing_locations(node)) for node in tree.body[1:] if not _is_doc(node)]


def _is_doc(node: ast.stmt) -> bool:
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(inner, clean=False):
            inner.body[0] = ast.Pass()
    return False


def test_files_are_formatted(folder: Path) -> None:
    """`ruff format` would change nothing."""
    _run(sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "120", "--diff", ".", cwd=folder)


def test_files_pass_the_linter(folder: Path) -> None:
    """`ruff check` has nothing to say about imports, names, unused values or likely mistakes."""
    rules = "E,F,W,I,N,UP,B,C4,PIE,RET,RUF,TID"
    options = ("--isolated", "--line-length", "120", "--target-version", "py311", "--select", rules)
    _run(sys.executable, "-m", "ruff", "check", *options, "--ignore", "E501,N803,N806", ".", cwd=folder)
    lines = [line for path in folder.glob("*.py") for line in path.read_text().splitlines() if len(line) > 120]
    assert all('"' in line for line in lines)  # only a text that stands in the node is longer


@pytest.mark.slow
def test_node_files_give_files_that_linters_accept(tmp_path: Path) -> None:
    """Every third file; `make verify` has them all."""
    assert write_modules(NODE_FILES[::3], tmp_path) > 66
    lint(tmp_path)


@pytest.mark.long
def test_every_node_file_gives_a_file_that_linters_accept(folder_of_nodes: Path) -> None:
    lint(folder_of_nodes)


def lint(folder: Path) -> None:
    """Lint with the linter's own settings, and with this project's. How long a flow is, is its author's choice."""
    project = ("--config", str(ROOT / "pyproject.toml"), "--no-cache")
    check = (sys.executable, "-m", "ruff", "check", "--output-format", "concise")
    _run(*check, "--isolated", "--no-cache", ".", cwd=folder)
    _run(*check, *project, "--ignore", "PLR0915,PLR0912,C901", ".", cwd=folder)
    _run(sys.executable, "-m", "ruff", "format", *project, "--check", ".", cwd=folder)


@pytest.mark.slow
def test_every_file_passes_the_type_checker(folder: Path, folder_of_nodes: Path, tmp_path: Path) -> None:
    """`mypy --strict` accepts those of the examples and of all node files; what they import is read once."""
    mypy = (sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path))
    _run(*mypy, "--python-version", "3.11", ".", cwd=folder)
    _run(*mypy, "--python-version", "3.11", ".", cwd=folder_of_nodes)


def read_source(file: str) -> str:
    """Return the module of a node file of this project."""
    return source(program_of(load(ROOT / file)))


def test_the_payment_node_has_at_most_two_and_a_half_lines_for_one_of_its_file() -> None:
    """The lines of the whole module, with imports and documentation, beside those of the node's file."""
    file = "tests/vesper/files/payment_handler.vsp"
    lines = len((ROOT / file).read_text(encoding="utf-8").splitlines())
    assert len(read_source(file).splitlines()) <= 2.5 * lines


def test_what_is_known_before_a_run_is_not_tested() -> None:
    """`success` and `error.occurred` are settled where a contract is judged, a transition between words where it is
    written; what cannot be judged is noted once."""
    payment, order = (
        read_source("tests/vesper/files/payment_handler.vsp"),
        read_source("examples/nodes/order_total.vsp"),
    )
    for text in (payment, order):
        assert "success = " not in text
        assert "occurred" not in text.replace("error.occurred", "")
    assert "_refused" not in order  # no contract says anything about an error
    assert "not in [" not in payment
    assert payment.count('run.note_unverifiable("SUM(all_user_balances) == total_system_balance")') == 1


def test_a_file_runs_in_a_fresh_interpreter(folder: Path) -> None:
    """A generated file needs the runtime module only: no loader, checker or kernel is imported."""
    script = (
        "import sys, invoice_v2, hostile_v1\n"
        "answer = invoice_v2.invoice_v2(items=[{'sku': 'a', 'price': '1.10', 'quantity': 3}])\n"
        "assert {key: str(value) for key, value in answer.items()} == {'net': '3.30', 'tax': '0.63', 'total': '3.93'}\n"
        "heavy = [name for name in sys.modules if name.startswith(('lyra.kernel', 'lyra.vesper.check'))]\n"
        "assert not heavy, heavy\n"
    )
    _run(sys.executable, "-c", script, cwd=folder)


RECORDS = """\
node_id: records_v1
type: function
intent: add up lines
types:
  Line:
    fields:
      quantity: {type: integer, min: 1}
      price: {type: decimal, scale: 2}
      note: {type: string, required: false}
inputs:
  lines: array<Line>
  first: Line
outputs:
  total: decimal
  notes: integer
  same: Line
flow:
  - step: large
    operation: data_transform
    input: lines
    transform: filter
    function: "record.quantity > 1"
    output: large
  - {step: total, operation: arithmetic, expression: "SUM(large.price)", output: total}
  - {step: notes, operation: arithmetic, expression: "COUNT(large)", output: notes}
  - {step: same, operation: arithmetic, expression: "first", output: same}
"""


def test_records_that_are_only_looked_into_are_dataclasses() -> None:
    """A record that leaves as a whole stays a dict. Callers may give either, and both paths agree."""
    program = program_of(load(RECORDS))
    text = source(program)
    assert "@dataclass(frozen=True, slots=True)\nclass Line:" in text
    assert "lines: list[Line], first: dict[str, Any]" in text
    assert "[record for record in lines if record.quantity > 1]" in text
    assert "[element.price for element in large]" in text
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "records", "exec"), space)
    lines = [{"quantity": 2, "price": "1.50"}, {"quantity": 1, "price": "9.00", "note": "no"}]
    instances = [space["Line"](2, Decimal("1.50"), None), space["Line"](1, Decimal("9.00"), "no")]
    answers = [space["records_v1"](lines=given, first=lines[0]) for given in (lines, instances)]
    assert answers[0] == answers[1]
    assert answers[0]["total"] == Decimal("1.50")
    for inputs in (
        {"lines": lines, "first": lines[0]},
        {"lines": [{"quantity": 0, "price": "1.50"}], "first": lines[0]},
        {"lines": [{"quantity": 2}], "first": lines[0]},
        {"lines": [{"quantity": 2, "price": "1.50", "other": 1}], "first": lines[0]},
        {"lines": [{"quantity": 2, "price": "1.505"}], "first": lines[0]},
        {"lines": [None], "first": lines[0]},
    ):
        python, direct = (path(program, inputs, new_execution()) for path in (run_python, run_direct))
        assert (python.status, python.outputs) == (direct.status, direct.outputs)
        assert (python.error and python.error.code) == (direct.error and direct.error.code)


# Steps that let the records of `lines` leave as a whole, with the type of what leaves.
_LEAVING = {
    "group_by": ("array<any>", "data_transform, input: lines, transform: group_by, group_by: [quantity]"),
    "filter": ("array<Line>", 'data_transform, input: lines, transform: filter, function: "record.quantity > 1"'),
    "sort": ("array<Line>", "arithmetic, expression: \"sort(lines, 'quantity')\""),
    "take": ("array<Line>", 'arithmetic, expression: "take(lines, 1)"'),
    "append": ("array<Line>", 'arithmetic, expression: "append(lines, lines[0])"'),
    "item": ("Line", 'arithmetic, expression: "lines[0]"'),
    "list": ("array<any>", 'arithmetic, expression: "[lines[0]]"'),
}


@pytest.mark.parametrize("way", _LEAVING)
def test_records_that_leave_are_equal_on_both_paths(way: str) -> None:
    """Each way out of the node, whole groups of records too."""
    kind, step = _LEAVING[way]
    head = RECORDS[: RECORDS.index("  first: Line")].replace("records_v1", f"leaving_{way}_v1")
    text = f"{head}outputs: {{out: {kind}}}\nflow:\n  - {{step: leave, operation: {step}, output: out}}\n"
    program = program_of(load(text))
    inputs = {"lines": [{"quantity": 2, "price": "1.50"}, {"quantity": 1, "price": "9.00", "note": "no"}]}
    python, direct = (path(program, inputs, new_execution()) for path in (run_python, run_direct))
    assert (python.status, python.outputs) == (direct.status, direct.outputs) == ("success", python.outputs)


def test_names_have_a_number_only_where_a_function_has_two_of_them() -> None:
    """Functions of a module share no local names; parameters of the node keep theirs."""
    text = read_source("tests/vesper/files/sales_pipeline.vsp")
    assert text.count("lambda record: record[") == 3
    assert text.count("for element in sales:") == 1
    assert "problem_" not in text  # each function has one
    order = read_source("examples/nodes/order_total.vsp")
    assert "subtotal: Decimal | int = 0" in order  # not Any: it is a number from its first value on
