"""Source text of a syntax tree, laid out as formatters do: double quotes, lines of at most 120 characters.

`ast.unparse` knows neither comments nor long lines, so generated modules are printed here. Only the statements and
expressions that the generator makes are known; reading the text gives the same tree again. A `SourceComment` stands
where a statement may stand and compiles to nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

LINE_MAX: Final = 120
IMPORT_MAX: Final = 88  # a longer import has a line for each name: sorters leave that as it is at any line length
_INDENT: Final = "    "
_INSIDE_MAX: Final = 88
_GROUPED_FROM: Final = 10_000  # longer integers are written with underscores

_OPERATORS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Mod: "%",
    ast.BitOr: "|",
    ast.And: "and",
    ast.Or: "or",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
# How tightly an expression binds; an operand that binds less than its place asks for stands in parentheses.
_LAMBDA, _TERNARY, _OR, _AND, _NOT, _COMPARE, _BIT_OR, _SUM, _PRODUCT, _UNARY, _AWAIT, _ATOM = range(12)


class SourceComment(ast.Pass):
    """A comment on a line of its own."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = " ".join(text.replace("\0", " ").split())


def _escape(text: str, quote: str) -> str:
    parts = []
    for char in text:
        if char in ("\\", quote):
            parts.append("\\" + char)
        elif char.isprintable():
            parts.append(char)
        else:
            parts.append(repr(char)[1:-1])
    return "".join(parts)


# ------------------------------------------------------------ expressions on one line
def _binding(node: ast.expr) -> int:
    match node:
        case ast.Lambda():
            return _LAMBDA
        case ast.IfExp():
            return _TERNARY
        case ast.BoolOp():
            return _OR if isinstance(node.op, ast.Or) else _AND
        case ast.UnaryOp():
            return _NOT if isinstance(node.op, ast.Not) else _UNARY
        case ast.Compare():
            return _COMPARE
        case ast.BinOp():
            return {ast.BitOr: _BIT_OR, ast.Add: _SUM, ast.Sub: _SUM}.get(type(node.op), _PRODUCT)
        case ast.Await():
            return _AWAIT
        case ast.Constant(value=int() as number) if number < 0:
            return _UNARY
    return _ATOM


def _inner(node: ast.expr, binding: int) -> str:
    text = _flat(node)
    return f"({text})" if _binding(node) < binding else text


def _flat(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str() as text):
            # The text as a literal, in double quotes unless single ones need fewer escapes.
            quote = "'" if text.count('"') > text.count("'") else '"'
            return quote + _escape(text, quote) + quote
        case ast.Constant(value=int() as number) if abs(number) >= _GROUPED_FROM:
            return f"{number:_}"
        case ast.Constant():
            return repr(node.value)
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{_inner(node.value, _ATOM)}.{node.attr}"
        case ast.Subscript():
            index = node.slice
            inside = ", ".join(map(_flat, index.elts)) if isinstance(index, ast.Tuple) else _flat(index)
            return f"{_inner(node.value, _ATOM)}[{inside}]"
        case ast.Call():
            return f"{_inner(node.func, _ATOM)}({', '.join(_arguments(node))})"
        case ast.List():
            return f"[{', '.join(map(_flat, node.elts))}]"
        case ast.Tuple():
            return f"({', '.join(map(_flat, node.elts))}{',' if len(node.elts) == 1 else ''})"
        case ast.Dict():
            entries = []
            for key, value in zip(node.keys, node.values, strict=True):
                assert key is not None
                entries.append(f"{_flat(key)}: {_flat(value)}")
            return "{" + ", ".join(entries) + "}"
        case ast.JoinedStr():
            return _f_string(node)
        case ast.ListComp():
            return f"[{' '.join(_comprehension(node))}]"
        case ast.GeneratorExp():
            return f"({' '.join(_comprehension(node))})"
        case ast.Await():
            return f"await {_inner(node.value, _ATOM)}"
        case ast.Lambda():
            names = ", ".join(argument.arg for argument in node.args.args)
            return f"lambda{' ' if names else ''}{names}: {_flat(node.body)}"
        case ast.UnaryOp():
            sign = "not " if isinstance(node.op, ast.Not) else "-"
            return sign + _inner(node.operand, _binding(node))
    return " ".join(_operands(node))


def _operands(node: ast.expr) -> list[str]:
    """Return an expression of operators, cut before each operator of its own."""
    match node:
        case ast.IfExp():
            body, test = _inner(node.body, _OR), _inner(node.test, _OR)
            return [body, f"if {test}", f"else {_inner(node.orelse, _TERNARY)}"]
        case ast.BoolOp():
            word = _OPERATORS[type(node.op)]
            first, *rest = [_inner(value, _NOT) for value in node.values]
            return [first, *(f"{word} {text}" for text in rest)]
        case ast.Compare():
            words = [_OPERATORS[type(operator)] for operator in node.ops]
            texts = [_inner(value, _COMPARE + 1) for value in node.comparators]
            return [
                _inner(node.left, _COMPARE + 1),
                *(f"{word} {text}" for word, text in zip(words, texts, strict=True)),
            ]
        case ast.BinOp():
            binding = _binding(node)
            is_same = isinstance(node.left, ast.BinOp) and _binding(node.left) == binding
            left = _operands(node.left) if is_same else [_inner(node.left, binding)]
            return [*left, f"{_OPERATORS[type(node.op)]} {_inner(node.right, binding + 1)}"]
    raise AssertionError(ast.dump(node))


def _arguments(node: ast.Call) -> list[str]:
    if len(node.args) == 1 and not node.keywords and isinstance(node.args[0], ast.GeneratorExp):
        return [" ".join(_comprehension(node.args[0]))]
    return [*map(_flat, node.args), *(f"{word.arg}={_flat(word.value)}" for word in node.keywords)]


def _comprehension(node: ast.ListComp | ast.GeneratorExp) -> list[str]:
    parts = [_flat(node.elt)]
    for loop in node.generators:
        parts.append(f"for {_flat(loop.target)} in {_inner(loop.iter, _OR)}")
        parts += [f"if {_inner(test, _OR)}" for test in loop.ifs]
    return parts


def _f_string(node: ast.JoinedStr) -> str:
    texts = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
    quote = "'" if texts.count('"') > texts.count("'") else '"'
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(_escape(str(part.value), quote).replace("{", "{{").replace("}", "}}"))
        else:
            assert isinstance(part, ast.FormattedValue)
            parts.append("{" + _flat(part.value) + "}")
    return f"f{quote}{''.join(parts)}{quote}"


def fits_inside(node: ast.expr) -> bool:
    """Return whether the expression stands on one line also where it is far inside other blocks."""
    return len(_flat(node)) <= _INSIDE_MAX


# ------------------------------------------------------------ expressions on several lines
def _fits(text: str) -> bool:
    return len(text) <= LINE_MAX


def _laid_out(prefix: str, node: ast.expr, suffix: str, indent: str, *, is_bracketed: bool = False) -> list[str]:
    """Return the lines of `prefix node suffix`; only the first and last may hold prefix and suffix."""
    line = f"{indent}{prefix}{_flat(node)}{suffix}"
    if _fits(line):
        return [line]
    match node:
        case ast.Call() if node.args or node.keywords:
            opening = f"{prefix}{_inner(node.func, _ATOM)}("
            return _call_lines(opening, node, ")" + suffix, indent)
        case ast.Await():
            return _laid_out(f"{prefix}await ", node.value, suffix, indent)
        case ast.UnaryOp() if isinstance(node.op, ast.Not):
            if _binding(node.operand) < _NOT:
                return _bracket(f"{prefix}not (", node.operand, ")" + suffix, indent)
            return _laid_out(f"{prefix}not ", node.operand, suffix, indent)
        case ast.List() | ast.Tuple() if node.elts:
            opening, closing = "[]" if isinstance(node, ast.List) else "()"
            lines = [_laid_out("", element, ",", indent + _INDENT, is_bracketed=True) for element in node.elts]
            return [f"{indent}{prefix}{opening}", *_flatten(lines), f"{indent}{closing}{suffix}"]
        case ast.Dict() if node.keys:
            return [f"{indent}{prefix}{{", *_dict_lines(node, indent + _INDENT), f"{indent}}}{suffix}"]
        case ast.ListComp():
            return [f"{indent}{prefix}[", *_comprehension_lines(node, indent + _INDENT), f"{indent}]{suffix}"]
        case ast.IfExp() if not is_bracketed:
            return _bracket(f"{prefix}(", node, ")" + suffix, indent)
        case ast.BoolOp() | ast.BinOp() | ast.Compare() | ast.IfExp():
            if is_bracketed:
                return _operator_lines(prefix, node, suffix, indent)
            return _last_operand_lines(prefix, node, suffix, indent) or _bracket(
                f"{prefix}(", node, ")" + suffix, indent
            )
    return [line]


def _flatten(lines: Sequence[list[str]]) -> Iterator[str]:
    for part in lines:
        yield from part


def _bracket(opening: str, node: ast.expr, closing: str, indent: str) -> list[str]:
    inner = _laid_out("", node, "", indent + _INDENT, is_bracketed=True)
    return [f"{indent}{opening}", *inner, f"{indent}{closing}"]


def _comprehension_lines(node: ast.ListComp | ast.GeneratorExp, indent: str) -> list[str]:
    line = indent + " ".join(_comprehension(node))
    if _fits(line):
        return [line]
    lines = _laid_out("", node.elt, "", indent, is_bracketed=True)
    for loop in node.generators:
        lines += _laid_out(f"for {_flat(loop.target)} in ", loop.iter, "", indent, is_bracketed=True)
        for test in loop.ifs:
            lines += _laid_out("if ", test, "", indent, is_bracketed=True)
    return lines


# An operand with the operator before it, and whether it stands in parentheses.
_Operand = tuple[str, ast.expr, bool]


def _operands_of(node: ast.expr) -> list[_Operand]:
    """Return the operands of an expression; those of a chain of sums or products are in one row."""
    match node:
        case ast.BoolOp():
            words = ["", *[_OPERATORS[type(node.op)]] * (len(node.values) - 1)]
            values, binding = node.values, _NOT
        case ast.Compare():
            words = ["", *(_OPERATORS[type(operator)] for operator in node.ops)]
            values, binding = [node.left, *node.comparators], _COMPARE + 1
        case ast.BinOp():
            binding = _binding(node)
            is_chain = isinstance(node.left, ast.BinOp) and _binding(node.left) == binding
            first = _operands_of(node.left) if is_chain else [("", node.left, _binding(node.left) < binding)]
            return [*first, (_OPERATORS[type(node.op)], node.right, _binding(node.right) <= binding)]
        case ast.IfExp():
            (_, value, is_inside), *rest = (
                _operands_of(node.orelse)
                if isinstance(node.orelse, ast.IfExp)
                else [("", node.orelse, _binding(node.orelse) < _TERNARY)]
            )
            parts = [("", node.body), ("if", node.test)]
            return [
                *((word, part, _binding(part) < _OR) for word, part in parts),
                ("else", value, is_inside),
                *rest,
            ]
        case _:
            return [("", node, False)]
    return [(word, value, _binding(value) < binding) for word, value in zip(words, values, strict=True)]


def _operand_lines(prefix: str, operand: _Operand, suffix: str, indent: str) -> list[str]:
    word, node, is_bracketed = operand
    before = f"{prefix}{word} " if word else prefix
    if not is_bracketed:
        return _laid_out(before, node, suffix, indent, is_bracketed=True)
    line = f"{indent}{before}({_flat(node)}){suffix}"
    return [line] if _fits(line) else _bracket(f"{before}(", node, f"){suffix}", indent)


def _operator_lines(prefix: str, node: ast.expr, suffix: str, indent: str) -> list[str]:
    """Return each operand on a line of its own, the operator before it."""
    operands = _operands_of(node)
    lines = _operand_lines(prefix, operands[0], "", indent)
    for operand in operands[1:]:
        lines += _operand_lines("", operand, suffix if operand is operands[-1] else "", indent)
    return lines


def _last_operand_lines(prefix: str, node: ast.expr, suffix: str, indent: str) -> list[str] | None:
    """Return the expression with breaks inside the brackets of its last operand only, where that is the usual
    layout."""
    if _count_own_operators(node) != 1:
        return None
    *others, last = _operands_of(node)
    word, value, is_bracketed = last
    before = " ".join(f"{word} ({_flat(item)})" if inside else f"{word} {_flat(item)}" for word, item, inside in others)
    opening = f"{prefix}{before.strip()} "
    if not is_bracketed and isinstance(value, ast.BoolOp | ast.Compare | ast.BinOp):
        return _last_operand_lines(f"{opening}{word} ", value, suffix, indent)
    target = value.operand if isinstance(value, ast.UnaryOp) else value
    if not is_bracketed and not isinstance(target, ast.Call | ast.List | ast.Tuple | ast.Dict):
        return None
    lines = _operand_lines(opening, last, suffix, indent)
    return lines if len(lines) > 1 and _fits(lines[0]) else None


def _count_own_operators(node: ast.expr) -> int:
    """Return how many operators of the expression bind as little as its own."""
    match node:
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.Compare():
            return len(node.ops)
        case ast.BinOp():
            is_chain = isinstance(node.left, ast.BinOp) and _binding(node.left) == _binding(node)
            return 1 + (_count_own_operators(node.left) if is_chain else 0)
    return 0


def _call_lines(opening: str, node: ast.Call, closing: str, indent: str) -> list[str]:
    inside = indent + _INDENT
    line = inside + ", ".join(_arguments(node))
    if _fits(line):
        return [indent + opening, line, indent + closing]
    if len(node.args) == 1 and not node.keywords and isinstance(node.args[0], ast.GeneratorExp):
        return [indent + opening, *_comprehension_lines(node.args[0], inside), indent + closing]
    lines = [_laid_out("", argument, ",", inside, is_bracketed=True) for argument in node.args]
    lines += [_laid_out(f"{word.arg}=", word.value, ",", inside, is_bracketed=True) for word in node.keywords]
    return [indent + opening, *_flatten(lines), indent + closing]


def _dict_lines(node: ast.Dict, indent: str) -> Iterator[str]:
    for key, value in zip(node.keys, node.values, strict=True):
        assert key is not None
        yield from _laid_out(f"{_flat(key)}: ", value, ",", indent, is_bracketed=True)


# ------------------------------------------------------------ statements
def _body(statements: Sequence[ast.stmt], indent: str) -> list[str]:
    lines = list(_flatten([_statement(statement, indent + _INDENT) for statement in statements]))
    is_empty = all(isinstance(statement, SourceComment) for statement in statements)
    return [*lines, f"{indent}{_INDENT}pass"] if is_empty else lines


def _statement(node: ast.stmt, indent: str) -> list[str]:
    match node:
        case SourceComment():
            return _comment_lines(node.text, indent)
        case ast.Pass() | ast.Continue() | ast.Break():
            return [indent + type(node).__name__.lower()]
        case ast.Assign():
            return _laid_out(f"{_flat(node.targets[0])} = ", node.value, "", indent)
        case ast.AnnAssign(value=None):
            return [f"{indent}{_flat(node.target)}: {_flat(node.annotation)}"]
        case ast.AnnAssign():
            assert node.value is not None
            return _laid_out(f"{_flat(node.target)}: {_flat(node.annotation)} = ", node.value, "", indent)
        case ast.AugAssign():
            return _laid_out(f"{_flat(node.target)} {_OPERATORS[type(node.op)]}= ", node.value, "", indent)
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return _docstring(text, indent)
        case ast.Expr():
            return _laid_out("", node.value, "", indent)
        case ast.Return():
            return [f"{indent}return"] if node.value is None else _laid_out("return ", node.value, "", indent)
        case ast.Raise():
            if node.exc is None:
                return [f"{indent}raise"]
            cause = "" if node.cause is None else f" from {_flat(node.cause)}"
            return _laid_out("raise ", node.exc, cause, indent)
        case ast.Nonlocal():
            return [f"{indent}nonlocal {', '.join(node.names)}"]
        case ast.If():
            return _if_lines("if ", node, indent)
        case ast.While():
            return [*_laid_out("while ", node.test, ":", indent), *_body(node.body, indent)]
        case ast.For():
            return [*_laid_out(f"for {_flat(node.target)} in ", node.iter, ":", indent), *_body(node.body, indent)]
        case ast.Try():
            return _try_lines(node, indent)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return _function_lines(node, indent)
        case ast.ClassDef():
            decorators = [f"{indent}@{_flat(decorator)}" for decorator in node.decorator_list]
            doc, *fields = _body(node.body, indent)
            return [*decorators, f"{indent}class {node.name}:", doc, "", *fields]
        case ast.ImportFrom():
            return _import_lines(node)
    raise AssertionError(ast.dump(node))


def _comment_lines(text: str, indent: str) -> list[str]:
    lines, line = [], f"{indent}#"
    for word in text.split():
        if len(line) + len(word) >= LINE_MAX and line != f"{indent}#":
            lines.append(line)
            line = f"{indent}#"
        line += " " + word
    return [*lines, line]


def _docstring(text: str, indent: str) -> list[str]:
    safe = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
    lines = safe.replace("\\", "\\\\").replace('"', "'").split("\n")
    if len(lines) == 1:
        return [f'{indent}"""{lines[0]}"""']
    inner = [f"{indent}{line}" if line else "" for line in lines[1:]]
    return [f'{indent}"""{lines[0]}', *inner, f'{indent}"""']


def _if_lines(word: str, node: ast.If, indent: str) -> list[str]:
    lines = [*_laid_out(word, node.test, ":", indent), *_body(node.body, indent)]
    match node.orelse:
        case []:
            return lines
        case [ast.If() as other]:
            return [*lines, *_if_lines("elif ", other, indent)]
    return [*lines, f"{indent}else:", *_body(node.orelse, indent)]


def _try_lines(node: ast.Try, indent: str) -> list[str]:
    lines = [f"{indent}try:", *_body(node.body, indent)]
    for handler in node.handlers:
        assert handler.type is not None
        name = f" as {handler.name}" if handler.name else ""
        lines += [f"{indent}except {_flat(handler.type)}{name}:", *_body(handler.body, indent)]
    return lines


def _function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef, indent: str) -> list[str]:
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    assert node.returns is not None
    arguments = node.args
    plain_defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + list(arguments.defaults)
    texts = [_parameter(*pair) for pair in zip(arguments.args, plain_defaults, strict=True)]
    if arguments.kwonlyargs:
        texts.append("*")
        texts += [_parameter(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    parameters = texts
    result = f") -> {_flat(node.returns)}:"
    line = f"{indent}{word} {node.name}({', '.join(parameters)}{result}"
    if _fits(line):
        head = [line]
    else:
        inside = indent + _INDENT + ", ".join(parameters)
        rows = [inside] if _fits(inside) else [f"{indent}{_INDENT}{parameter}," for parameter in parameters]
        head = [f"{indent}{word} {node.name}(", *rows, f"{indent}{result}"]
    body = _body(node.body, indent)
    return [*head, *body] if not indent else ["", *head, *body, ""]


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    assert argument.annotation is not None
    text = f"{argument.arg}: {_flat(argument.annotation)}"
    return text if default is None else f"{text} = {_flat(default)}"


def _import_lines(node: ast.ImportFrom) -> list[str]:
    names = [f"{name.name} as {name.asname}" if name.asname else name.name for name in node.names]
    line = f"from {node.module} import {', '.join(names)}"
    if len(line) <= IMPORT_MAX:
        return [line]
    return [f"from {node.module} import (", *(f"{_INDENT}{name}," for name in names), ")"]


def module_text(header: Sequence[str], module: ast.Module) -> str:
    """Return the module's text under header comments. Functions stand apart by two lines."""
    lines = list(header)
    previous: ast.stmt | None = None
    for node in module.body:
        lines += [""] * _gap(previous, node)
        lines += _without_double_gaps(_statement(node, ""))
        previous = node
    return "\n".join(lines) + "\n"


def _gap(previous: ast.stmt | None, node: ast.stmt) -> int:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    if previous is None:
        return 0
    if isinstance(node, functions) or isinstance(previous, functions):
        return 2
    if isinstance(previous, ast.ImportFrom) and isinstance(node, ast.ImportFrom):
        return int(_section(previous) != _section(node))
    return int(type(previous) is not type(node))


def _section(node: ast.ImportFrom) -> int:
    """Return which block of imports it belongs to: the future's, Python's own, Lyra's."""
    module = node.module or ""
    return 0 if module == "__future__" else 2 if module.startswith("lyra") else 1


def _without_double_gaps(lines: list[str]) -> list[str]:
    """Return the lines without an empty line after another or at the start or end of a block."""
    kept: list[str] = []
    for index, line in enumerate(lines):
        if not line and not _keeps_gap(lines, index, kept):
            continue
        kept.append(line)
    return kept


def _keeps_gap(lines: list[str], index: int, kept: list[str]) -> bool:
    if not kept or not kept[-1] or kept[-1].lstrip().startswith(("def ", "async def ")):
        return False
    following = next((line for line in lines[index + 1 :] if line), "")
    return bool(following)
