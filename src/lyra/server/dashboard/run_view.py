"""What the page of a run draws: its steps as marks in lanes, one moment in parts, and two runs side by side.

A lane is a process, and time goes to the right, step by step. Marks have a shape for their kind besides a colour. All
texts come from journals, and are shown as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.agents.forks.program_frames import ProgramFrame
from lyra.errors import StoreError
from lyra.observe.timeline.step import STEP_KINDS, RunStep
from lyra.observe.timeline.timeline import RunTimeline
from lyra.observe.timeline.travel import RunDifference
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.words import money, state
from lyra.vega.replay.fork import name_outside_imports, replay_command

if TYPE_CHECKING:
    from lyra.vega.durable.runs import DurableRun


# ---------------------------------------------------------------- vega run
# What the page of a run says of a durable Vega run alone: how it stands, what it asks, and the commands for it.


class VegaRunFacts(NamedTuple):
    """`missing` is what the program imports that a server does not start, or why there is no program."""

    run_id: str
    file: str
    path: str
    state: str
    fork_of: str
    forked_at: int
    questions: list[str]
    missing: str

    @classmethod
    def read(cls, run: DurableRun) -> VegaRunFacts:
        began = run.began
        state = run.state
        questions = [question.question for question in run.questions()] if state == "waiting" else []
        return cls(
            run.id,
            run.file.rpartition("/")[2],
            run.space.location,
            state,
            str(began.get("fork_of") or ""),
            int(began.get("forked_at") or 0),
            questions,
            _missing(run),
        )

    @property
    def is_over(self) -> bool:
        return self.state not in ("running", "waiting", "stopped")

    def command(self, verb: str = "replay") -> str:
        return replay_command(self.run_id, self.path, verb)


def _missing(run: DurableRun) -> str:
    try:
        imports = name_outside_imports(run.program())
    except StoreError as error:
        return f"Its program is not in the store: {error.message}."
    return f"Its program imports {imports}, which a server does not start for a fork." if imports else ""


def vega_notes(facts: VegaRunFacts, failure: str, *, is_executed: bool) -> Html:
    """Return what a person has to do for the run, if anything; `failure` says why this server could not execute it."""
    answer = facts.command("answer")
    notes: list[Child] = [_note(f"It asks a person: {question} Answer with ", answer) for question in facts.questions]
    if facts.state == "stopped" and not is_executed:
        why = f"This server cannot execute it: {failure}. " if failure else "No process is at work on it. "
        notes.append(_note(f"{why}It goes on with ", facts.command("resume")))
    notes.append(_note("Line by line, with breakpoints: ", facts.command()))
    return join(*notes)


def _note(words: str, command: str) -> Html:
    return tag("p", words, tag("code", command), class_="note")


def output_view(lines: Sequence[str]) -> Html:
    """Return the end of what the program had printed."""
    if not lines:
        return tag("p", "Nothing was printed yet.", class_="note")
    return tag("pre", "\n".join(lines), tabindex="0")


Address = Callable[[int], str]  # of the page at a step

_LANES_MAX: Final = 16
_MARKS_MAX: Final = 400
_STEP_PX: Final = 22
_LANE_PX: Final = 26
_TOP_PX: Final = 8
_LABEL_PX: Final = 132
_LIST_AROUND: Final = 60
_VALUE_CHARS: Final = 4_000
_COMPARED_MAX: Final = 200
_COMPARED_BEFORE: Final = 3  # steps that are the same, before the first difference

# The shape and the colour class of the marks of each kind of step.
MARKS: Final[dict[str, tuple[str, str]]] = {
    "began": ("├", "plain"),
    "message": ("◆", "message"),
    "sent": ("◇", "message"),
    "signal": ("◇", "plain"),
    "model": ("●", "model"),
    "tool": ("■", "tool"),
    "effect": ("■", "tool"),
    "spawn": ("+", "plain"),
    "restart": ("↻", "restart"),
    "wait": ("○", "plain"),
    "sleep": ("○", "plain"),
    "question": ("▲", "question"),
    "turn": ("✓", "plain"),
    "milestone": ("✓", "plain"),
    "checkpoint": ("✓", "plain"),
    "shared": ("□", "tool"),
    "note": ("·", "plain"),
    "stopping": ("◌", "plain"),
    "crash": ("✕", "crash"),
    "exit": ("┤", "plain"),
}
_STATES: Final = {"running": "running", "waiting": "blocked", "stopping": "waiting", "ended": "terminated"}


# ---------------------------------------------------------------- lanes
def lanes(steps: Sequence[RunStep], here: int, address: Address, *, names: Mapping[str, str]) -> Html:
    """Return the steps as marks, a lane a process. Of a long run a part around the place is drawn."""
    first, last = _window(len(steps), here)
    shown = steps[first:last]
    all_pids = list(dict.fromkeys(step.pid for step in shown))
    pids = _choose_lanes(all_pids, shown, here)
    rows = {pid: index for index, pid in enumerate(pids)}
    width = _LABEL_PX + max(1, len(shown)) * _STEP_PX + _STEP_PX
    height = _TOP_PX * 2 + max(1, len(pids)) * _LANE_PX
    parts: list[Child] = [_lane(pid, index, width, names) for pid, index in rows.items()]
    for place, step in enumerate(shown):
        row = rows.get(step.pid)
        if row is not None:
            parts.append(_mark(step, place, row, address, is_here=step.number == here))
    if first < here <= last:
        x = _LABEL_PX + (here - first) * _STEP_PX - _STEP_PX // 2
        parts.append(tag("line", x1=x, x2=x, y1=0, y2=height, class_="cursor"))
    picture = tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        class_="lanes",
        role="group",
        aria_label="Steps by process",
    )
    kinds = [kind for kind in MARKS if any(step.kind == kind for step in shown)]
    words = [f"Steps {first + 1} to {last} of {len(steps)} are drawn."] if len(steps) > len(shown) else []
    if len(all_pids) > len(pids):
        words.append(f"{len(all_pids) - len(pids)} more processes have no lane here.")
    return join(
        tag("div", picture, class_="scroll lanes-box", tabindex="0", role="region", aria_label="Timeline"),
        _legend(kinds) if kinds else None,
        tag("p", " ".join(words), class_="note") if words else None,
    )


def _legend(kinds: Sequence[str]) -> Html:
    """Return what the marks that are drawn represent."""
    rows = [
        tag(
            "li",
            tag("span", MARKS[kind][0], class_=f"shape {MARKS[kind][1]}", aria_hidden="true"),
            " ",
            kind,
            title=STEP_KINDS[kind],
            data_key=kind,
        )
        for kind in kinds
    ]
    return tag("ul", rows, class_="marks-legend", aria_label="What the marks stand for")


def _choose_lanes(pids: list[str], shown: Sequence[RunStep], here: int) -> list[str]:
    """Return the processes that have a lane: the first ones, and that of the step at the place."""
    chosen = pids[:_LANES_MAX]
    place = next((step.pid for step in shown if step.number == here), None)
    return chosen if place is None or place in chosen else [*chosen[:-1], place]


def _window(count: int, here: int) -> tuple[int, int]:
    first = min(max(0, here - _MARKS_MAX // 2), max(0, count - _MARKS_MAX))
    return first, min(count, first + _MARKS_MAX)


def _lane(pid: str, index: int, width: int, names: Mapping[str, str]) -> Html:
    y = _TOP_PX + index * _LANE_PX + _LANE_PX // 2
    name = names.get(pid) or pid
    label = name if len(name) <= 16 else f"{name[:15]}…"
    return join(
        tag("line", x1=_LABEL_PX, x2=width, y1=y, y2=y, class_="lane"),
        tag("text", tag("title", f"{name} ({pid})"), label, x=8, y=y + 4, class_="lane-name"),
    )


def _mark(step: RunStep, place: int, row: int, address: Address, *, is_here: bool) -> Html:
    shape, look = MARKS.get(step.kind, ("·", "plain"))
    x = _LABEL_PX + place * _STEP_PX + _STEP_PX // 2
    y = _TOP_PX + row * _LANE_PX + _LANE_PX // 2
    words = f"{step.number} {step.kind}: {step.what}"
    failed = " failed" if step.error else ""
    recorded = " recorded" if step.is_recorded else ""
    return tag(
        "a",
        tag("title", words),
        tag("circle", cx=x, cy=y, r=10, class_="halo"),
        tag("text", shape, x=x, y=y + 5, text_anchor="middle", aria_hidden="true"),
        href=address(step.number),
        class_=f"mark {look}{failed}{recorded}{' here' if is_here else ''}",
        aria_label=words[:120],
        aria_current="step" if is_here else None,
        data_step=step.number,
        tabindex="0" if is_here else "-1",
    )


# ---------------------------------------------------------------- steps as a list
def step_list(steps: Sequence[RunStep], here: int, address: Address, *, names: Mapping[str, str]) -> Html:
    """Return the steps around a place."""
    first = max(0, min(here - _LIST_AROUND // 2, len(steps) - _LIST_AROUND))
    rows = [
        tag(
            "li",
            tag(
                "a",
                tag("span", MARKS.get(step.kind, ("·", ""))[0], class_="shape", aria_hidden="true"),
                tag("span", f"{step.number} {step.kind}", class_="kind"),
                tag("span", _words(step), class_="what"),
                tag("span", money(step.micro_usd) if step.micro_usd else "", class_="cost"),
                href=address(step.number),
                aria_current="step" if step.number == here else None,
                data_step=step.number,
                title=names.get(step.pid) or step.pid,
            ),
            data_key=step.number,
            class_="failed" if step.error else None,
        )
        for step in steps[first : first + _LIST_AROUND]
    ]
    return tag("ol", rows, class_="steps", aria_label="Steps")


def _words(step: RunStep) -> str:
    came = step.error or step.result
    parts = [step.what, step.request, f"→ {came}" if came else ""]
    if step.status in ("running", "waiting", "cut_off"):
        parts.append(f"({step.status})")
    return " ".join(part for part in parts if part)[:240]


# ---------------------------------------------------------------- a moment
def moment_view(moment: Mapping[str, Any], frames: Html | None = None, output: Html | None = None) -> Html:
    """Left what was said or done, right variables, budget, mailbox and tree, as they were. `frames` are what is told of
    the program besides, `output` is what it had printed."""
    left = [_step_part(moment["step"]), _conversation(moment["conversation"])]
    if output is not None:
        left.append(_part("Output", output))
    right = [
        _part("Budget", _budget(moment["budget"])),
        _part("Processes", _tree(moment["tree"], moment["processes"])),
        _part("Variables", _all_variables(frames, moment["variables"])),
        _part("Mailbox", _mailbox(moment["mailbox"])),
    ]
    return tag("div", tag("div", left, class_="left"), tag("div", right, class_="right"), class_="moment")


def _part(title: str, content: Child) -> Html:
    return tag("section", tag("h3", title), content, class_="part")


def _step_part(step: Mapping[str, Any] | None) -> Html:
    if step is None:
        return tag("p", "Before the first step.", class_="note")
    look = state("failed", step["status"]) if step["error"] else state(_step_state(step["status"]))
    facts: list[Child] = [look, tag("span", step["pid"], class_="note")]
    if step["latency_ms"] is not None and step["latency_ms"] > 0:
        facts.append(tag("span", f"{step['latency_ms']:,} ms", class_="note"))
    usage = step["usage"]
    tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    if tokens:
        words = f"{tokens:,} tokens, {money(usage.get('usd', 0))}"
        facts.append(tag("span", f"{words} in the run it was forked from" if step["is_recorded"] else words))
    shown = (("Error", step.get("error_detail")), ("Value", step.get("value")))
    values = [(name, value) for name, value in shown if value is not None]
    asked = tag("pre", step["request"], tabindex="0") if step["request"] else None
    folded = [
        tag("details", tag("summary", name), tag("pre", _text(value), tabindex="0"), data_key=name)
        for name, value in values
    ]
    heading = tag("h3", f"{step['number']} {step['kind']}: {step['what']}")
    return tag("section", heading, tag("p", facts, class_="bar"), asked, folded, class_="part step")


def _step_state(word: str) -> str:
    return {"ok": "ok", "running": "running", "waiting": "blocked", "cut_off": "cancelled"}.get(word, word)


def _conversation(conversation: Mapping[str, Any]) -> Html | None:
    messages = conversation["messages"]
    if not messages:
        return None
    parts: list[Child] = []
    if conversation["count"] > len(messages):
        parts.append(tag("p", f"{conversation['count'] - len(messages)} earlier messages", class_="note"))
    for index, message in enumerate(messages):
        body: list[Child] = [tag("p", message["text"], class_="text")] if message["text"] else []
        body += [_call(call) for call in message.get("tool_calls", ())]
        body += [_result(result) for result in message.get("tool_results", ())]
        who = "you" if message["role"] == "user" else "agent"
        parts.append(tag("article", tag("h4", message["role"]), body, class_=f"said {who}", data_key=f"m{index}"))
    heading = tag("h3", "Conversation")
    return tag("section", heading, tag("div", parts, class_="talk"), class_="part")


def _call(call: Mapping[str, Any]) -> Html:
    return tag("p", "calls ", tag("code", f"{call['name']}({_text(call['arguments'])})"))


def _result(result: Mapping[str, Any]) -> Html:
    if result.get("is_open"):
        return tag("p", tag("code", result["name"]), " ", tag("span", "no result yet", class_="note"))
    mark = state("error") if result.get("is_error") else None
    return tag("p", tag("code", result["name"]), " ", mark, " → ", tag("span", _text(result["output"]), class_="text"))


def _budget(budget: Sequence[Mapping[str, Any]]) -> Child:
    rows = [
        _amount(scope, name)
        for scope in budget
        for name in dict.fromkeys((*scope["limits"], *scope["used"], *scope["reserved"]))
        if name not in ("name", "on_exceed")  # which are no amounts
    ]
    return tag("dl", rows, class_="facts budget") if rows else tag("p", "Nothing was used yet.", class_="note")


def _amount(scope: Mapping[str, Any], name: str) -> Html:
    limit, used, held = scope["limits"].get(name), scope["used"].get(name, 0), scope["reserved"].get(name, 0)
    recorded = scope.get("recorded", {}).get(name, 0)

    def render_amount(amount: Any) -> str:
        return money(amount) if name == "usd" and isinstance(amount, int) else f"{amount:,}"

    words = f"{render_amount(used)} of {render_amount(limit)}" if limit is not None else render_amount(used)
    words += f", {render_amount(held)} set aside" if held else ""
    words += f", {render_amount(recorded)} recorded" if recorded else ""
    bar = None
    if isinstance(limit, (int, float)) and limit > 0:
        bar = tag("meter", words, min=0, max=limit, value=min(limit, used + held), aria_label=f"{name}: {words}")
    return join(tag("dt", name.replace("_", " ")), tag("dd", words, bar))


def _tree(tree: Sequence[Mapping[str, Any]], count: int) -> Child:
    rows = [
        tag(
            "li",
            tag("span", "· " * row["depth"], class_="note", aria_hidden="true"),
            tag("span", row["name"] or row["program"] or row["pid"], title=row["pid"]),
            " ",
            state("failed" if row["error"] else _STATES.get(row["state"], row["state"]), _tree_words(row)),
            " ",
            tag("span", money(row["micro_usd"]), class_="note") if row["micro_usd"] else None,
            data_key=row["pid"],
        )
        for row in tree
    ]
    more = tag("p", f"{count - len(tree)} more", class_="note") if count > len(tree) else None
    return join(tag("ul", rows, class_="tree-then"), more) if rows else tag("p", "No process yet.", class_="note")


def _tree_words(row: Mapping[str, Any]) -> str:
    words: str = row["reason"] or row["state"]
    words += f", start {row['starts']}" if row["starts"] > 1 else ""
    return words + (f", at {row['doing']}" if row["doing"] else "")


def _all_variables(frames: Html | None, known: Mapping[str, Any]) -> Child:
    """Those of the program, where they were asked for, and those that the journal tells."""
    if frames is None:
        return _variables(known)
    return join(frames, tag("h4", "From the journal"), _variables(known)) if known else frames


def _variables(values: Mapping[str, Any]) -> Child:
    if not values:
        return tag("p", "None are known here.", class_="note")
    rows = [join(tag("dt", name), tag("dd", tag("code", _text(value)))) for name, value in values.items()]
    return tag("dl", rows, class_="facts")


def frames_view(frames: Sequence[ProgramFrame]) -> Html:
    """Return the functions that a program stood in, each with its variables; the innermost first."""
    if not frames:
        return tag("p", "The program is in no function here.", class_="note")
    parts: list[Child] = []
    for frame in reversed(frames):
        file = frame.file.rpartition("/")[2]
        place = f"{frame.function}, line {frame.line} of {file}" if frame.line else f"{frame.function} of {file}"
        parts.append(tag("h4", place, title=f"{frame.file}:{frame.line}"))
        parts.append(_variables(frame.variables))
    return tag("div", parts, class_="frames")


def _mailbox(mailbox: Mapping[str, Any]) -> Child:
    if not mailbox["count"]:
        return tag("p", "Empty.", class_="note")
    more = mailbox["count"] - len(mailbox["messages"])
    rows = [tag("li", text) for text in mailbox["messages"]]
    return join(tag("ol", rows), tag("p", f"{more} more", class_="note") if more > 0 else None)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}…"


# ---------------------------------------------------------------- two runs
def difference_view(compared: RunDifference, address: Callable[[str, int], str]) -> Html:
    """Both runs by step; the first that differs is marked. Of those before it the last ones are shown."""
    first = compared.first
    begin = compared.begin(_COMPARED_BEFORE)
    rows: list[Child] = []
    for number, old, new in compared.pairs(begin, begin + _COMPARED_MAX - 1):
        is_same = first is None or number < first
        rows.append(
            tag(
                "tr",
                tag("th", number, scope="row", class_="figure-cell"),
                _side(old, compared.left.name, address),
                _side(new, compared.right.name, address),
                class_="same" if is_same else "first-difference" if number == first else None,
                data_key=number,
            )
        )
    words = "The runs are the same." if first is None else f"Step {first} is the first that differs."
    head = tag(
        "tr",
        tag("th", "Step", scope="col"),
        *(tag("th", run.name, " ", _run_cost(run), scope="col") for run in (compared.left, compared.right)),
    )
    before = tag("p", f"Steps 1 to {begin - 1} are the same.", class_="note") if begin > 1 else None
    table = tag("table", tag("caption", words, class_="unseen"), tag("thead", head), tag("tbody", rows), class_="two")
    return join(
        tag("p", words, id="first-difference", class_="verdict"),
        before,
        tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="Two runs side by side"),
    )


def _run_cost(run: Any) -> Html:
    totals = run.totals()
    usage = totals["usage"]
    tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    return tag("span", f"{money(usage.get('usd', 0))}, {tokens:,} tokens", class_="note")


def _side(step: RunStep | None, pid: str, address: Callable[[str, int], str]) -> Html:
    if step is None:
        return tag("td", "–", class_="note", data_run=pid)
    shape = MARKS.get(step.kind, ("·", ""))[0]
    words = f"{shape} {step.kind}: {_words(step)}"
    shown = tag("a", words, href=address(pid, step.number))
    return tag("td", shown, class_="failed" if step.error else None, data_run=pid)


# ---------------------------------------------------------------- run look
# RunLook: what the page of a run shows, read from its timeline in one go.

VEGA_REFRESH_MS: Final = 1_000


class RunLook(NamedTuple):
    """What the page shows, read in one go. `vega` is there for a durable run of a Vega program."""

    summary: dict[str, Any]
    steps: list[RunStep]
    here: int
    moment: dict[str, Any]
    names: Mapping[str, str]
    vega: VegaRunFacts | None = None

    @property
    def refresh_ms(self) -> int | None:
        """Return how often a part is read again that no event of this kernel tells of."""
        return None if self.vega is None or self.vega.is_over else VEGA_REFRESH_MS

    @classmethod
    def read(cls, run: RunTimeline, place: int | None, process: str) -> RunLook:
        """Return the run at a step; None is its last one."""
        here = len(run.steps) if place is None else min(place, len(run.steps))
        return cls(run.summary(), list(run.steps), here, run.moment(here, process or None), run.names)
