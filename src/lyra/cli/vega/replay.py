"""`vega replay RUN`: look at a run as it was at any moment, forwards and backwards.

On a terminal it is a screen; with `--plain`, a pipe, `--commands` or `--json` a prompt that reads one command a line. A
replay calls no model and writes nothing, also when another process is running the run; only `fork` makes a run.
What a fork prints is collected, since the terminal belongs to the prompt; `vega resume ID` prints it again.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.command_lines import (
    ENDING,
    MOVING,
    CommandResult,
    CommandRow,
    TravelPrompt,
    answer_commands,
    lines_of_file,
    split_quoted,
)
from lyra.cli.render import note, printable
from lyra.cli.vega.durable import db_option, open_runs, store_file, with_servers
from lyra.core.checking.check import did_you_mean
from lyra.errors import ConfigError, LyraError, VegaError
from lyra.vega.durable.runs import DurableRun, Runs
from lyra.vega.replay.breakpoints import ProgramBreakpoints
from lyra.vega.replay.fork import RunFork, change_at, difference
from lyra.vega.replay.player import Player
from lyra.vega.replay.reader import read
from lyra.vega.replay.timeline import Timeline, TimelineStep, brief, cost_words

if TYPE_CHECKING:
    from lyra.observe.timeline.step import TravelStep
    from lyra.vega.replay.timeline import AgentView


@click.command(cls=CliCommand, name="replay")
@click.argument("run")
@db_option
@click.option("--plain", is_flag=True, help="Show a prompt instead of the full screen.")
@click.option("--commands", metavar="FILE", help="Read commands from a file, one a line, instead of stdin.")
@click.option("--live", is_flag=True, help="Let a fork perform new effects for real, within the run's budget.")
@json_option
@click.pass_context
def replay(
    ctx: click.Context, /, *, run: str, db: str | None, plain: bool, commands: str | None, live: bool, as_json: bool
) -> None:
    """Step through a durable run both ways; fork it with another reply.

    `help` at the prompt, or ? on the screen, lists what there is. With --json every command is answered by one JSON
    object on a line of its own.
    """
    invocation = ctx.ensure_object(Invocation)
    path = store_file(invocation, db)
    given = None if commands is None else lines_of_file(commands, key="--commands")
    with open_runs(path) as runs:
        timeline = read(runs[run])
    for sentence in timeline.notes[:8]:
        note(f"note: {sentence}")
    prompt = Commands(Player(timeline), partial(_make_fork, invocation, path, timeline, is_live=live))
    is_script = plain or given is not None or as_json
    if not is_script and sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from lyra.cli.vega.replay_screen import Screen

        Screen(prompt, prompt.player).run()
        return
    if not as_json:
        spent = cost_words(timeline.sum_costs(len(timeline)))
        note(f"run {timeline.run_id} ({timeline.state}): {len(timeline)} steps of {timeline.program.name}, {spent}")
        click.echo(printable(prompt.show_place().text))
    ctx.exit(0 if answer_commands(prompt, ctx, lines=given, as_json=as_json) else 1)


def _make_fork(
    invocation: Invocation,
    path: str,
    timeline: Timeline,
    name: str | None,
    number: int,
    text: str,
    *,
    is_error: bool,
    is_live: bool,
) -> dict[str, Any]:
    """Change one reply and run on; the outcome of it."""
    with Runs(path) as runs:
        change = change_at(runs[timeline.run_id], timeline, number, text, is_error=is_error)
    with RunFork(path, timeline.run_id, change, number, name=name) as fork:
        error = _run_fork(invocation, fork, is_live=is_live)
        new_run = DurableRun(fork.space)
        old_step, new_step = difference(timeline, read(new_run), number)
        first = new_step or old_step
        return {
            "run": fork.run_id,
            "of": timeline.run_id,
            "effect": number,
            "was": change.was,
            "output": new_run.output(),
            "state": new_run.state,
            "error": error,
            "from_journal": fork.book.taken,
            "new": fork.book.new,
            "live": is_live,
            "differs": _differs(old_step, new_step),
            "first_difference": None if first is None else first.number,
            "cost_usd": new_run.spent.get("usd", 0) / 1_000_000,
        }


def _run_fork(invocation: Invocation, fork: RunFork, *, is_live: bool) -> str:
    """Run the fork to its end; the error that ended it, if one did."""
    invocation.flags[:0] = [flag for flag in fork.settings if flag not in invocation.flags]
    options = fork.options()

    async def main() -> Any:
        return await fork.execute(invocation.config, options, is_live=is_live)

    try:
        asyncio.run(with_servers(invocation, fork.program, options, main) if is_live else main())
    except VegaError as error:
        return error.message
    except LyraError as error:
        return f"{error.message}" + (f" ({error.hint})" if error.hint else "")
    return ""


def _differs(old_step: TimelineStep | None, new_step: TimelineStep | None) -> str:
    step = new_step or old_step
    if step is None:
        return "nothing after that differs"
    place = f" ({step.place})" if step.place else ""
    was = "nothing" if old_step is None else old_step.what
    now = "nothing" if new_step is None else new_step.what
    old_text = f"{was} → {old_step.result or old_step.error}" if old_step is not None and was == now else was
    instead = f"{now} → {new_step.result or new_step.error}" if new_step is not None and was == now else now
    return f"it first differs at effect {step.number}{place}: {instead}; it was {old_text}"


_LINES_AROUND: Final = 4
_PROCESSES_SHOWN: Final = 40
_VALUE_SHOWN: Final = 2_000


class Commands(TravelPrompt):
    """`fork(id, number, text, is_error=…)` makes a fork and tells the outcome of it."""

    noun: ClassVar[str] = "effect"
    first: ClassVar[int] = 0
    commands: ClassVar[Mapping[str, CommandRow]] = {
        **MOVING,
        "step": CommandRow("step [N]", "let the next effect happen, or N of them", ("s", "n")),
        "back": CommandRow(
            "back [N]", "take the last effect back, or N of them; `back line`: to the line before", ("b",)
        ),
        "goto": CommandRow("goto N", "to the place before effect N; `goto end`", ("g",)),
        "continue": CommandRow("continue", "on to the next breakpoint, or to the end", ("c",)),
        "break": CommandRow(f"break {' | '.join(ProgramBreakpoints.forms.values())}", "stop there"),
        "line": CommandRow("line [N]", "on to the next line of the process in view", ("l",)),
        "next": CommandRow("next effect", "on past the next effect of the process in view"),
        "where": CommandRow("where", "the source around the place, and who called whom", ("w",)),
        "vars": CommandRow("vars", "the variables of the process in view", ("v",)),
        "print": CommandRow("print EXPR", "what an expression comes to here; it may compute and nothing else", ("p",)),
        "processes": CommandRow("processes [FROM]", "the processes that there are here", ("ps",)),
        "process": CommandRow("process PID", "look at this process; `process -`: at the one whose turn it is"),
        "mailbox": CommandRow("mailbox [PID]", "the messages that wait", ("m",)),
        "steps": CommandRow("effects [FROM [TO]]", "what the run did", ("effects", "e")),
        "output": CommandRow("output [N]", "what was printed so far, or the last N lines of it", ("o",)),
        "cost": CommandRow("cost", "what was spent so far, and in all"),
        "fork": CommandRow(
            'fork [ID] reply|error N "TEXT"', "change what effect N gave, and run on as a run of its own"
        ),
        **ENDING,
    }

    def __init__(self, player: Player, fork: Callable[..., dict[str, Any]]) -> None:
        super().__init__(player, ProgramBreakpoints(player))
        self.player = player
        self._make_fork = fork

    def on_interrupt(self) -> None:
        self.player.recover()  # the place may be in the middle of a step

    def choices(self, name: str, rest: str) -> Iterable[str]:
        player = self.player
        if name in ("process", "mailbox"):
            return (*player.pids, *player.agents)
        if name == "print":
            return player.view()
        is_file = name == "break" and rest.startswith(("line ", "if "))
        return player.timeline.program.files if is_file else super().choices(name, rest)

    # ------------------------------------------------------------ going

    def do_back(self, rest: str) -> CommandResult:
        word, _, many = rest.partition(" ")
        if word != "line":
            return super().do_back(rest)
        for _ in range(self.count(many)):
            if not self.player.back_line():
                break
        return self.show_place()

    def do_line(self, rest: str) -> CommandResult:
        for _ in range(self.count(rest)):
            if not self.player.line():
                break
        return self.show_place()

    def do_next(self, rest: str) -> CommandResult:
        if rest not in ("", "effect"):
            raise ConfigError(f"`next {rest}`?", hint="next effect")
        player = self.player
        pid = player.in_view
        return self.show_place("" if player.step_of(pid) else f"process {pid} does nothing more")

    def show_place(self, message: str = "") -> CommandResult:
        """Return where the run stands, in one or two lines."""
        player = self.player
        timeline = player.timeline
        file, line = player.place()
        lines = [message] if message else []
        upcoming = player.next_step
        place = f"{file}:{line}" if line else ""
        position = f"{player.position}/{len(timeline)}"
        if player.inside is not None:
            lines.append(f"[{position}] {player.in_view} {place}: {player.line_of(file, line).strip()}")
        elif upcoming is not None:
            lines.append(f"[{position}] {_step_line(upcoming)}")
        else:
            lines.append(f"[{position}] the end: the run {_describe_state(timeline.state)}")
            lines += [f"  {pid} waits: {waits}" for pid, waits in list(timeline.waits.items())[:8]]
        if player.diverged:
            lines.append(f"note: {player.diverged}")
        data = {
            "position": player.position,
            "of": len(timeline),
            "lines_on": player.inside,
            "process": player.in_view,
            "file": file,
            "line": line,
            "next": None if upcoming is None else upcoming.to_data(),
            "said": message or None,
        }
        return CommandResult("\n".join(lines), data)

    def step_line(self, step: TravelStep, *, is_here: bool = False) -> str:
        """Tell one step on one line: number, process, what, the outcome of it, where, what it cost."""
        assert isinstance(step, TimelineStep)
        return f"{'>' if is_here else ' '} {_step_line(step)}"

    # ------------------------------------------------------------ looking

    def do_where(self, _: str) -> CommandResult:
        player = self.player
        pid = player.in_view
        file, line = player.place()
        standing = player.standing(pid)
        lines = [f"process {pid} ({player.facts(pid).function}) at {file}:{line}" if line else f"process {pid}"]
        for number in range(max(1, line - _LINES_AROUND), line + _LINES_AROUND + 1) if line else ():
            text = player.line_of(file, number)
            if text or number == line:
                lines.append(f"{'>' if number == line else ' '} {number:4}  {text}")
        if line and file not in player.sources:
            lines.append("  (the run keeps no source of this file)")
        trace = [] if standing is None else standing.fiber.trace()
        lines += [f"  called by {caller}" for caller in trace[1:9]]
        data = {"process": pid, "file": file, "line": line, "text": player.line_of(file, line), "trace": trace}
        return CommandResult("\n".join(lines), data)

    def do_vars(self, _: str) -> CommandResult:
        player = self.player
        program = player.timeline.program
        own = player.locals()
        shared = {name: value for name, value in player.view().items() if name not in own}
        lines = [f"{name} = {brief(value, program=program)}" for name, value in own.items()]
        lines += [f"{name} = {brief(value, program=program)}  (global)" for name, value in shared.items()]
        if not player.variables.has_names:
            lines.append("(the run keeps no sources: only parameters and globals have names)")
        data = {name: brief(value, _VALUE_SHOWN, program) for name, value in {**shared, **own}.items()}
        return CommandResult("\n".join(lines) or "none", data)

    def do_print(self, rest: str) -> CommandResult:
        value = self.player.value(rest)
        text = brief(value, _VALUE_SHOWN, self.player.timeline.program)
        return CommandResult(text, {"expression": rest, "value": text})

    def do_processes(self, rest: str) -> CommandResult:
        player = self.player
        first = self.number(rest) if rest else 0
        pids = [*player.pids, *player.agents]
        shown = pids[first : first + _PROCESSES_SHOWN]
        rows = [(pid, *self._brief(pid)) for pid in shown]
        here = player.in_view
        lines = [f"{'*' if pid == here else ' '} {pid:<8} {name:<20} {state}".rstrip() for pid, name, state in rows]
        rest_of = len(pids) - first - len(shown)
        if rest_of > 0:
            lines.append(f"  … and {rest_of} more: processes {first + len(shown)}")
        data = [{"pid": pid, "function": name, "state": state} for pid, name, state in rows]
        return CommandResult("\n".join(lines) or "none has begun", {"processes": data, "of": len(pids)})

    def _brief(self, pid: str) -> tuple[str, str]:
        """Return what a process runs, and how it stands."""
        agent = self.player.agent(pid)
        if agent is None:
            return self.player.facts(pid).function, self.state_of(pid)
        return f"agent {agent.name}", agent.state

    def state_of(self, pid: str) -> str:
        place, ended, is_over = self.player.state(pid)
        if is_over:
            return f"ended: {ended}" if ended and ended != "normal" else "ended"
        if self.player.is_between(pid):
            return "between two lines"
        return f"at {place}" if place else "running"

    def do_process(self, rest: str) -> CommandResult:
        player = self.player
        if rest in ("", "-"):
            player.chosen = None
            return self.do_where("")
        agent = player.agent(rest)
        if agent is not None:
            return self._agent(agent)
        player.chosen = self._pid(rest)
        return self.do_where("")

    def _pid(self, name: str) -> str:
        pid = self.player.process(name)
        if pid is None:
            near = did_you_mean(name, [*self.player.pids, *self.player.agents])
            hint = f"did you mean {near}?" if near else "`processes` lists them"
            raise ConfigError(f"there is no process {name!r} here", hint=hint)
        return pid

    def _agent(self, agent: AgentView) -> CommandResult:
        """Return an agent: its settings, what waits for it, and what it remembers, or was asked so far."""
        program = self.player.timeline.program
        settings = {name: brief(value, 120, program) for name, value in agent.settings.items()}
        lines = [f"agent {agent.name} ({agent.pid}): {agent.state}"]
        lines += [f"  {name} {value}" for name, value in settings.items()]
        lines += [f"  mailbox {index}: {brief(text)}" for index, text in enumerate(agent.waiting[:_PROCESSES_SHOWN])]
        told = [entry._asdict() for entry in agent.told]
        if not told and settings.get("memory", "none") in ("none", '"none"'):  # each call is one of its own
            told = [entry for step in self.player.answers(agent.pid) for entry in _exchange(step)]
        shown = told[-_PROCESSES_SHOWN:]
        if len(shown) < len(told):
            lines.append(f"  … {len(told) - len(shown)} before these")
        lines += [f"  {entry['who']}: {brief(entry['text'])}" for entry in shown]
        data = {"process": agent.pid, "agent": agent.name, "state": agent.state, "settings": settings}
        return CommandResult("\n".join(lines), {**data, "mailbox": agent.waiting, "conversation": told})

    def do_mailbox(self, rest: str) -> CommandResult:
        player = self.player
        agent = player.agent(rest)
        pid = rest if agent is not None else self._pid(rest or player.in_view)
        waiting = player.mailbox(pid) if agent is None else agent.waiting
        program = player.timeline.program
        texts = [brief(message, program=program) for message in waiting[:_PROCESSES_SHOWN]]
        lines = [f"{index}: {text}" for index, text in enumerate(texts)]
        if len(waiting) > len(texts):
            lines.append(f"… and {len(waiting) - len(texts)} more")
        return CommandResult("\n".join(lines) or "empty", {"process": pid, "messages": texts, "of": len(waiting)})

    def do_output(self, rest: str) -> CommandResult:
        limit = self.count(rest) if rest else None
        lines = self.player.timeline.output(self.player.position, limit)
        return CommandResult("\n".join(lines), lines)

    def do_cost(self, _: str) -> CommandResult:
        timeline = self.player.timeline
        usages = {"so_far": timeline.sum_costs(self.player.position), "in_all": timeline.sum_costs(len(timeline))}
        data = {
            name: {
                "cost_usd": usage.get("usd", 0) / 1_000_000,
                "input_tokens": usage.get("input_tokens", 0),
                "output_tokens": usage.get("output_tokens", 0),
                "calls": usage.get("llm_calls", 0),
            }
            for name, usage in usages.items()
        }
        return CommandResult(f"so far {cost_words(usages['so_far'])}\nin all {cost_words(usages['in_all'])}", data)

    # ------------------------------------------------------------ the rest

    def do_fork(self, rest: str) -> CommandResult:
        words = split_quoted(rest, example='fork reply 3 "yes"')
        name = words.pop(0) if words and words[0] not in ("reply", "error") else None
        if len(words) != 3 or words[0] not in ("reply", "error"):
            raise ConfigError("fork what?", hint='fork [ID] reply N "TEXT", or fork [ID] error N "TEXT"')
        is_error, number, text = words[0] == "error", self.number(words[1]), words[2]
        facts = self._make_fork(name, number, text, is_error=is_error)
        lines = [f"fork {facts['run']}: effect {number} gave {brief(facts['was'], 60)}, now {brief(text, 60)}"]
        lines += [f"  | {line}" for line in facts["output"]]
        lines.append(f"it {facts['state']}" + (f": {facts['error']}" if facts["error"] else ""))
        lines.append(facts["differs"])
        if facts["new"]:
            listed = ", ".join(facts["new"][:8])
            refused = f"new effects, refused: {listed} (`vega replay --live` does them for real)"
            lines.append(f"new effects: {listed}" if facts["live"] else refused)
        return CommandResult("\n".join(lines), facts)


def _step_line(step: TimelineStep) -> str:
    came = f" → error {step.error}" if step.error else f" → {step.result}" if step.result else ""
    cost = f"  ${step.micro_usd / 1_000_000:.4f}" if step.micro_usd else ""
    tokens = f"  {step.tokens} tokens" if step.tokens else ""
    place = f"  {os.path.basename(step.file)}:{step.line}" if step.line else ""
    return f"{step.number:>4} {step.pid:<6} {step.what}{came}{place}{cost}{tokens}"


def _exchange(step: TimelineStep) -> list[dict[str, str]]:
    """Return a call of an agent and the outcome of it."""
    asked = {"who": "user", "text": step.message}
    if step.error:
        return [asked, {"who": "error", "text": step.error}]
    given = None if step.answer is None else step.answer.value
    text = given if isinstance(given, str) else step.result
    return [asked, {"who": "assistant", "text": text}] if text else [asked]


def _describe_state(state: str) -> str:
    return {"running": "is at work", "waiting": "waits for an answer", "stopped": "was stopped"}.get(state, state)
