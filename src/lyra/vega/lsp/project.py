"""The Vega files an editor works on, and those they import: texts as `OpenTexts` keeps them, and what is known of each.

`analysis` gives what is known of a file, made once for each text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

from lyra.core.imported_node import NODE_FILES, ImportedNode, NodeFile
from lyra.lsp.texts import UTF16, OpenTexts
from lyra.vega.checker.checker import Load
from lyra.vega.lsp.analysis import Analysis, Imports
from lyra.vega.lsp.index import MemberReference, SourceSymbol, SymbolIndex
from lyra.vega.syntax import ast

_FILES_MAX: Final = 2_000  # in the folders of a workspace; more are not looked through for uses of a name
_FOLDERS_MAX: Final = 20_000  # that are looked into for them
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "build", "dist"})


class Project(OpenTexts):
    """`read_node` gives what the file of an imported node declares, by its path and text."""

    def __init__(
        self,
        folders: list[str] | None = None,
        *,
        encoding: str = UTF16,
        read_node: Callable[[str, str], NodeFile] | None = None,
    ) -> None:
        super().__init__(folders, encoding=encoding)
        self.read_node = read_node
        self._imports = Imports(self._texts)
        self._analyses: dict[str, Analysis] = {}
        self._whole: dict[str, Analysis] = {}  # the last one of each open file that had a tree
        self._good: dict[str, Analysis] = {}  # the last one without a mistake in it: the next is made from it

    # ---------------------------------------------------------------- open files

    def remove(self, path: str) -> None:
        for known in (self._whole, self._good, self._analyses):
            known.pop(path, None)
        super().remove(path)

    def forget_derived(self) -> None:
        """Some text is another one: the kinds found in files that import others may no longer hold."""
        for known in self._analyses.values():
            if known.imports() or known.node_imports():
                known.forget_kinds()

    # ---------------------------------------------------------------- texts

    def forget_disk(self) -> None:
        super().forget_disk()
        self._analyses = {known: analysis for known, analysis in self._analyses.items() if known in self.open}

    def load(self, target: str, importing: str) -> tuple[str, str] | None:
        """Return the name and text of an import, as the checker asks for it."""
        path = self.target(target, importing)
        text = self.text(path)
        return None if text is None else self._as_import(path, text)

    def _as_import(self, path: str, text: str) -> tuple[str, str]:
        """Return a file as the checker takes it: a node with what it declares, where the host reads nodes."""
        return self.read_node(path, text) if self.read_node is not None and path.endswith(NODE_FILES) else (path, text)

    def node(self, target: str, importing: str) -> ImportedNode | None:
        """Return what an imported node declares; None where it cannot be read."""
        loaded = self.load(target, importing)
        return loaded.node if isinstance(loaded, NodeFile) else None

    def snapshot_texts(self, path: str) -> tuple[dict[str, str | None], Load]:
        """Return the texts of a file and of all it imports as they are now, and a `load` that reads those alone: a
        thread may use it while the open files change."""
        texts = {file: self.text(file) for file in self.reach(path)}

        def load(target: str, importing: str) -> tuple[str, str] | None:
            file = self.target(target, importing)
            text = texts.get(file)
            return None if text is None else self._as_import(file, text)

        return texts, load

    def target(self, target: str, importing: str) -> str:
        """Return the path an import means; of a text that has none, beside the workspace's files."""
        folder = os.path.dirname(importing) if os.path.isabs(importing) else (self.folders or [os.getcwd()])[0]
        return os.path.normpath(os.path.join(folder, target))

    # ---------------------------------------------------------------- what is known

    def analysis(self, path: str) -> Analysis | None:
        text = self.text(path)
        if text is None:
            return None
        known = self._analyses.get(path)
        if known is None or known.text is not text:
            before = self._good.get(path)
            known = self._analyses[path] = Analysis(text, path, self.load, imports=self._imports, before=before)
            if path in self.open and known.module.statements:
                self._whole[path] = known
                if not known.parsed.problems:
                    self._good[path] = known
        return known

    def index(self, path: str) -> SymbolIndex | None:
        known = self.analysis(path)
        return None if known is None else known.index

    def last_with_tree(self, path: str) -> Analysis | None:
        """Return the analysis of a file; while it has no tree, the last one that had."""
        known = self.analysis(path)
        if known is not None and not known.module.statements:
            return self._whole.get(path, known)
        return known

    def find_imported_file(self, symbol: SourceSymbol, path: str) -> str | None:
        """Return the file that an import of the file at `path` names."""
        node = symbol.node
        if not isinstance(node, ast.Import) or node.kind != "vega":
            return None
        return self.target(node.target, path)

    def meaning(self, member: MemberReference, path: str) -> tuple[str, SourceSymbol] | None:
        """Return the file and the symbol that `module::name` represents; of a named argument, the parameter."""
        target = self.find_imported_file(member.module, path) if member.module is not None else None
        index = self.index(target) if target is not None else None
        symbol = index.find_export(member.name) if index is not None else None
        if target is None or index is None or symbol is None:
            return None
        if member.parameter:
            parameters = getattr(symbol.node, "parameters", ())
            symbols = [index.symbol_of(parameter) for parameter in parameters if parameter.name == member.parameter]
            return (target, symbols[0]) if symbols and symbols[0] is not None else None
        return target, symbol

    def files(self) -> Iterator[str]:
        """Every file that may use a name: the open ones, then what the workspace's folders hold."""
        yield from list(self.open)
        count = looked = 0
        for top in self.folders:
            for folder, folders, names in os.walk(top):
                looked += 1
                if looked > _FOLDERS_MAX:
                    return
                folders[:] = [name for name in folders if name not in _SKIPPED and not name.startswith(".")]
                for name in names:
                    path = os.path.join(folder, name)
                    if name.endswith(".vega") and path not in self.open:
                        count += 1
                        if count > _FILES_MAX:
                            return
                        yield path

    def reach(self, path: str) -> set[str]:
        """Return a file and all that it imports, directly or not."""
        files: set[str] = set()
        todo = [path]
        while todo and len(files) < _FILES_MAX:
            file = todo.pop()
            if file in files:
                continue
            files.add(file)
            known = self.analysis(file)
            if known is not None:
                todo += [self.target(node.target, file) for node in known.imports()]
                files.update(self.target(node.target, file) for node in known.node_imports())
        return files

    def _texts(self, path: str) -> dict[str, str]:
        """Return the texts of a file and of all it imports; one that is missing is empty."""
        return {file: self.text(file) or "" for file in self.reach(path)}
