"""Reference pages of the Vega language that are tables of the code: its library and its opcodes.

`vega-library.md` comes from `lyra.vega.stdlib.table` and the settings that the checker knows, `vega-opcodes.md` from
`bytecode.opcodes`. The language itself is described in `docs/reference/vega.md`, by hand. Called by `pages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lyra.errors import CODES, ConfigError
from lyra.vega.bytecode.opcodes import OPCODES, Opcode
from lyra.vega.checker import settings
from lyra.vega.checker.types import signature_text, takes_text
from lyra.vega.stdlib.table import ERRORS, GLOBALS, LIBRARY, METHODS, LibraryEntry
from verify.reference.vega_examples import EXAMPLES

Table = Callable[[tuple[str, ...], Sequence[tuple[str, ...]]], str]

_LIBRARY: Final = """\
# Vega: library and settings

{written}

What programs in [Vega](vega.md) can call without importing anything, the errors they can catch, and the settings of
agents, tools and supervision. `name?` may be left out. *Pure* functions only compute; *effects* go through the kernel,
which checks what the program may do. Arguments may be given by the names of the parameters. An example says what
`print` shows for its value.

## Functions without a module

{globals}

{modules}

## Methods

`value.name(…)` is `module::name(value, …)` of the value's kind: `"a,b".split(",")`, `[1, 2].len()`, `m.keys()`. These
kinds have names of their own besides. A map's own functions are called the same way, `m.name(…)`, where no method has
that name:

{methods}

```vega
let text = str::builder();
text.add("a").add(1);
print("${{text.text()}} ${{text.len()}}");
print("${{Ok(1).is_ok()}} ${{Err("no").is_err()}} ${{Ok(5).unwrap()}}");
let span = trace::span("work");
span.end();
```

```text
a1 2
true true 5
```

`unwrap` of an `Err` is an error with its text; `close` of a stream cancels what is still to come.

## Errors

`catch Name` and `catch Name(reason)` take these, and every name that the program itself throws. `catch Error` takes
all.

{errors}

## Settings of an agent

{agent}

{blocks}

## Settings of supervision

After `supervised by`, and in a `supervisor`:

{supervision}

## Settings of a tool

{tool}
"""

_OPCODES: Final = """\
# Vega: opcodes

{written}

Code is a list of `(op, a, b, c)`. Registers hold a function's parameters, then what it captured, then its variables
and temporaries, then its constants. `vega disasm FILE` shows the instructions of a program. The kinds of operands:

| kind | is |
| --- | --- |
| to, from | a register that is written, or read |
| run, count | the first of a run of registers, and how many it has |
| constant | an index into the function's constants |
| target | an index into the code |
| function, global | an index into the program's functions, or the process's globals |
| number | a plain int |

{opcodes}

## Files

A `.vgb` file is `VGB\\0`, a version (2 bytes), the SHA-256 of the rest, and the program as MessagePack of plain data.
Loading one checks the hash, the shape and every instruction; whatever is in the file either runs or is a
`BytecodeError`.
"""


def pages(written: str, table: Table) -> dict[str, str]:
    """The two pages by file name; `table` is how `reference` writes one."""
    return {
        "vega-library.md": _LIBRARY.format(
            written=written,
            globals=_functions(table, "", GLOBALS),
            modules="\n\n".join(f"## {name}\n\n{_functions(table, name, rows)}" for name, rows in LIBRARY.items()),
            methods=_methods(table),
            errors=_errors(table),
            agent=_settings(table, settings.AGENT_FIELDS),
            blocks="\n\n".join(f"### {name}\n\n{_settings(table, rows)}" for name, rows in settings.BLOCKS.items()),
            supervision=_settings(table, settings.SUPERVISION),
            tool=_settings(table, settings.TOOL_SETTINGS),
        ),
        "vega-opcodes.md": _OPCODES.format(written=written, opcodes=_opcodes(table)),
    }


def _functions(table: Table, module: str, rows: Mapping[str, LibraryEntry]) -> str:
    lead = f"{module}::" if module else ""
    return table(
        ("function", "kind", "does", "for example"),
        [
            (
                f"`{lead}{signature_text(name, row)}`",
                "effect" if row.how == "effect" else "pure",
                row.text,
                _example(lead + name),
            )
            for name, row in rows.items()
        ],
    )


def _example(name: str) -> str:
    if name not in EXAMPLES:
        raise ConfigError(f"{name} has no example", hint="give it one in EXAMPLES of verify/reference/vega_examples.py")
    code, result = EXAMPLES[name]
    return f"`{code}` is `{result}`" if result else f"`{code}`"


def _methods(table: Table) -> str:
    rows = [
        (kind, ", ".join(f"`.{name}`" for name in names), ", ".join(f"`{full}`" for full in names.values()))
        for kind, names in METHODS.items()
        if names
    ]
    return table(("kind", "methods", "are"), rows)


def _errors(table: Table) -> str:
    rows = [(f"`{name}`", text) for name, text in ERRORS.items()]
    rows += [
        (f"`{row.catch}`", f"Lyra's `{code}`; see [Errors](errors.md)")
        for code, row in CODES.items()
        if row.catch not in ERRORS
    ]
    return table(("name", "when"), rows)


def _settings(table: Table, rows: Mapping[str, str]) -> str:
    return table(("setting", "takes"), [(f"`{name}`", takes_text(takes)) for name, takes in rows.items()])


def _opcodes(table: Table) -> str:
    rows = [(f"`0x{row.number:02X}`", f"`{row.name}`", _operands(row), row.text) for row in OPCODES.values()]
    return table(("number", "name", "operands", "does"), rows)


def _operands(row: Opcode) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in zip("abc", (row.a, row.b, row.c), strict=True) if kind != "-")
