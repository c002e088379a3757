"""Answers that a person gave for good: kept in their own folder, one file a workspace, never inside a project.

    ~/.config/lyra/answers/<digest of the workspace>.toml

`Answers(workspace).rules()` gives them back as rules, `add` keeps one more; a Permissions takes both (`answers=…,
keep=…`). The file is small TOML that a person may read and edit: `allow` and `deny` are lists of rules. It is written
whole, by one process at a time. A file that cannot be read for certain is an error with its place: an answer is never
guessed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

from lyra.core.checking.document import key_lines
from lyra.core.own_files import make_folder
from lyra.core.user_folders import user_folder
from lyra.errors import ConfigError
from lyra.tools.permissions.rules import Effect, Rule, read_rules

_ANSWERS_MAX: Final = 10_000
_FILE_BYTES_MAX: Final = 4 * 1024 * 1024
_EFFECTS: Final[tuple[Effect, ...]] = ("allow", "deny")
_SOURCE: Final = "answers"


def config_folder(home: str = "") -> str:
    """Return the folder of the user's own settings; "" where the home is not known."""
    return user_folder({"HOME": home} if home else {"HOME": os.path.expanduser("~"), **os.environ}) or ""


class Answers:
    """The answers for one workspace; `folder` is where such files lie."""

    __slots__ = ("file", "home", "workspace")

    def __init__(self, workspace: str, *, home: str = "", folder: str = "") -> None:
        self.workspace = os.path.realpath(workspace)
        self.home = home or os.path.expanduser("~")
        name = blake2b(os.fsencode(self.workspace), digest_size=12).hexdigest()
        self.file = os.path.join(folder or os.path.join(config_folder(home), "answers"), f"{name}.toml")

    def rules(self) -> list[Rule]:
        """Every answer as the rule it is."""
        rules: list[Rule] = []
        texts, lines = self._read()
        for effect in _EFFECTS:
            place = f"{_SOURCE}: {self.file}:{lines.get((effect,), 1)}"
            rules += read_rules(texts[effect], effect, source=place, workspace=self.workspace, home=self.home)
        return rules

    def add(self, rule: Rule) -> None:
        """Keep one more. A new answer takes the place of the opposite one."""
        with self._alone():
            texts, _ = self._read()
            for effect in _EFFECTS:
                texts[effect] = [text for text in texts[effect] if text != rule.text]
            texts[rule.effect].append(rule.text)
            if sum(map(len, texts.values())) > _ANSWERS_MAX:
                raise ConfigError(
                    f"{self.file} holds {_ANSWERS_MAX} answers already", hint="remove some, or write a rule"
                )
            self._write(texts)

    def _read(self) -> tuple[dict[str, list[str]], dict[tuple[str, ...], int]]:
        texts: dict[str, list[str]] = {effect: [] for effect in _EFFECTS}
        try:
            with open(self.file, "rb") as file:
                data = file.read(_FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return texts, {}
        except OSError as error:
            raise ConfigError(f"the answers cannot be read: {error.strerror}", place=self.file) from None
        import tomllib

        try:
            text = data[: _FILE_BYTES_MAX + 1].decode()
            document, lines = tomllib.loads(text), key_lines(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"the answers are not TOML: {error}", place=self.file) from None
        if len(data) > _FILE_BYTES_MAX or document.get("workspace") != self.workspace:
            raise ConfigError(f"these are not the answers for {self.workspace}", place=self.file)
        for effect in _EFFECTS:
            texts[effect] = _texts(document.get(effect, []), f"{self.file}:{lines.get((effect,), 1)}", effect)
        return texts, dict(lines)

    def _write(self, texts: dict[str, list[str]]) -> None:
        lines = ["# What was answered with always (allow) or never (deny) in this folder.", ""]
        lines.append(f"workspace = {_quote(self.workspace)}")
        for effect in _EFFECTS:
            lines.append(f"{effect} = [")
            lines += [f"  {_quote(text)}," for text in texts[effect]]
            lines.append("]")
        folder = os.path.dirname(self.file)
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".answers-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock of the folder, so that two processes that add an answer at the same time both succeed."""
        folder = os.path.dirname(self.file)
        make_folder(folder, private=True)
        with open(os.path.join(folder, ".lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _texts(value: Any, place: str, effect: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ConfigError(f"{effect} is a list of rules, not {value!r}", place=place, key=effect)
    return list(value)


def _quote(text: str) -> str:
    """Return a basic string of TOML; characters that cannot be printed are escaped."""
    out = []
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif char.isprintable():
            out.append(char)
        else:
            out.append(f"\\u{ord(char):04X}" if ord(char) < 0x10000 else f"\\U{ord(char):08X}")
    return '"' + "".join(out) + '"'
