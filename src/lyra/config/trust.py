"""Trust of a folder: which files of projects may do more than tighten.

A project's files come with a repository. Without trust they can only tighten: deny, lower limits, narrow grants. A
`FolderTrust` says whether the content of one file is trusted; each reader of such a file asks it with the very bytes
that it continues to use (`covers`), so that a file that is changed after the question is not trusted. Trust comes from
an answer that a person gave for exactly this content (`TrustAnswers`, kept in their own folder), or from a word for the
whole folder and one run (`--trust-folder`, `Config.load(trust=True)`).

`trust_for` is how every entry point learns of it: the trust of the command that is running (`using`), else the kept
answers. What the files of a folder ask for is `asks`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Final

import msgspec

from lyra.config.files import FILE_NAME, alone, is_own, project_file, write_private
from lyra.core.user_folders import user_folder
from lyra.errors import ConfigError

HOW_TO_TRUST: Final = "`lyra trust show` says what it asks for, `lyra trust add` trusts it"
ANSWERS_FILE: Final = "trust.json"
_FILE_BYTES_MAX: Final = 16 << 20
_FOLDERS_MAX: Final = 10_000


def digest_of(data: bytes) -> str:
    """Return the hash of a file's content that an answer is for."""
    return hashlib.sha256(data).hexdigest()


class FileAnswer(msgspec.Struct, frozen=True):
    """The answer for one file with this content; `asks` are the sentences that the person was shown."""

    sha256: str
    trusted: bool
    asks: tuple[str, ...] = ()


class FolderAnswer(msgspec.Struct, frozen=True):
    """The answers for the files of one folder, by their path in it, and when the last one was given."""

    answered_s: float
    files: dict[str, FileAnswer] = {}


class _AnswersFile(msgspec.Struct):
    folders: dict[str, FolderAnswer] = {}


class TrustAnswers:
    """The kept answers, by folder. Without a folder for the file (`TrustAnswers(None)`) they live as long as this
    object."""

    __slots__ = ("_memory", "path")

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.path = None if folder is None else Path(folder, ANSWERS_FILE)
        self._memory = _AnswersFile()

    @classmethod
    def for_user(cls, env: Mapping[str, str] | None = None) -> TrustAnswers:
        return cls(user_folder(os.environ if env is None else env))

    def folders(self) -> dict[str, FolderAnswer]:
        """Return every folder that was answered for."""
        return self._read().folders

    def find_folder(self, folder: str) -> FolderAnswer | None:
        return self._read().folders.get(os.path.realpath(folder))

    def keep(self, folder: str, files: Mapping[str, FileAnswer]) -> None:
        """Keep the answers for files of a folder; those of its other files stay."""
        from lyra.core.clock import SystemClock  # imports asyncio, which reading needs not

        real = _resolve_folder(folder)
        with self._change() as kept:
            before = kept.folders.pop(real, None)
            together = {**(before.files if before is not None else {}), **files}
            kept.folders[real] = FolderAnswer(SystemClock().now(), together)
            if len(kept.folders) > _FOLDERS_MAX:
                raise ConfigError(
                    f"there are answers for {_FOLDERS_MAX} folders", hint="lyra trust revoke", place=str(self.path)
                )

    def forget(self, folder: str) -> bool:
        """Remove the answers for a folder; True if there were any."""
        names = {os.path.realpath(folder), os.path.abspath(folder)}
        if not names & self._read().folders.keys():
            return False
        with self._change() as kept:
            for name in names:
                kept.folders.pop(name, None)
        return True

    def _read(self) -> _AnswersFile:
        if self.path is None:
            return self._memory
        try:
            with self.path.open("rb") as file:
                self._check_owner(os.fstat(file.fileno()))
                data = file.read(_FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return _AnswersFile()
        except OSError as error:
            raise self._unreadable(error.strerror or str(error)) from None
        try:
            return msgspec.json.decode(data, type=_AnswersFile)
        except msgspec.MsgspecError as error:
            raise self._unreadable(str(error)) from None

    def _check_owner(self, state: os.stat_result) -> None:
        """Refuse a file that another user can write: its answers may not be the person's."""
        if state.st_uid not in (os.geteuid(), 0) or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise self._unreadable("another user can write to it")

    def _unreadable(self, why: str) -> ConfigError:
        """Return the error of a file that cannot be read: a guess could trust what the person did not."""
        return ConfigError(
            f"the folders that you trust cannot be read: {why}", place=str(self.path), hint="remove the file"
        )

    @contextlib.contextmanager
    def _change(self) -> Iterator[_AnswersFile]:
        if self.path is None:
            yield self._memory
            return
        with alone(self.path):
            kept = self._read()
            yield kept
            write_private(self.path, msgspec.json.format(msgspec.json.encode(kept)))


def _resolve_folder(folder: str) -> str:
    """Return the real path of a folder, which has to be text that a file can hold."""
    real = os.path.realpath(folder)
    try:
        real.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            "the name of this folder is not UTF-8, so no answer can be kept for it", hint="say --trust-folder"
        ) from None
    return real


class FolderTrust:
    """What is trusted now: the kept answers, and folders that are trusted as they are for this run."""

    __slots__ = ("_folders", "_given", "_kept", "answers")

    def __init__(self, answers: TrustAnswers) -> None:
        self.answers = answers
        self._kept: dict[str, FolderAnswer] | None = None
        self._folders: set[str] = set()
        self._given: dict[tuple[str, str], FileAnswer] = {}  # in this run

    def covers(self, folder: str, name: str, data: bytes) -> bool:
        """Return whether the file `name` of a project's folder is trusted with this content."""
        if self.is_whole(folder):
            return True
        answer = self.answer(folder, name)
        return answer is not None and answer.trusted and answer.sha256 == digest_of(data)

    def is_whole(self, folder: str) -> bool:
        """Return whether the folder is trusted for this run, whatever its files hold."""
        return bool(self._folders) and os.path.realpath(folder) in self._folders

    def answer(self, folder: str, name: str) -> FileAnswer | None:
        """Return the answer for a file, which may have been given for another content."""
        given = self._given.get((os.path.realpath(folder), name))
        if given is not None:
            return given
        if self._kept is None:  # read at the first file that asks: most folders have none
            self._kept = self.answers.folders()
        kept = self._kept.get(os.path.realpath(folder))
        return None if kept is None else kept.files.get(name)

    def trust_folder(self, folder: str, *, user_file: str | None = None) -> None:
        """Trust the files of a folder for this run, and the `lyra.toml` above it that counts there, unless another user
        has put it there."""
        real = os.path.realpath(folder)
        self._folders.add(real)
        for start in (real, os.path.abspath(folder)):  # a folder that is named by a link has two ways up
            above = project_file(start, user_file)
            if above is not None and is_own(above, real):
                self._folders.add(os.path.realpath(os.path.dirname(above)))

    def keep(self, folder: str, files: Mapping[str, FileAnswer]) -> None:
        """Keep answers of a person. They count from here on, also where they cannot be written (an OSError)."""
        real = os.path.realpath(folder)
        self._given.update({(real, name): answer for name, answer in files.items()})
        self.answers.keep(folder, files)


_running: ContextVar[FolderTrust | None] = ContextVar("lyra_folder_trust", default=None)


@contextlib.contextmanager
def using(trust: FolderTrust) -> Iterator[None]:
    """Make it the trust of everything that is loaded inside the block."""
    token = _running.set(trust)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # it was set in a task, whose context is over
            _running.reset(token)


def is_told() -> bool:
    """Return whether a command is running that says itself what is passed over."""
    return _running.get() is not None


def trust_for(
    folder: str, given: FolderTrust | bool | None = None, *, env: Mapping[str, str] | None = None
) -> FolderTrust:
    """Return the trust that counts for the files of a folder.

    `given` is the caller's word: a FolderTrust, True (this folder as it is), False (none at all), or None: the trust
    of the command that is running, else the kept answers of the user.
    """
    if isinstance(given, FolderTrust):
        return given
    if given is None:
        return _running.get() or FolderTrust(TrustAnswers.for_user(env))
    if not given:
        return FolderTrust(TrustAnswers(None))
    trust = FolderTrust(TrustAnswers.for_user(env))
    own = user_folder(os.environ if env is None else env)
    trust.trust_folder(folder, user_file=os.path.join(own, FILE_NAME) if own else None)
    return trust
