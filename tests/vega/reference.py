"""A second, slow Vega: a tree walker that shares no code with compiler and machine but the values' operators.

What tests compare the real one with. It knows the part of the language that random programs use.
"""

from __future__ import annotations

from typing import Any

from lyra.vega.syntax import ast
from lyra.vega.values import operators
from lyra.vega.values.values import UNSET, Err, Fault, Ok, equal, render

Scope = dict[str, list[Any]]  # a variable is a list of one, so that closures share it


class Break(Exception):
    pass


class Continue(Exception):
    pass


class Return(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class TooLong(Exception):
    """The program runs longer than anybody wants to wait; nothing follows from it."""


class Function:
    def __init__(self, walker: Walker, parameters: list[str], body: ast.Block, scopes: list[Scope]) -> None:
        self.walker = walker
        self.parameters = parameters
        self.body = body
        self.scopes = scopes

    def __call__(self, *values: Any) -> Any:
        scopes = [*self.scopes, {name: [value] for name, value in zip(self.parameters, values, strict=True)}]
        walker = self.walker
        outer, walker.defers = walker.defers, []
        try:
            walker.block(self.body, scopes)
            result = None
        except Return as end:
            result = end.value
        except Fault as fault:
            walker.run_defers(outer, fault)
            raise AssertionError("run_defers throws it on") from None
        walker.run_defers(outer, None)
        return result


_OPERATORS = {
    "+": operators.add,
    "-": operators.subtract,
    "*": operators.multiply,
    "/": operators.divide,
    "%": operators.remainder,
    "<": operators.less,
    "<=": operators.less_or_equal,
    ">": lambda left, right: operators.less(right, left),
    ">=": lambda left, right: operators.less_or_equal(right, left),
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
}


class Walker:
    def __init__(self, steps: int = 20_000) -> None:
        self.lines: list[str] = []
        self.defers: list[tuple[ast.Block, list[Scope]]] = []
        self.left = steps

    def run(self, module: ast.Module) -> tuple[list[str], str | None]:
        scopes: list[Scope] = [{}]
        for statement in module.statements:
            if isinstance(statement, ast.Function):
                self.declare(statement, scopes)
        try:
            for statement in module.statements:
                if not isinstance(statement, ast.Function):
                    self.statement(statement, scopes)
        except Fault as fault:
            return self.lines, f"{fault.name}: {fault.text}"
        return self.lines, None

    def run_defers(self, outer: Any, fault: Fault | None) -> None:
        mine, self.defers = self.defers, outer
        for body, scopes in reversed(mine):
            try:
                self.block(body, scopes)
            except Fault as error:
                fault = error
        if fault is not None:
            raise fault

    # ------------------------------------------------------------ statements

    def declare(self, node: ast.Function, scopes: list[Scope]) -> None:
        scopes[-1][node.name] = [Function(self, [p.name for p in node.parameters], node.body, list(scopes))]

    def block(self, block: ast.Block, scopes: list[Scope]) -> None:
        inner = [*scopes, {}]
        for statement in block.statements:
            if isinstance(statement, ast.Function):
                self.declare(statement, inner)
        for statement in block.statements:
            self.statement(statement, inner)

    def statement(self, node: ast.Statement, scopes: list[Scope]) -> None:
        self.left -= 1
        if self.left < 0:
            raise TooLong
        getattr(self, f"do_{type(node).__name__}")(node, scopes)

    def do_Function(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        pass

    def do_Block(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        self.block(node, scopes)

    def do_Let(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        value = None if node.value is None else self.value(node.value, scopes)
        scopes[-1] = dict(scopes[-1])  # closures made before keep the variable they saw
        scopes[-1][node.name] = [value]

    def do_Assign(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        if isinstance(node.target, ast.Index):
            whole = self.value(node.target.target, scopes)
            index = self.value(node.target.index, scopes)
            operators.store(whole, index, self.value(node.value, scopes))
        else:
            value = self.value(node.value, scopes)
            self.find(node.target.name, scopes)[0] = value

    def do_ExpressionStatement(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        self.value(node.value, scopes)

    def do_If(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        if self.condition(node.condition, scopes):
            self.block(node.then, scopes)
        elif node.otherwise is not None:
            self.statement(node.otherwise, scopes)

    def do_While(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        while self.condition(node.condition, scopes):
            self.left -= 1
            if not self.turn(node.body, scopes):
                break

    def do_For(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        inner = [*scopes, {}]
        self.statement(node.start, inner)
        while self.condition(node.condition, inner):
            if not self.turn(node.body, inner):
                break
            self.statement(node.step, inner)

    def do_ForIn(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        source = operators.iterable(self.value(node.source, scopes))
        index = 0
        while index < len(source):
            item, index = source[index], index + 1
            if not self.turn(node.body, [*scopes, {node.name: [item]}]):
                break

    def turn(self, body: ast.Block, scopes: list[Scope]) -> bool:
        if self.left < 0:
            raise TooLong
        try:
            self.block(body, scopes)
        except Break:
            return False
        except Continue:
            pass
        return True

    def do_Break(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        raise Break

    def do_Continue(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        raise Continue

    def do_Return(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        raise Return(None if node.value is None else self.value(node.value, scopes))

    def do_Throw(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        raise Fault(node.error, render(self.value(node.value, scopes)))

    def do_Defer(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        self.defers.append((node.body, list(scopes)))

    def do_Try(self, node: Any, scopes: list[Scope]) -> None:  # noqa: N802
        try:
            try:
                self.block(node.body, scopes)
            except Fault as fault:
                for catch in node.catches:
                    if catch.error in ("Error", fault.name):
                        self.block(catch.body, [*scopes, {catch.binding: [fault.text]} if catch.binding else {}])
                        break
                else:
                    raise
        finally:
            if node.finally_body is not None:
                self.block(node.finally_body, scopes)

    # ------------------------------------------------------------ expressions

    def find(self, name: str, scopes: list[Scope]) -> list[Any]:
        return next(scope[name] for scope in reversed(scopes) if name in scope)

    def condition(self, node: Any, scopes: list[Scope]) -> bool:
        value = self.value(node, scopes)
        if value is not True and value is not False:
            raise operators.not_bool(value)
        return value

    def value(self, node: Any, scopes: list[Scope]) -> Any:
        return getattr(self, f"of_{type(node).__name__}")(node, scopes)

    def of_Literal(self, node: Any, scopes: list[Scope]) -> Any:  # noqa: N802
        return node.value

    def of_Interpolation(self, node: Any, scopes: list[Scope]) -> Any:  # noqa: N802
        return "".join(part if isinstance(part, str) else render(self.value(part, scopes)) for part in node.parts)

    def of_Name(self, node: Any, scopes: list[Scope]) -> Any:  # noqa: N802
        value = self.find(node.name, scopes)[0]
        assert value is not UNSET
        return value

    def of_ListLiteral(self, node: Any, scopes: list[Scope]) -> Any:  # noqa: N802
        return [self.value(item, scopes) for item in node.items]

    def of_Unary(self, node: Any, scopes: list[Scope]) -> Any:  # noqa: N802
        value = self.value(node.operand, scopes)
        return operators.negate(value) if node.operator == "-" else operators.negate_bool(value)

    def of_Binary(self, node: Any, scopes: list[Scope]) -> Any:  # noqa: N802
        if node.operator == "&&":
            return self.condition(node.left, scopes) and self.condition(node.right, scopes)
        if node.operator == "||":
            return self.condition(node.left, scopes) or self.condition(node.right, scopes)
        left = self.value(node.left, scopes)
        return _OPERATORS[node.operator](left, self.value(node.right, scopes))

    def of_Index(self, node: Any, scopes: list[Scope]) -> Any:  # noqa: N802
        whole = self.value(node.target, scopes)
        return operators.index(whole, self.value(node.index, scopes))

    def of_Lambda(self, node: Any, scopes: list[Scope]) -> Any:  # noqa: N802
        return Function(self, [p.name for p in node.parameters], node.body, list(scopes))

    def of_MethodCall(self, node: Any, scopes: list[Scope]) -> Any:  # noqa: N802
        whole = self.value(node.target, scopes)
        if node.name == "push":
            whole.append(self.value(node.arguments[0].value, scopes))
            return whole
        return operators.length(whole)

    def of_Call(self, node: Any, scopes: list[Scope]) -> Any:  # noqa: N802
        name = node.callee.name if isinstance(node.callee, ast.Name) else ""
        if name in ("print", "Ok", "Err"):
            value = self.value(node.arguments[0].value, scopes)
            if name == "print":
                self.lines.append(render(value))
                return None
            return Ok(value) if name == "Ok" else Err(value)
        function = self.value(node.callee, scopes)
        values = [self.value(argument.value, scopes) for argument in node.arguments]
        self.left -= 1
        if self.left < 0:
            raise TooLong
        return function(*values)

    def of_Match(self, node: Any, scopes: list[Scope]) -> Any:  # noqa: N802
        subject = self.value(node.subject, scopes)
        for arm in node.arms:
            bound: Scope = {}
            if not self.fits(arm.pattern, subject, bound):
                continue
            inner = [*scopes, bound]
            if arm.is_value:
                return self.value(arm.body.statements[0].value, inner)
            self.block(arm.body, inner)
            return None
        raise Fault("MatchError", f"no arm of the match fits {render(subject)}")

    def fits(self, pattern: Any, value: Any, bound: Scope) -> bool:
        if isinstance(pattern, ast.Wildcard):
            return True
        if isinstance(pattern, ast.NamePattern):
            bound[pattern.name] = [value]
            return True
        if isinstance(pattern, ast.LiteralPattern):
            return equal(pattern.value, value)
        if isinstance(pattern, ast.VariantPattern):
            return type(value).__name__ == pattern.variant and self.fits(pattern.inner, value.value, bound)
        return (
            type(value) is list
            and len(value) == len(pattern.items)
            and all(self.fits(item, part, bound) for item, part in zip(pattern.items, value, strict=True))
        )
