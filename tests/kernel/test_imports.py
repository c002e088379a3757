"""The import graph of the kernel: no circle of files at run time, and nothing below the face names `Kernel`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import lyra.kernel

ROOT = Path(lyra.kernel.__file__).parent
FACE = {"kernel.py", "forks.py", "__init__.py"}  # forks are made with a kernel that is open


def _modules() -> dict[str, Path]:
    return {
        ".".join(("lyra.kernel", *path.relative_to(ROOT).with_suffix("").parts)): path
        for path in sorted(ROOT.rglob("*.py"))
        if path.name != "__init__.py"
    }


def _run_time_imports(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """What a module imports when it is loaded or when one of its functions runs; typing imports do not count."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                if name in known:
                    yield name
        waiting.extend(ast.iter_child_nodes(node))


def _circle(graph: dict[str, set[str]]) -> list[str]:
    """A circle of the graph, or nothing: takes away what leads nowhere until only circles are left."""
    left = {name: set(targets) for name, targets in graph.items()}
    while True:
        ends = {name for name, targets in left.items() if not targets & left.keys()}
        if not ends:
            return sorted(left)
        left = {name: targets for name, targets in left.items() if name not in ends}
        if not left:
            return []


def test_no_circle_of_files_at_run_time():
    """No two files of the kernel need each other to run, imports inside functions included."""
    modules = _modules()
    graph = {name: set(_run_time_imports(ast.parse(path.read_text()), modules)) for name, path in modules.items()}
    assert sum(map(len, graph.values())) > 200  # the graph is there
    assert _circle(graph) == []


def test_a_circle_is_found():
    """The search tells a circle from a graph without one."""
    assert _circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert _circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["a", "b", "c"]


def test_nothing_below_the_face_names_it():
    """No module but the face imports or annotates `Kernel`, typing imports included."""
    naming = [
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).as_posix() not in FACE
        and any(
            (isinstance(node, ast.Name) and node.id == "Kernel")
            or (isinstance(node, ast.ImportFrom) and any(alias.name == "Kernel" for alias in node.names))
            for node in (ast.walk(ast.parse(path.read_text())) if "Kernel" in path.read_text() else ())
        )
    ]
    assert naming == []
