"""`vesper`, and `lyra vesper`: the commands for nodes.

`COMMANDS` is the table; each row's module is imported when its command is called. Whatever they do is done by
`lyra.vesper`: here arguments are read and results shown. `node_files` is what they share.

It stands alone so that `vesper --help` imports no command.
"""

from __future__ import annotations

from typing import Any, Final

import click

from lyra.cli.app import CommandGroup, Lazy
from lyra.errors import SourceError

COMMANDS: Final[dict[str, Lazy]] = {
    "audit": Lazy("lyra.cli.vesper.evidence", "Show which nodes were executed, and how that ended."),
    "compile": Lazy("lyra.cli.vesper.source", "Write the generated Python of a node to a file.", "compile_"),
    "confidence": Lazy("lyra.cli.vesper.evidence", "Show how sure it is that both paths agree."),
    "debug": Lazy("lyra.cli.vesper.debug", "Execute a node and stop at breakpoints, on one path or on both."),
    "divergences": Lazy("lyra.cli.vesper.run", "List the inputs for which the paths of a node differ."),
    "fmt": Lazy("lyra.cli.vesper.source", "Give files of nodes one layout; comments stay."),
    "lsp": Lazy("lyra.cli.vesper.source", "Run the language server on stdin and stdout."),
    "mode": Lazy("lyra.cli.vesper.evidence", "Show or change the mode of a node."),
    "prove": Lazy("lyra.cli.vesper.source", "Prove the contracts of a node, or find an input that breaks one."),
    "replay": Lazy("lyra.cli.vesper.replay", "Go through a stored execution, change it and run on."),
    "repo": Lazy("lyra.cli.vesper.repo", "List, add and compare the nodes of folders or of the store."),
    "run": Lazy("lyra.cli.vesper.run", "Execute a node."),
    "show": Lazy("lyra.cli.vesper.source", "Show a node: inputs, outputs, contracts, steps, rights."),
    "status": Lazy("lyra.cli.vesper.evidence", "Show all nodes that were executed, with mode and evidence."),
    "test": Lazy("lyra.cli.vesper.run", "Run the test cases of nodes on both paths, and compare them."),
    "validate": Lazy("lyra.cli.vesper.source", "Find the mistakes in nodes without running them."),
    "verify": Lazy("lyra.cli.vesper.evidence", "Compare both paths on generated inputs."),
}

_EPILOG: Final = """\
Exit codes: 0 success, 1 the node answered with an error, its paths differ or a test failed,
2 bad usage, a node that is not valid, 3 denied, 4 a limit was hit, 130 interrupted.
"""


class _NodeCommands(CommandGroup):
    """Commands that show the mistakes of a node's file in one way, wherever they meet them."""

    def invoke(self, ctx: click.Context) -> Any:
        from lyra.cli.vesper.node_files import say_problems

        try:
            return super().invoke(ctx)
        except SourceError as error:
            say_problems(error)
            ctx.exit(2)


vesper = _NodeCommands(
    "vesper",
    lazy=COMMANDS,
    help="Check, run, compare and migrate nodes: verified steps with contracts.",
    epilog=_EPILOG,
)
