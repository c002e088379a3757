"""`file::`: plain files below the folders that a run was given.

What is opened is what is asked about: the Grant of the process is checked for the path as it is written, before
anything happens, and for the place where it turns out to lie. So no symlink leads out of the folder, nor from a path
that a tool may use to one that it may not. Pipes and devices are no files here: reading one could wait for ever. What
other programs obey (`.git`, `.envrc`, a file that git's settings name) is neither written nor removed.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.core.effect import Effect
from lyra.core.rights.capability import Capability
from lyra.errors import CapabilityDenied, ConfigError, EffectFailed, LimitExceeded
from lyra.vega.runtime.library import current_place, need_text

if TYPE_CHECKING:
    from lyra.core.rights.capability import Grant
    from lyra.sandbox.paths import Beneath
    from lyra.vega.runtime.job import VegaJob


FILE_BYTES_MAX: Final = 64 << 20
_READ: Final = "fs.read"
_WRITE: Final = "fs.write"
_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
_QUIET: Final = os.O_NONBLOCK | os.O_NOCTTY  # nothing that is no plain file may keep us


class _FilePlace:
    """One path below an open folder, and the Grant that has to cover wherever it leads."""

    __slots__ = ("_folder", "_grant", "_need", "path")

    def __init__(self, folder: Beneath, grant: Grant, need: str, path: str) -> None:
        self._folder = folder
        self._grant = grant
        self._need = need
        self.path = path

    def look(self) -> str:
        """Find where it really lies; OSError where nothing does."""
        fd = self._folder.open(self.path, _PATH)
        try:
            path = _true(fd)
        finally:
            os.close(fd)
        self._check(path)
        return path

    def open(self, flags: int) -> int:
        """A descriptor of what is there."""
        fd = self._folder.open(self.look(), flags | _QUIET)
        try:
            self._check(_true(fd))  # it may have been swapped between the two
            is_folder = bool(flags & os.O_DIRECTORY)
            if not is_folder and not stat.S_ISREG(os.fstat(fd).st_mode):
                raise EffectFailed(f"{self.path} is not a plain file", path=self.path)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def open_or_create(self, flags: int) -> int:
        """Open a file that may not exist yet."""
        try:
            return self.open(flags)
        except FileNotFoundError:
            folder, name = self.parent()
        try:
            return os.open(name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
        finally:
            os.close(folder)

    def parent(self) -> tuple[int, str]:
        """A descriptor of the folder it lies in, and its name there."""
        above, name = os.path.split(self.path)
        fd = self._folder.open(above, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._check(os.path.join(_true(fd), name))
        except BaseException:
            os.close(fd)
            raise
        return fd, name

    def _check(self, place: str) -> None:
        self._grant.check(Capability(self._need, place))
        if self._need != _WRITE:
            return
        from lyra.sandbox.protection.obeyed import asked_part, obeyed_part
        from lyra.sandbox.protection.protected_places import is_lyras

        if is_lyras(place):
            raise CapabilityDenied(f"{self.path} belongs to Lyra itself, and no program writes it", place=self.path)
        roots, paths = (self._folder.root,), (place, self.path)
        parts = (find(path, roots) for find in (obeyed_part, asked_part) for path in paths)
        part = next((part for part in parts if part is not None), None)
        if part is not None:
            raise CapabilityDenied(f"{part} is protected from being written", place=self.path)


def _true(fd: int) -> str:
    from lyra.sandbox.paths import true_path

    return true_path(fd)


# ---------------------------------------------------------------- what is done with one


def _read(place: _FilePlace) -> str:
    with os.fdopen(place.open(os.O_RDONLY), "rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise LimitExceeded(f"{place.path} has more than {FILE_BYTES_MAX} bytes", path=place.path)
    return data.decode()


def _write(place: _FilePlace, content: str) -> None:
    with os.fdopen(place.open_or_create(os.O_WRONLY), "wb") as file:
        file.truncate(0)
        file.write(content.encode())


def _append(place: _FilePlace, content: str) -> None:
    with os.fdopen(place.open_or_create(os.O_WRONLY | os.O_APPEND), "ab") as file:
        file.write(content.encode())


def _exists(place: _FilePlace) -> bool:
    try:
        place.look()
    except OSError:
        return False
    return True


def _list(place: _FilePlace) -> list[str]:
    fd = place.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        return sorted(os.listdir(fd))
    finally:
        os.close(fd)


def _remove(place: _FilePlace) -> None:
    """The name itself: of a symlink the link, not what it points to."""
    folder, name = place.parent()
    try:
        os.unlink(name, dir_fd=folder)
    finally:
        os.close(folder)


# ---------------------------------------------------------------- through the door


def _act(act: Callable[..., Any], need: str, *, idempotent: bool = True) -> Callable[..., Any]:
    """`idempotent`: twice is as good as once, so a run that was killed in the middle just does it again."""
    word = act.__name__.strip("_")

    async def perform(job: VegaJob, path: Any, *rest: Any) -> Any:
        rights, grant, runtime = job.world.rights, job.ctx.grant, job.world.runtime
        absolute = rights.absolute(need_text(path, "a path"))
        root = rights.root_of(absolute)
        given = [need_text(argument, "a file's content") for argument in rest]
        await _need_folder(job, root)

        async def vega_file(place: str, *given: str) -> Any:
            if root is None:
                raise CapabilityDenied(f"{place[:200]} is outside {rights.folder}", place=place[:200])
            content = await asyncio.to_thread(_guarded, act, root, grant, need, place, *given)
            return runtime.keys.without_key(content, place[:200])

        def about(place: str, *_: str) -> str:
            return f"{word} {place} ({current_place(job)})"

        def needs(place: str, *given: str) -> list[Capability]:
            runtime.keys.check_no_key([place, *given], f"what {word} is given")
            return [Capability(need, absolute)]

        effect = Effect(vega_file, name=f"vega.file.{word}", needs=needs, idempotent=idempotent, about=about)
        return await job.ctx.do(effect, absolute, *given)

    return perform


async def _need_folder(job: VegaJob, root: str | None) -> None:
    """A folder that is not there ends this execution and not the durable run: it may be back for the next. Asked
    before the door, since nothing is begun by that."""
    runtime = job.world.runtime
    if root is not None and runtime.unfit is not None and not job.ctx.replaying and not _is_folder(root):
        lack = ConfigError(f"the folder {root} is not there", hint="put it back, then resume the run", place=root)
        await runtime.lacks(job.process, lack)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)


def _guarded(act: Callable[..., Any], root: str, grant: Grant, need: str, path: str, *rest: Any) -> Any:
    from lyra.sandbox.paths import Beneath

    try:
        with Beneath(root) as folder:
            return act(_FilePlace(folder, grant, need, path), *rest)
    except UnicodeDecodeError:
        raise EffectFailed(f"{path} is not text", path=path) from None
    except OSError as error:
        raise EffectFailed(f"{path}: {error.strerror or error}", path=path) from None


FILES: Final[dict[str, Callable[..., Any]]] = {
    "file::read": _act(_read, _READ),
    "file::write": _act(_write, _WRITE),
    "file::append": _act(_append, _WRITE, idempotent=False),
    "file::exists": _act(_exists, _READ),
    "file::list": _act(_list, _READ),
    "file::remove": _act(_remove, _WRITE, idempotent=False),
}
