"""One turn on the screen: takes the lines of `LiveSession.send`, prints what is finished, keeps what is live.

Text is printed block by block, thinking as one line, a tool call as one line when it has ended. What is not finished
(the tail of the text, running calls, the spinner) is in `live_lines`. Asks nothing and answers nothing: questions go
from `conversation` to `question_desk`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import Any, Final

from lyra.agents.session.events import (
    AnyLine,
    ErrorLine,
    NoticeLine,
    ResultLine,
    RetryLine,
    TextLine,
    ThinkingLine,
    ToolEndLine,
    ToolProgressLine,
    ToolStartLine,
    UsageLine,
    retry_sentence,
)
from lyra.core.clock import Clock
from lyra.sage.commands.result import dollars
from lyra.sage.terminal.echo import Folds, Sheet, count_lines
from lyra.sage.terminal.text.diff_view import count_changes, diff_lines
from lyra.sage.terminal.text.markdown_view import MarkdownStream, markdown_lines
from lyra.sage.terminal.text.styled_lines import (
    MARGIN,
    OBJECT_COLUMN,
    Line,
    indent_lines,
    row,
    scrub,
    scrub_lines,
    to_ascii,
    wrap,
    wrap_text,
)
from lyra.sage.terminal.tool_lines import CallWords, describe, figures_of, output_text, seconds_text, strip_note
from lyra.tools.edit_preview import edit_preview

_TAIL_RENDERED_CHARS_MAX: Final = 1_500  # a longer tail is shown as it is: rendering it again and again takes time
_LONG_BLOCK_CHARS: Final = 800
_TAIL_ROWS_MAX: Final = 14
_FAILED_ROWS: Final = 6  # of the output of a call that failed
_ENDED_ROWS: Final = 4  # of the output of a command that succeeded
_COMMANDS: Final = ("Bash", "BashOutput")
_VERBOSE_ROWS: Final = 400
_DIFF_ROWS: Final = 24  # of an edit that was not asked about
_LISTS: Final = ("TodoWrite",)  # tools whose output is shown whole


class TurnView:
    """What one turn has shown so far."""

    def __init__(self, sheet: Sheet, folds: Folds, clock: Clock, *, folder: str = "", output: str = "text") -> None:
        """`output`: how much of calls is shown. `text`: the last lines of commands and of calls that failed; `compact`:
        none; `verbose`: the output of all calls, whole."""
        self._sheet = sheet
        self._folds = folds
        self._clock = clock
        self._folder = folder
        self._output = output
        self._facts = sheet.paper.facts
        self._text = MarkdownStream()
        self._tail_cache: tuple[str, int, list[Line]] = ("", 0, [])
        self._laid_out: dict[tuple[str, int], list[Line]] = {}  # blocks that were laid out before they were complete
        self._thinking: list[str] = []
        self._thinking_began_s = 0.0
        self._began_s = clock.monotonic()
        self._calls: dict[str, RunningCall] = {}
        self._diffs_shown: set[str] = set()  # ids of calls whose diff stands above, with its question
        self._denials_shown: set[str] = set()  # ids of calls that the person has denied
        self._stands_back = False
        self._held: list[tuple[str, list[Line]]] = []  # printed after the answer to a question
        self._retry: tuple[RetryLine, float] | None = None  # the wait for the next try of the model, and since when
        self._tokens = 0
        self._cost_usd: float | None = 0.0  # None: the price of a call is not known
        self.status = ""
        self.has_failed = False  # an error was shown

    async def prepare(self, line: AnyLine) -> None:
        """Lay out a long block that this line will complete, in a thread: the keyboard is not kept waiting."""
        delta = self._in_charset(line["delta"]) if line["type"] == "text_delta" else None
        if self._text.tail_chars < _LONG_BLOCK_CHARS or (delta is not None and "\n" not in delta):
            return
        text = copy.deepcopy(self._text)
        blocks = text.feed(delta) if delta is not None else text.finish()
        width = self._sheet.width - MARGIN
        for block in blocks:
            if len(block) >= _LONG_BLOCK_CHARS:
                lines = await asyncio.to_thread(markdown_lines, block, width, colour=self._facts.colour)
                self._laid_out[block, width] = lines

    def take(self, line: AnyLine) -> None:
        """Show one line of the turn."""
        self._retry = None
        if line["type"] == "text_delta":
            self._text_delta(line)
        elif line["type"] == "thinking_delta":
            self._thinking_delta(line)
        elif line["type"] == "tool_start":
            self._tool_start(line)
        elif line["type"] == "tool_progress":
            self._tool_progress(line)
        elif line["type"] == "tool_end":
            self._tool_end(line)
        elif line["type"] == "usage":
            self._usage(line)
        elif line["type"] == "notice":
            self._notice(line)
        elif line["type"] == "retry":
            self._wait_for_retry(line)
        elif line["type"] == "error":
            self._error(line)
        elif line["type"] == "result":
            self._result(line)
        else:
            return
        self._sheet.paper.mark_changed()

    def finish(self) -> None:
        """End the turn: nothing stays live."""
        self.stand_back(waiting=False)
        self._end_thinking()
        self._end_text()
        for call in self._calls.values():
            self._print_call(call, "stopped", style="waits")
        self._calls.clear()

    def hold(self) -> None:
        """Print all text so far, so that what comes next stands below it."""
        self._end_thinking()
        self._end_text()

    def stand_back(self, *, waiting: bool) -> None:
        """Make room for an open question: what ends meanwhile is printed after its answer, so that the two stay
        together."""
        self._stands_back = waiting
        if not waiting:
            held, self._held = self._held, []
            for kind, lines in held:
                self._sheet.print(kind, lines)

    def _print(self, kind: str, lines: list[Line]) -> None:
        if self._stands_back:
            self._held.append((kind, lines))
        else:
            self._sheet.print(kind, lines)

    def answer_was_shown(self, call_id: str, arguments: Mapping[str, Any] | None) -> None:
        """Note that the question about a call stands last on the sheet, with its answer; `arguments` are those that the
        answer changed it to. What the call is about is then not printed again with its result."""
        call = self._calls.get(call_id)
        if call is None:
            return
        if arguments is None:
            call.shown_at = self._sheet.groups
        else:
            call.words = describe(call.tool, arguments, self._folder)
            call.arguments, call.diff = arguments, edit_preview(call.tool, arguments, self._folder)
            self._diffs_shown.discard(call_id)  # what stands there was another one

    def diff_was_shown(self, call_id: str) -> None:
        self._diffs_shown.add(call_id)

    def denial_was_shown(self, call_id: str) -> None:
        self._denials_shown.add(call_id)

    def pause(self, call_id: str, *, waiting: bool) -> None:
        """Stop or start the time of a call that waits for an answer or continues; it does not run while it waits."""
        call = self._calls.get(call_id)
        if call is not None:
            call.wait(self._clock.monotonic(), waiting=waiting)

    # ------------------------------------------------------------ what comes
    def _text_delta(self, line: TextLine) -> None:
        self._end_thinking()
        for block in self._text.feed(self._in_charset(line["delta"])):
            self._print_block(block)

    def _thinking_delta(self, line: ThinkingLine) -> None:
        self._end_text()
        if not self._thinking:
            self._thinking_began_s = self._clock.monotonic()
        self._thinking.append(line["delta"])

    def _tool_start(self, line: ToolStartLine) -> None:
        self.hold()
        name, arguments = line["name"], line["arguments"]
        words = describe(name, arguments, self._folder)
        call = RunningCall(name, arguments, words, self._clock.monotonic())
        call.diff = edit_preview(name, arguments, self._folder)
        self._calls[line["id"]] = call

    def _tool_progress(self, line: ToolProgressLine) -> None:
        call = self._calls.get(line["id"])
        if call is not None:
            call.report(scrub(line["text"]), line["fraction"])

    def _tool_end(self, line: ToolEndLine) -> None:
        self._end_text()
        call_id = line["id"]
        call = self._calls.pop(call_id, None)
        if call is None:
            name = line["name"]
            call = RunningCall(name, {}, describe(name, {}), self._clock.monotonic())
        output, is_error = output_text(line["output"]), line["is_error"]
        is_denied = line.get("error_code") == "permission_denied"
        if is_error and not (is_denied and call_id in self._denials_shown):
            self._print_failed(call, output, denied=is_denied)
        elif not is_error and call_id not in self._diffs_shown:
            self._print_ended(call, output)
        shown = (*_LISTS, *_COMMANDS) if self._output == "text" else _LISTS  # with what is left of them folded
        if output and not is_error and call.tool not in shown and self._output != "verbose":
            self._folds.add(f"{call.words.verb} {call.words.about}", output)

    def _usage(self, line: UsageLine) -> None:
        self._tokens += line["input_tokens"] + line["output_tokens"]
        cost_usd = line["cost_usd"]
        self._cost_usd = None if self._cost_usd is None or cost_usd is None else self._cost_usd + cost_usd

    def _notice(self, line: NoticeLine) -> None:
        """Words of a hook; what it does while it runs is not kept."""
        if line["level"] != "status":
            self.hold()
            style = "waits" if line["level"] == "warning" else "faint"
            texts = wrap_text(scrub(line["text"]), self._sheet.width - MARGIN)
            self._sheet.print("notice", indent_lines([[(style, text)] for text in texts], MARGIN))

    def _wait_for_retry(self, line: RetryLine) -> None:
        """Count the seconds down until the model is asked again; a screen that is not redrawn gets a line."""
        self._retry = line, self._clock.monotonic()
        if self._facts.plain:
            sentence = retry_sentence(line["reason"], line["wait_s"], line["attempt"], line["of"])
            self._sheet.print("note", [[("waits", f"{' ' * MARGIN}{sentence}")]])

    def _error(self, line: ErrorLine) -> None:
        self.hold()
        self.has_failed = line["code"] != "restart"
        parts = [line["message"]]
        parts += [f"hint: {line['hint']}"] if line.get("hint") else []
        style = "faint" if line["code"] == "restart" else "failed"
        rows: list[Line] = []
        for part in parts:
            rows += indent_lines(
                [[(style, text)] for text in wrap_text(scrub(part), self._sheet.width - MARGIN)], MARGIN
            )
            style = "faint"
        self._print("error", rows)

    def _result(self, line: ResultLine) -> None:
        self.status = line["status"]
        self.finish()

    def _in_charset(self, text: str) -> str:
        """Text as the terminal can show it: laid out after that, its lines fit."""
        return text if self._facts.unicode else to_ascii(text)

    # ------------------------------------------------------------ what is printed
    def _end_text(self) -> None:
        for block in self._text.finish():
            self._print_block(block)

    def _end_thinking(self) -> None:
        if not self._thinking:
            return
        seconds = self._clock.monotonic() - self._thinking_began_s
        text = "".join(self._thinking)
        self._thinking = []
        words = f"thought for {seconds_text(seconds)}" if seconds >= 1 else "thought"
        self._folds.add(words, text)
        self._print("note", [[("faint", f"{' ' * MARGIN}{words}")]])

    def _print_block(self, block: str) -> None:
        width = self._sheet.width - MARGIN
        lines = self._laid_out.pop((block, width), None)
        if lines is None:
            lines = markdown_lines(block, width, colour=self._facts.colour)
        self._print("text", indent_lines(lines, MARGIN))

    def _print_call(self, call: RunningCall, figures: str, *, style: str = "", below: list[Line] | None = None) -> None:
        parts: Line = [(style or "faint", figures)] if figures else []
        seconds = call.seconds(self._clock.monotonic())
        if seconds >= 1:
            parts += [("faint", f"  {seconds_text(seconds):>7}" if figures else seconds_text(seconds))]
        verb_style = "failed" if style == "failed" else "verb"
        is_shown = call.shown_at == self._sheet.groups and not self._held
        lines = row(
            "" if is_shown else call.words.verb,
            [] if is_shown else [("", call.words.about)],
            parts,
            self._sheet.width,
            verb_style=verb_style,
            mark=self._facts.marks.ellipsis,
        )
        if is_shown:  # the first line has nothing but the figures, which stand below it on a narrow terminal
            lines = lines[-1:] if parts else []
        self._print("tool", [*lines, *(below or [])])

    def _print_ended(self, call: RunningCall, output: str) -> None:
        figures = figures_of(call.tool, call.arguments, output, is_error=False) or call.figures
        below: list[Line] = []
        if call.diff:
            figures, below = self.diff_figures(call.diff), self._first_rows(call.diff)
        elif call.tool in _LISTS:
            below = [[("", f"{' ' * OBJECT_COLUMN}{text}")] for text in scrub_lines(output)[:-1]]
        elif self._output == "verbose":
            below = self._last_rows(call, output, _VERBOSE_ROWS)
        elif self._output == "text" and call.tool in _COMMANDS:
            below = self._last_rows(call, strip_note(output), _ENDED_ROWS)
        self._print_call(call, figures, below=below)

    def diff_figures(self, diff: str) -> str:
        count = count_changes(diff)
        removed = f"  {self._facts.marks.minus}{count.removed}" if count.removed else ""
        return f"+{count.added}{removed}"

    def _first_rows(self, diff: str) -> list[Line]:
        lines = diff_lines(diff, self._sheet.width, marks=self._facts.marks)
        if len(lines) <= _DIFF_ROWS:
            return lines
        fold = self._folds.add("diff", diff)
        more = f"{count_lines(len(lines) - _DIFF_ROWS, 'more')} {self._facts.marks.dot} /expand {fold.number}"
        return [*lines[:_DIFF_ROWS], [("faint", f"{' ' * OBJECT_COLUMN}{self._facts.marks.ellipsis} {more}")]]

    def _print_failed(self, call: RunningCall, output: str, *, denied: bool) -> None:
        rows = {"compact": 0, "verbose": _VERBOSE_ROWS}.get(self._output, _FAILED_ROWS)
        figures = "denied" if denied else figures_of(call.tool, call.arguments, output, is_error=True)
        self._print_call(call, figures, style="failed", below=self._last_rows(call, output, rows))

    def _last_rows(self, call: RunningCall, output: str, count: int) -> list[Line]:
        """Return the last lines of an output, and how many are folded."""
        lines = scrub_lines(output)
        below: list[Line] = []
        if len(lines) > count:
            fold = self._folds.add(f"{call.words.verb} {call.words.about}", output)
            if count:
                before = f"{count_lines(len(lines) - count, 'before')} {self._facts.marks.dot} /expand {fold.number}"
                below.append([("faint", f"{' ' * OBJECT_COLUMN}{self._facts.marks.ellipsis} {before}")])
        for text in lines[len(lines) - min(count, len(lines)) :]:
            below += wrap([("faint", f"{' ' * OBJECT_COLUMN}{text}")], self._sheet.width, hanging=OBJECT_COLUMN)
        return below

    # ------------------------------------------------------------ what is live
    @property
    def is_calling(self) -> bool:
        """Whether calls are under way."""
        return bool(self._calls)

    @property
    def shows_calls(self) -> bool:
        """Whether the live lines begin with a call."""
        return bool(self._calls) and not self._text.tail.strip()

    def live_lines(self, width: int, rows: int) -> list[Line]:
        """Return what runs now, in at most so many lines."""
        calls = [line for call in self._calls.values() for line in self._call_lines(call, width)]
        if not self._calls or self._retry is not None:
            calls += self._working_line(width)
        tail = self._tail_lines(width)
        room = max(1, rows - len(calls) - 1)
        if tail:
            return [*tail[-min(room, _TAIL_ROWS_MAX) :], [], *calls][-rows:]
        return calls[-rows:]

    def _spinner(self) -> str:
        marks = self._facts.marks.spinner
        return marks[int(self._clock.monotonic() * 10) % len(marks)]

    def _call_lines(self, call: RunningCall, width: int) -> list[Line]:
        now_s = self._clock.monotonic()
        figures: Line = [("faint", f"{call.figures}  ")] if call.figures else []
        figures += [("faint", f"{seconds_text(call.seconds(now_s)):>5}  "), ("spinner", self._spinner())]
        if call.waits:
            figures = [("waits", "waits for you")]
        lines = row(call.words.verb, [("", call.words.about)], figures, width, mark=self._facts.marks.ellipsis)
        lines += [[("faint", f"{' ' * OBJECT_COLUMN}{text}")] for text in call.last_rows]
        return lines

    def _working_line(self, width: int) -> list[Line]:
        now_s = self._clock.monotonic()
        seconds = now_s - self._began_s
        if self._retry is not None:
            line, since_s = self._retry
            left_s = max(0.0, line["wait_s"] - (now_s - since_s))
            sentence = retry_sentence(line["reason"], left_s, line["attempt"], line["of"])
            return row("Waits", [("waits", sentence)], [("spinner", self._spinner())], width, verb_style="waits")
        verb = "Thinks" if self._thinking else "Works"
        figures: Line = []
        if self._tokens:
            tokens = f"{self._tokens:,}".replace(",", " ")
            cost = f", {dollars(self._cost_usd)}" if self._cost_usd != 0 else ""
            figures.append(("faint", f"{tokens} tokens{cost}  "))
        figures += [("faint", f"{seconds_text(seconds):>5}  "), ("spinner", self._spinner())]
        return row(verb, [], figures, width, verb_style="faint")

    def _tail_lines(self, width: int) -> list[Line]:
        tail = self._text.tail
        if not tail.strip():
            return []
        if self._tail_cache[:2] != (tail, width):
            self._tail_cache = (tail, width, self._laid_out_tail(tail, width - MARGIN))
        return self._tail_cache[2]

    def _laid_out_tail(self, tail: str, width: int) -> list[Line]:
        if self._text.tail_is_code:
            code = scrub(tail).rstrip().split("\n")[1:][-_TAIL_ROWS_MAX:]
            return [[("", f"{' ' * (MARGIN + 2)}{text[: width - 2]}")] for text in code]
        if len(tail) <= _TAIL_RENDERED_CHARS_MAX:
            return indent_lines(markdown_lines(tail, width, colour=self._facts.colour), MARGIN)
        rows = [
            text for part in scrub(tail[-4 * _TAIL_RENDERED_CHARS_MAX :]).split("\n") for text in wrap_text(part, width)
        ]
        return indent_lines([[("", text)] for text in rows[-_TAIL_ROWS_MAX:]], MARGIN)


# ---------------------------------------------------------------- running call

_ROWS_MAX: Final = 3  # of the last report
_FIGURES_CHARS_MAX: Final = 48


class RunningCall:
    """The state of one call between its start and its end."""

    __slots__ = (
        "_began_s",
        "_ran_s",
        "_waits",
        "arguments",
        "diff",
        "figures",
        "last_rows",
        "shown_at",
        "tool",
        "words",
    )

    def __init__(self, tool: str, arguments: Mapping[str, Any], words: CallWords, began_s: float) -> None:
        self.tool = tool
        self.arguments = arguments
        self.words = words
        self.diff = ""  # what an edit will change, where it is known
        self.figures = ""  # such as 40 %
        self.last_rows: list[str] = []
        self.shown_at = -1  # how much was printed when it stood last on the sheet, with the answer to its question
        self._began_s = began_s
        self._ran_s = 0.0  # before it began to wait
        self._waits = False

    @property
    def waits(self) -> bool:
        """Whether a person is asked about it."""
        return self._waits

    def wait(self, now_s: float, *, waiting: bool) -> None:
        if waiting and not self._waits:
            self._ran_s += now_s - self._began_s
        elif self._waits and not waiting:
            self._began_s = now_s
        self._waits = waiting

    def seconds(self, now_s: float) -> float:
        """Return how long it has run, without the time that it waited for a person."""
        return self._ran_s + (0.0 if self._waits else now_s - self._began_s)

    def report(self, text: str, fraction: Any) -> None:
        """Take a report of its progress: the last lines, or figures where it is one short line."""
        rows = [line.rstrip() for line in text.split("\n") if line.strip()]
        if isinstance(fraction, (int, float)):
            self.figures = f"{100 * fraction:.0f} %"
        if self.tool == "Task" and len(rows) == 1 and len(rows[0]) <= _FIGURES_CHARS_MAX:
            self.figures = rows[0]
        else:
            self.last_rows = rows[-_ROWS_MAX:]
