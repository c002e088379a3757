"""From trees to a Program.

`compile_module` resolves the names of a file and of what it imports, then compiles every function into register code.
The Linker keeps the one list of functions and globals that all files of a program share. A function is compiled by
functions over one `FunctionCode`: `expressions`, `calls`, `control`, `statements` and `early_calls`, each built on
those before it; what leads back up (an expression may hold a block) goes through the tables of `RULES`. Mistakes that
the checker reports too (unknown names, wrong arguments) are CheckErrors here as well, so that a tree that was never
checked cannot become wrong code. Next: `bytecode.file` writes a Program to a file, `machine.vm` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from lyra.errors import CheckError
from lyra.vega.bytecode.opcodes import (
    OP_CALL,
    OP_CELL_OF,
    OP_DEFAULT,
    OP_EFFECT,
    OP_GLOBAL_GET,
    OP_GLOBAL_SET,
    OP_LIST,
    OP_MAP_ADD,
    OP_RETURN,
    OP_RETURN_NULL,
    OP_UNLESS_EQ,
)
from lyra.vega.bytecode.program import AgentInfo, Function, Parameter, Program, TestInfo, ToolInfo
from lyra.vega.checker.checker import Load, parse_and_check
from lyra.vega.compiler.calls import CALLS, REFERENCES, import_node, library_call
from lyra.vega.compiler.control import compile_with_finally, enter_scope, run_defers
from lyra.vega.compiler.early_calls import EARLY_CALLS, Overlap, compile_early_sequence
from lyra.vega.compiler.emitter import CompileRules, FunctionCode
from lyra.vega.compiler.expressions import EXPRESSIONS, compile_into
from lyra.vega.compiler.statements import PROCESSES, STATEMENTS, compile_settings, compile_spawned
from lyra.vega.plan.names import ModuleScope, Resolver, Symbol, Unit, Variable, complaint
from lyra.vega.plan.plan import Notes, OverlapPlan
from lyra.vega.plan.summaries import Summaries
from lyra.vega.syntax import ast
from lyra.vega.syntax.parser import parse
from lyra.vega.syntax.source import Source

RULES: Final = CompileRules(
    {**EXPRESSIONS, **REFERENCES, **CALLS, **PROCESSES, **EARLY_CALLS}, STATEMENTS, compile_early_sequence
)


def compile_module(
    module: ast.Module,
    source: Source,
    *,
    load: Load | None = None,
    host_names: Collection[str] = (),
    notes: Notes | None = None,
) -> Program:
    """Return the program of a parsed file. `load(target, importing name)` gives name and text of an import; `notes`
    gets the plan of what overlaps."""
    linker = Linker(source, load, frozenset(host_names), notes)
    try:
        return linker.program_of(module)
    except RecursionError:
        raise CheckError("the program is nested too deeply", file=source.name, line=1, column=1) from None


class Linker:
    """Everything that the functions of one program share."""

    def __init__(
        self, source: Source, load: Load | None, host_names: frozenset[str], notes: Notes | None = None
    ) -> None:
        self.source = source
        self.load = load
        self.host_names = host_names
        self.program = Program(name=source.name)
        self.modules: dict[str, ModuleScope] = {}
        self.loading: list[str] = []
        self.todo: list[Callable[[], None]] = []
        self.preludes: dict[str, tuple[int, int, int]] = {}
        self.wrappers: dict[tuple[str, str], int] = {}
        self.configurations: dict[int, int] = {}
        self.lambdas: dict[int, int] = {}
        self.keep: list[Any] = []  # nodes made here; meanings go by id, so none may be collected
        self.overlap = Overlap()
        self.notes = notes if notes is not None else Notes()
        self.summaries = Summaries(lambda: list(self.modules.values()), host_names)

    # ------------------------------------------------------------ the whole

    def program_of(self, tree: ast.Module) -> Program:
        program = self.program
        program.entry = self.reserve()
        main_module = self.module_of(tree, self.source, is_main=True)
        main = main_module.symbols.get("main")
        takes_arguments = False
        if main is not None and main.kind == "function":
            program.main = self.function_of(main)
            takes_arguments = sum(parameter.default is None for parameter in main.node.parameters) == 1
            if len(main.node.parameters) > 1:
                raise complaint(self.source, main.node, "`main` has at most one parameter: the arguments")
        self.summaries.prepare()
        # Say of each agent whether a host may ask it ahead of its turn.
        for module in self.modules.values():
            for symbol in module.symbols.values():
                if symbol.kind == "agent":
                    self.program.agents[symbol.key].is_early = not self.summaries.why_agent_ordered(symbol)
        self.drain()
        self.notes.finish(self.modules.values(), self.summaries)
        start = FunctionCode(self, main_module, main_module.unit, "start", RULES, is_hidden=True)
        program.functions[program.entry] = compile_start(
            start, main_module.init_function, program.main, takes_arguments=takes_arguments
        )
        return program

    def module_of(self, tree: ast.Module, source: Source, *, is_main: bool) -> ModuleScope:
        module = ModuleScope(source, tree, is_main=is_main)
        self.modules[source.name] = module
        module.init_function = self.reserve()
        if not is_main:
            module.flag = self.global_slot(f"{source.name} has run")
        self.loading.append(source.name)
        resolver = Resolver(module)
        self.imports(module, resolver)
        self.loading.pop()
        resolver.resolve()

        def compile_later() -> None:
            code = FunctionCode(self, module, module.unit, module.unit.name, RULES, is_hidden=False)
            self.program.functions[module.init_function] = compile_top_level(code)

        self.todo.append(compile_later)
        self.declarations(module)
        return module

    def drain(self) -> None:
        while self.todo:
            self.todo.pop()()

    def imports(self, module: ModuleScope, resolver: Resolver) -> None:
        resolver.symbols()
        for symbol in list(module.symbols.values()):
            node = symbol.node
            if symbol.kind != "import":
                continue
            if node.kind == "node":
                import_node(self, module, symbol)
                continue
            if node.kind != "vega":
                self.program.imports.append([node.kind, node.target, node.name])
                continue
            symbol.target = self.link_import(module, node)

    def link_import(self, module: ModuleScope, node: ast.Import) -> ModuleScope:
        loaded = self.load(node.target, module.source.name) if self.load is not None else None
        if loaded is None:
            raise complaint(module.source, node, f"cannot find the file {node.target!r}")
        name, text = loaded
        if name in self.loading or name == self.source.name:
            raise complaint(module.source, node, f"{name} imports itself, directly or through others")
        known = self.modules.get(name)
        return known if known is not None else self.module_of(parse(text, name), Source(name, text), is_main=False)

    def declarations(self, module: ModuleScope) -> None:
        """Everything a host may ask for by name, and functions that are not called: all are compiled and so checked."""
        program = self.program
        for symbol in module.symbols.values():
            if symbol.kind in ("function", "tool"):
                function = self.function_of(symbol)
                if symbol.kind == "tool":
                    key = self.key(symbol, program.tools)
                    program.tools[key] = self.tool_info(module, symbol.node, function, is_shared=True)
            elif symbol.kind in ("agent", "supervisor"):
                line, column = module.source.place(symbol.node.at)
                symbol.key = self.key(symbol, program.agents)
                program.agents[symbol.key] = AgentInfo(
                    name=symbol.key,
                    kind=symbol.kind,
                    configuration=self.configuration(symbol),
                    tools=[
                        self.tool_info(module, tool, self.tool_function(module, tool), is_shared=False)
                        for tool in getattr(symbol.node, "tools", [])
                    ],
                    file=self.file(module),
                    line=line,
                    column=column,
                )
        for statement in module.module.statements:
            if isinstance(statement, ast.Test):
                unit = module.units[id(statement)]
                function = self.function(module, statement, unit, f"test {statement.name}")
                program.tests.append(TestInfo(name=statement.name, function=function))

    def key(self, symbol: Symbol, taken: Collection[str]) -> str:
        """Return the name by which a host finds an agent or tool: its own; of an imported one, if that is taken, the
        file's name in front of it."""
        main = self.modules[self.source.name]
        is_free = symbol.module is main or (symbol.name not in taken and symbol.name not in main.symbols)
        return symbol.name if is_free else f"{symbol.module.source.name}::{symbol.name}"

    def tool_function(self, module: ModuleScope, tool: ast.Tool) -> int:
        return self.function(module, tool, module.units[id(tool)], tool.name)

    def tool_info(self, module: ModuleScope, tool: ast.Tool, function: int, *, is_shared: bool) -> ToolInfo:
        configuration = -1
        if is_shared:
            configuration = self.configuration_of(module, tool, Unit(f"{tool.name} settings", module.unit))
        return ToolInfo(
            name=tool.name,
            function=function,
            parameters=[parameter_info(parameter) for parameter in tool.parameters],
            result=type_text(tool.result),
            configuration=configuration,
        )

    # ------------------------------------------------------------ functions and globals

    def reserve(self) -> int:
        self.program.functions.append(Function(name=""))
        return len(self.program.functions) - 1

    def file(self, module: ModuleScope) -> int:
        files = self.program.files
        if module.source.name not in files:
            files.append(module.source.name)
        return files.index(module.source.name)

    def global_slot(self, name: str) -> int:
        self.program.globals.append(name)
        return len(self.program.globals) - 1

    def slot(self, variable: Variable) -> int:
        if variable.slot < 0:
            variable.slot = self.global_slot(variable.name)
        return variable.slot

    def function_of(self, symbol: Symbol) -> int:
        if symbol.function < 0:
            unit = symbol.module.units[id(symbol.node)]
            symbol.function = self.function(symbol.module, symbol.node, unit, symbol.name)
        return symbol.function

    def function(self, module: ModuleScope, node: Any, unit: Unit, name: str, *, is_hidden: bool = False) -> int:
        """Return the index of a node's function; it is compiled when those now in the making are done."""
        known = self.lambdas.get(id(node))
        if known is not None:
            return known
        index = self.lambdas[id(node)] = self.reserve()
        hidden = is_hidden or module.source.name.startswith("<library")

        def compile_later() -> None:
            from lyra.vega.compiler.pure_trees import tree_of  # a program without functions goes without

            code = FunctionCode(self, module, unit, name, RULES, is_hidden=hidden)
            function = self.program.functions[index] = compile_function(code, node)
            function.tree = tree_of(self, module, unit, node)

        self.todo.append(compile_later)
        return index

    def configuration(self, symbol: Symbol) -> int:
        return self.configuration_of(symbol.module, symbol.node, symbol.module.units[id(symbol.node)])

    def configuration_of(self, module: ModuleScope, node: Any, unit: Unit) -> int:
        known = self.configurations.get(id(node))
        if known is not None:
            return known
        index = self.configurations[id(node)] = self.reserve()

        def compile_later() -> None:
            code = FunctionCode(self, module, unit, f"{node.name} settings", RULES, is_hidden=False)
            self.program.functions[index] = compile_configuration(code, node)

        self.todo.append(compile_later)
        return index

    # ------------------------------------------------------------ the library

    def prelude(self, full: str) -> tuple[int, int, int]:
        """Return a library function written in Vega: its index, how many parameters it has and needs."""
        if full not in self.preludes:
            from lyra.vega.stdlib.table import PRELUDE
            from lyra.vega.syntax.parser import parse

            source = Source(f"<library {full}>", PRELUDE[full])
            tree = parse(source.text, source.name)
            module = ModuleScope(source, tree, is_main=False)
            self.keep.append(module)
            resolver = Resolver(module)
            resolver.symbols()
            resolver.resolve()
            (symbol,) = module.symbols.values()
            parameters = symbol.node.parameters
            required = sum(parameter.default is None for parameter in parameters)
            self.preludes[full] = (self.function_of(symbol), len(parameters), required)
        return self.preludes[full]

    def wrapper(self, module: str, name: str, count: int) -> int:
        key = (module, name)
        if key not in self.wrappers:
            index = self.wrappers[key] = self.reserve()
            scope = next(iter(self.modules.values()))

            def compile_later() -> None:
                code = FunctionCode(
                    self, scope, Unit(name, None), f"{module}::{name}" if module else name, RULES, is_hidden=True
                )
                self.program.functions[index] = compile_wrapper(code, module, name, count)

            self.todo.append(compile_later)
        return self.wrappers[key]

    def may_overlap(self, symbol: Symbol) -> bool:
        return self.overlap.may_overlap(symbol)


# ---------------------------------------------------------------- functions
# Whole functions to register code: those of the source, a file's top level, settings, and wrappers of the library.


def _compile_head(out: FunctionCode, parameters: list[ast.Parameter]) -> None:
    """Registers for parameters and captures, then defaults, then cells for parameters that closures share."""
    out.parameters = [parameter_info(parameter) for parameter in parameters]
    first = out.register(len(parameters))
    out.captures = len(out.unit.captures)
    start = out.register(out.captures)
    out.captured = {id(variable): start + index for index, variable in enumerate(out.unit.captures)}
    for index, parameter in enumerate(parameters):
        variable = out.module.declared[id(parameter)]
        variable.register = first + index
        out.at(parameter)
        if parameter.default is not None:
            given = out.emit(OP_DEFAULT, first + index)
            compile_into(out, parameter.default, first + index)
            out.patch(given)
        if variable.is_cell:
            out.emit(OP_CELL_OF, first + index, first + index)


def _compile_body(
    out: FunctionCode, statements: list[ast.Statement], variables: list[Variable], end: ast.SyntaxNode
) -> Function:
    def inside() -> None:
        enter_scope(out, variables, statements)
        out.sequence(out, statements)

    if out.unit.has_defer:
        out.defers = out.register()
        out.emit(OP_LIST, out.defers, out.defers, 0)
        compile_with_finally(out, inside, lambda way: run_defers(out, way))
    else:
        inside()
    out.at(end)
    out.emit(OP_RETURN_NULL)
    return out.finish(is_hidden=out.is_hidden)


def compile_function(out: FunctionCode, node: Any) -> Function:
    _compile_head(out, getattr(node, "parameters", []))
    body: ast.Block = node.body
    return _compile_body(out, body.statements, out.module.cells.get(id(body), []), node)


def compile_top_level(out: FunctionCode) -> Function:
    """Return the top level of a file; an imported one runs once."""
    module = out.module
    out.at(module.module)
    if not module.is_main:
        flag, done = out.register(), out.constant(True)
        out.emit(OP_GLOBAL_GET, flag, module.flag, out.other("module"))
        first = out.emit(OP_UNLESS_EQ, 0, flag, done)
        out.emit(OP_RETURN_NULL)
        out.patch(first)
        out.emit(OP_GLOBAL_SET, module.flag, done)
    return _compile_body(out, module.module.statements, module.cells[id(module.module)], module.module)


def compile_configuration(out: FunctionCode, node: Any) -> Function:
    """Return the settings of an agent, a supervisor or a shared tool as a map."""
    out.at(node)
    into = out.register()
    if isinstance(node, ast.Agent):
        fields: dict[str, Any] = dict(node.fields)
        fields["tool_settings"] = {tool.name: dict(tool.settings) for tool in node.tools}
        compile_settings(out, fields, into)
    else:
        compile_settings(out, node.settings, into)
    if isinstance(node, ast.Supervisor):
        _compile_children(out, node, into)
    out.emit(OP_RETURN, into)
    return out.finish(is_hidden=out.is_hidden)


def _compile_children(out: FunctionCode, node: ast.Supervisor, into: int) -> None:
    """Each child is [name, kind, its name, what is spawned, arguments]; they stand under "children"."""
    pair = out.register(2)
    out.constant("children", pair)
    run = out.register(len(node.children))
    for index, child in enumerate(node.children):
        mark = out.next_register
        parts = out.register(5)
        kind, name = compile_spawned(out, child, child.target, parts + 3, is_function=child.is_function)
        for offset, word in enumerate((child.name, kind, name)):
            out.constant(word, parts + offset)
        out.emit(OP_LIST, run + index, parts, 5)
        out.next_register = mark
    out.emit(OP_LIST, pair + 1, run, len(node.children))
    out.emit(OP_MAP_ADD, into, pair, 2)


def compile_wrapper(out: FunctionCode, module: str, name: str, count: int) -> Function:
    """Return a function that does nothing but call one of the library."""
    out.parameters = [Parameter(f"x{index}") for index in range(count)]
    out.register(count)
    callee: ast.Expression = ast.Path(module=module, name=name) if module else ast.Name(name=name)
    parameters = [Variable(f"x{index}", out.unit) for index in range(count)]
    arguments = []
    for index, variable in enumerate(parameters):
        variable.register = index
        reference = ast.Name(name=variable.name)
        out.module.meanings[id(reference)] = variable
        out.linker.keep.append(reference)
        arguments.append(ast.Argument(value=reference))
    into = out.register()
    library_call(out, ast.Call(callee=callee, arguments=arguments), into)
    out.emit(OP_RETURN, into)
    return out.finish(is_hidden=True)


def compile_start(out: FunctionCode, init: int, main: int, *, takes_arguments: bool) -> Function:
    """Return the entry of a run: the file's top level, then `main`."""
    into = out.register(2)
    out.emit(OP_CALL, into, init, into)
    if main >= 0:
        if takes_arguments:
            out.emit(OP_EFFECT, into, into, out.other(["env::args", 0]))
        out.emit(OP_CALL, into, main, into)
    out.emit(OP_RETURN, into)
    return out.finish(is_hidden=True)


def parameter_info(parameter: ast.Parameter) -> Parameter:
    return Parameter(parameter.name, type_text(parameter.type), parameter.default is not None)


def type_text(written: ast.Type | None) -> str:
    if written is None:
        return ""
    if not written.parameters:
        return written.name
    return f"{written.name}[{', '.join(type_text(part) for part in written.parameters)}]"


# ---------------- The plan of a source: it is compiled, and the compiler notes which calls overlap


def plan_of(
    text: str, name: str = "<vega>", *, load: Load | None = None, host_names: Collection[str] = ()
) -> OverlapPlan:
    """Return the plan of a source; ParseError or CheckError with all mistakes in `fields["problems"]`."""
    notes = Notes()
    module = parse_and_check(text, name, load=load, host_names=host_names)
    compile_module(module, Source(name, text), load=load, host_names=host_names, notes=notes)
    return OverlapPlan(name, tuple(notes.groups), tuple(notes.alone))
