"""The map itself, made in its own process: a job as JSON on its input, the ranked rows as JSON on its output.

Parsing holds the interpreter for milliseconds a file, and the files may be hostile: here it costs the event loop
nothing, and ends with the process. The process bounds itself: memory, and time after which no further file is read;
what was read until then is kept, and the next map continues from there. `repo_map` starts it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections import Counter
from contextlib import suppress
from typing import Any, Final

from lyra.errors import LyraError
from lyra.sage.project.repo_map.listing import FileListing, ListedFile, list_files
from lyra.sage.project.repo_map.outline import FILE_BYTES_MAX, language_of, outline_of
from lyra.sage.project.repo_map.ranking import CachedOutline, OutlineCache, is_test, rank
from lyra.sandbox.paths import Beneath

_MEMORY_BYTES_MAX: Final = 2 << 30
_NICE: Final = 5
_ENDINGS_SHOWN: Final = 8
_FOLDERS_SHOWN: Final = 24
_PLAIN_FILES: Final = 100  # files without symbols that are named


def make_map(job: dict[str, Any], *, is_over: Any = lambda: False) -> dict[str, Any]:
    """Return the rows of one map. `is_over()` says that no further file should be read."""
    root = job["root"].rstrip("/")
    within = job.get("within", "")
    listing = list_files(root, ripgrep=job.get("ripgrep", ""), passed_over=job.get("passed_over", ()))
    cache = OutlineCache(job.get("cache", ""), parsers=job.get("parsers", True))
    read, complete = _refresh(cache, root, listing, is_over, parsers=job.get("parsers", True))
    most = int(job.get("most", 500))
    ranked = rank(cache.outlines, query=job.get("query", ""), within=within, most=most)
    inside = [file.path for file in listing.files if file.path.startswith(within)]
    shown = {file.path for file in ranked}
    return {
        "files": [[file.path, [list(symbol) for symbol in file.symbols]] for file in ranked],
        "plain": _list_files_without_symbols(inside, shown, cache.outlines),
        "count": len(inside),
        "endings": Counter(os.path.splitext(path)[1][1:] or "other" for path in inside).most_common(_ENDINGS_SHOWN),
        "folders": _folders(inside, within),
        "read": read,
        "complete": complete and not listing.more,
    }


def _refresh(cache: OutlineCache, root: str, listing: FileListing, is_over: Any, *, parsers: bool) -> tuple[int, bool]:
    """Read the files that are new or changed, and forget those that are gone: how many were read, and whether all."""
    before, outlines = cache.outlines, {}
    changed: list[ListedFile] = []
    for file in listing.files:
        known = before.get(file.path)
        if known is not None and (known.modified_ns, known.size_bytes) == (file.modified_ns, file.size_bytes):
            outlines[file.path] = known
        elif language_of(file.path) and file.size_bytes <= FILE_BYTES_MAX:
            changed.append(file)
    read = 0
    changed.sort(key=lambda file: (is_test(file.path), file.path))  # if time runs out, tests are missing
    with Beneath(root) as folder:
        for file in changed:
            if is_over():
                break
            data = _content(folder, file.path)
            outlines[file.path] = CachedOutline.from_outline(
                file.modified_ns, file.size_bytes, outline_of(file.path, data, parsers=parsers)
            )
            read += 1
    cache.outlines = outlines
    if read or len(outlines) != len(before):
        cache.save()
    return read, read == len(changed)


def _content(folder: Beneath, path: str) -> bytes:
    """Return a file's bytes; none for what is no plain file, or is reached through a link."""
    try:
        descriptor = folder.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY, links=False)
    except (OSError, LyraError):
        return b""
    try:
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(FILE_BYTES_MAX + 1)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _list_files_without_symbols(paths: list[str], shown: set[str], outlines: dict[str, CachedOutline]) -> list[str]:
    """Files without symbols, those near the top first."""
    named = {path for path, outline in outlines.items() if outline.names}
    rest = [path for path in paths if path not in shown and path not in named]
    return sorted(rest, key=lambda path: (path.count("/"), path))[:_PLAIN_FILES]


def _folders(paths: list[str], within: str) -> list[tuple[str, int]]:
    """Folders of two levels with the number of files below each, the largest first."""
    counts: Counter[str] = Counter()
    for path in paths:
        parts = path[len(within) :].split("/")[:-1][:2]
        if parts:
            counts[within + "/".join(parts)] += 1
    return counts.most_common(_FOLDERS_SHOWN)


def main() -> None:
    """Read a job, bound the process, write the answer."""
    os.nice(_NICE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    job = json.load(sys.stdin)
    over: list[int] = []
    signal.signal(signal.SIGALRM, lambda number, _frame: over.append(number))
    signal.setitimer(signal.ITIMER_REAL, float(job.get("seconds", 10.0)))
    answer = make_map(job, is_over=lambda: bool(over))
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stdout.write(json.dumps(answer))
