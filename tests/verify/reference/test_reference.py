"""The reference pages are the tables."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from lyra.cli.app import COMMANDS
from lyra.config import KEYS
from lyra.errors import ConfigError
from verify.reference.pages import pages, write
from verify.reference.vega_examples import EXAMPLES

FOLDER = Path(__file__).parents[3] / "docs" / "reference"


def test_the_kept_pages_are_the_written_ones():
    """A page that no longer agrees with its table is named, with the command that writes it."""
    written = pages()
    stale = [name for name, page in written.items() if (FOLDER / name).read_text(encoding="utf-8") != page]
    lines = [
        line
        for name in stale
        for line in unified_diff(
            (FOLDER / name).read_text(encoding="utf-8").split("\n"), written[name].split("\n"), n=0
        )
    ]
    way = "run `python -m verify reference`: the tables say something else than"
    assert not stale, f"{way} {stale} in docs/reference: {lines[:20]}"


def test_a_function_without_an_example_is_named_with_its_place(monkeypatch):
    monkeypatch.delitem(EXAMPLES, "str::upper")
    with pytest.raises(ConfigError, match=r"str::upper has no example") as raised:
        pages()
    assert raised.value.hint == "give it one in EXAMPLES of verify/reference/vega_examples.py"


def test_the_pages_are_complete(tmp_path):
    """Every key, every command and every exit code is on them."""
    write(str(tmp_path))
    configuration = (tmp_path / "configuration.md").read_text(encoding="utf-8")
    for key in KEYS.values():
        assert f"| `{key.name}` |" in configuration
        assert key.variable in configuration
    commands = (tmp_path / "cli.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"### lyra {name}\n" in commands
    for number in (0, 1, 2, 3, 4, 130):
        assert f"| {number} |" in commands
