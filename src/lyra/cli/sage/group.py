"""`sage`, and `lyra sage`: the code agent.

    sage                     a session in this terminal
    sage "fix the test"      the same, with a first task
    sage -p "fix the test"   one task, printed

Words that are no command are a task, so `start` may be left out. A single word that looks like a mistyped command is
refused. `COMMANDS` is the table; each row's module is imported when its command is called.
"""

from __future__ import annotations

import os
from typing import Final

import click

from lyra.cli.app import COMMANDS as SHARED_COMMANDS
from lyra.cli.app import CommandGroup, Invocation, Lazy

START: Final = "start"
COMMANDS: Final[dict[str, Lazy]] = {
    **{name: SHARED_COMMANDS[name] for name in ("config", "mcp", "permissions", "tools", "trust")},
    "acp": Lazy(
        "lyra.cli.commands.acp", "Work in an editor: speak the Agent Client Protocol on stdin and stdout.", "sage_acp"
    ),
    "doctor": Lazy(
        "lyra.cli.commands.doctor",
        "Check what Sage and Lyra need on this machine, and how to get what is missing.",
        "sage_doctor",
    ),
    "import": Lazy(
        "lyra.cli.sage.imports",
        "Take over rules, commands, hooks and more from Claude Code, Codex and Cursor.",
        "import_",
    ),
    "plugins": Lazy("lyra.cli.sage.plugins", "Install, enable and remove plugins of Sage."),
    "sessions": Lazy("lyra.cli.sage.sessions", "List, show, export and remove sessions."),
    START: Lazy("lyra.cli.sage.start", "Start or go on with a session; the word may be left out."),
    "status": Lazy(
        "lyra.cli.sage.sessions", "Show the model, the newest session, the limits and today's cost for this folder."
    ),
    "usage": Lazy("lyra.cli.sage.sessions", "Show the tokens and the cost of sessions."),
}

_EPILOG: Final = """\
  sage                        a session in this terminal
  sage "fix the test"         the same, with a first task
  sage -p "fix the test"      one task, printed; see sage start --help for all options
  sage -c                     go on with the newest session of this folder

Exit codes: 0 success, 1 the task failed, 2 bad usage or configuration, 3 denied, 4 a limit was hit,
130 interrupted.
"""


class SageGroup(CommandGroup):
    """Commands, and `start` for everything that is none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        fill_in_home()
        ctx.ensure_object(Invocation).is_lenient = True
        if not ctx.resilient_parsing and not (args and args[0] in ("-h", "--help", "--version")):
            args = self._with_start(ctx, args)
        return super().parse_args(ctx, args)

    def _with_start(self, ctx: click.Context, args: list[str]) -> list[str]:
        begin = _count_shared_options(args)
        known = self.list_commands(ctx)
        first = args[begin] if begin < len(args) else ""
        if first in known:
            return args
        if len(args) == begin + 1 and first.isalpha() and first.islower():
            from lyra.core.checking.check import did_you_mean

            near = did_you_mean(first, known)
            if near:
                told = f"sage has no command {first!r}; did you mean {near!r}? A task: sage -- {first}"
                raise click.UsageError(told, ctx)
        return [*args[:begin], START, *args[begin:]]


def _count_shared_options(args: list[str]) -> int:
    """Return how many words at the beginning are options that every command has."""
    begin = 0
    while begin < len(args) and (
        args[begin] in ("--debug", "--trust-folder", "--set") or args[begin].startswith("--set=")
    ):
        begin += 2 if args[begin] == "--set" else 1
    return min(begin, len(args))


sage = SageGroup(
    "sage",
    lazy=COMMANDS,
    help="Work on code with an agent: in this terminal, or printed with -p.",
    epilog=_EPILOG,
)


def fill_in_home() -> None:
    """Set HOME to the home folder of this user, where it is not set (cron, `env -i`) and there is such a folder.

    Sessions, settings, answers and the key that signs sessions lie there. A service that calls Lyra as a library, or
    `lyra`, stays without one."""
    if os.path.isabs(os.environ.get("HOME", "")):
        return
    import pwd

    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a user id without a name
        return
    if os.path.isabs(home) and os.path.isdir(home):
        os.environ["HOME"] = home
