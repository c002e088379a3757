"""Which argument of a call goes to which parameter, and the run of registers that holds them."""

from __future__ import annotations

from lyra.vega.compiler.expressions import compile_into
from lyra.vega.compiler.function_code import FunctionCode
from lyra.vega.syntax import ast
from lyra.vega.values.values import UNSET


def compile_arguments(out: FunctionCode, node: ast.Call, parameters: list[ast.Parameter], name: str) -> int:
    """The arguments of a known function in a run of registers, in the order of its parameters."""
    order = match_arguments(out, node, [parameter.name for parameter in parameters], name)
    for index, parameter in enumerate(parameters):
        if index not in order and parameter.default is None:
            raise out.fail(node, f"`{name}` needs `{parameter.name}`", _signature(parameters))
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


def _signature(parameters: list[ast.Parameter]) -> str:
    return f"its parameters are ({', '.join(parameter.name for parameter in parameters)})"
