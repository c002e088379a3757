"""The search itself, in its own process: `python -I -S search_worker.py` with a job as JSON on its input.

A pattern that takes for ever, or a tree of a million files, then costs the kernel's loop nothing, and is ended by
ending the process. Only the standard library is imported, so that it starts at once. Grep uses ripgrep if it is
installed, and else its own engine, also for patterns that ripgrep cannot read (look-around, back references); the
answer is the same. Ignore files are not read: folders of tools and
dependencies are skipped by name.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # start-up is a good part of a small search: `typing` is not imported at run time
    from collections.abc import Callable, Iterator
    from typing import Any

    Job = dict[str, Any]
    Row = tuple[str, int, str, bool]  # path, line, text, whether it matched
    Folder = tuple[int, str, list[str]]  # a descriptor, the path below the root and its slash, the plain files in it

ROWS_MAX = 5_000  # in one answer
ROWS_KEPT = 200_000  # held before they are sorted
TEXT_CHARS_MAX = 2_000
FILE_BYTES_MAX = 10 * 1024 * 1024  # larger files are not searched
PASSED_OVER = (
    *(".git", ".hg", ".svn", ".lyra", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache"),
    *(".pytest_cache", ".tox", ".hypothesis", ".import_linter_cache"),
)
_PASSED_OVER = frozenset(PASSED_OVER)
_ANY_FOLDERS = "(?:[^/]+/)*"
_NICE = 5  # eight searches at once must not take the processor from the kernel
_CHUNK = 64 * 1024
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16
_PLAIN = re.compile(r"[A-Za-z0-9_ :;,=<>!@%&/'\"~`-]+")
_OWN_ONLY = re.compile(r"\(\?(?:[=!(>#]|<[=!]|P=)|\\[1-9ZAGBK]|[*+?}]\+")
_NOT_BY_LINES = re.compile(r"\\[AZz]|\(\?[a-z]*[<(=!]|\\s|\[\^|\[:|\\[WD]")
_BROKEN = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as `surrogateescape` decodes them
_WHOLE = re.compile("[^\udc80-\udcff]+")
_IN_SET = re.compile(r"\\.|\[:(\^?\w+):\]|\[|&&|--|~~|\]", re.DOTALL)
_CLASSES = {  # of ripgrep, and of POSIX
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


def glob_regex(pattern: str) -> str:
    """Return a glob as a regular expression over a path: `**` any folders, `*` and `?` within a name, `[…]`,
    `{a,b}`."""
    if "/" not in pattern:
        pattern = f"**/{pattern}"
    pattern = re.sub(
        r"(?:\*\*/+){2,}", "**/", pattern.lstrip("/")
    )  # each further `**/` would be tried with every folder
    out, index, braces = [], 0, 0
    while index < len(pattern):
        char = pattern[index]
        if pattern.startswith("**/", index):
            out.append(_ANY_FOLDERS)
            index += 3
            continue
        if pattern.startswith("**", index):
            out.append(".*")
            index += 2
            continue
        if char == "[" and "]" in pattern[index + 2 :]:
            end = pattern.index("]", index + 2)
            body = pattern[index + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"[^{body[1:]}]" if body[0] in "!^" else f"[{body}]")
            index = end + 1
            continue
        if char == "{" and "}" in pattern[index:]:
            out.append("(?:")
            braces += 1
        elif char == "}" and braces:
            out.append(")")
            braces -= 1
        elif char == "," and braces:
            out.append("|")
        elif char == "\\" and index + 1 < len(pattern):
            index += 1
            out.append(re.escape(pattern[index]))
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(char) or re.escape(char))
        index += 1
    return "".join(out)


def open_folder(path: str) -> int:
    """Return a descriptor of the folder that has this very path, with no link on the way."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if os.readlink(f"/proc/self/fd/{fd}") != (path.rstrip("/") or "/"):
        os.close(fd)
        raise NotADirectoryError(path)
    return fd


def walk(root: str) -> Iterator[Folder]:
    """Yield the folders below a root. Links are not followed, not even if a folder is replaced by one meanwhile: each
    folder is opened once, and everything in it is reached through its descriptor."""
    waiting = [""]
    while waiting:
        path = waiting.pop()
        names: list[str] = []
        fd = -1
        try:
            fd = open_folder(f"{root}/{path}")
            with os.scandir(fd) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        names.append(entry.name)
                    elif entry.is_dir(follow_symlinks=False) and entry.name not in _PASSED_OVER:
                        waiting.append(f"{path}{entry.name}/")
            yield fd, path, names
        except OSError:
            continue  # it is gone, or may not be read
        finally:
            if fd >= 0:
                os.close(fd)


def chooser(job: Job) -> Callable[[str, str], bool]:
    """Return a function of a folder's path and a file's name: whether the job asks for this file."""
    groups = [[_Glob(glob) for glob in job.get(key, ())] for key in ("globs", "kinds") if job.get(key)]
    if not groups:
        return lambda _path, _name: True
    if len(groups) == 1 and len(groups[0]) == 1:
        return groups[0][0].fits
    return lambda path, name: all(any(glob.fits(path, name) for glob in group) for group in groups)


class _Glob:
    """One pattern; a pattern without folders is compared with names alone."""

    __slots__ = ("fits",)

    def __init__(self, pattern: str) -> None:
        name = pattern.removeprefix("**/")
        by_name = "/" not in name and "**" not in name
        regex = glob_regex(pattern).removeprefix(_ANY_FOLDERS) if by_name else glob_regex(pattern)
        matches = re.compile(regex, re.DOTALL).fullmatch
        self.fits: Callable[[str, str], bool] = (
            (lambda _path, name: matches(name) is not None)
            if by_name
            else (lambda path, name: matches(path + name) is not None)
        )


def run_glob(job: Job) -> dict[str, Any]:
    fits = chooser(job)
    rows = []
    for fd, path, names in walk(job["root"].rstrip("/")):
        for name in names:
            if fits(path, name):
                try:
                    modified_ns = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mtime_ns
                except OSError:
                    continue
                rows.append((-modified_ns, path + name))
    rows.sort()
    most = rows_max(job)
    return {"engine": "own", "rows": [name for _, name in rows[:most]], "more": len(rows) > most}


def rows_max(job: Job) -> int:
    return min(ROWS_MAX, int(job.get("most", ROWS_MAX)))


# ---------------------------------------------------------------- grep
def translate_regex(pattern: str) -> str:
    """Return a pattern in ripgrep's syntax, translated to Python's; what has no equivalent is an error."""
    out, index = [], 0
    while index < len(pattern):
        if pattern[index] == "\\":
            out.append("\\Z" if pattern[index + 1 : index + 2] == "z" else pattern[index : index + 2])
            index += 2
        elif pattern[index] == "[":
            char_class, index = _set(pattern, index)
            out.append(char_class)
        else:
            out.append(pattern[index])
            index += 1
    return "".join(out)


def _set(pattern: str, start: int) -> tuple[str, int]:
    """Return the set `[…]` that begins at `start`, translated, and the position after it."""
    index = start + (2 if pattern[start + 1 : start + 2] == "^" else 1)
    index += pattern[index : index + 1] == "]"  # the first `]` is a plain character
    out = [pattern[start:index]]
    while (part := _IN_SET.search(pattern, index)) is not None:
        out.append(pattern[index : part.start()])
        index = part.end()
        if part[1] in _CLASSES:
            out.append(_CLASSES[part[1]])
        elif part[0][0] in "\\]":
            out.append(part[0])
            if part[0] == "]":
                return "".join(out), index
        else:
            raise re.error(
                f"`{part[0]}` inside [ ] is read by ripgrep alone, which is not here; write \\[ for the sign"
            )
    return pattern[start:], len(pattern)  # not closed: Python reports it


def run_grep(job: Job) -> dict[str, Any]:
    try:
        own = re.compile(translate_regex(job["pattern"]), _flags(job))
        wrong = None
    except (re.error, RecursionError, OverflowError) as error:
        own, wrong = None, str(error)
    rg = find_ripgrep() if job.get("ripgrep", True) and not _OWN_ONLY.search(job["pattern"]) else None
    matched = by_ripgrep(rg, job) if rg else None
    engine = "own" if matched is None else "ripgrep"
    if matched is None:
        if own is None:
            return {"error": f"the pattern cannot be read: {wrong}"}
        matched = by_hand(own, job)
    most = rows_max(job)
    rows = summarize(matched if engine == "own" else confirm(matched, job, most), job["mode"])
    return {"engine": engine, "rows": rows[:most], "more": len(rows) > most}


def confirm(rows: list[Row], job: Job, most: int) -> list[Row]:
    """Return the rows that are still there when the files are opened without links, until there are more than `most`.
    ripgrep opens files by name, and a folder that is replaced by a link at that moment would lead it outside. No mode
    shows, counts or names other rows."""
    kept: list[Row] = []
    rows.sort(key=lambda row: (row[0], row[1]))
    shown, index = 0, 0
    while index < len(rows) and shown <= most:
        path = rows[index][0]
        lines = lines_in(path, job)
        before = len(kept)
        while index < len(rows) and rows[index][0] == path:
            row = rows[index]
            if row[1] <= len(lines) and lines[row[1] - 1].rstrip("\r") == row[2].rstrip("\r"):
                kept.append(row)
            index += 1
        if not any(row[3] for row in kept[before:]):
            del kept[before:]  # only context lines are left: no match was confirmed
        shown += len(kept) - before if job["mode"] == "content" else len(kept) > before
    return kept


def lines_in(path: str, job: Job) -> list[str]:
    """Return a file's lines, opened without following links; none if it does not exist or is not text."""
    folder, _, name = path.rpartition("/")
    try:
        fd = open_folder(f"{job['root'].rstrip('/')}/{folder}")
    except OSError:
        return []
    data = read(name, fd)
    os.close(fd)
    text = text_of(data) if data is not None else None
    return lines_of(text) if text is not None else []


def _flags(job: Job) -> int:
    flags = re.MULTILINE | (re.DOTALL if job["multiline"] else 0)
    return flags | (re.IGNORECASE if job["ignore_case"] else 0)


def summarize(rows: list[Row], mode: str) -> list[Any]:
    """Rows of (path, line, text, whether it matched), in order, as the mode shows them."""
    rows.sort(key=lambda row: (row[0], row[1]))
    if mode == "content":
        return [[path, line, cut(text), hit] for path, line, text, hit in rows]
    counts: dict[str, int] = {}
    for path, _, _, hit in rows:
        counts[path] = counts.get(path, 0) + hit
    return list(counts) if mode == "files_with_matches" else [[path, count] for path, count in counts.items()]


def cut(text: str) -> str:
    text = text.rstrip("\r")
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}… ({len(text)} characters)"


def by_ripgrep(program: str, job: Job) -> list[Row] | None:
    """Return the rows that ripgrep finds; None if it cannot read the pattern."""
    command = [program, "--json", "--no-config", "--no-ignore", "--hidden", "--no-messages", "--max-filesize", "10M"]
    command += ["--ignore-case"] if job["ignore_case"] else ["--case-sensitive"]
    command += ["--multiline", "--multiline-dotall"] if job["multiline"] else []
    command += ["-B", str(job["before"]), "-A", str(job["after"])]
    for glob in (*job.get("kinds", ()), *job.get("globs", ())) if not (job.get("kinds") and job.get("globs")) else ():
        command += ["--glob", glob]
    for name in PASSED_OVER:
        command += ["--glob", f"!**/{name}/"]
    command += ["-e", job["pattern"], "--", job.get("file") or "."]
    output, wait = spawn(command, job["root"])
    rows: list[Row] = []
    begun = 0
    for line in output:
        message = json.loads(line)
        data = message["data"]
        if message["type"] == "begin":
            begun = len(rows)
        elif message["type"] == "end":
            if data.get("binary_offset") is not None:
                del rows[begun:]
        elif message["type"] in ("match", "context") and len(rows) < ROWS_KEPT:
            path = name_of(data["path"]).removeprefix("./")
            for offset, text in enumerate(lines_of(decode_part(data["lines"]))):
                rows.append((path, data["line_number"] + offset, text, message["type"] == "match"))
    if wait() == 2 and not rows:
        return None
    names = {row[0] for row in rows}
    if not job.get("file"):
        fits = chooser(job)
        names = {path for path in names if fits(path[: path.rfind("/") + 1], path.rpartition("/")[2])}
    return [row for row in rows if row[0] in names]


def find_ripgrep() -> str | None:
    for folder in os.environ.get("PATH", os.defpath).split(":"):
        program = os.path.join(folder, "rg")
        if folder.startswith("/") and os.access(program, os.X_OK) and os.path.isfile(program):
            return program
    return None


def spawn(command: list[str], folder: str) -> tuple[Iterator[bytes], Callable[[], int]]:
    """Return a program's lines, and how to wait for its end. (Importing `subprocess` would take longer than all of
    this.)"""
    os.fchdir(open_folder(folder))
    reading, writing = os.pipe()
    silent = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    shown = (os.POSIX_SPAWN_DUP2, writing, 1)
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=[silent, shown])
    os.close(writing)
    return open(reading, "rb"), lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def name_of(part: dict[str, str]) -> str:
    """Return a name of a file; bytes that are not UTF-8 are escaped as Python does."""
    return part["text"] if "text" in part else os.fsdecode(base64.b64decode(part["bytes"]))


def decode_part(part: dict[str, str]) -> str:
    return part["text"] if "text" in part else base64.b64decode(part["bytes"]).decode("utf-8", "replace")


def lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def by_hand(pattern: re.Pattern[str], job: Job) -> list[Row]:
    rows: list[Row] = []
    quick = not job["multiline"] and not _NOT_BY_LINES.search(job["pattern"])
    needed = must_hold(job)
    for name, data in contents(job):
        if needed and needed not in data and not data.startswith(_WIDE):
            continue
        text = text_of(data)
        if text is None or (quick and pattern.search(text) is None):
            continue
        lines = lines_of(text)
        seen = mask_undecodable(text, data)
        if job["multiline"]:
            hits = find_lines(pattern, seen)
        elif seen is text:
            hits = [i for i, s in enumerate(lines) if pattern.search(s)]
        else:
            hits = [i for i, s in enumerate(lines_of(seen)) if any(True for _ in matches(pattern, s))]
        marked = set(hits)
        shown = {n for hit in hits for n in range(hit - job["before"], hit + job["after"] + 1) if 0 <= n < len(lines)}
        rows += [(name, n + 1, lines[n], n in marked) for n in sorted(shown)]
        if len(rows) > ROWS_KEPT:
            break
    return rows


def must_hold(job: Job) -> bytes:
    """Bytes that every file with a match contains: the plain characters at the beginning of the pattern."""
    pattern = job["pattern"]
    plain_part = _PLAIN.match(pattern)
    if plain_part is None or job["ignore_case"] or "|" in pattern or "(?" in pattern:
        return b""
    text = plain_part.group()
    return (text[:-1] if pattern[len(text) : len(text) + 1] in ("*", "?", "{") else text).encode()


def contents(job: Job) -> Iterator[tuple[str, bytes]]:
    """Each file that is asked for, with its bytes."""
    root = job["root"].rstrip("/")
    if job.get("file"):
        data = read(job["file"], open_folder(f"{root}/"))
        if data is not None:
            yield job["file"], data
        return
    fits = chooser(job)
    for fd, path, names in walk(root):
        for name in names:
            if fits(path, name) and (data := read(name, fd)) is not None:
                yield path + name, data


def mask_undecodable(text: str, data: bytes) -> str:
    """Return the text with each undecodable byte as a character that no pattern matches."""
    if "\ufffd" not in text or data.startswith(_WIDE):
        return text
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    if _BROKEN.search(text) is None:
        yield from pattern.finditer(text)
        return
    for part in _WHOLE.finditer(text):
        yield from pattern.finditer(text, part.start(), part.end())


def find_lines(pattern: re.Pattern[str], text: str) -> list[int]:
    """Return the lines that matches cover."""
    lines: dict[int, None] = {}
    line, last = 0, 0
    for match in matches(pattern, text):
        start, end = match.start(), max(match.start(), match.end() - 1)
        if start >= len(text):
            break
        line += text.count("\n", last, start)
        last = start
        for number in range(line, line + text.count("\n", start, end) + 1):
            lines[number] = None
    return list(lines)


def read(path: str, folder: int) -> bytes | None:
    """Return a plain file's bytes; None for one that is too large, or not there, or no file any more."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        data = os.read(fd, _CHUNK)
        if len(data) < _CHUNK:  # most files are small: one read is enough
            return data
        parts, size = [data], len(data)
        while data:
            data = os.read(fd, FILE_BYTES_MAX)
            parts.append(data)
            size += len(data)
            if size > FILE_BYTES_MAX:
                return None
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(fd)


def text_of(data: bytes) -> str | None:
    """Return the decoded text; None if the bytes are not text."""
    for mark, encoding in ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    return None if b"\0" in data else data.decode("utf-8", "replace")


def main() -> None:
    os.nice(_NICE)
    job = json.load(sys.stdin)
    try:
        answer = run_glob(job) if job["kind"] == "glob" else run_grep(job)
    except (re.error, RecursionError, OverflowError) as error:
        answer = {"error": f"the pattern cannot be read: {error}"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
