"""Settings of providers: the usual variables, a mapping before them, and keys that go nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.core.secrets.secret import Secret
from lyra.errors import ConfigError
from lyra.models.settings import Timeouts, secrets_of, settings_of

KEY = "sk-planted-0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "env", "expected"),
    [
        (
            "anthropic",
            {"ANTHROPIC_API_KEY": KEY},
            {"base_url": "https://api.anthropic.com"},
        ),
        (
            "anthropic",
            {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "https://proxy.example/a/"},
            {"base_url": "https://proxy.example/a"},
        ),
        ("openai", {"OPENAI_API_KEY": KEY}, {"base_url": "https://api.openai.com/v1"}),
        (
            "openai",
            {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://localhost:8000/v1"},
            {"base_url": "http://localhost:8000/v1"},
        ),
        (
            "azure",
            {
                "AZURE_OPENAI_API_KEY": KEY,
                "AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com/",
                "OPENAI_API_VERSION": "2024-10-21",
            },
            {"base_url": "https://me.openai.azure.com", "api_version": "2024-10-21"},
        ),
        ("gemini", {"GEMINI_API_KEY": KEY}, {"base_url": "https://generativelanguage.googleapis.com"}),
        ("gemini", {"GOOGLE_API_KEY": KEY}, {"base_url": "https://generativelanguage.googleapis.com"}),
    ],
)
def test_the_usual_variables(name: str, env: dict[str, str], expected: dict[str, str]) -> None:
    settings = settings_of(name, env=env)
    assert settings.key() == KEY
    assert {field: getattr(settings, field) for field in expected} == expected


def test_projects_and_regions() -> None:
    vertex = settings_of("vertex", env={"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "europe-west4"})
    assert (vertex.project, vertex.region) == ("p", "europe-west4")
    assert settings_of("bedrock", env={"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "x"}).region == "eu-west-1"
    assert settings_of("bedrock", env={"AWS_DEFAULT_REGION": "us-east-2"}).region == "us-east-2"


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("box", "http://box:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:7", "http://127.0.0.1:7"),
        ("http://box:80/", "http://box:80"),
        ("https://box", "https://box"),
    ],
)
def test_the_forms_of_ollama_host(written: str, url: str) -> None:
    assert settings_of("ollama", env={"OLLAMA_HOST": written}).base_url == url


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("openai", "OPENAI_API_KEY"),
        ("azure", "AZURE_OPENAI_API_KEY"),
        ("gemini", "GEMINI_API_KEY"),
        ("vertex", "GOOGLE_CLOUD_PROJECT"),
    ],
)
def test_what_is_missing_is_named_with_its_variable(name: str, variable: str) -> None:
    for env in ({}, {variable: "  "}):
        with pytest.raises(ConfigError) as caught:
            settings_of(name, env=env)
        assert variable in caught.value.message
        assert f"export {variable}=" in str(caught.value.hint)
        assert f"providers.{name}." in str(caught.value.hint)


def test_a_reference_to_nothing_is_told_by_its_name() -> None:
    with pytest.raises(ConfigError, match="MY_KEY is not set"):
        settings_of("anthropic", {"api_key": "env:MY_KEY"}, env={})


def test_a_mapping_goes_before_the_variables() -> None:
    env = {"ANTHROPIC_API_KEY": "other", "MY_KEY": KEY, "ANTHROPIC_BASE_URL": "https://other.example"}
    settings = settings_of(
        "anthropic",
        {
            "api_key": "env:MY_KEY",
            "base_url": "https://mine.example",
            "timeouts": {"idle_s": 3, "total_s": None},
            "headers": {"X-Team": "env:MY_KEY"},
        },
        env=env,
    )
    assert settings.key() == KEY
    assert settings.base_url == "https://mine.example"
    assert settings.timeouts == Timeouts(idle_s=3.0, total_s=None)
    assert settings.sent_headers() == {"x-team": KEY}
    assert settings.secrets() == (KEY, KEY)


def test_keys_are_never_printed() -> None:
    for key in (KEY, Secret(KEY)):
        settings = settings_of("anthropic", {"api_key": key, "headers": {"x-more": KEY}}, env={})
        assert settings.key() == KEY
        assert KEY not in f"{settings!r} {settings}"


@pytest.mark.parametrize("key", [f"{KEY}\nx", f"{KEY}é", f"{KEY}\x00"])
def test_a_key_that_no_header_can_hold_is_told_without_showing_it(key: str) -> None:
    """The HTTP library's error would quote it."""
    with pytest.raises(ConfigError) as caught:
        settings_of("anthropic", {"api_key": key}, env={}).key()
    assert KEY not in caught.value.render()
    assert settings_of("anthropic", {"api_key": f" {KEY}\n"}, env={}).key() == KEY, "the space around it is stripped"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_plain_http_is_for_this_machine(host: str) -> None:
    assert settings_of("here", {"base_url": f"http://{host}:1/v1", "api_key": KEY}, env={}).key() == KEY


def test_a_key_does_not_travel_unencrypted() -> None:
    given: dict[str, Any] = {"base_url": "http://box.example/v1", "api_key": KEY}
    with pytest.raises(ConfigError) as caught:
        settings_of("here", given, env={})
    assert "insecure_http" in str(caught.value.hint)
    assert settings_of("here", {**given, "insecure_http": True}, env={}).base_url == "http://box.example/v1"
    assert settings_of("here", {"base_url": "http://box.example/v1"}, env={}).base_url, "no key, no danger"
    with pytest.raises(ConfigError, match=r"to me\.localhost unencrypted"):  # a name server is asked for it
        settings_of("here", {"base_url": "http://me.localhost/v1", "api_key": KEY}, env={})
    with pytest.raises(ConfigError, match="unencrypted"):
        settings_of("here", {"base_url": "http://box.example/v1", "headers": {"authorization": KEY}}, env={})
    with pytest.raises(ConfigError, match="true or false"):
        settings_of("here", {**given, "insecure_http": "yes"}, env={})


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://x", "not a URL"),
        ("nonsense", "not a URL"),
        ("https://", "not a URL"),
        ("https://x:port/", "not a URL"),
        ("https://[x", "not a URL"),
        ("https://user:hunter2@x/", "holds a password"),
        ("https://x/v1?key=1", "ends with its path"),
    ],
)
def test_addresses_that_are_none(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        settings_of("here", {"base_url": url}, env={})
    assert "hunter2" not in caught.value.render()
    assert caught.value.key == "providers.here.base_url"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"api_kee": "x"}, "no setting 'api_kee'"),
        ({"api": "chats"}, "chat, responses"),
        ({"api_key": 7}, "api_key is text"),
        ({"base_url": 7}, "base_url is text"),
        ({"timeouts": 7}, "timeouts is a mapping"),
        ({"timeouts": {"idle": 1}}, "no setting 'idle'"),
        ({"timeouts": {"idle_s": 0}}, "more than 0"),
        ({"headers": {"x": 7}}, "mapping of names to texts"),
        (7, "a mapping"),
    ],
)
def test_wrong_settings_are_told(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of("openai", given, env={"OPENAI_API_KEY": KEY})


def test_a_provider_of_ones_own_needs_an_address() -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of("here", {"api_key": KEY}, env={})
    assert "set providers.here.base_url" in str(caught.value.hint)


@pytest.mark.parametrize("region", ["evil.example/", "a.b", "x@y", "eu west"])
def test_a_region_is_a_word(region):
    """It becomes part of a host's name: nothing in it may turn that into another host."""
    with pytest.raises(ConfigError, match="region of bedrock"):
        settings_of("bedrock", {"region": region}, {})
    with pytest.raises(ConfigError, match="region of vertex"):
        settings_of("vertex", {}, {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": region})


# ---------------------------------------------------------------- as Ollama takes it
@pytest.mark.parametrize(
    ("host", "url"),
    [
        (":11500", "http://127.0.0.1:11500"),
        ("::1", "http://[::1]:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:80", "http://[::1]:80"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("box:1/ollama", "http://box:1/ollama"),
        ("box/ollama", "http://box:11434/ollama"),
    ],
)
def test_the_host_of_ollama_as_ollama_takes_it(host: str, url: str) -> None:
    assert settings_of("ollama", env={"OLLAMA_HOST": host}).base_url == url


@pytest.mark.parametrize("host", ["localhost:abc", "localhost:99999", "a:b:c", "[x"])
def test_a_host_that_is_none_is_told_as_such(host: str) -> None:
    with pytest.raises(ConfigError, match="not a URL") as caught:
        settings_of("ollama", env={"OLLAMA_HOST": host})
    assert caught.value.hint


# ---------------------------------------------------------------- keys in wrong places
PASTED = "PLANTEDKEYabcdef123456"


@pytest.mark.parametrize(
    "given",
    [
        f"sk-ant-{PASTED}",
        {"api_key": f"env:sk-{PASTED}"},
        {"api_key": KEY, "base_url": f"host?key={PASTED}"},
        {"api_key": KEY, "base_url": PASTED},
        {"api_key": KEY, "base_url": [PASTED]},
        {"api_key": KEY, "insecure_http": PASTED, "base_url": "http://x"},
        {"api_key": [PASTED]},
        {"api_key": KEY, "headers": PASTED},
    ],
)
def test_no_error_of_the_settings_shows_what_may_be_a_key(given: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of("anthropic", given, {})
    error = caught.value
    assert PASTED not in f"{error} {error!r} {error.render()} {error.fields}"


def test_keys_are_known_without_a_provider_that_works() -> None:
    """For those who blot them out: whatever is missing or wrong beside them."""
    env = {"AZURE_OPENAI_API_KEY": KEY, "MINE": "from-a-variable", "AWS_SECRET_ACCESS_KEY": "aws-secret"}
    assert secrets_of("azure", None, env) == (KEY,)
    given = {"api_key": "env:MINE", "base_url": 5, "headers": {"x-key": Secret("in-a-header")}}
    assert secrets_of("here", given, env) == ("from-a-variable", "in-a-header")
    assert secrets_of("here", {"api_key": "env:NOT_SET", "headers": 5}, env) == ()
    assert secrets_of("bedrock", "nonsense", env) == ("aws-secret",)
