"""Reference pages that are tables of the code: errors, events, capabilities, metrics, limits, slash commands.

`errors.md` comes from the tree in `lyra.errors` and its `CODES`, `events.md` from `lyra.core.event.KINDS` and the
row types of the journal and the subsystems, `capabilities.md` from `rights.capability`, `limits.md` from the source
of `lyra.core.limits`, where each number has its reason beside it,
`slash-commands.md` from the table that `run_command` reads. Called by `pages`, which writes all of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from lyra import errors
from lyra.core import limits
from lyra.core.event import KINDS
from lyra.core.rights import capability
from lyra.kernel import Kernel
from lyra.kernel.journal.rows import DECODERS
from lyra.observe.metrics import LABEL_VALUES_MAX, METRICS
from lyra.sage.commands.registry import ALIASES, COMMANDS

Table = Callable[[tuple[str, ...], Sequence[tuple[str, ...]]], str]

_ERRORS: Final = """\
# Errors

{written}

Every error is a `LyraError` from `lyra.errors`: one sentence, an optional place and hint, and its facts as fields,
which also read as attributes (`error.limit`). `render()` gives the lines that the command line prints. The code is
stable and goes into journals; the other columns say how the error looks on each surface.

A *retryable* error may go away by itself. What `Retry` does with an error follows from its error class; see
[Retries and limits](../how-to/retries-and-limits.md).

## The tree

```text
{tree}
```

## The codes

{codes}
"""

_EVENTS: Final = """\
# Events

{written}

An `Event` is an immutable fact: `seq`, `time`, `pid`, `kind`, `data`. `kernel.on_event(listener)` calls the listener
with every Event, after it is durable. Kinds marked *journaled* are rows of the store and have a `seq`. Entries of the
process table and questions about them are kept as `pcb.…` rows: their `process.…`, `interrupt.…` and `resource.…`
Events follow those rows, once they are durable, with `seq` 0; the first two carry the whole picture as `pcb` or
`interrupt`.
The others are told to listeners only, with `seq` 0, and leave no trace. A kernel in memory journals nothing and
publishes the same kinds with less data.

{kinds}

`lyra store export` prints the journaled ones, one JSON object a line.
"""

_CAPABILITIES: Final = """\
# Capabilities

{written}

A capability is a right, written `verb.object:scope`, such as `fs.read:/project/**`. Without a scope it is
everything (`**`). How to use them is in [Budgets and grants](../how-to/budgets-and-grants.md).

## Verbs

{verbs}

A grant binds what processes do: programs, agents, their tools, Vega, pipelines, and every call of the kernel that is
made inside one of them. Python code outside any process acts for the kernel itself and is not checked; what it starts
is narrowed by the kernel's own grant. An effect or a tool that declares a right is checked for it, whatever the right
is. A handler, a subscriber or a listener acts for the process that handed it in. A process that answers
a question or takes one back, its own too, needs `process.send` for the process that asked, also by `resolve` and
`cancel` of `kernel.interrupts`.

A list of what is allowed is all that is allowed. A process that goes by several names (its name, its pid, its program
or agent) is allowed by any of them and denied by any of them. What follows from another right needs no rule of its own,
and is refused by a deny alone: to send to the children that a process started, and for the caller of
`ToolRegistry.call` to use the tool. Replies to an agent's caller, the kernel's question about an effect in doubt and
the work of supervisors need no right.

Another pair of words (`calendar.read`) is a right of your own; its scope is read as plain text. A pair that looks like
a slip of the finger for a known one (`fs.raed`) is refused. In a grant, `*` stands for every right and `fs.*` for all
of one object.

## Scopes

{scopes}

## Other spellings

`fs::read` and `fs:read` are `fs.read`. These words are read as others:

{spellings}
"""

_LIMITS: Final = """\
# Limits

{written}

Every bound and default, from `lyra.core.limits`. Those with a key in [Configuration](configuration.md) can be changed
there. The quotas are those of entries in the process table, the bounds of an envelope those of pipelines.

{sections}
"""

_METRICS: Final = """\
# Metrics

{written}

What `/metrics` of `lyra serve`, and `render()` of `lyra.observe.attach_metrics`, give to Prometheus. How to use them is
in [Export traces, metrics and logs](../how-to/telemetry.md). A label has at most {values} values; a value that comes
after them, or that is no short plain word, is `other`.

{metrics}

Nodes have `sir_executions_total`, `sir_execution_duration_ms`, `sir_executions_errors`, `sir_divergences`,
`sir_confidence` and `sir_traffic_split`, and the metrics that they declare.
"""

_SCOPES: Final = {
    "path": ("`/`", "an absolute path; `*` within one folder, `**` across folders; `..` and relative paths are denied"),
    "host": (
        "`.`",
        "a host name and perhaps a port, `api.example.com:443`; `*.example.com` is one label, `**` any number",
    ),
    "command": (
        "space",
        "a command line; a program's name alone allows any arguments; chains only where they match exactly",
    ),
    "dotted": ("`.`", "dotted words such as a table or an event type"),
    "plain": ("`/`", "a name"),
}


_SLASH_COMMANDS: Final = """\
# Slash commands

{written}

In a session of `sage` a line that begins with `/` is a command. In brackets: what may be left out. Words with blanks
are put in quotes. Beside these there are [commands of your own](../how-to/extend-sage.md) and prompts of MCP servers
(`/SERVER:PROMPT`). [Use Sage's commands](../how-to/sage-commands.md) shows them at work.

{commands}

Other names: {aliases}.
"""


def pages(written: str, table: Table) -> dict[str, str]:
    """Return the six pages by file name; `table` writes a table."""
    return {
        "errors.md": _ERRORS.format(written=written, tree="\n".join(_tree(errors.LyraError, 0)), codes=_codes(table)),
        "events.md": _EVENTS.format(written=written, kinds=_kinds(table)),
        "capabilities.md": _CAPABILITIES.format(
            written=written, verbs=_verbs(table), scopes=_scopes(table), spellings=_spellings(table)
        ),
        "metrics.md": _METRICS.format(written=written, values=LABEL_VALUES_MAX, metrics=_metrics(table)),
        "limits.md": _LIMITS.format(written=written, sections="\n\n".join(_sections(table))),
        "slash-commands.md": _SLASH_COMMANDS.format(
            written=written,
            commands=table(("command", ""), [(f"`{command.usage}`", command.help) for command in COMMANDS.values()]),
            aliases=", ".join(f"`/{name}` is `/{command}`" for name, command in ALIASES.items()),
        ),
    }


def _own(cls: type[errors.LyraError]) -> list[type[errors.LyraError]]:
    """Subclasses that Lyra itself defines; a user's program may have added its own."""
    return [sub for sub in cls.__subclasses__() if sub.__module__ == errors.__name__]


def _tree(cls: type[errors.LyraError], depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}{cls.__name__}"
    for sub in _own(cls):
        yield from _tree(sub, depth + 1)


def _by_code(cls: type[errors.LyraError]) -> dict[str, type[errors.LyraError]]:
    classes = {cls.code: cls}
    for sub in _own(cls):
        classes.update(_by_code(sub))
    return classes


def _codes(table: Table) -> str:
    classes = _by_code(errors.LyraError)
    rows = [
        (
            f"`{code}`",
            f"`{classes[code].__name__}`",
            "yes" if classes[code].retryable else "",
            str(row.exit),
            row.grpc,
            str(row.http),
        )
        for code, row in errors.CODES.items()
    ]
    return table(("code", "class", "retryable", "exit", "gRPC", "HTTP"), rows)


def _kinds(table: Table) -> str:
    kept = {*DECODERS, *(kind for state in Kernel().states.values() for kind in state.KINDS)}
    rows = [(f"`{kind}`", "journaled" if kind in kept else "", text) for kind, text in KINDS.items()]
    return table(("kind", "kept", "meaning"), rows)


def _metrics(table: Table) -> str:
    rows = [(f"`{name}`", row.type, ", ".join(row.labels), row.help) for name, row in METRICS.items()]
    return table(("name", "type", "labels", "meaning"), rows)


def _verbs(table: Table) -> str:
    rows = [(f"`{name}`", verb.kind, verb.sentence, verb.checked) for name, verb in capability.VERBS.items()]
    return table(("verb", "scope", "allows to", "checked where"), rows)


def _scopes(table: Table) -> str:
    used = dict.fromkeys(verb.kind for verb in capability.VERBS.values())
    return table(("scope", "parts are separated by", "is"), [(kind, *_SCOPES[kind]) for kind in used])


def _spellings(table: Table) -> str:
    rows = [(f"`{word}.…`", f"`{other}.…`") for word, other in capability._OBJECTS.items()]
    rows += [(f"`{word}`", f"`{other}`") for word, other in capability._NAMES.items()]
    return table(("written", "read as"), rows)


_TITLE = re.compile(r"^# -{20,} (.+)$")
_LIMIT = re.compile(r"^([A-Z_]+): Final = (.+?)(?:\s+# (.+))?$")
_DEFAULT = re.compile(r'^    "(\w+)": (.+?),(?:\s+# (.+))?$')


def _sections(table: Table) -> Iterator[str]:
    """One table for each titled part of the file, in its order."""
    title, rows = "", list[tuple[str, ...]]()
    for line in inspect.getsource(limits).replace("(\n    ", "").replace("\n)", "").splitlines():
        if match := _TITLE.match(line):
            if rows:
                yield f"## {title}\n\n{table(('name', 'value', 'why'), rows)}"
            title, rows = match[1][0].upper() + match[1][1:], []
        elif match := _LIMIT.match(line) or _DEFAULT.match(line):
            rows.append((f"`{match[1]}`", f"`{_value(match[1], match[2])}`", match[3] or ""))
    yield f"## {title}\n\n{table(('name', 'value', 'why'), rows)}"


def _value(name: str, text: str) -> str:
    value: Any = getattr(limits, name, None)
    if value is None or name == "MONEY_MICRO_USD_MAX":
        return text
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else f"{value:g}"
