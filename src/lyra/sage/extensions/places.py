"""The folders that extensions are read from: the user's own, a project's `.lyra`, and those of enabled plugins.

`extension_places` gives them in order of precedence: a plugin's names cannot be taken by the project or the user, a
project's come before the user's. A file of a project counts if its very content is trusted (`lyra.config.trust`).
Links are followed in the user's own folder alone. `markdown_files` lists a folder within bounds. Nothing is read here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, NamedTuple

from lyra.config.trust import FolderTrust, trust_for
from lyra.core.checking.check import Mistake
from lyra.core.user_folders import user_folder

PROJECT_FOLDER: Final = ".lyra"
FILES_MAX: Final = 500  # Markdown files of one kind in one place
_FOLDERS_MAX: Final = 200  # below one place: bounds the time that a listing takes
_DEPTH_MAX: Final = 4
_NAME_CHARS_MAX: Final = 200

Origin = Literal["plugin", "project", "user"]


class ExtensionPlace(NamedTuple):
    """A folder with `commands`, `skills` and `agents` in it. `accept` is asked for the path and content of each file;
    None accepts all. `files` are the only files that count, by their paths; None: all. `tools` are rules: all that its
    extensions may use; None: no limit."""

    origin: Origin
    folder: str
    plugin: str = ""  # the plugin's id
    accept: Callable[[str, bytes], bool] | None = None
    files: frozenset[str] | None = None
    tools: tuple[str, ...] | None = None

    def takes(self, path: str, data: bytes) -> bool:
        """Whether a file with this content counts."""
        return (self.files is None or path in self.files) and (self.accept is None or self.accept(path, data))

    @property
    def follows_links(self) -> bool:
        """Whether a link counts: a repository or a plugin could bring one to any file of the user."""
        return self.origin == "user"


def extension_places(
    folder: str,
    *,
    plugins: Iterable[ExtensionPlace] = (),
    trusted: FolderTrust | bool | None = None,
    env: Mapping[str, str] | None = None,
) -> tuple[ExtensionPlace, ...]:
    """The places that count for a session in `folder`, those whose names win first. `trusted` is as for `trust_for`."""
    project = os.path.join(folder, PROJECT_FOLDER)
    trust = trust_for(folder, trusted, env=env)

    def accept(path: str, data: bytes) -> bool:
        return trust.covers(folder, os.path.relpath(path, folder), data)

    places = [*plugins]
    if not os.path.islink(project):
        places.append(ExtensionPlace("project", project, accept=accept))
    own = user_folder(os.environ if env is None else env)
    if own is not None and os.path.realpath(own) != os.path.realpath(project):
        places.append(ExtensionPlace("user", own))
    return tuple(places)


class _Listing:
    """A walk through one folder that stops at the bounds."""

    def __init__(self, place: ExtensionPlace) -> None:
        self._place = place
        self._folders = 0
        self.files: list[str] = []
        self.mistakes: list[Mistake] = []

    def walk(self, folder: str, depth: int) -> None:
        self._folders += 1
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.mistakes.append(Mistake(folder, 1, 1, f"it cannot be read: {error.strerror}"))
            return
        for entry in listed:
            self._entry(entry, depth)

    def _entry(self, entry: os.DirEntry[str], depth: int) -> None:
        if entry.name.startswith(".") or len(entry.name) > _NAME_CHARS_MAX:
            return
        follows = self._place.follows_links
        if entry.is_symlink() and not follows:
            if entry.name.lower().endswith(".md"):
                self.mistakes.append(Mistake(entry.path, 1, 1, "it is a link, and links do not count here"))
            return
        if entry.is_dir(follow_symlinks=follows):
            if depth < _DEPTH_MAX and self._folders < _FOLDERS_MAX:
                self.walk(entry.path, depth + 1)
        elif entry.name.lower().endswith(".md") and self._counts(entry.path):
            self.files.append(entry.path)

    def _counts(self, path: str) -> bool:
        return self._place.files is None or path in self._place.files


def markdown_files(place: ExtensionPlace, kind: str) -> tuple[list[str], list[Mistake]]:
    """The `.md` files of one kind (`commands`, `skills`, `agents`) in a place, and what is wrong with its folders."""
    listing = _Listing(place)
    folder = os.path.join(place.folder, kind)
    if os.path.islink(folder) and not place.follows_links:
        return [], [Mistake(folder, 1, 1, "it is a link, and links do not count here")]
    listing.walk(folder, 0)
    if len(listing.files) > FILES_MAX:
        message = f"only the first {FILES_MAX} of {len(listing.files)} files are read"
        listing.mistakes.append(Mistake(folder, 1, 1, message))
    return listing.files[:FILES_MAX], listing.mistakes
