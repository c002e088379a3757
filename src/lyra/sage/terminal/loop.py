"""`run_terminal`: a session in this terminal, from its first line to its last. Connects session, conversation, screen.

The prompt is drawn before anything slow happens: the branch, the highlighter and the list of files are read afterwards.
StatusBar is the status line: cost, model and mode are read whenever something has happened, the context is measured and
git is asked between two turns, and the branch read within one; hooks of the user may add a text. Nothing is read while
drawing.

A `Draft` keeps what was typed and not sent in a file, so that no crash loses it: one a session, under the user's data
folder and readable by them alone, with keys masked as in the history. It is locked while its session is open; one that
no program has locked was left by a crash or by a terminal that was closed, and the next session of the same folder
takes it over (`take_left_over`). An empty draft has no file.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.agents.session.events import NoticeLine
from lyra.core.own_files import make_folder
from lyra.core.providers import USUAL
from lyra.core.secrets.redact import redact
from lyra.core.secrets.visible import visible
from lyra.core.user_folders import data_folder
from lyra.kernel.base.tasks import Tasks
from lyra.sage.agent.live import LiveSession
from lyra.sage.agent.session_notices import SessionNotices
from lyra.sage.commands.result import dollars
from lyra.sage.terminal.completion import CommandName, FileNames, PromptCompleter, PromptHistory, history_file
from lyra.sage.terminal.conversation import Conversation, Submission
from lyra.sage.terminal.echo import Paper, note_lines, prompt_lines
from lyra.sage.terminal.facts import TerminalFacts, size_of
from lyra.sage.terminal.keys import Keyboard, bindings
from lyra.sage.terminal.plain import PlainScreen
from lyra.sage.terminal.prompt_box import PromptBox
from lyra.sage.terminal.screen import LiveScreen
from lyra.sage.terminal.text.markdown_view import MarkdownStream, load, markdown_lines
from lyra.sage.terminal.text.styled_lines import (
    MARGIN,
    Line,
    Marks,
    clip,
    exact,
    for_output,
    indent_lines,
    strip_style,
    use_theme,
    width_of,
    wrap,
)

if TYPE_CHECKING:
    from lyra.sage.extensions.hooks.hooks import StatusLine


_ANSWER_BLOCKS_MAX: Final = 12  # of the last answer, when a session continues
_WRITE_S: Final = 0.2  # after a key, the file is written at the latest
_CHARS_MAX: Final = 200_000
_FILES_MAX: Final = 200  # more are left over from long ago: the oldest are removed
SIMULATED: Final = "sim/echo"
_MORE: Final = (
    "The model can stand in lyra.toml: model under [agent]. sage doctor checks the set-up.",
    "The simulated model needs no key: it repeats what you say, and shows how Sage looks.",
)
_OF_OTHER_AGENTS: Final = ("CLAUDE.md", ".claude", ".codex", ".cursor", ".cursorrules")
_THINGS: Final = ("explain how this project is built", "find a failing test and fix it", "/help")


async def run_terminal(session: LiveSession, first_task: str | None) -> int:
    """Show a session until the user leaves it; gives the exit code."""
    config = session.config.sage
    use_theme(config.theme)
    facts = TerminalFacts.read(sys.stdin, sys.stdout)
    facts = facts._replace(vi_keys=config.keys == "vi", notify=config.notify)
    kept = PromptHistory(history_file(), session.without_keys)
    if facts.plain:
        paper = PlainScreen(facts)
        conversation = _conversation(session, paper, first_task, kept)
        await paper.run(conversation, kept)
    else:
        conversation = await _run_live(session, first_task, facts, kept)
    show_leaving(conversation)
    return 0


def _conversation(session: LiveSession, paper: Paper, first_task: str | None, kept: PromptHistory) -> Conversation:
    conversation = Conversation(session, paper)
    session.on_notice.append(conversation.notice)
    conversation.look = FileNotices(session, conversation.note).look
    conversation.reopened = lambda: show_opening(conversation, is_first=False)
    show_opening(conversation, is_first=not kept.entries and not first_task)
    if first_task:
        conversation.submit(Submission(first_task))
    return conversation


async def _run_live(
    session: LiveSession, first_task: str | None, facts: TerminalFacts, kept: PromptHistory
) -> Conversation:
    screen = LiveScreen(facts)
    conversation = _conversation(session, screen, first_task, kept)
    files = FileNames(session.folder, conversation.clock)
    box = PromptBox(kept, PromptCompleter(files, lambda: command_names(session)), facts.marks, screen.style)
    bar = StatusBar(session, screen, conversation)
    conversation.refresh = bar.refresh
    conversation.can_pick = True
    conversation.restore, conversation.desk.restore = box.join, box.replace
    box.label = lambda: conversation.desk.label

    def read_unsent() -> str:
        return "\n".join(filter(None, (*(waiting.text for waiting in conversation.waiting), box.unsent)))

    draft = Draft(session.id, session.folder, read_unsent, session.without_keys)
    left_over = await asyncio.to_thread(take_left_over, session.folder)
    if left_over:
        box.join(left_over)
        conversation.note("the prompt has what was typed, and not sent, when the last session of this folder broke off")
    conversation.changed = draft.schedule
    box.buffer.on_text_changed += lambda _buffer: draft.schedule()
    keyboard = Keyboard(conversation, box)
    screen.connect(
        conversation.live_lines,
        bar.line,
        box.container,
        box.window,
        bindings(keyboard, screen),
        lambda: conversation.working,
        conversation.end,
    )
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that the terminal is left as it was
        asyncio.get_running_loop().add_signal_handler(number, conversation.end)
    tasks = Tasks()
    tasks.start(_after_first_frame(session, bar, conversation, files), name="after the first frame")
    try:
        await screen.run(conversation.run)
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
        draft.close()
        await files.close()
        await tasks.close()
        await bar.close()
    return conversation


async def _after_first_frame(
    session: LiveSession, bar: StatusBar, conversation: Conversation, files: FileNames
) -> None:
    """Load what may take longer than the prompt: the branch, the highlighter, the names of files, the sandbox."""
    await asyncio.sleep(0.05)
    await asyncio.to_thread(_load_slow_parts)
    bar.refresh()
    files.refresh()
    conversation.desk.sandbox = str((await session.opening()).get("sandbox", ""))


def _load_slow_parts() -> None:
    """Import what the first answer needs, beside the loop that reads the keyboard."""
    import lyra.sage.project.git_state  # noqa: F401 - for the import alone

    load()


def command_names(session: Any) -> Sequence[CommandName]:
    """Return the commands that can be completed."""
    from lyra.sage.commands.registry import command_list

    return sorted(CommandName(name, summary) for name, summary in command_list(session))


def show_opening(conversation: Conversation, *, is_first: bool = False) -> None:
    """Print what a session begins with: the last exchange of one that continues, a welcome for a user's first."""
    session, sheet = conversation.session, conversation.sheet
    width, facts = sheet.width, conversation.paper.facts
    if is_first and not session.messages:
        sheet.print("welcome", welcome_lines(session, width, plain=facts.plain))
    asked, answered = _last_exchange(session.messages)
    if asked:
        sheet.print("user", prompt_lines(asked, width, facts))
    stream = MarkdownStream()
    blocks = [*stream.feed(answered), *stream.finish()][-_ANSWER_BLOCKS_MAX:] if answered else []
    for block in blocks:
        sheet.print("text", indent_lines(markdown_lines(block, width - MARGIN, colour=facts.colour), MARGIN))
    for doubt in session.doubts:
        sheet.print("note", note_lines(f"in doubt: {doubt}", width, "waits"))


def show_leaving(conversation: Conversation) -> None:
    """Print the last line: how to come back."""
    session = conversation.session
    if session.messages:
        conversation.note(f"session {session.id}; go on with: sage -c")


def _last_exchange(messages: Any) -> tuple[str, str]:
    """Return the last words of the user, and the last of the model after them."""
    answered = ""
    for message in reversed(messages):
        text = message.text
        if message.role == "assistant" and not answered:
            answered = text
        elif message.role == "user" and text.strip():
            return text, answered
    return "", answered


class FileNotices:
    """Tells in the terminal that files of extensions and tools were read again, or cannot be used. `note` prints a
    sentence in a style."""

    def __init__(self, session: LiveSession, note: Callable[[str, str], object]) -> None:
        self._session = session
        self._note = note
        self._told = set(self._problems())
        self._notices = SessionNotices(session, self._tell, known=self._told)

    def look(self) -> None:
        """Tell what has changed since the last look."""
        self._notices.look()
        problems = self._problems()
        for problem in problems:
            if problem not in self._told:
                self._note(problem, "failed")
        self._told = set(problems)

    def _tell(self, notice: NoticeLine) -> None:
        if notice.get("source") == "extensions":  # tasks are told by the conversation
            self._told.add(notice["text"])
            self._note(notice["text"], "failed" if notice["level"] == "warning" else "faint")

    def _problems(self) -> list[str]:
        """Return what is wrong with files of tools and extensions now."""
        sources = self._session.headless.agent.sources
        of_sources = [problem for source in sources for problem in getattr(source, "problems", ())]
        equipment = self._session.equipment
        return list(dict.fromkeys([*of_sources, *(equipment.problems if equipment is not None else ())]))


# ---------------------------------------------------------------- status bar


class StatusBar:
    """The status line of an open session, and when its values are read."""

    def __init__(self, session: LiveSession, screen: LiveScreen, conversation: Conversation) -> None:
        self._session = session
        self._screen = screen
        self._conversation = conversation
        self._tasks = Tasks()
        self._git: asyncio.Task[None] | None = None
        self._own = _make_status_line(session)
        self._own_text: asyncio.Task[None] | None = None
        self._status = Status(folder=session.folder, model=session.model, mode=session.mode)
        if session.effort_note:
            conversation.note(session.effort_note)

    def line(self, width: int) -> Line:
        return status_line(self._status, width, marks=self._screen.facts.marks)

    def refresh(self) -> None:
        """Something happened: read the values again. The context is measured and git is asked between two turns."""
        session, before = self._session, self._status
        usage = session.usage()
        self._status = before._replace(
            model=session.model,
            mode=session.mode,
            effort="" if session.effort_note or session.effort == "none" else session.effort,
            cost_usd=usage.total.cost_usd,
            budget_usd=usage.budget_usd,
        )
        if self._conversation.working:  # a file is read, and git is asked when the turn is over
            from lyra.tools.git.repository import read_head

            head = read_head(session.folder)
            self._status = self._status._replace(branch=visible(head.branch) if head is not None else "")
        else:
            self._status = self._status._replace(context_percent=session.context().percent)
            if self._git is None or self._git.done():
                self._git = self._tasks.start(self._read_git(), name="git state")
        if self._own is not None and (self._own_text is None or self._own_text.done()):
            self._own_text = self._tasks.start(self._read_own(self._own), name="status line")
        self._screen.mark_changed()

    async def close(self) -> None:
        await self._tasks.close()

    async def _read_own(self, own: StatusLine) -> None:
        """Read the text of the user's StatusLine hooks."""
        session = self._session
        data = {
            "session_id": session.id,
            "model": session.model,
            "mode": session.mode,
            "cost_usd": self._status.cost_usd,
            "context_tokens": session.context().tokens.total,
        }
        self._status = self._status._replace(own=await own.refresh(data))
        self._screen.mark_changed()

    async def _read_git(self) -> None:
        from lyra.sage.project.git_state import git_state

        state = await git_state(self._session.folder)
        changed = state.staged + state.changed + state.untracked + state.conflicted if state is not None else 0
        self._status = self._status._replace(branch=state.branch if state is not None else "", changed_files=changed)
        self._screen.mark_changed()


def _make_status_line(session: LiveSession) -> StatusLine | None:
    """Return the status line that hooks of the user write; None where no hook does."""
    if session.hooks is None or session.hooks.status_for("StatusLine", {}) is None:
        return None
    from lyra.sage.extensions.hooks.hooks import StatusLine

    return StatusLine(session.hooks)


# ---------------------------------------------------------------- status


class Status(NamedTuple):
    folder: str = ""
    branch: str = ""
    changed_files: int = 0
    model: str = ""
    mode: str = "default"
    cost_usd: float | None = 0.0  # None: the price of a call is not known
    budget_usd: float | None = None
    context_percent: int | None = None
    effort: str = ""  # how much the model thinks
    own: str = ""  # what a hook of the user says in place of the folder and the branch


def status_line(status: Status, width: int, *, marks: Marks) -> Line:
    """One line; what matters least is left out where it is too narrow."""
    left: list[Line] = [[("strong", " sage")]]
    if status.mode != "default":
        left.append([("mode", exact(status.mode))])
    left.append([("", exact(status.own or os.path.basename(status.folder.rstrip("/")) or "/"))])
    if status.branch and not status.own:
        dirty = f" {marks.plus_minus}{status.changed_files}" if status.changed_files else ""
        left.append([("faint", f"{exact(status.branch)}{dirty}")])
    cost = "" if status.cost_usd == 0 else dollars(status.cost_usd)  # nothing was spent, or nothing costs anything
    model = f"{exact(status.model.rpartition('/')[2])}{f' {status.effort}' if status.effort else ''}"
    right: list[Line] = [[("faint", model)]] if status.model else []
    if status.budget_usd:
        cost = f"{cost or '$0'} of ${status.budget_usd:.2f}"
    if cost:
        right.append([("faint", cost)])
    if status.context_percent is not None:
        style = "waits" if status.context_percent >= 80 else "faint"
        right.append([(style, f"context {status.context_percent} %")])
    while True:
        line = _join(left, "  ")
        figures = _join(right, "   ")
        room = width - width_of(line) - width_of(figures)
        if room >= 2:
            return [*line, ("", " " * room), *figures]
        if right:
            right.pop(0)
        elif len(left) > 2:
            left.pop()
        else:
            return clip(line, width, marks.ellipsis)


def _join(parts: list[Line], gap: str) -> Line:
    line: Line = []
    for part in parts:
        line += [("", gap), *part] if line else part
    return line


def drafts_folder() -> Path:
    return data_folder() / "sage-drafts"


class Draft:
    """The draft of one session. `read` gives what is typed and not sent now."""

    def __init__(self, session: str, folder: str, read: Callable[[], str], without_keys: Callable[[str], str]) -> None:
        self._path = drafts_folder() / f"{session}.json"
        self._folder = folder
        self._read = read
        self._without_keys = without_keys
        self._file: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._written = ""

    def schedule(self) -> None:
        """Write the file soon."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_S, self.write)

    def write(self) -> None:
        """Write the file, if something else is typed than it has. Where it cannot be written there is no draft."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text = redact(self._without_keys(self._read()[:_CHARS_MAX]))
        if text == self._written:
            return
        with contextlib.suppress(OSError):
            if self._file is None:
                make_folder(self._path.parent, private=True)
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = json.dumps({"folder": self._folder, "text": text}).encode() if text.strip() else b""
            os.pwrite(self._file, data, 0)
            os.ftruncate(self._file, len(data))
            self._written = text

    def close(self) -> None:
        """Write what is typed now; without any text the file is removed."""
        self.write()
        if self._file is not None:
            if not self._written.strip():
                self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None


def take_left_over(folder: str) -> str:
    """Return the newest draft of a folder that no open session has, and remove it; empty where there is none."""
    try:
        paths = sorted(drafts_folder().glob("*.json"), key=lambda path: path.lstat().st_mtime_ns, reverse=True)
    except OSError:
        return ""
    for path in paths[_FILES_MAX:]:
        path.unlink(missing_ok=True)
    for path in paths[:_FILES_MAX]:
        text = _take(path, folder)
        if text:
            return text
    return ""


def _take(path: Path, folder: str) -> str:
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kept = json.loads(os.read(file, 8 * _CHARS_MAX) or b"{}")
        if not isinstance(kept, dict) or kept.get("folder") != folder:
            return ""
        path.unlink(missing_ok=True)
        return str(kept.get("text", "")).strip("\n")
    except (OSError, ValueError):  # another session has it open, or it was cut off in the middle
        return ""
    finally:
        os.close(file)


def missing_variables(
    model: str, providers: Mapping[str, Mapping[str, Any]], env: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the variables of which one has to be set for this model; empty where it has what it needs."""
    provider = model.partition("/")[0]
    usual = USUAL.get(provider)
    if usual is None or "api_key" not in usual.needs or providers.get(provider, {}).get("api_key"):
        return ()
    return () if any(env.get(name) for name in usual.key) else usual.key


def choose_model(model: str, providers: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the model to start with: the one that is set up, or the simulated one where the person takes it; else
    None."""
    missing = missing_variables(model, providers, os.environ)
    if model and not missing:
        return model
    facts = TerminalFacts.read(sys.stdin, sys.stdout)
    width = size_of(sys.stdout)[0]
    for line in _set_up_lines(model, missing):
        for row in wrap(line, width, hanging=4):
            sys.stdout.write(for_output(strip_style(row), unicode=facts.unicode) + "\n")
    try:
        answer = input(f"{' ' * MARGIN}s  try it with the simulated model    enter  leave    ")
    except (EOFError, KeyboardInterrupt):
        answer = ""
    return SIMULATED if answer.strip().lower() == "s" else None


def _set_up_lines(model: str, missing: tuple[str, ...]) -> list[Line]:
    if missing:
        first = f"{exact(model)} needs a key, and {' or '.join(missing)} is not set."
    else:
        first = "No model is set up. Set one of these variables and name a model:"
    rows: list[Line] = [[("", "")], [("", f"{' ' * MARGIN}{first}")], [("", "")]]
    for provider, usual in USUAL.items():
        if usual.example:
            variable = (usual.key or usual.url)[0]
            words = f"{variable:<20} sage --model {provider}/{usual.example}"
            rows.append([("", f"{' ' * (MARGIN + 2)}{words}")])
    rows.append([("", "")])
    rows += [[("", f"{' ' * MARGIN}{words}")] for words in _MORE]
    return [*rows, [("", "")]]


def welcome_lines(session: LiveSession, width: int, *, plain: bool = False) -> list[Line]:
    """Return the first screen of a user who has never used Sage; `plain`: in a terminal that sends whole lines."""
    interrupts, changes = ("ctrl-c", "/permissions mode") if plain else ("esc", "shift-tab")
    provider, _, name = session.model.partition("/")
    rows: list[Line] = [
        [("strong", f"{' ' * MARGIN}Sage works with you on the code of this folder.")],
        [],
        _fact("model", f"{exact(name)} of {exact(provider)}"),
        _fact("folder", _folder_words(session.folder)),
        *_import_facts(session.folder),
        _fact("asks", f"before it changes a file, runs a command or fetches a page; {changes} changes that"),
        _fact("keys", f"{interrupts} interrupts, @ names a file, ! runs a command of yours, ctrl-d leaves"),
        [],
        [("strong", f"{' ' * MARGIN}Three things to try")],
        *([("", f"{' ' * (MARGIN + 2)}{thing}")] for thing in _THINGS),
    ]
    return [part for row in rows for part in wrap(row, width, hanging=MARGIN + 8)]


def _fact(name: str, words: str) -> Line:
    return [("faint", f"{' ' * MARGIN}{name:<8}"), ("", words)]


def _import_facts(folder: str) -> list[Line]:
    """Say how files of other agents are taken over, where the project has some and nothing was taken over yet."""
    names = [name for name in _OF_OTHER_AGENTS if os.path.lexists(os.path.join(folder, name))]
    if not names or os.path.lexists(os.path.join(folder, ".lyra")):
        return []
    words = f"{', '.join(names[:-1])} and {names[-1]} are" if names[1:] else f"{names[0]} is"
    return [_fact("import", f"{words} here: sage import takes over what Sage can use of it")]


def _folder_words(folder: str) -> str:
    """Return whether the files of the folder ask for something, and whether that is trusted."""
    from lyra.config.asks import folder_asks
    from lyra.config.trust import trust_for

    trust = trust_for(folder)
    waiting = [file for file in folder_asks(folder) if file.state(trust) != "trusted"]
    name = exact(os.path.basename(folder) or folder)
    if not waiting:
        return name
    files = ", ".join(file.shown_name for file in waiting[:5])
    return f"{name}; not trusted, so {files} can only forbid (lyra trust show says what they ask for)"
