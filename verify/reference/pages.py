"""The reference pages, written by `python -m verify reference [FOLDER]` from the tables that the code uses.

`configuration.md` comes from `KEYS` and `TABLES` of `lyra.config`, `cli.md` from the click commands and
`lyra.errors.CODES`; the other tables are in `tables`, `grpc`, `http`, `vega` and `vesper`.
The pages are kept in the repository, and a test fails when they differ from what this module would write.
Independent of the terminal's width.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator

import click

from lyra.cli.app import root
from lyra.cli.commands.config import column_type, key_type, show_value
from lyra.config import KEYS, TABLES, SettingKey, SettingTable
from lyra.errors import CODES
from verify.reference import grpc as reference_grpc
from verify.reference import http as reference_http
from verify.reference import tables as reference_tables
from verify.reference import vega as reference_vega
from verify.reference import vesper as reference_vesper

_WRITTEN = "<!-- Written by `python -m verify reference`; change the tables in the code, not this page. -->"

_CONFIGURATION = """\
# Configuration

{written}

One setting has one name everywhere. Sources, the later one wins:

1. the defaults below;
2. your file: `$XDG_CONFIG_HOME/lyra/lyra.toml`, which is `~/.config/lyra/lyra.toml` unless set otherwise;
3. the project's file: `lyra.toml` in the working folder, or in the nearest folder above it;
4. the environment: the variable beside each key, where it is not empty;
5. flags: `--set KEY=VALUE`, which may be repeated.

The machine's own file, `/etc/lyra/lyra.toml`, holds against all of them. It has keys marked *narrows* alone, and can
only tighten: its word counts where yours is looser.

`lyra config show --origin` shows each value in force and where it comes from.

```toml
# lyra.toml
[kernel]
store = ".lyra/lyra.db"
durability = "process"

[budget]
usd = "$5.00"

[grant]
deny = ["net.http"]

[providers.anthropic]
api_key = "env:TEAM_ANTHROPIC_KEY"

[providers.here]
base_url = "http://localhost:8000/v1"

[limits."anthropic/claude-sonnet-4-5"]
requests_per_minute = 50
```

A project's file comes with a repository and is trusted less than you are. Keys marked *narrows*
it can only tighten: of two budgets the smaller holds, of two grants what both allow, whether you wrote yours
in your file, in a variable or as a flag. Keys marked *trusted* count once you
[trust the folder](../how-to/trust.md); until then one that is also marked *tighter* counts where it is tighter than
yours. Not even then can it name `env:` references, but for the keys of models, write outside its folder, or send
anything to an address of its choice. What it asked for in vain is a note of `lyra config show`.

`env:NAME` stands for the value of an environment variable. It is looked up when it is used and never printed.
A password in a store's URL is shown as `***`.

In a variable or a flag a list is written with commas (`fs.read,net.http`) or as JSON, and `none` says that an
optional setting is absent.

{keys}

## What each key means

{meanings}

## Settings under names of your own

An entry is a table of the file (`[providers.here]`), or one setting after `--set`
(`--set providers.here.base_url=http://localhost:8000/v1`); there are no variables for these. An entry in two sources
is the settings of both. Programs find them through `lyra.run` and every `Kernel` that asks a model by its name, except
`sim/…`, which reads no file unless its kernel was made with `Kernel.from_config`.

{tables}
"""

_CLI = """\
# Command line

{written}

`lyra` prints results to stdout and everything else to stderr. With `--json` stdout is one JSON document and
nothing else (`lyra store export` writes one JSON object a line). `--debug`, `--set KEY=VALUE` and
`--trust-folder` go before or after a command's name. Colours are left out when the output is no terminal or
`NO_COLOR` is set. `vega` is `lyra vega` under a name of its own.

## Errors and exit codes

An error is `error[code]: sentence` on stderr, followed by its place and a hint where there is one.

{exits}

## Commands

{commands}
"""

_EXITS = {
    0: "success",
    1: "the program failed, or `doctor` or `check` found something",
    2: "bad usage, source or configuration",
    3: "denied: capability, permission or sandbox",
    4: "a limit was hit: budget, rate or time",
    130: "interrupted with Ctrl-C",
    141: "the reader of stdout went away",
}


def pages() -> dict[str, str]:
    """Every reference page this module owns, by file name."""
    return {
        "configuration.md": _configuration(),
        "cli.md": _cli(),
        **reference_grpc.pages(_WRITTEN, _table),
        **reference_http.pages(_WRITTEN, _table),
        **reference_tables.pages(_WRITTEN, _table),
        **reference_vega.pages(_WRITTEN, _table),
        **reference_vesper.pages(_WRITTEN, _table),
    }


def write(folder: str) -> list[str]:
    """Write the pages into a folder; returns their paths."""
    os.makedirs(folder, exist_ok=True)
    paths = []
    for name, text in pages().items():
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        paths.append(path)
    return paths


def _configuration() -> str:
    rows = [
        (
            f"`{key.name}`",
            key_type(key),
            f"`{show_value(key.default)}`",
            f"`{key.variable}`",
            _in_a_project(key),
        )
        for key in KEYS.values()
    ]
    meanings = "\n".join(f"- `{key.name}`: {key.sentence}" for key in KEYS.values())
    keys = _table(("key", "type", "default", "variable", "in a project's file"), rows)
    tables = "\n\n".join(_entries(table) for table in TABLES.values())
    return _CONFIGURATION.format(written=_WRITTEN, keys=keys, meanings=meanings, tables=tables)


def _in_a_project(key: SettingKey) -> str:
    """How a project's file may set a key."""
    if key.narrows:
        return "narrows, once trusted" if key.type == "file" else "narrows"
    return "trusted, or tighter" if key.tighter else "trusted"


def _entries(table: SettingTable) -> str:
    titles = ("setting", "type", "meaning", "in a project's file")
    rows = [
        (f"`{column.field}`", column_type(column), column.sentence, column.project) for column in table.columns.values()
    ]
    return f"### [{table.section}.{table.name}]\n\n{table.sentence}\n\n{_table(titles, rows)}"


def _cli() -> str:
    codes = {number: ", ".join(f"`{code}`" for code, row in CODES.items() if row.exit == number) for number in _EXITS}
    codes[2] += ", `usage`"
    codes[1] += ", `output`"
    exits = _table(("exit", "means", "codes"), [(str(number), word, codes[number]) for number, word in _EXITS.items()])
    return _CLI.format(written=_WRITTEN, exits=exits, commands="\n\n".join(_commands(root, "lyra", None)))


def _commands(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    ctx = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    yield _section(command, ctx)
    if isinstance(command, click.Group):
        for member in command.list_commands(ctx):
            inner_command = command.get_command(ctx, member)
            if inner_command is not None:
                yield from _commands(inner_command, member, ctx)


def _section(command: click.Command, ctx: click.Context) -> str:
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    params = [param for param in command.get_params(ctx) if isinstance(param, click.Option)]
    options = [record for param in params if (record := param.get_help_record(ctx))]
    parts = [f"### {ctx.command_path}", inspect.cleandoc(command.help or ""), f"    {usage}"]
    if options:
        parts.append(_table(("option", "meaning"), [(f"`{names}`", text) for names, text in options]))
    if command.epilog:
        parts.append(f"```text\n{command.epilog}```")
    return "\n\n".join(parts)


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
