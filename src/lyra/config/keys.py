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

NONE: Final = "none"  # the word for an absent optional setting, in every source


class SettingKey(NamedTuple):
    """One setting. `type` names a row of `values.READERS`; with `narrows` a project's file can only tighten it.

    Any other setting of a project's file counts once its folder is trusted. Without trust one with `tighter` counts
    where it is tighter than the user's: `less` or `more` says in which direction that is.
    """

    name: str
    type: (
        Literal["store", "word", "seconds", "count", "money", "rules", "model", "file", "results", "flag", "address"]
        | Literal["hosts", "folders", "engine", "secret", "database", "name"]
    )
    default: Any
    sentence: str
    words: tuple[str, ...] = ()  # for `word`; where `narrows`, the tightest comes first
    least: float = 0
    most: float = 1e12
    optional: bool = False  # may be absent, written "none"
    narrows: bool = False
    tighter: Literal["", "less", "more"] = ""

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
    SettingKey(
        "kernel.store",
        type="store",
        default=".lyra/lyra.db",
        sentence=(
            "Where the journal lives: a file path, `memory`, `postgresql://…`, or `env:NAME` for a variable that "
            "holds one of these. A relative path in a file starts at the project's folder, elsewhere at the "
            "working folder. A project's file can name a place in its own folder alone."
        ),
    ),
    SettingKey(
        "kernel.durability",
        type="word",
        default="process",
        sentence=(
            "What an acknowledged row survives: `process` is kill -9, `power` is a power cut too, at the price "
            "of a disk flush."
        ),
        words=("process", "power"),
        tighter="more",
    ),
    SettingKey(
        "kernel.lease_s",
        type="seconds",
        default=limits.LEASE_S,
        sentence="How long a kernel owns its store without renewing; a dead owner's store opens after this.",
        least=0.5,
        most=3600,
    ),
    SettingKey(
        "kernel.lease_wait_s",
        type="seconds",
        default=None,
        sentence=(
            "How long a kernel waits for the lease of an owner on another machine that may be dead; then it is an "
            "error that names the owner. Unset: 10 seconds, or one lease where that is longer."
        ),
        least=0,
        most=86_400,
        optional=True,
    ),
    SettingKey(
        "kernel.snapshot_every_events",
        type="count",
        default=limits.SNAPSHOT_EVERY_EVENTS,
        sentence="Journal rows between two snapshots, and so the most that are folded when a kernel opens its store.",
        least=1,
        most=1_000_000_000,
    ),
    SettingKey(
        "kernel.mailbox_messages_max",
        type="count",
        default=limits.MAILBOX_MESSAGES_MAX,
        sentence="Messages that may wait in one mailbox; a sender of more is told so.",
        least=1,
        most=1_000_000_000,
        tighter="less",
    ),
    SettingKey(
        "kernel.processes_max",
        type="count",
        default=limits.PROCESSES_MAX,
        sentence="Processes alive at once; a spawn beyond it is refused.",
        least=1,
        most=limits.PROCESSES_MAX,
        tighter="less",
    ),
    SettingKey(
        "kernel.recovery_attempts",
        type="count",
        default=limits.RECOVERY_ATTEMPTS,
        sentence="How often a call that crashes of the kernel cut off is made again; then its process stops.",
        least=0,
        most=1_000_000_000,
        tighter="less",
    ),
    SettingKey(
        "kernel.retention_s",
        type="seconds",
        default=limits.RETENTION_S,
        sentence="How long journal rows that a snapshot covers, and processes that ended with their pids, are kept.",
    ),
    SettingKey(
        "budget.usd",
        type="money",
        default=None,
        sentence="What a root process and everything below it may spend, in dollars, when its spawn names no budget.",
        optional=True,
        narrows=True,
    ),
    SettingKey(
        "budget.seconds",
        type="seconds",
        default=None,
        sentence="How long a root process may run when its spawn names no budget.",
        least=0.001,
        optional=True,
        narrows=True,
    ),
    SettingKey(
        "budget.on_exceed",
        type="word",
        default="block",
        sentence="What happens at the limit: `block` refuses the effect, `warn` tells and goes on, `allow` goes on.",
        words=("block", "warn", "allow"),
        narrows=True,
    ),
    SettingKey(
        "grant.allow",
        type="rules",
        default=(ANY_NAME,),
        sentence=(
            "What root processes may do, as capabilities such as `fs.read:/project/**`; `*` is everything. Where "
            "a project narrows it, lists of which each must allow."
        ),
        narrows=True,
    ),
    SettingKey(
        "grant.deny",
        type="rules",
        default=(),
        sentence="What root processes may not do, whatever is allowed. A project's denies are added.",
        narrows=True,
    ),
    SettingKey(
        "agent.model",
        type="model",
        default=None,
        sentence="The model that `lyra agent` asks where `--model` names none, such as `anthropic/claude-sonnet-4-5`.",
        optional=True,
    ),
    SettingKey(
        "agent.max_tokens",
        type="count",
        default=None,
        sentence="The longest answer of a model in tokens, where `--max-tokens` names none. Unset: the model's own.",
        least=1,
        most=10_000_000,
        optional=True,
        tighter="less",
    ),
    SettingKey(
        "audit.file",
        type="file",
        default=None,
        sentence=(
            "Where `lyra agent` writes its audit log when `--audit` names no place: a file, or a folder with a slash "
            "at its end, in which each run has a file of its own. A trusted project can name one in its own folder, "
            "where you have none."
        ),
        optional=True,
        narrows=True,
    ),
    SettingKey(
        "audit.level",
        type="word",
        default="basic",
        sentence=(
            "How much is written there: `none` is nothing, `basic` what was decided, `detailed` each call too. "
            "A project can only raise it."
        ),
        words=("detailed", "basic", "none"),
        narrows=True,
    ),
    SettingKey(
        "cluster.store",
        type="database",
        default=None,
        sentence=(
            "The database of the cluster that `lyra cluster`, `lyra ps` and the like mean: `postgresql://…`, or "
            "`env:NAME` for a variable that holds one. A project's file cannot name it."
        ),
        optional=True,
    ),
    SettingKey(
        "cluster.name",
        type="name",
        default=None,
        sentence="The name of this machine's host in the cluster. Unset: the name of the machine.",
        optional=True,
    ),
    SettingKey(
        "cluster.listen",
        type="address",
        default="127.0.0.1:0",
        sentence="Where `lyra cluster start` listens for the other hosts: HOST:PORT; port 0 chooses a free one.",
    ),
    SettingKey(
        "cluster.advertise",
        type="address",
        default=None,
        sentence="The address by which the other hosts reach this one. Unset: the one that it listens on.",
        optional=True,
    ),
    SettingKey(
        "cluster.plaintext",
        type="flag",
        default=False,
        sentence=(
            "`true` lets `lyra cluster start` listen without TLS on an address that other machines can reach: their "
            "network has to be private."
        ),
    ),
    SettingKey(
        "cluster.drain_s",
        type="seconds",
        default=limits.CLUSTER_DRAIN_S,
        sentence="How long effects in flight may take to end before a shard moves, or its host stops.",
        least=0,
        most=86_400,
    ),
    SettingKey(
        "cluster.tls_ca",
        type="file",
        default=None,
        sentence="The authority that has signed the certificates of all hosts and clients of the cluster (PEM).",
        optional=True,
    ),
    SettingKey(
        "cluster.tls_cert",
        type="file",
        default=None,
        sentence="The certificate chain with which this host, or a command, proves itself to the other hosts (PEM).",
        optional=True,
    ),
    SettingKey(
        "cluster.tls_key",
        type="file",
        default=None,
        sentence="The private key of `cluster.tls_cert` (PEM).",
        optional=True,
    ),
    SettingKey(
        "log.file",
        type="file",
        default=None,
        sentence="Where the log goes: a file that is appended to. Unset: stderr.",
        optional=True,
    ),
    SettingKey(
        "log.format",
        type="word",
        default="text",
        sentence="The form of the log: `text` for people, `json` for a line of JSON each, with trace and pid.",
        words=("text", "json"),
    ),
    SettingKey(
        "log.level",
        type="word",
        default="warn",
        sentence="What is logged: `error`, `warn`, `info`, `debug` or `trace`, each with those before it.",
        words=("error", "warn", "info", "debug", "trace"),
    ),
    SettingKey(
        "retry.max_attempts",
        type="count",
        default=10,
        sentence=(
            "How often a model is asked whose provider is overloaded or limits the rate of requests; each wait is "
            "shown. Where nothing says that the provider is there, such as without a network, it is at most 4 times."
        ),
        least=1,
        most=limits.RETRY_ATTEMPTS_MAX,
        tighter="less",
    ),
    SettingKey(
        "retry.initial_s",
        type="seconds",
        default=1.0,
        sentence="The first wait before a model is asked again; each further one is twice as long.",
        most=3600,
    ),
    SettingKey(
        "retry.max_s",
        type="seconds",
        default=60.0,
        sentence="The longest wait before a model is asked again, where its provider asks for no longer one.",
        most=3600,
    ),
    SettingKey(
        "sage.daily_budget_usd",
        type="money",
        default=None,
        sentence=(
            "What all sessions of Sage may spend on one day of the local calendar, in dollars: a turn gets what is "
            "left of it, and where nothing is left it is refused."
        ),
        optional=True,
        narrows=True,
    ),
    SettingKey(
        "sage.effort",
        type="word",
        default=None,
        sentence=(
            "How much the model of Sage thinks before it answers, where `--effort` and `/effort` say nothing. Unset: "
            "as its vendor has it. A model that cannot think is asked without it."
        ),
        words=("low", "medium", "high"),
        optional=True,
    ),
    SettingKey(
        "sage.cluster",
        type="database",
        default=None,
        sentence=(
            "The database of a cluster that runs sub-agents of Sage in the background, those that need nothing of this "
            "machine: `postgresql://…`, or `env:NAME` for a variable that holds one. A project's file cannot name it."
        ),
        optional=True,
    ),
    SettingKey(
        "sage.keys",
        type="word",
        default="emacs",
        sentence="The keys that edit the prompt of Sage in a terminal: `emacs`, as in most shells, or `vi`.",
        words=("emacs", "vi"),
    ),
    SettingKey(
        "sage.notify",
        type="word",
        default="off",
        sentence=(
            "What Sage does in a terminal when a turn has ended or a question waits: `off` nothing, `bell` rings, "
            "`desktop` sends a notification, which many terminals show."
        ),
        words=("off", "bell", "desktop"),
    ),
    SettingKey(
        "sage.session_budget_usd",
        type="money",
        default=None,
        sentence="What one session of Sage may spend, in dollars, with its sub-agents and over all its runs.",
        optional=True,
        narrows=True,
    ),
    SettingKey(
        "sage.theme",
        type="word",
        default="dark",
        sentence=(
            "The colours of Sage in a terminal, all of the terminal's own sixteen: for a `dark` or a `light` "
            "background, with more `contrast`, or with blue and yellow in place of green and red (`colour-blind`)."
        ),
        words=("dark", "light", "contrast", "colour-blind"),
    ),
    SettingKey(
        "sage.turn_budget_usd",
        type="money",
        default=None,
        sentence="What one turn of Sage may spend, in dollars: all that is done about one message.",
        optional=True,
        narrows=True,
    ),
    SettingKey(
        "sandbox.readable",
        type="folders",
        default=(),
        sentence=(
            "Files and folders outside the workspace that commands may read, besides the system's and the developer's "
            "tools. Folders of keys (`~/.ssh`) stay hidden."
        ),
    ),
    SettingKey(
        "sandbox.writable",
        type="folders",
        default=(),
        sentence=(
            "Folders outside the workspace that commands may write, such as a cache. What they change there is not "
            "undone, and what programs obey stays protected."
        ),
    ),
    SettingKey(
        "search.url",
        type="engine",
        default=None,
        sentence=(
            "The search engine of `WebSearch` for models whose vendor has none: an address with `{query}` in it that "
            "answers with JSON, such as `https://searx.example.org/search?q={query}&format=json`. A project's file "
            "cannot name one."
        ),
        optional=True,
    ),
    SettingKey(
        "search.key",
        type="secret",
        default=None,
        sentence=(
            "The key of that engine, as `env:NAME`: sent as a bearer token, to Brave in its own header. A project's "
            "file cannot name one."
        ),
        optional=True,
    ),
    SettingKey(
        "server.cluster",
        type="flag",
        default=False,
        sentence=(
            "`true` makes `lyra serve` a host of the cluster in `cluster.store`: each host answers every request, "
            "wherever in the cluster it belongs."
        ),
    ),
    SettingKey(
        "server.connections_max",
        type="count",
        default=limits.SERVER_CONNECTIONS_MAX,
        sentence="Connections that `lyra serve` holds open at once, for each of gRPC and HTTP; others are refused.",
        least=1,
        most=1_000_000,
    ),
    SettingKey(
        "server.drain_s",
        type="seconds",
        default=limits.SERVER_DRAIN_S,
        sentence="How long `lyra serve` lets requests and pipelines in flight finish when it is told to stop.",
        most=3600,
    ),
    SettingKey(
        "server.gateway",
        type="flag",
        default=False,
        sentence=(
            "`true` lets clients with a key of `lyra keys` call the model providers through `lyra serve`, with the "
            "server's own provider keys."
        ),
    ),
    SettingKey(
        "server.grpc",
        type="address",
        default="127.0.0.1:50051",
        sentence="Where `lyra serve` listens for gRPC: HOST:PORT (port 0 chooses a free one), or `none`.",
        optional=True,
    ),
    SettingKey(
        "server.hosts",
        type="hosts",
        default=(),
        sentence=(
            "Names under which clients reach `lyra serve` over HTTP, besides its address and this machine's own: "
            "requests for any other host are refused."
        ),
    ),
    SettingKey(
        "server.http",
        type="address",
        default="127.0.0.1:8420",
        sentence="Where `lyra serve` listens for HTTP: HOST:PORT (port 0 chooses a free one), or `none`.",
        optional=True,
    ),
    SettingKey(
        "server.message_bytes_max",
        type="count",
        default=limits.SERVER_MESSAGE_BYTES_MAX,
        sentence="The largest request that `lyra serve` takes, in bytes; a larger one is refused unread.",
        least=1024,
        most=1_000_000_000,
    ),
    SettingKey(
        "server.plaintext",
        type="flag",
        default=False,
        sentence="`true` lets `lyra serve` listen without TLS on an address that other machines can reach.",
    ),
    SettingKey(
        "server.requests_per_minute",
        type="count",
        default=None,
        sentence="HTTP requests that one token and user may make a minute; more are refused (429). Unset: any number.",
        least=1,
        most=1_000_000_000,
        optional=True,
    ),
    SettingKey(
        "server.tls_cert",
        type="file",
        default=None,
        sentence="The certificate chain with which `lyra serve` proves itself to clients (PEM).",
        optional=True,
    ),
    SettingKey(
        "server.tls_client_ca",
        type="file",
        default=None,
        sentence="Certificates of which one must have signed that of each client (PEM): mutual TLS.",
        optional=True,
    ),
    SettingKey(
        "server.tls_key",
        type="file",
        default=None,
        sentence="The private key of `server.tls_cert` (PEM).",
        optional=True,
    ),
    SettingKey(
        "server.token_file",
        type="file",
        default=None,
        sentence=(
            "The tokens that `lyra serve` knows: a line each, `TOKEN [USER] [role=ROLE]`. Unset: the variable "
            "LYRA_TOKEN, or a file in your data folder that is made at the first start."
        ),
        optional=True,
    ),
    SettingKey(
        "vesper.min_successes",
        type="count",
        default=1_000,
        sentence="Distinct inputs with which a node must succeed on both paths before its direct path may answer.",
    ),
    SettingKey(
        "vesper.results",
        type="results",
        default="memory",
        sentence=(
            "Where commands keep the results of nodes with `idempotent: true`: `memory`, "
            "`redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, or `env:NAME` for a variable that holds one of these. "
            "A project's file can name `memory` alone."
        ),
    ),
)
GONE: Final = {  # settings of earlier versions: a file that still has one is read, and a note says what came of it
    "sage.recall": "Sage keeps to AGENTS.md (/memory add TEXT); `sage import memory` brings what it remembered",
}
KEYS: Final[dict[str, SettingKey]] = {key.name: key for key in _TABLE}
SECTIONS: Final[dict[str, dict[str, str]]] = {}  # the full names of a section's settings, by field
for _key in _TABLE:
    SECTIONS.setdefault(_key.section, {})[_key.field] = _key.name
# Sections of the same files that are read elsewhere: by `tools.permissions`, and by `config.hook_settings`.
HOOKS: Final = "hooks"
ELSEWHERE: Final = ("permissions", HOOKS)


def needs_trust(key: SettingKey, value: Any) -> bool:
    """Return whether a project's file needs trust for this value, because it may do more than tighten. A file's name
    has no order: something is written there."""
    if key.narrows:
        return key.type == "file"
    return bool(value != key.default) and not is_tighter(key, value, key.default)


def is_tighter(key: SettingKey, value: Any, holds: Any) -> bool:
    """Return whether a value is tighter than the one that holds; never for a setting without an order."""
    if not key.tighter:
        return False
    asked, held = (key.words.index(value), key.words.index(holds)) if key.words else (value, holds)
    return bool(asked < held if key.tighter == "less" else asked > held)


def hint_for(name: str) -> str:
    """Return a hint with the known setting or section nearest to an unknown name."""
    section, dot, field = name.partition(".")
    sections = (*SECTIONS, *TABLES, *ELSEWHERE)
    near = (
        did_you_mean(name, KEYS) or did_you_mean(name, TABLES) or (did_you_mean(section, sections) if not dot else None)
    )
    elsewhere = [key.name for key in _TABLE if key.field == (field or section)]
    if near or elsewhere:
        return f"did you mean {near or elsewhere[0]}?"
    if section in SECTIONS:
        return f"known here: {', '.join(SECTIONS[section])}"
    return f"known sections: {', '.join(sections)}"
