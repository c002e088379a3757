"""A compiled program as plain data: what the compiler makes, a `.vgb` holds and the VM links and runs.

`Function` is one body of register code; `Program` is all of them with what a host has to know about agents, tools,
supervisors and tests. Nothing here is executable: `linked` turns a function into what the VM's loop reads. A constant
is null, bool, int, float, str, Money, Duration, or a list of str and int (names and counts for an instruction).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

Instruction = tuple[int, int, int, int]

_COLUMN_BITS = 20

# Capabilities as programs may write them too → as the kernel knows them.
SPELLINGS: Final = {"http.get": "net.http", "http.post": "net.http", "file.read": "fs.read", "file.write": "fs.write"}


class Handler(msgspec.Struct, array_like=True, frozen=True):
    """An error thrown in code[start:end] continues at `target`, with the error in `register`. Inner ones come first."""

    start: int
    end: int
    target: int
    register: int


class Parameter(msgspec.Struct, array_like=True, frozen=True):
    name: str
    type: str = ""
    has_default: bool = False


class Function(msgspec.Struct, kw_only=True):
    """`registers` counts the function's own; its pinned constants follow them. `places` has line and column of each
    instruction in one int. An `is_hidden` function is the library's: errors in it are shown at its caller. `tree` is
    what a pure function can be generated from, see `compiler.pure_trees`."""

    name: str
    file: int = 0
    parameters: list[Parameter] = []
    captures: int = 0
    registers: int = 0
    pinned: int = 0
    constants: list[Any] = []
    code: list[Instruction] = []
    places: list[int] = []
    handlers: list[Handler] = []
    is_hidden: bool = False
    tree: list[Any] | None = None

    @property
    def required(self) -> int:
        return sum(not parameter.has_default for parameter in self.parameters)

    def place(self, index: int) -> tuple[int, int]:
        """Line and column of an instruction; (0, 0) when unknown."""
        if not 0 <= index < len(self.places):
            return 0, 0
        return self.places[index] >> _COLUMN_BITS, self.places[index] & ((1 << _COLUMN_BITS) - 1)


def pack_place(line: int, column: int) -> int:
    return (line << _COLUMN_BITS) | min(column, (1 << _COLUMN_BITS) - 1)


class ToolInfo(msgspec.Struct, kw_only=True):
    """A tool: its function, and under which name its settings stand in the agent's (or its own) configuration."""

    name: str
    function: int
    parameters: list[Parameter] = []
    result: str = ""
    configuration: int = -1  # a function that gives the settings of a shared tool


class AgentInfo(msgspec.Struct, kw_only=True):
    """An agent or supervisor: `configuration` is the function that gives its fields as a map when it is spawned;
    `is_early` says that nothing about the agent keeps it from being asked ahead of its turn."""

    name: str
    kind: str
    configuration: int
    tools: list[ToolInfo] = []
    is_early: bool = False
    file: int = 0
    line: int = 0
    column: int = 0


class TestInfo(msgspec.Struct, kw_only=True):
    __test__ = False  # a name that pytest would collect

    name: str
    function: int


class Program(msgspec.Struct, kw_only=True):
    """`entry` runs first and calls `main` if there is one. `imports` are what a host must provide: [kind, target,
    name]; of a node also its file, its text and the names of its inputs."""

    name: str
    files: list[str] = []
    functions: list[Function] = []
    globals: list[str] = []
    entry: int = 0
    main: int = -1
    agents: dict[str, AgentInfo] = {}
    tools: dict[str, ToolInfo] = {}
    tests: list[TestInfo] = []
    imports: list[list[str]] = []
