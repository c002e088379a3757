"""`vesper fmt`: files of nodes in one layout."""

from __future__ import annotations

import click

from lyra.cli.app import CliCommand
from lyra.cli.render import note, printable
from lyra.cli.vesper.node_files import node_files, say_problems, source_of
from lyra.errors import ConfigError, SourceError


@click.command(cls=CliCommand, name="fmt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 if a file has another layout.")
@click.option("--stdout", "to_stdout", is_flag=True, help="Print the formatted text; change no file.")
@click.pass_context
def fmt(ctx: click.Context, /, *, files: tuple[str, ...], only_check: bool, to_stdout: bool) -> None:
    """Lay out FILEs (.vsp files, or folders of them) in the one way; what they mean and their comments stay."""
    from lyra.vesper.format.layout import format_text

    is_broken = differs = False
    for path in node_files(files):
        try:
            text, name = source_of(path)
            result = format_text(text, name)
        except (SourceError, ConfigError) as error:
            say_problems(error)
            is_broken = True
            continue
        if to_stdout:
            click.echo(result, nl=False)
        is_changed = result.encode() != path.read_bytes()
        differs = differs or is_changed
        if is_changed and only_check:
            note(printable(f"{path} has another layout"))
        elif is_changed and not to_stdout:
            path.write_text(result, encoding="utf-8", newline="\n")
            note(printable(f"formatted {path}"))
    ctx.exit(2 if is_broken else 1 if only_check and differs else 0)
