"""LLVM's code for numeric rows. Imported only where a function has run long enough to be worth it.

Each row becomes a function that takes how deep it is and its arguments, and gives a value and whether it gave up. For
those that Python calls there is an entry besides, which stores the value and gives the other. Slots are places on the
stack; LLVM makes registers of them. A small row that calls itself is there several times, and LLVM puts these into one
another: most of its calls save and restore no registers then, but count, look at the flag and check as all do.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from llvmlite import binding, ir

from lyra.vega.bytecode.pure_shapes import nodes
from lyra.vega.machine.pure.kinds import Look, Row, RowFacts, Trees, choose_row, outer_name, row_name, size_of
from lyra.vega.values.values import INT_MIN

DEPTH_MAX: Final = (
    2_000  # calls inside one another, for which the machine has left room; fewer where the stack is small
)
FRAME_BYTES: Final = 512  # of a call, at most: this
NODE_BYTES: Final = 32  # … and for each node of all rows together, as those may be put into one another, this
NESTED_MAX: Final = 3  # times that a row is put into itself, one inside the other
NESTED_NODES_MAX: Final = 256  # of all rows and what is put into them: some hundredths of a second more of LLVM's time

_INT, _FLOAT, _BOOL, _BYTE = ir.IntType(64), ir.DoubleType(), ir.IntType(1), ir.IntType(8)
_TYPES: Final[dict[str, Any]] = {"int": _INT, "float": _FLOAT, "bool": _BOOL}
_CHECKED: Final = {"+": "sadd_with_overflow", "-": "ssub_with_overflow", "*": "smul_with_overflow"}
_FLOATING: Final = {"+": "fadd", "-": "fsub", "*": "fmul"}


class Polled(NamedTuple):
    """Where the flag is, where the function is that is asked when it is set, and which answers mean continue: the
    second one only to those who cannot be left and entered again."""

    flag: int
    ask: int
    go_on: int
    pause: int


def assemble(
    trees: Trees, facts: dict[Row, RowFacts], rows: list[Row], entries: list[Row], polled: Polled
) -> tuple[Any, dict[Row, tuple[int, int]]]:
    """Return the engine that keeps the code, and the addresses of the entries: of each the plain one and, of a row that
    loops, the one that can be left and entered again (else 0)."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = ir.Module("vega")
    nested = _choose_nesting(trees, rows)
    functions = {
        row: _declare_row(module, row, facts[row], nested if _count_self_calls(trees, row) else 0) for row in rows
    }
    for row in rows:
        for level in range(len(functions[row])):
            _Body(trees, row, facts, functions, polled, level).write()
    # The most that one call takes of the stack. Each node is one value at most, and a value has one place; of a row
    # that is put into itself four are at work at once, and NODE_BYTES are four such places.
    frame = FRAME_BYTES + NODE_BYTES * sum(size_of(trees, row[0]) for row in rows)
    for row in entries:
        _entry(module, row, functions[row][0], frame)
        if trees[row[0]][4]:
            _Outer(trees, row, facts, functions, polled).write_entry(module, frame)
    machine = binding.Target.from_default_triple().create_target_machine(opt=2)
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(parsed, builder)
    engine = binding.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    address = engine.get_function_address
    return engine, {
        row: (address(_entry_name(row)), address(outer_name(row)) if trees[row[0]][4] else 0) for row in entries
    }


def _choose_nesting(trees: Trees, rows: list[Row]) -> int:
    """Return how often rows are put into themselves. Each time, the places where one calls itself become as many
    more."""
    sizes = [(size_of(trees, row[0]), _count_self_calls(trees, row)) for row in rows]
    for nested in range(NESTED_MAX, 0, -1):
        if sum(size * calls**level for size, calls in sizes for level in range(nested + 1)) <= NESTED_NODES_MAX:
            return nested
    return 0


def _count_self_calls(trees: Trees, row: Row) -> int:
    """Return the places where a function calls itself."""
    return sum(node[0] == "call" and node[1] == row[0] for node in nodes(trees[row[0]][2]))


def _entry_name(row: Row) -> str:
    return f"entry_{row_name(row)}"


def _declare_row(module: Any, row: Row, facts: RowFacts, nested: int) -> list[Any]:
    """Return the row, and those that are put into it: each calls the next one where it calls itself, the last one the
    row."""
    result = ir.LiteralStructType([_TYPES[facts.result], _BOOL])
    kind = ir.FunctionType(result, [_INT, *(_TYPES[kind] for kind in row[1])])
    levels = [ir.Function(module, kind, row_name(row) + "_inner" * level) for level in range(nested + 1)]
    for level in levels:
        level.linkage = "internal"
    for inner in levels[1:]:
        inner.attributes.add("alwaysinline")
    return levels


def _entry(module: Any, row: Row, function: Any, frame: int) -> None:
    """`int8 entry(result *, floor, arguments …)`; a bool is a byte out there. The calls begin as deep as the stack is
    short: `floor` is where it ends."""
    result = function.function_type.return_type.elements[0]
    entry = ir.Function(module, ir.FunctionType(_BYTE, [*_out(result), _INT, *_in(row)]), _entry_name(row))
    builder = ir.IRBuilder(entry.append_basic_block())
    depth = _first_depth(builder, entry.args[1], frame)
    pair = builder.call(function, [depth, *_inside(builder, entry.args[2:])])
    _give(builder, builder.extract_value(pair, 0), entry.args[0])
    builder.ret(builder.zext(builder.extract_value(pair, 1), _BYTE))


def _in(row: Row) -> list[Any]:
    """Return the arguments of a row as Python hands them over."""
    return [_BYTE if kind == "bool" else _TYPES[kind] for kind in row[1]]


def _out(result: Any) -> list[Any]:
    """Return the pointer to which its result goes."""
    return [(_BYTE if result == _BOOL else result).as_pointer()]


def _inside(builder: Any, arguments: Any) -> list[Any]:
    return [builder.trunc(value, _BOOL) if value.type == _BYTE else value for value in arguments]


def _give(builder: Any, value: Any, place: Any) -> None:
    builder.store(builder.zext(value, _BYTE) if value.type == _BOOL else value, place)


def _first_depth(builder: Any, floor: Any, frame: int) -> Any:
    here = builder.ptrtoint(builder.alloca(_BYTE), _INT)
    room = builder.sdiv(builder.sub(here, floor), ir.Constant(_INT, frame))
    depth = builder.sub(ir.Constant(_INT, DEPTH_MAX), room)
    is_deep = builder.icmp_signed("<", depth, ir.Constant(_INT, 0))
    return builder.select(is_deep, ir.Constant(_INT, 0), depth)


class _Body:
    def __init__(
        self,
        trees: Trees,
        row: Row,
        facts: dict[Row, RowFacts],
        functions: dict[Row, list[Any]],
        polled: Polled,
        level: int = -1,
    ) -> None:
        self.row = row
        self.tree = trees[row[0]]
        self.facts = facts[row]
        self.look = Look.again(trees, row, facts)
        self.compiled = functions
        self.function = functions[row][level]
        self.again = functions[row][(level + 1) % len(functions[row])]  # where it calls itself
        self.polled = polled
        self.builder: Any = None
        self.loops: list[tuple[Any, Any]] = []  # where `continue` and `break` go

    def block(self, name: str) -> Any:
        return self.function.append_basic_block(name)

    def write(self) -> None:
        """Write the function with one exit block. The value and the flag "gave up" reach it as separate phi nodes, so
        that LLVM knows both for each way there and drops the second test of the flag where it inlines the function."""
        self.builder = ir.IRBuilder(self.block("entry"))
        self.leave = self.block("leave")
        result = self.function.function_type.return_type
        with self.builder.goto_block(self.leave):
            self.result, self.has_failed = self.builder.phi(result.elements[0]), self.builder.phi(_BOOL)
        depth, *arguments = self.function.args
        self.begin(depth, arguments)
        self.poll()
        self.end()
        self.go_out(ir.Constant(self.result.type, ir.Undefined), has_failed=True)  # the value is never read
        self.builder.position_at_end(self.leave)
        pair = self.builder.insert_value(ir.Constant(result, ir.Undefined), self.result, 0)
        self.builder.ret(self.builder.insert_value(pair, self.has_failed, 1))

    def go_out(self, value: Any, *, has_failed: bool) -> None:
        self.result.add_incoming(value, self.builder.block)
        self.has_failed.add_incoming(ir.Constant(_BOOL, has_failed), self.builder.block)
        self.builder.branch(self.leave)

    def begin(self, depth: Any, arguments: list[Any]) -> None:
        """Write the slots, and the test whether this is too deep."""
        self.slots = [self.builder.alloca(_TYPES[kind]) for kind in self.facts.slots]
        for slot, kind in zip(self.slots, self.facts.slots, strict=True):
            self.builder.store(ir.Constant(_TYPES[kind], 0), slot)
        for slot, argument in zip(self.slots, arguments, strict=False):
            self.builder.store(argument, slot)
        self.failed = self.block("give_up")
        self.depth = self.builder.add(depth, ir.Constant(_INT, 1))
        self.unless(self.builder.icmp_signed(">", self.depth, ir.Constant(_INT, DEPTH_MAX)))

    def end(self) -> None:
        """All that the function does, up to where it has given up."""
        self.statements(self.tree[2])
        if not self.builder.block.is_terminated:
            self.builder.branch(self.failed)  # null is no number
        self.builder.position_at_end(self.failed)

    def unless(self, is_bad: Any) -> None:
        """Give up when something is so."""
        on = self.block("on")
        self.builder.cbranch(is_bad, self.failed, on).set_weights([1, 1_000])
        self.builder.position_at_end(on)

    def poll(self) -> None:
        """Read the flag of the watch: the answers "continue" and "pause" are the same here, "stop" gives up."""
        answer, on = self.ask_to_go_on()
        goes_on = self.builder.icmp_unsigned("==", answer, ir.Constant(_BYTE, self.polled.go_on))
        pauses = self.builder.icmp_unsigned("==", answer, ir.Constant(_BYTE, self.polled.pause))
        self.builder.cbranch(self.builder.or_(goes_on, pauses), on, self.failed)
        self.builder.position_at_end(on)

    def poll_turn(self) -> None:
        """Poll at the beginning of a loop's turn."""
        self.poll()

    def ask_to_go_on(self) -> tuple[Any, Any]:
        """Return the answer to whether to continue, asked where the flag is set, and the block where it is not."""
        builder = self.builder
        place = builder.inttoptr(ir.Constant(_INT, self.polled.flag), _BYTE.as_pointer())
        # Atomic, so that it is read every time: LLVM would know it from the last turn otherwise.
        raised, asking, on = builder.load_atomic(place, "monotonic", 1), self.block("asking"), self.block("on")
        is_raised = builder.icmp_unsigned("!=", raised, ir.Constant(_BYTE, 0))
        builder.cbranch(is_raised, asking, on).set_weights([1, 100_000])
        builder.position_at_end(asking)
        ask = builder.inttoptr(ir.Constant(_INT, self.polled.ask), ir.FunctionType(_BYTE, []).as_pointer())
        return builder.call(ask, []), on

    # ------------------------------------------------------------ statements

    def statements(self, body: list[Any]) -> None:
        for node in body:
            if self.builder.block.is_terminated:
                return  # code behind a return, break or continue is unreachable
            getattr(self, f"_{node[0].replace(' ', '_')}_statement")(*node[1:])

    def _set_statement(self, slot: int, value: list[Any]) -> None:
        self.builder.store(self.value(value), self.slots[slot])

    def _do_statement(self, value: list[Any]) -> None:
        self.value(value)

    def _return_statement(self, value: list[Any]) -> None:
        self.give(self.value(value))

    def give(self, value: Any) -> None:
        self.go_out(value, has_failed=False)

    def _give_up_statement(self) -> None:
        self.builder.branch(self.failed)

    def _break_statement(self) -> None:
        self.builder.branch(self.loops[-1][1])

    def _continue_statement(self) -> None:
        self.builder.branch(self.loops[-1][0])

    def _if_statement(self, condition: list[Any], then: list[Any], otherwise: list[Any]) -> None:
        on_true, on_false, after = self.block("then"), self.block("else"), self.block("after")
        self.builder.cbranch(self.value(condition), on_true, on_false)
        for start, body in ((on_true, then), (on_false, otherwise)):
            self.builder.position_at_end(start)
            self.statements(body)
            if not self.builder.block.is_terminated:
                self.builder.branch(after)
        self.builder.position_at_end(after)

    def _while_statement(self, condition: list[Any], body: list[Any], step: list[Any]) -> None:
        test, turn, advance, after = (self.block(name) for name in ("test", "turn", "step", "after"))
        self.builder.branch(test)
        self.builder.position_at_end(test)
        self.builder.cbranch(self.value(condition), turn, after)
        self.builder.position_at_end(turn)
        self.poll_turn()
        self.loops.append((advance, after))
        self.statements(body)
        self.loops.pop()
        if not self.builder.block.is_terminated:
            self.builder.branch(advance)
        self.builder.position_at_end(advance)
        self.statements(step)
        if not self.builder.block.is_terminated:
            self.builder.branch(test)
        self.builder.position_at_end(after)

    # ------------------------------------------------------------ values

    def value(self, node: list[Any]) -> Any:
        return getattr(self, f"_{node[0]}")(*node[1:])

    def _constant(self, value: Any) -> Any:
        return ir.Constant(_TYPES[self.look.kind(["constant", value])], value)

    def _slot(self, slot: int) -> Any:
        return self.builder.load(self.slots[slot])

    def _not(self, value: list[Any]) -> Any:
        return self.builder.not_(self.value(value))

    def _negate(self, value: list[Any]) -> Any:
        operand = self.value(value)
        return (
            self.builder.fneg(operand)
            if operand.type == _FLOAT
            else self.write_checked("-", ir.Constant(_INT, 0), operand)
        )

    def _call(self, function: int, arguments: list[Any]) -> Any:
        row = choose_row(function, tuple(map(self.look.kind, arguments)), self.look.results)
        code = self.again if row == self.row else self.compiled[row][0]
        pair = self.builder.call(code, [self.depth, *map(self.value, arguments)])
        self.unless(self.builder.extract_value(pair, 1))
        return self.builder.extract_value(pair, 0)

    def _binary(self, operator: str, left: list[Any], right: list[Any]) -> Any:
        if operator in ("&&", "||"):
            return self.either(operator, left, right)
        first, second = self.value(left), self.value(right)
        if _FLOAT in (first.type, second.type):
            return self.floats(operator, self.floating(first), self.floating(second))
        if operator in _CHECKED:
            return self.write_checked(operator, first, second)
        if operator in ("/", "%"):
            # Truncated, as the processor does it. Its two exceptions are the machine's.
            builder = self.builder
            is_zero = builder.icmp_signed("==", second, ir.Constant(_INT, 0))
            is_least = builder.icmp_signed("==", first, ir.Constant(_INT, INT_MIN))
            is_minus_one = builder.icmp_signed("==", second, ir.Constant(_INT, -1))
            self.unless(builder.or_(is_zero, builder.and_(is_least, is_minus_one)))
            return builder.sdiv(first, second) if operator == "/" else builder.srem(first, second)
        return self.builder.icmp_signed(operator, first, second)

    def either(self, operator: str, left: list[Any], right: list[Any]) -> Any:
        """`&&` and `||`: the right side only where it matters."""
        first = self.value(left)
        before = self.builder.block
        more, after = self.block("more"), self.block("after")
        self.builder.cbranch(first, *((more, after) if operator == "&&" else (after, more)))
        self.builder.position_at_end(more)
        other = self.value(right)
        end = self.builder.block
        self.builder.branch(after)
        self.builder.position_at_end(after)
        joined = self.builder.phi(_BOOL)
        joined.add_incoming(ir.Constant(_BOOL, operator == "||"), before)
        joined.add_incoming(other, end)
        return joined

    def floating(self, value: Any) -> Any:
        return value if value.type == _FLOAT else self.builder.sitofp(value, _FLOAT)

    def floats(self, operator: str, first: Any, second: Any) -> Any:
        builder = self.builder
        if operator in _FLOATING:
            return getattr(builder, _FLOATING[operator])(first, second)
        if operator == "/":
            self.unless(builder.fcmp_ordered("==", second, ir.Constant(_FLOAT, 0.0)))
            return builder.fdiv(first, second)
        compare = builder.fcmp_unordered if operator == "!=" else builder.fcmp_ordered
        return compare(operator, first, second)

    def write_checked(self, operator: str, first: Any, second: Any) -> Any:
        pair = getattr(self.builder, _CHECKED[operator])(first, second)
        self.unless(self.builder.extract_value(pair, 1))
        return self.builder.extract_value(pair, 0)


class _Outer(_Body):
    """`int8 outer(result *, floor, frame *, arguments …)`: a row that can be left at the beginning of a loop's turn and
    entered again there. It gives 2 then; the frame has which loop that was and all slots. A frame with 0 begins."""

    def write_entry(self, module: Any, frame: int) -> None:
        result = self.function.function_type.return_type.elements[0]
        kinds = [*_out(result), _INT, _INT.as_pointer(), *_in(self.row)]
        self.function = ir.Function(module, ir.FunctionType(_BYTE, kinds), outer_name(self.row))
        self.builder = ir.IRBuilder(self.block("entry"))
        self.place, floor, self.frame, *arguments = self.function.args
        self.begin(_first_depth(self.builder, floor, frame), _inside(self.builder, arguments))
        start = self.block("start")
        self.switch = self.builder.switch(self.builder.load(self.frame), start)
        self.pauses = 0
        self.builder.position_at_end(start)
        self.end()
        self.builder.ret(ir.Constant(_BYTE, 1))

    def give(self, value: Any) -> None:
        _give(self.builder, value, self.place)
        self.builder.ret(ir.Constant(_BYTE, 0))

    def poll_turn(self) -> None:
        answer, on = self.ask_to_go_on()
        left, again = self.block("left"), self.block("again")
        self.pauses += 1
        goes_on = self.builder.icmp_unsigned("==", answer, ir.Constant(_BYTE, self.polled.go_on))
        self.builder.cbranch(goes_on, on, left)
        self.builder.position_at_end(left)
        self.builder.store(ir.Constant(_INT, self.pauses), self.frame)
        for number, slot in enumerate(self.slots, 1):
            value = self.builder.load(slot)
            self.builder.store(self.bits(value), self.slot_address(number))
        self.builder.ret(ir.Constant(_BYTE, 2))
        self.switch.add_case(ir.Constant(_INT, self.pauses), again)
        self.builder.position_at_end(again)
        for number, (slot, kind) in enumerate(zip(self.slots, self.facts.slots, strict=True), 1):
            self.builder.store(self.from_bits(self.builder.load(self.slot_address(number)), kind), slot)
        self.builder.branch(on)
        self.builder.position_at_end(on)

    def slot_address(self, number: int) -> Any:
        return self.builder.gep(self.frame, [ir.Constant(_INT, number)])

    def bits(self, value: Any) -> Any:
        if value.type == _FLOAT:
            return self.builder.bitcast(value, _INT)
        return self.builder.zext(value, _INT) if value.type == _BOOL else value

    def from_bits(self, value: Any, kind: str) -> Any:
        if kind == "float":
            return self.builder.bitcast(value, _FLOAT)
        return self.builder.trunc(value, _BOOL) if kind == "bool" else value
