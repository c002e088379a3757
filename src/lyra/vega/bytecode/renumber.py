"""A newer program laid over an older one: whatever both have keeps its number.

A journal and the processes saved in it name functions and variables by number, and a compiler numbers them as it meets
them. `renumber` renumbers the newer program so that each function and variable that the older one had stands where it
stood; what is new comes behind, and what is gone leaves an empty place. So saved processes need no translation, and a
replay asks with the same numbers. Functions go by file and name; of several with one name (lambdas), those that read
the same come first, then the others in order.

    newer = renumber(run.program(), compiled)
    changed = [index for index, function in enumerate(newer.functions) if not is_same(older.functions[index], function)]
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

import msgspec

from lyra.vega.bytecode.opcodes import OP_CALL, OP_CLOSURE, OP_RETURN_NULL, OPCODES
from lyra.vega.bytecode.program import AgentInfo, Function, Instruction, Program, TestInfo, ToolInfo

# Which of an instruction's operands name a function, and which a variable.
_NAMING: Final = {
    number: tuple(kind if kind in ("function", "global") else "" for kind in (row.a, row.b, row.c))
    for number, row in OPCODES.items()
    if {"function", "global"} & {row.a, row.b, row.c}
}


def renumber(old: Program, new: Program) -> Program:
    """Return the newer program with the older one's numbers."""
    functions = numbers(old, new)
    variables = _places([(name, "") for name in old.globals], [(name, "") for name in new.globals])
    names = [*old.globals, *[""] * (1 + max(variables, default=-1) - len(old.globals))]
    for number, name in zip(variables, new.globals, strict=True):
        names[number] = name
    laid: list[Function] = [_make_empty(function) for function in old.functions]
    laid += [_make_empty(old.functions[0])] * (1 + max(functions, default=-1) - len(laid))
    for number, function in zip(functions, new.functions, strict=True):
        laid[number] = _renumber_function(function, functions, variables)
    return msgspec.structs.replace(
        new,
        functions=laid,
        globals=names,
        entry=functions[new.entry],
        main=-1 if new.main < 0 else functions[new.main],
        agents={name: _agent(info, functions) for name, info in new.agents.items()},
        tools={name: _tool(info, functions) for name, info in new.tools.items()},
        tests=[TestInfo(name=test.name, function=functions[test.function]) for test in new.tests],
    )


def numbers(old: Program, new: Program) -> list[int]:
    """For each function of the newer program the number that it has when it is fitted."""
    return _places(
        [(*_key(old, function), _mask(function)) for function in old.functions],
        [(*_key(new, function), _mask(function)) for function in new.functions],
    )


def _key(program: Program, function: Function) -> tuple[str, str, bool]:
    """Return the key that a function is found by; the file that is run may have another name by now."""
    file = program.files[function.file] if function.file < len(program.files) else ""
    return ("" if file == program.name else file), function.name, function.is_hidden


def _places(old: Sequence[tuple[Hashable, ...]], new: Sequence[tuple[Hashable, ...]]) -> list[int]:
    """For each of the new ones its place among the old ones, or one behind them. The last part of each says how it
    reads, those before it what it is known by."""
    free: dict[Hashable, list[int]] = {}
    for index, item in enumerate(old):
        free.setdefault(item[:-1], []).append(index)
    by_index: dict[int, int] = {}
    for is_exact in (True, False):
        for index, item in enumerate(new):
            places = free.get(item[:-1], ()) if index not in by_index else ()
            match = next((place for place in places if not is_exact or old[place] == item), None)
            if match is not None:
                by_index[index] = match
                free[item[:-1]].remove(match)
    behind = len(old)
    for index in range(len(new)):
        if index not in by_index:
            by_index[index] = behind
            behind += 1
    return [by_index[index] for index in range(len(new))]


# ---------------------------------------------------------------- renumbering
def _renumber_function(function: Function, functions: list[int], variables: list[int]) -> Function:
    tables = {"function": functions, "global": variables}
    code = [_instruction(instruction, tables) for instruction in function.code]
    return msgspec.structs.replace(function, code=code, tree=_tree(function.tree, functions))


def _instruction(instruction: Instruction, tables: dict[str, list[int]]) -> Instruction:
    naming = _NAMING.get(instruction[0])
    if naming is None:
        return instruction
    a, b, c = (
        tables[kind][operand] if kind else operand for kind, operand in zip(naming, instruction[1:], strict=True)
    )
    return instruction[0], a, b, c


def _tree(node: Any, functions: list[int], *, is_root: bool = True) -> Any:
    """Return a pure function's tree: ["call", function, values] anywhere in it, and the list of those at its fourth
    place."""
    if type(node) is not list:
        return node
    parts = [_tree(part, functions, is_root=False) for part in node]
    if is_root:
        parts[3] = sorted(functions[index] for index in node[3])
    elif len(node) == 3 and node[0] == "call" and type(node[1]) is int:
        parts[1] = functions[node[1]]
    return parts


def _tool(info: ToolInfo, functions: list[int]) -> ToolInfo:
    configuration = -1 if info.configuration < 0 else functions[info.configuration]
    return msgspec.structs.replace(info, function=functions[info.function], configuration=configuration)


def _agent(info: AgentInfo, functions: list[int]) -> AgentInfo:
    tools = [_tool(tool, functions) for tool in info.tools]
    return msgspec.structs.replace(info, configuration=functions[info.configuration], tools=tools)


_EMPTY: Final = [(OP_RETURN_NULL, 0, 0, 0)]


def _make_empty(function: Function) -> Function:
    """Return the place of a function that there is no more."""
    own = len(function.parameters) + function.captures
    return Function(
        name=function.name,
        parameters=function.parameters,
        captures=function.captures,
        registers=own,
        code=_EMPTY,
        places=[0],
        is_hidden=True,
    )


def is_gone(function: Function) -> bool:
    return function.code is _EMPTY or (function.code == _EMPTY and function.is_hidden and function.places == [0])


# ---------------------------------------------------------------- comparing
def shape(function: Function) -> bytes:
    """All that a function does by itself, without where it stands in its source."""
    return _encode(function, function.code)


def _mask(function: Function) -> bytes:
    """Return the function as data with the numbers of other functions and globals left out."""
    blind = {"function": _Zero(), "global": _Zero()}
    return _encode(function, [_instruction(instruction, blind) for instruction in function.code])  # type: ignore[arg-type]


class _Zero:
    def __getitem__(self, _: int) -> int:
        return 0


def _encode(function: Function, code: list[Instruction]) -> bytes:
    plain = msgspec.to_builtins(function, builtin_types=(bytes,), enc_hook=repr)
    plain.update(file=0, places=[], tree=None, code=code)
    return msgspec.msgpack.encode(plain)


def is_same(old: Function, new: Function) -> bool:
    return shape(old) == shape(new)


def find_changed_functions(old: Program, new: Program) -> set[int]:
    """Return the numbers of functions that both have and that do something else, or are gone; of programs that were
    fitted."""
    return {index for index, function in enumerate(old.functions) if not is_same(function, new.functions[index])}


def find_reachable(program: Program, start: Iterable[int]) -> set[int]:
    """Functions, and all that they call or make."""
    functions: set[int] = set()
    todo = list(start)
    while todo:
        index = todo.pop()
        if index not in functions:
            functions.add(index)
            todo += [b for op, _, b, _ in program.functions[index].code if op in (OP_CALL, OP_CLOSURE)]
    return functions
