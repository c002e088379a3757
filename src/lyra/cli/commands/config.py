"""`lyra config`: the settings in force, every key there is, and the files they come from.

Prints what `lyra.config` decided and decides nothing. Passwords never reach this module in the clear: a row's
value is already masked. Next: `lyra.config`.
"""

from __future__ import annotations

from typing import Any, Final

import click

from lyra.cli.app import CommandGroup, Invocation, json_option
from lyra.cli.render import document, note, table
from lyra.config import KEYS, TABLES, Column, Config, SettingKey, SettingRow, SettingTable, nested, show_value

__all__ = ["column_name", "column_type", "config", "key_type", "show_value"]


@click.group(cls=CommandGroup)
def config() -> None:
    """Show the settings in force, where each comes from, and every key."""


@config.command()
@click.option("--origin", "with_origin", is_flag=True, help="Show where each value comes from.")
@json_option
@click.pass_obj
def show(invocation: Invocation, *, with_origin: bool, as_json: bool) -> None:
    """Show every setting in force."""
    settings = invocation.config
    waiting = settings.describe_passed_over()
    for sentence in (*settings.notes, *_cheap_prices(settings), *([waiting] if waiting else [])):
        note(f"note: {sentence}")
    if as_json:
        document(_with_origins(settings) if with_origin else settings.to_data())
    elif with_origin:
        table(("key", "value", "origin", "place"), [_cells(row) for row in settings.rows()])
    else:
        table(("key", "value"), [_cells(row)[:2] for row in settings.rows()])


@config.command()
@json_option
def keys(*, as_json: bool) -> None:
    """List every key: its type, default, variable and meaning."""
    columns = [(entry, column) for entry in TABLES.values() for column in entry.columns.values()]
    if as_json:
        document([*(_describe(key) for key in KEYS.values()), *(_describe_column(*column) for column in columns)])
        return
    rows = [(key.name, key_type(key), show_value(key.default), key.variable, key.sentence) for key in KEYS.values()]
    rows += [
        (column_name(entry, column), column_type(column), "none", "", column.sentence) for entry, column in columns
    ]
    table(("key", "type", "default", "variable", "meaning"), rows)


@config.command()
@json_option
@click.pass_obj
def path(invocation: Invocation, *, as_json: bool) -> None:
    """List the settings files in force, weakest first."""
    files = invocation.config.files
    if as_json:
        document([{"kind": kind, "path": file} for kind, file in files])
        return
    for _, file in files:
        click.echo(file)
    if not files:
        note("no settings file: defaults, variables and flags only")


def key_type(key: SettingKey) -> str:
    """Return a key's type and bounds, in words."""
    if key.words:
        return " or ".join(key.words)
    words = {
        "store": "path or URL",
        "money": "dollars",
        "rules": "list of capabilities",
        "count": "whole number",
        "model": "name of a model",
    }
    text = words.get(key.type, key.type)
    if key.type in ("seconds", "count") and (key.least, key.most) != (0, 1e12):
        text += f", {key.least:,.10g} to {key.most:,.10g}" if key.most != 1e12 else f", at least {key.least:g}"
    return f"{text}, or none" if key.optional else text


def column_name(entry: SettingTable, column: Column) -> str:
    """Return a setting under a free name, as the reference writes it."""
    return f"{entry.section}.{entry.name}.{column.field}"


def column_type(column: Column) -> str:
    """Return a column's type, in words."""
    return " or ".join(column.words) or _COLUMN_TYPES[column.type]


_COLUMN_TYPES: Final = {
    "secret": "text or `env:NAME`",
    "url": "address",
    "text": "text",
    "flag": "true or false",
    "timeouts": "table of seconds",
    "headers": "table of texts",
    "usd": "dollars",
    "count": "whole number, at least 1",
    "texts": "list of texts",
    "hosts": "list of hosts",
    "paths": "list of folders",
    "environment": "table of texts or `env:NAME`",
    "seconds": "seconds",
    "auth": "table",
    "commands": "command line, or list of them",
    "command": "command line",
}


def _cells(row: SettingRow) -> tuple[str, str, str, str]:
    return row.name, show_value(row.value), row.origin.kind, row.origin.place or ""


def _with_origins(settings: Config) -> dict[str, dict[str, Any]]:
    return nested(
        (row, {"value": row.value, "origin": row.origin.kind, "place": row.origin.place}) for row in settings.rows()
    )


def _cheap_prices(settings: Config) -> list[str]:
    """Name the prices of a project that are below the published ones, and so not used; that is known only here, where
    prices are looked up."""
    if not settings.project_prices:
        return []
    from lyra.models.pricing import Price, price_of

    notes = []
    for name in sorted(settings.project_prices):
        published, asked = price_of(name), Price.from_data(settings.prices[name])
        if published is not None and not asked.covers(published):
            place = settings.origin(f"prices.{name}.input_usd_per_mtok").place
            notes.append(f"{place}: a project can only raise prices.{name}; the published price holds")
    return notes


def _describe(key: SettingKey) -> dict[str, Any]:
    return {
        "key": key.name,
        "type": key_type(key),
        "default": key.default,
        "variable": key.variable,
        "project_narrows": key.narrows,
        "meaning": key.sentence,
    }


def _describe_column(entry: SettingTable, column: Column) -> dict[str, Any]:
    return {
        "key": column_name(entry, column),
        "type": column_type(column),
        "default": None,
        "variable": None,
        "project_narrows": column.project in ("narrows", "raises"),
        "meaning": column.sentence,
    }
