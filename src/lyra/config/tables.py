"""Settings under names that the user chooses: providers of models, prices, limits for each model, MCP servers,
diagnostics.

    [providers.here]                       [limits."anthropic/claude-sonnet-4-5"]
    base_url = "http://localhost:8000/v1"  requests_per_minute = 50

`TABLES` says which columns each has; everything else follows from it, as it does from `KEYS` for the settings with
fixed names: parsing, `lyra config`, the reference page and the tests that no column is inert. A `TableCell` is one
setting: `providers.here.base_url` wherever it is shown, and after `--set`.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from lyra.core.checking.check import did_you_mean
from lyra.core.policies.rate import STRATEGIES
from lyra.core.providers import APIS

ColumnType = (
    Literal["secret", "url", "text", "word", "flag", "timeouts", "headers", "usd", "count"]
    | Literal["texts", "hosts", "paths", "environment", "seconds", "transport", "auth"]  # of MCP servers
    | Literal["commands", "command"]  # of diagnostics
)
TRANSPORTS: Final = ("stdio", "http")
UNSPOKEN: Final = ("sse", "websocket")  # many files of other programs name them
AUTH_KINDS: Final = ("none", "bearer", "oauth")


class Column(NamedTuple):
    """One setting of a table; `project` says how a project's file may set it ("" is without restriction)."""

    field: str
    type: ColumnType
    sentence: str
    words: tuple[str, ...] = ()
    project: str = ""


class SettingTable(NamedTuple):
    """A section whose entries have free names; `name` is how the reference writes one."""

    section: str
    name: str
    sentence: str
    columns: dict[str, Column]


class TableCell(NamedTuple):
    """One setting of one entry, by name."""

    section: str
    name: str
    field: str

    def __str__(self) -> str:
        return ".".join(self)


def _table(section: str, name: str, sentence: str, *columns: Column) -> SettingTable:
    return SettingTable(section, name, sentence, {column.field: column for column in columns})


TABLES: Final[dict[str, SettingTable]] = {
    table.section: table
    for table in (
        _table(
            "providers",
            "NAME",
            "Where models are asked. `NAME` is a provider that Lyra knows or, with a `base_url`, any server that "
            "speaks OpenAI's format: its models are `NAME/MODEL`.",
            Column(
                "api_key",
                "secret",
                "The key, or `env:NAME` for a variable that holds it.",
                project="trusted: `env:NAME` alone, the provider's usual variable or one that ends in `_KEY`, for the "
                "provider's own address or one on this machine",
            ),
            Column(
                "base_url",
                "url",
                "The address of the server.",
                project="trusted: this machine only; `a.localhost` is not, since a name server is asked for it",
            ),
            Column("api", "word", "Which of OpenAI's two formats the server speaks.", words=APIS, project="trusted"),
            Column(
                "api_version", "text", "The version of the API: Azure's, Anthropic's or Google's.", project="trusted"
            ),
            Column("project", "text", "The Google Cloud project.", project="trusted"),
            Column("region", "text", "Google Cloud's or AWS's region.", project="trusted"),
            Column(
                "timeouts",
                "timeouts",
                "Seconds: `connect_s`, `first_s` to the first byte, `idle_s` between two pieces, `total_s`.",
                project="trusted",
            ),
            Column("headers", "headers", "Sent with every call, hidden like keys.", project="no"),
            Column(
                "insecure_http",
                "flag",
                "`true` lets a key travel over plain HTTP to another machine.",
                project="`false` only",
            ),
        ),
        _table(
            "prices",
            '"PROVIDER/MODEL"',
            "What a model costs, where no price is published or you pay another price.",
            Column("input_usd_per_mtok", "usd", "Dollars for a million tokens in.", project="raises"),
            Column("output_usd_per_mtok", "usd", "Dollars for a million tokens out.", project="raises"),
            Column("cache_read_usd_per_mtok", "usd", "For tokens read from a cache; else as in.", project="raises"),
            Column("cache_write_usd_per_mtok", "usd", "For tokens written to a cache; else as in.", project="raises"),
            Column("request_usd", "usd", "Dollars for each request, beside its tokens.", project="raises"),
        ),
        _table(
            "limits",
            '"PROVIDER/MODEL"',
            "How often a model is asked, by all agents of a kernel together.",
            Column("requests_per_minute", "count", "Requests a minute.", project="narrows"),
            Column("tokens_per_minute", "count", "Tokens a minute, in and out.", project="narrows"),
            Column("burst", "count", "Requests at once; unsaid, a minute's worth.", project="narrows"),
            Column(
                "strategy",
                "word",
                "What a call over the limit does: waits its turn, fails at once, or waits while the line is short.",
                words=STRATEGIES,
                project="where you say nothing",
            ),
        ),
        _table(
            "mcp.servers",
            "NAME",
            "MCP servers, whose tools agents get as `mcp__NAME__TOOL`. A project's wait for your consent, for one of "
            "them (`lyra mcp approve`) or for the folder.",
            Column("command", "text", "The program that is started; it runs in the sandbox.", project="after consent"),
            Column("args", "texts", "Its arguments.", project="after consent"),
            Column(
                "cwd",
                "text",
                "The folder it is started in, inside the project; else the project's.",
                project="after consent",
            ),
            Column(
                "env",
                "environment",
                "Its environment, which is otherwise empty; `env:NAME` takes a value from yours.",
                project="after consent",
            ),
            Column("url", "url", "Where a server that runs already is reached.", project="after consent"),
            Column("headers", "headers", "Sent with every request, hidden like keys.", project="after consent"),
            Column(
                "auth",
                "auth",
                "`kind` is `none`, `bearer` (with `token_env`) or `oauth` (with `scopes`, and for a client that was "
                "registered by hand `client_id`, `client_secret_env`, `callback_port`).",
                project="after consent",
            ),
            Column("transport", "transport", "How it is spoken to; unsaid, what it has says it.", words=TRANSPORTS),
            Column("enabled", "flag", "`false` leaves it out.", project="`false`, or after consent"),
            Column("timeout_s", "seconds", "How long one call may take; 60 unsaid.", project="after consent"),
            Column("start_s", "seconds", "How long it may take to start; 30 unsaid.", project="after consent"),
            Column("network", "hosts", "Hosts the command may reach; none unsaid.", project="after consent"),
            Column(
                "readable",
                "paths",
                "Folders the command may read besides the system's and the project's.",
                project="after consent",
            ),
            Column("writable", "paths", "Folders the command may write in; none unsaid.", project="after consent"),
        ),
        _table(
            "diagnostics",
            '"PATTERN"',
            "Programs that look at a file after an agent has edited it; their findings come with the result of the "
            'edit. `PATTERN` says which files, such as `"*.py"` or `"web/**/*.ts"`. They run in the sandbox.',
            Column(
                "commands",
                "commands",
                "Command lines, one or a list of them; `{file}` is the path of the file. No shell reads them.",
                project="trusted",
            ),
            Column(
                "language_server",
                "command",
                "The command line of a language server that speaks on stdin and stdout; it runs as long as the agent.",
                project="trusted",
            ),
            Column(
                "timeout_s",
                "seconds",
                "How long an edit waits for each of them, before it and after it; 5 unsaid.",
                project="trusted",
            ),
            Column(
                "readable",
                "paths",
                "Folders these programs may read besides the system's and the project's.",
                project="trusted",
            ),
        ),
    )
}


def cell_of(name: str) -> TableCell | None:
    """Return the cell that `--set` names: the model in the middle may have dots in it."""
    section = next((section for section in TABLES if name.startswith(f"{section}.")), "")
    entry, _, field = name[len(section) + 1 :].rpartition(".")
    return TableCell(section, entry, field) if section and entry and field else None


def groups() -> dict[str, tuple[str, ...]]:
    """Return sections that only hold tables: `mcp` of `mcp.servers`."""
    dotted = [section for section in TABLES if "." in section]
    return {
        group: tuple(section for section in dotted if section.startswith(f"{group}."))
        for group in dict.fromkeys(section.partition(".")[0] for section in dotted)
    }


def hint_for_cell(cell: TableCell) -> str:
    """Return a hint with the known column nearest to an unknown field."""
    columns = TABLES[cell.section].columns
    near = did_you_mean(cell.field, columns)
    return f"did you mean {near}?" if near else f"known here: {', '.join(columns)}"
