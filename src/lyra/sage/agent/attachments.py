"""What goes with a prompt: files, folders, pages and images that it names.

    explain @src/app.py · compare @a.py:10-40 with @b.py:7 · what is in @docs/ · summarise @https://example.org/page

`attach` reads what stands behind an `@` and gives it as text beside the prompt, with a note on the size of each. Files
are read by the session's own Read tool: its rules, hidden names and limits hold, and the file counts as read, so that
it can be edited at once. A page is fetched where a rule allows it without a question. An image counts where its
path stands as a word of its own, with or without `@`: typed, dragged into the terminal, in quotes, with escaped blanks,
or as a `file://` address. Only files that exist are attached; any other `@word` is text.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from lyra.core.secrets.visible import visible
from lyra.core.tool import Tool, caller, rights
from lyra.errors import ConfigError, LyraError
from lyra.tools.permissions.subjects import Subject, names_packages, subject_of

if TYPE_CHECKING:
    from lyra.sage.agent.live import LiveSession

_IMAGE: Final = re.compile(
    r"""@?"(?P<double>[^"\n]+\.(?:png|jpe?g|gif|webp))"|@?'(?P<single>[^'\n]+\.(?:png|jpe?g|gif|webp))'"""
    r"""|(?<!\S)@?(?P<bare>(?:\\.|[^\s\\"'])+\.(?:png|jpe?g|gif|webp))(?=[\s,;:.!?)]|$)""",
    re.IGNORECASE,
)
_ESCAPED: Final = re.compile(r"\\(.)")
_NAMED: Final = re.compile(
    r"""(?<![^\s(\["'`])@(?:"(?P<quoted>[^"\n]+)"|(?P<bare>[^\s"'`]+))(?P<range>:\d+(?:-\d+)?)?"""
)
_RANGE: Final = re.compile(r":(\d+)(?:-(\d+))?\Z")
_PAGE: Final = re.compile(r"https?://", re.IGNORECASE)
_SENTENCE_END: Final = ",;:.!?)]}>"
_IMAGES_MAX: Final = 20
_ATTACHED_MAX: Final = 50  # files, folders and pages of one prompt
_CHARS_MAX: Final = 400_000  # of all of them together
_LISTED_MAX: Final = 400  # files of a folder
_LINES_USUAL: Final = 2_000
_LIKE_FILE: Final = re.compile(r"/|\.[A-Za-z]\w{0,4}(?::\d+(?:-\d+)?)?\Z")
_MISTYPED_MAX: Final = 5
_LOOKED_AT_MAX: Final = 5_000  # files among which one with a like name is looked for


class Attached(NamedTuple):
    """The texts and `images` that go with a prompt, and what the user is told of them (`notes`). `own` is text of the
    user's own project, `beside` text from outside: pages, packages, files of a project that is not trusted."""

    beside: str = ""
    own: str = ""
    images: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def send_with(self) -> dict[str, Any]:
        """Return the arguments of `LiveSession.send` beside the prompt."""
        given = {"beside": self.beside, "own": self.own, "images": self.images}
        return {name: value for name, value in given.items() if value}


class _Name(NamedTuple):
    """A path or an address as it was typed, and the lines of it that are wanted: the first and the last, from 1."""

    text: str
    lines: tuple[int, int] | None = None


async def attach(session: LiveSession, text: str, *, is_typed: bool = True) -> Attached:
    """Read what a text names; paths are relative to the folder of the session. An image that the user has typed may be
    anywhere where no rule denies it."""
    pieces: dict[bool, list[str]] = {True: [], False: []}  # by whether they are of the user's own project
    notes: list[str] = []
    size = 0
    for name in find_names(text, session.folder)[:_ATTACHED_MAX]:
        try:
            piece, note, is_own = await _read(session, name)
        except LyraError as error:
            notes.append(f"{visible(name.text)} is not attached: {error.message}")
            continue
        if size + len(piece) > _CHARS_MAX:
            notes.append(f"{visible(name.text)} is not attached: with the others it would be too long")
            continue
        size += len(piece)
        pieces[is_own].append(piece)
        notes.append(f"attached {note}")
    if is_typed:
        notes += await asyncio.to_thread(_find_mistyped, session, text)
    images, of_images = find_images(text, session.folder, lambda path: _judge(session, path, is_typed=is_typed))
    return Attached("\n\n".join(pieces[False]), "\n\n".join(pieces[True]), images, (*notes, *of_images))


# ---------------------------------------------------------------- names


def find_names(text: str, folder: str) -> list[_Name]:
    """Return what stands behind an `@` and is a file, a folder or an address; images are found by `find_images`."""
    if "@" not in text:
        return []
    names = (_name_of(match, folder) for match in _NAMED.finditer(text))
    return list(dict.fromkeys(name for name in names if name is not None))


def _name_of(match: re.Match[str], folder: str) -> _Name | None:
    if match["quoted"] is not None:
        name = _Name(match["quoted"], _lines_of(match["range"] or ""))
        return name if _is_there(name.text, folder) else None
    for typed in _readings(match["bare"]):
        if _PAGE.match(typed):
            return _Name(typed)
        if _is_there(typed, folder):
            return _Name(typed)
        lines = _RANGE.search(typed)
        if lines is not None and _is_there(typed[: lines.start()], folder):
            return _Name(typed[: lines.start()], _lines_of(lines[0]))
    return None


def _readings(typed: str) -> Iterator[str]:
    """Yield the word as it is, and without the marks that end a sentence."""
    yield typed.rstrip(_SENTENCE_END) if _PAGE.match(typed) else typed
    while typed and typed[-1] in _SENTENCE_END:
        typed = typed[:-1]
        yield typed


def _lines_of(text: str) -> tuple[int, int] | None:
    match = _RANGE.search(text)
    if match is None:
        return None
    first = int(match[1])
    return first, int(match[2] or first)


def _is_there(path: str, folder: str) -> bool:
    whole = os.path.join(folder, os.path.expanduser(path))
    is_image = path.lower().endswith((".png", ".jpg", ".jpeg", ".gif", ".webp"))
    return "\0" not in path and len(path) < os.pathconf("/", "PC_PATH_MAX") and os.path.exists(whole) and not is_image


def _find_mistyped(session: LiveSession, text: str) -> list[str]:
    """Return a note on each word behind an `@` that looks like the name of a file and is none, with one like it."""
    typed = [match["quoted"] or match["bare"].rstrip(_SENTENCE_END) for match in _NAMED.finditer(text)]
    names = [_RANGE.sub("", name) for name in typed if _LIKE_FILE.search(name) and not _PAGE.match(name)]
    notes: list[str] = []
    for name in dict.fromkeys(names[:_MISTYPED_MAX]):
        if not os.path.exists(os.path.join(session.folder, os.path.expanduser(name))):
            from difflib import get_close_matches

            files, _ = _list_sizes(session, session.folder, _LOOKED_AT_MAX)
            paths = {os.path.basename(path): path for path in reversed(files)}
            near = get_close_matches(os.path.basename(name), paths, 1)
            hint = f"; did you mean @{visible(paths[near[0]])}?" if near else ""
            notes.append(f"{visible(name)} is not attached: there is no such file{hint}")
    return notes


# ---------------------------------------------------------------- reading


async def _read(session: LiveSession, name: _Name) -> tuple[str, str, bool]:
    """Return the text of a file, folder or page, what it is in a few words, and whether it is of the user's own
    project."""
    if _PAGE.match(name.text):
        url = name.text
        decision = session.headless.setup.permissions.decide(subject_of("WebFetch", {"url": url}), tainted=False)
        if not decision.allowed:
            raise ConfigError("no rule allows it without a question; the model can ask for it")
        output = str(await _call(session, _tool(session, "WebFetch"), url=url))
        return _frame("page", url, output), f"{visible(url)}, {show_size(len(output))}", False
    path, size_bytes, is_own = await asyncio.to_thread(_find, session, name.text)
    if size_bytes is None:
        listing, words = await asyncio.to_thread(_list_folder, session, path, name.text)
        return listing, words, is_own and not names_packages(listing)
    first, last = name.lines or (1, _LINES_USUAL)
    if first < 1 or last < first:
        raise ConfigError(f"lines {first} to {last} are no range")
    tool = _tool(session, "Read")
    output = str(await _call(session, tool, file_path=path, offset=first - 1, limit=min(last - first + 1, 10_000)))
    if name.lines:  # what follows them was not wanted
        output = output.partition("\n… ")[0]
    count = sum(1 for line in output.split("\n") if "\t" in line[:8] and line[:6].strip().isdecimal())
    which = f"{name.text}:{first}-{first + count - 1}" if name.lines else name.text
    lines = f"{count} line{'' if count == 1 else 's'}"
    size = show_size(len(output) if name.lines else size_bytes)
    cut = "" if name.lines or "… " not in output.rpartition("\n")[2] else " of more"
    return _frame("file", which, output), f"{visible(which)}, {lines}{cut}, {size}", is_own


def _find(session: LiveSession, typed: str) -> tuple[str, int | None, bool]:
    """Return the path of a file that may be read, its size (None of a folder), and whether it is the user's own."""
    path = os.path.join(session.folder, os.path.expanduser(typed))
    is_inside = _judge(session, path).inside
    is_own = session.headless.setup.permissions.own_text and is_inside and not names_packages(os.path.realpath(path))
    return path, None if os.path.isdir(path) else os.path.getsize(path), is_own


def _judge(session: LiveSession, path: str, *, is_typed: bool = False) -> Subject:
    """Raise unless a file may be read; one that the user has typed may be where no rule allows it, but none denies
    it."""
    permissions = session.headless.setup.permissions
    folders = permissions.extra_folders
    real = os.path.realpath(path)
    subject = subject_of("Read", {"file_path": path}, path=real, workspace=session.folder, extra_folders=folders)
    decision = permissions.decide(subject)
    if not is_typed or (decision.decision == "deny" and decision.rule):
        decision.require()
    if permissions.is_hidden(path) or permissions.is_hidden(real):
        raise ConfigError("its name is one that keys and passwords have")
    return subject


def _list_folder(session: LiveSession, path: str, typed: str) -> tuple[str, str]:
    """Return the names of the files below a folder, without those that `.gitignore` and the rules hide."""
    sizes, more = _list_sizes(session, path, _LISTED_MAX)
    rows = [f"{name}  {show_size(size_bytes)}" for name, size_bytes in sizes.items()]
    count = f"{len(rows)}{' of more' if more else ''} file{'' if len(rows) == 1 else 's'}"
    return _frame("folder", typed, "\n".join(rows) or "(empty)"), f"{visible(typed)}, {count}"


def _list_sizes(session: LiveSession, path: str, most: int) -> tuple[dict[str, int], bool]:
    """Return files below a folder with their sizes, and whether there are more."""
    from lyra.sage.project.repo_map.worker import list_files

    listing = list_files(os.path.realpath(path), ripgrep=shutil.which("rg") or "", most=most)
    hides = session.headless.setup.permissions.is_hidden
    files = {file.path: file.size_bytes for file in listing.files if not hides(f"{path}/{file.path}")}
    return files, bool(listing.more)


def _tool(session: LiveSession, name: str) -> Tool:
    for tool in session.headless.agent.toolbox:
        if tool.name == name and tool.builtin:
            return tool
    raise ConfigError(f"the tool {name} is not there")


async def _call(session: LiveSession, tool: Tool, **arguments: Any) -> Any:
    """Call a tool in the name of the session's process, with its rights."""
    tokens = caller.set(session.process.pid), rights.set(session.headless.setup.grant)
    try:
        assert tool.run is not None
        if inspect.iscoroutinefunction(tool.run):
            return await tool.run(**arguments)
        output = await asyncio.to_thread(tool.run, **arguments)
        return await output if inspect.isawaitable(output) else output
    finally:
        caller.reset(tokens[0])
        rights.reset(tokens[1])


def _frame(kind: str, name: str, text: str) -> str:
    return f"({kind} that the user has attached: {name})\n{text}\n(end of {name})"


# ---------------------------------------------------------------- images


def find_images(
    text: str, folder: str, check: Callable[[str], object] = lambda _: None
) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Return the images that a text names by their paths, and what is told of each; `check` raises for one that may not
    be read."""
    images: list[Any] = []
    notes: list[str] = []
    for path in _image_paths(text, folder):
        from lyra.agents.declaration.output import Image

        name = visible(os.path.basename(path))
        try:
            check(path)
            images.append(Image.from_path(path))
        except LyraError as error:
            notes.append(f"{name} is not sent: {error.message}")
        else:
            notes.append(f"image {name}, {show_size(os.path.getsize(path))}")
    return tuple(images), tuple(notes)


def _image_paths(text: str, folder: str) -> Sequence[str]:
    paths: dict[str, None] = {}
    for match in _IMAGE.finditer(text):
        bare = match["bare"]
        path = _ESCAPED.sub(r"\1", bare) if bare is not None else match["double"] or match["single"]
        path = unquote(path.removeprefix("file://")) if path.startswith("file://") else path
        whole = os.path.join(folder, os.path.expanduser(path))
        if os.path.isfile(whole):
            paths[whole] = None
    return list(paths)[:_IMAGES_MAX]


def show_size(size_bytes: int) -> str:
    """Return a size for a person: bytes, kB or MB."""
    if size_bytes < 1_000:
        return f"{size_bytes} bytes"
    return f"{size_bytes / 1024:.0f} kB" if size_bytes < 1 << 20 else f"{size_bytes / (1 << 20):.1f} MB"
