"""`vega`, and `lyra vega`: the commands of the Vega language.

`COMMANDS` is the table; each row's module is imported when its command is called. Whatever they do is done by
`lyra.vega`: here arguments are read and results shown. `files` is what they share.

It stands alone so that `vega --help` imports no command.
"""

from __future__ import annotations

from typing import Final

from lyra.cli.app import CommandGroup, Lazy

COMMANDS: Final[dict[str, Lazy]] = {
    "answer": Lazy("lyra.cli.vega.runs", "Answer a question of a run; without an answer, list its questions."),
    "cancel": Lazy("lyra.cli.vega.runs", "Cancel a run, also one that another process executes."),
    "check": Lazy("lyra.cli.vega.source", "Find the mistakes in programs without running them."),
    "compile": Lazy("lyra.cli.vega.source", "Compile a program to a .vgb file.", "compile_"),
    "disasm": Lazy("lyra.cli.vega.source", "Show the instructions of a program."),
    "fmt": Lazy("lyra.cli.vega.source", "Format programs."),
    "lsp": Lazy("lyra.cli.vega.source", "Run the language server on stdin and stdout."),
    "new": Lazy("lyra.cli.vega.source", "Create a project: a program, a test, a README."),
    "plan": Lazy("lyra.cli.vega.source", "Show which calls of a program overlap, and why the others do not."),
    "replay": Lazy("lyra.cli.vega.replay", "Step through a durable run both ways; fork it with another reply."),
    "repl": Lazy("lyra.cli.vega.repl", "Run Vega interactively, line by line."),
    "resume": Lazy("lyra.cli.vega.runs", "Continue a stopped run and print its whole output."),
    "run": Lazy("lyra.cli.vega.run", "Run a Vega program: a source, or a compiled .vgb file."),
    "runs": Lazy("lyra.cli.vega.runs", "List durable runs: state, program, when it began, what it cost."),
    "trace": Lazy("lyra.cli.vega.runs", "Show the calls of a run as a tree, with cost, latency and retries."),
    "test": Lazy("lyra.cli.vega.tests", "Run the test blocks of programs."),
}

_EPILOG: Final = """\
Exit codes: 0 success, 1 the program failed, 2 bad usage, source or configuration,
3 denied, 4 a limit was hit, 130 interrupted.

A first program:
  vega new hello && cd hello && vega run main.vega --model sim/echo
"""

vega = CommandGroup(
    "vega",
    lazy=COMMANDS,
    help="Write, check, run and test programs in the Vega language.",
    epilog=_EPILOG,
)
