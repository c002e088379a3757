"""Calls and references to register code: of known functions, values, methods, the library, imported nodes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.core.imported_node import NodeFile, NodeInputKind
from lyra.vega.bytecode.opcodes import (
    ANY_LENGTH,
    OP_BUDGET_CHECK,
    OP_CALL,
    OP_CALL_NAMED,
    OP_CALL_VALUE,
    OP_CLOSURE,
    OP_EFFECT,
    OP_EXIT,
    OP_LENGTH,
    OP_LIBRARY,
    OP_LINK,
    OP_METHOD,
    OP_MONITOR,
    OP_PRINT,
    OP_PUSH,
    OP_UNLESS_LIST,
    OP_VARIANT,
)
from lyra.vega.compiler.emitter import FunctionCode
from lyra.vega.compiler.expressions import (
    compile_expression,
    compile_into,
    compile_operand,
    compile_run,
    compile_variable,
)
from lyra.vega.plan.names import ModuleScope, Symbol, Variable
from lyra.vega.stdlib.table import GLOBALS, LIBRARY, LibraryEntry
from lyra.vega.syntax import ast
from lyra.vega.values.values import UNSET

if TYPE_CHECKING:
    from lyra.vega.compiler.compiler import Linker


# Methods of lists that are written in Vega, with how many values, the list among them, they take.
_VEGA_METHODS: Final = {
    name: range(entry.required, entry.most + 1) for name, entry in LIBRARY["list"].items() if entry.how == "vega"
}


def compile_call(out: FunctionCode, node: ast.Call, into: int | None) -> int:
    into = out.target(into)
    mark = out.next_register
    callee = node.callee
    meaning = out.module.meanings.get(id(callee))
    if isinstance(meaning, Symbol) and meaning.kind in ("function", "tool"):
        function = out.linker.function_of(meaning)
        first = compile_arguments(out, node, meaning.node.parameters, meaning.name)
        out.at(node)
        out.emit(OP_CALL, into, function, first)
    elif isinstance(meaning, Symbol):
        _compile_host_call(out, node, meaning, into)
    elif meaning is None and isinstance(callee, (ast.Name, ast.Path)):
        library_call(out, node, into)
    else:
        _compile_call_value(out, node, into)
    out.next_register = mark
    return into


def _compile_host_call(out: FunctionCode, node: ast.Call, symbol: Symbol, into: int) -> None:
    if symbol.kind != "import" or symbol.target is not None:
        article = "an" if symbol.kind[0] in "aeiou" else "a"
        raise out.fail(node, f"`{symbol.name}` is {article} {symbol.kind} and cannot be called")
    if symbol.inputs is None:
        host_call(out, node, symbol.key, into)
        return
    first, count = compile_node_arguments(out, node, symbol)
    out.at(node)
    out.emit(OP_EFFECT, into, first, out.other([f"host::{symbol.key}", count]))


def _compile_call_value(out: FunctionCode, node: ast.Call, into: int) -> None:
    first = out.register(1 + len(node.arguments))
    compile_into(out, node.callee, first)
    for index, argument in enumerate(node.arguments):
        compile_into(out, argument.value, first + 1 + index)
    out.at(node)
    names = [argument.name for argument in node.arguments]
    if any(names):
        out.emit(OP_CALL_NAMED, into, first, out.other(["names", *names]))
    else:
        out.emit(OP_CALL_VALUE, into, first, len(names))


def _compile_method_call(out: FunctionCode, node: ast.MethodCall, into: int | None) -> int:
    into = out.target(into)
    mark = out.next_register
    if any(argument.name for argument in node.arguments):
        raise out.fail(node, "arguments of a method have no names")
    values = [node.target, *(argument.value for argument in node.arguments)]
    if node.name == "len" and len(values) == 1:
        whole = compile_expression(out, node.target)
        out.at(node)
        out.emit(OP_LENGTH, into, whole)
    elif node.name == "push" and len(values) == 2:
        whole = compile_operand(out, node.target, values[1])
        item = compile_expression(out, values[1])
        out.at(node)
        no_list = _jump_unless_list(out, node.target, whole)
        out.emit(OP_PUSH, into, whole, item)
        if no_list is not None:
            end = out.jump()
            out.patch(no_list)
            first = out.register(2)
            out.move(first, whole)
            out.move(first + 1, item)
            out.emit(OP_METHOD, into, first, out.other([node.name, 2]))
            out.patch(end)
    elif (count := _VEGA_METHODS.get(node.name)) is not None and len(values) in count:
        first = compile_run(out, values)
        out.at(node)
        no_list = _jump_unless_list(out, node.target, first)
        prelude_call(out, node, f"list::{node.name}", first, len(values), into)
        if no_list is not None:
            end = out.jump()
            out.patch(no_list)
            out.emit(OP_METHOD, into, first, out.other([node.name, len(values)]))
            out.patch(end)
    else:
        first = compile_run(out, values)
        out.at(node)
        out.emit(OP_METHOD, into, first, out.other([node.name, len(values)]))
    out.next_register = mark
    return into


def _jump_unless_list(out: FunctionCode, target: ast.Expression, register: int) -> int | None:
    """Before what only lists do: a jump (to be patched) for other values, since a map may hold a function of the
    same name. None where it can only be a list."""
    meaning = out.module.meanings.get(id(target))
    if type(target) is ast.ListLiteral or (
        isinstance(meaning, Variable) and meaning.began_as_list and not meaning.is_assigned
    ):
        return None
    return out.emit(OP_UNLESS_LIST, 0, register, ANY_LENGTH)


CALLS: Final[dict[type, Callable[[FunctionCode, Any, int | None], int]]] = {
    ast.Call: compile_call,
    ast.MethodCall: _compile_method_call,
}


# A pure function is one instruction; one that calls a lambda is Vega source of the prelude, compiled into the program
# when it is used; everything else is an effect that the host answers.

# Functions that only the prelude calls.
PRIVATE: Final = {"list::sorted": LibraryEntry((("xs", "list"),), 1, "list", "pure", "")}

# Library functions with their own instruction that has one operand: (opcode, whether it gives a value).
_SINGLE: Final = {
    "str::len": OP_LENGTH,
    "list::len": OP_LENGTH,
    "map::len": OP_LENGTH,
    "process::link": OP_LINK,
    "process::monitor": OP_MONITOR,
}
_BUDGET: Final = {"budget::remaining": 0, "budget::used": 1, "budget::limit": 2}


def _library_entry(out: FunctionCode, node: ast.SyntaxNode, module: str, name: str) -> LibraryEntry:
    """Return the row of a library function; an unknown name is an error with a hint."""
    full = f"{module}::{name}" if module else name
    if out.is_hidden and full in PRIVATE:
        return PRIVATE[full]
    table = LIBRARY.get(module, {}) if module else GLOBALS
    entry = table.get(name)
    if entry is not None:
        return entry
    from difflib import get_close_matches  # imported only for programs that are wrong

    if module and module not in LIBRARY:
        near = get_close_matches(module, LIBRARY, 1)
        raise out.fail(node, f"unknown module `{module}`", f"did you mean `{near[0]}`?" if near else "")
    near = get_close_matches(name, [*table, *out.module.scope.names, *out.module.symbols], 1)
    raise out.fail(node, f"unknown name `{full}`", f"did you mean `{near[0]}`?" if near else "")


def library_call(out: FunctionCode, node: ast.Call, into: int) -> None:
    callee = node.callee
    assert isinstance(callee, (ast.Name, ast.Path))
    module = callee.module if isinstance(callee, ast.Path) else ""
    full = f"{module}::{callee.name}" if module else callee.name
    if full in out.linker.host_names:
        host_call(out, node, full, into)
        return
    entry = _library_entry(out, callee, module, callee.name)
    order = match_arguments(out, node, [name for name, _ in entry.parameters], full)
    count = max(order, default=-1) + 1
    for index in range(max(count, entry.required)):
        if index not in order and index < entry.required:
            raise out.fail(node, f"`{full}` needs `{entry.parameters[index][0]}`")
    first = out.register(max(count, 2))
    for index, argument in order.items():
        compile_into(out, argument, first + index)
    for index in range(count):
        if index not in order:
            out.constant(None, first + index)
    out.at(node)
    _emit(out, node, full, entry, first, count, into)


def _emit(
    out: FunctionCode, node: ast.SyntaxNode, full: str, entry: LibraryEntry, first: int, count: int, into: int
) -> None:
    if full in _SINGLE:
        out.emit(_SINGLE[full], into, first)
    elif full in _BUDGET:
        out.emit(OP_BUDGET_CHECK, into, _BUDGET[full])
    elif full == "list::push":
        out.emit(OP_PUSH, into, first, first + 1)
    elif full == "print" or full == "process::exit":
        if not count:
            out.constant("" if full == "print" else "normal", first)
        out.emit(OP_PRINT if full == "print" else OP_EXIT, first)
        out.constant(None, into)
    elif full == "Ok" or full == "Err":
        if not count:
            out.constant(None, first)
        out.emit(OP_VARIANT, into, first, int(full == "Err"))
    elif entry.how == "vega":
        prelude_call(out, node, full, first, count, into)
    else:
        op = OP_EFFECT if entry.how == "effect" else OP_LIBRARY
        out.emit(op, into, first, out.other([full, count]))


def prelude_call(out: FunctionCode, node: ast.SyntaxNode, full: str, first: int, count: int, into: int) -> None:
    function, parameters, required = out.linker.prelude(full)
    if not required <= count <= parameters:
        raise out.fail(node, f"`{full}` takes {required} to {parameters} arguments, got {count}")
    run = out.register(parameters)
    for index in range(parameters):
        if index < count:
            out.move(run + index, first + index)
        else:
            out.constant(UNSET, run + index)
    out.at(node)
    out.emit(OP_CALL, into, function, run)


def host_call(out: FunctionCode, node: ast.Call, name: str, into: int) -> None:
    """Call a function of the host: imported nodes, tools and Python functions, and those given when embedding."""
    if any(argument.name for argument in node.arguments):
        raise out.fail(node, "arguments of a host function have no names")
    first = out.register(max(1, len(node.arguments)))
    for index, argument in enumerate(node.arguments):
        compile_into(out, argument.value, first + index)
    out.at(node)
    out.emit(OP_EFFECT, into, first, out.other([f"host::{name}", len(node.arguments)]))


def _compile_reference(out: FunctionCode, node: ast.Name | ast.Path, into: int | None) -> int:
    meaning = out.module.meanings.get(id(node))
    if isinstance(meaning, Variable):
        return compile_variable(out, meaning, into)
    if isinstance(meaning, Symbol):
        return compile_symbol(out, node, meaning, into)
    module = node.module if isinstance(node, ast.Path) else ""
    name = node.name
    entry = _library_entry(out, node, module, name)
    into = out.target(into)
    # `print` needs no argument, but as a value it is called with one.
    function = out.linker.wrapper(module, name, entry.required or min(entry.most, 1))
    out.emit(OP_CLOSURE, into, function, out.other([]))
    return into


def compile_symbol(out: FunctionCode, node: ast.SyntaxNode, symbol: Symbol, into: int | None) -> int:
    if symbol.kind in ("function", "tool"):
        into = out.target(into)
        out.emit(OP_CLOSURE, into, out.linker.function_of(symbol), out.other([]))
        return into
    if symbol.kind in ("agent", "supervisor"):
        return out.constant(symbol.name, into)  # an agent's name represents it in messages and settings
    if symbol.target is not None:
        raise out.fail(node, f"`{symbol.name}` is a file", hint=f"write `{symbol.name}::name`")
    return out.constant(symbol.key, into)  # imported nodes and tools stand in an agent's `tools` list by name


REFERENCES: Final[dict[type, Callable[[FunctionCode, Any, int | None], int]]] = {
    ast.Name: _compile_reference,
    ast.Path: _compile_reference,
}


# A row is [`node`, the target as written, the name that the call goes by, the file, its text, the names of its inputs]:
# a compiled file and a durable run keep the node as it was. A node that the host could not read has the first three
# only, and can be called by position alone.


def import_node(linker: Linker, module: ModuleScope, symbol: Symbol) -> None:
    """Add a node to the imports of the program; one that two files import is there once."""
    node = symbol.node
    loaded = linker.load(node.target, module.source.name) if linker.load is not None else None
    row = [node.kind, node.target, node.name]
    if isinstance(loaded, NodeFile) and loaded.node is not None:
        file, text = loaded
        row += [os.path.abspath(file), text, *(entry.name for entry in loaded.node.inputs)]
        symbol.inputs = loaded.node.inputs
    same = next((other for other in linker.program.imports if other[3:] == row[3:] and other[0] == "node"), None)
    if same is not None and len(row) > 3:
        symbol.key = same[2]
        return
    taken = {other[2] for other in linker.program.imports}
    while symbol.key in taken:
        symbol.key += "_"
    row[2] = symbol.key
    linker.program.imports.append(row)


def compile_node_arguments(out: FunctionCode, node: ast.Call, symbol: Symbol) -> tuple[int, int]:
    """Return the arguments of a call in a run of registers, in the order of the node's inputs: the first, and how many.
    Inputs that are not given are left out at the end, and unset before it."""
    inputs: tuple[NodeInputKind, ...] = symbol.inputs or ()
    order = match_arguments(out, node, [entry.name for entry in inputs], symbol.name)
    for index, entry in enumerate(inputs):
        if index not in order and entry.is_required:
            raise out.fail(node, f"`{symbol.name}` needs `{entry.name}`")
    count = max(order, default=-1) + 1
    first = out.register(max(1, count))
    for index, argument in order.items():
        compile_into(out, argument, first + index)
    for index in range(count):
        if index not in order:
            out.constant(UNSET, first + index)
    return first, count


def compile_arguments(out: FunctionCode, node: ast.Call, parameters: list[ast.Parameter], name: str) -> int:
    """Return the arguments of a known function in a run of registers, in the order of its parameters."""
    order = match_arguments(out, node, [parameter.name for parameter in parameters], name)
    for index, parameter in enumerate(parameters):
        if index not in order and parameter.default is None:
            hint = f"its parameters are ({', '.join(parameter.name for parameter in parameters)})"
            raise out.fail(node, f"`{name}` needs `{parameter.name}`", hint)
    first = out.register(max(len(parameters), 1))
    for index, argument in order.items():
        compile_into(out, argument, first + index)
    for index in range(len(parameters)):
        if index not in order:
            out.constant(UNSET, first + index)
    return first


def match_arguments(out: FunctionCode, node: ast.Call, names: list[str], name: str) -> dict[int, ast.Expression]:
    """Which argument goes to which parameter, in the order they are written."""
    order: dict[int, ast.Expression] = {}
    for position, argument in enumerate(node.arguments):
        if argument.name and argument.name not in names:
            raise out.fail(argument, f"`{name}` has no parameter `{argument.name}`")
        index = names.index(argument.name) if argument.name else position
        if index >= len(names):
            raise out.fail(argument, f"`{name}` takes {len(names)} arguments, got {len(node.arguments)}")
        if index in order:
            raise out.fail(argument, f"`{names[index]}` is given twice")
        order[index] = argument.value
    return order
