"""Writes the reference pages: `python -m lyra.cli.reference [FOLDER]`."""

from __future__ import annotations

import os
import sys

import click

from lyra.cli.reference.pages import write

if __name__ == "__main__":
    for page in write(sys.argv[1] if len(sys.argv) > 1 else os.path.join("docs", "reference")):
        click.echo(page)
