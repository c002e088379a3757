"""What a person may say to `vega replay`: one table of commands, and what each comes to, as text and as data.

The prompt, the screen and scripts all come here. A command that cannot be done is a ConfigError with a hint; nothing it
did before is undone by that.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.cli.command_lines import CommandResult, CommandRow, command_of, help_lines
from lyra.core.checking.check import did_you_mean
from lyra.errors import ConfigError
from lyra.vega.replay.breakpoints import Breakpoints, Hit
from lyra.vega.replay.timeline import TimelineStep, brief

if TYPE_CHECKING:
    from lyra.vega.replay.agents import AgentView
    from lyra.vega.replay.player import Player


_LINES_AROUND: Final = 4
_EFFECTS_SHOWN: Final = 20
_PROCESSES_SHOWN: Final = 40
_VALUE_SHOWN: Final = 2_000
_STEPS_MAX: Final = 1_000_000_000


# The words of the prompt, in the order of the help. `other` are further words for the same.
COMMANDS: Final[dict[str, CommandRow]] = {
    "step": CommandRow("step [N]", "let the next effect happen, or N of them", ("s", "n")),
    "back": CommandRow("back [N]", "take the last effect back, or N of them; `back line`: to the line before", ("b",)),
    "line": CommandRow("line [N]", "on to the next line of the process in view", ("l",)),
    "next": CommandRow("next effect", "on past the next effect of the process in view"),
    "goto": CommandRow("goto N", "to the place before effect N; `goto end`", ("g",)),
    "continue": CommandRow("continue", "on to the next breakpoint, or to the end", ("c",)),
    "reverse-continue": CommandRow("reverse-continue", "back to the last breakpoint, or to the beginning", ("rc", "r")),
    "break": CommandRow("break agent NAME | error | cost $X | line FILE:LINE | if EXPR", "stop there"),
    "breaks": CommandRow("breaks", "the breakpoints"),
    "delete": CommandRow("delete N", "take a breakpoint away"),
    "where": CommandRow("where", "the source around the place, and who called whom", ("w",)),
    "vars": CommandRow("vars", "the variables of the process in view", ("v",)),
    "print": CommandRow("print EXPR", "what an expression comes to here; it may compute and nothing else", ("p",)),
    "processes": CommandRow("processes [FROM]", "the processes that there are here", ("ps",)),
    "process": CommandRow("process PID", "look at this process; `process -`: at the one whose turn it is"),
    "mailbox": CommandRow("mailbox [PID]", "the messages that wait", ("m",)),
    "effects": CommandRow("effects [FROM [TO]]", "what the run did", ("e",)),
    "output": CommandRow("output [N]", "what was printed so far, or the last N lines of it", ("o",)),
    "cost": CommandRow("cost", "what was spent so far, and in all"),
    "fork": CommandRow('fork [ID] reply|error N "TEXT"', "change what effect N gave, and run on as a run of its own"),
    "help": CommandRow("help", "this list", ("h", "?")),
    "quit": CommandRow("quit", "end; so does Ctrl-D", ("q", "exit")),
}
_WORDS: Final = {word: name for name, row in COMMANDS.items() for word in (name, *row.other)}

Forker = Callable[[str | None, int, str, bool], dict[str, Any]]


class Commands:
    """`fork(id, number, text, is_error)` makes a fork and tells what came of it."""

    def __init__(self, player: Player, fork: Forker) -> None:
        self.player = player
        self.breakpoints = Breakpoints(player)
        self._make_fork = fork

    def do(self, line: str) -> CommandResult:
        word, _, rest = line.strip().partition(" ")
        name = command_of(word, COMMANDS)
        act: Callable[[str], CommandResult] = getattr(self, f"_{name.replace('-', '_')}")
        return act(rest.strip())

    def interrupted(self) -> None:
        """Ctrl-C: the place may be in the middle of a step."""
        self.player.recover()

    def words(self, text: str) -> list[str]:
        """Return what a line may go on with, for the tabulator."""
        word, space, rest = text.partition(" ")
        if not space:
            return [name for name in COMMANDS if name.startswith(word)]
        timeline = self.player.timeline
        name = _WORDS.get(word, "")
        if name == "break":
            kind, inner, _ = rest.partition(" ")
            if not inner:
                return [choice for choice in ("agent", "cost", "error", "if", "line") if choice.startswith(rest)]
            return sorted(set(timeline.agents.values())) if kind == "agent" else list(timeline.program.files)
        if name in ("process", "mailbox"):
            return [pid for pid in (*self.player.pids, *self.player.agents) if pid.startswith(rest)]
        if name == "print":
            return [choice for choice in self.player.view() if choice.startswith(rest)]
        return []

    # ------------------------------------------------------------ going

    def _step(self, rest: str) -> CommandResult:
        player = self.player
        count = _count(rest)
        if player.inside is not None:
            player.step()
            count -= 1
        player.goto(player.position + count)
        return self.here()

    def _back(self, rest: str) -> CommandResult:
        player = self.player
        word, _, many = rest.partition(" ")
        if word == "line":
            for _ in range(_count(many)):
                if not player.back_line():
                    break
        else:
            player.goto(player.position - _count(rest))
        return self.here()

    def _line(self, rest: str) -> CommandResult:
        for _ in range(_count(rest)):
            if not self.player.line():
                break
        return self.here()

    def _next(self, rest: str) -> CommandResult:
        if rest not in ("", "effect"):
            raise ConfigError(f"`next {rest}`?", hint="next effect")
        player = self.player
        pid = player.in_view
        if not player.step_of(pid):
            return self.here(f"process {pid} does nothing more")
        return self.here()

    def _goto(self, rest: str) -> CommandResult:
        length = len(self.player.timeline)
        if rest == "end":
            self.player.goto(length)
            return self.here()
        number = _number(rest, "goto")
        if not 0 <= number <= length:
            raise ConfigError(f"there is no effect {number}", hint=f"they go from 0 to {length - 1}; `goto end`")
        self.player.goto(number)
        return self.here()

    def _continue(self, _: str) -> CommandResult:
        return self._hit(self.breakpoints.forward())

    def _reverse_continue(self, _: str) -> CommandResult:
        return self._hit(self.breakpoints.backward())

    def _hit(self, hit: Hit | None) -> CommandResult:
        return self.here("" if hit is None else f"breakpoint {hit.breakpoint}")

    def here(self, message: str = "") -> CommandResult:
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
            lines.append(f"[{position}] {step_line(upcoming)}")
        else:
            lines.append(f"[{position}] the end: the run {_ended(timeline.state)}")
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

    # ------------------------------------------------------------ breakpoints

    def _break(self, rest: str) -> CommandResult:
        breakpoint_ = self.breakpoints.add(rest)
        return CommandResult(f"breakpoint {breakpoint_}", _break_data(breakpoint_))

    def _breaks(self, _: str) -> CommandResult:
        breakpoints = self.breakpoints.all
        return CommandResult(
            "\n".join(map(str, breakpoints)) or "none", [_break_data(breakpoint_) for breakpoint_ in breakpoints]
        )

    def _delete(self, rest: str) -> CommandResult:
        gone = self.breakpoints.delete(_number(rest, "delete"))
        return CommandResult(f"deleted {gone}", _break_data(gone))

    # ------------------------------------------------------------ looking

    def _where(self, _: str) -> CommandResult:
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

    def _vars(self, _: str) -> CommandResult:
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

    def _print(self, rest: str) -> CommandResult:
        value = self.player.value(rest)
        text = brief(value, _VALUE_SHOWN, self.player.timeline.program)
        return CommandResult(text, {"expression": rest, "value": text})

    def _processes(self, rest: str) -> CommandResult:
        player = self.player
        first = _number(rest, "processes") if rest else 0
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

    def _process(self, rest: str) -> CommandResult:
        player = self.player
        if rest in ("", "-"):
            player.chosen = None
            return self._where("")
        agent = player.agent(rest)
        if agent is not None:
            return self._agent(agent)
        player.chosen = self._pid(rest)
        return self._where("")

    def _pid(self, name: str) -> str:
        pid = self.player.process(name)
        if pid is None:
            near = did_you_mean(name, [*self.player.pids, *self.player.agents])
            hint = f"did you mean {near}?" if near else "`processes` lists them"
            raise ConfigError(f"there is no process {name!r} here", hint=hint)
        return pid

    def _agent(self, agent: AgentView) -> CommandResult:
        """An agent: its settings, what waits for it, and what it remembers, or was asked so far."""
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

    def _mailbox(self, rest: str) -> CommandResult:
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

    def _effects(self, rest: str) -> CommandResult:
        timeline = self.player.timeline
        parts = rest.split()
        here = self.player.position
        first = _number(parts[0], "effects") if parts else max(0, here - _EFFECTS_SHOWN // 2)
        last = _number(parts[1], "effects") if len(parts) > 1 else first + _EFFECTS_SHOWN
        steps = timeline.steps[max(first, 0) : max(last, 0)]
        lines = [f"{'>' if step.number == here else ' '} {step_line(step)}" for step in steps]
        return CommandResult("\n".join(lines) or "none", [step.to_data() for step in steps])

    def _output(self, rest: str) -> CommandResult:
        limit = _count(rest) if rest else None
        lines = self.player.timeline.output(self.player.position, limit)
        return CommandResult("\n".join(lines), lines)

    def _cost(self, _: str) -> CommandResult:
        timeline = self.player.timeline
        so_far, in_all = timeline.spent(self.player.position), timeline.spent(len(timeline))
        data = {
            name: {
                "cost_usd": usage.micro_usd / 1_000_000,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "calls": usage.calls,
            }
            for name, usage in (("so_far", so_far), ("in_all", in_all))
        }
        return CommandResult(f"so far {so_far}\nin all {in_all}", data)

    # ------------------------------------------------------------ the rest

    def _fork(self, rest: str) -> CommandResult:
        name, is_error, number, text = fork_words(rest)
        facts = self._make_fork(name, number, text, is_error)
        lines = [f"fork {facts['run']}: effect {number} gave {brief(facts['was'], 60)}, now {brief(text, 60)}"]
        lines += [f"  | {line}" for line in facts["output"]]
        lines.append(f"it {facts['state']}" + (f": {facts['error']}" if facts["error"] else ""))
        lines.append(facts["differs"])
        if facts["new"]:
            listed = ", ".join(facts["new"][:8])
            refused = f"new effects, refused: {listed} (`vega replay --live` does them for real)"
            lines.append(f"new effects: {listed}" if facts["live"] else refused)
        return CommandResult("\n".join(lines), facts)

    def _help(self, _: str) -> CommandResult:
        return CommandResult("\n".join(help_lines(COMMANDS)), {name: row.text for name, row in COMMANDS.items()})

    def _quit(self, _: str) -> CommandResult:
        return CommandResult("", None, is_end=True)


def step_line(step: TimelineStep) -> str:
    """One step on one line: number, process, what, what came of it, where, what it cost."""
    came = f" → error {step.error}" if step.error else f" → {step.result}" if step.result else ""
    cost = f"  ${step.spent.micro_usd / 1_000_000:.4f}" if step.spent.micro_usd else ""
    tokens = f"  {step.spent.tokens} tokens" if step.spent.tokens else ""
    place = f"  {os.path.basename(step.file)}:{step.line}" if step.line else ""
    return f"{step.number:>4} {step.pid:<6} {step.what}{came}{place}{cost}{tokens}"


def _exchange(step: TimelineStep) -> list[dict[str, str]]:
    """A call of an agent and what came of it."""
    asked = {"who": "user", "text": step.message}
    if step.error:
        return [asked, {"who": "error", "text": step.error}]
    given = None if step.answer is None else step.answer.value
    text = given if isinstance(given, str) else step.result
    return [asked, {"who": "assistant", "text": text}] if text else [asked]


def _ended(state: str) -> str:
    return {"running": "is at work", "waiting": "waits for an answer", "stopped": "was stopped"}.get(state, state)


def _break_data(breakpoint_: Any) -> dict[str, Any]:
    return {"number": breakpoint_.number, "kind": breakpoint_.kind, "detail": breakpoint_.detail}


def _count(text: str) -> int:
    return min(_number(text, "that"), _STEPS_MAX) if text else 1


def _number(text: str, of: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a number", hint=f"`help` shows what {of} takes") from None


def fork_words(rest: str) -> tuple[str | None, bool, int, str]:
    """`[ID] reply|error N "TEXT"`."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise ConfigError(f"fork: {error}", hint='put the text in quotes: fork reply 3 "yes"') from None
    name = words.pop(0) if words and words[0] not in ("reply", "error") else None
    if len(words) != 3 or words[0] not in ("reply", "error"):
        raise ConfigError("fork what?", hint='fork [ID] reply N "TEXT", or fork [ID] error N "TEXT"')
    return name, words[0] == "error", _number(words[1], "fork"), words[2]
