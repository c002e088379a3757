"""A question to the person at the terminal: what it shows, which keys answer it, and what each key means.

Four kinds: a permission (y a n e ?), a choice or free text of AskUser, an effect in doubt (r s f), and a plan (g c k).
Enter alone answers none of them. Where "always" may mean this call, its beginning or its program, a number follows `a`.
A question only says what was decided (`Decision`); `question_desk` hands it on.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple, cast

from lyra.agents.session.events import QuestionLine
from lyra.sage.terminal.text.styled_lines import exact, exact_lines, scrub
from lyra.sage.terminal.tool_lines import main_argument
from lyra.tools.edit_preview import edit_preview

_ESCAPED: Final = re.compile(r"\\([*?\\])")
_RULE: Final = re.compile(r"(?P<tool>[A-Za-z0-9_*-]+)\((?P<pattern>.*)\)\Z", re.DOTALL)
_ALWAYS: Final = re.compile(r"\balways(?: or never)? for (?P<rule>.+?)(?: and never for .*)?\.\Z", re.DOTALL)
PLAN: Final = "plan"
_EDITED: Final = {"Edit": "new_string", "Write": "content", "NotebookEdit": "new_source"}
_WHAT: Final = {
    "Edit": "this edit",
    "MultiEdit": "these edits",
    "NotebookEdit": "this change of a notebook",
    "Write": "this file to be written",
    "Bash": "this command",
    "Git": "this git command",
    "WebFetch": "this page to be fetched",
    "WebSearch": "this search of the web",
    "Read": "this file to be read",
    "Task": "this sub-agent",
}


class Choice(NamedTuple):
    """One key and what it means, in words."""

    key: str
    words: str


class Decision(NamedTuple):
    """An answer, as the session takes it."""

    word: str
    text: str = ""
    arguments: dict[str, Any] | None = None


def rule_in_words(rule: str, folder: str = "", command: str = "") -> str:
    """Return what "always" would allow; a path in the folder is shown without the folder, the whole command not
    again."""
    rule = rule.replace("⏎\n", "\n")  # the rule comes with its line ends marked; `exact` marks them
    match = _RULE.fullmatch(rule.replace(f"({folder}/", "(", 1) if folder else rule)
    if match is None:
        return f"always, every {exact(rule)}"
    pattern = exact(match["pattern"])
    if match["tool"] == "Git":
        whole = pattern if pattern.startswith("gh ") else f"git {pattern}"
        return f"always: {whole}" if "*" in pattern else "always, exactly this command"
    if match["tool"] == "Bash":
        is_whole = _ESCAPED.sub(r"\1", match["pattern"]) == command.strip()
        return "always, exactly this command" if is_whole else f"always: {pattern}"
    if match["tool"] in ("Edit", "Write", "MultiEdit", "Read", "Glob", "Grep"):
        return f"always in {pattern}" if pattern.endswith("**") else f"always {pattern}"
    return f"always for {pattern}"


def plan_question() -> TerminalQuestion:
    """Return the question after a turn in plan mode. It is not of an agent, and a further message answers it, too."""
    line = {"type": "interrupt", "id": PLAN, "kind": PLAN, "question": "", "message": "", "background": True}
    return TerminalQuestion(cast("QuestionLine", line))


def _join_rules(words: list[str]) -> str:
    """Return what "always" may mean, in one line."""
    wider = [text.removeprefix("always").lstrip(": ") for text in words[1:]]
    return " or ".join([", ".join([words[0], *wider[:-1]]), *wider[-1:]])


class TerminalQuestion:
    """One open question."""

    __slots__ = ("_folder", "_step", "line")

    def __init__(self, line: QuestionLine, folder: str = "") -> None:
        self.line = line
        self._folder = folder
        self._step = "" if self.is_permission or self.is_doubt or self.is_plan else "answer"

    # ------------------------------------------------------------ what it is
    @property
    def id(self) -> str:
        return self.line["id"]

    @property
    def outlives_turn(self) -> bool:
        """Whether it is of a task in the background, which waits for an answer beyond the turn."""
        return bool(self.line.get("background"))

    @property
    def call_id(self) -> str:
        return str(self.line.get("call_id", ""))

    @property
    def tool(self) -> str:
        return str(self.line.get("tool") or "")

    @property
    def arguments(self) -> dict[str, Any]:
        arguments = self.line.get("arguments")
        return arguments if isinstance(arguments, dict) else {}

    @property
    def is_permission(self) -> bool:
        return self.line.get("kind") == "confirmation"

    @property
    def is_doubt(self) -> bool:
        return self.line.get("kind") == "in_doubt"

    @property
    def is_plan(self) -> bool:
        return self.line.get("kind") == PLAN

    @property
    def diff(self) -> str:
        """Return what an edit would change; empty where that is not known."""
        if "diff" not in self.line:
            self.line["diff"] = edit_preview(self.tool, self.arguments, self._folder)
        return str(self.line["diff"] or "")

    @property
    def always(self) -> str:
        """The rule that "always" would add; empty where there is none."""
        rule = self.line.get("always")
        if rule:
            return str(rule)
        if "always" in self.line:
            return ""
        match = _ALWAYS.search(str(self.line.get("message", "")))
        return match["rule"] if match is not None else ""

    @property
    def rules(self) -> list[str]:
        """The rules that "always" may add, the exact one first."""
        rules = self.line.get("rules")
        return [str(rule) for rule in rules] if rules else [self.always] if self.always else []

    @property
    def title(self) -> str:
        """The sentence in front of the keys."""
        if self._step == "always":
            return "Always allow what? (esc goes back)"
        if self.is_permission:
            return f"Allow {_WHAT.get(self.tool, (self.tool and f'this call of {exact(self.tool)}') or 'this')}?"
        if self.is_doubt:
            return "It is not known whether this was done. What now?"
        return "Carry out this plan?" if self.is_plan else ""

    @property
    def body(self) -> list[str]:
        """The text of the question, every character visible."""
        return exact_lines(str(self.line.get("question", "")))

    @property
    def options(self) -> list[str]:
        """The answers that AskUser offers, with their numbers."""
        return exact_lines(str(self.line.get("message", ""))) if self.line.get("message") else []

    @property
    def why(self) -> list[str]:
        """The reason for the question, and what the answers do."""
        lines = exact_lines(str(self.line.get("message", "")))
        rule = self.line.get("rule")
        return [*lines, f"The rule: {exact(str(rule))}"] if rule else lines

    @property
    def reason(self) -> str:
        """The reason for the question, in one line."""
        reason = self.line.get("reason")
        first = f"asked because {reason}" if reason else next(iter(self.why), "")
        return scrub(first).rstrip(".").replace("Asked", "asked", 1).split("\n")[0]

    # ------------------------------------------------------------ answering
    @property
    def takes_text(self) -> bool:
        """Whether the prompt is for an answer now, not for a single key."""
        return self._step in ("reason", "edit", "answer")

    @property
    def step(self) -> str:
        """Return what is asked for now: the keys where it is empty."""
        return self._step

    @property
    def label(self) -> str:
        """Return what the prompt is for."""
        words = {"reason": "why not", "edit": "edit", "answer": "answer", "change": "change the plan"}
        return words.get(self._step, "")

    @property
    def choices(self) -> list[Choice]:
        if self.is_doubt:
            return [Choice("r", "do it again"), Choice("s", "it was done, go on"), Choice("f", "stop here")]
        if self.is_plan:
            return [Choice("g", "approve and go"), Choice("c", "change it"), Choice("k", "keep planning")]
        if not self.is_permission:
            return []
        command = str(self.arguments.get("command", ""))
        words = [rule_in_words(rule, self._folder, command) for rule in self.rules]
        if self._step == "always":
            return [Choice(str(number), text) for number, text in enumerate(words, 1)]
        always = [Choice("a", _join_rules(words))] if words else []
        edit = [Choice("e", "edit it first")] if self.edited_field is not None else []
        return [Choice("y", "once"), *always, Choice("n", "no, tell it why"), *edit, Choice("?", "why am I asked")]

    def press(self, key: str) -> Decision | str | None:
        """Return the meaning of a key: a Decision; `why`, where an explanation is asked for; `text`, where the prompt
        takes an answer from now on; `choose`, where other keys do; None for a key without a meaning."""
        if key not in {choice.key for choice in self.choices}:
            return None
        if self.is_doubt:
            return Decision({"r": "retry", "s": "skip", "f": "fail"}[key])
        if self.is_plan and key != "c":
            return Decision("go" if key == "g" else "keep")
        if self._step == "always":
            return Decision("always", text=self.rules[int(key) - 1] if key != "1" else "")
        if key == "a" and len(self.rules) > 1:
            self._step = "always"
            return "choose"
        if key in "ya":
            return Decision("allow" if key == "y" else "always")
        if key == "?":
            return "why"
        self._step = "change" if self.is_plan else "reason" if key == "n" else "edit"
        return "text"

    def back(self) -> bool:
        """Go back from the text to the keys; False where there are none."""
        if self._step in ("reason", "edit", "always", "change"):
            self._step = ""
            return True
        return False

    @property
    def edited_field(self) -> str | None:
        """The argument that `e` edits; empty for all of them as JSON, None where nothing can be edited."""
        if not self.arguments:
            return None
        name = _EDITED.get(self.tool) or main_argument(self.tool)
        return name if isinstance(self.arguments.get(name), str) else ""

    @property
    def draft(self) -> str:
        """The text that the prompt begins with."""
        if self._step != "edit":
            return ""
        name = self.edited_field
        if name:
            return str(self.arguments[name])
        return json.dumps(self.arguments, ensure_ascii=False, indent=2)

    def answer(self, text: str) -> Decision | None:
        """Return the Decision that a submitted text means; None where it means none."""
        if self._step == "reason":
            return Decision("deny", text=text.strip())
        if self._step == "change":
            return Decision("change", text=text.strip()) if text.strip() else None
        if self._step == "edit":
            return self._decide_edited(text)
        return Decision("", text=text.strip()) if text.strip() else None

    def _decide_edited(self, text: str) -> Decision | None:
        if not text.strip():
            return None
        name = self.edited_field
        if name:
            return Decision("allow", arguments={**self.arguments, name: text})
        try:
            arguments = json.loads(text)
        except ValueError:
            return None
        return Decision("allow", arguments=arguments) if isinstance(arguments, dict) else None
