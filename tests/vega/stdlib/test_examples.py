"""Every function of the library has an example, and the examples are true."""

from __future__ import annotations

import pytest

from lyra import vega
from lyra.vega.stdlib.examples import EXAMPLES
from lyra.vega.stdlib.table import GLOBALS, LIBRARY

NAMES = [*GLOBALS, *(f"{module}::{name}" for module, rows in LIBRARY.items() for name in rows)]
ABROAD = ("exec", "http::get", "http::post", "process::exit")  # need the world outside, or end the program


def test_each_function_has_one():
    assert sorted(EXAMPLES) == sorted(NAMES)
    for name, (code, _) in EXAMPLES.items():
        assert name + "(" in code


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ABROAD])
def test_it_gives_what_it_says(name, tmp_path):
    (tmp_path / "note.txt").write_text("hi")
    code, result = EXAMPLES[name]
    lines: list[str] = []
    vega.run(f"print({code});", stdout=lines.append, folder=str(tmp_path), args=["a", "b"])
    assert result in ("", lines[-1])


@pytest.mark.parametrize("name", ABROAD)
def test_it_is_a_good_program(name):
    assert vega.check(f"{EXAMPLES[name][0]};") == []
