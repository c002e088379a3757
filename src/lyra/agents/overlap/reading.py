"""From a function object to its source, and back from the new source to a function object.

The new function has the old one's file, lines, name, defaults, annotations and closure; nothing is run to make it. What
cannot be analysed is refused with a place and a reason.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from lyra.agents.overlap.forms import CallForm, names_bound
from lyra.agents.overlap.rewrite import GROUP, LOOP, rewritten
from lyra.errors import ConfigError

__all__ = ["fresh_lists", "overlapping", "refusal", "shadowed_names"]

Definition = ast.FunctionDef | ast.AsyncFunctionDef
_KNOWS_SCOPE: Final = frozenset({"locals", "vars", "exec", "eval", "globals", "super"})


def overlapping(function: Any) -> Any:
    """The function with its calls side by side; see `lyra.parallel`."""
    if not isinstance(function, FunctionType):
        raise ConfigError(
            f"@lyra.parallel is for functions, not {type(function).__name__}",
            hint="put it next to the `def`, below decorators that give something else",
            key="parallel",
        )
    tree = _definition(function)
    why = refusal(tree)
    if why is not None:
        node, reason = why
        raise _refused(function, node.lineno if hasattr(node, "lineno") else tree.lineno, reason)
    is_async = isinstance(tree, ast.AsyncFunctionDef)
    form = CallForm(is_async=is_async, run_names=_run_names(function), shadowed=shadowed_names(tree, function))
    tree.body, early = rewritten(form, tree.body, fresh_lists(tree), is_async=is_async)
    if not early:
        return function
    made = _function(function, tree)
    if is_async:
        return made
    return _outside_of_loops(function, made)


def _definition(function: FunctionType) -> Definition:
    code = function.__code__
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError):
        raise _refused(function, code.co_firstlineno, "its source is not there") from None
    try:
        module = ast.parse(textwrap.dedent("".join(lines)))
    except SyntaxError:
        raise _refused(function, first, "its source cannot be read by itself") from None
    tree = module.body[0] if module.body else None
    if not isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef)) or tree.name != function.__name__:
        raise _refused(function, first, "it is not a `def` of its own")
    ast.increment_lineno(tree, first - 1)
    return tree


def _refused(function: FunctionType, line: int, reason: str) -> ConfigError:
    file = function.__code__.co_filename
    return ConfigError(
        f"@lyra.parallel cannot look into {function.__qualname__}: {reason} ({file}:{line})",
        hint="leave the decorator out, or use lyra.parallel(…) with the calls themselves",
        key="parallel",
        file=file,
        line=line,
    )


def refusal(tree: Definition) -> tuple[ast.AST, str] | None:
    """The first thing in a function that nothing can be promised about."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return node, "it is a generator"
        if isinstance(node, ast.Nonlocal):
            return node, "it sets a variable of the function around it"
        if isinstance(node, ast.Global):
            return node, "it sets a global variable"
        if isinstance(node, ast.NamedExpr):
            return node, "it binds a name inside an expression (`:=`)"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _KNOWS_SCOPE:
            return node, f"`{node.func.id}()` looks at its variables"
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name.startswith("__") and not name.endswith("__"):
            return node, f"`{name}` is a name of its class alone"
    return None


def shadowed_names(tree: Definition, function: FunctionType | None = None) -> frozenset[str]:
    """Names that do not mean the well-known function here."""
    found = names_bound(tree) | {argument.arg for argument in ast.walk(tree) if isinstance(argument, ast.arg)}
    return found if function is None else found | set(function.__globals__) | set(function.__code__.co_freevars)


def fresh_lists(tree: Definition) -> frozenset[str]:
    """Names that never hold anything but a list that the function made."""
    lists: set[str] = set()
    others: set[str] = {argument.arg for argument in ast.walk(tree) if isinstance(argument, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.List):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if len(targets) == 1:
                lists |= names
                continue
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            others |= names_bound(node)
        for part in ("target", "optional_vars"):
            found = getattr(node, part, None)
            if isinstance(found, ast.expr) and hasattr(node, "body"):
                others |= names_bound(found)
    return frozenset(lists - others)


def _run_names(function: FunctionType) -> frozenset[str]:
    """The names by which a function knows `lyra.run`."""
    import lyra
    from lyra.agents.sdk import run

    known = {**function.__globals__, **_closed_over(function)}
    found = {name for name, value in known.items() if value is run}
    found |= {f"{name}.run" for name, value in known.items() if value is lyra}
    return frozenset(found)


def _closed_over(function: FunctionType) -> dict[str, Any]:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    found: dict[str, Any] = {}
    for name, cell in cells.items():
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return found


# ---------------------------------------------------------------- a function again


def _function(old: FunctionType, tree: Definition) -> FunctionType:
    """Compiled inside a function that has the names it closes over, and taken out of that without running it."""
    tree.decorator_list = []
    outer_names = [*old.__code__.co_freevars, GROUP, LOOP]
    spec = ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in outer_names], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    tree.args.defaults, tree.args.kw_defaults = _without_values(tree.args)
    _drop_annotations(tree)
    outer = ast.FunctionDef("_lyra_outer", spec, [tree], [])
    outer.type_params = []  # type: ignore[attr-defined]  # asked for since Python 3.12
    module = ast.fix_missing_locations(ast.Module([outer], []))
    code = _inner(_inner(compile(module, old.__code__.co_filename, "exec"), "_lyra_outer"), old.__name__)
    closure = tuple(_cell(old, name) for name in code.co_freevars)
    made = FunctionType(code, old.__globals__, old.__name__, old.__defaults__, closure)
    made.__kwdefaults__ = old.__kwdefaults__
    functools.update_wrapper(made, old)
    return made


def _without_values(arguments: ast.arguments) -> tuple[list[ast.expr], list[ast.expr | None]]:
    """Defaults are the old function's; here they only say which parameters have one."""
    some: list[ast.expr] = [ast.Constant(None) for _ in arguments.defaults]
    return some, [None if value is None else ast.Constant(None) for value in arguments.kw_defaults]


def _drop_annotations(tree: Definition) -> None:
    tree.returns = None
    for node in ast.walk(tree.args):
        if isinstance(node, ast.arg):
            node.annotation = None


def _inner(code: CodeType, name: str) -> CodeType:
    return next(part for part in code.co_consts if isinstance(part, CodeType) and part.co_name == name)


def _cell(old: FunctionType, name: str) -> CellType:
    from lyra.agents.overlap.group import Group, PlainGroup, loop_of, plain_loop_of

    is_async = inspect.iscoroutinefunction(old)
    if name == GROUP:
        return CellType(Group if is_async else PlainGroup)
    if name == LOOP:
        return CellType(loop_of if is_async else plain_loop_of)
    return (old.__closure__ or ())[old.__code__.co_freevars.index(name)]


def _outside_of_loops(old: FunctionType, made: FunctionType) -> Callable[..., Any]:
    """In a running loop `lyra.run` gives something to await, so there a plain function stays what it was."""
    import asyncio

    @functools.wraps(old)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return made(*args, **kwargs)
        return old(*args, **kwargs)

    return call
