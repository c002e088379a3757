"""Which variable each name means, before any code is made.

The resolver walks a module once and notes for every name the Variable (or function, agent, library entry) it stands
for, and for every variable whether a closure captures it and whether it is ever assigned again. From that the
compiler knows where a variable lives:

    a register      the usual case
    a Cell          captured and assigned, or captured by a `fn` that may be called before the variable is set
    a global        declared at the top level and used inside a function, or in an imported file

A captured variable that is never assigned again is simply copied into the closure.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lyra.errors import CheckError, SourceError
from lyra.vega.syntax import ast
from lyra.vega.syntax.source import Source, source_error


class Unit:
    """One function to be: where its variables live. `captures` are the outer variables it needs, in order."""

    def __init__(self, name: str, parent: Unit | None, *, is_hoisted: bool = False) -> None:
        self.name = name
        self.parent = parent
        self.is_hoisted = is_hoisted
        self.captures: list[Variable] = []
        self.has_defer = False


class Variable:
    def __init__(self, name: str, unit: Unit, *, is_parameter: bool = False, is_top: bool = False) -> None:
        self.name = name
        self.unit = unit
        self.is_parameter = is_parameter
        self.is_top = is_top
        self.is_captured = False
        self.is_assigned = False
        self.is_early = False  # a closure may be made before it is set
        self.is_global = False
        self.is_const = False
        self.began_as_list = False  # and is one for good unless it is assigned
        self.register = -1
        self.slot = -1
        self.literal: ast.Literal | None = None  # of a `const`

    @property
    def is_cell(self) -> bool:
        return self.is_captured and (self.is_assigned or self.is_early)


class Symbol:
    """What a name at the top level of a module is, besides a variable: `function`, `tool`, `agent`, `supervisor`,
    `module` (an import), or `import` (of a node, MCP tools or Python)."""

    def __init__(self, kind: str, name: str, node: Any, module: ModuleScope) -> None:
        self.kind = kind
        self.name = name
        self.node = node
        self.module = module
        self.target: ModuleScope | None = None
        self.function = -1
        self.key = name  # of an agent or an imported node: what a host calls it
        self.inputs: tuple[Any, ...] | None = None  # of an imported node, where the host could read it


class BlockScope:
    def __init__(self, parent: BlockScope | None, unit: Unit) -> None:
        self.parent = parent
        self.unit = unit
        self.names: dict[str, Variable] = {}
        self.variables: list[Variable] = []

    def find(self, name: str) -> Variable | None:
        scope: BlockScope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None


class ModuleScope:
    """The top level of one file: its symbols, its variables, and what each node of it was resolved to."""

    def __init__(self, source: Source, module: ast.Module, *, is_main: bool) -> None:
        self.source = source
        self.module = module
        self.is_main = is_main
        self.unit = Unit("main" if is_main else source.name, None)
        self.scope = BlockScope(None, self.unit)
        self.symbols: dict[str, Symbol] = {}
        self.meanings: dict[int, Variable | Symbol] = {}  # of Name, Path and Assign targets, by id(node)
        self.declared: dict[int, Variable] = {}  # of Let, Parameter, ForIn, Catch, NamePattern, nested Function
        self.units: dict[int, Unit] = {}  # of Function, Lambda, Tool, Defer, Test, Agent, Supervisor
        self.cells: dict[int, list[Variable]] = {}  # variables of each Block, for those that become cells
        self.init_function = -1
        self.flag = -1  # the global that says it has run


def complaint(source: Source, node: ast.SyntaxNode, message: str, hint: str = "") -> SourceError:
    return source_error(CheckError, [source.problem(node.at, node.end, message, hint=hint)])


_SYMBOL_KINDS: dict[type, str] = {
    ast.Function: "function",
    ast.Tool: "tool",
    ast.Agent: "agent",
    ast.Supervisor: "supervisor",
    ast.Import: "import",
}


class Resolver:
    """Resolves one module. Function bodies at the top level come last: they may use everything declared there."""

    def __init__(self, module: ModuleScope) -> None:
        self.module = module
        self.source = module.source
        self.later: list[tuple[Any, Unit]] = []

    def symbols(self) -> None:
        """First of all, what is declared at the top level: imports are followed between this and `resolve`."""
        module = self.module
        for statement in module.module.statements:
            kind = _SYMBOL_KINDS.get(type(statement))
            if kind is not None:
                name = getattr(statement, "name", "")
                module.symbols[name] = Symbol(kind, name, statement, module)

    def resolve(self) -> None:
        module = self.module
        self.statements(module.module.statements, module.scope)
        module.cells[id(module.module)] = module.scope.variables
        while self.later:
            node, unit = self.later.pop(0)
            self.function_body(node, unit, module.scope)

    # ------------------------------------------------------------ declaring

    def declare(self, node: ast.SyntaxNode, name: str, scope: BlockScope, *, is_parameter: bool = False) -> Variable:
        is_top = scope is self.module.scope
        variable = Variable(name, scope.unit, is_parameter=is_parameter, is_top=is_top)
        variable.is_global = is_top and not self.module.is_main
        scope.names[name] = variable
        scope.variables.append(variable)
        self.module.declared[id(node)] = variable
        return variable

    def use(self, name: str, scope: BlockScope) -> Variable | Symbol | None:
        variable = scope.find(name)
        if variable is None:
            return self.module.symbols.get(name)
        if variable.unit is not scope.unit and variable.literal is None:
            if variable.is_top:
                variable.is_global = True
            else:
                self.capture(variable, scope.unit)
        return variable

    def capture(self, variable: Variable, unit: Unit) -> None:
        variable.is_captured = True
        inner: Unit | None = unit
        while inner is not None and inner is not variable.unit:
            if variable not in inner.captures:
                inner.captures.append(variable)
            if inner.is_hoisted and not variable.is_parameter:
                variable.is_early = True
            inner = inner.parent

    # ------------------------------------------------------------ statements

    def statements(self, statements: list[ast.Statement], scope: BlockScope) -> None:
        at_top = scope is self.module.scope
        for statement in statements:
            if type(statement) is ast.Const:
                self.const_name(statement, scope)
            elif type(statement) is ast.Function and not at_top:
                self.declare(statement, statement.name, scope).is_early = True
            elif type(statement) in _SYMBOL_KINDS and not at_top:
                kind, name = _SYMBOL_KINDS[type(statement)], getattr(statement, "name", "")
                self.module.symbols.setdefault(name, Symbol(kind, name, statement, self.module))
        for statement in statements:
            self.walk(statement, scope)

    def block(self, block: ast.Block, parent: BlockScope) -> None:
        scope = BlockScope(parent, parent.unit)
        self.statements(block.statements, scope)
        self.module.cells[id(block)] = scope.variables

    def walk(self, node: Any, scope: BlockScope) -> None:
        """Resolve a node: by its own rule where it has one, else its parts from left to right."""
        rule = _RULES.get(type(node))
        if rule is not None:
            rule(self, node, scope)
        elif isinstance(node, msgspec.Struct):
            for field in node.__struct_fields__:
                if field not in ("at", "end"):
                    self.walk(getattr(node, field), scope)
        elif isinstance(node, (list, tuple)):
            for part in node:
                self.walk(part, scope)
        elif isinstance(node, dict):
            for part in node.values():
                self.walk(part, scope)

    def binary(self, node: ast.Binary, scope: BlockScope) -> None:
        # A long `a + b + c …` is deep on its left side; walk down there without recursion.
        spine: list[ast.Expression] = []
        left: ast.Expression = node
        while type(left) is ast.Binary:
            spine.append(left.right)
            left = left.left
        self.walk(left, scope)
        for right in reversed(spine):
            self.walk(right, scope)

    def if_(self, node: ast.If, scope: BlockScope) -> None:
        branch: ast.Block | ast.If | None = node
        while type(branch) is ast.If:
            self.walk(branch.condition, scope)
            self.block(branch.then, scope)
            branch = branch.otherwise
        if branch is not None:
            self.walk(branch, scope)

    def let(self, node: ast.Let, scope: BlockScope) -> None:
        if type(node.value) is ast.Lambda and scope.find(node.name) is None and node.name not in self.module.symbols:
            variable = self.declare(node, node.name, scope)  # so that a lambda may call itself
            self.walk(node.value, scope)
            variable.is_early = variable.is_captured
            return
        self.walk(node.value, scope)
        self.declare(node, node.name, scope).began_as_list = type(node.value) is ast.ListLiteral

    def const_name(self, node: ast.Const, scope: BlockScope) -> None:
        """Declare a const, which may be used above its declaration; one that is a literal needs no variable at all."""
        variable = self.declare(node, node.name, scope)
        variable.is_const = variable.is_early = True
        if type(node.value) is ast.Literal:
            variable.literal = node.value

    def const(self, node: ast.Const, scope: BlockScope) -> None:
        self.walk(node.value, scope)

    def assign(self, node: ast.Assign, scope: BlockScope) -> None:
        self.walk(node.value, scope)
        self.walk(node.target, scope)
        meaning = self.module.meanings.get(id(node.target))
        if isinstance(meaning, Variable):
            if meaning.is_const:
                raise complaint(self.source, node.target, f"`{meaning.name}` is a const and cannot be assigned")
            meaning.is_assigned = True
        elif type(node.target) is ast.Name:
            raise complaint(self.source, node.target, f"`{node.target.name}` cannot be assigned")

    def for_(self, node: ast.For, parent: BlockScope) -> None:
        scope = BlockScope(parent, parent.unit)
        start = node.start
        if type(start) is ast.Assign and type(start.target) is ast.Name and self.use(start.target.name, scope) is None:
            # `for i = 0; …` where there is no `i`: the loop has one of its own
            node.start = ast.Let(start.target.name, None, start.value, at=start.at, end=start.end)
        for part in (node.start, node.condition, node.step):
            self.walk(part, scope)
        self.block(node.body, scope)
        self.module.cells[id(node)] = scope.variables

    def for_in(self, node: ast.ForIn, parent: BlockScope) -> None:
        self.walk(node.source, parent)
        scope = BlockScope(parent, parent.unit)
        self.declare(node, node.name, scope)
        self.block(node.body, scope)

    def try_(self, node: ast.Try, scope: BlockScope) -> None:
        self.block(node.body, scope)
        for catch in node.catches:
            inner = BlockScope(scope, scope.unit)
            if catch.binding:
                self.declare(catch, catch.binding, inner)
            self.block(catch.body, inner)
        if node.finally_body is not None:
            self.block(node.finally_body, scope)

    def parallel(self, node: ast.Parallel, scope: BlockScope) -> None:
        self.statements(node.body.statements, scope)  # its names are seen after it

    def arm(self, node: ast.Arm, parent: BlockScope) -> None:
        scope = BlockScope(parent, parent.unit)
        self.pattern(node.pattern, scope)
        self.block(node.body, scope)

    def pattern(self, node: ast.Pattern, scope: BlockScope) -> None:
        if type(node) is ast.NamePattern:
            self.declare(node, node.name, scope)
        elif type(node) is ast.VariantPattern:
            self.pattern(node.inner, scope)
        elif type(node) is ast.ListPattern:
            for item in node.items:
                self.pattern(item, scope)

    # ------------------------------------------------------------ functions

    def function(self, node: ast.Function, scope: BlockScope) -> None:
        if scope is self.module.scope:
            self.later.append((node, self.unit(node, node.name, scope.unit)))
        else:
            self.function_body(node, self.unit(node, node.name, scope.unit, is_hoisted=True), scope)

    def tool(self, node: ast.Tool, scope: BlockScope) -> None:
        self.later.append((node, self.unit(node, node.name, scope.unit)))

    def lambda_(self, node: ast.Lambda, scope: BlockScope) -> None:
        self.function_body(node, self.unit(node, "lambda", scope.unit), scope)

    def defer(self, node: ast.Defer, scope: BlockScope) -> None:
        scope.unit.has_defer = True
        unit = self.unit(node, "defer", scope.unit)
        self.block(node.body, BlockScope(scope, unit))

    def add_later(self, node: Any, scope: BlockScope) -> None:
        """Agents, supervisors and tests become functions of their own, called when they are needed."""
        self.later.append((node, self.unit(node, node.name, scope.unit)))

    def unit(self, node: Any, name: str, parent: Unit, *, is_hoisted: bool = False) -> Unit:
        unit = Unit(name, parent, is_hoisted=is_hoisted)
        self.module.units[id(node)] = unit
        return unit

    def function_body(self, node: Any, unit: Unit, parent: BlockScope) -> None:
        scope = BlockScope(parent, unit)
        for parameter in getattr(node, "parameters", ()):
            self.walk(parameter.default, scope)
            self.declare(parameter, parameter.name, scope, is_parameter=True)
        if type(node) is ast.Agent:
            self.walk(node.fields, scope)
            for tool in node.tools:
                self.tool(tool, self.module.scope)
                self.walk(tool.settings, scope)
            return
        if type(node) is ast.Supervisor:
            self.walk(node.settings, scope)
            self.walk(node.children, scope)
            return
        self.block(node.body, scope)

    # ------------------------------------------------------------ names

    def name(self, node: ast.Name, scope: BlockScope) -> None:
        meaning = self.use(node.name, scope)
        if meaning is not None:
            self.module.meanings[id(node)] = meaning

    def path(self, node: ast.Path, _: BlockScope) -> None:
        symbol = self.module.symbols.get(node.module)
        if symbol is None or symbol.target is None:
            return
        meaning: Variable | Symbol | None = symbol.target.symbols.get(node.name)
        if meaning is None:
            meaning = symbol.target.scope.names.get(node.name)
        if meaning is None:
            raise complaint(self.source, node, f"`{symbol.target.source.name}` has no `{node.name}`")
        self.module.meanings[id(node)] = meaning


_RULES: dict[type, Any] = {
    ast.Name: Resolver.name,
    ast.Path: Resolver.path,
    ast.Binary: Resolver.binary,
    ast.If: Resolver.if_,
    ast.Let: Resolver.let,
    ast.Const: Resolver.const,
    ast.Assign: Resolver.assign,
    ast.Block: Resolver.block,
    ast.For: Resolver.for_,
    ast.ForIn: Resolver.for_in,
    ast.Try: Resolver.try_,
    ast.Parallel: Resolver.parallel,
    ast.Arm: Resolver.arm,
    ast.Function: Resolver.function,
    ast.Tool: Resolver.tool,
    ast.Lambda: Resolver.lambda_,
    ast.Defer: Resolver.defer,
    ast.Agent: Resolver.add_later,
    ast.Supervisor: Resolver.add_later,
    ast.Test: Resolver.add_later,
}
