"""`vega lsp`: the language server that editors start."""

from __future__ import annotations

import click

from lyra.cli.app import CliCommand
from lyra.errors import ConfigError


@click.command(cls=CliCommand, name="lsp")
@click.pass_context
def lsp(ctx: click.Context, /) -> None:
    """Run the language server on stdin and stdout.

    An editor starts it; see the how-to page "Write Vega in an editor". Needs the lsp extra.
    """
    try:
        import pygls  # noqa: F401
    except ImportError:
        raise ConfigError("the language server needs the lsp extra", hint="pip install 'lyra-agents[lsp]'") from None
    from lyra.vega.lsp.features import serve
    from lyra.vesper.runtime.faces import read_file

    ctx.exit(serve(read_node=read_file))
