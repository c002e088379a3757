"""The files of rules as `lyra trust` shows them: each gives the model instructions, and counts once it is trusted."""

from __future__ import annotations

from collections.abc import Iterator

from lyra.config.asks import Ask, AskingFile
from lyra.config.files import is_own
from lyra.sage.project.rule_files import folders_above, rule_files


def rule_asks(folder: str) -> Iterator[AskingFile]:
    """The files with rules that count in a folder: its own, and those above it up to the git root."""
    for place in folders_above(folder):
        for file in rule_files(place):
            if not file.problem and is_own(file.path, folder):
                yield AskingFile(file.root, file.name, _of_rules)


def _of_rules(data: bytes, _name: str) -> Iterator[Ask]:
    text = data.decode()
    lines = sum(1 for line in text.splitlines() if line.strip())
    if lines:
        yield Ask("rules", f"gives the model {lines} line{'' if lines == 1 else 's'} of rules to follow")
