"""Judging a program before it runs: `check_source`.

The checker finds unknown names, calls that do not fit, declared types that are not kept, settings that no agent has,
amounts that do not go together, code that is never reached. It says all it finds in one run, each with a place and
where possible with what was probably meant, and never refuses a program for what it cannot know.

The check is functions over one `scope.ModuleCheck`, which holds scopes and remarks: `types` knows kinds, then come
`expressions`, `settings`, `processes` and `statements`, each built on those before it. What leads back up (a lambda
holds a block) goes through `CheckRules`. An import is followed through `load`, which the host gives; without it
imported names are taken on trust.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

from lyra.core.imported_node import ImportedNode, NodeFile, NodeValueKind
from lyra.core.limits import VEGA_PROBLEMS_MAX
from lyra.errors import CheckError, ParseError
from lyra.vega.checker.expressions import KINDS
from lyra.vega.checker.processes import PROCESS_KINDS
from lyra.vega.checker.scope import Binding, CheckRules, CheckScope, ModuleCheck, Signature
from lyra.vega.checker.statements import check_block, check_bodies, check_statements
from lyra.vega.checker.types import ANY, ValueKind
from lyra.vega.syntax.ast import Import, Module, Statement
from lyra.vega.syntax.facts import names_in_use
from lyra.vega.syntax.parser import parse_all
from lyra.vega.syntax.source import Diagnostic, Source, source_error

RULES: Final = CheckRules({**KINDS, **PROCESS_KINDS}, check_block)
_IMPORTS_DEEP_MAX: Final = 30  # imports of imports of …; what lies deeper is taken on trust

# The target as written and the name of the importing file → the imported file's name and text, or None. A host that
# can read nodes answers the target of an `import node` with a NodeFile.
Load: TypeAlias = Callable[[str, str], "tuple[str, str] | None"]


def check_source(
    text: str, name: str = "<vega>", *, load: Load | None = None, host_names: Collection[str] = ()
) -> list[Diagnostic]:
    """Everything there is to say about a source, in order of place; empty for a good one. `host_names` are functions
    that the host of the program provides."""
    source = Source(name, text)
    module, problems, _ = parse_all(source)
    return problems or check_module(module, source, load=load, host_names=host_names)


def parse_and_check(
    text: str, name: str = "<vega>", *, load: Load | None = None, host_names: Collection[str] = ()
) -> Module:
    """Return the tree of a good source; ParseError or CheckError with everything in `fields["problems"]` for
    another."""
    source = Source(name, text)
    module, problems, _ = parse_all(source)
    if problems:
        raise source_error(ParseError, problems)
    problems = check_module(module, source, load=load, host_names=host_names)
    if any(problem.is_error for problem in problems):
        raise source_error(CheckError, problems)
    return module


def check_module(
    module: Module, source: Source, *, load: Load | None = None, host_names: Collection[str] = ()
) -> list[Diagnostic]:
    checker = Checker(source, load, {source.name: {}}, host_names)
    return checker.run(module.statements)


def kind_of_variable(text: str, name: str) -> str:
    """Return the kind that the checker gives a variable at the top level of a source; `any` where it cannot know."""
    source = Source("<vega>", text)
    checker = Checker(source, None, {source.name: {}}, ())
    checker.run(parse_all(source).module.statements)
    binding = checker.check.top.names.get(name)
    return "any" if binding is None else str(binding.kind)


class Checker:
    """Checks one file, and the files that it imports, each with its own Checker."""

    def __init__(
        self, source: Source, load: Load | None, files: dict[str, dict[str, Binding]], host_names: Collection[str]
    ) -> None:
        self.source = source
        self.check = ModuleCheck(source, host_names, RULES, self.resolve_import)
        self.host_names = host_names
        self.load = load
        self.files = files  # what each imported file declares; one that is being looked at right now is there, empty
        self.others: list[Diagnostic] = []  # errors in imported files
        self.depth = 0  # of this file in the imports

    def run(self, statements: Sequence[Statement]) -> list[Diagnostic]:
        check = self.check
        check.assigned, check.changed, check.thrown = names_in_use(statements)
        try:
            check_statements(check, statements)
            check.scope = check.top
            check_bodies(check, statements)
        except RecursionError:  # the parser bounds the depth, so the caller's own stack was deep already
            check.error(0, 1, "this is nested too deeply to be checked")
        distinct: dict[tuple[int, str], Diagnostic] = {}
        for problem in sorted(check.problems, key=lambda problem: problem.at):
            distinct.setdefault((problem.at, problem.message), problem)
        return [*list(distinct.values())[:VEGA_PROBLEMS_MAX], *self.others]

    def resolve_import(self, node: Import) -> Binding:
        """Return the binding of an import's name; a file that cannot be found is reported."""
        if node.kind not in ("vega", "node"):
            return Binding("import", ANY)
        if self.load is None or self.depth >= _IMPORTS_DEEP_MAX:
            return Binding("import", ANY, members=None)
        loaded = self.load(node.target, self.source.name)
        if loaded is None:
            self._wrong_target(node, f"cannot find `{node.target}`", "a path is relative to this file")
            return Binding("import", ANY, members=None)
        if node.kind == "node":
            self.check.has_foreign_errors = True
            return self._node_binding(node, loaded)
        name, text = loaded
        if name in self.files:  # seen before, or a circle: then the Checker of that file fills its names in
            return Binding("import", ANY, members=self.files[name] or None)
        return Binding("import", ANY, members=self.check_import(Source(name, text)))

    def _node_binding(self, node: Import, loaded: tuple[str, str]) -> Binding:
        """Bind an imported node as a function of its inputs; one that the host does not read is taken on trust."""
        if not isinstance(loaded, NodeFile):
            return Binding("import", ANY)
        if loaded.node is None:
            self._wrong_target(node, f"`{node.target}` is no node: {loaded.problem}", f"vesper validate {loaded[0]}")
            return Binding("import", ANY)
        return binding_of_node(loaded.node)

    def _wrong_target(self, node: Import, message: str, hint: str) -> None:
        offset = self.source.text.find('"', node.at)
        self.check.error(offset, offset + len(node.target) + 2, message, hint)

    def check_import(self, source: Source) -> dict[str, Binding] | None:
        """Return the names that an imported file declares; None if it cannot be parsed. Its errors are reported with
        the others."""
        members = self.files[source.name] = {}
        module, problems, _ = parse_all(source)
        scope: CheckScope | None = None
        if not problems:
            checker = Checker(source, self.load, self.files, self.host_names)
            checker.depth = self.depth + 1
            problems = checker.run(module.statements)
            scope = checker.check.top
            self.check.thrown |= checker.check.thrown
            self.check.has_foreign_tools |= checker.check.has_foreign_tools
            self.check.has_foreign_errors |= checker.check.has_foreign_errors
        self.others += [problem for problem in problems if problem.is_error]
        if scope is None:
            return None
        members.update({key: binding for key, binding in scope.names.items() if binding.role != "import"})
        return members


# ---------------- Imported nodes in the checker: a node is a function of its inputs that gives a record of its outputs
# Its parameters are the inputs in their order. A `decimal` takes an int, a float, a text or money; as an output it is a
# text, since no other kind of Vega holds it exactly.


def binding_of_node(node: ImportedNode) -> Binding:
    """Return what the name of an imported node represents."""
    signature = Signature(
        tuple((entry.name, _kind(entry.kind)) for entry in node.inputs),
        frozenset(entry.name for entry in node.inputs if not entry.is_required),
        _kind(node.outputs),
    )
    return Binding("import", ValueKind("function"), signature)


def node_heading(name: str, node: ImportedNode) -> str:
    """`charge(amount: decimal, note?: str) -> {receipt: str}`, for editors."""
    parts = [f"{entry.name}{'' if entry.is_required else '?'}: {_kind(entry.kind)}" for entry in node.inputs]
    return f"{name}({', '.join(parts)}) -> {_kind(node.outputs)}"


def _kind(kind: NodeValueKind) -> ValueKind:
    return ValueKind(
        kind.name, tuple(_kind(inner) for inner in kind.inner), tuple((name, _kind(part)) for name, part in kind.fields)
    )
