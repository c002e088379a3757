"""The folders an agent works in: files are opened below them by descriptor, and written whole or not at all.

A path is relative to the first root, or absolute and inside one of them; anything else is refused, symlinks included
(`lyra.sandbox.paths`). Only plain files are opened: a folder, a pipe, a device and a missing file each give an error
that says so, and nothing hangs. A write goes to a new file beside the old one, which then takes its place with its mode
and owner, so that a reader sees the old text or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import stat
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from lyra.core.own_files import FULL_ERRNOS
from lyra.core.rights.capability import Capability
from lyra.core.tool import admitted, caller, hides, opened
from lyra.errors import CapabilityDenied, ConfigError, ToolError
from lyra.sandbox.paths import Beneath, true_path
from lyra.sandbox.protection.git_repositories import find_made_repository
from lyra.sandbox.protection.obeyed import find_obeyed_part
from lyra.sandbox.protection.protected_names import find_protected_part
from lyra.sandbox.protection.protected_places import is_own

FILE_BYTES_MAX: Final = 100 * 1024 * 1024  # of a file that is read as a whole
_O_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
_KINDS: Final[tuple[tuple[Callable[[int], bool], str], ...]] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_NAME_BYTES_MAX: Final = 255
_temporary: Final = itertools.count()


class OpenedFile(NamedTuple):
    """The bytes of a file at one moment, with its real path and mode."""

    path: str
    data: bytes
    mode: int


class Workspace:
    """`root`, and further roots in `also`. `hidden(path)`: searches skip this file; `spill` holds long output of
    commands, which its process can read as if it were inside."""

    __slots__ = ("hidden", "lock", "root", "roots", "spill")

    def __init__(self, root: str, *, also: Sequence[str] = (), hidden: Callable[[str], bool] | None = None) -> None:
        self.roots = tuple(os.path.realpath(folder) for folder in (root, *also))
        for folder in self.roots:
            if not os.path.isdir(folder):
                raise ConfigError(f"the workspace {folder} is not a folder", place=folder)
        self.root = self.roots[0]
        self.hidden = hidden or (lambda _path: False)
        self.spill = Spill()
        self.lock = threading.Lock()  # one edit at a time: of two concurrent edits one would be lost

    def hides(self, path: str) -> bool:
        """Return whether a search skips a file: the workspace hides it, or the rules that decided on the call do."""
        rules = hides.get()
        if self.spill.holding(path) is not None:
            return False
        return self.hidden(path) or (rules is not None and rules(path))

    # ------------------------------------------------------------ names
    def absolute(self, path: str) -> str:
        if not path or "\0" in path:
            raise ToolError("a path is a text that is not empty", reason="invalid_arguments")
        return os.path.join(self.root, os.path.expanduser(path) if path.startswith("~") else path)

    def display_path(self, path: str) -> str:
        """Return a path as it is shown: relative to the root if it lies inside."""
        prefix = self.root.rstrip("/") + "/"
        return path[len(prefix) :] if path.startswith(prefix) else path

    def display_name(self, path: str) -> str:
        """Return a file as the caller named it; the target of a link is not shown, because its author may not be
        trusted."""
        return self.display_path(os.path.normpath(self.absolute(path)))

    def need(self, verb: str, path: Any) -> list[Capability]:
        """Return the right that a call needs: to the real path of its argument."""
        if path is None:
            path = self.root
        if not isinstance(path, str) or not path or "\0" in path:
            return []  # the call itself is refused
        real = os.path.realpath(self.absolute(path))
        if verb == "fs.read" and real == opened.get():
            return []  # a person has allowed it
        return [] if verb == "fs.read" and self.spill.holding(real) else [Capability(verb, real)]

    def covers(self, path: str) -> bool:
        """Return whether a real path lies in a root, or in the spill folder of the calling process."""
        inside = any(path == root or path.startswith(root.rstrip("/") + "/") for root in self.roots)
        return inside or self.spill.holding(path) is not None

    def _root_of(self, path: str, *, reading: bool = False) -> str:
        normal = os.path.normpath(path)
        if reading and normal == opened.get():
            return os.path.dirname(normal)
        spilled = self.spill.holding(normal) if reading else None
        if spilled is not None:
            return spilled
        for root in self.roots:
            if normal == root or normal.startswith(root.rstrip("/") + "/"):
                return root
        return self.root  # opening it there fails, with the right error

    @contextlib.contextmanager
    def _beneath(self, path: str, *, reading: bool = False) -> Iterator[tuple[Beneath, str]]:
        whole = self.absolute(path)
        with Beneath(self._root_of(whole, reading=reading)) as folder:
            yield folder, whole

    # ------------------------------------------------------------ reading
    def read(self, path: str, *, most: int = FILE_BYTES_MAX) -> OpenedFile:
        """Return a plain file's bytes; ToolError for anything else."""
        outside = opened.get()
        if outside is not None and os.path.realpath(self.absolute(path)) == outside:
            path = outside
        with self._beneath(path, reading=True) as (folder, whole):
            try:
                looked = folder.open(whole, _O_PATH)
            except OSError as error:
                raise _make_error(error, path) from None
            try:
                check_admitted(true_path(looked), path)
                self._check_plain(looked, path, most)
                fd = folder.open(true_path(looked), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            except OSError as error:
                raise _make_error(error, path) from None
            finally:
                os.close(looked)
            with open(fd, "rb") as file:
                check_admitted(true_path(fd), path)
                state = self._check_plain(fd, path, most)
                data = file.read(most + 1)
                if len(data) > most:
                    raise _too_large(path, len(data), most)
                return OpenedFile(true_path(fd), data, stat.S_IMODE(state.st_mode))

    def _check_plain(self, fd: int, path: str, most: int) -> os.stat_result:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            kind = next((word for is_kind, word in _KINDS if is_kind(state.st_mode)), "not a plain file")
            hint = "use Glob to see what is in it" if kind == "a folder" else None
            raise ToolError(f"{path} is {kind}", hint=hint, reason="not_a_file")
        if state.st_size > most:
            raise _too_large(path, state.st_size, most)
        return state

    def exists(self, path: str) -> bool:
        with self._beneath(path) as (folder, whole):
            try:
                os.close(folder.open(whole, _O_PATH))
            except FileNotFoundError:
                return False
            except OSError as error:
                raise _make_error(error, path) from None
            return True

    # ------------------------------------------------------------ writing
    def replace(self, path: str, data: bytes, mode: int | None = None, *, named_in_full: bool = False) -> str:
        """Put a file in place, whole. For a file that exists `path` is its real path. `named_in_full`: a person has
        named this very file to be written. Returns the real path."""
        with self._beneath(path) as (folder, whole):
            name = os.path.basename(whole)
            if not name or name in (".", "..") or len(os.fsencode(name)) > _NAME_BYTES_MAX:
                raise ToolError(f"{path} names no file", reason="invalid_arguments")
            self._check_obeyed(os.path.realpath(whole), path, named_in_full=named_in_full)
            parent = self._parent(folder, os.path.dirname(whole), name, path)
            try:
                real = os.path.join(true_path(parent), name)
                check_admitted(real, path)
                self._check_obeyed(real, path, named_in_full=named_in_full)
                written = self._put(parent, name, data, mode)
                if mode is None:
                    # Remove a new file again if another process has made the rest of a repository meanwhile.
                    try:
                        self._check_obeyed(real, path, named_in_full=named_in_full)
                    except ToolError:
                        with contextlib.suppress(OSError):
                            os.unlink(name, dir_fd=parent)
                        raise
                return written
            except OSError as error:
                raise _make_error(error, path) from None
            finally:
                os.close(parent)

    def _check_obeyed(self, real: str, path: str, *, named_in_full: bool) -> None:
        """Refuse a file that a program of the user obeys. The decision on a call refuses it, too, but links and
        settings may have changed since, and of several calls that were decided on together only the last completes a
        repository. A file that its tool names in full is refused only where Lyra or git itself obeys it."""
        if named_in_full:
            part = path if is_own(real) or find_made_repository(self._root_of(real), real) is not None else None
        else:
            part = find_obeyed_part(real, self.roots) or self._find_protected_part(path)
        if part is not None:
            raise ToolError(f"{self.display_path(part)} is protected from being written", reason="permission_denied")

    def _find_protected_part(self, path: str) -> str | None:
        """Return the protected name in a path as the call names it: a link of that name may lead to a file of
        another."""
        whole = os.path.normpath(self.absolute(path))
        return find_protected_part(whole, self.roots) if self.covers(whole) else None

    def _put(self, parent: int, name: str, data: bytes, mode: int | None) -> str:
        temporary = f".lyra-{os.getpid()}-{next(_temporary)}"
        fd = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=parent
        )
        try:
            with open(fd, "wb") as file:
                if mode is not None:
                    os.fchmod(fd, mode)
                    _keep_owner(fd, parent, name)
                file.write(data)
                file.flush()
                os.fsync(fd)
            if mode is None:
                os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)  # fails if the file exists by now
                os.unlink(temporary, dir_fd=parent)
            else:
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise
        return os.path.join(true_path(parent), name)

    def _parent(self, folder: Beneath, path: str, rest: str, shown: str) -> int:
        """Return a descriptor of the folder that `rest` lies in; a missing folder is made if the call was allowed
        to."""
        try:
            descriptor = folder.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _make_error(error, shown) from None
        else:
            try:
                check_admitted(os.path.join(true_path(descriptor), rest), shown)
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor
        above = self._parent(folder, os.path.dirname(path), os.path.join(os.path.basename(path), rest), shown)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.basename(path), dir_fd=above)
            return folder.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise _make_error(error, shown) from None
        finally:
            os.close(above)


def check_admitted(real: str, path: str) -> None:
    """Refuse a path that leads to another file than the one that was allowed, because a link has changed since."""
    wanted = admitted.get()
    if wanted is not None and real != wanted:
        raise CapabilityDenied(f"{path[:200]} is another file by now than the one that was allowed", place=path[:200])


def _keep_owner(fd: int, parent: int, name: str) -> None:
    with contextlib.suppress(OSError):  # only root can change the owner; for other users the file is theirs already
        state = os.stat(name, dir_fd=parent, follow_symlinks=False)
        os.fchown(fd, state.st_uid, state.st_gid)


_WORDS: Final = {
    errno.ENOENT: ("there is no {path}", "not_found"),
    errno.ENOTDIR: ("a part of {path} is a file, not a folder", "not_found"),
    errno.EACCES: ("{path} may not be opened by this user", "permission_denied"),
    errno.EPERM: ("{path} may not be opened by this user", "permission_denied"),
    errno.EISDIR: ("{path} is a folder", "not_a_file"),
    errno.ENAMETOOLONG: ("the path is too long", "invalid_arguments"),
    **dict.fromkeys(FULL_ERRNOS, ("there is no space left for {path}", "io_error")),
    errno.EROFS: ("{path} is on a read-only file system", "io_error"),
    errno.EEXIST: ("{path} has appeared meanwhile; read it first", "changed"),
    errno.ENXIO: ("{path} is not a plain file", "not_a_file"),
}


def _make_error(error: OSError, path: str) -> ToolError:
    words, reason = _WORDS.get(error.errno or 0, ("{path} cannot be used: " + str(error.strerror), "io_error"))
    return ToolError(words.format(path=path[:300]), reason=reason)


def _too_large(path: str, size: int, most: int) -> ToolError:
    return ToolError(
        f"{path} has {size} bytes or more; at most {most} are read", hint="use Grep to find a part", reason="too_large"
    )


# The folder for long output of commands: outside every project, and removed when this program ends.


class Spill:
    """The folder is made when it is first needed, and removed when this object is collected."""

    __slots__ = ("__weakref__", "_root")

    def __init__(self) -> None:
        self._root: str | None = None

    def folder(self) -> str:
        """Return the folder of the calling process."""
        if self._root is None:
            self._root = os.path.realpath(tempfile.mkdtemp(prefix="lyra-spill-"))
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        mine = os.path.join(self._root, _name())
        os.makedirs(mine, mode=0o700, exist_ok=True)
        return mine

    def holding(self, path: str) -> str | None:
        """Return the folder of the calling process, if the path (absolute, without `..`) lies in it; else None."""
        if self._root is None:
            return None
        mine = os.path.join(self._root, _name())
        return mine if path.startswith(mine + "/") else None


def _name() -> str:
    """Return the name of the caller's folder: a digest, because a pid may be any text."""
    return blake2b(caller.get().encode(), digest_size=8).hexdigest()
