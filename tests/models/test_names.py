"""Names of models: `provider/model`, bare ids that everybody knows, and help for the rest."""

from __future__ import annotations

from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.providers import USUAL
from lyra.errors import ConfigError
from lyra.models.names import model_name, provider_of
from lyra.models.provider import LLMProvider


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("anthropic/claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("claude-sonnet-4-20250514", "anthropic", "claude-sonnet-4-20250514"),
        ("gpt-4o", "openai", "gpt-4o"),
        ("chatgpt-4o-latest", "openai", "chatgpt-4o-latest"),
        ("o3", "openai", "o3"),
        ("o4-mini", "openai", "o4-mini"),
        ("text-embedding-3-small", "openai", "text-embedding-3-small"),
        ("gemini-2.5-flash", "gemini", "gemini-2.5-flash"),
        ("vertex/gemini-2.5-flash", "vertex", "gemini-2.5-flash"),
        ("anthropic.claude-sonnet-4-20250514-v1:0", "bedrock", "anthropic.claude-sonnet-4-20250514-v1:0"),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", "bedrock", "us.anthropic.claude-sonnet-4-20250514-v1:0"),
        ("ollama/llama3.2:3b", "ollama", "llama3.2:3b"),
        ("azure/my-deployment", "azure", "my-deployment"),
        ("sim/echo", "sim", "echo"),
        ("sim", "sim", "echo"),
        ("sim/script:a/b.yaml", "sim", "script:a/b.yaml"),
        ("router/meta-llama/llama-3", "router", "meta-llama/llama-3"),
        (" gpt-4o ", "openai", "gpt-4o"),
    ],
)
def test_names(name: str, provider: str, model: str) -> None:
    assert model_name(name, ["router"]) == (provider, model)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("antropic/claude-sonnet-4-5", "did you mean anthropic/claude-sonnet-4-5?"),
        ("opnai/gpt-4o", "did you mean openai/gpt-4o?"),
        ("cluade-sonnet-4", "did you mean claude-sonnet-4?"),
        ("gtp-4o", "did you mean gpt-4o?"),
        ("anthropic", "write anthropic/MODEL"),
        ("anthropic/", "write anthropic/MODEL"),
        ("llama3", "a provider of your own needs a base_url"),
        ("o3d", "PROVIDER/MODEL"),
        ("meta-llama/llama-3", "a provider of your own needs a base_url"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        model_name(name)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("name", ["", "  ", None, 7])
def test_no_name_at_all(name: object) -> None:
    with pytest.raises(ConfigError, match="is named like"):
        model_name(name)  # type: ignore[arg-type]  # what a person may write


@given(st.text(max_size=40))
def test_any_text_is_a_name_or_a_config_error(name: str) -> None:
    try:
        parsed = model_name(name)
    except ConfigError:
        return
    assert parsed.provider in USUAL
    assert parsed.model
    assert str(parsed).endswith(parsed.model)


def test_bare_ids_do_not_depend_on_case() -> None:
    assert provider_of("Claude-Sonnet-4") == "anthropic"
    assert provider_of("o1x") is None


def test_every_provider_of_the_table_exists() -> None:
    for usual in USUAL.values():
        module, _, name = usual.client.partition(":")
        assert issubclass(getattr(import_module(module), name), LLMProvider)


@pytest.mark.parametrize(
    "model",
    [
        "jp.anthropic.claude-sonnet-4-5",
        "au.anthropic.claude-sonnet-4-5",
        "us-gov.anthropic.claude-3-haiku",
        "cohere.command-r-v1:0",
        "mistral.mistral-7b-instruct",
        "deepseek.r1-v1:0",
        "qwen.qwen3-32b-v1:0",
        "openai.gpt-oss-120b-1:0",
    ],
)
def test_ids_of_bedrock_are_known_by_their_first_word(model: str) -> None:
    assert provider_of(model) == "bedrock"
