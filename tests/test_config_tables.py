"""Settings under free names: what they read as, where a mistake is, and what a project's file may not do with them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lyra.config import TABLES, Config, SettingOrigin
from lyra.core.policies.rate import RateLimit
from lyra.errors import ConfigError
from lyra.models.pricing import Price, Prices
from lyra.models.settings import ProviderSettings, settings_of
from tests.test_config import Place

PLANTED = "sk-planted-0123456789abcdef"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def provider(config: Config, name: str, env: dict[str, str] | None = None) -> ProviderSettings:
    """What a client would call the provider with."""
    return settings_of(name, config.providers.get(name), env or {})


# ---------------------------------------------------------------- no column is inert
# For each column of providers: how it is written, after --set, and what shows that it took effect.
HERE = {"base_url": "http://localhost:1/v1"}
PROVIDERS: dict[str, tuple[str, str, Callable[[ProviderSettings], Any], Any]] = {
    "api_key": (f'"{PLANTED}"', PLANTED, lambda s: s.key(), PLANTED),
    "base_url": ('"http://localhost:2/v1"', "http://localhost:2/v1", lambda s: s.base_url, "http://localhost:2/v1"),
    "api": ('"responses"', "responses", lambda s: s.api, "responses"),
    "api_version": ('"v9"', "v9", lambda s: s.api_version, "v9"),
    "project": ('"p"', "p", lambda s: s.project, "p"),
    "region": ('"us-east-1"', "us-east-1", lambda s: s.region, "us-east-1"),
    "timeouts": ("{first_s = 1.5}", '{"first_s": 1.5}', lambda s: s.timeouts.first_s, 1.5),
    "headers": ('{X-Team = "blue"}', '{"X-Team": "blue"}', lambda s: s.sent_headers(), {"x-team": "blue"}),
    "insecure_http": ("true", "true", lambda s: s.base_url, "http://far.example/v1"),
}


@pytest.mark.parametrize("field", TABLES["providers"].columns)
def test_no_setting_of_a_provider_is_inert(place, field):
    """Each, from the user's file and as a flag, changes what a provider is called with and says where from."""
    toml, text, read, expected = PROVIDERS[field]
    far = 'api_key = "x"\nbase_url = "http://far.example/v1"' if field == "insecure_http" else ""
    base = far or ('base_url = "http://localhost:1/v1"' if field != "base_url" else "")
    place.user(f"[providers.here]\n{field} = {toml}\n{base}")
    config = place.load()
    assert read(provider(config, "here")) == expected
    assert config.origin(f"providers.here.{field}") == SettingOrigin("user", f"{place.user_file}:2")
    place.user(f"[providers.here]\n{base}")
    if far:
        with pytest.raises(ConfigError, match="unencrypted"):
            provider(place.load(), "here")
    elif base:
        assert read(provider(place.load(), "here")) != expected
    config = place.load(f"providers.here.{field}={text}")
    assert read(provider(config, "here")) == expected
    assert config.origin(f"providers.here.{field}") == SettingOrigin("flag", f"--set providers.here.{field}")


# For each column of diagnostics: how it is written, after --set, and what it reads as.
DIAGNOSTICS: dict[str, tuple[str, str, Any]] = {
    "commands": ('["lint {file}", "types ."]', '["lint {file}", "types ."]', ("lint {file}", "types .")),
    "language_server": ('"pylsp -v"', "pylsp -v", "pylsp -v"),
    "timeout_s": ("2.5", "2.5", 2.5),
    "readable": ('["/opt/x", "rel"]', '["/opt/x", "/opt/y"]', None),
}


@pytest.mark.parametrize("field", TABLES["diagnostics"].columns)
def test_each_setting_of_diagnostics_is_read(place, field):
    toml, text, expected = DIAGNOSTICS[field]
    base = "" if field == "commands" else 'commands = "lint"\n'
    config = place.user(f'[diagnostics."*.py"]\n{field} = {toml}\n{base}').load()
    if field == "readable":
        expected = ("/opt/x", f"{place.project}/rel")
    assert config.diagnostics["*.py"][field] == expected
    assert config.origin(f"diagnostics.*.py.{field}") == SettingOrigin("user", f"{place.user_file}:2")
    flag = place.user(base and f'[diagnostics."*.py"]\n{base}').load(f"diagnostics.*.py.{field}={text}")
    assert flag.diagnostics["*.py"][field] == (("/opt/x", "/opt/y") if field == "readable" else expected)


def test_one_command_line_is_a_list_of_one(place):
    config = place.user('[diagnostics."web/**/*.ts"]\ncommands = "tsc --noEmit"').load()
    assert config.diagnostics == {"web/**/*.ts": {"commands": ("tsc --noEmit",)}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[diagnostics."*.py"]\ncommands = []', "a list of 1 to 20"),
        ('[diagnostics."*.py"]\ncommands = 3', "a list of 1 to 20"),
        ('[diagnostics."*.py"]\ncommands = [3]', "is a command line"),
        ('[diagnostics."*.py"]\ncommands = "lint \'x"', "cannot be split into words"),
        ('[diagnostics."*.py"]\nlanguage_server = " "', "is a command line"),
        ('[diagnostics."*.py"]\ntimeout_s = 0\ncommands = "x"', "timeout_s"),
        ('[diagnostics."*.py"]\ntimeout_s = 3', "names no program"),
        ('[diagnostics."/etc/*"]\ncommands = "x"', "is no pattern for files"),
        ('[diagnostics."*.py"]\ncommand = "x"', "did you mean commands"),
    ],
)
def test_mistakes_of_diagnostics(place, text, message):
    with pytest.raises(ConfigError) as error:
        place.user(text).load()
    assert message in f"{error.value.message} {error.value.hint}"


def test_diagnostics_of_a_project_wait_for_trust(place):
    """Programs of a repository do not run because it was cloned; your own for the same files hold."""
    place.repo('[diagnostics."*.py"]\ncommands = "theirs"\n[diagnostics."*.c"]\ncommands = "cc"')
    config = place.load(trust=False)
    assert config.diagnostics == {}
    assert config.passed_over == ["diagnostics.*.py.commands", "diagnostics.*.c.commands"]
    config = place.user('[diagnostics."*.py"]\nlanguage_server = "mine"').load(trust=True)
    assert config.diagnostics == {"*.py": {"language_server": "mine"}, "*.c": {"commands": ("cc",)}}
    assert "you have diagnostics for *.py of your own" in config.notes[0]


def test_no_part_of_a_price_is_inert(place):
    """Exact to the digit, whatever a float would make of it."""
    names = TABLES["prices"].columns
    lines = "\n".join(f"{name} = {number}.1" for number, name in enumerate(names, 1))
    config = place.user(f'[prices."here/m"]\n{lines}').load()
    assert config.prices["here/m"] == {name: Decimal(f"{number}.1") for number, name in enumerate(names, 1)}
    price = Price.per_mtok("1.1", "2.1", cache_read_usd="3.1", cache_write_usd="4.1", request_usd="5.1")
    assert Prices(config.prices).find("here/m") == price


def test_no_part_of_a_limit_is_inert(place):
    """A limit is a RateLimit; a model's name may have dots in it, after --set too."""
    text = "requests_per_minute = 5\ntokens_per_minute = 6\nburst = 2\nstrategy = 'reject'"
    limit = RateLimit(requests_per_minute=5, tokens_per_minute=6, burst=2, strategy="reject")
    assert place.user(f'[limits."openai/gpt-4.1"]\n{text}').load().limits == {"openai/gpt-4.1": limit}
    config = place.load("limits.openai/gpt-4.1.burst=1")
    assert config.limits["openai/gpt-4.1"].burst == 1
    assert config.limits["openai/gpt-4.1"].requests_per_minute == 5


# ---------------------------------------------------------------- showing
def test_keys_and_headers_are_never_shown(place):
    """A literal key is `***`, a reference is shown as such; rows, data and the repr of the settings alike."""
    place.user(
        f'[providers.here]\nbase_url = "http://localhost:1"\napi_key = "{PLANTED}"\n'
        f'headers = {{x-token = "{PLANTED}"}}\n'
        '[providers.anthropic]\napi_key = "env:TEAM_KEY"'
    )
    config = place.load()
    data = config.to_data()["providers"]
    assert data["here"]["api_key"] == "***"
    assert data["here"]["headers"] == {"x-token": "***"}
    assert data["anthropic"]["api_key"] == "env:TEAM_KEY"
    assert PLANTED not in f"{config.rows()} {config.to_data()} {config.providers}"
    assert provider(config, "here").key() == PLANTED


def test_a_reference_is_looked_up_when_it_is_used(place):
    """A configuration can be shown where the variable is not set; the call then names it."""
    place.user('[providers.anthropic]\napi_key = "env:TEAM_KEY"')
    assert provider(place.load(TEAM_KEY=PLANTED), "anthropic").key() == PLANTED
    with pytest.raises(ConfigError, match="TEAM_KEY is not set"):
        provider(place.load(), "anthropic").key()


# ---------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        (
            "[providers.anthropic]\napi_kye = 'x'",
            2,
            "no setting 'providers.anthropic.api_kye'",
            "did you mean api_key?",
        ),
        ("[providers.anthropic]\nxyzzy = 'x'", 2, "no setting 'providers.anthropic.xyzzy'", "known here: api_key"),
        ("[provider.anthropic]\napi_key = 'x'", 1, "no section [provider]", "did you mean providers?"),
        ("[providers]\nanthropic = 'x'", 2, "providers.anthropic is a table, not this text", "[providers.NAME]"),
        ("[providers]\napi_key = 'x'", 2, "providers.api_key is a table", None),
        ("providers = 1", 1, "providers is a section", None),
        ("[providers.antropic]\napi_key = 'env:A_KEY'", 2, "no base_url", "did you mean providers.anthropic?"),
        ("[providers.here]\n\napi = 'chat'", 3, "providers.here has no base_url", "set providers.here.base_url"),
        ("[providers.sim]\napi = 'chat'", 1, "simulated models have no settings", None),
        ("[providers.'a/b']\napi = 'chat'", 1, "no '/' in it", None),
        ("[providers.anthropic]\napi_key = 5", 2, "is text such as env:NAME, not a number", None),
        ("[providers.anthropic]\napi_key = ' '", 2, "an empty text", None),
        ("[providers.anthropic]\napi_key = 'env:a b'", 2, "names no environment variable", None),
        ("[providers.anthropic]\nbase_url = 'ftp://x'", 2, "is not an address", None),
        ("[providers.anthropic]\nbase_url = 'localhost:1'", 2, "is not an address", None),
        ("[providers.anthropic]\nbase_url = 'http://h:99999'", 2, "is not an address", None),
        ("[providers.anthropic]\nbase_url = 'http://u:hunter2@h'", 2, "holds a password", None),
        ("[providers.openai]\napi = 'respones'", 2, "is one of chat, responses", "'responses'"),
        ("[providers.bedrock]\nregion = 'evil.example/'", 2, "is a word such as us-east-1", None),
        ("[providers.anthropic]\ntimeouts = 5", 2, "is a table of seconds, not a number", None),
        ("[providers.anthropic]\ntimeouts = {frist_s = 5}", 2, "no setting 'frist_s'", "first_s"),
        ("[providers.anthropic]\ntimeouts = {first_s = 0}", 2, "is more than 0", None),
        ("[providers.anthropic]\nheaders = {a = 1}", 2, "is a table of names and texts", None),
        ("[providers.anthropic]\nheaders = {'a b' = 'x'}", 2, "no header can have", None),
        ("[providers.anthropic]\ninsecure_http = 1", 2, "is true or false", None),
        ("[prices.'a/b']\ninput_usd_per_mtok = 1", 2, "prices.a/b has no output_usd_per_mtok", None),
        ("[prices.'a/b']\ninput_usd_per_mtok = -1", 2, "is an amount of dollars", None),
        ("[prices.'a/b']\ninput_usd_per_mtok = true", 2, "is an amount of dollars", None),
        ("[prices.'a/b']\nin_usd_per_mtok = 1", 2, "no setting", "known here: input_usd_per_mtok"),
        ("[prices.gpt-4o]\ninput_usd_per_mtok = 1", 1, "names no model", '"PROVIDER/MODEL"'),
        ("[limits.'a/b']\nrequest_per_minute = 1", 2, "no setting", "did you mean requests_per_minute?"),
        ("[limits.'a/b']\nrequests_per_minute = 0", 2, "is between 1", None),
        ("[limits.'a/b']\nrequests_per_minute = 1.5", 2, "is a whole number", None),
        ("[limits.'a/b']\nburst = 1\ntokens_per_minute = 1", 2, "needs requests_per_minute", None),
        ("[limits.'a/b']\nstrategy = 'reject'", 2, "requests_per_minute, tokens_per_minute or both", None),
        ("[limits.'a/b']\nstrategy = 'rejct'", 2, "is one of queue, reject, backpressure", "'reject'"),
    ],
)
def test_a_mistake_has_its_line(place, text, line, message, hint):
    """Unknown keys, wrong types and values out of range: the file and the line, what is wrong, what was meant."""
    error = place.user(text).fail()
    assert error.place == f"{place.user_file}:{line}"
    assert message in error.message
    assert "hunter2" not in error.render()
    if hint:
        assert hint in (error.hint or "")


def test_a_mistake_in_a_flag(place):
    """The same words; what the flag was is the place."""
    assert place.fail("providers.anthropic.api_kye=x").hint == "did you mean api_key?"
    assert place.fail("limits.a/b.burst=x").place == "--set limits.a/b.burst"
    assert "no setting" in place.fail("providers.api_key=x").message
    assert "is a table of seconds" in place.fail("providers.anthropic.timeouts={").message


# ---------------------------------------------------------------- a project's file is trusted less
def refused(config: Config, part: str) -> bool:
    return any(part in note for note in config.notes)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example",
        "http://localhost.evil.example",
        "https://a.localhost",  # resolvers ask a name server for it
        "http://localhost.",
        "http://127.0.0.1.evil.example",
        "http://evil.example#@127.0.0.1",
        "http://evil.example?127.0.0.1",
        "http://127.0.0.1%2eevil.example",
        "http://10.0.0.1:8000",
        "http://0.0.0.0:1",
        "http://[::ffff:10.0.0.1]:1",
        "env:PLANTED_URL",
    ],
)
def test_a_project_cannot_send_anything_away(place, url):
    """An exfiltration: a repository names its own server and hopes for the user's key. It gets neither."""
    place.user('[providers.anthropic]\napi_key = "env:ANTHROPIC_API_KEY"')
    place.repo(f'[providers.anthropic]\nbase_url = "{url}"\n[providers.mine]\nbase_url = "{url}"')
    env = {"ANTHROPIC_API_KEY": PLANTED, "PLANTED_URL": "https://evil.example"}
    config = place.load(**env)
    assert provider(config, "anthropic", env).base_url == "https://api.anthropic.com"
    assert "base_url" not in config.providers.get("mine", {})
    assert len(config.notes) == 2
    assert config.notes[0].startswith("lyra.toml:2: a project's file may name only servers on this machine")


@pytest.mark.parametrize("url", ["http://127.0.0.1@evil.example", "http://127.0.0.1\\\\@evil.example/"])
def test_an_address_that_two_readers_could_take_for_two_is_none(place, url):
    """A user in an address is refused in every source."""
    assert "password" in place.repo(f'[providers.mine]\nbase_url = "{url}"').fail().message


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/v1", "http://localhost:1", "http://[::1]:1"])
def test_a_project_may_name_a_server_on_this_machine(place, url):
    """A team's local model is its own business."""
    config = place.repo(f'[providers.here]\nbase_url = "{url}"').load()
    assert provider(config, "here").base_url == url
    assert config.notes == []


@pytest.mark.parametrize(
    ("name", "lines", "taken"),
    [
        ("anthropic", 'api_key = "env:ANTHROPIC_API_KEY"', True),
        ("anthropic", 'api_key = "env:TEAM_KEY"', True),
        ("gemini", 'api_key = "env:GOOGLE_API_KEY"', True),
        ("bedrock", 'api_key = "env:AWS_BEARER_TOKEN_BEDROCK"', True),
        ("anthropic", 'api_key = "env:AWS_SECRET_ACCESS_KEY"\nbase_url = "http://127.0.0.1:9"', True),
        ("here", 'api_key = "env:TEAM_KEY"\nbase_url = "http://127.0.0.1:9"', True),
        ("anthropic", 'api_key = "env:GITHUB_TOKEN"', False),
        ("anthropic", 'api_key = "env:DATABASE_URL"\nbase_url = "http://127.0.0.1:9"', False),
        ("anthropic", f'api_key = "{PLANTED}"', False),
        ("azure", 'api_key = "env:TEAM_KEY"', False),
        ("proxied", 'api_key = "env:TEAM_KEY"', False),
        ("here", 'api_key = "env:TEAM_KEY"\nbase_url = "https://evil.example"', False),
    ],
)
def test_which_keys_a_project_may_name(place, name, lines, taken):
    """By reference, with the name of a key, and only for this machine or the provider's own address."""
    place.user('[providers.proxied]\nbase_url = "https://proxy.example/v1"')
    config = place.repo(f"[providers.{name}]\n{lines}").load(AZURE_OPENAI_ENDPOINT="https://corp.example")
    assert ("api_key" in config.providers.get(name, {})) == taken
    assert refused(config, "api_key") == (not taken)


def test_a_project_key_does_not_follow_an_address_of_the_environment(place):
    """The user's variable points the provider at a proxy: a key that the project picked stays at home."""
    place.repo('[providers.anthropic]\napi_key = "env:OTHER_KEY"')
    assert "anthropic" not in place.load(ANTHROPIC_BASE_URL="https://proxy.example").providers
    assert "anthropic" in place.load(ANTHROPIC_BASE_URL="http://127.0.0.1:9").providers


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('headers = {x-api-key = "env:GITHUB_TOKEN"}', "may not set headers"),
        ("insecure_http = true", "may not switch encryption off"),
        ('region = "env:GITHUB_TOKEN"', "may not read the environment"),
        ('project = "env:GITHUB_TOKEN"', "may not read the environment"),
        ('api_version = "env:GITHUB_TOKEN"', "may not read the environment"),
    ],
)
def test_what_else_a_project_may_not_say(place, line, why):
    """Each is a note, and nothing of it is used."""
    config = place.repo(f"[providers.vertex]\n{line}").load(GITHUB_TOKEN=PLANTED)
    assert config.providers == {}
    assert refused(config, why)


def test_what_a_project_may_say_of_a_known_provider(place):
    """How it is called, next to what the user says of it; a flag goes before both."""
    place.user('[providers.openai]\napi_key = "env:MY_OWN"\napi = "chat"')
    place.repo('[providers.openai]\napi = "responses"\ntimeouts = {idle_s = 5}\ninsecure_http = false')
    config = place.load()
    assert provider(config, "openai", {"MY_OWN": "k"}).api == "responses"
    assert config.providers["openai"]["timeouts"] == {"idle_s": 5.0}
    assert str(config.providers["openai"]["api_key"]) == "env:MY_OWN"
    assert config.notes == []
    assert place.load("providers.openai.api=chat").providers["openai"]["api"] == "chat"


def test_a_project_cannot_lower_a_price(place):
    """A cheap word would let a budget be overspent: the user's own price holds, or the published one."""
    own = "input_usd_per_mtok = 2\noutput_usd_per_mtok = 4"
    place.user(f'[prices."here/m"]\n{own}')
    theirs = '[prices."here/m"]\ninput_usd_per_mtok = 3\noutput_usd_per_mtok = {}'
    cheap = place.repo(theirs.format("3.9")).load()
    assert cheap.prices["here/m"]["input_usd_per_mtok"] == 2
    assert refused(cheap, "a project can only raise prices.here/m; your own holds")
    dear = place.repo(theirs.format("5")).load()
    assert dear.prices["here/m"] == {"input_usd_per_mtok": Decimal(3), "output_usd_per_mtok": Decimal(5)}
    hidden = place.repo(theirs.format("5") + "\ncache_read_usd_per_mtok = 0.1").load()
    assert hidden.prices["here/m"]["input_usd_per_mtok"] == 2


def test_a_project_price_below_the_published_one_is_not_used(place):
    """A project's price counts only where no price is published, or a lower one."""
    name = "anthropic/claude-sonnet-4-20250514"  # $3 and $15
    published = Prices().find(name)
    for input_usd, output_usd, used in (
        ("0.1", "15", False),
        ("3", "14", False),
        ("3.5", "20", False),
        ("4", "20", True),
    ):
        text = f'[prices."{name}"]\ninput_usd_per_mtok = {input_usd}\noutput_usd_per_mtok = {output_usd}'
        config = place.repo(text).load()
        assert config.project_prices == {name}
        price = Prices(raising=config.prices).find(name)
        dearer = Price.from_data(config.prices[name])
        # Writing to a cache costs $3.75: a price without a word about it has to be above that.
        assert (price == dearer) == used
        assert used or price == published
    assert Prices(raising={"here/m": config.prices[name]}).find("here/m") == dearer


def test_a_project_can_only_tighten_a_limit(place):
    """Of two numbers the smaller holds; the rest of both adds up."""
    place.user('[limits."a/b"]\nrequests_per_minute = 10\nstrategy = "queue"')
    place.repo('[limits."a/b"]\nrequests_per_minute = 20\nburst = 30\ntokens_per_minute = 100\nstrategy = "reject"')
    config = place.load()
    assert config.limits["a/b"] == RateLimit(requests_per_minute=10, tokens_per_minute=100)
    assert [note.split(": ")[0] for note in config.notes] == ["lyra.toml:2", "lyra.toml:3", "lyra.toml:5"]
    place.repo('[limits."a/b"]\nrequests_per_minute = 5\nburst = 2\n[limits."c/d"]\nrequests_per_minute = 1')
    config = place.load()
    assert config.limits["a/b"] == RateLimit(requests_per_minute=5, burst=2)
    assert config.limits["c/d"].requests_per_minute == 1
    assert config.notes == []
