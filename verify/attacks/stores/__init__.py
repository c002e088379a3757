"""Changes of a store's file that would give a process more rights, by a program that can write the file.

`editor` reads and writes every part of the file with right checksums, as a program would that knows Lyra's source.
`victim` makes the stores and says what their processes may do. `attempts` is the table of changes. `run` makes each of
them in each store and opens a kernel: it has to be refused, or be without effect.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lyra.errors import Corrupt, LyraError, StoreError
from verify.attacks.stores.attempts import ATTEMPTS, Attempt, DoesNotApply
from verify.attacks.stores.editor import Editor
from verify.attacks.stores.victim import PLACES, Place, Victim

__all__ = ["ATTEMPTS", "PLACES", "Attempt", "Report", "run"]


@dataclass(slots=True)
class Report:
    tried: int = 0
    refused: int = 0
    without_effect: int = 0
    failures: list[str] = field(default_factory=list)


def run(attempts: Sequence[Attempt] = ATTEMPTS, places: Sequence[Place] = PLACES) -> Report:
    """Make each attempt in each store."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="lyra-stores-") as folder:
        for place in places:
            victim = Victim(Path(folder), place)
            for attempt in attempts:
                _try(victim, attempt, report)
    return report


def _try(victim: Victim, attempt: Attempt, report: Report) -> None:
    victim.restore()
    try:
        with Editor(victim.path, victim.place.run) as editor:
            attempt.change(editor, victim)
    except DoesNotApply:
        return
    report.tried += 1
    name = f"{attempt.name}, in {victim.place.name}"
    try:
        rights = asyncio.run(victim.rights())
    except Corrupt:
        report.refused += 1
    except StoreError as error:
        report.failures.append(f"{name}: an error that does not say why: {error.message}")
    except LyraError as error:
        report.failures.append(f"{name}: {type(error).__name__}: {error.message}")
    else:
        if rights == victim.rights_before:
            report.without_effect += 1
        else:
            report.failures.append(f"{name}: {_difference(victim.rights_before, rights)}")
    finally:
        shutil.rmtree(victim.scratch, ignore_errors=True)


def _difference(before: dict[str, object], after: dict[str, object]) -> str:
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    return "; ".join(f"{key} was {before.get(key)!r} and is {after.get(key)!r}" for key in changed[:3])
