"""The remaining statements to register code: expressions, imports, mocks and `parallel`; and the table of them all."""

from __future__ import annotations

from typing import Any, Final

from lyra.vega.bytecode.opcodes import (
    OP_CALL,
    OP_EFFECT,
    OP_ITEM,
    OP_PAR_BEGIN,
    OP_PAR_JOIN,
    OP_PAR_SPAWN,
    OP_PRINT,
    OP_RETHROW,
)
from lyra.vega.compiler.control import Control
from lyra.vega.plan.names import Symbol, Variable
from lyra.vega.syntax import ast
from lyra.vega.syntax.walk import children, parts

__all__ = ["Statements"]


JOIN_ALL: Final = ["parallel", "all", 0, 0, 0]


class Statements(Control):
    def expression_statement(self, node: ast.ExpressionStatement) -> None:
        mark = self.next_register
        call: Any = node.value
        if self.is_print(call):
            value = self.expression(call.arguments[0].value) if call.arguments else self.constant("")
            self.at(call)
            self.emit(OP_PRINT, value)
        elif isinstance(call, ast.Match):
            self.match_arms(call, None)
        elif isinstance(call, ast.Receive):
            self.receive_arms(call, None)
        else:
            self.expression(call)
        self.next_register = mark

    def is_print(self, node: Any) -> bool:
        return (
            type(node) is ast.Call
            and type(node.callee) is ast.Name
            and node.callee.name == "print"
            and id(node.callee) not in self.module.meanings
            and len(node.arguments) <= 1
            and not any(argument.name for argument in node.arguments)
        )

    def nothing(self, node: ast.Statement) -> None:
        """Declarations are made elsewhere."""

    def import_(self, node: ast.Import) -> None:
        symbol = self.module.symbols[node.name]
        if symbol.target is not None:
            unused = self.register()
            self.emit(OP_CALL, unused, symbol.target.init_function, unused)
            self.next_register = unused

    def mock(self, node: ast.Mock) -> None:
        """The host keeps scripted answers: the agent's name, then pairs of pattern and reply."""
        mark = self.next_register
        first = self.register(2)
        self.constant(node.agent, first)
        pairs = [
            ast.ListLiteral(items=[ast.Literal(value=reply.pattern), reply.reply], at=reply.at)
            for reply in node.replies
        ]
        self.expression_in(ast.ListLiteral(items=list(pairs), at=node.at), first + 1)
        self.at(node)
        self.emit(OP_EFFECT, first, first, self.other(["test::mock", 2]))
        self.next_register = mark

    def parallel(self, node: ast.Parallel) -> None:
        """Sends and calls that stand alone in a statement are started together; their results are set, in the order
        of the source, at the first statement that needs one of them or may leave, and at the end. Every other
        statement is carried out in its turn, while they run."""
        self.enter([], node.body.statements)
        group = self.register(5)
        error, results = self.register(), self.register()
        pending: list[ast.Statement] = []
        names: set[str] = set()
        start = 0
        for statement in node.body.statements:
            call = self.overlapping(statement)
            if pending and (_may_leave(statement) or _mentions(statement, names)):
                self.join(node, group, error, results, pending, start)
                pending, names = [], set()
            if call is None:
                self.statement(statement)
                continue
            if not pending:
                self.at(node)
                self.emit(OP_PAR_BEGIN, group)
                start = len(self.code)
            self.start_call(call, group)
            pending.append(statement)
            names.add(_bound(statement))
        if pending:
            self.join(node, group, error, results, pending, start)

    def overlapping(self, statement: ast.Statement) -> ast.Send | ast.Call | None:
        value: Any = getattr(statement, "value", None)
        if not isinstance(statement, (ast.Let, ast.ExpressionStatement)) and not (
            isinstance(statement, ast.Assign) and type(statement.target) is ast.Name
        ):
            return None
        if type(value) is ast.Send and not value.is_stream:
            return value
        if type(value) is ast.Call:
            meaning = self.module.meanings.get(id(value.callee))
            if isinstance(meaning, Symbol) and self.linker.may_overlap(meaning):
                return value
        return None

    def start_call(self, call: ast.Send | ast.Call, group: int) -> None:
        mark = self.next_register
        first = self.register(5)
        self.move(first, group)
        if isinstance(call, ast.Send):
            flags = self.send_parts(call, first + 1)
            kind = ["parallel", "send", flags, 0, 0]
        else:
            self.spawned_function(call, first + 1)
            kind = ["parallel", "call", 0, 0, 0]
        self.at(call)
        self.emit(OP_PAR_SPAWN, first, self.other(kind))
        self.next_register = mark

    def join(
        self, node: ast.Node, group: int, error: int, results: int, pending: list[ast.Statement], start: int
    ) -> None:
        calls = [call for call in map(self.overlapping, pending) if call is not None]
        self.linker.notes.declared(calls, self.module, self.linker.summaries, self.name)
        # An error in between waits for the calls started before it: the first failure in the source is the one thrown.
        end = len(self.code)
        past = self.jump()
        self.handle(start, len(self.code), error, end)
        self.at(node)
        self.emit(OP_PAR_JOIN, results, group, self.other(JOIN_ALL))
        self.emit(OP_RETHROW, error)
        self.patch(past)
        self.emit(OP_PAR_JOIN, results, group, self.other(JOIN_ALL))
        for index, statement in enumerate(pending):
            if isinstance(statement, ast.ExpressionStatement):
                continue
            mark = self.next_register
            value = self.register()
            self.emit(OP_ITEM, value, results, index)
            if isinstance(statement, ast.Let):
                self.set_new(statement, value)
            else:
                meaning = self.module.meanings[id(statement.target)]  # type: ignore[attr-defined]
                assert isinstance(meaning, Variable)
                self.set_variable(meaning, value)
                self.next_register = mark


_STAY: Final = (ast.Let, ast.Assign, ast.ExpressionStatement, ast.Block, ast.If, ast.While, ast.For, ast.ForIn, ast.Try)


def _may_leave(statement: ast.Statement) -> bool:
    """Whether it could go past the end of the block, where what was started is waited for, other than by an error."""
    return not isinstance(statement, _STAY) or _goes(statement, in_loop=False)


def _goes(node: Any, *, in_loop: bool) -> bool:
    if isinstance(node, ast.Return):
        return True
    if isinstance(node, (ast.Break, ast.Continue)):
        return not in_loop
    if isinstance(node, (ast.Lambda, ast.Function)):
        return False
    inside = in_loop or isinstance(node, (ast.While, ast.For, ast.ForIn))
    return any(_goes(part, in_loop=inside) for part in children(node))


def _bound(statement: ast.Statement) -> str:
    if isinstance(statement, ast.Let):
        return statement.name
    target = getattr(statement, "target", None)
    return target.name if isinstance(target, ast.Name) else ""


def _mentions(node: ast.Statement, names: set[str]) -> bool:
    """Whether a statement reads or binds one of these names."""
    return any(isinstance(part, (ast.Name, ast.Let)) and part.name in names for part in parts(node))


Statements.statement_rules = {
    ast.Block: Statements.block,
    ast.Let: Statements.let,
    ast.Const: Statements.let,
    ast.Assign: Statements.assign,
    ast.ExpressionStatement: Statements.expression_statement,
    ast.If: Statements.if_,
    ast.While: Statements.while_,
    ast.For: Statements.for_,
    ast.ForIn: Statements.for_in,
    ast.Break: Statements.break_,
    ast.Continue: Statements.continue_,
    ast.Return: Statements.return_,
    ast.Throw: Statements.throw,
    ast.Try: Statements.try_,
    ast.Parallel: Statements.parallel,
    ast.Session: Statements.session,
    ast.Defer: Statements.defer,
    ast.Import: Statements.import_,
    ast.Mock: Statements.mock,
    ast.Function: Statements.nothing,
    ast.Tool: Statements.nothing,
    ast.Agent: Statements.nothing,
    ast.Supervisor: Statements.nothing,
    ast.Test: Statements.nothing,
}
