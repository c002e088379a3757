"""Every node of tests/language/vesper does what its test cases say, on every path.

Expected outcomes are worked out from the rules of the language, not from a run. Pure nodes run on the Python path, the
direct path and the reference evaluator, whose outcomes are compared with each other too, and then on generated inputs:
`make test` has a dozen for each node, `make cases` 300. Nodes that act outside run in a runtime with a database, a
server and functions; their cases run in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from lyra import vesper
from lyra.vesper import Outcome
from lyra.vesper.check import check_text
from lyra.vesper.evidence import differential
from lyra.vesper.evidence.compare import compare
from lyra.vesper.evidence.properties import problems_of
from lyra.vesper.nodes.model import TestCase
from lyra.vesper.reference.run import run as reference
from tests.cases import ALL
from tests.vesper.language import corpus
from tests.vesper.language.known import KNOWN, KNOWN_DIVERGENT, known_cases
from tests.vesper.language.world import MODES, ShopServer, runtime_for

PATHS = ("python", "direct", "reference")
pytestmark = pytest.mark.usefixtures("unshrunk")
INPUTS = 300 if ALL else 12
REFERENCE_INPUTS = 30 if ALL else 8
_EXPECTED = re.compile(r"^# expect: (\w+)\[(\w+)\] (\d+):(\d+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def server() -> Iterator[ShopServer]:
    server = ShopServer()
    yield server
    server.close()


@cache
def outcomes(path: Path, evaluator: str) -> list[tuple[TestCase, Outcome]]:
    node = corpus.node_of(path)
    return [(case, vesper.execute(node, case.inputs or {}, path=evaluator)) for case in node.testing.test_cases]


# ---------------------------------------------------------------- pure nodes
@pytest.mark.parametrize("evaluator", PATHS)
@pytest.mark.parametrize("path", corpus.pure(), ids=corpus.name_of)
def test_cases_of_a_pure_node(path: Path, evaluator: str) -> None:
    problems = {
        case.name: problem
        for case, outcome in outcomes(path, evaluator)
        if (problem := problems_of(case.expected_output or {}, outcome))
    }
    assert problems.keys() == known_cases(corpus.name_of(path), evaluator), problems


@pytest.mark.parametrize("path", corpus.pure(), ids=corpus.name_of)
def test_paths_agree_on_the_cases(path: Path) -> None:
    """Also in what the cases do not say."""
    name = corpus.name_of(path)
    known = known_cases(name, "python") ^ known_cases(name, "direct")
    known_too = known_cases(name, "python") ^ known_cases(name, "reference")
    for (case, python), (_, direct), (_, third) in zip(*(outcomes(path, name) for name in PATHS), strict=True):
        assert (compare(python, direct) != []) == (case.name in known), (case.name, compare(python, direct))
        assert (compare(python, third) != []) == (case.name in known_too), (case.name, compare(python, third))


@pytest.mark.parametrize("path", corpus.pure(), ids=corpus.name_of)
def test_paths_agree_on_generated_inputs(path: Path) -> None:
    """On as many as were asked for; of a node that takes fewer, on all of them.

    Without inputs there is one execution to compare, which is not all there is where the node reads the time."""
    program = corpus.program(path)
    report = differential.test(program, INPUTS, seed=19)
    assert report.compared == (INPUTS if program.inputs else 1) or report.complete
    assert (report.divergences > 0) == (corpus.name_of(path) in KNOWN_DIVERGENT), report.kept


@pytest.mark.parametrize("path", corpus.pure(), ids=corpus.name_of)
def test_the_reference_agrees_on_generated_inputs(path: Path) -> None:
    report = differential.test(corpus.program(path), REFERENCE_INPUTS, seed=20, first=reference)
    assert (report.divergences > 0) == (corpus.name_of(path) in KNOWN_DIVERGENT), report.kept


# ---------------------------------------------------------------- nodes that act outside
@pytest.mark.parametrize("evaluator", MODES)
@pytest.mark.parametrize("path", corpus.effectful(), ids=corpus.name_of)
def test_cases_of_a_node_that_acts(path: Path, evaluator: str, tmp_path: Path, server: ShopServer) -> None:
    """In order, in one runtime; then the database holds what the file says."""
    node = corpus.node_of(path)
    known = known_cases(corpus.name_of(path), evaluator)
    problems: dict[str, list[str]] = {}
    with runtime_for(path, evaluator, tmp_path, server) as runtime:
        for case in node.testing.test_cases:
            try:
                outcome = runtime.execute(node, case.inputs or {}, mode=MODES[evaluator])
            except Exception as error:
                problems[case.name] = [f"{type(error).__name__}: {error}"]
                continue
            if problem := problems_of(case.expected_output or {}, outcome):
                problems[case.name] = problem
        evidence = runtime.evidence(node)
    assert problems.keys() == known, problems
    if not known:
        assert evidence.divergences == 0, evidence.found


@pytest.mark.parametrize("path", corpus.effectful(), ids=corpus.name_of)
def test_paths_agree_on_simulated_effects(path: Path) -> None:
    report = differential.test(corpus.program(path), 2 * REFERENCE_INPUTS, seed=21)
    third = differential.test(corpus.program(path), REFERENCE_INPUTS, seed=22, first=reference)
    divergent = report.divergences + third.divergences > 0
    assert divergent == (corpus.name_of(path) in KNOWN_DIVERGENT), (report.kept, third.kept)


# ---------------------------------------------------------------- nodes that are refused
@pytest.mark.parametrize("path", corpus.wrong(), ids=corpus.name_of)
def test_wrong_node(path: Path) -> None:
    """Exactly the expected errors, at their places; other remarks only where they are expected."""
    text = path.read_text()
    expected = {(severity, code, int(line), int(column)) for severity, code, line, column in _EXPECTED.findall(text)}
    remarks = {(issue.severity, issue.code, issue.line, issue.column) for issue in check_text(text, str(path))}
    assert expected
    assert {remark for remark in remarks if remark[0] == "error" or remark in expected} == expected, remarks


# ---------------------------------------------------------------- the corpus itself
def test_the_corpus_is_large() -> None:
    files = [*corpus.files(), *corpus.wrong()]
    assert len(files) >= 250
    assert len({path.parent for path in files}) >= 40
    assert len(corpus.cases(corpus.files())) >= 800


def test_every_accepted_file_is_run() -> None:
    """Those that act outside are told from the others as the checker tells them."""
    assert corpus.pure() == [path for path in corpus.files() if corpus.program(path).pure]
    assert {*corpus.pure(), *corpus.effectful()} == set(corpus.files())


def test_every_file_has_cases_of_its_own() -> None:
    for path in corpus.files():
        own_cases = corpus.node_of(path).testing.test_cases
        names = [case.name for case in own_cases]
        assert names, path
        assert len(set(names)) == len(names), path
        assert all(case.expected_output for case in own_cases), path


def test_what_is_known_is_there() -> None:
    names = {corpus.name_of(path): path for path in corpus.files()}
    for name, case, path in KNOWN:
        assert case in [entry.name for entry in corpus.node_of(names[name]).testing.test_cases]
        assert path in MODES
    assert KNOWN_DIVERGENT.keys() <= names.keys()
