"""The source tree shows the architecture: imports point one way, folders are small, names mean one thing.

`python -m verify structure --details` prints what these tests count.
"""

from __future__ import annotations

import pytest

from verify.structure.figures import Figures, measure

# A folder is read at a glance.
FILES_IN_A_FOLDER_MAX = 28

# Public class names that two files use for the same idea: a declaration and the node of Vega's syntax tree that
# declares it, or a thing and the value that stands for it in a Vega program.
SAME_IDEA = {
    "Agent": "the declaration in Python and in Vega's tree",
    "Tool": "the declaration in Python and in Vega's tree",
    "Supervision": "the policy, and its block in Vega's tree",
    "Process": "a process of the kernel, and a Vega program's value for one",
    "Stream": "an answer piece by piece, and a Vega program's value for one",
    "Function": "a function in Vega's tree and in its bytecode",
    "Parameter": "a parameter in Vega's tree and in its bytecode",
}

# Ratchets: these counts only go down. The goal of the second is zero.
REPEATED_CLASS_NAMES_MAX = 13
VAGUE_LINES_MAX = 0


@pytest.fixture(scope="module")
def figures() -> Figures:
    return measure()


def test_no_files_import_each_other_in_a_circle_at_run_time(figures: Figures) -> None:
    """Imports inside functions count: a circle that is closed late is still a circle."""
    assert figures.run_time_circles == []


def test_no_circle_crosses_folders_even_with_typing_imports(figures: Figures) -> None:
    assert figures.crossing_circles == []


def test_imports_follow_the_layers_of_the_contracts(figures: Figures) -> None:
    """The contracts of pyproject.toml hold for typing imports, too."""
    assert figures.back_up == []


def test_folders_are_small(figures: Figures) -> None:
    assert {folder: n for folder, n in figures.files_by_folder.items() if n > FILES_IN_A_FOLDER_MAX} == {}


def test_every_folder_says_what_it_owns(figures: Figures) -> None:
    """The docstring of its `__init__.py` does."""
    assert figures.undocumented_folders == []


def test_a_class_name_means_one_thing(figures: Figures) -> None:
    """A name in two files is allowed where both are the same idea; the number of others only goes down."""
    assert set(figures.repeated_classes) >= SAME_IDEA.keys(), "a name of SAME_IDEA is used once: take it off the list"
    repeated = {name: homes for name, homes in figures.repeated_classes.items() if name not in SAME_IDEA}
    assert len(repeated) <= REPEATED_CLASS_NAMES_MAX, repeated


def test_sentences_name_the_component(figures: Figures) -> None:
    """Lines with "nobody", "somebody" or "whoever" name no component; their number only goes down."""
    assert len(figures.vague_lines) <= VAGUE_LINES_MAX, figures.vague_lines
