"""What can be said at the prompt of `lyra replay`: one table of commands, and what each comes to as lines of text.

A command that cannot be done is a ConfigError with a hint; the place in the run stays as it was.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.cli.command_lines import CommandResult, CommandRow, command_of, help_lines
from lyra.cli.render import printable
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.agents.forks.change import StepChange
    from lyra.cli.replay.fork import RunVariables
    from lyra.observe.timeline.step import RunStep
    from lyra.observe.timeline.timeline import RunTimeline


_STEPS_SHOWN: Final = 20
_FORK_WORDS: Final = ("reply", "result", "prompt", "model", "system")

Forker = Callable[[int, "StepChange"], dict[str, Any]]


PROMPT_COMMANDS: Final[dict[str, CommandRow]] = {
    "step": CommandRow("step [N]", "on by one step, or N of them", ("s", "n")),
    "back": CommandRow("back [N]", "back by one step, or N of them", ("b",)),
    "goto": CommandRow("goto N", "to the moment after step N; 0 is before the first, `end` after the last", ("g",)),
    "find": CommandRow("find TEXT", "on to the next step with this text; `find` alone goes on", ("f", "/")),
    "show": CommandRow("show", "this moment: conversation, variables, budget, mailbox, tree"),
    "detail": CommandRow("detail", "this step with its whole values", ("d",)),
    "steps": CommandRow("steps [FROM [TO]]", "the steps around this one", ("l",)),
    "conversation": CommandRow("conversation", "what was said so far", ("c",)),
    "vars": CommandRow("vars", "what is known of the variables", ("v",)),
    "budget": CommandRow("budget", "what was used, set aside, and the limits"),
    "mailbox": CommandRow("mailbox", "the messages that wait", ("m",)),
    "tree": CommandRow("tree", "the processes as they were", ("t",)),
    "cost": CommandRow("cost", "what was spent so far, and in all"),
    "fork": CommandRow(
        'fork [reply|result|prompt|model|system "TEXT"]', "run on from this step as a process of its own, with a change"
    ),
    "help": CommandRow("help", "this list", ("h", "?")),
    "quit": CommandRow("quit", "end; so does Ctrl-D", ("q", "exit")),
}


class RunPrompt:
    """The place in a run. `fork(number, change)` makes a fork and tells what came of it."""

    def __init__(self, timeline: RunTimeline, variables: RunVariables, fork: Forker) -> None:
        self.timeline = timeline
        self._variables = variables
        self.place = 0
        self.is_over = False
        self._fork_run = fork
        self._wanted = ""

    def do(self, line: str) -> CommandResult:
        word, _, rest = line.strip().partition(" ")
        act: Callable[[str], list[str]] = getattr(self, f"_{command_of(word, PROMPT_COMMANDS)}")
        lines = act(rest.strip())
        return CommandResult("\n".join(lines), is_end=self.is_over)

    def words(self, text: str) -> list[str]:
        word, space, rest = text.partition(" ")
        if not space:
            return [name for name in PROMPT_COMMANDS if name.startswith(word)]
        return [choice for choice in _FORK_WORDS if choice.startswith(rest)] if word == "fork" else []

    def interrupted(self) -> None:
        """A fork that was under way stays in the store; the place in the run is as it was."""

    def here(self) -> list[str]:
        """The place on one line."""
        if not self.place:
            return [f"> before the first of {len(self.timeline.steps)} steps"]
        return [step_line(self.timeline.step(self.place), is_here=True)]

    # ------------------------------------------------------------------ moving

    def _step(self, rest: str) -> list[str]:
        self.timeline.refresh()
        last = len(self.timeline.steps)
        if self.place == last:
            return ["this is the end" if self.timeline.ended_as else "this is the last step so far"]
        passed = self.place
        self.place = min(last, self.place + _count(rest))
        return [step_line(step) for step in self.timeline.page(passed, self.place - passed - 1)] + self.here()

    def _back(self, rest: str) -> list[str]:
        self.place = max(0, self.place - _count(rest))
        return self.here()

    def _goto(self, rest: str) -> list[str]:
        place = len(self.timeline.steps) if rest == "end" else _whole(rest)
        if place:
            self.timeline.step(place)
        self.place = place
        return self.here()

    def _find(self, rest: str) -> list[str]:
        self._wanted = rest or self._wanted
        if not self._wanted:
            raise ConfigError("find what?", hint="find TEXT")
        step = self.timeline.find(self._wanted, after=self.place)
        if step is None:
            return [printable(f"no step after this one has {self._wanted!r}")]
        self.place = step.number
        return self.here()

    # ------------------------------------------------------------------ looking

    def _moment(self) -> dict[str, Any]:
        return self.timeline.moment(self.place)

    def _moment_with_frames(self) -> dict[str, Any]:
        return self._variables.moment(self.place)

    def _show(self, _: str) -> list[str]:
        step = self.timeline.step(self.place) if self.place else None
        return moment_lines(self._moment_with_frames(), step)

    def _detail(self, _: str) -> list[str]:
        detail = self.timeline.detail(self.place)
        return value_lines({name: value for name, value in detail.items() if value not in (None, "", {})})

    def _steps(self, rest: str) -> list[str]:
        words = rest.split()
        first = _whole(words[0]) if words else max(1, self.place - _STEPS_SHOWN // 2)
        last = _whole(words[1]) if len(words) > 1 else first + _STEPS_SHOWN - 1
        chosen = self.timeline.page(first - 1, max(0, last - first + 1))
        return [step_line(step, is_here=step.number == self.place) for step in chosen] or ["no steps"]

    def _conversation(self, _: str) -> list[str]:
        return conversation_lines(self._moment()["conversation"]) or ["nothing was said"]

    def _vars(self, _: str) -> list[str]:
        return variable_lines(self._moment_with_frames()) or ["none are known"]

    def _budget(self, _: str) -> list[str]:
        return budget_lines(self._moment()["budget"]) or ["nothing was used, and nothing is limited"]

    def _mailbox(self, _: str) -> list[str]:
        return [printable(f"  {text}") for text in self._moment()["mailbox"]["messages"]] or ["empty"]

    def _tree(self, _: str) -> list[str]:
        return tree_lines(self._moment()["tree"]) or ["no process yet"]

    def _cost(self, _: str) -> list[str]:
        return [
            f"so far {cost_words(self.timeline.totals(self.place))}",
            f"in all {cost_words(self.timeline.totals())}",
        ]

    # ------------------------------------------------------------------ the rest

    def _fork(self, rest: str) -> list[str]:
        from lyra.agents.forks.change import StepChange

        try:
            words = shlex.split(rest)
        except ValueError as error:
            raise ConfigError(f"fork: {error}", hint='put the text in quotes: fork reply "no"') from None
        if words and (words[0] not in _FORK_WORDS or len(words) != 2):
            raise ConfigError("fork how?", hint=PROMPT_COMMANDS["fork"].usage)
        if not self.place:
            raise ConfigError("there is no step here to fork at", hint="go to a step first: step, goto N")
        value: Any = words[1] if words else None
        if words and words[0] == "result":
            value = result_value(value)
        change = StepChange(**({words[0]: value} if words else {}))
        return fork_lines(self._fork_run(self.place, change))

    def _help(self, _: str) -> list[str]:
        return help_lines(PROMPT_COMMANDS)

    def _quit(self, _: str) -> list[str]:
        self.is_over = True
        return []


def result_value(text: str) -> Any:
    """A result as it is typed: JSON, or else the text itself."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def fork_lines(facts: dict[str, Any]) -> list[str]:
    """Return what came of a fork."""
    lines = [f"fork {facts['fork']} of {facts['of']} at step {facts['at']}: {facts['state']}"]
    if facts.get("question"):
        lines.append(f"it asks a person: {facts['question']}")
    if facts["answer"] is not None:
        lines.append(f"it came to: {facts['answer']}")
    if facts["error"]:
        lines.append(f"it failed: {facts['error']}")
    first = facts["first_difference"]
    lines.append("the runs are the same" if first is None else f"step {first} is the first that differs")
    lines.append(f"cost {cost_words(facts)}")
    return [printable(line) for line in lines]


def _count(text: str) -> int:
    return _whole(text) if text else 1


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 12:
        raise ConfigError(f"{text!r} is not the number of a step", hint="`steps` lists them")
    return int(text)


# ---------------------------------------------------------------- words

_TEXT_SHOWN: Final = 2_000
_KIND_WIDTH: Final = 10


def dollars(micro_usd: int) -> str:
    return f"${micro_usd / 1_000_000:.6f}".rstrip("0").rstrip(".") if micro_usd else "$0"


def step_line(step: RunStep, *, is_here: bool = False, side: str = "") -> str:
    """One step on one line: number, kind, what, what came of it, what it cost. `side` stands before it."""
    came = f" → {step.status}: {step.error}" if step.error else f" → {step.result}" if step.result else ""
    if step.status in ("running", "waiting", "cut_off"):
        came = f" → {step.status}"
    asked = f" {step.request}" if step.request else ""
    cost = f"  {dollars(step.micro_usd)}" if step.micro_usd else ""
    tokens = f"  {step.tokens} tokens" if step.tokens else ""
    recorded = "  (recorded)" if step.is_recorded and (step.micro_usd or step.tokens) else ""
    tries = f"  {step.tries} tries" if step.tries > 1 else ""
    head = f"{side}{'>' if is_here else ' '}{step.number:>4} {step.pid:<8} {step.kind:<{_KIND_WIDTH}}"
    return fitted(printable(f"{head} {step.what}{asked}{came}{cost}{tokens}{recorded}{tries}"))


def fitted(line: str) -> str:
    """The line cut to the width of the terminal; for a pipe it is whole."""
    if not sys.stdout.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    return line if len(line) <= columns else f"{line[: columns - 1]}…"


def cost_words(totals: Mapping[str, Any]) -> str:
    usage, recorded = totals["usage"], totals["recorded"]
    words = f"{dollars(usage.get('usd', 0))}, {_tokens(usage)} tokens, {usage.get('llm_calls', 0)} model calls"
    if recorded:
        words += f" (and {dollars(recorded.get('usd', 0))}, {_tokens(recorded)} tokens in the run it was forked from)"
    return words


def _tokens(usage: Mapping[str, int]) -> int:
    return usage.get("input_tokens", 0) + usage.get("output_tokens", 0)


def conversation_lines(conversation: Mapping[str, Any]) -> list[str]:
    messages = conversation["messages"]
    lines = []
    if conversation["count"] > len(messages):
        lines.append(f"  … {conversation['count'] - len(messages)} messages before these")
    for message in messages:
        if message["text"] or not (message.get("tool_calls") or message.get("tool_results")):
            lines += _indented(f"{message['role']}: {message['text']}")
        for call in message.get("tool_calls", ()):
            lines += _indented(f"{message['role']} calls {call['name']}({_json(call['arguments'])})")
        for result in message.get("tool_results", ()):
            word = "fails" if result.get("is_error") else "gives"
            outcome = "has no result yet" if result.get("is_open") else f"{word} {_json(result['output'])}"
            lines += _indented(f"tool {result['name']} {outcome}")
    return [printable(line) for line in lines]


def value_lines(values: Mapping[str, Any]) -> list[str]:
    return [printable(f"  {name} = {_json(value)[:_TEXT_SHOWN]}") for name, value in values.items()]


def variable_lines(moment: Mapping[str, Any]) -> list[str]:
    """The variables of the program where it is known, a function a block, and what the journal knows."""
    lines = []
    for frame in moment.get("frames", ()):
        beside = f" (beside others: {frame['branch']})" if frame["branch"] else ""
        lines.append(printable(f"  in {frame['function']}, {_short_path(frame['file'])}:{frame['line']}{beside}"))
        lines += [f"  {line}" for line in value_lines(frame["variables"])]
    known = value_lines(moment["variables"])
    return [*lines, "  from the journal", *(f"  {line}" for line in known)] if lines and known else [*lines, *known]


def _short_path(file: str) -> str:
    """A file below the current folder as it is called from there."""
    here = os.path.join(os.getcwd(), "")
    return file[len(here) :] if file.startswith(here) else file


def budget_lines(budget: list[Mapping[str, Any]]) -> list[str]:
    lines = []
    for scope in budget:
        names = dict.fromkeys((*scope["limits"], *scope["used"], *scope["reserved"]))
        for name in names:
            if name in ("on_exceed",):
                continue
            lines.append(f"  {scope['pid']} {name}: {_amounts(name, scope)}")
    return [printable(line) for line in lines]


def _amounts(name: str, scope: Mapping[str, Any]) -> str:
    def shown(amount: Any) -> str:
        return dollars(amount) if name == "usd" and isinstance(amount, int) else str(amount)

    used, reserved, limit = scope["used"].get(name, 0), scope["reserved"].get(name, 0), scope["limits"].get(name)
    recorded = scope.get("recorded", {}).get(name, 0)
    words = f"{shown(used)} used"
    words += f", {shown(reserved)} set aside" if reserved else ""
    words += f", of {shown(limit)}" if limit is not None else ""
    return words + (f" (recorded: {shown(recorded)})" if recorded else "")


def tree_lines(tree: list[Mapping[str, Any]]) -> list[str]:
    lines = []
    for row in tree:
        words = [
            row["name"] or row["program"],
            row["pid"],
            row["state"] + (f": {row['reason']}" if row["reason"] else ""),
        ]
        if row["starts"] > 1:
            words.append(f"start {row['starts']}")
        if row["doing"]:
            words.append(f"at {row['doing']}")
        if row["micro_usd"]:
            words.append(dollars(row["micro_usd"]))
        if row["error"]:
            words.append(row["error"])
        lines.append(printable(f"  {'  ' * row['depth']}{'  '.join(words)}"))
    return lines


def moment_lines(moment: Mapping[str, Any], step: RunStep | None) -> list[str]:
    """Everything about a moment."""
    lines = [step_line(step, is_here=True) if step is not None else "> before the first step"]
    sections = (
        ("conversation", conversation_lines(moment["conversation"])),
        ("variables", variable_lines(moment)),
        ("budget", budget_lines(moment["budget"])),
        ("mailbox", [printable(f"  {text}") for text in moment["mailbox"]["messages"]]),
        ("tree", tree_lines(moment["tree"])),
    )
    for title, part in sections:
        if part:
            lines += [f"{title}:", *part]
    return lines


def _json(value: Any) -> str:
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False, default=str)


def _indented(text: str) -> list[str]:
    first, *rest = text[:_TEXT_SHOWN].split("\n")
    return [f"  {first}", *(f"    {line}" for line in rest)]
