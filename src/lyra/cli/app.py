"""The table of commands, and the click classes that keep it lazy.

`COMMANDS` names each command's module without importing it, so `lyra --help` costs click and this file. Every command
takes `--debug`, `--set KEY=VALUE`, `--log-level`, `--log-format` and `--trust-folder`, before or after its name; they
end up in the one `Invocation`, which also loads the Config at first use, with the trust that everything in the command
is loaded with, and sets the log up as the Config says. `run` invokes and turns every error into its lines on stderr and
its exit code. A new command is a row in `COMMANDS` and a module with a `CliCommand` or `CommandGroup` in it; a test
keeps the row's sentence equal to the command's own.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:
    from lyra.config import Config
    from lyra.config.trust import FolderTrust


_OUTPUT_FAILED: Final = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Lazy(NamedTuple):
    """Where a command lives, and its sentence for `--help`. `attribute` is its name in the module, where that is not
    the name of the command."""

    module: str
    help: str
    attribute: str = ""


COMMANDS: Final[dict[str, Lazy]] = {
    "acp": Lazy("lyra.cli.commands.acp", "Serve an agent of yours to an editor, by the Agent Client Protocol."),
    "agent": Lazy("lyra.cli.commands.agent", "Run one agent with the built-in tools in this folder."),
    "audit": Lazy("lyra.cli.commands.audit", "Verify and show audit logs, and what a store tells without one."),
    "cluster": Lazy(
        "lyra.cli.commands.cluster", "Run and look after a cluster: many machines that share one PostgreSQL database."
    ),
    "config": Lazy("lyra.cli.commands.config", "Show the settings in force, where each comes from, and every key."),
    "cost": Lazy("lyra.cli.views.calls", "Sum up what model calls cost, by agent, model, day, process or gateway key."),
    "demo": Lazy("lyra.cli.demo.command", "Show a supervised team of processes survive crashes and kill -9."),
    "diff": Lazy("lyra.cli.replay.command", "Compare two runs step by step: the first difference, cost and tokens."),
    "doctor": Lazy(
        "lyra.cli.commands.doctor", "Check which optional features work on this machine and how to install the others."
    ),
    "events": Lazy(
        "lyra.cli.views.calls", "Show what happened, and with -f what happens: each row of the journal on a line."
    ),
    "export": Lazy(
        "lyra.cli.commands.export",
        "Write the Events, calls and spans of a store to JSON lines, SQLite or OpenTelemetry.",
    ),
    "keys": Lazy(
        "lyra.cli.commands.keys",
        "Make, list and revoke the keys with which programs call models through `lyra serve --gateway`.",
    ),
    "mcp": Lazy("lyra.cli.commands.mcp", "Manage MCP servers, and serve Lyra's tools over MCP."),
    "mock": Lazy("lyra.cli.commands.serve", "Serve the APIs of Anthropic, OpenAI and Ollama from a script, for tests."),
    "permissions": Lazy(
        "lyra.cli.commands.permissions",
        "Explain which calls the permissions allow, and test rules with their own examples.",
    ),
    "pipeline": Lazy("lyra.cli.commands.pipeline", "Check, run and draw pipelines declared in TOML, YAML or JSON."),
    "ps": Lazy("lyra.cli.views.processes", "List processes: state, age, spending, what each waits for."),
    "replay": Lazy(
        "lyra.cli.replay.command",
        "Step through the run of an agent or a Python program both ways; fork it from any step.",
    ),
    "run": Lazy("lyra.cli.vega.run", "Run a Vega program: a source, or a compiled .vgb file."),
    "sage": Lazy("lyra.cli.sage.group", "Work on code with an agent: in this terminal, or printed with -p."),
    "serve": Lazy("lyra.cli.commands.serve", "Serve the kernel over gRPC and HTTP to other programs and people."),
    "store": Lazy(
        "lyra.cli.commands.store", "Inspect, compact, sign and move a store: info, check, compact, export, adopt, move."
    ),
    "tools": Lazy("lyra.cli.commands.tools", "List the available tools, check files of tools, call a tool."),
    "top": Lazy("lyra.cli.views.processes", "Watch the processes live: state, calls, spending; the busiest first."),
    "trace": Lazy("lyra.cli.views.calls", "Show the calls of processes as a tree, with latency, cost and a waterfall."),
    "tree": Lazy("lyra.cli.views.processes", "Draw who started whom, with states, restarts and spending."),
    "trust": Lazy(
        "lyra.cli.commands.trust",
        "Show and change which folders' own files count in full; those of other folders can only forbid more.",
    ),
    "vega": Lazy("lyra.cli.vega.group", "Write, check, run and test programs in the Vega language."),
    "vesper": Lazy("lyra.cli.vesper.group", "Check, run, compare and migrate nodes: verified steps with contracts."),
    "worker": Lazy("lyra.cli.commands.serve", "Run agents and services for the kernel of a server."),
}


class Invocation:
    """The shared flags of one call of the command, and its Config, which is loaded at first use, and anew where a
    command has added flags since."""

    def __init__(self) -> None:
        self.debug = False
        self.flags: list[str] = []
        self.trusts_folder = False  # --trust-folder
        self.is_lenient = False  # mistakes in a project's file without trust are passed over
        self.node_options: dict[str, Any] = {}  # of nodes that a Vega program imports: --database, --provider
        self._config: Config | None = None
        self._read_flags: list[str] = []  # with which it was loaded
        self._trust: FolderTrust | None = None
        self._stack = ExitStack()

    @property
    def trust(self) -> FolderTrust:
        """The trust in project files that this command, and all that it loads from here on, runs with."""
        if self._trust is None:
            from lyra.config.files import folder
            from lyra.config.trust import trust_for, using

            self._trust = trust_for(folder(None), self.trusts_folder or None)
            self._stack.enter_context(using(self._trust))
        return self._trust

    def close(self) -> None:
        self._stack.close()

    def trust_folder(self, folder: str) -> None:
        """With `--trust-folder` trust this folder, too: a program may lie elsewhere than where the command is run."""
        if self.trusts_folder:
            self.trust.trust_folder(folder)

    @property
    def config(self) -> Config:
        if self._config is None or self.flags != self._read_flags:
            from lyra.config import Config

            self._read_flags = list(self.flags)
            self._config = Config.load(flags=self.flags, trust=self.trust, lenient=self.is_lenient)
            log = self._config.log
            if (log.level, log.format, log.file) != ("warn", "text", None):  # else Python's own way: warnings, bare
                from lyra.observe.logs import configure_logs

                configure_logs(log.level, log.format, log.file)
        return self._config


class UnknownCommand(click.UsageError):
    """The command does not exist; the message names the nearest one that does."""

    def __init__(self, name: str, known: Sequence[str], ctx: click.Context) -> None:
        from lyra.core.checking.check import did_you_mean

        super().__init__(f"{ctx.command_path} has no command {name!r}", ctx)
        near = did_you_mean(name, known)
        self.hint = f"did you mean {near!r}?" if near else f"commands: {', '.join(known)}"


def _set_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.ensure_object(Invocation).debug |= value


def _set_trust(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        invocation = ctx.ensure_object(Invocation)
        invocation.trusts_folder = True
        invocation.trust_folder(os.curdir)  # before the command loads anything


def _add_flags(ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> None:
    ctx.ensure_object(Invocation).flags += value


def _add_log_flag(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Invocation).flags.append(f"log.{param.name.removeprefix('log_')}={value}")


def _make_shared_options(*, hidden: bool, uses_trust: bool = False) -> list[click.Parameter]:
    """Fresh ones for each command; hidden but on the root, or every help page would repeat them. `--trust-folder` is
    shown where a command uses files that wait for trust."""
    return [
        click.Option(
            ["--trust-folder"],
            is_flag=True,
            expose_value=False,
            hidden=hidden and not uses_trust,
            callback=_set_trust,
            help="Trust this folder's own files for this run: providers, MCP servers, tools, allow rules, stores.",
        ),
        click.Option(
            ["--trust-project"], is_flag=True, expose_value=False, hidden=True, callback=_set_trust
        ),  # its old name
        click.Option(
            ["--set"],
            metavar="KEY=VALUE",
            multiple=True,
            expose_value=False,
            hidden=hidden,
            callback=_add_flags,
            help="Use VALUE for a setting, above every file and variable. May be repeated.",
        ),
        click.Option(
            ["--log-level"],
            type=click.Choice(["error", "warn", "info", "debug", "trace"]),
            expose_value=False,
            hidden=hidden,
            callback=_add_log_flag,
            help="Log from this level on, to stderr or to the setting log.file.",
        ),
        click.Option(
            ["--log-format"],
            type=click.Choice(["text", "json"]),
            expose_value=False,
            hidden=hidden,
            callback=_add_log_flag,
            help="Log as text, or as a line of JSON each.",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            hidden=hidden,
            callback=_set_debug,
            help="Show the traceback of an error.",
        ),
    ]


# Of each command, not of the root alone: click keeps the help option of a command's first call, which may be by itself.
_CONTEXT: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class CliCommand(click.Command):
    """A click command that also takes the shared options. `uses_trust`: it uses files that wait for trust."""

    def __init__(self, *args: Any, uses_trust: bool = False, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.context_settings = _CONTEXT
        self.params += _make_shared_options(hidden=True, uses_trust=uses_trust)


class CommandGroup(click.Group):
    """A click group whose members may be rows of a table, imported when called."""

    command_class = CliCommand
    group_class = type  # a group inside a group is a CommandGroup

    def __init__(self, *args: Any, lazy: dict[str, Lazy] | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.context_settings = _CONTEXT
        self.lazy = lazy or {}
        self.params += _make_shared_options(hidden=lazy is None)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.lazy, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = self.lazy.get(cmd_name)
        if row is None:
            return super().get_command(ctx, cmd_name)
        from importlib import import_module

        command = getattr(import_module(row.module), row.attribute or cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            raise UnknownCommand(name, known, ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # a bare group asks what there is; that is no mistake
            click.echo(ctx.get_help())
            ctx.exit(0)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does it, but a lazy command's sentence comes from its row: `--help` imports nothing."""
        rows = [(name, self.sentence(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """As it is written: lines to copy into a shell are not wrapped."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}")

    def sentence(self, ctx: click.Context, name: str) -> str:
        row = self.lazy.get(name)
        if row is not None:
            return row.help
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=200) if command else ""


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`: one JSON document on stdout and nothing else."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)


def require_lsp() -> None:
    """Raise ConfigError where the extra that the language servers need is not installed."""
    from lyra.errors import ConfigError

    try:
        import pygls  # noqa: F401
    except ImportError:
        raise ConfigError("the language server needs the lsp extra", hint="pip install 'lyra-agents[lsp]'") from None


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from lyra._version import __version__

        click.echo(f"lyra {__version__}")
        ctx.exit(0)


_EPILOG: Final = """\
Exit codes: 0 success, 1 the program failed, 2 bad usage, source or configuration,
3 denied, 4 a limit was hit, 130 interrupted.

Shell completion, in the shell's start-up file:
  bash  eval "$(_LYRA_COMPLETE=bash_source lyra)"
  zsh   eval "$(_LYRA_COMPLETE=zsh_source lyra)"
  fish  _LYRA_COMPLETE=fish_source lyra | source
"""

root = CommandGroup(
    "lyra",
    lazy=COMMANDS,
    help="An operating system for AI agents: supervised, budgeted, isolated, resumable processes.",
    epilog=_EPILOG,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version and exit.",
        )
    ],
)


def run(args: list[str], command: click.Command = root) -> int:
    """Invoke `lyra`, or another command of its own name, with these arguments; errors become lines on stderr and the
    exit code of their code."""
    name = command.name or "lyra"
    completion = f"_{name.upper()}_COMPLETE"
    if completion in os.environ:  # click's own protocol with the shell; it prints and exits
        command.main(args, prog_name=name, complete_var=completion)
    from lyra.core.own_files import only_adopted_stores

    invocation = Invocation()
    try:
        with only_adopted_stores(), command.make_context(name, args, obj=invocation) as ctx:
            command.invoke(ctx)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OUTPUT_FAILED:
            raise  # stores say it in their own words; what is left is stdout, and `main` knows what to do
        from lyra.cli.render import report

        return report(error, debug=invocation.debug)
    finally:
        invocation.close()
    return 0
