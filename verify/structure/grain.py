"""The grain of the source tree: how large files and functions are, and which of them are too small to stand alone.

A module of under `SMALL_LINES` lines with one importer is a section of its importer, unless its docstring says why it
"stands alone". A page of the dashboard has one subject a module, and one importer by design: the table of pages.
Generated modules are left out. `tests/test_structure.py` holds the counts to limits.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from verify.structure.source_tree import FUNCTIONS, Module, SourceTree

SMALL_LINES: Final = 80
FILE_LINES_MAX: Final = 700
FUNCTION_LINES_MAX: Final = 80
ONE_LINERS: Final = 4  # lines of a private function that is called once and may read as well in place
NO_VERBS: Final = ("What ", "How ", "Where ", "Why ", "So many", "The same")
NOUNS: Final = ("The ", "A ", "An ", "Whether ")
# First words of function names that are no verbs: participles, and words that say nothing of the act.
_NO_VERB: Final = re.compile(
    r"(told|asked|heard|shown|seen|known|kept|found|made|said|taken|given|gone|left|lost|held|written|begun|done|"
    r"sent|spent|built|bought|brought|caught|chosen|drawn|driven|felt|fed|hidden|led|lent|meant|met|paid|sold|"
    r"spoken|stood|struck|taught|thought|understood|won|worn|bound|broken|grown|thrown|woken|whole|of|here|plain|"
    r"own|same)"
    r"|(?!(need|feed|embed|seed|proceed|succeed|exceed|speed|red|shed)$).*ed"
)
_PROPERTIES: Final = frozenset({"property", "cached_property", "setter", "getter"})
_ALONE: Final = "stands alone"
_PUBLIC_MODULES: Final = frozenset({"lyra.errors"})
_PAGES: Final = ".dashboard.pages."


class Grain(NamedTuple):
    files: int
    lines: int
    small_modules: list[str]  # under SMALL_LINES, one importer, no reason given
    one_importer: list[str]
    long_files: list[str]
    long_functions: list[str]
    called_once: list[str]  # private functions that are named once in their module
    short_and_called_once: list[str]  # of those, the ones of at most ONE_LINERS lines
    no_verbs: list[str]  # functions whose docstring begins with no verb
    nouns: list[str]  # functions, properties and tests left out, whose docstring begins with a thing or with "Whether"
    needless_lists: list[str]  # modules, packages left out, with an `__all__` of nothing but their own names
    participles: list[str]  # functions, properties left out, whose name begins with a participle or with no verb at all

    @property
    def mean_lines(self) -> float:
        return self.lines / self.files


def measure_grain(tree: SourceTree) -> Grain:
    modules = [module for module in tree.modules.values() if "generated" not in module.path.parts]
    importers: dict[str, set[str]] = {}
    for edge in tree.imports:
        importers.setdefault(edge.target, set()).add(edge.source)
    lines = {module.name: module.text.count("\n") for module in modules}
    one_importer = [
        module.name
        for module in modules
        if len(importers.get(module.name, ())) == 1
        and not (module.is_folder or module.name.endswith("__main__") or _PAGES in module.name)
    ]
    once = [(place, size) for module in modules for place, size in _functions_called_once(module)]
    return Grain(
        files=len(modules),
        lines=sum(lines.values()),
        small_modules=[
            name
            for name in one_importer
            if lines[name] < SMALL_LINES and _ALONE not in " ".join(tree.modules[name].docstring.split()).lower()
        ],
        one_importer=one_importer,
        long_files=[name for name, count in lines.items() if count > FILE_LINES_MAX],
        long_functions=[place for module in modules for place in _long_functions(module)],
        called_once=[place for place, _ in once],
        short_and_called_once=[place for place, size in once if size <= ONE_LINERS],
        no_verbs=[place for module in modules for place in _functions_without_verbs(module)],
        nouns=[place for module in modules for place in _functions_described_as_things(module)],
        needless_lists=[module.name for module in modules if _lists_its_own_names(module)],
        participles=[place for module in modules for place in _functions_named_by_participles(module)],
    )


def _long_functions(module: Module) -> Iterator[str]:
    for node in module.each(*FUNCTIONS):
        size = (node.end_lineno or node.lineno) - node.lineno + 1
        if size > FUNCTION_LINES_MAX:
            yield f"{module.name}.{node.name} ({size} lines)"


def _lists_its_own_names(module: Module) -> bool:
    """Say whether `__all__` of a module names what the module defines: only what it passes on has to be named."""
    if module.is_folder or module.name in _PUBLIC_MODULES:
        return False
    for statement in module.tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            imported = {name.asname or name.name for node in module.each(ast.ImportFrom) for name in node.names}
            return not imported & {part.value for part in ast.walk(statement) if isinstance(part, ast.Constant)}
    return False


def _functions_without_verbs(module: Module) -> Iterator[str]:
    for node in module.each(*FUNCTIONS):
        if (ast.get_docstring(node) or "").startswith(NO_VERBS):
            yield f"{module.name}.{node.name}"


def _functions_described_as_things(module: Module) -> Iterator[str]:
    for node in module.each(*FUNCTIONS):
        begins_so = (ast.get_docstring(node) or "").startswith(NOUNS)
        if begins_so and not _is_property(node) and not node.name.startswith("test_"):
            yield f"{module.name}.{node.name}"


def _functions_named_by_participles(module: Module) -> Iterator[str]:
    for node in module.each(*FUNCTIONS):
        word = node.name.strip("_").partition("_")[0]
        if _NO_VERB.fullmatch(word) and not _is_property(node):
            yield f"{module.name}.{node.name}"


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(getattr(part, "attr", getattr(part, "id", "")) in _PROPERTIES for part in node.decorator_list)


def _functions_called_once(module: Module) -> Iterator[tuple[str, int]]:
    """Yield each private function that its module names once, with the lines of its code."""
    names = Counter(node.id for node in module.each(ast.Name))
    names.update(node.attr for node in module.each(ast.Attribute))
    for node in module.each(*FUNCTIONS):
        if _is_private(node.name) and names[node.name] == 1 and not node.decorator_list:
            body = node.body[1:] if ast.get_docstring(node) else node.body
            size = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            yield f"{module.name}.{node.name}", size


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")
