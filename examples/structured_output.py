"""An answer as a value: parsed, checked, asked for again when it does not fit.

python examples/structured_output.py --sim
python examples/structured_output.py  # with ANTHROPIC_API_KEY
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import lyra
from lyra.errors import LyraError
from lyra.models.sim import SimProvider

SCRIPT = [
    {"text": '{"title": "Oat bread", "minutes": "an hour", "ingredients": []}'},  # does not fit
    {"text": '{"title": "Oat bread", "minutes": 60, "ingredients": [{"name": "oats", "grams": 250}]}'},
]
MODEL = SimProvider(SCRIPT) if "--sim" in sys.argv else "anthropic/claude-sonnet-4-5"


@dataclass
class Ingredient:
    name: str
    grams: int


@dataclass
class Recipe:
    title: str
    minutes: int
    ingredients: list[Ingredient]


def main() -> None:
    baker = lyra.Agent("baker", model=MODEL, output=Recipe)
    recipe: Recipe = lyra.run(baker, "A recipe for oat bread, please.")
    print(f"{recipe.title} takes {recipe.minutes} minutes")
    for ingredient in recipe.ingredients:
        print(f"- {ingredient.grams} g {ingredient.name}")


if __name__ == "__main__":
    try:
        main()
    except LyraError as error:
        sys.exit(error.render())
