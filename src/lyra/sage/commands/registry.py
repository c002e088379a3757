"""The table of slash commands, and `run_command`, which every face of Sage calls.

    result = await run_command(session, "/undo 3")

`COMMANDS` is the table: a name, one sentence of help, the hint for arguments, the function. A function takes the
session and its SlashArguments and gives a SlashResult; a mistake is a LyraError. A name that is not in the table is a
command from a Markdown file or a prompt of an MCP server (`figures`).

A face that cannot do what a command says names it in `elsewhere`, with a sentence on how the same is done there: the
command is then in no list, and a typed one gets that sentence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, NamedTuple

from lyra.config.asks import folder_asks
from lyra.config.trust import trust_for
from lyra.core.checking.check import did_you_mean
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError
from lyra.sage.agent.attachments import attach
from lyra.sage.agent.live import LiveSession
from lyra.sage.commands import conversation, doctor, figures, project, settings, tasks
from lyra.sage.commands.result import SlashArguments, SlashResult, lines, table
from lyra.sage.extensions.custom_commands import CustomCommand
from lyra.sage.extensions.extensions import extension_asks

SlashFunction = Callable[[LiveSession, SlashArguments], Awaitable[SlashResult]]


class SlashCommand(NamedTuple):
    """One row. `hint` shows the arguments: words in brackets may be left out. `reads`: it changes nothing and asks no
    model, always or where it has no arguments (`bare`), so that it is answered while a turn is under way."""

    name: str
    help: str
    hint: str
    function: SlashFunction
    reads: Literal["", "bare", "always"] = ""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.hint}".rstrip()


_NOTHING: Final[Mapping[str, str]] = {}


async def _help(
    session: LiveSession, arguments: SlashArguments, elsewhere: Mapping[str, str] = _NOTHING
) -> SlashResult:
    words = arguments.at_most(1)
    listed = dict(command_list(session, elsewhere))
    if words:
        name = words[0].removeprefix("/")
        name = ALIASES.get(name, name)
        if name in elsewhere:
            return SlashResult.from_blocks(elsewhere[name])
        command = COMMANDS.get(name)
        if command is not None:
            return SlashResult.from_blocks(lines([command.usage, f"  {command.help}"]))
        if name not in listed:
            raise _unknown(session, name, elsewhere)
        return SlashResult.from_blocks(lines([f"/{name}", f"  {listed[name]}"]))
    rows = [(COMMANDS[name].usage if name in COMMANDS else f"/{name}", about) for name, about in listed.items()]
    return SlashResult.from_blocks(table(("command", ""), rows))


async def _commands(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    arguments.none()
    files = custom_commands(session)
    prompts = await figures.read_prompts(session)
    rows = [
        (f"/{name} {command.argument_hint}".rstrip(), command.plugin or command.origin, visible(command.description))
        for name, command in sorted(files.items())
    ]
    rows += [
        (f"/{visible(name)}", f"MCP server {prompt['server']}", visible(str(prompt.get("description") or "")))
        for name, prompt in sorted(prompts.items())
    ]
    problems = problems_of(session)
    blocks = [table(("command", "from", ""), rows)] if rows else []
    blocks += [lines(problems, title="not read")] if problems else []
    none = "no commands of your own; `commands/NAME.md` in .lyra or in your settings makes one"
    return SlashResult(blocks=blocks) if blocks else SlashResult.from_blocks(none)


async def _expand(_session: LiveSession, _arguments: SlashArguments) -> SlashResult:
    return SlashResult.from_blocks("nothing is folded here; in a terminal /expand N shows what was")


async def _exit(_session: LiveSession, arguments: SlashArguments) -> SlashResult:
    arguments.none()
    return SlashResult(exit=True)


_TABLE: Final = (
    SlashCommand("help", "Show the commands, or what one does.", "[COMMAND]", _help, "always"),
    SlashCommand("clear", "Begin a new conversation in this session.", "", conversation.clear),
    SlashCommand("compact", "Replace all but the last turn by a summary.", "[WHAT TO KEEP]", conversation.compact),
    SlashCommand("context", "Show what the model's context window is filled with.", "", figures.context, "always"),
    SlashCommand(
        "cost", "Show tokens and cost of turns, agents, the session and the day.", "[GROUP]", figures.cost, "always"
    ),
    SlashCommand(
        "status", "Show the session, its model, mode, sandbox, servers and limits.", "", figures.status, "always"
    ),
    SlashCommand("model", "Show models, or switch to one.", "[PROVIDER/MODEL | WORD]", settings.model, "bare"),
    SlashCommand(
        "effort", "Show or choose how much the model thinks.", "[none | low | medium | high]", settings.effort, "always"
    ),
    SlashCommand(
        "plan",
        "Switch to plan mode, show the last plan, carry it out, or leave.",
        "[open | go | off | clear | TASK]",
        settings.plan,
    ),
    SlashCommand(
        "permissions",
        "Show rules and modes, add a rule, or change the mode.",
        "[allow RULE | deny RULE | mode [MODE]] [--keep]",
        settings.permissions,
        "bare",
    ),
    SlashCommand("diff", "Show changes of the session, of a turn, or of git.", "[TURN | git]", project.diff_, "always"),
    SlashCommand("add-dir", "Work in a further folder, too, or list them.", "[FOLDER]", settings.add_dir, "bare"),
    SlashCommand(
        "review",
        "Have changes reviewed: those not committed, of a branch or of a pull request.",
        "[BRANCH | pr N] [WHAT TO LOOK AT]",
        project.review,
    ),
    SlashCommand("undo", "Restore files and conversation to before a turn.", "[TURN] [--force]", conversation.undo),
    SlashCommand("redo", "Take the last undo back.", "[--force]", conversation.redo),
    SlashCommand(
        "rewind", "Go back to before an earlier prompt, to change it.", "[TURN] [--force]", conversation.rewind, "bare"
    ),
    SlashCommand(
        "checkpoint", "Name this moment, or list those that have a name.", "[NAME]", conversation.checkpoint, "bare"
    ),
    SlashCommand("restore", "Go back to a checkpoint.", "[NAME] [--force]", conversation.restore),
    SlashCommand("resume", "List sessions of this folder, or open one.", "[ID | WORDS]", conversation.resume, "bare"),
    SlashCommand("fork", "Go on in a copy of this session, from a turn if named.", "[TURN]", conversation.fork),
    SlashCommand("title", "Show or set the title of this session.", "[TEXT]", conversation.title, "bare"),
    SlashCommand(
        "export", "Write the conversation to a file.", "FILE [markdown | json] [--force]", conversation.export
    ),
    SlashCommand("tools", "List the tools and the rules for them, or show one.", "[TOOL]", tasks.tools, "always"),
    SlashCommand(
        "mcp", "Show MCP servers, or one with its prompts.", "[SERVER | reconnect SERVER]", figures.mcp, "bare"
    ),
    SlashCommand(
        "memory",
        "Show the files of rules that count, or add a line to AGENTS.md.",
        "[add TEXT]",
        tasks.memory,
        "bare",
    ),
    SlashCommand("tasks", "Show sub-agents and background commands, and act on one.", tasks.HINT, tasks.tasks, "bare"),
    SlashCommand("init", "Have AGENTS.md written for this project.", "[WHAT MATTERS]", project.init),
    SlashCommand("commands", "List commands of your own and prompts of MCP servers.", "", _commands, "always"),
    SlashCommand(
        "config", "Show the settings in force and where they come from.", "[SECTION | KEY]", settings.config, "always"
    ),
    SlashCommand(
        "output", "Show or set how much of tool calls is shown.", "[text | compact | verbose]", settings.output, "bare"
    ),
    SlashCommand("theme", "Show the colours of Sage, or choose them.", "[THEME]", settings.theme),
    SlashCommand("expand", "Show whole what was folded.", "[N]", _expand),
    SlashCommand("doctor", "Check what Sage needs on this machine.", "", doctor.doctor, "always"),
    SlashCommand("exit", "Leave; the session can be resumed.", "", _exit),
)
COMMANDS: Final[dict[str, SlashCommand]] = {command.name: command for command in _TABLE}
ALIASES: Final = {"?": "help", "quit": "exit", "usage": "cost", "sessions": "resume"}


async def run_command(session: LiveSession, text: str, *, elsewhere: Mapping[str, str] = _NOTHING) -> SlashResult:
    """Do what a line says that begins with `/`. A LyraError is a mistake in it, or why it could not be done.

    `elsewhere` has the commands of the table that this face does not offer, and what to do instead."""
    typed, _, rest = text.strip().removeprefix("/").partition(" ")
    typed = typed.strip()
    name = ALIASES.get(typed, typed) or "help"
    if name in elsewhere:
        return SlashResult.from_blocks(elsewhere[name])
    command = COMMANDS.get(name)
    if command is not None and command.function is _help:
        return await _help(session, SlashArguments(rest, command.usage), elsewhere)
    if command is not None:
        return await command.function(session, SlashArguments(rest, command.usage))
    custom = custom_commands(session).get(name)
    if custom is not None:
        return await custom_result(session, custom, rest)
    prompt = await figures.prompt_result(session, name, rest)
    if prompt is not None:
        return prompt
    raise _unknown(session, name, elsewhere)


def only_reads(text: str) -> bool:
    """Return whether a line is a command that changes nothing and asks no model."""
    typed, _, rest = text.strip().removeprefix("/").partition(" ")
    command = COMMANDS.get(ALIASES.get(typed, typed) or "help")
    return command is not None and (command.reads == "always" or (command.reads == "bare" and not rest.strip()))


def command_list(session: LiveSession, elsewhere: Mapping[str, str] = _NOTHING) -> list[tuple[str, str]]:
    """Return every command with its sentence, for completion and help, but those in `elsewhere`; no server is asked."""
    listed = [(command.name, command.help) for command in COMMANDS.values() if command.name not in elsewhere]
    files = custom_commands(session)
    listed += [(name, visible(command.description)) for name, command in sorted(files.items())]
    prompts = figures.get_prompts(session)
    return listed + [(name, visible(str(about.get("description") or ""))) for name, about in sorted(prompts.items())]


def _unknown(session: LiveSession, name: str, elsewhere: Mapping[str, str]) -> ConfigError:
    waiting = _find_waiting_file(session, name)
    if waiting is not None:
        file, state = waiting
        why = {"new": "is new", "changed": "has changed", "refused": "was refused"}[state]
        return ConfigError(
            f"/{visible(name[:80])} is a command of this project that waits for trust: {file} {why}",
            hint="`sage trust show` says what it asks for, `sage trust add` trusts it",
            key="command",
        )
    near = did_you_mean(name, [known for known, _ in command_list(session, elsewhere)])
    hint = f"did you mean /{near}?" if near else "/help lists them"
    return ConfigError(f"there is no command /{visible(name[:80])}", hint=hint, key="command")


def _find_waiting_file(session: LiveSession, name: str) -> tuple[str, str] | None:
    """Return the project's file that would make a command and is not trusted, and its state."""
    trust, names = trust_for(session.folder, session.options.trust), (f"/{name}", f"skill {name}")
    for file in folder_asks(session.folder, more=extension_asks(session.folder)):
        state = file.state(trust)
        if state != "trusted" and any(ask.name in names for ask in file.asks):
            return file.shown_name, state
    return None


def custom_commands(session: LiveSession) -> dict[str, CustomCommand]:
    """Return the commands by name, as their files are now; skills that a person may start are among them."""
    if session.equipment is None:
        return {}
    session.equipment.extensions.refresh(at_once=True)
    return session.equipment.extensions.slash_commands()


def problems_of(session: LiveSession) -> tuple[str, ...]:
    """Return what is wrong with the files, with file and line."""
    return session.equipment.extensions.problems if session.equipment is not None else ()


async def custom_result(session: LiveSession, command: CustomCommand, rest: str) -> SlashResult:
    """Return the prompt that a command becomes, with the files that it names and the limits that its file sets."""
    prompt = command.expand(rest)
    attached = await attach(session, prompt, is_typed=False)
    send_with = attached.send_with
    if command.allowed_tools is not None:
        send_with["only"] = command.allowed_tools
    if command.model:
        send_with["model"] = command.model
    told = lines([f"from {visible(command.source)}", *attached.notes])
    return SlashResult(blocks=[told], prompt=prompt, send_with=send_with)
