"""What the files of a folder ask for, in plain words, before a person says whether they trust them.

`folder_asks` reads the files of a project that can do more than tighten: its `lyra.toml`, `.mcp.json`,
`.lyra/permissions.toml`, `.lyra/permissions.local.toml` and `.lyra/tools`. A file that asks for nothing is left out.
A part above that gives meaning to further files names them (`AskingFile`).
The sentences are made of the same bytes that `FileAsks.sha256` is the hash of. Every text of the project is shown with
invisible characters as their codes, on one line, and is never cut: a file with a text that is too long to be shown
cannot be trusted by an answer (`problem`), and neither can the files of a folder that ask for too many things together.
Decides nothing; next: `trust`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from lyra.config.files import FILE_NAME, parse_toml, project_file, read_bytes
from lyra.config.hook_settings import HOOK_EVENTS, hook_entries, read_hook
from lyra.config.keys import HOOKS, KEYS, needs_trust
from lyra.config.trust import FolderTrust, digest_of
from lyra.core.checking.document import FORMATS, form_of, parse, text_of
from lyra.core.providers import COMPATIBLE, USUAL
from lyra.core.secrets.secret import MASK, is_reference
from lyra.core.secrets.visible import visible
from lyra.core.user_folders import user_folder
from lyra.errors import LyraError

# ---------------------------------------------------------------- ask

_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|pass|auth|credential")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_+=.-]{8,}")  # a literal key: it has no slash and no blank, as a program has


class Ask(NamedTuple):
    """One thing that a file asks for: its short name (a setting, a rule's effect, a tool), and the sentence. `server`
    is the MCP server that it is about."""

    name: str
    sentence: str
    server: str = ""


def on_one_line(value: Any) -> str:
    """Return a text of the project on one line, with every character that cannot be seen as its code."""
    return visible(str(value)).replace("\n", "").replace("\t", "")


def mask_value(name: str, value: str) -> str:
    """Return a variable's or header's value: your variable, or the text as it is written; one that looks like a key is
    masked."""
    if is_reference(value):
        return f" from your variable {on_one_line(value.removeprefix('env:'))}"
    is_key = _SECRET_NAME.search(name) and _TOKEN.fullmatch(value.rpartition(" ")[2])
    return f"={MASK if is_key else on_one_line(value)}"


ASKS_MAX: Final = 100  # of all files of a folder: more than a person reads is no question
SENTENCE_CHARS_MAX: Final = 1_000
CHARS_MAX: Final = 20_000  # of all sentences
TIGHT_MODES: Final = ("plan", "deny-unasked")  # permission modes that a file without trust may choose
_TOOL_FILES_MAX: Final = 500
_TOOLS: Final = os.path.join(".lyra", "tools")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")


class FileAsks(NamedTuple):
    """One file that asks for something. `problem` says why no answer can be given for it; "" where one can."""

    folder: str
    name: str
    sha256: str
    asks: tuple[Ask, ...] = ()
    problem: str = ""

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.name)

    @property
    def shown_name(self) -> str:
        """Its path in the folder, fit to be shown: a repository can bring a file with a line end in its name."""
        return on_one_line(self.name)

    def state(self, trust: FolderTrust) -> str:
        """`trusted`, `refused`, `changed` since the answer, or `new`: without one."""
        if trust.is_whole(self.folder):
            return "trusted"
        answer = trust.answer(self.folder, self.name)
        if answer is None or self.problem:
            return "new"
        if answer.sha256 != self.sha256:
            return "changed"
        return "trusted" if answer.trusted else "refused"


Reader = Callable[[bytes, str], Iterable[Ask]]


class AskingFile(NamedTuple):
    """A file that may ask for something: the folder it belongs to, its path in it, and the reader of what it asks
    for."""

    folder: str
    name: str
    read: Reader


def folder_asks(
    folder: str, env: Mapping[str, str] | None = None, *, more: Iterable[AskingFile] = ()
) -> list[FileAsks]:
    """Return the files that ask for something when a program runs in this folder, the one above it included, and
    `more`."""
    own = user_folder(os.environ if env is None else env)
    user = os.path.join(own, FILE_NAME) if own else None
    files = {}
    for place, name, read in (*_settings(folder, user), *_workspace(folder), *more):
        real = os.path.realpath(place)
        if (real, name) not in files:
            files[real, name] = _read(real, name, read)
    return _check_bounds([file for file in files.values() if file is not None])


def _check_bounds(files: list[FileAsks]) -> list[FileAsks]:
    """Return the files; where they ask for more than can be shown together, none of them can be trusted by an
    answer."""
    sentences = [ask.sentence for file in files for ask in file.asks]
    if len(sentences) <= ASKS_MAX and sum(map(len, sentences)) <= CHARS_MAX:
        return files
    problem = f"the folder asks for {len(sentences)} things, more than can be shown"
    return [file if file.problem else file._replace(problem=problem) for file in files]


def _settings(folder: str, user: str | None) -> Iterator[AskingFile]:
    """Yield the `lyra.toml` that counts in a folder; one that is named by a link has two ways up."""
    for start in (os.path.abspath(folder), os.path.realpath(folder)):
        path = project_file(start, user)
        if path is not None:
            yield AskingFile(os.path.dirname(path), FILE_NAME, _read_settings)


def _workspace(folder: str) -> Iterator[AskingFile]:
    yield AskingFile(folder, ".mcp.json", _read_mcp_json)
    for name in ("permissions.toml", "permissions.local.toml"):
        yield AskingFile(folder, os.path.join(".lyra", name), _read_permissions)
    for name in _tool_files(os.path.join(folder, _TOOLS)):
        yield AskingFile(folder, os.path.join(_TOOLS, name), tool_asks)


def _tool_files(folder: str) -> list[str]:
    """Return the names of the files that `DynamicTools` would read."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    read = [name for name in names if not name.startswith(".") and os.path.splitext(name)[1].lower() in FORMATS]
    return read[:_TOOL_FILES_MAX]


def _read(folder: str, name: str, read: Reader) -> FileAsks | None:
    """Return what one file asks for; None for a file that is not there, or asks for nothing."""
    try:
        data = read_bytes(os.path.join(folder, name), name)
    except LyraError as error:
        return FileAsks(folder, name, "", problem=f"it cannot be read: {on_one_line(error.message)}")
    if data is None:
        return None
    digest = digest_of(data)
    try:
        asks = tuple(dict.fromkeys(read(data, name)))
    except (LyraError, TypeError, ValueError, AttributeError, RecursionError) as error:
        why = error.message if isinstance(error, LyraError) else "its parts are not what they should be"
        return FileAsks(folder, name, digest, problem=f"it cannot be read: {on_one_line(why)}")
    if not asks:
        return None
    problem = ""
    if any(len(ask.sentence) > SENTENCE_CHARS_MAX for ask in asks):
        problem = "it asks for something that is too long to be shown"
    elif not _is_text(os.path.join(folder, name)):
        problem = "its name is not UTF-8"
    return FileAsks(folder, name, digest, asks, problem)


def _is_text(path: str) -> bool:
    """Return whether an answer for this path can be kept."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---------------------------------------------------------------- lyra.toml
def _read_settings(data: bytes, name: str) -> Iterator[Ask]:
    document, _ = parse_toml(data, name)
    for section, table in document.items():
        if section == "providers":
            for provider, entry in table.items():
                yield from _provider(provider, entry)
        elif section == "mcp":
            for server, entry in table.get("servers", {}).items():
                yield from _server(server, entry)
        elif section == "permissions":
            yield from _permissions(table)
        elif section == HOOKS:
            yield from _hooks(table)
        elif section == "diagnostics":
            for pattern, entry in table.items():
                yield from _diagnostics(pattern, entry)
        elif section not in ("prices", "limits"):  # which can only tighten
            for field, value in table.items():
                yield from _setting(f"{section}.{field}", value)


_WORDS: Final = {
    "kernel.store": "keeps the journal of its runs in {}",
    "audit.file": "writes an audit log to {}",
    "log.file": "writes a log to {}",
    "agent.model": "has agents ask the model {}",
}


def _setting(name: str, value: Any) -> Iterator[Ask]:
    key = KEYS.get(name)
    if key is not None and not needs_trust(key, value):
        return
    words = _WORDS.get(name, f"sets {on_one_line(name)} to {{}}")
    yield Ask(on_one_line(name), words.format(on_one_line(value)))


def _provider(name: str, entry: Mapping[str, Any]) -> Iterator[Ask]:
    short, shown = f"providers.{on_one_line(name)}", on_one_line(name)
    key = str(entry.get("api_key", ""))
    variable = on_one_line(key.removeprefix("env:")) if is_reference(key) else ""
    if "base_url" in entry:
        usual = USUAL.get(name, COMPATIBLE).key
        sent = variable or (f"your key for {shown}" if name in USUAL and not USUAL[name].is_local else "")
        sent += f" ({' or '.join(usual)})" if usual and not variable else ""
        with_key = f", and sends {sent} there" if sent else ""
        yield Ask(f"{short}.base_url", f"asks the models of {shown} at {on_one_line(entry['base_url'])}{with_key}")
    elif "api_key" in entry:
        yield Ask(f"{short}.api_key", f"uses {variable or 'a key of its own'} as the key for {shown}")
    for field, value in entry.items():
        if field not in ("base_url", "api_key") and (field, value) != ("insecure_http", False):
            yield Ask(f"{short}.{on_one_line(field)}", f"sets {short}.{on_one_line(field)} to {on_one_line(value)}")


# ---------------------------------------------------------------- diagnostics
def _diagnostics(pattern: str, entry: Mapping[str, Any]) -> Iterator[Ask]:
    name = f"diagnostics.{on_one_line(pattern)}"
    files = f"after an edit of files such as {on_one_line(pattern)}"
    commands = entry.get("commands", ())
    for command in (commands,) if isinstance(commands, str) else commands:
        yield Ask(name, f"runs {on_one_line(command)} {files}")
    if "language_server" in entry:
        yield Ask(name, f"starts the language server {on_one_line(entry['language_server'])} {files}")
    if entry.get("readable"):
        yield Ask(name, f"lets these programs read {', '.join(map(on_one_line, entry['readable']))}")


# ---------------------------------------------------------------- hooks
def _hooks(table: Mapping[str, Any]) -> Iterator[Ask]:
    for event, _number, entry in hook_entries(table):
        hook = read_hook(event, entry, name=f"{HOOKS}.{event}")
        words = hook.command if isinstance(hook.command, str) else shlex.join(hook.command)
        limits = f", for {on_one_line(hook.matcher)}" if hook.matcher else ""
        yield Ask(f"hook {event}", f"runs {on_one_line(words)} {HOOK_EVENTS[event].sentence}{limits}")


# ---------------------------------------------------------------- MCP servers
def _read_mcp_json(data: bytes, name: str) -> Iterator[Ask]:
    document, _ = parse(text_of(data, name), "json", name)
    for server, entry in document.get("mcpServers", {}).items():
        counts = {"enabled": entry["disabled"] is not True} if "disabled" in entry else {}  # before `enabled`
        yield from _server(server, {**entry, **counts})


def _server(name: str, entry: Mapping[str, Any]) -> Iterator[Ask]:
    if entry.get("enabled") is False:
        return
    shown = on_one_line(name)
    if "url" in entry:
        parts = [f"connects to the MCP server {shown} at {on_one_line(entry['url'])}"]
    else:
        words = [str(word) for word in (entry.get("command", ""), *entry.get("args", ()))]
        parts = [f"starts the MCP server {shown}: {on_one_line(shlex.join(words))}"]
    parts += _details(entry)
    yield Ask(f"server {shown}", "; ".join(parts), str(name))


def _details(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a server is given: variables, headers, tokens, folders, hosts."""
    given = (entry.get("url", ""), entry.get("command", ""), *entry.get("args", ()), entry.get("cwd", ""))
    variables = [variable for text in given for variable in _VARIABLE.findall(str(text))]
    if variables:
        yield f"with your variables {', '.join(dict.fromkeys(variables))} in that line"
    if entry.get("cwd"):
        yield f"in the folder {on_one_line(entry['cwd'])}"
    for key, word in (("env", "with the variable"), ("headers", "with the header")):
        for name, value in entry.get(key, {}).items():
            yield f"{word} {on_one_line(name)}{mask_value(str(name), str(value))}"
    auth = entry.get("auth", {})
    for key, word in (("token_env", "the token"), ("client_secret_env", "the client's secret")):
        if key in auth:
            yield f"with {word} in your variable {on_one_line(auth[key])}"
    if auth.get("kind") == "oauth":
        yield "with a login of yours"
    for key, word in (("network", "it may reach"), ("readable", "it may read"), ("writable", "it may write in")):
        if entry.get(key):
            yield f"{word} {', '.join(map(on_one_line, entry[key]))}"


# ---------------------------------------------------------------- permissions
def _read_permissions(data: bytes, name: str) -> Iterator[Ask]:
    document, _ = parse_toml(data, name)
    yield from _permissions(document)


def _permissions(table: Mapping[str, Any]) -> Iterator[Ask]:
    for rule in table.get("allow", ()):
        text = rule.get("rule", "") if isinstance(rule, Mapping) else rule
        yield Ask("allow", f"lets {on_one_line(text)} happen without a question")
    mode = table.get("mode")
    if mode is not None and mode not in TIGHT_MODES:
        yield Ask("mode", f"sets the permission mode to {on_one_line(mode)}")


# What a file of YAML tools asks for: each tool, and what it does when it is called.
def tool_asks(data: bytes, name: str) -> Iterator[Ask]:
    """Yield what each tool of a file does when it is called."""
    document, _ = parse(text_of(data, name), form_of(name, what="tool"), name)
    tools = document.get("tools", [document]) if isinstance(document, Mapping) else document
    for tool in tools:
        shown = on_one_line(tool.get("name", ""))
        needs = tool.get("needs") or ()
        also = f"; it needs {', '.join(map(on_one_line, needs))}" if needs else ""
        yield Ask(f"tool {shown}", f"brings the tool {shown}, which {_act(tool.get('implementation', {}))}{also}")


def _act(implementation: Mapping[str, Any]) -> str:
    kind = implementation.get("type")
    if kind == "exec":
        command = implementation.get("command", ())
        words = command if isinstance(command, str) else shlex.join(map(str, command))
        fed = f", with {on_one_line(implementation['stdin'])} as its input" if implementation.get("stdin") else ""
        writes = ", and may write in the folder" if implementation.get("writes") else ""
        return f"runs {on_one_line(words)}{fed}{writes}"
    if kind == "http":
        sent = f"sends {on_one_line(implementation.get('method', 'GET'))} {on_one_line(implementation.get('url', ''))}"
        return "; ".join([sent, *_list_sent_along(implementation)])
    if kind == "file_read":
        return f"reads the file {on_one_line(implementation.get('path', ''))}"
    if kind == "file_write":
        written = f": {on_one_line(implementation['content'])}" if "content" in implementation else ""
        return f"writes the file {on_one_line(implementation.get('path', ''))}{written}"
    return f"is of the kind {on_one_line(kind)}"


def _list_sent_along(implementation: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a request carries besides its address; a header may hold one of the user's keys."""
    for name, value in implementation.get("headers", {}).items():
        scheme, _, reference = str(value).rpartition(" ")
        if is_reference(reference):
            kind = f"{on_one_line(scheme)} and " if scheme else ""
            variable = on_one_line(reference.removeprefix("env:"))
            yield f"with the header {on_one_line(name)}: {kind}your variable {variable}"
        else:
            yield f"with the header {on_one_line(name)}{mask_value(str(name), str(value))}"
    for part in ("query", "body"):
        if implementation.get(part):
            yield f"with the {part} {on_one_line(implementation[part])}"
