"""Attempts to write what Lyra or the user's other programs obey, by commands of each sandbox tier and by file tools.

`own_files`: Lyra's rules, answers, tools, keys and stores, in a workspace that contains them. `repositories`: git
repositories that the user's next `git status` would obey; a real git tells whether one did. `names`: every name of the
tables, made in many ways. `named_files`: files that git's settings name, and targets of links. `environments`: Python
environments that name something else than a Python. `closed_folders`: the process that makes files for commands under
Landlock. `afterwards`: links, heaps of files and killed processes, which would hide something from the look after a
command. `ground` is the place on which all of them happen.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from lyra.sandbox.sandbox import examine
from verify.attacks.obeyed import (
    afterwards,
    closed_folders,
    environments,
    named_files,
    names,
    own_files,
    repositories,
)
from verify.attacks.obeyed.ground import Outcome

__all__ = ["FAMILIES", "Result", "run"]

FAMILIES = {
    "own files": own_files.run,
    "repositories": repositories.run,
    "names": names.run,
    "named files": named_files.run,
    "environments": environments.run,
    "closed folders": closed_folders.run,
    "afterwards": afterwards.run,
}


class Result(NamedTuple):
    attempts: int
    failures: list[str]


def run(families: tuple[str, ...] = tuple(FAMILIES), tiers: tuple[str, ...] = (), *, every: int = 1) -> Result:
    """Try everything in each tier that works here (or in those that are named), and by the file tools. With `every`
    only one of so many attempts."""
    return asyncio.run(_run(families, tiers, every))


async def _run(families: tuple[str, ...], tiers: tuple[str, ...], every: int) -> Result:
    working = [state.name for state in await examine() if state.works]
    outcomes: list[Outcome] = []
    for tier in tiers or working:
        for family in families:
            found = await FAMILIES[family](tier, every)
            outcomes += [outcome._replace(name=f"{tier}: {outcome.name}") for outcome in found]
    failures = [f"{outcome.name}: {outcome.effect}" for outcome in outcomes if outcome.effect]
    return Result(len(outcomes), failures)
