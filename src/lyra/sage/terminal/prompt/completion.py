"""Completion in the prompt: `@` and a file name, `/` and a command at the start.

Completions come from `FileNames` and from a function that lists the commands; nothing is read from outside the folder.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from lyra.sage.terminal.prompt.file_names import FileNames
from lyra.sage.terminal.text.safe_text import exact

_FILE: Final = re.compile(r"(?:^|(?<=\s))@(\S*)$")
_COMMAND: Final = re.compile(r"/(\S*)$")
_LETTERS: Final = re.compile(r"[\w./@+-]+\Z")


class CommandName(NamedTuple):
    name: str  # without its slash
    summary: str = ""


class PromptCompleter(Completer):
    """Completes the word before the cursor."""

    def __init__(self, files: FileNames, commands: Callable[[], Sequence[CommandName]]) -> None:
        self._files = files
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """Unused: all completions are asynchronous."""
        return ()

    async def get_completions_async(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 - as the class above has it
    ) -> AsyncGenerator[Completion, None]:
        before = document.text_before_cursor
        command = _COMMAND.fullmatch(before)
        if command is not None:
            for name, summary in self._commands():
                if name.startswith(command[1]):
                    yield Completion(f"/{name}", -len(before), display=f"/{name}", display_meta=exact(summary))
            return
        mention = _FILE.search(before)
        if mention is None:
            return
        for path in await self._files.matching(mention[1]):
            text = path if _LETTERS.match(path) else f'"{path}"'
            yield Completion(f"@{text}", -len(mention[0].lstrip()), display=exact(path))
