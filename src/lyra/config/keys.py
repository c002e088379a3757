"""Every setting there is: one table, with the sentence that explains each.

Parsing, environment names, `lyra config`, the reference page and the tests that no key is inert follow from `KEYS`.
A new setting is a row here and nothing else, unless its type is new (`values`).
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from lyra.config.tables import TABLES
from lyra.core import limits
from lyra.core.checking.check import did_you_mean
from lyra.core.rights.capability import ANY_NAME

__all__ = ["ELSEWHERE", "KEYS", "NONE", "SECTIONS", "Key", "hint_for"]

NONE: Final = "none"  # how an optional setting is said to be absent, wherever it is written


class Key(NamedTuple):
    """One setting. `type` names a row of `values.READERS`; `narrows` says a project's file can only tighten it."""

    name: str
    type: Literal["store", "word", "seconds", "count", "money", "rules", "model", "file"]
    default: Any
    sentence: str
    words: tuple[str, ...] = ()  # for `word`; where `narrows`, the tightest comes first
    least: float = 0
    most: float = 1e12
    optional: bool = False  # may be absent, written "none"
    narrows: bool = False

    @property
    def section(self) -> str:
        return self.name.partition(".")[0]

    @property
    def field(self) -> str:
        return self.name.partition(".")[2]

    @property
    def variable(self) -> str:
        return f"LYRA_{self.section}_{self.field}".upper()


_TABLE: Final = (
    Key(
        "kernel.store",
        "store",
        ".lyra/lyra.db",
        "Where the journal lives: a file path, `memory`, `postgresql://…`, or `env:NAME` for a variable that "
        "holds one of these. A relative path in a file starts at the project's folder, elsewhere at the "
        "working folder.",
    ),
    Key(
        "kernel.durability",
        "word",
        "process",
        "What an acknowledged row survives: `process` is kill -9, `power` is a power cut too, at the price "
        "of a disk flush.",
        words=("process", "power"),
    ),
    Key(
        "kernel.lease_s",
        "seconds",
        limits.LEASE_S,
        "How long a kernel owns its store without renewing; a dead owner's store opens after this.",
        least=0.5,
        most=3600,
    ),
    Key(
        "kernel.snapshot_every_events",
        "count",
        limits.SNAPSHOT_EVERY_EVENTS,
        "Journal rows between two snapshots, and so the most that are folded when a kernel opens its store.",
        least=1,
        most=1_000_000_000,
    ),
    Key(
        "kernel.mailbox_messages_max",
        "count",
        limits.MAILBOX_MESSAGES_MAX,
        "Messages that may wait in one mailbox; a sender of more is told so.",
        least=1,
        most=1_000_000_000,
    ),
    Key(
        "kernel.processes_max",
        "count",
        limits.PROCESSES_MAX,
        "Processes alive at once; a spawn beyond it is refused.",
        least=1,
        most=limits.PROCESSES_MAX,
    ),
    Key(
        "kernel.retention_s",
        "seconds",
        limits.RETENTION_S,
        "How long journal rows that a snapshot covers are kept before a compaction may drop them.",
    ),
    Key(
        "budget.usd",
        "money",
        None,
        "What a root process and everything below it may spend, in dollars, when its spawn names no budget.",
        optional=True,
        narrows=True,
    ),
    Key(
        "budget.seconds",
        "seconds",
        None,
        "How long a root process may run when its spawn names no budget.",
        least=0.001,
        optional=True,
        narrows=True,
    ),
    Key(
        "budget.on_exceed",
        "word",
        "block",
        "What happens at the limit: `block` refuses the effect, `warn` tells and goes on, `allow` goes on.",
        words=("block", "warn", "allow"),
        narrows=True,
    ),
    Key(
        "grant.allow",
        "rules",
        (ANY_NAME,),
        "What root processes may do, as capabilities such as `fs.read:/project/**`; `*` is everything. Where "
        "a project narrows it, lists of which each must allow.",
        narrows=True,
    ),
    Key(
        "grant.deny",
        "rules",
        (),
        "What root processes may not do, whatever is allowed. A project's denies are added.",
        narrows=True,
    ),
    Key(
        "agent.model",
        "model",
        None,
        "The model that `lyra agent` asks where `--model` names none, such as `anthropic/claude-sonnet-4-5`.",
        optional=True,
    ),
    Key(
        "audit.file",
        "file",
        None,
        "Where `lyra agent` writes its audit log when `--audit` names no place: a file, or a folder with a slash at "
        "its end, in which each run has a file of its own. A project can name one in its own folder, where you have "
        "none.",
        optional=True,
        narrows=True,
    ),
    Key(
        "audit.level",
        "word",
        "basic",
        "How much is written there: `none` is nothing, `basic` what was decided, `detailed` each call too. A project "
        "can only raise it.",
        words=("detailed", "basic", "none"),
        narrows=True,
    ),
)
KEYS: Final[dict[str, Key]] = {key.name: key for key in _TABLE}
SECTIONS: Final[tuple[str, ...]] = tuple(dict.fromkeys(key.section for key in _TABLE))
ELSEWHERE: Final = ("permissions",)  # sections of the same files that `tools.permissions` reads and checks


def hint_for(name: str) -> str:
    """The setting or section somebody most likely meant."""
    section, dot, field = name.partition(".")
    sections = (*SECTIONS, *TABLES, *ELSEWHERE)
    near = (
        did_you_mean(name, KEYS) or did_you_mean(name, TABLES) or (did_you_mean(section, sections) if not dot else None)
    )
    elsewhere = [key.name for key in _TABLE if key.field == (field or section)]
    if near or elsewhere:
        return f"did you mean {near or elsewhere[0]}?"
    if section in SECTIONS:
        return f"known here: {', '.join(key.field for key in _TABLE if key.section == section)}"
    return f"known sections: {', '.join(sections)}"
