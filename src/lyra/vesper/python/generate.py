"""A Python module for a node: one function named like the node id, which checks, computes and returns its outputs.

`generate(program)` builds the syntax tree and says how to call the function; `source(program)` is the module's text,
tidied so that linters have nothing to say about it. The function takes the inputs as keywords, in JSON shape or as
Python values. It returns a dict of outputs or raises a NodeError. A node with effects becomes a coroutine function
whose first parameter performs the effects. Where a node can end in several places, its steps stand in a function of
their own, so that contracts about the answer are in one place.
"""

from __future__ import annotations

import ast
from typing import Final

import msgspec

from lyra.vesper.ir import NodeInput, NodeProgram
from lyra.vesper.python.draft import NodeDraft
from lyra.vesper.python.flow import EntryWriter, FlowWriter
from lyra.vesper.python.layout import module_text
from lyra.vesper.python.syntax import assign, attribute, call, name
from lyra.vesper.python.tidying import drop_unused, names_read, shorten_names, tidy
from lyra.vesper.values.types import describe

HEADER: Final = "# AUTO-GENERATED - DO NOT EDIT"


class Generated(msgspec.Struct, frozen=True):
    """A module's tree, and how its function is called."""

    tree: ast.Module
    function: str
    parameters: dict[str, str]  # the Python name of each input
    needs_run: bool
    is_async: bool


def generate(program: NodeProgram, *, is_watched: bool = False) -> Generated:
    """Return the module of a node. Where its steps are watched, each of them keeps a place of its own."""
    return _ModuleGenerator(program, is_watched=is_watched).module()


def source(program: NodeProgram) -> str:
    """Return the text of the node's module."""
    return module_text([HEADER], generate(program).tree)


class _ModuleGenerator:
    def __init__(self, program: NodeProgram, *, is_watched: bool) -> None:
        self.program = program
        self.is_watched = is_watched
        self.draft = NodeDraft(program, is_watched=is_watched)
        self.parts = self.draft.parts

    def module(self) -> Generated:
        flow = FlowWriter(self.draft)
        entry = EntryWriter(self.draft, judges_errors=any(flow.answers.about_errors()))
        body = [*entry.statements(), *flow.statements()]
        if self.draft.needs_run:
            body = [*self._run_statements(), *body]
        function = self._public_function(body)
        origin = f"Generated from the node {self.program.node_id}."
        doc = ast.Expr(ast.Constant("\n".join([*wrap_text(self.program.intent), "", origin])))
        tree = ast.Module([doc, *self.parts.classes.values(), *self.parts.constants, *self.draft.helpers, function], [])
        drop_unused(tree)
        if not self.is_watched:
            tidy(tree)
        tree.body[1:1] = self._imports(names_read(tree))
        if not self.is_watched:
            shorten_names(tree, self.draft.names.bases, self.draft.parameters.values())
        for node in ast.walk(tree):
            if getattr(node, "body", None) == []:
                node.body = [ast.Pass()]  # type: ignore[attr-defined]
        ast.fix_missing_locations(tree)
        return Generated(tree, self.draft.function, self.draft.parameters, self.draft.needs_run, self.draft.is_async)

    def _imports(self, used: set[str]) -> list[ast.stmt]:
        self.parts.import_name("__future__", "annotations")
        modules = sorted(self.parts.imports, key=lambda text: (text.startswith("lyra"), text != "__future__", text))
        return [statement for module in modules for statement in self._imports_of(module, used)]

    def _imports_of(self, module: str, used: set[str]) -> list[ast.stmt]:
        """Return the imports from one module; renamed imports have a line each."""
        aliases = self.parts.aliases if module.startswith("lyra") else {}
        needed = {text for text in self.parts.imports[module] if aliases.get(text, text) in {*used, "annotations"}}
        # Imported names as import sorters order them: constants, classes, functions.
        names = sorted(needed, key=lambda text: (not text.isupper(), not text[0].isupper(), text))
        plain = [text for text in names if text not in aliases]
        lines: list[ast.stmt] = []
        for text in names:
            if text in aliases:
                lines.append(ast.ImportFrom(module, [ast.alias(text, aliases[text])], 0))
            elif text == plain[0]:
                lines.append(ast.ImportFrom(module, [ast.alias(other) for other in plain], 0))
        return lines

    def _public_function(self, body: list[ast.stmt]) -> ast.stmt:
        words = [
            ast.arg(self.draft.parameters[item.name], self.parts.annotation(self.draft.kinds[item.name]))
            for item in self.program.inputs
        ]
        defaults = [self._default(item) for item in self.program.inputs]
        if self.draft.needs_run:
            optional = ast.BinOp(self.parts.runtime("NodeRun"), ast.BitOr(), ast.Constant(None))
            words.append(ast.arg("run", optional))
            defaults.append(ast.Constant(None))
        first = [ast.arg("effects", self.parts.runtime("Effects"))] if self.draft.is_async else []
        arguments = ast.arguments([], first, None, words, defaults, None, [])
        kind = ast.AsyncFunctionDef if self.draft.is_async else ast.FunctionDef
        doc = ast.Expr(ast.Constant(documentation(self.draft)))
        return kind(self.draft.function, arguments, [doc, *body], [], self.parts.dict_type())

    def _default(self, declared: NodeInput) -> ast.expr | None:
        if declared.required:
            return None
        if declared.default is msgspec.UNSET or declared.default is None:
            return ast.Constant(None)
        value = self.parts.literal(declared.default)
        is_plain = isinstance(value, ast.Constant | ast.UnaryOp | ast.Name)
        return value if is_plain else self.parts.constant(f"{declared.name}_default", value)

    def _run_statements(self) -> list[ast.stmt]:
        limits = self.program.limits
        fresh = ast.BoolOp(ast.Or(), [name("run"), call(self.parts.runtime("NodeRun"))])
        effects = name("effects") if self.draft.is_async else ast.Constant(None)
        arguments: list[ast.expr] = [effects, ast.Constant(limits.steps), ast.Constant(limits.time_s)]
        key = self.draft.parameters.get(self.program.idempotency_key)
        if key is not None:
            arguments.append(name(key))
        return [assign("run", fresh), ast.Expr(call(attribute(name("run"), "start"), *arguments))]


# The documentation of generated functions: what a node is for, its inputs, outputs and contracts, in short lines.
_DOC_WIDTH: Final = 100


def documentation(draft: NodeDraft) -> str:
    """Return the text of a node's function: its intent, inputs, outputs and contracts."""
    lines = wrap_text(draft.program.intent)
    if draft.program.inputs:
        lines += ["", "Inputs:"]
        for item in draft.program.inputs:
            note = f": {_one_line(item.description)}" if item.description else ""
            lines += wrap_text(f"{draft.parameters[item.name]} ({describe(item.type)}){note}", "    ")
    if draft.program.success:
        lines += ["", "Returns:"]
        for output in draft.program.success:
            lines += wrap_text(f"{output.name} ({describe(output.type)})", "    ")
    for title, contracts in (
        ("Requires", draft.program.preconditions),
        ("Ensures", draft.program.postconditions),
        ("Keeps", draft.program.invariants),
    ):
        if contracts:
            lines += ["", f"{title}:", *(line for item in contracts for line in wrap_text(item.text, "    "))]
    return "\n".join([*lines, ""]).rstrip("\n") if len(lines) > 1 else lines[0]


def _one_line(text: str) -> str:
    line = " ".join(text.split()) or "A node."
    return line if line.endswith((".", "!", "?")) else f"{line}."


def wrap_text(text: str, indent: str = "") -> list[str]:
    """Return the text in lines; without an indent it is a sentence."""
    text = text.encode("utf-8", "backslashreplace").decode()  # Python 3.13 refuses half a character in a docstring
    words = (_one_line(text) if not indent else " ".join(text.split())).split(" ")
    lines = [indent + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) >= _DOC_WIDTH:
            lines.append(indent + word)
        else:
            lines[-1] += " " + word
    return lines
