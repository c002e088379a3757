"""What a server is: read from lyra.toml and .mcp.json, with places for mistakes, and whose word it is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.config import TABLES
from lyra.errors import ConfigError, LyraError, ParseError
from lyra.mcp import Approvals, McpServers, ServerSettings, load_settings
from lyra.mcp.settings import read_file
from lyra.mcp.state import ServerFailed
from lyra.mcp.transports import profile_of, stdio
from lyra.sandbox import Sandbox
from tests.cases import cases
from tests.mcp.support import QUICK, run, tiny, using
from tests.test_config import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def servers(place: Place, *flags: str, **env: str) -> dict[str, ServerSettings]:
    config = place.load(*flags, cwd=None, trust=True, **env)
    return {server.name: server for server in load_settings(config, str(place.project), {**place.env, **env})}


def only(place: Place, *flags: str, **env: str) -> ServerSettings:
    (server,) = servers(place, *flags, **env).values()
    return server


# ---------------------------------------------------------------- lyra.toml
# For each column: how it is written, after --set, and what shows that it took effect.
COMMAND = 'command = "node"'
URL = 'url = "https://here.example/mcp"'
COLUMNS: dict[str, tuple[str, str, str, Any, Any]] = {
    "command": ("", '"node"', "node", lambda s: s.argv, ["node"]),
    "args": (COMMAND, '["a", "b c"]', '["a", "b c"]', lambda s: s.argv, ["node", "a", "b c"]),
    "cwd": (COMMAND, '"sub"', "sub", lambda s: s.cwd, "sub"),
    "env": (COMMAND, '{A = "env:B"}', '{"A": "env:B"}', lambda s: s.env["A"].reveal(), "from B"),
    "url": ("", '"https://x.example/"', "https://x.example/", lambda s: s.address, "https://x.example/"),
    "headers": (URL, '{X-A = "env:B"}', '{"X-A": "env:B"}', lambda s: s.headers["x-a"].reveal(), "from B"),
    "auth": (URL, '{kind = "oauth", scopes = ["a"]}', '{"kind": "oauth"}', lambda s: s.auth_kind, "oauth"),
    "transport": (URL, '"http"', "http", lambda s: s.transport, "http"),
    "enabled": (COMMAND, "false", "false", lambda s: s.enabled, False),
    "timeout_s": (COMMAND, "1.5", "1.5", lambda s: s.timeout_s, 1.5),
    "start_s": (COMMAND, "2.5", "2.5", lambda s: s.start_s, 2.5),
    "network": (COMMAND, '["api.example.com"]', '["api.example.com"]', lambda s: s.network, ("api.example.com",)),
    "readable": (COMMAND, '["/opt/a"]', '["/opt/a"]', lambda s: s.readable, ("/opt/a",)),
    "writable": (COMMAND, '["/opt/b"]', '["/opt/b"]', lambda s: s.writable, ("/opt/b",)),
}


@pytest.mark.parametrize("field", TABLES["mcp.servers"].columns)
def test_no_setting_of_a_server_is_inert(place, field):
    """Each, from the user's file and as a flag, changes what the server is."""
    base, toml, text, read, expected = COLUMNS[field]
    place.user(f"[mcp.servers.here]\n{field} = {toml}\n{base}")
    server = only(place, B="from B")
    assert read(server) == expected
    assert (server.origin, server.trusted) == ("user", True)
    assert place.load().origin(f"mcp.servers.here.{field}").place == f"{place.user_file}:2"
    if base:
        place.user(f"[mcp.servers.here]\n{base}")
        plain = only(place)
        assert field in ("env", "headers", "transport") or read(plain) != expected
        assert read(only(place, f"mcp.servers.here.{field}={text}", B="from B")) == expected


@pytest.mark.parametrize(
    ("given", "confined"),
    [
        ({}, True),
        ({"readable": ("/usr/share",)}, True),
        ({"network": ("x.org",)}, False),
        ({"writable": ("/x",)}, False),
    ],
)
def test_a_program_without_network_and_folders_to_write_in_is_confined(given, *, confined):
    """A server at a URL is not: what it is given has left."""
    server = ServerSettings(name="a", command="x", **given)
    assert server.confined is confined
    assert not ServerSettings(name="a", url="https://x.org", transport="http").confined


def test_what_a_server_is_may_touch():
    """Network and folders of the settings become the profile of its sandbox."""
    from lyra.core.rights.capability import Capability
    from lyra.mcp.transports import profile_of

    server = tiny(network=("api.example.com",), writable=("/usr/share",))
    profile = profile_of(server, str(Path(__file__).parent))
    assert profile.egress is not None
    assert profile.egress.allows(Capability("net.http", "api.example.com:443"))
    assert not profile.egress.allows(Capability("net.http", "other.example.com:443"))
    assert profile.writable_also == ("/usr/share",)
    assert not profile.writable
    assert profile_of(tiny(), str(Path(__file__).parent)).egress is None


def test_paths_are_absolute(place):
    """`~` is the home, a relative one starts at the project."""
    place.user('[mcp.servers.here]\ncommand = "x"\nreadable = ["~/a", "b/../c", "/d"]')
    assert only(place).readable == (f"{place.env['HOME']}/a", f"{place.project}/c", "/d")


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("[mcp.servers.a]\ncomand = 'x'", 2, "no setting 'mcp.servers.a.comand'", "did you mean command?"),
        ("[mcp.server.a]\ncommand = 'x'", 1, "no section [mcp.server]", "did you mean mcp.servers?"),
        ("[mpc.servers.a]\ncommand = 'x'", 1, "no section [mpc]", None),
        ("[mcp]\nservers = 5", 2, "mcp.servers is a section", "[mcp.servers.NAME]"),
        ("[mcp.servers]\na = 5", 2, "mcp.servers.a is a table", "[mcp.servers.NAME]"),
        ("[mcp.servers.'/']\ncommand = 'x'", 1, "cannot be the name of an MCP server", None),
        ("[mcp.servers.a]\nargs = []", 2, "neither a command nor a url", None),
        ("[mcp.servers.a]\ncommand = 'x'\nurl = 'https://h'", 2, "both a command and a url", None),
        ("[mcp.servers.a]\ncommand = 'x'\nheaders = {a = 'b'}", 2, "headers is not for that", "take out headers"),
        ("[mcp.servers.a]\nurl = 'https://h'\nwritable = ['/']", 2, "writable is not for that", None),
        ("[mcp.servers.a]\ncommand = 'x'\ntransport = 'http'", 2, "not the transport http", None),
        ("[mcp.servers.a]\nurl = 'https://h'\ntransport = 'htpt'", 3, "is one of stdio, http", "'http'"),
        ("[mcp.servers.a]\nurl = 'https://h'\ntransport = 'sse'", 3, "is sse, which Lyra does not speak", "HTTP"),
        ("[mcp.servers.a]\nurl = 'https://h'\ntransport = 'websocket'", 3, "which Lyra does not speak", "HTTP"),
        ("[mcp.servers.a]\ncommand = 'x'\nargs = 'a b'", 3, "is a list of texts", None),
        ("[mcp.servers.a]\ncommand = 'x'\nenv = {'a b' = 'x'}", 3, "no variable can have", None),
        ("[mcp.servers.a]\ncommand = 'x'\ntimeout_s = 0", 3, "is more than 0", None),
        ("[mcp.servers.a]\nurl = 'https://h'\nauth = {kind = 'basic'}", 3, "one of none, bearer, oauth", None),
        ("[mcp.servers.a]\nurl = 'https://h'\nauth = {knd = 'oauth'}", 3, "no setting 'knd'", "'kind'"),
        ("[mcp.servers.a]\nurl = 'https://h'\nauth = {kind = 'bearer'}", 2, "names none", "token_env"),
        ("[mcp.servers.a]\nurl = 'https://h'\nauth = {token_env = 'sk hunter2'}", 3, "name of a variable", None),
        ("[mcp.servers.a]\nurl = 'https://u:hunter2@h'", 2, "holds a password", None),
    ],
)
def test_a_mistake_has_its_line(place, text, line, message, hint):
    """The file and the line, what is wrong, what was meant; never a secret."""
    error = place.user(text).fail()
    assert error.place == f"{place.user_file}:{line}"
    assert message in error.message
    assert "hunter2" not in error.render()
    if hint:
        assert hint in (error.hint or "")


def test_the_address_is_what_one_agrees_to(place):
    """A reference could be any."""
    place.user('[mcp.servers.a]\nurl = "env:WHERE"')
    with pytest.raises(ConfigError, match="is a reference"):
        servers(place, WHERE="https://evil.example")


# ---------------------------------------------------------------- whose word it is
def test_a_project_cannot_speak_for_the_person(place):
    """Its own servers wait; of two with one name the person's is used as it is, and a note says so."""
    place.user('[mcp.servers.mine]\ncommand = "good"')
    place.repo('[mcp.servers.mine]\nargs = ["--evil"]\n[mcp.servers.theirs]\ncommand = "x"')
    (place.project / ".mcp.json").write_text('{"mcpServers": {"mine": {"command": "evil"}, "third": {"command": "y"}}}')
    known = servers(place)
    assert {name: (server.origin, server.trusted) for name, server in known.items()} == {
        "mine": ("user", True),
        "theirs": ("project", False),
        "third": (".mcp.json", False),
    }
    assert known["mine"].argv == ["good"]
    assert known["theirs"].place == "lyra.toml:4"
    assert "you have a server mine of your own" in place.load().notes[0]


def test_without_consent_a_projects_server_is_not_started(tmp_path):
    """No person can be asked: its tools are absent, the others' are there."""
    started = tmp_path / "started"
    theirs = tiny("theirs", f"once:{started}", writable=(str(tmp_path),), origin="project", place="lyra.toml:4")

    async def main():
        async with using(tiny("mine"), theirs, folder=tmp_path) as use:
            assert use.state("theirs").state == "consent_required"
            assert use.state("theirs").failure.kind == "consent"
            assert "lyra.toml:4" in use.state("theirs").failure.message
            assert {name.split("__")[1] for name in use.tools} == {"mine"}

    run(main())
    assert not started.exists()


def test_consent_shows_everything_and_is_for_exactly_that(tmp_path):
    """Asked once; the same is not asked again; another argument, variable, folder or project is."""
    approvals = Approvals(tmp_path / "own")
    asked: list[list[str]] = []
    settings = tiny("theirs", env={"MODE": "x", "API_KEY": "hunter2"}, origin="project")

    async def consent(given):
        asked.append(given.described())
        return True

    async def start(server, folder=tmp_path, ask=consent):
        async with using(server, folder=folder, approvals=approvals, consent=ask) as use:
            return use.state("theirs").state

    assert run(start(settings)) == "connected"
    assert run(start(settings, ask=None)) == "connected"
    assert len(asked) == 1
    assert asked[0][0] == f"command: {settings.line()}"
    assert "env: MODE=x" in asked[0]
    assert "env: API_KEY=***" in asked[0]
    other = tmp_path / "other"
    other.mkdir()
    assert (
        run(start(tiny("theirs", env={"MODE": "y", "API_KEY": "hunter2"}, origin="project"), ask=None)) != "connected"
    )
    assert run(start(settings, folder=other, ask=None)) == "consent_required"

    async def refuse(given):
        return False

    assert run(start(tiny("theirs", "chatty", origin="project"), ask=refuse)) == "consent_required"
    assert "hunter2" not in (tmp_path / "own" / "mcp-approvals.json").read_text()


def test_disabled_is_left_out(tmp_path):
    """Neither started nor asked about."""

    async def main():
        async with using(tiny(enabled=False), folder=tmp_path) as use:
            assert use.state("tiny").state == "disabled"
            assert use.tools == {}

    run(main())


def test_what_can_be_told_before_a_start(tmp_path):
    """`lyra mcp list` starts nothing and still knows who waits for whom."""
    servers_ = McpServers(
        [tiny("a"), tiny("b", origin="project"), ServerSettings(name="c", url="https://h", transport="sse")],
        workspace=str(tmp_path),
        approvals=Approvals(None),
    )
    states = {state.name: state.state for state in servers_.expected()}
    assert states == {"a": "disconnected", "b": "consent_required", "c": "unsupported_transport"}


# ---------------------------------------------------------------- .mcp.json
def of_file(folder: Path, data: Any, **env: str) -> list[ServerSettings]:
    (folder / ".mcp.json").write_text(data if isinstance(data, str) else json.dumps(data, indent=1))
    return read_file(str(folder), env)


def test_the_usual_file(tmp_path):
    """`type` and `disabled` as others write them; variables are filled in when it is started, and shown as written."""
    assert read_file(str(tmp_path), {}) == []
    entries = {
        "files": {
            "type": "stdio",
            "command": "node",
            "args": ["${HOME}/a.js", "${WHERE:-/here}"],
            "env": {"T": "${TOK}"},
        },
        "web": {"type": "streamable-http", "url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${TOK}"}},
        "old": {"type": "sse", "url": "https://h/sse", "disabled": True},
    }
    env = {"HOME": "/home/me", "TOK": "hunter2", "HOST": "h.example"}
    files, web, old = of_file(tmp_path, {"mcpServers": entries}, **env)
    assert files.argv == ["node", "/home/me/a.js", "/here"]
    assert files.env["T"].reveal() == "hunter2"
    assert files.described() == ["command: node '${HOME}/a.js' '${WHERE:-/here}'", "env: T=${TOK}"]
    assert (web.transport, web.address) == ("http", "https://h.example/mcp")
    assert web.headers["authorization"].reveal() == "Bearer hunter2"
    assert (old.transport, old.enabled) == ("sse", False)
    assert not any("hunter2" in line for server in (files, web, old) for line in server.described())
    assert (files.secrets(), web.secrets(), old.secrets()) == (["hunter2"], ["Bearer hunter2", "hunter2"], [])
    (missing,) = of_file(tmp_path, {"mcpServers": {"a": {"command": "${NOWHERE}"}}})
    with pytest.raises(ConfigError, match="NOWHERE is not set"):
        print(missing.argv)


def test_a_file_without_servers(tmp_path):
    """What the file is for is not in it."""
    with pytest.raises(ConfigError, match="has no mcpServers") as caught:
        of_file(tmp_path, '{\n "mcpServer": {}}')
    assert caught.value.place == ".mcp.json"


@pytest.mark.parametrize(
    ("entry", "line", "message"),
    [
        ('"a": 5', 3, "a is a table"),
        ('"a": {}', 3, "neither a command nor a url"),
        ('"a": {\n"comand": "x"}', 3, "neither a command nor a url"),
        ('"a/b": {"command": "x"}', 3, "cannot be the name"),
        ('"a": {"command": "x",\n "args": "y"}', 4, "is a list of texts"),
        ('"a": {"command": "x",\n "type": "stdoi"}', 3, "is one of stdio"),
        ('"a": {"command": "x", "disabled": "yes"}', 3, "true or false"),
        ('"a": {"command": "x", "url": "https://h"}', 3, "both a command and a url"),
    ],
)
def test_a_broken_entry_is_a_server_that_says_so(tmp_path, entry, line, message):
    """It is never started, whatever was agreed to; the other is there, and so is the line of the mistake."""
    good, broken = of_file(tmp_path, f'{{"mcpServers": {{\n "good": {{"command": "x"}},\n {entry}}}}}')
    assert (good.name, good.broken) == ("good", "")
    assert broken.broken.startswith(f".mcp.json:{line}: ")
    assert message in broken.broken

    async def main():
        async def agrees(_settings):
            return True

        async with using(tiny(), broken, folder=tmp_path, consent=agrees) as use:
            state = use.state(broken.name)
            assert (state.state, state.failure.kind) == ("schema_error", "config")
            assert message in state.failure.message
            assert use.state("tiny").state == "connected"

    run(main())


def test_keys_of_other_programs_are_passed_over(tmp_path):
    """Named in one line, control characters visible; a file never allows tools without a question."""
    entries = {
        "files": {
            "command": "node",
            "autoApprove": ["delete_all"],
            "alwaysAllow": ["*"],
            "trust": True,
            "description": "x",
            "timeout": 5,
            "ba\u001bd": 1,
        },
        "web": {"url": "https://h", "icon": "y"},
    }
    known = of_file(tmp_path, {"$schema": "s", "inputs": [], "mcpServers": entries})
    assert [server.broken for server in known] == ["", ""]
    plain = of_file(tmp_path, {"mcpServers": {"files": {"command": "node"}, "web": {"url": "https://h"}}})
    assert [server.fingerprint("/p") for server in known] == [server.fingerprint("/p") for server in plain]
    started = McpServers(known, workspace=str(tmp_path), approvals=Approvals(None))
    assert started.warning.count("\n") == 0
    for key in ("$schema", "inputs", "files.autoApprove", "files.alwaysAllow", "files.description", "web.icon"):
        assert key in started.warning
    assert "ba⟨U+001B⟩d" in started.warning
    assert "permission rules alone" in started.warning
    assert McpServers(plain, workspace=str(tmp_path), approvals=Approvals(None)).warning == ""


def test_where_it_is_started(tmp_path):
    """In the project, links followed; a place outside is refused before anything runs."""
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (project / "out").symlink_to(tmp_path)
    (project / "in").symlink_to(project / "sub")
    (project / "sub" / "here.txt").write_text("found")

    async def main():
        settings = [tiny(name, cwd=name) for name in ("sub", "in", "out", "..", "none", "/etc")]
        async with using(*settings, folder=project) as use:
            assert await use.call("mcp__sub__read", path="here.txt") == "found"
            assert await use.call("mcp__in__read", path="here.txt") == "found"
            for name, message in (
                ("out", "outside"),
                ("..", "outside"),
                ("/etc", "outside"),
                ("none", "is not a folder"),
            ):
                state = use.state(name)
                assert (state.state, state.failure.kind) == ("connection_error", "config")
                assert message in state.failure.message

    run(main())
    assert tiny().fingerprint("/p") != tiny(cwd="sub").fingerprint("/p")
    assert "folder: sub" in tiny(cwd="sub").described()
    (server,) = of_file(project, {"mcpServers": {"a": {"command": "x", "cwd": "${WHERE}"}}}, WHERE="sub")
    assert server.start_folder(str(project)) == str(project / "sub")


_WORDS = st.sampled_from(["mcpServers", "command", "args", "env", "url", "type", "auth", "kind", "a", "${X}", ""])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=cases(200), deadline=None)
@given(_VALUES, st.booleans())
def test_whatever_is_in_the_usual_file(tmp_path_factory, value, wrapped):
    """Servers, or an error of ours."""
    folder = tmp_path_factory.getbasetemp() / "usual"
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(LyraError):
        for server in of_file(folder, {"mcpServers": value} if wrapped else value):
            server.fingerprint("/")
            server.described()


def test_what_is_no_json(tmp_path):
    """An error with its place."""
    with pytest.raises(ParseError) as caught:
        of_file(tmp_path, '{"mcpServers": {')
    assert caught.value.place is not None
    assert ".mcp.json" in caught.value.place


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_file_is_told(tmp_path, kind):
    path = tmp_path / ".mcp.json"
    if kind == "link":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(ConfigError, match=r"not a file|not there"):
        read_file(str(tmp_path), {})


@pytest.mark.parametrize("content", ['{"mcpServers": {', "[]", "{}", None])
def test_a_file_without_trust_that_cannot_be_read_stops_nothing(place, content):
    """It is a server that has the reason and never starts; in a folder that is trusted it is an error."""
    path = place.project / ".mcp.json"
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    (server,) = load_settings(place.load(trust=False), str(place.project), place.env)
    assert server.name == ".mcp.json"
    assert ".mcp.json" in server.broken
    with pytest.raises(LyraError):
        load_settings(place.load(trust=True), str(place.project), place.env)


def test_variables_of_a_file_are_those_that_are_given(place):
    """And not those of this process."""
    entry = {"command": "node", "env": {"T": "${TOK}"}}
    (place.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": entry}}))
    (server,) = load_settings(place.load(), str(place.project), {**place.env, "TOK": "given"})
    assert server.env["T"].reveal() == "given"


def test_the_servers_of_a_configuration_are_loaded(place):
    """Of the one that is given, not of the one that is in force here."""
    place.user('[mcp.servers.mine]\ncommand = "node"\n')
    loaded = McpServers.load(place.load(), str(place.project), approvals=Approvals(None))
    assert [state.name for state in loaded.states()] == ["mine"]


def test_closing_ends_the_programs(tmp_path):
    """None of them runs on."""

    async def main():
        servers = McpServers(
            [tiny()], workspace=str(tmp_path), approvals=Approvals(None), supervision=QUICK, folder=None
        )
        await servers.start()
        assert [state.state for state in servers.states()] == ["connected"]
        await servers.close()
        return [state.state for state in servers.states()]

    assert run(main()) == ["disconnected"]


def test_a_program_among_the_developers_tools_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As commands find it: in `~/.local/bin`, without a setting. One that is nowhere is said to be missing."""
    folder = tmp_path / "home/.local/bin"
    (work := tmp_path / "work").mkdir()
    folder.mkdir(parents=True)
    (folder / "own-server").write_text("#!/bin/sh\necho found\n")
    (folder / "own-server").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    profile = profile_of(ServerSettings(name="own", command="own-server"), str(work))
    assert run(Sandbox().run(["own-server"], profile)).output.text.strip() == "found"
    for command, words in (
        ("/nowhere/at/all", "there is no program /nowhere/at/all"),
        ("no-such", "no program no-such"),
    ):
        own = ServerSettings(name="own", command=command)
        assert words in str(run(_failure(own, str(work))).failure.message)


async def _failure(own: ServerSettings, folder: str) -> ServerFailed:
    ended: asyncio.Future[ServerFailed] = asyncio.get_running_loop().create_future()
    async with stdio(own, sandbox=Sandbox(), workspace=folder, ended=ended.set_result):
        return await ended
