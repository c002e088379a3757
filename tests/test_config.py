"""One Config: precedence, places, what a project's file may not do, and that no key is inert."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lyra.config import (
    ALSO_MAX,
    FILE_BYTES_MAX,
    KEYS,
    AgentCommandConfig,
    AuditConfig,
    BudgetConfig,
    ClusterConfig,
    Config,
    KernelConfig,
    LogConfig,
    RetryConfig,
    SageConfig,
    SandboxConfig,
    SearchConfig,
    ServerConfig,
    SettingOrigin,
    VesperConfig,
)
from lyra.core.budgets.money import Money
from lyra.core.rights.capability import Grant
from lyra.errors import ConfigError


class Place:
    """A working folder with a user's and a project's file."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        self.user_file = folder / "home" / ".config" / "lyra" / "lyra.toml"
        self.user_file.parent.mkdir(parents=True)
        self.env = {"HOME": str(folder / "home")}

    def user(self, text: str) -> Place:
        self.user_file.write_text(text)
        return self

    def repo(self, text: str) -> Place:
        (self.project / "lyra.toml").write_text(text)
        return self

    def load(self, *flags: str, cwd: Path | None = None, trust: bool | None = True, **env: str) -> Config:
        """The project's folder is trusted unless a test says otherwise: what it may not do even then is tested here."""
        return Config.load(cwd or self.project, {**self.env, **env}, flags=flags, trust=trust)

    def fail(self, *flags: str, **env: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            self.load(*flags, cwd=None, trust=True, **env)
        return caught.value


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# ---------------------------------------------------------------- the table
def test_the_table_and_the_typed_sections_agree():
    """Every key has an attribute of its name, and every attribute a key."""
    fields = {f"kernel.{name}" for name in KernelConfig.__struct_fields__}
    fields |= {f"agent.{name}" for name in AgentCommandConfig.__struct_fields__}
    fields |= {f"audit.{name}" for name in AuditConfig.__struct_fields__}
    fields |= {f"budget.{name}" for name in BudgetConfig.__struct_fields__}
    fields |= {f"cluster.{name}" for name in ClusterConfig.__struct_fields__}
    fields |= {f"log.{name}" for name in LogConfig.__struct_fields__}
    fields |= {f"retry.{name}" for name in RetryConfig.__struct_fields__}
    fields |= {f"search.{name}" for name in SearchConfig.__struct_fields__}
    fields |= {f"sage.{name}" for name in SageConfig.__struct_fields__}
    fields |= {f"sandbox.{name}" for name in SandboxConfig.__struct_fields__}
    fields |= {f"server.{name}" for name in ServerConfig.__struct_fields__}
    fields |= {f"vesper.{name}" for name in VesperConfig.__struct_fields__}
    assert fields | {"grant.allow", "grant.deny"} == set(KEYS)


def test_every_key_explains_itself():
    """A sentence for each, ending as a sentence does; a unit in each number's name."""
    for key in KEYS.values():
        assert key.sentence.endswith(".")
        assert key.variable == "LYRA_" + key.name.replace(".", "_").upper()
        if key.type == "seconds":
            assert key.name.endswith(("_s", ".seconds"))


# For each key: a value of its own in a file, in text, and what shows that it took effect.
EFFECTS: dict[str, tuple[str, str, Callable[[Config], Any], Any]] = {
    "kernel.store": ('"memory"', "memory", lambda c: c.kernel.store.reveal(), "memory"),
    "kernel.durability": ('"power"', "power", lambda c: c.kernel.durability, "power"),
    "kernel.lease_s": ("1.5", "1.5", lambda c: c.kernel.lease_s, 1.5),
    "kernel.lease_wait_s": ("25", "25", lambda c: c.kernel.lease_wait_s, 25.0),
    "kernel.snapshot_every_events": ("7", "7", lambda c: c.kernel.snapshot_every_events, 7),
    "kernel.mailbox_messages_max": ("8", "8", lambda c: c.kernel.mailbox_messages_max, 8),
    "kernel.processes_max": ("9", "9", lambda c: c.kernel.processes_max, 9),
    "kernel.retention_s": ("60", "60", lambda c: c.kernel.retention_s, 60.0),
    "kernel.recovery_attempts": ("3", "3", lambda c: c.kernel.recovery_attempts, 3),
    "budget.usd": ('"$1.25"', "1.25", lambda c: c.budget.usd, Money(1_250_000)),
    "budget.seconds": ("90", "90", lambda c: c.budget.seconds, 90.0),
    "budget.on_exceed": ('"warn"', "warn", lambda c: c.budget.on_exceed, "warn"),
    "cluster.store": ('"postgresql://h/d"', "postgresql://h/d", lambda c: str(c.cluster.store), "postgresql://h/d"),
    "cluster.name": ('"host-1"', "host-1", lambda c: c.cluster.name, "host-1"),
    "cluster.listen": ('"[::1]:7"', "[::1]:7", lambda c: c.cluster.listen, "[::1]:7"),
    "cluster.advertise": ('"10.0.0.1:7"', "10.0.0.1:7", lambda c: c.cluster.advertise, "10.0.0.1:7"),
    "cluster.plaintext": ("true", "true", lambda c: c.cluster.plaintext, True),
    "cluster.tls_ca": ('"/a.pem"', "/a.pem", lambda c: c.cluster.tls_ca, "/a.pem"),
    "cluster.tls_cert": ('"/c.pem"', "/c.pem", lambda c: c.cluster.tls_cert, "/c.pem"),
    "cluster.tls_key": ('"/k.pem"', "/k.pem", lambda c: c.cluster.tls_key, "/k.pem"),
    "cluster.drain_s": ("2.5", "2.5", lambda c: c.cluster.drain_s, 2.5),
    "sandbox.readable": ('["/data"]', "/data", lambda c: c.sandbox.readable, ("/data",)),
    "sandbox.writable": ('["/a", "/b"]', "/a,/b", lambda c: c.sandbox.writable, ("/a", "/b")),
    "grant.allow": ('["fs.read"]', "fs.read", lambda c: c.grant.allows("net.http:a.b"), False),
    "grant.deny": ('["net.http"]', "net.http", lambda c: c.grant.allows("net.http:a.b"), False),
    "agent.model": ('"sim/echo"', "sim/echo", lambda c: c.agent.model, "sim/echo"),
    "agent.max_tokens": ("900", "900", lambda c: c.agent.max_tokens, 900),
    "audit.file": ('"/var/log/x"', "/var/log/x", lambda c: c.audit.file, "/var/log/x"),
    "audit.level": ('"detailed"', "detailed", lambda c: c.audit.level, "detailed"),
    "log.file": ('"/var/log/l"', "/var/log/l", lambda c: c.log.file, "/var/log/l"),
    "log.format": ('"json"', "json", lambda c: c.log.format, "json"),
    "log.level": ('"debug"', "debug", lambda c: c.log.level, "debug"),
    "retry.max_attempts": ("5", "5", lambda c: c.retry.max_attempts, 5),
    "retry.initial_s": ("2", "2", lambda c: c.retry.initial_s, 2.0),
    "retry.max_s": ("9", "9", lambda c: c.retry.max_s, 9.0),
    "sage.effort": ('"high"', "high", lambda c: c.sage.effort, "high"),
    "sage.daily_budget_usd": ('"$2.50"', "2.50", lambda c: c.sage.daily_budget_usd, Money(2_500_000)),
    "sage.cluster": ('"postgresql://h/d"', "postgresql://h/d", lambda c: str(c.sage.cluster), "postgresql://h/d"),
    "sage.keys": ('"vi"', "vi", lambda c: c.sage.keys, "vi"),
    "sage.notify": ('"bell"', "bell", lambda c: c.sage.notify, "bell"),
    "sage.theme": ('"light"', "light", lambda c: c.sage.theme, "light"),
    "sage.session_budget_usd": ('"$1.50"', "1.50", lambda c: c.sage.session_budget_usd, Money(1_500_000)),
    "sage.turn_budget_usd": ('"$0.50"', "0.50", lambda c: c.sage.turn_budget_usd, Money(500_000)),
    "search.url": ('"https://s/?q={query}"', "https://s/?q={query}", lambda c: c.search.url, "https://s/?q={query}"),
    "search.key": ('"env:HOME"', "env:HOME", lambda c: c.search.key is not None, True),
    "server.cluster": ("true", "true", lambda c: c.server.cluster, True),
    "server.connections_max": ("7", "7", lambda c: c.server.connections_max, 7),
    "server.drain_s": ("2.5", "2.5", lambda c: c.server.drain_s, 2.5),
    "server.gateway": ("true", "true", lambda c: c.server.gateway, True),
    "server.grpc": ('"[::1]:7"', "[::1]:7", lambda c: c.server.grpc, "[::1]:7"),
    "server.hosts": ('["a.example"]', "a.example", lambda c: c.server.hosts, ("a.example",)),
    "server.http": ('"127.0.0.1:0"', "127.0.0.1:0", lambda c: c.server.http, "127.0.0.1:0"),
    "server.message_bytes_max": ("2048", "2048", lambda c: c.server.message_bytes_max, 2048),
    "server.plaintext": ("true", "true", lambda c: c.server.plaintext, True),
    "server.requests_per_minute": ("60", "60", lambda c: c.server.requests_per_minute, 60),
    "server.tls_cert": ('"/c.pem"', "/c.pem", lambda c: c.server.tls_cert, "/c.pem"),
    "server.tls_client_ca": ('"/a.pem"', "/a.pem", lambda c: c.server.tls_client_ca, "/a.pem"),
    "server.tls_key": ('"/k.pem"', "/k.pem", lambda c: c.server.tls_key, "/k.pem"),
    "server.token_file": ('"/t"', "/t", lambda c: c.server.token_file, "/t"),
    "vesper.min_successes": ("50", "50", lambda c: c.vesper.min_successes, 50),
    "vesper.results": ('"redis://h:1/2"', "redis://h:1/2", lambda c: c.vesper.results.reveal(), "redis://h:1/2"),
}


def test_no_key_is_inert(place):
    """Each key of the table, from a file, a variable and a flag, changes what is read and says where from."""
    assert set(EFFECTS) == set(KEYS)
    default = place.load()
    for name, (toml, text, read, expected) in EFFECTS.items():
        section, field = name.split(".")
        assert read(default) != expected, name
        from_flag = place.load(f"{name}={text}")
        from_env = place.load(**{KEYS[name].variable: text})
        from_user = place.user(f"[{section}]\n{field} = {toml}\n").load()
        place.user_file.unlink()
        for config, kind, place_ in (
            (from_flag, "flag", f"--set {name}"),
            (from_env, "env", KEYS[name].variable),
            (from_user, "user", f"{place.user_file}:2"),
        ):
            assert read(config) == expected, name
            assert config.origin(name) == (kind, place_)
        assert default.origin(name) == SettingOrigin("default")


def test_the_defaults_are_the_table(place):
    """With no source at all, the data is the table's."""
    assert place.load().to_data() == {
        "kernel": {
            "store": str(place.project / ".lyra/lyra.db"),
            "durability": "process",
            "lease_s": 3.0,
            "lease_wait_s": None,
            "snapshot_every_events": 50_000,
            "mailbox_messages_max": 1_000,
            "processes_max": 1_000_000,
            "retention_s": 604_800.0,
            "recovery_attempts": 10,
        },
        "sandbox": {"readable": [], "writable": []},
        "budget": {"usd": None, "seconds": None, "on_exceed": "block"},
        "grant": {"allow": ["*"], "deny": []},
        "agent": {"model": None, "max_tokens": None},
        "audit": {"file": None, "level": "basic"},
        "cluster": {
            "store": None,
            "name": None,
            "listen": "127.0.0.1:0",
            "advertise": None,
            "plaintext": False,
            "drain_s": 30.0,
            "tls_ca": None,
            "tls_cert": None,
            "tls_key": None,
        },
        "log": {"file": None, "format": "text", "level": "warn"},
        "retry": {"max_attempts": 10, "initial_s": 1.0, "max_s": 60.0},
        "sage": {
            "cluster": None,
            "daily_budget_usd": None,
            "effort": None,
            "keys": "emacs",
            "notify": "off",
            "session_budget_usd": None,
            "theme": "dark",
            "turn_budget_usd": None,
        },
        "search": {"url": None, "key": None},
        "server": {
            "cluster": False,
            "connections_max": 4_000,
            "drain_s": 10.0,
            "gateway": False,
            "grpc": "127.0.0.1:50051",
            "hosts": [],
            "http": "127.0.0.1:8420",
            "message_bytes_max": 4 * 1024 * 1024,
            "plaintext": False,
            "requests_per_minute": None,
            "tls_cert": None,
            "tls_client_ca": None,
            "tls_key": None,
            "token_file": None,
        },
        "vesper": {"results": "memory", "min_successes": 1000},
        "providers": {},
        "prices": {},
        "limits": {},
        "mcp": {"servers": {}},
        "diagnostics": {},
    }


# ---------------------------------------------------------------- precedence
def test_the_later_source_wins(place):
    """default < user < project < environment < flag."""
    assert place.load().kernel.lease_s == 3.0
    assert place.user("kernel.lease_s = 1").load().kernel.lease_s == 1.0
    assert place.repo("kernel.lease_s = 2").load().kernel.lease_s == 2.0
    assert place.load(LYRA_KERNEL_LEASE_S="4").kernel.lease_s == 4.0
    assert place.load("kernel.lease_s=5", LYRA_KERNEL_LEASE_S="4").kernel.lease_s == 5.0
    assert place.load("kernel.lease_s=5", "kernel.lease_s=6").kernel.lease_s == 6.0


def test_the_nearest_project_file_counts(place):
    """A folder below a project belongs to it; a nearer file hides a farther one; both files are named."""
    deep = place.repo("kernel.lease_s = 2").project / "a" / "b"
    deep.mkdir(parents=True)
    place.user("kernel.processes_max = 5")
    config = place.load(cwd=deep)
    assert config.kernel.lease_s == 2.0
    assert config.origin("kernel.lease_s") == SettingOrigin("project", f"{place.project}/lyra.toml:1")
    assert config.files == [("user", str(place.user_file)), ("project", str(place.project / "lyra.toml"))]
    (deep / "lyra.toml").write_text("")
    assert place.load(cwd=deep).kernel.lease_s == 3.0


def test_xdg_config_home_moves_the_users_file(place, tmp_path):
    """The XDG variable counts when absolute; a file handed in counts before both."""
    other = tmp_path / "xdg" / "lyra" / "lyra.toml"
    other.parent.mkdir(parents=True)
    other.write_text("kernel.lease_s = 9")
    place.user("kernel.lease_s = 1")
    assert place.load(XDG_CONFIG_HOME=str(tmp_path / "xdg")).kernel.lease_s == 9.0
    assert place.load(XDG_CONFIG_HOME="xdg").kernel.lease_s == 1.0
    assert Config.load(place.project, {}, user_file=other).kernel.lease_s == 9.0
    assert Config.load(place.project, {}).kernel.lease_s == 3.0


def test_the_users_own_file_is_no_projects(place):
    """Working in the folder of the user's file does not turn it into a project's."""
    place.user('budget.on_exceed = "allow"')
    config = place.load(cwd=place.user_file.parent)
    assert config.budget.on_exceed == "allow"
    assert [kind for kind, _ in config.files] == ["user"]


def test_an_empty_variable_is_no_value(place):
    """`LYRA_KERNEL_LEASE_S=` is how a shell says nothing."""
    assert place.load(LYRA_KERNEL_LEASE_S="").origin("kernel.lease_s").kind == "default"


def test_none_takes_a_limit_away(place):
    """An optional setting can be said to be absent, above the file that sets it."""
    place.user('budget.usd = "$1"\nbudget.seconds = 5')
    assert place.load("budget.usd=none").budget.usd is None
    assert place.load(LYRA_BUDGET_SECONDS="none").budget.seconds is None
    assert place.fail("kernel.lease_s=none").place == "--set kernel.lease_s"


def test_a_broken_list_in_a_flag(place):
    """Half a JSON list is a mistake, not a rule."""
    assert "list of capabilities" in place.fail('grant.deny=["fs.read"').message


@pytest.mark.parametrize("text", ["fs.read:/a,net.http", '["fs.read:/a", "net.http"]', " fs.read:/a , net.http "])
def test_lists_in_flags(place, text):
    """Commas or JSON."""
    assert place.load(f"grant.deny={text}").to_data()["grant"]["deny"] == ["fs.read:/a", "net.http"]


@pytest.mark.parametrize(("toml", "micro"), [('"$0.10"', 100_000), ("0.1", 100_000), ("5", 5_000_000), ("0", 0)])
def test_money_in_a_file_is_dollars_and_exact(place, toml, micro):
    """The unit is in the key's name, and a decimal never goes through a float."""
    assert place.user(f"budget.usd = {toml}").load().budget.usd == micro


# ---------------------------------------------------------------- a project's file is trusted less
def test_a_project_can_never_widen_a_grant(place):
    """What a process may do is what both the user and the project allow, wherever the user said it."""
    place.user('[grant]\nallow = ["fs.read:/data/**", "net.http"]\ndeny = ["fs.read:/data/keys/**"]')
    place.repo('[grant]\nallow = ["fs.*"]\ndeny = ["fs.read:/data/tmp/**"]')
    config = place.load()
    assert config.grant.allows("fs.read:/data/a")
    assert not config.grant.allows("fs.write:/data/a")
    assert not config.grant.allows("net.http:a.b")
    assert not config.grant.allows("fs.read:/data/keys/a")
    assert not config.grant.allows("fs.read:/data/tmp/a")
    assert config.to_data()["grant"] == {
        "allow": [["fs.read:/data/**", "net.http"], ["fs.*"]],
        "deny": ["fs.read:/data/keys/**", "fs.read:/data/tmp/**"],
    }
    assert config.origin("grant.allow") == SettingOrigin("project", f"lyra.toml:2 and {place.user_file}:2")
    assert config.origin("grant.deny") == SettingOrigin("project", f"lyra.toml:3 and {place.user_file}:3")


def test_flags_replace_the_users_grant_and_the_project_still_narrows(place):
    """A flag is the user's own act; the project's file narrows what it gives."""
    place.user('grant.allow = ["fs.read:/data/**"]').repo('grant.deny = ["net.http"]')
    config = place.load("grant.allow=*")
    assert config.grant.allows("fs.write:/data/a")
    assert not config.grant.allows("net.http:a.b")
    assert config.origin("grant.allow").kind == "flag"


def test_a_projects_wider_allow_changes_nothing_and_is_noted(place):
    """Asking for more than the user gave is no error, but it is said."""
    place.user('grant.allow = ["fs.read:/data/**"]').repo('grant.allow = ["fs.*"]')
    config = place.load()
    assert config.grant == Grant(allow=["fs.read:/data/**"])
    assert config.origin("grant.allow").kind == "user"
    assert len(config.notes) == 1
    assert config.notes[0].startswith("lyra.toml:1: a project can only narrow grant.allow")


@pytest.mark.parametrize(
    ("field", "users", "projects", "holds"),
    [
        ("usd", "1", "5", "$1.00"),
        ("usd", "5", "1", "$1.00"),
        ("usd", None, "5", "$5.00"),
        ("seconds", "10", "60", 10.0),
        ("seconds", "60", "10", 10.0),
        ("on_exceed", '"warn"', '"allow"', "warn"),
        ("on_exceed", '"allow"', '"warn"', "warn"),
        ("on_exceed", None, '"allow"', "block"),
    ],
)
def test_a_project_can_only_tighten_a_budget(place, field, users, projects, holds):
    """Of two limits the smaller holds; what a project asks for beyond it is noted."""
    if users is not None:
        place.user(f"budget.{field} = {users}")
    config = place.repo(f"budget.{field} = {projects}").load()
    assert config.to_data()["budget"][field] == holds
    tightened = config.origin(f"budget.{field}").kind == "project"
    assert tightened == (config.notes == [])
    # Wherever the user says it, the project's file still only narrows.
    if users is not None and not tightened:
        place.user_file.unlink()
        assert place.load(f"budget.{field}={users.strip(chr(34))}").to_data()["budget"][field] == holds


@pytest.mark.parametrize(
    ("users", "projects", "holds"),
    [
        (None, "none", "basic"),
        (None, "detailed", "detailed"),
        ("none", "basic", "basic"),
        ("detailed", "basic", "detailed"),
        ("detailed", "none", "detailed"),
    ],
)
def test_a_project_can_only_raise_the_level_of_the_audit_log(place, users, projects, holds):
    if users is not None:
        place.user(f'audit.level = "{users}"')
    config = place.repo(f'audit.level = "{projects}"').load()
    assert config.audit.level == holds
    assert (config.origin("audit.level").kind == "project") == (config.notes == [])


def test_a_project_names_an_audit_log_in_its_folder_where_the_user_has_none(place):
    """It cannot have records go to a place that the user does not look at, nor have something written elsewhere."""
    config = place.repo('audit.file = "logs/"').load(cwd=place.project)
    assert config.audit.file == str(place.project / "logs/") + "/"
    config = place.user('audit.file = "/var/log/lyra/"').load()
    assert config.audit.file == "/var/log/lyra/"
    (note,) = config.notes
    assert note.startswith("lyra.toml:1: a project can only tighten audit.file; your /var/log/lyra/ holds")
    place.user_file.unlink()
    for elsewhere in ("/etc/x", "../x", "~/x", "logs/../../x"):
        error = place.repo(f'audit.file = "{elsewhere}"').fail()
        assert "in its own folder alone" in error.message
    for wrong in ("3", '""', '"a\\u0000b"'):
        assert "audit.file is a path" in place.repo(f"audit.file = {wrong}").fail().message


# ---------------------------------------------------------------- the machine's own file
@pytest.fixture
def machine(place, monkeypatch):
    path = place.user_file.parent / "managed.toml"
    monkeypatch.setattr("lyra.config.sources.MANAGED_FILE", str(path))
    return path


@pytest.mark.parametrize(
    ("name", "managed", "own_value", "holds"),
    [
        ("audit.level", '"basic"', "none", "basic"),
        ("audit.level", '"basic"', "detailed", "detailed"),
        ("audit.level", '"detailed"', "basic", "detailed"),
        ("audit.file", '"/var/log/lyra/"', "/tmp/mine", "/var/log/lyra/"),
        ("budget.usd", "1", "5", "$1.00"),
        ("budget.usd", "5", "1", "$1.00"),
        ("budget.on_exceed", '"block"', "allow", "block"),
    ],
)
def test_a_managed_file_can_only_tighten(place, machine, name, managed, own_value, holds):
    """Whatever a person says, and wherever they say it."""
    machine.write_text(f"{name} = {managed}\n")
    section, field = name.split(".")
    for config in (
        place.load(f"{name}={own_value}"),
        place.load(**{KEYS[name].variable: own_value}),
        place.user(f'{name} = "{own_value}"').load(),
    ):
        assert config.to_data()[section][field] == holds
        assert (config.origin(name).kind == "managed") == (str(holds) != own_value and holds != "$" + own_value + ".00")
    assert place.load().demanded[name] is not None
    assert ("managed", str(machine)) in place.load().files


def test_a_managed_file_narrows_the_grant(place, machine):
    machine.write_text('grant.allow = ["fs.*"]\ngrant.deny = ["fs.write:/etc/**"]\n')
    config = place.repo('grant.allow = ["fs.read", "net.*"]').load("grant.allow=*")
    assert config.grant.allows("fs.read:/a")
    assert not config.grant.allows("net.http:a.b")
    assert not config.grant.allows("fs.write:/etc/x")
    assert config.origin("grant.allow").kind == "managed"


@pytest.mark.parametrize(
    "text", ['kernel.store = "memory"', '[prices."a/b"]\ninput = 1\noutput = 1', "nonsense = 1", "x"]
)
def test_a_managed_file_that_does_something_else_is_a_mistake(place, machine, text):
    machine.write_text(text)
    assert str(machine) in str(place.fail().place)


def test_a_project_cannot_read_the_environment(place):
    """`env:` in a project's file could carry a secret away; everywhere else it is a reference."""
    text = 'kernel.store = "env:DATABASE_URL"'
    error = place.repo(text).fail(DATABASE_URL="postgresql://u:hunter2@h/db")
    assert error.place == "lyra.toml:1"
    assert error.hint is not None
    assert "LYRA_KERNEL_STORE" in error.hint
    (place.project / "lyra.toml").unlink()
    config = place.user(text).load(DATABASE_URL="postgresql://u:hunter2@h/db")
    assert config.kernel.store.reveal() == "postgresql://u:hunter2@h/db"
    assert config.to_data()["kernel"]["store"] == "env:DATABASE_URL"
    assert place.load("kernel.store=env:OTHER", OTHER="memory").kernel.store.reveal() == "memory"


def test_a_project_may_not_send_the_journal_away(place):
    """A server in a project's file is refused with its password masked; the user's own file may name one."""
    text = 'kernel.store = "postgresql://u:hunter2@evil.example/db"'
    error = place.repo(text).fail()
    assert error.place == "lyra.toml:1"
    assert "hunter2" not in str(error)
    (place.project / "lyra.toml").unlink()
    assert place.user(text).load().kernel.store.reveal().endswith("/db")


def test_a_project_may_not_choose_who_gives_results(place):
    """Kept results come back from a server: the user names it, and its password is shown nowhere."""
    address = "redis://:hunter2@evil.example/1"
    for text in (address, "env:RESULTS"):
        error = place.repo(f'vesper.results = "{text}"').fail(RESULTS=address)
        assert error.place == "lyra.toml:1"
        assert "hunter2" not in error.render()
    assert place.repo('vesper.results = "memory"').load().vesper.results.reveal() == "memory"
    config = place.load(LYRA_VESPER_RESULTS=address)
    assert config.vesper.results.reveal() == address
    assert "hunter2" not in f"{config.rows()} {config.to_data()} {config.vesper!r}"
    for wrong in ("http://:hunter2@h", "hunter2"):
        assert "hunter2" not in place.fail(LYRA_VESPER_RESULTS=wrong).render()


# ---------------------------------------------------------------- the store's place
def test_a_password_is_never_shown(place):
    """Rows, data and repr of a Config mask the password of a store's URL; reveal gives it."""
    config = place.load("kernel.store=postgresql://u:hunter2@h/db")
    assert config.kernel.store.reveal() == "postgresql://u:hunter2@h/db"
    shown = f"{config.rows()} {config.to_data()} {config.kernel!r}"
    assert "hunter2" not in shown
    assert "postgresql://u:***@h/db" in shown


def test_a_wrong_store_is_refused_without_its_text(place):
    """An error never quotes what may be a password."""
    for toml in (
        "5",
        "''",
        "'  '",
        '"postgresql://u:hunter2@h/\\u0000"',
        "['hunter2']",
        "{a = 'hunter2'}",
        "true",
    ):
        error = place.user(f"kernel.store = {toml}").fail()
        assert "hunter2" not in error.render()
        assert error.place == f"{place.user_file}:1"


def test_relative_paths_start_where_they_are_written(place, monkeypatch):
    """In a file: at the project's folder. In a flag or variable: at the working folder. `~/` is HOME."""
    deep = place.repo('kernel.store = "data/x.db"').project / "deep"
    deep.mkdir()
    monkeypatch.chdir(deep)
    store = place.load(cwd=deep).kernel.store
    assert store.reveal() == str(place.project / "data/x.db") == str(store)
    assert place.load("kernel.store=x.db", cwd=deep).kernel.store.reveal() == "x.db"
    assert place.load("kernel.store=/x.db", cwd=deep).kernel.store.reveal() == "/x.db"
    assert place.load("kernel.store=~/x.db").kernel.store.reveal() == f"{place.env['HOME']}/x.db"
    place.repo("")
    monkeypatch.chdir(place.project)
    assert place.load().kernel.store.reveal() == ".lyra/lyra.db"


# ---------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ('[kernel]\n\nstroe = "x"', 3, "no setting 'kernel.stroe'", "kernel.store"),
        ("[kernle]\nstore = 1", 1, "no section [kernle]", "kernel"),
        ("# c\nkernel.lease = 1", 2, "no setting 'kernel.lease'", "kernel.lease_s"),
        ("[kernel]\nusd = 1", 2, "no setting 'kernel.usd'", "budget.usd"),
        ('store = "x"', 1, "no setting 'store'", "kernel.store"),
        ("[kernel]\nxyzzy = 1", 2, "no setting 'kernel.xyzzy'", "durability"),
        ("xyzzy = 1", 1, "no setting 'xyzzy'", "kernel, budget, grant"),
        ("kernel = 5", 1, "kernel is a section", "[kernel]"),
        ("[[kernel]]\nstore = 'x'", 1, "kernel is a section", "[kernel]"),
        ("[kernel]\nlease_s = 'x'", 2, "kernel.lease_s is a number", None),
        ("[kernel]\nlease_s = true", 2, "kernel.lease_s is a number", None),
        ("[kernel]\nlease_s = 0", 2, "kernel.lease_s is between 0.5 and 3600", None),
        ("[kernel]\nlease_s = nan", 2, "kernel.lease_s is between", None),
        ("[kernel]\nretention_s = -1", 2, "kernel.retention_s is between", None),
        ("[kernel]\nprocesses_max = 1.5", 2, "kernel.processes_max is a whole number", None),
        ("[kernel]\nprocesses_max = 0", 2, "kernel.processes_max is between 1", None),
        ("[kernel]\ndurability = 'powr'", 2, "kernel.durability is one of process, power", "'power'"),
        ("[budget]\nusd = '$-1'", 2, "not negative", None),
        ("[budget]\nusd = -1.5", 2, "not negative", None),
        ("[budget]\nusd = -1", 2, "not negative", "in dollars"),
        ("[budget]\nusd = nan", 2, "not an amount of money", "in dollars"),
        ("[budget]\nusd = [1]", 2, "budget.usd is an amount of money", None),
        ("[budget]\nusd = 0.0000001", 2, "micro-dollar", None),
        ("[budget]\nseconds = 0", 2, "budget.seconds is between", None),
        ("[grant]\nallow = 'fs.read'", 2, "grant.allow is a list of capabilities", None),
        ("[grant]\nallow = [1]", 2, "grant.allow is a list of capabilities", None),
        ("[grant]\n\nallow = [\n 'fs.raed:/x']", 3, "no capability 'fs.raed'", "fs.read"),
        ("[grant]\ndeny = ['fs.read:relative']", 2, "not absolute", None),
        ("[agent]\nmodel = 'sim/script:x.yaml'", 2, "may not choose a simulated model", "LYRA_AGENT_MODEL"),
        ("[agent]\nmodel = 3", 2, "agent.model is the name of a model", "PROVIDER/MODEL"),
    ],
)
def test_a_mistake_has_its_line(place, text, line, message, hint):
    """Unknown keys, wrong types and values out of range: `lyra.toml:LINE`, what is wrong, what was meant."""
    error = place.repo(text).fail()
    assert error.place == f"lyra.toml:{line}"
    assert message in error.message
    if hint:
        assert hint in (error.hint or "")


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("[kernel]\nstore = ", 2, 8),
        ("[kernel]\nstore = 1 2\n", 2, 11),
        ("[kernel\n", 1, 8),
        ('a = """\n\nnever closed', 3, 13),
        ("a = 1\na = 2\n\n\n", 2, 6),
        ("\x00", 1, 1),
    ],
)
def test_malformed_toml_has_line_and_column(place, text, line, column):
    """The place tomllib puts in its sentence becomes the error's own."""
    error = place.repo(text).fail()
    assert error.place == f"lyra.toml:{line}:{column}"
    assert (error.line, error.column) == (line, column)
    assert "(at " not in error.message


def test_every_mistake_is_told_at_once(place):
    """The first is raised, up to five further ones come with it, files before variables before flags."""
    lines = "\n".join(f"bad_{number} = 1" for number in range(9))
    error = place.repo(f"[kernel]\n{lines}").fail()
    assert error.place == "lyra.toml:2"
    assert len(error.also) == ALSO_MAX
    assert error.also[0].startswith("lyra.toml:3: there is no setting 'kernel.bad_1'")
    place.user("kernel.lease_s = 0").repo("kernel.store = 1")
    error = place.fail("nonsense", "kernel.stroe=x", LYRA_KERNEL_STROE="x")
    places = [error.place, *(text.split(": ")[0] for text in error.also)]
    assert places == [
        f"{place.user_file}:1",
        "lyra.toml:1",
        "LYRA_KERNEL_STROE",
        "--set nonsense",
        "--set kernel.stroe",
    ]


def test_unknown_variables_of_ours_are_mistakes(place):
    """A misspelt LYRA_KERNEL_… is told with the right name; other LYRA_ variables are ignored."""
    error = place.fail(LYRA_KERNEL_STROE="x")
    assert error.hint == "did you mean LYRA_KERNEL_STORE?"
    assert place.fail(LYRA_BUDGET_XYZZY="x").place == "LYRA_BUDGET_XYZZY"
    place.load(LYRA_SOMETHING_ELSE="x")


def test_files_that_are_no_settings(place, tmp_path):
    """Not UTF-8, too large, a folder, a pipe, nested without end: a ConfigError, and no hang."""
    file = place.project / "lyra.toml"
    file.write_bytes(b"[kernel]\n\xff\xfe")
    assert place.fail().place == "lyra.toml:2"
    file.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    assert "larger than" in place.fail().message
    file.write_text("a." * 10_000 + "a = 1")
    assert "deep" in place.fail().message
    file.write_text("a = 1" + "0" * 5_000)
    assert "number" in place.fail().message
    file.write_text("a = 1e99999999999999999999")
    assert "number" in place.fail().message
    file.unlink()
    file.mkdir()
    assert place.fail().message == "it is not a file"
    file.rmdir()
    os.mkfifo(file)
    assert place.fail().message == "it is not a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything; run the tests as another user")
def test_an_unreadable_file_is_a_config_error(place):
    """Permission denied is said with the file's name."""
    place.repo("")
    (place.project / "lyra.toml").chmod(0)
    assert "Permission denied" in place.fail().message


def test_a_file_that_vanishes_or_fails_while_read(place, monkeypatch):
    """What the operating system says about a file becomes a ConfigError."""
    place.repo("")

    def refuse(*_args: Any, **_settings: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    error = place.fail()
    assert error.message == "it cannot be read: Permission denied"
    assert error.place == "lyra.toml"


def test_a_byte_order_mark_and_windows_lines_are_fine(place):
    """Editors of other systems write both."""
    (place.project / "lyra.toml").write_bytes(b"\xef\xbb\xbf[kernel]\r\nlease_s = 2\r\n")
    assert place.load().origin("kernel.lease_s") == SettingOrigin("project", "lyra.toml:2")


def test_a_working_folder_that_is_gone(tmp_path, monkeypatch):
    """A shell left in a deleted folder gets a sentence."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="no longer exists"):
        Config.load(env={})


def test_asking_for_the_origin_of_an_unknown_key(place):
    """A misspelt name is told with the right one."""
    with pytest.raises(ConfigError) as caught:
        place.load().origin("kernel.stroe")
    assert caught.value.hint == "did you mean kernel.store?"


def test_a_flag_is_true_or_false(place):
    """In files as it is, in variables and flags as a word; anything else is a mistake with its line."""
    assert place.load(LYRA_SERVER_GATEWAY="false").server.gateway is False
    for text in ('"true"', "1", '"on"'):
        error = place.user(f"[server]\ngateway = {text}\n").fail()
        assert "server.gateway is true or false" in error.message
        assert str(error.place).endswith("lyra.toml:2")
    place.user_file.unlink()
    assert "true or false" in place.fail(LYRA_SERVER_GATEWAY="yes").message


def test_a_setting_that_is_gone_is_a_note_and_no_mistake(place):
    """In a file, a variable and a flag, with what came of it; the rest of the file counts."""
    place.user('[sage]\nrecall = true\n[log]\nlevel = "debug"\n')
    config = place.load("sage.recall=true", LYRA_SAGE_RECALL="true")
    assert config.log.level == "debug"
    assert [note.partition(":")[0].rpartition("/")[2] for note in config.notes] == [
        "lyra.toml",
        "LYRA_SAGE_RECALL means nothing any more",
        "--set sage.recall",
    ]
    assert all("AGENTS.md" in note for note in config.notes)
