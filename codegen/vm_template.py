"""The machine: `run(fiber, fuel)` steps a fiber until it needs the host, ends, or has used its fuel.

`python -m codegen.vega_machine` writes `vm.py` from `codegen/vm_template.py`: the template names opcodes, and the
generated file has their numbers, because Python looks a name up in every comparison and holds a number as a constant.

One loop over `(op, a, b, c)` with the branches in order of how often they are taken. Ints are computed here, everything
rarer in `values.operators` and `rare_instructions`. A Vega call pushes a frame instead of calling Python, so the depth
of a program does not depend on Python's stack. Fuel is counted in calls and loop turns; a step over much data costs
more (see `values.fuel`). After every SLICE of them the loop compares fuel and depth with their limits. Where a result
must fit 64 bits, numbers of one machine digit pass first, because Python compares those quickly. An error becomes an
ErrorValue and goes to the nearest handler in the functions' tables.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.core.limits import VEGA_DEPTH_MAX, VEGA_STRING_CHARS_MAX
from lyra.vega.bytecode.opcodes import (
    ANY_LENGTH,
    OP_ADD,
    OP_ADD_INT,
    OP_CALL,
    OP_CALL_NAMED,
    OP_CALL_PURE,
    OP_CALL_VALUE,
    OP_CELL,
    OP_CELL_GET,
    OP_CELL_OF,
    OP_CELL_SET,
    OP_CLOSURE,
    OP_CONSTANT,
    OP_DEFAULT,
    OP_DIV,
    OP_EQ,
    OP_ERROR_TEXT,
    OP_GLOBAL_GET,
    OP_GLOBAL_SET,
    OP_IF,
    OP_INDEX,
    OP_INNER,
    OP_ITEM,
    OP_ITERATE,
    OP_JOIN,
    OP_JUMP,
    OP_LE,
    OP_LENGTH,
    OP_LIBRARY,
    OP_LIST,
    OP_LOOP,
    OP_LOOP_EQ,
    OP_LOOP_IF,
    OP_LOOP_LE,
    OP_LOOP_LT,
    OP_LOOP_NE,
    OP_LT,
    OP_METHOD,
    OP_MOD,
    OP_MOVE,
    OP_MUL,
    OP_NE,
    OP_NEG,
    OP_NEXT,
    OP_NOP,
    OP_NOT,
    OP_PRINT,
    OP_PUSH,
    OP_RECEIVE,
    OP_RECEIVE_NEXT,
    OP_RECEIVE_TAKE,
    OP_RETHROW,
    OP_RETURN,
    OP_RETURN_NULL,
    OP_SEND,
    OP_SPAWN,
    OP_STORE,
    OP_STREAM_DONE,
    OP_STREAM_NEXT,
    OP_SUB,
    OP_SUB_INT,
    OP_THROW,
    OP_UNLESS,
    OP_UNLESS_EQ,
    OP_UNLESS_ERROR,
    OP_UNLESS_LE,
    OP_UNLESS_LIST,
    OP_UNLESS_LT,
    OP_UNLESS_NE,
    OP_UNLESS_VARIANT,
    OP_VARIANT,
)
from lyra.vega.machine import rare_instructions
from lyra.vega.machine.fiber import MISS, OUT_OF_FUEL, SLICE, WAIT, Done, Fiber, OutOfFuel, VmEffect, wrong_count
from lyra.vega.values.operators import (
    add,
    divide,
    index,
    iterable,
    length,
    less,
    less_or_equal,
    multiply,
    negate,
    negate_bool,
    not_bool,
    not_callable,
    remainder,
    store,
    subtract,
)
from lyra.vega.values.values import UNSET, WORK, Cell, Closure, Err, Fault, Ok, Stream, check_int, equal, render

_PURE_DEPTH_MAX: Final = VEGA_DEPTH_MAX - 2_000  # generated code does not count its depth and nests at most that deep
SMALL_INT_MAX: Final = 0x3FFFFFFF  # one digit of a Python int


def run(fiber: Fiber, fuel: int = 1_000_000) -> VmEffect | Done | OutOfFuel:  # noqa: PLR0915 - one loop, read in one sitting
    """Step a fiber until an effect, its end, or about `fuel` calls and loop turns later."""
    functions = fiber.linked.functions
    stack = fiber.stack
    depth = fiber.depth
    f = fiber.code
    pc = fiber.pc
    r = fiber.registers
    ticks = fiber.ticks
    code = f.code
    x: Any
    tier = fiber.linked.tier
    if tier is not None and tier.is_used:
        tier.turn()
        if fiber.paused is not None:
            x, fiber.paused = fiber.paused.go_on(), None
            if tier.paused is not None:
                fiber.paused, tier.paused = tier.paused, None
                return OUT_OF_FUEL
            if x is not MISS:
                r[code[pc][1]] = x
                pc += 1
    integer, array, text, work = int, list, str, WORK  # local names are quicker than global ones
    work.units = 0
    y: Any
    while True:
        effect: VmEffect | Done | OutOfFuel | None = None
        try:
            if fiber.fault is not None:
                fault, fiber.fault = fiber.fault, None
                raise fault
            while True:
                op, a, b, c = code[pc]
                pc += 1
                if op == OP_ADD:
                    x = r[b]
                    y = r[c]
                    if type(x) is integer is type(y):
                        x = x + y
                        r[a] = x if x < SMALL_INT_MAX and x > -SMALL_INT_MAX else check_int(x)
                    elif a == b and type(x) is text is type(y) and len(x) + len(y) <= VEGA_STRING_CHARS_MAX:
                        r[a] = None  # the only reference is `x` now, so Python extends the text in place
                        x = x + y
                        r[a] = x
                    else:
                        r[a] = add(x, y)
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                elif op == OP_CALL:
                    stack = (stack, f, pc, r, a)
                    depth += 1
                    f = functions[b]
                    code = f.code
                    pc = f.parameters
                    if pc == 1:
                        x = r[c]
                        r = f.template.copy()
                        r[0] = x
                    else:
                        x = r[c : c + pc]
                        r = f.template.copy()
                        r[:pc] = x
                    pc = 0
                    ticks -= 1
                    if ticks < 0:
                        break
                elif op == OP_SUB_INT:
                    x = r[b]
                    if type(x) is integer:
                        x = x - c
                        r[a] = x if x > -SMALL_INT_MAX else check_int(x)
                    else:
                        r[a] = subtract(x, c)
                elif op == OP_RETURN:
                    x = r[a]
                    if stack is None:
                        return Done(x)
                    stack, f, pc, r, a = stack
                    depth -= 1
                    code = f.code
                    r[a] = x
                elif op == OP_UNLESS_LT:
                    x = r[b]
                    y = r[c]
                    if type(x) is integer is type(y):
                        if not x < y:
                            pc = a
                    elif not less(x, y):
                        pc = a
                elif op == OP_ADD_INT:
                    x = r[b]
                    if type(x) is integer:
                        x = x + c
                        r[a] = x if x < SMALL_INT_MAX else check_int(x)
                    else:
                        r[a] = add(x, c)
                elif op == OP_MOVE:
                    r[a] = r[b]
                elif op == OP_LOOP_LT:
                    x = r[b]
                    y = r[c]
                    if (x < y) if type(x) is integer is type(y) else less(x, y):
                        pc = a
                        ticks -= 1
                        if ticks < 0:
                            break
                elif op == OP_NEXT:
                    x = r[a]
                    y = r[a + 1]
                    if type(x) is array or type(x) is text:
                        if y < len(x):
                            r[b] = x[y]
                            r[a + 1] = y + 1
                        else:
                            continue
                    elif type(y) is array:
                        r[b] = y[0]
                        r[a + 1] = 0
                    elif y is None:
                        continue
                    else:
                        pc -= 1
                        fiber.destination = a + 1
                        effect = VmEffect("stream_next", (x,))
                        break
                    pc = c
                    ticks -= 1
                    if ticks < 0:
                        break
                elif op >= OP_ITERATE:  # loops over values, errors, patterns, processes and rarer instructions
                    if op == OP_RECEIVE_NEXT:
                        x = r[a]
                        y = fiber.mailbox
                        if y is not None and x < len(y):
                            r[a] = x + 1
                            # A RECEIVE_TAKE that follows directly means that every message fits: take the first.
                            if x == 0 and code[pc][0] == OP_RECEIVE_TAKE:
                                r[b] = y.popleft()
                                pc += 1
                            else:
                                r[b] = y[x]
                        elif r[a + 2] < 0:
                            pc = c
                        else:
                            pc -= 1
                            y = r[a + 1]
                            effect = WAIT if y is None else VmEffect("receive", (y, r[a + 2]))
                            break
                    elif op == OP_RECEIVE_TAKE:
                        if r[a] == 1 and fiber.mailbox:
                            fiber.mailbox.popleft()
                        else:
                            rare_instructions.take(fiber, r[a])
                    elif op == OP_RECEIVE:
                        r[a] = 0
                        if b:
                            r[a + 1] = rare_instructions.timeout(r[a + 1])
                            fiber.receives = r[a + 2] = fiber.receives + 1
                        else:
                            r[a + 1] = None
                            r[a + 2] = 0
                            if not fiber.mailbox:  # wait at the RECEIVE_NEXT behind it
                                effect = WAIT
                                break
                    elif op == OP_SEND:
                        x = fiber.linked.post
                        if x is not None and x(r[b], r[c]):
                            r[a] = None
                            if work.units:
                                ticks, work.units = ticks - work.units, 0
                            continue
                        fiber.destination = a
                        effect = rare_instructions.make_simple_send(r[b], r[c])
                        break
                    elif op == OP_SPAWN:
                        x = fiber.linked.spawn
                        if x is not None:
                            x = x(fiber, r[b], r[b + 1], f.constants[c])
                            if x is not None:
                                r[a] = x
                                continue
                        fiber.destination = a
                        effect = rare_instructions.spawn(fiber, r, b, f.constants[c], is_supervised=False)
                        break
                    elif op == OP_ITEM:
                        r[a] = r[b][c]
                    elif op == OP_UNLESS_LIST:
                        x = r[b]
                        if type(x) is not array or (len(x) != c and c != ANY_LENGTH):
                            pc = a
                    elif op == OP_PRINT:
                        effect = VmEffect("print", (render(r[a]),))
                        break
                    elif op == OP_ITERATE:
                        r[a] = iterable(r[b])
                        r[a + 1] = 0
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                    elif op == OP_UNLESS_VARIANT:
                        if type(r[b]) is not (Err if c else Ok):
                            pc = a
                    elif op == OP_INNER:
                        r[a] = r[b].value
                    elif op == OP_STREAM_NEXT:
                        x = r[b]
                        if type(x) is not Stream:
                            raise Fault("TypeError", f"{rare_instructions.kind_of(x)} is not a stream")
                        fiber.destination = a
                        effect = VmEffect("stream_next", (x,))
                        break
                    elif op == OP_STREAM_DONE:
                        r[a] = r[b] is None
                    elif op == OP_UNLESS_ERROR:
                        if not rare_instructions.is_named(r[b], f.constants[c]):
                            pc = a
                    elif op == OP_ERROR_TEXT:
                        r[a] = r[b].text
                    elif op == OP_RETHROW:
                        raise rare_instructions.again(r[a])
                    elif op == OP_THROW:
                        raise Fault(f.constants[b], render(r[a]))
                    else:
                        effect = rare_instructions.rare(fiber, f, op, a, b, c, r)
                        if effect is not None:
                            break
                elif op == OP_INDEX:
                    x = r[b]
                    y = r[c]
                    if type(x) is array and type(y) is integer and 0 <= y < len(x):
                        r[a] = x[y]
                    else:
                        r[a] = index(x, y)
                elif op == OP_MOD:
                    x = r[b]
                    y = r[c]
                    if type(x) is integer is type(y) and x >= 0 and y > 0:
                        r[a] = x % y
                    else:
                        r[a] = remainder(x, y)
                elif op == OP_PUSH:
                    x = r[b]
                    if type(x) is array:
                        x.append(r[c])
                        r[a] = x
                    else:
                        raise Fault("TypeError", f"cannot push onto {rare_instructions.kind_of(x)}")
                elif op == OP_JUMP:
                    pc = a
                elif op == OP_LOOP:
                    pc = a
                    ticks -= 1
                    if ticks < 0:
                        break
                elif op == OP_SUB:
                    x = r[b]
                    y = r[c]
                    if type(x) is integer is type(y):
                        x = x - y
                        r[a] = x if x < SMALL_INT_MAX and x > -SMALL_INT_MAX else check_int(x)
                    else:
                        r[a] = subtract(x, y)
                elif op == OP_UNLESS_EQ:
                    x = r[b]
                    y = r[c]
                    if type(x) is type(y) and (type(x) is integer or type(x) is text):
                        if x != y:
                            pc = a
                    else:
                        if not equal(x, y):
                            pc = a
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                elif op == OP_MUL:
                    x = r[b]
                    y = r[c]
                    if type(x) is integer is type(y):
                        x = x * y
                        r[a] = x if x < SMALL_INT_MAX and x > -SMALL_INT_MAX else check_int(x)
                    else:
                        r[a] = multiply(x, y)
                elif op < OP_ADD:  # moving values
                    if op == OP_GLOBAL_GET:
                        x = fiber.globals[b]
                        if x is UNSET:
                            x = rare_instructions.unset_global(fiber, b, f.constants[c])
                        r[a] = x
                    elif op == OP_CELL_GET:
                        x = r[b].value
                        if x is UNSET:
                            raise Fault("NameError", f"`{f.constants[c]}` is used before it is set")
                        r[a] = x
                    elif op == OP_CELL_SET:
                        r[a].value = r[b]
                    elif op == OP_GLOBAL_SET:
                        fiber.globals[a] = r[b]
                    elif op == OP_CLOSURE:
                        y = f.constants[c]
                        r[a] = Closure(b, tuple([r[x] for x in y]) if y else ())
                    elif op == OP_DEFAULT:
                        if r[a] is not UNSET:
                            pc = b
                    elif op == OP_CONSTANT:
                        r[a] = f.constants[b]
                    elif op == OP_CELL:
                        r[a] = Cell(UNSET)
                    elif op == OP_CELL_OF:
                        r[a] = Cell(r[b])
                    elif op == OP_NOP:
                        pass
                    else:
                        raise rare_instructions.unknown(op)
                elif op < OP_CALL:  # the rest of arithmetic, comparisons and jumps
                    if op == OP_UNLESS:
                        x = r[b]
                        if x is False:
                            pc = a
                        elif x is not True:
                            raise not_bool(x)
                    elif op == OP_UNLESS_LE:
                        x = r[b]
                        y = r[c]
                        if not ((x <= y) if type(x) is integer is type(y) else less_or_equal(x, y)):
                            pc = a
                    elif op == OP_EQ:
                        r[a] = equal(r[b], r[c])
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                    elif op == OP_LT:
                        r[a] = less(r[b], r[c])
                    elif op == OP_UNLESS_NE:
                        if equal(r[b], r[c]):
                            pc = a
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                    elif op == OP_IF:
                        x = r[b]
                        if x is True:
                            pc = a
                        elif x is not False:
                            raise not_bool(x)
                    elif OP_LOOP_IF <= op <= OP_LOOP_LE:
                        x = r[b]
                        if op == OP_LOOP_LE:
                            y = r[c]
                            x = (x <= y) if type(x) is integer is type(y) else less_or_equal(x, y)
                        elif op == OP_LOOP_NE:
                            x = not equal(x, r[c])
                        elif op == OP_LOOP_EQ:
                            x = equal(x, r[c])
                        if x is True:
                            pc = a
                            ticks -= 1 + work.units
                            work.units = 0
                            if ticks < 0:
                                break
                        elif x is not False:  # LOOP_IF may see anything
                            raise not_bool(x)
                    elif op == OP_JOIN:
                        r[a] = rare_instructions.join_parts(r[b : b + c])
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                    elif op == OP_DIV:
                        r[a] = divide(r[b], r[c])
                    elif op == OP_NEG:
                        r[a] = negate(r[b])
                    elif op == OP_NOT:
                        r[a] = negate_bool(r[b])
                    elif op == OP_NE:
                        r[a] = not equal(r[b], r[c])
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                    elif op == OP_LE:
                        r[a] = less_or_equal(r[b], r[c])
                    else:
                        raise rare_instructions.unknown(op)
                elif op == OP_CALL_VALUE or op == OP_METHOD:
                    if op == OP_METHOD:
                        x, c = f.constants[c]
                        y = rare_instructions.method(r[b], x, c)
                        if y is None:
                            # A map may hold a function under that name: call it like any other.
                            r[b] = rare_instructions.member(r[b], x)
                            c -= 1
                        elif type(y) is str:
                            fiber.destination = a
                            effect = VmEffect(y, tuple(r[b : b + c]))
                            break
                        else:
                            r[a] = y(*r[b : b + c])
                            if work.units:
                                ticks, work.units = ticks - work.units, 0
                            continue
                    x = r[b]
                    if type(x) is not Closure:
                        raise not_callable(x)
                    y = functions[x.function]
                    if c != y.parameters and not y.required <= c <= y.parameters:
                        raise wrong_count(y, c)
                    stack = (stack, f, pc, r, a)
                    depth += 1
                    r, f = rare_instructions.fill_registers(y, r, b + 1, c, x.captured), y
                    code = f.code
                    pc = 0
                    ticks -= 1
                    if ticks < 0:
                        break
                elif op == OP_CALL_PURE:
                    y = functions[b]
                    # A look ahead has limited fuel, which generated code does not count.
                    x = y.pure(r[c : c + y.parameters]) if depth < _PURE_DEPTH_MAX and not fiber.looking else MISS
                    ticks -= 1
                    if x is not MISS:
                        r[a] = x
                    elif tier.paused is not None:  # the generated code was interrupted: its turn is over
                        fiber.paused, tier.paused = tier.paused, None
                        pc -= 1
                        effect = OUT_OF_FUEL
                        break
                    else:
                        stack = (stack, f, pc, r, a)
                        depth += 1
                        x = r[c : c + y.parameters]
                        r, f = y.template.copy(), y
                        r[: len(x)] = x
                        code = f.code
                        pc = 0
                    if ticks < 0:
                        break
                elif op == OP_LIBRARY:
                    x, y = f.constants[c]
                    if y == 1:
                        r[a] = x(r[b])
                    elif y == 2:
                        r[a] = x(r[b], r[b + 1])
                    else:
                        r[a] = x(*r[b : b + y])
                    if work.units:
                        ticks, work.units = ticks - work.units, 0
                elif op == OP_LENGTH:
                    x = r[b]
                    if type(x) is array or type(x) is text:
                        r[a] = len(x)
                    else:
                        r[a] = length(x)
                elif op == OP_RETURN_NULL:
                    if stack is None:
                        return Done(None)
                    stack, f, pc, r, a = stack
                    depth -= 1
                    code = f.code
                    r[a] = None
                elif op == OP_LIST:
                    r[a] = r[b : b + c]
                elif op == OP_STORE:
                    x = r[a]
                    y = r[b]
                    if type(x) is array and type(y) is integer and 0 <= y < len(x):
                        x[y] = r[c]
                    else:
                        store(x, y, r[c])
                elif op == OP_VARIANT:
                    r[a] = Err(r[b]) if c else Ok(r[b])
                elif op == OP_CALL_NAMED:
                    x = r[b]
                    if type(x) is not Closure:
                        raise not_callable(x)
                    y = functions[x.function]
                    x = rare_instructions.fill_named_registers(y, r, b + 1, f.constants[c][1:], x.captured)
                    stack = (stack, f, pc, r, a)
                    depth += 1
                    r, f = x, y
                    code = f.code
                    pc = 0
                    ticks -= 1
                else:
                    effect = rare_instructions.rare(fiber, f, op, a, b, c, r)
                    if effect is not None:
                        break
            # The loop was left: for an effect, or because a slice is over.
            if effect is None:
                fuel -= SLICE - 1 - ticks  # one slice, and the extra cost of large steps
                ticks = SLICE
                if depth > VEGA_DEPTH_MAX:
                    raise rare_instructions.too_deep()
                if fiber.looking:
                    rare_instructions.look_on(fiber)
                if fuel > 0:
                    continue
                effect = OUT_OF_FUEL
            elif depth > VEGA_DEPTH_MAX and type(effect) is VmEffect and effect.kind in rare_instructions.ASKING:
                fiber.destination = -1
                # Within a slice the depth may pass the limit, but no agent is asked from there.
                raise rare_instructions.too_deep()
            fiber.code = f
            fiber.pc = pc
            fiber.registers = r
            fiber.ticks = ticks
            fiber.stack = stack
            fiber.depth = depth
            return effect
        except Fault as error:
            fault = error
        except Exception as error:  # noqa: BLE001 - malformed code must not stop the machine
            fault = Fault("BytecodeError", f"the code does what no compiler makes: {type(error).__name__}: {error}")
        ticks, work.units = ticks - work.units, 0
        fiber.code, fiber.pc, fiber.registers, fiber.ticks = f, pc, r, ticks
        fiber.stack, fiber.depth = stack, depth
        end = rare_instructions.unwind(fiber, fault)
        if end is not None:
            return end
        f, pc, r, stack, depth = fiber.code, fiber.pc, fiber.registers, fiber.stack, fiber.depth
        code = f.code
