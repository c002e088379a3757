"""The permission cookbook is true: its tables are what is decided, its commands print what it shows."""

from __future__ import annotations

import re
import shlex
import tomllib
from contextvars import copy_context
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from lyra.cli.app import root
from lyra.cli.commands.permissions import try_rules
from lyra.errors import ConfigError
from lyra.tools.permissions import Layer, permissions_of, subject_of
from lyra.tools.permissions.subjects import facts_of

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "permission-cookbook.md"
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^```toml\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(\S+) ?(.*?)` \| (\w+) \| (\w+) \| (\w+) \|$", re.MULTILINE)
_SHOWN = re.compile(r"^```console\n\$ (lyra permissions [^\n]+)\n```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Recipe(NamedTuple):
    layer: str
    settings: dict[str, Any]
    rows: list[tuple[str, str, str, str, str]]


def _recipes() -> dict[str, Recipe]:
    recipes = {}
    for title, text in _SECTION.findall(PAGE.read_text(encoding="utf-8")):
        file = _FILE.search(text)
        if file is not None:
            layer = "managed" if file[1].startswith("/etc/") else "user"
            recipes[title] = Recipe(layer, tomllib.loads(file[2]), _ROW.findall(text))
    return recipes


RECIPES = _recipes()


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_decides_what_its_table_says(title: str, tmp_path: Path) -> None:
    """Each row: with a person, without one, and without one after text from outside."""
    recipe = RECIPES[title]
    workspace, home = str(tmp_path.resolve()), "/home/you"
    layer = Layer(recipe.layer, recipe.settings)
    permissions = permissions_of([layer], workspace=workspace, home=home)
    assert [tried.problem for tried in try_rules([layer], workspace=workspace, home=home) if tried.problem] == []
    assert recipe.rows
    for tool, value, *expected in recipe.rows:
        facts = facts_of(tool)
        path = f"{workspace}/{value}" if facts.kind == "path" else None
        arguments = {facts.argument or "text": value} if value else {}
        subject = subject_of(tool, arguments, workspace=workspace, home=home, path=path)
        decisions = [
            permissions.decide(subject).decision,
            permissions.decide(subject, attended=False).decision,
            permissions.decide(subject, attended=False, tainted=True).decision,
        ]
        assert decisions == expected, f"{tool} {value}"


def test_the_managed_policy_forbids_its_modes() -> None:
    """Neither a flag nor the user's file takes the mode that the recipe forbids."""
    managed = Layer("managed", RECIPES["A policy for every user of a machine"].settings)
    with pytest.raises(ConfigError, match="bypass"):
        permissions_of([managed, Layer("user", {"mode": "bypass"})], workspace="/project")
    with pytest.raises(ConfigError, match="bypass"):
        permissions_of([managed], workspace="/project", mode="bypass")


@pytest.mark.parametrize(("command", "printed"), _SHOWN.findall(PAGE.read_text(encoding="utf-8")))
def test_an_explanation_is_what_the_page_shows(
    command: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = copy_context().run(CliRunner().invoke, root, shlex.split(command)[1:])
    assert (result.exit_code, result.stdout) == (0, printed)


def test_every_recipe_is_looked_at() -> None:
    """A section that loses its file or its table does not go unseen."""
    assert len(RECIPES) == 10
    assert len(_SHOWN.findall(PAGE.read_text(encoding="utf-8"))) == 2
