"""From trees to a Program.

`compile_module` resolves the names of a file and of what it imports, then compiles every function into register code.
The Linker keeps the one list of functions and globals that all files of a program share. A function is compiled by
functions over one `FunctionCode`: `expressions`, `library`, `references`, `calls`, `blocks`, `processes`, `control`,
`statements`, `early_calls` and `functions`, each built on those before it; what leads back up (an expression may hold a
block) goes through the tables of `RULES`. Mistakes that the checker reports too (unknown names, wrong arguments) are
CheckErrors here as well, so that a tree that was never checked cannot become wrong code. Next: `bytecode.file` writes a
Program to a file, `machine.vm` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from lyra.errors import CheckError
from lyra.vega.bytecode.program import AgentInfo, Function, Program, TestInfo, ToolInfo
from lyra.vega.compiler.calls import CALLS
from lyra.vega.compiler.early_calls import EARLY_CALLS, compile_early_sequence
from lyra.vega.compiler.expressions import EXPRESSIONS
from lyra.vega.compiler.function_code import CompileRules, FunctionCode
from lyra.vega.compiler.functions import (
    compile_configuration,
    compile_function,
    compile_start,
    compile_top_level,
    compile_wrapper,
    parameter_info,
    type_text,
)
from lyra.vega.compiler.node_imports import import_node
from lyra.vega.compiler.overlap import Overlap
from lyra.vega.compiler.processes import PROCESSES
from lyra.vega.compiler.references import REFERENCES
from lyra.vega.compiler.statements import STATEMENTS
from lyra.vega.plan.names import ModuleScope, Resolver, Symbol, Unit, Variable, complaint
from lyra.vega.plan.notes import Notes
from lyra.vega.plan.summaries import Summaries
from lyra.vega.syntax import ast
from lyra.vega.syntax.source import Source

Load = Callable[[str, str], "tuple[str, str] | None"]

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
    """The program of a parsed file. `load(target, importing name)` gives name and text of an import; `notes` gets the
    plan of what overlaps."""
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
        self.mark_early()
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
            symbol.target = self.imported(module, node)

    def imported(self, module: ModuleScope, node: ast.Import) -> ModuleScope:
        from lyra.vega.syntax.parser import parse

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

    def mark_early(self) -> None:
        """Say of each agent whether a host may ask it ahead of its turn."""
        for module in self.modules.values():
            for symbol in module.symbols.values():
                if symbol.kind == "agent":
                    self.program.agents[symbol.key].is_early = not self.summaries.why_agent_ordered(symbol)

    def key(self, symbol: Symbol, taken: Collection[str]) -> str:
        """The name by which a host finds an agent or tool: its own; of an imported one, if that is taken, the file's
        name in front of it."""
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
        """The index of a node's function; it is compiled when those now in the making are done."""
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
        """A library function written in Vega: its index, how many parameters it has and needs."""
        if full not in self.preludes:
            from lyra.vega.stdlib.prelude import PRELUDE
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
        return self.overlap.may(symbol)
