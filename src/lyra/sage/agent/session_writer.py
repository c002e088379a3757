"""SessionWriter: what an open session writes down, its record in the index of sessions and its facts in its journal.

The record (title, model, last prompt, state) is what lists of sessions show; the facts are what the session itself
remembers of its turns. Every text is written without the keys of model providers. A session in which nothing was said
is removed when it ends. Never writes the conversation: that is the agent process's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from lyra.agents.session.shared import runtime_of
from lyra.core.clock import SystemClock
from lyra.core.ids import Entropy
from lyra.core.secrets.redact import redact
from lyra.errors import ConfigError
from lyra.kernel.kernel import Kernel
from lyra.sage.agent.equipment import AGENT
from lyra.sage.session.facts import SessionFacts
from lyra.sage.session.index import SessionIndex
from lyra.sage.session.record import SessionRecord, make_session_folder, preview


class SessionWriter:
    """Of one session in `root`, the folder of all sessions; `folder` is where its agent works."""

    def __init__(self, root: Path, folder: str) -> None:
        self.root = root
        self.folder = folder
        self.clock = SystemClock()
        self.index = SessionIndex(root)
        self.facts = SessionFacts()
        self._record: SessionRecord | None = None
        self._kernel: Kernel | None = None
        self._mask: Callable[[str], str] = redact  # knows the providers' keys once a kernel is open

    # ------------------------------------------------------------------ which session

    @property
    def record(self) -> SessionRecord:
        assert self._record is not None, "the session is not open"
        return self._record

    def find(self, wanted: str) -> SessionRecord:
        """The record of an earlier session, by its id or the beginning of it; "" is the newest one of the folder."""
        record = self.index.get(wanted) if wanted else self.index.latest(self.folder)
        if record is None:
            raise ConfigError(
                f"there is no session of {self.folder} yet", hint="start one: sage", place=self.folder, key="--continue"
            )
        return record

    def go_on(self, record: SessionRecord) -> None:
        self._record = record

    def begin(self, title: str, parent: SessionRecord | None) -> None:
        """Make a new session, with a folder of its own."""
        now = self.clock.now()
        folder = make_session_folder(now, Entropy(), self.root)
        self._record = SessionRecord(
            id=folder.name,
            folder=self.folder,
            title=preview(title) or (f"{parent.label} (fork)" if parent is not None else ""),
            created_at=now,
            updated_at=now,
            parent=parent.id if parent is not None else "",
        )

    # ------------------------------------------------------------------ writing

    def new_facts(self) -> SessionFacts:
        """Empty facts, which a kernel that is opened with them fills from its journal."""
        self.facts = SessionFacts()
        return self.facts

    def write_to(self, kernel: Kernel) -> None:
        """Write facts into the journal of this kernel from now on."""
        self._kernel, self._mask = kernel, runtime_of(kernel).clean
        runtime_of(kernel).models.sends_before_pricing = True

    def without_keys(self, text: str) -> str:
        """A text that is kept or shown, with the keys of model providers masked."""
        return self._mask(text)

    def fact(self, kind: str, data: dict[str, Any]) -> None:
        """Write a fact of the session into its journal."""
        kernel = self._kernel
        assert kernel is not None, "the session is not open"
        kernel.fact(self.facts, AGENT, kind, runtime_of(kernel).clean_data(data))

    def save(self, *, prompt: str | None = None, **changes: Any) -> None:
        """Write the record of the session anew, with changes."""
        now = self.clock.now()
        record = self.record
        if prompt is not None:
            record = record.with_prompt(prompt, now=now)
            self.index.add_text(record.id, self.facts.last_number, prompt)
        record = msgspec.structs.replace(record, updated_at=now, **changes)
        self._record = msgspec.structs.replace(record, title=self.without_keys(record.title))
        self.index.upsert(self._record)

    def close(self, *, resumed: bool = False) -> None:
        """Close the index. A session without a turn would only be in the way and is removed, unless it was `resumed`
        and could not be opened."""
        try:
            if not resumed and not self.facts.turns:
                self.index.remove(self.record.id)
        finally:
            self.index.close()
