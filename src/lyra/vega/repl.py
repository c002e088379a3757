"""The state of a REPL between its lines: declarations as text, variables as values, and one program that grows.

Each piece of text is compiled together with the declarations before it, and with a bare `let` for every variable there
is; of that, only the new piece runs. Its functions are added behind those of the program so far, so that a function, an
agent or a process of an earlier piece continues working. `ReplSession` only compiles and keeps; `vega repl` runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core.naming import give_name
from lyra.errors import ProcessExit
from lyra.vega import compile as compile_source
from lyra.vega.bytecode.opcodes import OP_CALL, OP_NOP, OP_RETURN, OP_RETURN_NULL, OPCODES
from lyra.vega.bytecode.program import Function, Program
from lyra.vega.machine.fiber import Fiber
from lyra.vega.machine.link import Code, LinkedProgram
from lyra.vega.runtime.driver import PROGRAMS, vega_process
from lyra.vega.runtime.rights import Rights
from lyra.vega.runtime.world import RunOptions, World, world_of
from lyra.vega.syntax import ast
from lyra.vega.syntax.parser import parse_all
from lyra.vega.syntax.source import Source
from lyra.vega.values.values import UNSET, kind_of

if TYPE_CHECKING:
    from collections import deque

    from lyra.kernel.kernel import Kernel
    from lyra.kernel.programs.context import Context


VALUE: Final = "it"  # the variable that holds the value of the last expression
NAME: Final = "<repl>"
_KEEP: Final = "__kept"  # a function that names all variables, which makes them the process's
_NAMED: Final = (ast.Function, ast.Agent, ast.Tool, ast.Supervisor, ast.Const, ast.Import)
_KINDS: Final = frozenset({"bool", "int", "float", "str", "money", "duration", "list", "map", "process", "stream"})


class ReplInput(NamedTuple):
    """One piece of text made ready: which of the program's functions runs it, and whether it is an expression."""

    entry: int
    is_expression: bool


class ReplSession:
    def __init__(self, load: Callable[[str, str], tuple[str, str] | None] | None = None) -> None:
        self.linked = LinkedProgram(Program(name=NAME), "")
        self.values: list[Any] = []  # of the program's globals
        self.text = ""  # that was compiled last
        self.lines_before = 0  # lines of the text that come from earlier inputs
        self._load = load
        self._declared: dict[str, str] = {}
        self._variables: list[str] = []

    @property
    def program(self) -> Program:
        return self.linked.program

    def copy(self) -> ReplSession:
        """One that can be tried on without changing this one."""
        other = ReplSession(self._load)
        program = msgspec.msgpack.decode(msgspec.msgpack.encode(msgspec.structs.replace(self.program, functions=[])))
        other.linked = LinkedProgram(msgspec.convert(program, Program), "")
        other.program.functions = list(self.program.functions)
        other.linked.functions = list(self.linked.functions)
        other.values = list(self.values)
        other._declared = dict(self._declared)
        other._variables = list(self._variables)
        return other

    @staticmethod
    def is_unfinished(text: str) -> bool:
        """Return whether more lines are needed before anything can be said about it."""
        if not parse_all(Source(NAME, text + ";")).problems:
            return False
        parsed = parse_all(Source(NAME, text))
        return bool(parsed.problems) and parsed.is_unfinished

    def value(self) -> Any:
        """Return the value of the last expression."""
        return self._value_of(VALUE)

    def _value_of(self, name: str) -> Any:
        slot = self.program.globals.index(name) if name in self.program.globals else -1
        return self.values[slot] if 0 <= slot < len(self.values) and self.values[slot] is not UNSET else None

    def type_of(self, expression: str) -> str:
        """Return the kind of an expression, without running it; SourceError if it has none."""
        from lyra.vega.checker.checker import kind_of_variable, parse_and_check

        variables = [(name, kind_of(self._value_of(name))) for name in self._variables]
        lines = [*self._declared.values()]
        lines += [f"let {name}: {kind if kind in _KINDS else 'any'};" for name, kind in variables]
        text = "\n".join([*lines, "let __type =", expression.strip().rstrip(";"), ";"])
        self.text, self.lines_before = text, len(lines) + 1
        parse_and_check(text, NAME, load=self._load)
        return kind_of_variable(text, "__type")

    def compile(self, text: str) -> ReplInput:
        """Make a piece ready to run; SourceError for a wrong one, which changes nothing."""
        ended = f"{text}\n;"  # on its own line: an error shows what was typed
        whole = text if parse_all(Source(NAME, ended)).problems or not parse_all(Source(NAME, text)).problems else ended
        statements = parse_all(Source(NAME, whole)).module.statements
        is_expression = len(statements) == 1 and isinstance(statements[0], ast.ExpressionStatement)
        if is_expression:
            whole = f"let {VALUE} =\n{text.strip().rstrip(';')}\n;"
            if parse_all(Source(NAME, whole)).problems:  # a `match` or `receive` of blocks, say, has no value
                is_expression, whole = False, text
            statements = parse_all(Source(NAME, whole)).module.statements
        named = {node.name: node for node in statements if isinstance(node, _NAMED)}
        bound = list(dict.fromkeys(_list_bound(statements)))
        known = [name for name in self._variables if name not in named]
        whole = _assigning(whole, statements, known)
        kept = {name: kept for name, kept in self._declared.items() if name not in named and name not in bound}
        lines = [*kept.values(), *(f"let {name}: any;" for name in known)]
        every = [*known, *(name for name in bound if name not in known)]
        before = "\n".join(lines) + "\n"
        first_line = before.count("\n") + 1
        self.lines_before = first_line - (not is_expression)
        self.text = f"{before}{whole}\nfn {_KEEP}() {{ return [{', '.join(every)}]; }}\n"
        program = compile_source(self.text, NAME, load=self._load)
        entry = self._add(program, first_line)
        self._declared = {**kept, **{name: whole[node.at : node.end] for name, node in named.items()}}
        self._variables = every
        return ReplInput(entry, is_expression)

    def _add(self, program: Program, first_line: int) -> int:
        """Add a program's functions behind those there are; gives the one that runs the new piece."""
        mine = self.program
        offset, files = len(mine.functions), len(mine.files)
        mine.globals += [name for name in program.globals if name not in mine.globals]
        self.values += [UNSET] * (len(mine.globals) - len(self.values))
        slots = [mine.globals.index(name) for name in program.globals]
        top_level = program.functions[program.entry].code[0][2]
        _skip(program.functions[top_level], first_line)
        for function in program.functions:
            function.code = [_move_instruction(instruction, offset, slots) for instruction in function.code]
            function.file += files
        mine.files += program.files
        start = Function(
            name="start",
            file=files,
            registers=1,
            code=[(OP_CALL, 0, top_level + offset, 0), (OP_RETURN, 0, 0, 0)],
            places=[0, 0],
            is_hidden=True,
        )
        mine.functions += [*program.functions, start]
        for index in range(offset, len(mine.functions)):
            self.linked.functions.append(Code(index, mine.functions[index]))
        for agent in program.agents.values():
            agent.configuration += offset
            for tool in agent.tools:
                tool.function += offset
        for tool in program.tools.values():
            tool.function += offset
            tool.configuration += offset if tool.configuration >= 0 else 0
        mine.agents.update(program.agents)
        mine.tools.update(program.tools)
        mine.imports = program.imports
        mine.entry = len(mine.functions) - 1
        return mine.entry

    def functions_of(self, entry: int, *, name: str = "") -> Iterable[int]:
        """Yield the functions that a piece brought, those of declarations before it left out: its top level first.
        Where there is a function of that name, only it, whenever it was declared."""
        top_level = self.program.functions[entry].code[0][2]
        named = [number for number in range(top_level + 1, entry) if self.program.functions[number].name == name]
        if name and named:
            yield named[0]
            return
        yield top_level
        for index in range(top_level + 1, entry):
            function = self.program.functions[index]
            if not function.is_hidden and function.name != _KEEP and function.place(0)[0] > self.lines_before:
                yield index


def _skip(top_level: Function, first_line: int) -> None:
    """Leave out the code of earlier inputs, which has run."""
    for index, (op, *_) in enumerate(top_level.code):
        if 0 < top_level.place(index)[0] < first_line and op not in (OP_RETURN, OP_RETURN_NULL):
            top_level.code[index] = (OP_NOP, 0, 0, 0)
            top_level.places[index] = 0


def _move_instruction(
    instruction: tuple[int, int, int, int], offset: int, slots: list[int]
) -> tuple[int, int, int, int]:
    op, *operands = instruction
    row = OPCODES[op]
    a, b, c = (
        value + offset if kind == "function" else slots[value] if kind == "global" else value
        for kind, value in zip((row.a, row.b, row.c), operands, strict=True)
    )
    return op, a, b, c


def _list_bound(statements: Iterable[ast.Statement]) -> Iterable[str]:
    """Yield the variables that a piece declares at its top level."""
    for node in statements:
        if isinstance(node, ast.Let):
            yield node.name
        elif isinstance(node, ast.Parallel):
            yield from _list_bound(node.body.statements)


def _assigning(text: str, statements: Iterable[ast.Statement], known: list[str]) -> str:
    """`let x = …` of a variable there is already as `x = …`, so that functions that use it see the new value; no
    column moves."""
    seen = set(known)
    for node in statements:
        if not isinstance(node, ast.Let):
            continue
        if node.name in seen:
            if node.value is None:
                continue
            head = text[node.at : node.value.at]
            equals = head.rfind("=")
            lead = head[:equals]
            blank = "".join("\n" if char == "\n" else " " for char in lead)
            short = (
                node.name + blank[len(node.name) :] if "\n" not in lead[: len(node.name)] else node.name + " " + blank
            )
            text = text[: node.at] + short + head[equals:] + text[node.value.at :]
        seen.add(node.name)
    return text


# One kernel process runs piece after piece, so that what a piece starts is there for the next one. A piece that fails
# leaves the process as it is.


class Interactive(World):
    """The World of a REPL: its program is the session's, its main fiber begins with the session's variables."""

    def __init__(self, kernel: Kernel, session: ReplSession, options: RunOptions) -> None:
        super().__init__(kernel, session.program, options, f"repl-{kernel.entropy.text(8)}", programs=PROGRAMS)
        self.linked = session.linked
        self._session = session
        self._mailbox: deque[Any] | None = None
        self._turns: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()
        self._handle = kernel.spawn(_pieces, self.run_id, grant=self.rights.grant)

    @property
    def has_ended(self) -> bool:
        process = self.kernel.processes.get(self._handle.pid)
        return process is None or process.exit is not None

    async def turn(self) -> Any:
        """Run the piece that the session compiled last; what it throws is raised here."""
        self.linked = self._session.linked
        self.rights = Rights(self.linked, self.options.folder, self.undeclared_tools.rights)
        process = self.kernel.processes.get(self._handle.pid)
        if process is not None:
            process.grant = self.rights.grant  # a new piece may declare new tools
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._turns.put_nowait(done)
        over = self.kernel.tasks.start(self._handle.wait(), name="vega repl")
        try:
            await asyncio.wait({done, over}, return_when=asyncio.FIRST_COMPLETED)
            if done.done():
                return done.result()
            ended = over.result()
            if ended.error is not None:
                raise ended.error
            raise ProcessExit(f"the process ended: {ended.reason}")
        finally:
            over.cancel()
            if self.main is not None:
                self._session.values[:] = self.main.fiber.globals
                self._mailbox = self.main.fiber.mailbox

    def stop(self) -> None:
        if not self.has_ended:
            self.kernel.end(self._handle.pid)
        self.close()

    def fiber(self, seed: Any) -> Fiber:
        if seed is not None:
            return super().fiber(seed)
        fiber = super().fiber(None)
        fiber.globals[:] = self._session.values
        fiber.mailbox = self._mailbox
        return fiber

    async def serve(self, ctx: Context) -> None:
        while True:
            done = await self._turns.get()
            try:
                value = await vega_process(ctx, self.run_id, None)
            except Exception as error:  # noqa: BLE001 - it is shown to the user who typed the line
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(value)


@give_name("lyra:vega.repl")
async def _pieces(ctx: Context, run_id: str) -> None:
    world = world_of(ctx, run_id)
    assert isinstance(world, Interactive)
    await world.serve(ctx)
