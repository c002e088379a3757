"""The grain of a tree: too small, too long, called once, without a verb."""

from __future__ import annotations

from pathlib import Path

from verify.structure.grain import measure_grain
from verify.structure.source_tree import SourceTree

USER = '''"""Uses the others."""

from house.alone import wait
from house.small import add


def total():
    """What all of it comes to."""
    return _half(add(1, 2)) + _third() + _third() + wait()


def _half(number):
    """Halve it."""
    return number // 2


def third():
    """The third part."""
    return _third()


def is_half():
    """Whether it is half."""


def a():
    """An answer."""


class Part:
    @property
    def size(self):
        """The size."""

    def test_size(self):
        """A part has a size."""


def _third():
    return 3
'''
SMALL = '"""Adds."""\n\n\ndef add(a, b):\n    """Add two numbers."""\n    return a + b\n'
ALONE = '"""Waits. It stands\nalone since it is loaded late."""\n\n\ndef wait():\n    return 0\n'
LONG = "def long():\n" + "    x = 1\n" * 80


def test_what_is_too_small_or_too_long_is_named(tmp_path: Path) -> None:
    house = tmp_path / "house"
    house.mkdir()
    texts = {"__init__": "", "user": USER, "small": SMALL, "alone": ALONE, "long": LONG, "longest": "x = 1\n" * 701}
    for name, text in texts.items():
        (house / f"{name}.py").write_text(text)
    pages = house / "dashboard" / "pages"
    pages.mkdir(parents=True)
    for folder in (pages.parent, pages):
        (folder / "__init__.py").write_text("")
    (pages / "costs.py").write_text(SMALL)
    (house / "dashboard" / "routes.py").write_text("from house.dashboard.pages import costs\n\nPAGES = (costs,)\n")
    grain = measure_grain(SourceTree(house))
    assert sorted(grain.one_importer) == ["house.alone", "house.small"]
    assert grain.small_modules == ["house.small"]
    assert grain.long_functions == ["house.long.long (81 lines)"]
    assert grain.long_files == ["house.longest"]
    assert grain.short_and_called_once == ["house.user._half"]
    assert grain.no_verbs == ["house.user.total"]
    assert grain.nouns == ["house.user.third", "house.user.is_half", "house.user.a"]
