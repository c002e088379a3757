"""The prompt of `lyra replay`: what can be seen at a step of a run of processes, and forks; and how they look as
lines."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.cli.command_lines import ENDING, MOVING, CommandResult, CommandRow, TravelPrompt, split_quoted
from lyra.cli.render import printable
from lyra.errors import ConfigError
from lyra.observe.timeline.step import RunStep, TravelStep, token_count
from lyra.observe.timeline.travel import Breakpoints, Travel

if TYPE_CHECKING:
    from lyra.agents.forks.change import StepChange
    from lyra.cli.replay.fork import RunVariables
    from lyra.observe.timeline.timeline import RunTimeline


_FORK_WORDS: Final = ("reply", "result", "prompt", "model", "system")
_FORK: Final = f'fork [{"|".join(_FORK_WORDS)} "TEXT"]'

Forker = Callable[[int, "StepChange"], dict[str, Any]]


class RunPrompt(TravelPrompt):
    """A run of processes. `fork(number, change)` makes a fork and tells the outcome of it."""

    commands: ClassVar[Mapping[str, CommandRow]] = {
        **MOVING,
        "show": CommandRow("show", "this moment: conversation, variables, budget, mailbox, tree"),
        "detail": CommandRow("detail", "this step with its whole values", ("d",)),
        "conversation": CommandRow("conversation", "what was said so far", ("c",)),
        "vars": CommandRow("vars", "what is known of the variables", ("v",)),
        "budget": CommandRow("budget", "what was used, set aside, and the limits"),
        "mailbox": CommandRow("mailbox", "the messages that wait", ("m",)),
        "tree": CommandRow("tree", "the processes as they were", ("t",)),
        "cost": CommandRow("cost", "what was spent so far, and in all"),
        "fork": CommandRow(_FORK, "run on from this step as a process of its own, with a change"),
        **ENDING,
    }

    def __init__(self, timeline: RunTimeline, variables: RunVariables, fork: Forker) -> None:
        travel = Travel(timeline.steps)
        super().__init__(travel, Breakpoints(travel))
        self.timeline = timeline
        self._variables = variables
        self._fork_run = fork

    def choices(self, name: str, rest: str) -> Iterable[str]:
        return _FORK_WORDS if name == "fork" and " " not in rest else super().choices(name, rest)

    def show_place(self, message: str = "") -> CommandResult:
        step = self._step()
        place = (
            f"> before the first of {len(self.timeline.steps)} steps" if step is None else step_line(step, is_here=True)
        )
        return _lines([message, place] if message else [place])

    def step_line(self, step: TravelStep, *, is_here: bool = False) -> str:
        assert isinstance(step, RunStep)
        return step_line(step, is_here=is_here)

    def do_step(self, rest: str) -> CommandResult:
        """Continue, with a line for each step that is passed; a run that is under way may have more by now."""
        self.timeline.refresh()
        passed = self.travel.position
        if passed == len(self.timeline.steps):
            return _lines(["this is the end" if self.timeline.ended_as else "this is the last step so far"])
        super().do_step(rest)
        steps = self.timeline.page(passed, self.travel.position - passed - 1)
        return _lines([*(step_line(step) for step in steps), self.show_place().text])

    def _step(self) -> RunStep | None:
        return self.timeline.step(self.travel.position) if self.travel.position else None

    def _moment(self) -> dict[str, Any]:
        return self.timeline.moment(self.travel.position)

    # ------------------------------------------------------------------ looking

    def do_show(self, _: str) -> CommandResult:
        return _lines(moment_lines(self._variables.moment(self.travel.position), self._step()))

    def do_detail(self, _: str) -> CommandResult:
        detail = self.timeline.detail(self.travel.position)
        return _lines(value_lines({name: value for name, value in detail.items() if value not in (None, "", {})}))

    def do_conversation(self, _: str) -> CommandResult:
        return _lines(conversation_lines(self._moment()["conversation"]), "nothing was said")

    def do_vars(self, _: str) -> CommandResult:
        return _lines(variable_lines(self._variables.moment(self.travel.position)), "none are known")

    def do_budget(self, _: str) -> CommandResult:
        return _lines(budget_lines(self._moment()["budget"]), "nothing was used, and nothing is limited")

    def do_mailbox(self, _: str) -> CommandResult:
        return _lines([f"  {text}" for text in self._moment()["mailbox"]["messages"]], "empty")

    def do_tree(self, _: str) -> CommandResult:
        return _lines(tree_lines(self._moment()["tree"]), "no process yet")

    def do_cost(self, _: str) -> CommandResult:
        so_far, in_all = self.timeline.totals(self.travel.position), self.timeline.totals()
        return _lines([f"so far {cost_words(so_far)}", f"in all {cost_words(in_all)}"])

    def do_fork(self, rest: str) -> CommandResult:
        from lyra.agents.forks.change import StepChange

        words = split_quoted(rest, example='fork reply "no"')
        if words and (words[0] not in _FORK_WORDS or len(words) != 2):
            raise ConfigError("fork how?", hint=_FORK)
        if not self.travel.position:
            raise ConfigError("there is no step here to fork at", hint="go to a step first: step, goto N")
        value: Any = words[1] if words else None
        if words and words[0] == "result":
            value = result_value(value)
        change = StepChange(**({words[0]: value} if words else {}))
        return _lines(fork_lines(self._fork_run(self.travel.position, change)))


def _lines(lines: list[str], otherwise: str = "") -> CommandResult:
    return CommandResult("\n".join(lines) or otherwise)


def result_value(text: str) -> Any:
    """Return a result as it is typed: JSON, or else the text itself."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def fork_lines(facts: dict[str, Any]) -> list[str]:
    """Return the outcome of a fork."""
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


# ---------------------------------------------------------------- words

_TEXT_SHOWN: Final = 2_000
_KIND_WIDTH: Final = 10


def dollars(micro_usd: int) -> str:
    return f"${micro_usd / 1_000_000:.6f}".rstrip("0").rstrip(".") if micro_usd else "$0"


def step_line(step: RunStep, *, is_here: bool = False, side: str = "") -> str:
    """One step on one line: number, kind, what, the outcome of it, what it cost. `side` stands before it."""
    came = f" → {step.status}: {step.error}" if step.error else f" → {step.result}" if step.result else ""
    if step.status in ("running", "waiting", "cut_off"):
        came = f" → {step.status}"
    asked = f" {step.request}" if step.request else ""
    cost = f"  {dollars(step.micro_usd)}" if step.micro_usd else ""
    tokens = f"  {step.tokens} tokens" if step.tokens else ""
    recorded = "  (recorded)" if step.is_recorded and (step.micro_usd or step.tokens) else ""
    tries = f"  {step.tries} tries" if step.tries > 1 else ""
    head = f"{side}{'>' if is_here else ' '}{step.number:>4} {step.pid:<8} {step.kind:<{_KIND_WIDTH}}"
    # The line cut to the width of the terminal; for a pipe it is whole.
    line = printable(f"{head} {step.what}{asked}{came}{cost}{tokens}{recorded}{tries}")
    if not sys.stdout.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    return line if len(line) <= columns else f"{line[: columns - 1]}…"


def cost_words(totals: Mapping[str, Any]) -> str:
    usage, recorded = totals["usage"], totals["recorded"]
    words = f"{dollars(usage.get('usd', 0))}, {token_count(usage)} tokens, {usage.get('llm_calls', 0)} model calls"
    if recorded:
        words += (
            f" (and {dollars(recorded.get('usd', 0))}, {token_count(recorded)} tokens in the run it was forked from)"
        )
    return words


def conversation_lines(conversation: Mapping[str, Any]) -> list[str]:
    messages = conversation["messages"]
    lines = []
    if conversation["count"] > len(messages):
        lines.append(f"  … {conversation['count'] - len(messages)} messages before these")
    for message in messages:
        if message["text"] or not (message.get("tool_calls") or message.get("tool_results")):
            lines += _indent(f"{message['role']}: {message['text']}")
        for call in message.get("tool_calls", ()):
            lines += _indent(f"{message['role']} calls {call['name']}({_json(call['arguments'])})")
        for result in message.get("tool_results", ()):
            word = "fails" if result.get("is_error") else "gives"
            outcome = "has no result yet" if result.get("is_open") else f"{word} {_json(result['output'])}"
            lines += _indent(f"tool {result['name']} {outcome}")
    return [printable(line) for line in lines]


def value_lines(values: Mapping[str, Any]) -> list[str]:
    return [printable(f"  {name} = {_json(value)[:_TEXT_SHOWN]}") for name, value in values.items()]


def variable_lines(moment: Mapping[str, Any]) -> list[str]:
    """Return the variables of the program where it is known, a function a block, and what the journal knows."""
    lines = []
    for frame in moment.get("frames", ()):
        beside = f" (beside others: {frame['branch']})" if frame["branch"] else ""
        lines.append(printable(f"  in {frame['function']}, {_short_path(frame['file'])}:{frame['line']}{beside}"))
        lines += [f"  {line}" for line in value_lines(frame["variables"])]
    known = value_lines(moment["variables"])
    return [*lines, "  from the journal", *(f"  {line}" for line in known)] if lines and known else [*lines, *known]


def _short_path(file: str) -> str:
    """Return a file below the current folder as it is called from there."""
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
    def render_amount(amount: Any) -> str:
        return dollars(amount) if name == "usd" and isinstance(amount, int) else str(amount)

    used, reserved, limit = scope["used"].get(name, 0), scope["reserved"].get(name, 0), scope["limits"].get(name)
    recorded = scope.get("recorded", {}).get(name, 0)
    words = f"{render_amount(used)} used"
    words += f", {render_amount(reserved)} set aside" if reserved else ""
    words += f", of {render_amount(limit)}" if limit is not None else ""
    return words + (f" (recorded: {render_amount(recorded)})" if recorded else "")


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


def _indent(text: str) -> list[str]:
    first, *rest = text[:_TEXT_SHOWN].split("\n")
    return [f"  {first}", *(f"    {line}" for line in rest)]
