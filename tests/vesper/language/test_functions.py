"""Built-in functions: every example of the table, on every evaluator, and what the examples do not show."""

from __future__ import annotations

import pytest

from lyra import vesper
from lyra.vesper.expressions.functions import FUNCTIONS
from tests.vesper.language.asking import PATH_NAMES, ask

ROWS = [(name, row.example, row.value) for name, row in FUNCTIONS.items()]


@pytest.mark.parametrize("path", PATH_NAMES)
def test_every_example_of_the_table_is_true_on_every_evaluator(path: str) -> None:
    """A function that an evaluator lacks is named here."""
    wrong = {}
    for name, example, value in ROWS:
        outcome = ask(f"[{example}, {value}, ({example}) == ({value})]", path)
        if outcome != "error" and isinstance(outcome, list) and outcome[2] is True:
            continue
        wrong[name] = outcome
    assert wrong == {}


def test_vesper_is_there() -> None:
    assert vesper
