"""Reads a package as text: its modules, what each imports and defines.

An import has a kind: at the top level of a module ("top"), inside a function ("function") or for type checkers alone
("typing"). The first two happen at run time. `from package import name` leads to the module `package.name` where that
exists, and to `package` otherwise.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

__all__ = ["FUNCTIONS", "RUN_TIME", "SOURCE", "Import", "ImportKind", "Module", "SourceTree", "circles"]

ImportKind = Literal["top", "function", "typing"]
RUN_TIME: Final[tuple[ImportKind, ...]] = ("top", "function")
SOURCE: Final = Path(__file__).parents[2] / "src" / "lyra"
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
# The fields of each kind of node that hold the nodes below it. Names and constants, which are most nodes, have none.
_LEAVES: Final = (ast.Name, ast.Constant)
_NO_NODES: Final = frozenset(
    {"ctx", "op", "ops", "id", "attr", "level", "module", "kind", "simple", "type_comment", "conversion", "is_async"}
)
_FIELDS: Final[dict[type, tuple[str, ...]]] = {
    kind: () if kind in _LEAVES else tuple(field for field in kind._fields if field not in _NO_NODES)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_QUOTED: Final = re.compile(r"`[^`\n]*`")
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")  # where statements have statements below them


class Import(NamedTuple):
    source: str
    target: str
    kind: ImportKind
    line: int


@dataclass(frozen=True)
class Module:
    """One file. `folder` is the dotted name of its folder; an `__init__.py` has the same name and folder."""

    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    def each(self, *kinds: type[ast.AST]) -> Iterator[Any]:
        """Yield the nodes of these kinds, those of one kind each before its parts."""
        for kind in kinds:
            yield from self._by_kind.get(kind, ())

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[ast.AST]]:
        """The statements, expressions and parameters of the tree, which several figures read."""
        by_kind: defaultdict[type, list[Any]] = defaultdict(list)
        nodes: list[Any] = [self.tree]
        for node in nodes:  # grows meanwhile
            kind = node.__class__
            by_kind[kind].append(node)
            for field in _FIELDS.get(kind, ()):  # a name in the list of `global`, or no node at all, has no fields
                part = getattr(node, field)
                if part.__class__ is list:
                    nodes += part
                else:
                    nodes.append(part)
        return by_kind

    @property
    def is_folder(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def folder(self) -> str:
        return self.name if self.is_folder else self.name.rpartition(".")[0]

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    @cached_property
    def class_names(self) -> list[str]:
        """The classes at the top level, private ones included."""
        return [node.name for node in self.tree.body if isinstance(node, ast.ClassDef)]

    @cached_property
    def defined_names(self) -> set[str]:
        """The names of all classes and functions, at any depth."""
        return {node.name for node in self.each(ast.ClassDef, *FUNCTIONS)}


class SourceTree:
    """The modules below one folder, by name."""

    def __init__(self, root: Path = SOURCE) -> None:
        self.root = root
        self.modules: dict[str, Module] = {}
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = Module(name, path, path.read_text(encoding="utf-8"))

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of all files but for those between backticks."""
        return frozenset(
            word for module in self.modules.values() for word in _WORD.findall(_QUOTED.sub("", module.text))
        )

    @cached_property
    def imports(self) -> list[Import]:
        """The imports of one module of this tree by another."""
        return [
            Import(module.name, target, kind, line)
            for module in self.modules.values()
            for kind, line, names in _import_statements(module)
            for target in sorted({self._resolved(name) for name in names} - {"", module.name})
        ]

    def files_by_folder(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for module in self.modules.values():
            counts[module.folder] = counts.get(module.folder, 0) + 1
        return counts

    def files_by_class(self) -> dict[str, list[str]]:
        """Each public class name, and the modules that define a class of this name."""
        homes: dict[str, list[str]] = {}
        for module in self.modules.values():
            for class_name in dict.fromkeys(module.class_names):
                if not class_name.startswith("_"):
                    homes.setdefault(class_name, []).append(module.name)
        return homes

    def circles(self, kinds: Collection[ImportKind]) -> list[list[str]]:
        """Groups of modules that import each other in a circle by imports of these kinds."""
        targets: dict[str, set[str]] = {name: set() for name in self.modules}
        for edge in self.imports:
            if edge.kind in kinds:
                targets[edge.source].add(edge.target)
        return circles(targets)

    def _resolved(self, name: str) -> str:
        """The module of this tree that an imported name belongs to, or ""."""
        while name and name not in self.modules:
            name = name.rpartition(".")[0]
        return name


def _import_statements(module: Module) -> Iterator[tuple[ImportKind, int, list[str]]]:
    waiting: list[tuple[ast.AST, ImportKind]] = [(statement, "top") for statement in module.tree.body]
    while waiting:
        node, kind = waiting.pop()
        if isinstance(node, ast.Import):
            yield kind, node.lineno, [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = _absolute(module, node)
            yield kind, node.lineno, [f"{package}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            waiting += ((child, "typing") for child in node.body)
            waiting += ((child, kind) for child in node.orelse)
        else:
            is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            inner_kind: ImportKind = "function" if is_function and kind == "top" else kind
            waiting += ((child, inner_kind) for field in _BLOCKS for child in getattr(node, field, ()))


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.folder.split(".")
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])


def _is_type_checking(test: ast.expr) -> bool:
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


def circles(targets: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of a graph that have more than one node (Tarjan's algorithm), largest first."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []  # nodes whose component is not complete
    on_path: set[str] = set()
    components: list[list[str]] = []
    for start in targets:
        if start in numbers:
            continue
        stack: list[tuple[str, Iterator[str]]] = []
        _enter(start, targets, numbers, lowest, path, on_path, stack)
        while stack:
            node, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                stack.pop()
                if stack:
                    parent = stack[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == numbers[node]:
                    cut = path.index(node)
                    component = path[cut:]
                    del path[cut:]
                    on_path.difference_update(component)
                    if len(component) > 1:
                        components.append(sorted(component))
            elif target not in numbers:
                _enter(target, targets, numbers, lowest, path, on_path, stack)
            elif target in on_path:
                lowest[node] = min(lowest[node], numbers[target])
    return sorted(components, key=lambda component: (-len(component), component))


def _enter(
    node: str,
    targets: Mapping[str, Iterable[str]],
    numbers: dict[str, int],
    lowest: dict[str, int],
    path: list[str],
    on_path: set[str],
    stack: list[tuple[str, Iterator[str]]],
) -> None:
    numbers[node] = lowest[node] = len(numbers)
    path.append(node)
    on_path.add(node)
    stack.append((node, iter(targets.get(node, ()))))
