"""What docstrings name: modules that exist, and in each folder where to start reading."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from verify.structure.source_tree import FUNCTIONS, Module, SourceTree

__all__ = ["names_a_module", "stale_names"]

_DOTTED_NAME: Final = re.compile(r"`([a-z_]\w*(?:\.\w+)+)`")
_SNAKE_NAME: Final = re.compile(r"`(_?[a-z]+(?:_[a-z]+)+)`")
_EXAMPLES: Final = frozenset({"a_b", "stripe_api_key"})  # names of users, not of the code
_MODULE_IN_FOLDER: Final = re.compile(r"`(\w+)[`.]|^ {4}(\w+)", re.MULTILINE)
_FILE_SUFFIXES: Final = ("md", "py", "toml")
# Variables that docstrings name as modules are named, and the modules of their class and its base.
_VARIABLES: Final = {
    "kernel": ("lyra.kernel.kernel", "lyra.kernel.assembly"),
    "core": ("lyra.kernel.base.core",),
    "config": ("lyra.config.settings",),
}


def names_a_module(tree: SourceTree, folder: Module) -> bool:
    """Whether a folder's docstring names one of its modules, between backticks or at the start of a table's row."""
    if folder.name == "lyra":  # the public names; ARCHITECTURE.md is its guide
        return True
    names = (quoted or listed for quoted, listed in _MODULE_IN_FOLDER.findall(folder.docstring))
    return any(f"{folder.name}.{name}" in tree.modules for name in names)


def stale_names(tree: SourceTree, module: Module) -> Iterator[str]:
    """The names between backticks, in any docstring of a module, that lead nowhere: dotted ones that begin with a
    module, and `words_with_underscores` that neither name a module nor stand in the code of any file.

    A dotted name whose first word is no module seen from here is not judged: it may be an attribute or a setting.
    """
    for name in _quoted_names(module, _SNAKE_NAME):
        is_known = name in tree.words or name in _EXAMPLES
        if not is_known and not any(folder + name in tree.modules for folder in _folders_above(module)):
            yield f"{module.name}: {name}"
    for name in _quoted_names(module, _DOTTED_NAME):
        first, _, rest = name.partition(".")
        homes = [folder for folder in _folders_above(module) if folder + first in tree.modules]
        if not homes or rest.rpartition(".")[2] in _FILE_SUFFIXES:
            continue
        owners = [tree.modules[owner] for owner in _VARIABLES.get(first, ())]
        is_member = any(_mentions(owner, rest.partition(".")[0]) for owner in owners)
        if not is_member and not any(_leads_somewhere(tree, folder, name) for folder in homes):
            yield f"{module.name}: {name}"


def _quoted_names(module: Module, form: re.Pattern[str]) -> Iterator[str]:
    for node in module.each(ast.Module, ast.ClassDef, *FUNCTIONS):
        yield from form.findall(ast.get_docstring(node) or "")


def _folders_above(module: Module) -> Iterator[str]:
    """The folders from which a docstring may name a module, innermost first, each with its final dot."""
    folder = module.folder
    while folder:
        yield f"{folder}."
        folder = folder.rpartition(".")[0]
    yield ""


def _leads_somewhere(tree: SourceTree, folder: str, name: str) -> bool:
    """Whether a name is a module, or a module and a word that stands in it. A setting such as `providers.vertex.key`
    begins with a file in a folder, and is not followed further."""
    words = name.split(".")
    length = max(n for n in range(1, len(words) + 1) if folder + ".".join(words[:n]) in tree.modules)
    home = tree.modules[folder + ".".join(words[:length])]
    return length == len(words) or (length > 1 and not home.is_folder) or _mentions(home, words[length])


def _mentions(module: Module, word: str) -> bool:
    return re.search(rf"\b{word}\b", module.text) is not None
