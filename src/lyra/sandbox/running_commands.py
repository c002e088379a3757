"""The commands that run in a workspace, from the search before one to the look afterwards.

What a command makes and programs of the user obey is found by comparing with the search `before` it. Where several
commands run in a workspace, each look compares with the search before the oldest of them: what that one has made since
is renamed when any of them ends. So that a command of a killed process is not forgotten, a file in Lyra's own folder
(`running/` in the user's settings, which no command reads; without that folder there is none) says when it began and
what was there, and is locked while the process lives. The next command in that workspace, of any process, finds the
file without its lock and finishes the look first: what is new and was changed while the command could run is renamed,
and its result says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from lyra.core.clock import SystemClock
from lyra.core.ids import Entropy
from lyra.core.user_folders import user_folder
from lyra.errors import LyraError
from lyra.sandbox.profile import Profile
from lyra.sandbox.protected import News, ProtectedPaths, find_appeared, hold_links
from lyra.sandbox.protection.forbidden_names import clean_up, is_placeholder
from lyra.sandbox.protection.linked_folders import LinkedFolder, LinkTarget

_FOLDER: Final = "running"
_MARGIN_S: Final = 30.0  # after its limit a command is killed; file systems and the clock differ a little
_TEXTS: Final = ("read_only", "hidden", "links", "unread", "absent", "repositories", "missing_targets")
_PATHS: Final = ("appeared", "set_aside", "put_back", "reopened", "unread")
_CLEANED_MAX: Final = 256
_log: Final = logging.getLogger("lyra.sandbox")
_clock: Final = SystemClock()
_names: Final = Entropy()
_running: Final[dict[object, list[RunningCommand]]] = {}
_cleaned: Final[dict[str, None]] = {}  # workspaces in which this process has removed what a killed one left


class RunningCommand:
    """One command. `earlier` is what was found of commands before it whose process was killed."""

    def __init__(self, profile: Profile, before: ProtectedPaths, earlier: News) -> None:
        self._profile = profile
        self._before = before
        self._earlier = earlier
        deny = profile.grant.deny if profile.grant else ()
        self._key = (profile.workspace, profile.writable_also, profile.protected, profile.hidden, tuple(map(str, deny)))
        self._mark: tuple[str, int] | None = None  # another thread may ask for it while it is written
        _running.setdefault(self._key, []).append(self)
        self._mark = _write_mark(profile, before) if profile.writable or profile.writable_also else None

    def look(self, most: int | None) -> News:
        """Return what has appeared in the workspace; not `complete` where more than `most` entries have to be
        searched."""
        oldest = _running[self._key][0]._before
        news = find_appeared(self._profile, oldest, most=most)
        whole = _join([self._earlier, news])._replace(unread=tuple(sorted(self._before.all_unread())))
        if not news.complete:  # the next look finds these folders open
            self._earlier = self._earlier._replace(reopened=whole.reopened)
        return whole

    def end(self) -> None:
        """Forget the command, once it has ended and was looked after."""
        commands = _running[self._key]
        commands.remove(self)
        if not commands:
            del _running[self._key]
        if self._mark is not None:
            path, fd = self._mark
            with contextlib.suppress(OSError):
                os.unlink(path)
            os.close(fd)
            with contextlib.suppress(OSError):  # other commands run
                os.rmdir(os.path.dirname(path))


# ---------------------------------------------------------------- marks of running commands
def _marks_folder() -> str | None:
    own = user_folder(os.environ)
    return f"{own}/{_FOLDER}" if own is not None else None


def _make_marks_folder() -> str | None:
    """Make the folder of the marks, which is there while commands run. Lyra's own folder is not made for it."""
    folder = _marks_folder()
    if folder is None or is_placeholder(os.path.dirname(folder)):
        return None
    with contextlib.suppress(OSError):
        os.mkdir(folder, 0o700)
    return folder


def _prefix(workspace: str) -> str:
    return hashlib.sha256(os.fsencode(workspace)).hexdigest()[:32] + "-"


def _write_mark(profile: Profile, before: ProtectedPaths) -> tuple[str, int] | None:
    """Write the mark of a command: its path and a descriptor with the lock. None where no file can be written."""
    folder = _make_marks_folder()
    if folder is None:
        return None
    name = f"{_prefix(profile.workspace)}{_names.text(12)}"
    began = _clock.now()
    facts = {
        "workspace": profile.workspace,
        "writable": profile.writable,
        "began": began,
        "until": began + profile.limits.wall_s,
        "before": _encode(before),
    }
    fd = _create(f"{folder}/.{name}")
    if fd is None:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        os.write(fd, json.dumps(facts).encode("ascii"))
        os.rename(f"{folder}/.{name}", f"{folder}/{name}")  # with its lock and all of its text
    except OSError:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(f"{folder}/.{name}")
        return None
    return f"{folder}/{name}", fd


def _create(path: str) -> int | None:
    for _ in range(2):  # another process may have removed the folder after its last command
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            with contextlib.suppress(OSError):
                os.mkdir(os.path.dirname(path), 0o700)
        except OSError:
            break
    return None


def _encode(paths: ProtectedPaths) -> dict[str, Any]:
    """Return what a later look needs, as JSON; a name that is no text is kept by its surrogates."""
    return {
        **{name: getattr(paths, name) for name in _TEXTS},
        "leads": paths.leads,
        "linked": paths.linked,
        "also": [(root, _encode(inside)) for root, inside in paths.also],
    }


def _decode(facts: dict[str, Any]) -> ProtectedPaths:
    texts: dict[str, Any] = {name: tuple(facts[name]) for name in _TEXTS}
    return ProtectedPaths(
        **texts,
        leads=tuple(LinkTarget(*lead) for lead in facts["leads"]),
        linked=tuple(LinkedFolder(link, target, tuple(obeyed), done) for link, target, obeyed, done in facts["linked"]),
        also=tuple((root, _decode(inside)) for root, inside in facts["also"]),
    )


# ---------------------------------------------------------------- commands of killed processes
def has_killed(profile: Profile) -> bool:
    """Return whether a killed process has left something in the workspace, or may have: then `finish_killed` is
    called."""
    return any(root not in _cleaned for root in _roots(profile)) or bool(_mark_names(profile))


def _roots(profile: Profile) -> tuple[str, ...]:
    return (*((profile.workspace,) if profile.writable else ()), *profile.writable_also)


def _mark_names(profile: Profile) -> list[str]:
    """Return the paths of marks in this workspace, except those of this process."""
    folder = _marks_folder()
    if folder is None:
        return []
    running = [command for commands in list(_running.values()) for command in list(commands)]
    own = {mark[0] for command in running if (mark := command._mark)}
    prefix = _prefix(profile.workspace)
    try:
        names = [name for name in os.listdir(folder) if name.startswith(prefix)]
    except OSError:
        return []
    return [path for name in names if (path := f"{folder}/{name}") not in own]


def finish_killed(profile: Profile) -> News:
    """Remove what killed processes have left in the workspace, and finish the looks after their commands."""
    for root in _roots(profile):
        clean_up(root)
        _cleaned[root] = None
        if len(_cleaned) > _CLEANED_MAX:
            del _cleaned[next(iter(_cleaned))]
    return _join([_finish(path) for path in _mark_names(profile)])


def _join(news: Sequence[News]) -> News:
    paths: dict[str, Any] = {name: tuple(path for part in news for path in getattr(part, name)) for name in _PATHS}
    return News(**paths, complete=all(part.complete for part in news))


def _finish(path: str) -> News:
    """Finish the look after one command, unless its process lives."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return News()  # another process has finished it
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(fd, "rb", closefd=False) as file:
            news = _look_again(json.loads(file.read()))
        os.unlink(path)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(path))
    except BlockingIOError:
        return News()  # the command runs
    except (OSError, ValueError, TypeError, KeyError, LyraError) as error:
        _log.warning("the look after a command of a killed process failed: %s", error)
        with contextlib.suppress(OSError):
            os.unlink(path)
        return News()
    else:
        return news
    finally:
        os.close(fd)


def _look_again(facts: dict[str, Any]) -> News:
    before = _decode(facts["before"])
    also = tuple(root for root, _ in before.also if os.path.isdir(root))
    profile = Profile(facts["workspace"], writable=facts["writable"], writable_also=also)
    is_suspect = _make_change_test(facts["began"] - _MARGIN_S, facts["until"] + _MARGIN_S)
    releases = hold_links(profile, _with_suspect_links(profile.workspace, before, is_suspect))
    try:
        return find_appeared(profile, before, is_suspect=is_suspect)
    finally:
        for release in releases:
            release()


def _with_suspect_links(root: str, before: ProtectedPaths, is_suspect: Callable[[str], bool]) -> ProtectedPaths:
    """Only links that may have been changed by the command are restored."""
    leads = tuple(lead for lead in before.leads if is_suspect(f"{root}/{lead.link}"))
    also = tuple((folder, _with_suspect_links(folder, inside, is_suspect)) for folder, inside in before.also)
    return replace(before, leads=leads, also=also)


def _make_change_test(began: float, until: float) -> Callable[[str], bool]:
    """Tells whether a path was changed in that time: the kernel sets this time, and no command can."""

    def is_suspect(path: str) -> bool:
        return any(began <= changed <= until for changed in _changes(path))

    return is_suspect


def _changes(path: str) -> Iterator[float]:
    """Yield when a path was changed; for the HEAD of a repository also the folder, to which another part may have
    come."""
    paths = [path, os.path.dirname(path)] if os.path.basename(path).lower() == "head" else [path]
    for changed in paths:
        with contextlib.suppress(OSError):
            yield os.lstat(changed).st_ctime
