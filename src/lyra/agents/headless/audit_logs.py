"""AuditLogs: the logs of decisions that a run writes: the user's own, and one that the machine's policy demands."""

from __future__ import annotations

import os

from lyra.agents.headless.options import HeadlessOptions
from lyra.config import KEYS, Config
from lyra.errors import ConfigError
from lyra.kernel.kernel import Kernel
from lyra.sandbox.protection.protected_names import NAMES


class AuditLogs:
    """`paths` are files or folders; ConfigError where one of them cannot be."""

    __slots__ = ("_config", "_options", "paths")

    def __init__(self, options: HeadlessOptions, config: Config) -> None:
        self._options = options
        self._config = config
        self.paths = self._logs()

    def attach(self, kernel: Kernel) -> None:
        """Write what the kernel decides to each of them."""
        for path in self.paths:
            self._attach(kernel, path)

    def _logs(self) -> list[str]:
        own = self._options.audit or self._config.audit.file
        demanded = self._config.demanded.get("audit.file")
        if own:
            _check_log(own, self._options.folder)
        logs = [path for path in dict.fromkeys((own, demanded)) if path]
        level = self._options.audit_level
        if not logs and level not in (None, "none"):
            raise ConfigError(
                f"--audit-level {level} says how much is written to an audit log, and there is none",
                hint="name one with --audit FILE, or with file under [audit] in lyra.toml",
                key="--audit-level",
            )
        return logs

    def _attach(self, kernel: Kernel, path: str) -> None:
        from lyra.observe.audit import attach_audit

        try:
            attach_audit(kernel, path, level=self._level())
        except OSError as error:
            raise ConfigError(f"the audit log {path} cannot be written: {error.strerror}", key="audit") from None

    def _level(self) -> str:
        """The level that was asked for, or a higher one that the project or the machine demands."""
        asked = self._options.audit_level or self._config.audit.level
        least: str = self._config.demanded.get("audit.level", asked)
        return min(asked, least, key=KEYS["audit.level"].words.index)


def _check_log(path: str, folder: str) -> None:
    """Refuse a log file that a project has put where programs act on it, or in place of a key."""
    parts = os.path.relpath(os.path.realpath(path), os.path.realpath(folder)).split("/")
    bad = NAMES.part("/".join(part for part in parts if part != ".lyra"))
    if ".." not in parts and bad is not None:
        raise ConfigError(
            f"the audit log {path} cannot be there: {bad} is protected", hint="such as .lyra/audit/", key="audit"
        )
