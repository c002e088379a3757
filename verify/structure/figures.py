"""Counts what the structure tests hold to limits, and prints it: `python -m verify structure`."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Final, NamedTuple

from verify.structure.docstrings import names_a_module, stale_names
from verify.structure.grain import FUNCTION_LINES_MAX, ONE_LINERS, SMALL_LINES, Grain, measure_grain
from verify.structure.layers import PROJECT, back_up, read_contracts
from verify.structure.source_tree import FUNCTIONS, RUN_TIME, SOURCE, Import, Module, SourceTree

__all__ = [
    "VAGUE_NAMES",
    "VAGUE_WORDS",
    "Figures",
    "crosses_folders",
    "measure",
    "report",
    "vague_lines",
    "vague_names",
]

# Words that stand where a component has a name.
VAGUE_WORDS: Final = re.compile(r"\b(nobody|somebody|whoever|(any|every)(body|one))\b", re.IGNORECASE)
# Names that say nothing about what they hold.
VAGUE_NAMES: Final = frozenset({"found", "said", "made", "at", "each", "one"})
_FOLDERS_SHOWN: Final = 5


class Figures(NamedTuple):
    """What one reading of the tree gives."""

    files: int
    lines: int
    files_by_folder: dict[str, int]
    run_time_circles: list[list[str]]
    crossing_circles: list[list[str]]  # with typing imports; those that cross folders
    back_up: list[Import]
    repeated_classes: dict[str, list[str]]
    class_names: int
    vague_lines: list[str]
    undocumented_folders: list[str]
    folders_without_a_start: list[str]  # their docstring names none of their modules
    stale_names: list[str]
    vague_names: list[str]
    grain: Grain


def measure(tree: SourceTree, project: Path = PROJECT) -> Figures:
    was_collecting = gc.isenabled()
    gc.disable()  # the trees of all files are millions of objects that stay: half of the time went into looking at them
    try:
        return _measure(tree, project)
    finally:
        if was_collecting:
            gc.enable()


def _measure(tree: SourceTree, project: Path) -> Figures:
    root = tree.root
    homes = tree.files_by_class()
    return Figures(
        files=len(tree.modules),
        lines=sum(module.text.count("\n") for module in tree.modules.values()),
        files_by_folder=tree.files_by_folder(),
        run_time_circles=tree.circles(RUN_TIME),
        crossing_circles=[circle for circle in tree.circles((*RUN_TIME, "typing")) if crosses_folders(tree, circle)],
        back_up=list(back_up(read_contracts(project), tree.imports)),
        repeated_classes={name: modules for name, modules in homes.items() if len(modules) > 1},
        class_names=len(homes),
        vague_lines=[line for module in tree.modules.values() for line in vague_lines(module, root)],
        undocumented_folders=[
            name for name, module in tree.modules.items() if module.is_folder and not module.docstring
        ],
        folders_without_a_start=[
            name for name, module in tree.modules.items() if module.is_folder and not names_a_module(tree, module)
        ],
        vague_names=[line for module in tree.modules.values() for line in vague_names(module, root)],
        stale_names=[line for module in tree.modules.values() for line in stale_names(tree, module)],
        grain=measure_grain(tree),
    )


def crosses_folders(tree: SourceTree, circle: list[str]) -> bool:
    return len({tree.modules[name].folder for name in circle}) > 1


def vague_lines(module: Module, root: Path = SOURCE) -> Iterator[str]:
    """The lines with a vague word, each as `path:line: text`."""
    lines = module.text.splitlines() if VAGUE_WORDS.search(module.text) else ()
    for number, line in enumerate(lines, start=1):
        if VAGUE_WORDS.search(line):
            yield f"{module.path.relative_to(root.parent)}:{number}: {line.strip()}"


def vague_names(module: Module, root: Path = SOURCE) -> Iterator[str]:
    """The local variables, parameters and functions with a vague name, each as `path:line: name`.

    Fields of classes are left out: some of them are names in durable formats.
    """
    fields = {
        id(target)
        for node in module.each(ast.ClassDef)
        for statement in node.body
        if isinstance(statement, (ast.Assign, ast.AnnAssign))
        for target in ast.walk(statement)
    }
    for node in module.each(ast.Name, ast.arg, *FUNCTIONS):
        name = _local_name(node)
        if name.lstrip("_") in VAGUE_NAMES and id(node) not in fields:
            yield f"{module.path.relative_to(root.parent)}:{getattr(node, 'lineno', 0)}: {name}"


def _local_name(node: ast.Name | ast.arg | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the name that a node gives to a variable, a parameter or a function, or ""."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else ""
    return node.arg if isinstance(node, ast.arg) else node.name


def report(figures: Figures, *, details: bool = False) -> Iterator[str]:
    """The figures, a line each; with details, what each of them counts."""
    folders = sorted(figures.files_by_folder.items(), key=lambda item: (-item[1], item[0]))
    largest = ", ".join(f"{name} {count}" for name, count in folders[:_FOLDERS_SHOWN])
    yield f"files: {figures.files} in {len(folders)} folders; the largest: {largest}"
    if details:
        yield from (f"  {count:4} {name}" for name, count in sorted(folders))
    yield f"lines: {figures.lines}"
    yield from _grain(figures.grain, details=details)
    yield _count("run-time circles of files", figures.run_time_circles)
    yield from _circles(figures.run_time_circles)
    yield _count("circles that cross folders, typing imports included", figures.crossing_circles)
    yield from _circles(figures.crossing_circles)
    yield _count("imports back up the layers", figures.back_up)
    yield from (f"  {edge.source}:{edge.line} -> {edge.target} ({edge.kind})" for edge in figures.back_up)
    yield f"class names used in two files: {len(figures.repeated_classes)} of {figures.class_names}"
    if details:
        yield from (f"  {name}: {', '.join(modules)}" for name, modules in sorted(figures.repeated_classes.items()))
    yield _count('lines with "nobody", "somebody", "whoever", "anybody" or "everybody"', figures.vague_lines)
    if details:
        yield from (f"  {line}" for line in figures.vague_lines)
    yield _count("vague names of variables, parameters and functions", figures.vague_names)
    yield from (f"  {line}" for line in figures.vague_names)
    yield _count("folders without a docstring", figures.undocumented_folders)
    yield from (f"  {name}" for name in figures.undocumented_folders)
    yield _count("folders whose docstring names none of their modules", figures.folders_without_a_start)
    yield from (f"  {name}" for name in figures.folders_without_a_start)
    yield _count("names of modules in docstrings that lead nowhere", figures.stale_names)
    yield from (f"  {name}" for name in figures.stale_names)


def _grain(grain: Grain, *, details: bool) -> Iterator[str]:
    yield f"lines in a file: {grain.mean_lines:.0f} on average; with one importer: {len(grain.one_importer)} modules"
    for what, items in (
        (f"modules of under {SMALL_LINES} lines with one importer", grain.small_modules),
        ("files that are too long", grain.long_files),
        (f"functions of over {FUNCTION_LINES_MAX} lines", grain.long_functions),
        (f"private functions of at most {ONE_LINERS} lines that are called once", grain.short_and_called_once),
        ("functions whose docstring begins with no verb", grain.no_verbs),
        ("functions whose docstring begins with a thing", grain.nouns),
        ("modules with an `__all__` of their own names", grain.needless_lists),
    ):
        yield _count(what, items)
        if details:
            yield from (f"  {item}" for item in items)
    yield _count("private functions that are called once", grain.called_once)


def _count(what: str, items: Sized) -> str:
    return f"{what}: {len(items)}"


def _circles(circles: list[list[str]]) -> Iterator[str]:
    return (f"  {len(circle)} files: {', '.join(circle)}" for circle in circles)
