"""Commands that are read one a line, from a person or from a pipe, and values as they are shown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lyra.cli.render import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.values.redaction import Redaction


VALUE_CHARS_MAX = 300  # of one value on the screen


def next_line(prompt: str) -> str | None:
    """The next command; None at the end of the input. The prompt is shown to a person only."""
    if sys.stdin.isatty():
        click.echo(prompt, nl=False)
    line = sys.stdin.readline()
    return line.strip() if line else None


def say(text: str) -> None:
    click.echo(printable(text))


def shown_values(program: NodeProgram, variables: Mapping[str, Any], redaction: Redaction) -> dict[str, str]:
    """Values as texts, without sensitive ones; long ones are cut."""
    from lyra.vesper.runtime.privacy import sensitive_inputs
    from lyra.vesper.values.json_values import json_shape
    from lyra.vesper.values.redaction import REDACTED

    names = sensitive_inputs(program) | {entry.name for entry in (*program.success, *program.error) if entry.sensitive}
    texts: dict[str, str] = {}
    for name, value in variables.items():
        plain = REDACTED if name in names else json_shape(redaction.value(value))
        text = plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
        texts[name] = text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"
    return texts
