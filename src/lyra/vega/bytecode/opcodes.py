"""The one table of opcodes: number, name, operands, a sentence. Everything that knows an opcode reads it here.

Code is a list of `(op, a, b, c)`; registers hold a function's parameters, then what it captured, then its variables
and temporaries, then its constants, so that an operand may be any of them. Numbers 0x90–0xC2 are those of the
language specification. The kinds of operands (what the verifier checks and the disassembler writes):

    to        a register that is written            from      a register that is read
    run       the first of a run of registers       count     how many that run has
    constant  an index into the constants           target    an index into the code
    function  an index into the program's functions global    an index into the process's globals
    number    a plain int                           -         not used

Where a run has no count beside it, its length is in the opcode's `length`: a number, `parameters` (of the function
called), `named` or `counted` (the constant says it).
"""

from __future__ import annotations

from typing import Final, NamedTuple

ANY_LENGTH: Final = 0x7FFFFFFF  # operand c of UNLESS_LIST that accepts a list of every length


class Opcode(NamedTuple):
    number: int
    name: str
    a: str
    b: str
    c: str
    text: str
    length: int | str = 0  # of a run without a count
    constant: str = ""  # what kind of constant it needs: "" any value, "name", "names", "counted", "registers"
    leaves: bool = False  # control never continues to the next instruction


def _row(
    number: int, name: str, operands: str, text: str, length: int | str = 0, constant: str = "", *, leaves: bool = False
) -> Opcode:
    a, b, c = operands.split()
    return Opcode(number, name, a, b, c, text, length, constant, leaves)


_ROWS: Final = (
    # ---- moving values
    _row(0x00, "NOP", "- - -", "does nothing"),
    _row(0x01, "MOVE", "to from -", "copies a register"),
    _row(0x02, "CONSTANT", "to constant -", "loads a constant that has no register"),
    _row(0x03, "CELL", "to - -", "makes an empty variable for closures to share"),
    _row(0x04, "CELL_OF", "to from -", "makes a shared variable that holds a value"),
    _row(
        0x05,
        "CELL_GET",
        "to from constant",
        "reads a shared variable (named c in the error when unset)",
        constant="name",
    ),
    _row(0x06, "CELL_SET", "from from -", "sets a shared variable"),
    _row(0x07, "GLOBAL_GET", "to global constant", "reads a global (named c in the error when unset)", constant="name"),
    _row(0x08, "GLOBAL_SET", "global from -", "sets a global"),
    _row(
        0x09,
        "CLOSURE",
        "to function constant",
        "makes a function value from the registers listed in c",
        constant="registers",
    ),
    _row(0x0A, "DEFAULT", "from target -", "jumps when the argument was given"),
    # ---- arithmetic
    _row(0x10, "ADD", "to from from", "b + c"),
    _row(0x11, "SUB", "to from from", "b - c"),
    _row(0x12, "MUL", "to from from", "b * c"),
    _row(0x13, "DIV", "to from from", "b / c, truncated for ints"),
    _row(0x14, "MOD", "to from from", "b % c, with the sign of b"),
    _row(0x15, "NEG", "to from -", "-b"),
    _row(0x16, "NOT", "to from -", "!b"),
    _row(0x17, "ADD_INT", "to from number", "b + the number c"),
    _row(0x18, "SUB_INT", "to from number", "b - the number c"),
    _row(0x19, "JOIN", "to run count", "the texts of a run of registers, joined"),
    # ---- comparison
    _row(0x20, "EQ", "to from from", "b == c, deep"),
    _row(0x21, "NE", "to from from", "b != c, deep"),
    _row(0x22, "LT", "to from from", "b < c"),
    _row(0x23, "LE", "to from from", "b <= c"),
    # ---- jumps
    _row(0x30, "JUMP", "target - -", "goes on at a", leaves=True),
    _row(0x31, "LOOP", "target - -", "goes back to a; costs fuel", leaves=True),
    _row(0x32, "IF", "target from -", "goes on at a when b is true"),
    _row(0x33, "UNLESS", "target from -", "goes on at a when b is false"),
    _row(0x34, "UNLESS_EQ", "target from from", "goes on at a unless b == c"),
    _row(0x35, "UNLESS_NE", "target from from", "goes on at a unless b != c"),
    _row(0x36, "UNLESS_LT", "target from from", "goes on at a unless b < c"),
    _row(0x37, "UNLESS_LE", "target from from", "goes on at a unless b <= c"),
    _row(0x38, "LOOP_IF", "target from -", "goes back to a when b is true; costs fuel"),
    _row(0x39, "LOOP_EQ", "target from from", "goes back to a when b == c; costs fuel"),
    _row(0x3A, "LOOP_NE", "target from from", "goes back to a when b != c; costs fuel"),
    _row(0x3B, "LOOP_LT", "target from from", "goes back to a when b < c; costs fuel"),
    _row(0x3C, "LOOP_LE", "target from from", "goes back to a when b <= c; costs fuel"),
    # ---- calls
    _row(0x40, "CALL", "to function run", "calls a known function with its arguments from c on", "parameters"),
    _row(0x41, "CALL_VALUE", "to run count", "calls the function in b with the c registers after it", 1),
    _row(0x42, "CALL_NAMED", "to run constant", "the same with named arguments", "named", "names"),
    _row(0x43, "RETURN", "from - -", "ends the function with a value", leaves=True),
    _row(0x44, "RETURN_NULL", "- - -", "ends the function with null", leaves=True),
    _row(0x45, "LIBRARY", "to run constant", "calls a pure function of the library", "counted", "counted"),
    _row(
        0x47,
        "CALL_PURE",
        "to function run",
        "CALL of a pure function; linking alone makes it, in a file it is refused",
        "parameters",
    ),
    _row(0x46, "METHOD", "to run constant", "calls a method of the value in b", "counted", "counted"),
    # ---- lists, maps, results
    _row(0x50, "LIST", "to run count", "makes a list of a run of registers"),
    _row(0x51, "LIST_ADD", "from run count", "adds a run of registers to a list"),
    _row(0x52, "MAP", "to run count", "makes a map of a run of registers, key value key value"),
    _row(0x53, "MAP_ADD", "from run count", "adds keys and values to a map"),
    _row(0x54, "INDEX", "to from from", "b[c]"),
    _row(0x55, "STORE", "from from from", "a[b] = c"),
    _row(0x56, "FIELD", "to from constant", "b.name", constant="name"),
    _row(0x57, "SET_FIELD", "from constant from", "a.name = c", constant="name"),
    _row(0x58, "LENGTH", "to from -", "the length of a list, map, str or builder"),
    _row(0x59, "PUSH", "to from from", "adds c to the end of the list b"),
    _row(0x5A, "VARIANT", "to from number", "Ok(b), or Err(b) when c is 1"),
    # ---- loops over values; a and a + 1 are the loop's own
    _row(0x60, "ITERATE", "to from -", "begins a loop over a list, map, str or stream"),
    _row(0x61, "NEXT", "run to target", "takes the next item and goes back to c, or goes on at the end; costs fuel", 2),
    _row(0x62, "STREAM_CLOSE", "from - -", "closes the stream of a loop that is left early"),
    # ---- errors and patterns
    _row(0x70, "THROW", "from constant -", "throws the text in a under a name", constant="name", leaves=True),
    _row(0x71, "RETHROW", "from - -", "throws a caught error again, with its first place", leaves=True),
    _row(
        0x72, "UNLESS_ERROR", "target from constant", "goes on at a unless the error b has that name", constant="name"
    ),
    _row(0x73, "ERROR_TEXT", "to from -", "the text of an error"),
    _row(
        0x74,
        "UNLESS_LIST",
        "target from number",
        "goes on at a unless b is a list of exactly c items, with c = 2147483647 of any number",
    ),
    _row(0x75, "UNLESS_VARIANT", "target from number", "goes on at a unless b is an Ok, or with c = 1 an Err"),
    _row(0x76, "NO_MATCH", "from - -", "throws MatchError: no arm fits", leaves=True),
    _row(0x77, "ITEM", "to from number", "the item at a known index of a list just tested"),
    _row(0x78, "INNER", "to from -", "what an Ok or Err holds"),
    # ---- processes
    _row(
        0x80,
        "RECEIVE",
        "run number -",
        "begins a receive: a is its place, a + 1 the time-out (if b is 1), a + 2 its number",
        3,
    ),
    _row(0x81, "RECEIVE_NEXT", "run to target", "looks at the next message, waits for one, or goes on at c in time", 3),
    _row(0x82, "RECEIVE_TAKE", "run - -", "takes the message just looked at out of the mailbox", 3),
    _row(0x83, "SPAWN", "to run constant", "starts a process", 3, "names"),
    _row(0x84, "SEND", "to from from", "sends c to the process b"),
    _row(0x85, "AWAIT", "to from -", "waits for a future or a stream"),
    _row(0x86, "EFFECT", "to run constant", "asks the host for a library call", "counted", "counted"),
    _row(0x87, "PRINT", "from - -", "writes a line"),
    _row(
        0x88,
        "SEND_WITH",
        "to run number",
        "sends b + 1 to b; c says which of time-out b + 2 and budget b + 3 are set",
        4,
    ),
    _row(0x90, "SPAWN_SUPERVISED", "to run constant", "starts a process with its own supervision", 3, "names"),
    _row(0x91, "LINK", "to from -", "links this process with another"),
    _row(0x92, "MONITOR", "to from -", "asks to be told of a process's end"),
    _row(0x93, "EXIT", "from - -", "ends this process with a reason"),
    # ---- streams
    _row(0xA0, "SEND_STREAM", "to run number", "sends as SEND_WITH does and gives a stream", 4),
    _row(0xA1, "STREAM_NEXT", "to from -", "the next chunk of a stream in a list of one, or null"),
    _row(0xA2, "STREAM_DONE", "to from -", "whether that was null: the stream is exhausted"),
    # ---- budgets
    _row(0xB0, "BUDGET_ENTER", "from - -", "opens a budget scope of that amount"),
    _row(0xB1, "BUDGET_EXIT", "- - -", "closes the innermost budget scope"),
    _row(0xB2, "BUDGET_CHECK", "to number -", "what of the innermost scope remains (0), is used (1), is its limit (2)"),
    _row(
        0xB3,
        "BUDGET_RESERVE",
        "from - -",
        "reserved: sets an amount aside before a call; not emitted, as each call reserves its own cost",
    ),
    # ---- parallel
    _row(
        0xC0,
        "PAR_BEGIN",
        "to number -",
        "begins a group of calls that run together; with b = 1 of calls ahead of their turn, null where that is off",
    ),
    _row(
        0xC1,
        "PAR_SPAWN",
        "run constant -",
        "adds a send or a call to the group in a; its result comes at the join",
        5,
        "names",
    ),
    _row(
        0xC2,
        "PAR_JOIN",
        "to run constant",
        "waits for the group in b (all: a list in the order of the source), for one call (look, take), or "
        "ends it; spawns an agent that it may have asked",
        5,
        "names",
    ),
    _row(0xFF, "HALT", "- - -", "ends the process", leaves=True),
)

OPCODES: Final[dict[int, Opcode]] = {row.number: row for row in _ROWS}
BY_NAME: Final[dict[str, Opcode]] = {row.name: row for row in _ROWS}
assert len(OPCODES) == len(BY_NAME) == len(_ROWS), "every opcode has a number and a name of its own"

# The same numbers as constants, for code that names them; a test compares them with the table.
OP_NOP: Final = 0x00
OP_MOVE: Final = 0x01
OP_CONSTANT: Final = 0x02
OP_CELL: Final = 0x03
OP_CELL_OF: Final = 0x04
OP_CELL_GET: Final = 0x05
OP_CELL_SET: Final = 0x06
OP_GLOBAL_GET: Final = 0x07
OP_GLOBAL_SET: Final = 0x08
OP_CLOSURE: Final = 0x09
OP_DEFAULT: Final = 0x0A
OP_ADD: Final = 0x10
OP_SUB: Final = 0x11
OP_MUL: Final = 0x12
OP_DIV: Final = 0x13
OP_MOD: Final = 0x14
OP_NEG: Final = 0x15
OP_NOT: Final = 0x16
OP_ADD_INT: Final = 0x17
OP_SUB_INT: Final = 0x18
OP_JOIN: Final = 0x19
OP_EQ: Final = 0x20
OP_NE: Final = 0x21
OP_LT: Final = 0x22
OP_LE: Final = 0x23
OP_JUMP: Final = 0x30
OP_LOOP: Final = 0x31
OP_IF: Final = 0x32
OP_UNLESS: Final = 0x33
OP_UNLESS_EQ: Final = 0x34
OP_UNLESS_NE: Final = 0x35
OP_UNLESS_LT: Final = 0x36
OP_UNLESS_LE: Final = 0x37
OP_LOOP_IF: Final = 0x38
OP_LOOP_EQ: Final = 0x39
OP_LOOP_NE: Final = 0x3A
OP_LOOP_LT: Final = 0x3B
OP_LOOP_LE: Final = 0x3C
OP_CALL: Final = 0x40
OP_CALL_VALUE: Final = 0x41
OP_CALL_NAMED: Final = 0x42
OP_RETURN: Final = 0x43
OP_RETURN_NULL: Final = 0x44
OP_LIBRARY: Final = 0x45
OP_METHOD: Final = 0x46
OP_CALL_PURE: Final = 0x47
OP_LIST: Final = 0x50
OP_LIST_ADD: Final = 0x51
OP_MAP: Final = 0x52
OP_MAP_ADD: Final = 0x53
OP_INDEX: Final = 0x54
OP_STORE: Final = 0x55
OP_FIELD: Final = 0x56
OP_SET_FIELD: Final = 0x57
OP_LENGTH: Final = 0x58
OP_PUSH: Final = 0x59
OP_VARIANT: Final = 0x5A
OP_ITEM: Final = 0x77
OP_INNER: Final = 0x78
OP_ITERATE: Final = 0x60
OP_NEXT: Final = 0x61
OP_STREAM_CLOSE: Final = 0x62
OP_THROW: Final = 0x70
OP_RETHROW: Final = 0x71
OP_UNLESS_ERROR: Final = 0x72
OP_ERROR_TEXT: Final = 0x73
OP_UNLESS_LIST: Final = 0x74
OP_UNLESS_VARIANT: Final = 0x75
OP_NO_MATCH: Final = 0x76
OP_RECEIVE: Final = 0x80
OP_RECEIVE_NEXT: Final = 0x81
OP_RECEIVE_TAKE: Final = 0x82
OP_SPAWN: Final = 0x83
OP_SEND: Final = 0x84
OP_AWAIT: Final = 0x85
OP_EFFECT: Final = 0x86
OP_PRINT: Final = 0x87
OP_SEND_WITH: Final = 0x88
OP_SPAWN_SUPERVISED: Final = 0x90
OP_LINK: Final = 0x91
OP_MONITOR: Final = 0x92
OP_EXIT: Final = 0x93
OP_SEND_STREAM: Final = 0xA0
OP_STREAM_NEXT: Final = 0xA1
OP_STREAM_DONE: Final = 0xA2
OP_BUDGET_ENTER: Final = 0xB0
OP_BUDGET_EXIT: Final = 0xB1
OP_BUDGET_CHECK: Final = 0xB2
OP_BUDGET_RESERVE: Final = 0xB3
OP_PAR_BEGIN: Final = 0xC0
OP_PAR_SPAWN: Final = 0xC1
OP_PAR_JOIN: Final = 0xC2
OP_HALT: Final = 0xFF
