"""The machine: `run(fiber, fuel)` steps a fiber until it needs the host, ends, or has used its fuel.

One loop over `(op, a, b, c)` with the branches in order of how often they are taken; a numeral stands for its opcode,
with the name beside it (a test compares each with the table: a name would cost a look-up in every comparison). Ints
are done here, everything rarer in `operators` and `machinery`. Calls push a frame instead of calling Python, so a
program's depth is data and not the machine's. Fuel is counted in calls and loop turns, and a step over much data
counts as many (see `work`); every SLICE of them the loop looks at the fuel and at the depth. Where a result must fit 64
bits, numbers of one machine digit are let through first: Python compares those quickly. An error becomes an ErrorValue
and goes to the nearest handler in the functions' tables.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.core.limits import VEGA_DEPTH_MAX, VEGA_STRING_CHARS_MAX
from lyra.vega.machine import rare_instructions as machinery
from lyra.vega.machine.fiber import OUT_OF_FUEL, SLICE, WAIT, Done, Fiber, OutOfFuel, VmEffect, wrong_count
from lyra.vega.machine.pure_call import MISS
from lyra.vega.values.fuel import WORK
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
from lyra.vega.values.values import UNSET, Cell, Closure, Err, Fault, Ok, Stream, checked, equal, shown

__all__ = ["run"]

_PURE_DEPTH_MAX: Final = VEGA_DEPTH_MAX - 2_000  # generated code does not count, and nests as deep as that


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
    integer, array, text, work = int, list, str, WORK  # locals are quicker than globals
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
                if op == 0x10:  # ADD
                    x = r[b]
                    y = r[c]
                    if type(x) is integer is type(y):
                        x = x + y
                        r[a] = x if x < 0x3FFFFFFF and x > -0x3FFFFFFF else checked(x)
                    elif a == b and type(x) is text is type(y) and len(x) + len(y) <= VEGA_STRING_CHARS_MAX:
                        r[a] = None  # nobody else holds it now, so Python lets it grow where it is
                        x = x + y
                        r[a] = x
                    else:
                        r[a] = add(x, y)
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                elif op == 0x40:  # CALL
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
                elif op == 0x18:  # SUB_INT
                    x = r[b]
                    if type(x) is integer:
                        x = x - c
                        r[a] = x if x > -0x3FFFFFFF else checked(x)
                    else:
                        r[a] = subtract(x, c)
                elif op == 0x43:  # RETURN
                    x = r[a]
                    if stack is None:
                        return Done(x)
                    stack, f, pc, r, a = stack
                    depth -= 1
                    code = f.code
                    r[a] = x
                elif op == 0x36:  # UNLESS_LT
                    x = r[b]
                    y = r[c]
                    if type(x) is integer is type(y):
                        if not x < y:
                            pc = a
                    elif not less(x, y):
                        pc = a
                elif op == 0x17:  # ADD_INT
                    x = r[b]
                    if type(x) is integer:
                        x = x + c
                        r[a] = x if x < 0x3FFFFFFF else checked(x)
                    else:
                        r[a] = add(x, c)
                elif op == 0x01:  # MOVE
                    r[a] = r[b]
                elif op == 0x3B:  # LOOP_LT
                    x = r[b]
                    y = r[c]
                    if (x < y) if type(x) is integer is type(y) else less(x, y):
                        pc = a
                        ticks -= 1
                        if ticks < 0:
                            break
                elif op == 0x61:  # NEXT
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
                elif op >= 0x60:
                    if op == 0x81:  # RECEIVE_NEXT
                        x = r[a]
                        y = fiber.mailbox
                        if y is not None and x < len(y):
                            r[a] = x + 1
                            if x == 0 and code[pc][0] == 0x82:  # RECEIVE_TAKE: whatever it is, it is taken
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
                    elif op == 0x82:  # RECEIVE_TAKE
                        if r[a] == 1 and fiber.mailbox:
                            fiber.mailbox.popleft()
                        else:
                            machinery.take(fiber, r[a])
                    elif op == 0x80:  # RECEIVE
                        r[a] = 0
                        if b:
                            r[a + 1] = machinery.timeout(r[a + 1])
                            fiber.receives = r[a + 2] = fiber.receives + 1
                        else:
                            r[a + 1] = None
                            r[a + 2] = 0
                            if not fiber.mailbox:  # wait at the RECEIVE_NEXT behind it
                                effect = WAIT
                                break
                    elif op == 0x84:  # SEND
                        x = fiber.linked.post
                        if x is not None and x(r[b], r[c]):
                            r[a] = None
                            if work.units:
                                ticks, work.units = ticks - work.units, 0
                            continue
                        fiber.destination = a
                        effect = machinery.plain_send(r[b], r[c])
                        break
                    elif op == 0x83:  # SPAWN
                        x = fiber.linked.spawn
                        if x is not None:
                            x = x(fiber, r[b], r[b + 1], f.constants[c])
                            if x is not None:
                                r[a] = x
                                continue
                        fiber.destination = a
                        effect = machinery.spawn(fiber, r, b, f.constants[c], is_supervised=False)
                        break
                    elif op == 0x77:  # ITEM
                        r[a] = r[b][c]
                    elif op == 0x74:  # UNLESS_LIST
                        x = r[b]
                        if type(x) is not array or (len(x) != c and c != 0x7FFFFFFF):
                            pc = a
                    elif op == 0x87:  # PRINT
                        effect = VmEffect("print", (shown(r[a]),))
                        break
                    elif op == 0x60:  # ITERATE
                        r[a] = iterable(r[b])
                        r[a + 1] = 0
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                    elif op == 0x75:  # UNLESS_VARIANT
                        if type(r[b]) is not (Err if c else Ok):
                            pc = a
                    elif op == 0x78:  # INNER
                        r[a] = r[b].value
                    elif op == 0xA1:  # STREAM_NEXT
                        x = r[b]
                        if type(x) is not Stream:
                            raise Fault("TypeError", f"{machinery.kind_of(x)} is not a stream")
                        fiber.destination = a
                        effect = VmEffect("stream_next", (x,))
                        break
                    elif op == 0xA2:  # STREAM_DONE
                        r[a] = r[b] is None
                    elif op == 0x72:  # UNLESS_ERROR
                        if not machinery.is_named(r[b], f.constants[c]):
                            pc = a
                    elif op == 0x73:  # ERROR_TEXT
                        r[a] = r[b].text
                    elif op == 0x71:  # RETHROW
                        raise machinery.again(r[a])
                    elif op == 0x70:  # THROW
                        raise Fault(f.constants[b], shown(r[a]))
                    else:
                        effect = machinery.rare(fiber, f, op, a, b, c, r)
                        if effect is not None:
                            break
                elif op == 0x54:  # INDEX
                    x = r[b]
                    y = r[c]
                    if type(x) is array and type(y) is integer and 0 <= y < len(x):
                        r[a] = x[y]
                    else:
                        r[a] = index(x, y)
                elif op == 0x14:  # MOD
                    x = r[b]
                    y = r[c]
                    if type(x) is integer is type(y) and x >= 0 and y > 0:
                        r[a] = x % y
                    else:
                        r[a] = remainder(x, y)
                elif op == 0x59:  # PUSH
                    x = r[b]
                    if type(x) is array:
                        x.append(r[c])
                        r[a] = x
                    else:
                        raise Fault("TypeError", f"cannot push onto {machinery.kind_of(x)}")
                elif op == 0x30:  # JUMP
                    pc = a
                elif op == 0x31:  # LOOP
                    pc = a
                    ticks -= 1
                    if ticks < 0:
                        break
                elif op == 0x11:  # SUB
                    x = r[b]
                    y = r[c]
                    if type(x) is integer is type(y):
                        x = x - y
                        r[a] = x if x < 0x3FFFFFFF and x > -0x3FFFFFFF else checked(x)
                    else:
                        r[a] = subtract(x, y)
                elif op == 0x34:  # UNLESS_EQ
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
                elif op == 0x12:  # MUL
                    x = r[b]
                    y = r[c]
                    if type(x) is integer is type(y):
                        x = x * y
                        r[a] = x if x < 0x3FFFFFFF and x > -0x3FFFFFFF else checked(x)
                    else:
                        r[a] = multiply(x, y)
                elif op < 0x10:
                    if op == 0x07:  # GLOBAL_GET
                        x = fiber.globals[b]
                        if x is UNSET:
                            x = machinery.unset_global(fiber, b, f.constants[c])
                        r[a] = x
                    elif op == 0x05:  # CELL_GET
                        x = r[b].value
                        if x is UNSET:
                            raise Fault("NameError", f"`{f.constants[c]}` is used before it is set")
                        r[a] = x
                    elif op == 0x06:  # CELL_SET
                        r[a].value = r[b]
                    elif op == 0x08:  # GLOBAL_SET
                        fiber.globals[a] = r[b]
                    elif op == 0x09:  # CLOSURE
                        y = f.constants[c]
                        r[a] = Closure(b, tuple([r[x] for x in y]) if y else ())
                    elif op == 0x0A:  # DEFAULT
                        if r[a] is not UNSET:
                            pc = b
                    elif op == 0x02:  # CONSTANT
                        r[a] = f.constants[b]
                    elif op == 0x03:  # CELL
                        r[a] = Cell(UNSET)
                    elif op == 0x04:  # CELL_OF
                        r[a] = Cell(r[b])
                    elif op == 0x00:  # NOP
                        pass
                    else:
                        raise machinery.unknown(op)
                elif op < 0x40:
                    if op == 0x33:  # UNLESS
                        x = r[b]
                        if x is False:
                            pc = a
                        elif x is not True:
                            raise not_bool(x)
                    elif op == 0x37:  # UNLESS_LE
                        x = r[b]
                        y = r[c]
                        if not ((x <= y) if type(x) is integer is type(y) else less_or_equal(x, y)):
                            pc = a
                    elif op == 0x20:  # EQ
                        r[a] = equal(r[b], r[c])
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                    elif op == 0x22:  # LT
                        r[a] = less(r[b], r[c])
                    elif op == 0x35:  # UNLESS_NE
                        if equal(r[b], r[c]):
                            pc = a
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                    elif op == 0x32:  # IF
                        x = r[b]
                        if x is True:
                            pc = a
                        elif x is not False:
                            raise not_bool(x)
                    elif 0x38 <= op <= 0x3C:
                        x = r[b]
                        if op == 0x3C:  # LOOP_LE
                            y = r[c]
                            x = (x <= y) if type(x) is integer is type(y) else less_or_equal(x, y)
                        elif op == 0x3A:  # LOOP_NE
                            x = not equal(x, r[c])
                        elif op == 0x39:  # LOOP_EQ
                            x = equal(x, r[c])
                        if x is True:
                            pc = a
                            ticks -= 1 + work.units
                            work.units = 0
                            if ticks < 0:
                                break
                        elif x is not False:  # LOOP_IF may see anything
                            raise not_bool(x)
                    elif op == 0x19:  # JOIN
                        r[a] = machinery.joined(r[b : b + c])
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                    elif op == 0x13:  # DIV
                        r[a] = divide(r[b], r[c])
                    elif op == 0x15:  # NEG
                        r[a] = negate(r[b])
                    elif op == 0x16:  # NOT
                        r[a] = negate_bool(r[b])
                    elif op == 0x21:  # NE
                        r[a] = not equal(r[b], r[c])
                        if work.units:
                            ticks, work.units = ticks - work.units, 0
                    elif op == 0x23:  # LE
                        r[a] = less_or_equal(r[b], r[c])
                    else:
                        raise machinery.unknown(op)
                elif op == 0x41 or op == 0x46:  # CALL_VALUE or METHOD
                    if op == 0x46:
                        x, c = f.constants[c]
                        y = machinery.method(r[b], x, c)
                        if y is None:
                            # A map may hold a function under that name: call it like any other.
                            r[b] = machinery.member(r[b], x)
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
                    r, f = machinery.called(y, r, b + 1, c, x.captured), y
                    code = f.code
                    pc = 0
                    ticks -= 1
                    if ticks < 0:
                        break
                elif op == 0x47:  # CALL_PURE
                    y = functions[b]
                    # What looks ahead is counted: it has to end, whatever it runs into.
                    x = y.pure(r[c : c + y.parameters]) if depth < _PURE_DEPTH_MAX and not fiber.looking else MISS
                    ticks -= 1
                    if x is not MISS:
                        r[a] = x
                    elif tier.paused is not None:  # its turn is over
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
                elif op == 0x45:  # LIBRARY
                    x, y = f.constants[c]
                    if y == 1:
                        r[a] = x(r[b])
                    elif y == 2:
                        r[a] = x(r[b], r[b + 1])
                    else:
                        r[a] = x(*r[b : b + y])
                    if work.units:
                        ticks, work.units = ticks - work.units, 0
                elif op == 0x58:  # LENGTH
                    x = r[b]
                    if type(x) is array or type(x) is text:
                        r[a] = len(x)
                    else:
                        r[a] = length(x)
                elif op == 0x44:  # RETURN_NULL
                    if stack is None:
                        return Done(None)
                    stack, f, pc, r, a = stack
                    depth -= 1
                    code = f.code
                    r[a] = None
                elif op == 0x50:  # LIST
                    r[a] = r[b : b + c]
                elif op == 0x55:  # STORE
                    x = r[a]
                    y = r[b]
                    if type(x) is array and type(y) is integer and 0 <= y < len(x):
                        x[y] = r[c]
                    else:
                        store(x, y, r[c])
                elif op == 0x5A:  # VARIANT
                    r[a] = Err(r[b]) if c else Ok(r[b])
                elif op == 0x42:  # CALL_NAMED
                    x = r[b]
                    if type(x) is not Closure:
                        raise not_callable(x)
                    y = functions[x.function]
                    x = machinery.called_named(y, r, b + 1, f.constants[c][1:], x.captured)
                    stack = (stack, f, pc, r, a)
                    depth += 1
                    r, f = x, y
                    code = f.code
                    pc = 0
                    ticks -= 1
                else:
                    effect = machinery.rare(fiber, f, op, a, b, c, r)
                    if effect is not None:
                        break
            # The loop was left: for an effect, or because a slice is over.
            if effect is None:
                fuel -= SLICE - 1 - ticks  # one slice, and what large steps owe
                ticks = SLICE
                if depth > VEGA_DEPTH_MAX:
                    raise machinery.too_deep()
                if fiber.looking:
                    machinery.look_on(fiber)
                if fuel > 0:
                    continue
                effect = OUT_OF_FUEL
            elif depth > VEGA_DEPTH_MAX and type(effect) is VmEffect and effect.kind in machinery.ASKING:
                fiber.destination = -1
                raise machinery.too_deep()  # between two slices it may be a little deeper, but it asks nobody there
            fiber.code = f
            fiber.pc = pc
            fiber.registers = r
            fiber.ticks = ticks
            fiber.stack = stack
            fiber.depth = depth
            return effect
        except Fault as error:
            fault = error
        except Exception as error:  # noqa: BLE001 - code that no compiler makes must not stop the machine
            fault = Fault("BytecodeError", f"the code does what no compiler makes: {type(error).__name__}: {error}")
        ticks, work.units = ticks - work.units, 0
        fiber.code, fiber.pc, fiber.registers, fiber.ticks = f, pc, r, ticks
        fiber.stack, fiber.depth = stack, depth
        end = machinery.unwind(fiber, fault)
        if end is not None:
            return end
        f, pc, r, stack, depth = fiber.code, fiber.pc, fiber.registers, fiber.stack, fiber.depth
        code = f.code
