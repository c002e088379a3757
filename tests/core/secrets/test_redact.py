"""Keys do not get into texts."""

from __future__ import annotations

import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.secrets.redact import FORMS, redact, redact_command, redact_data
from lyra.core.secrets.secret import Secret
from tests.limits import within

KEYS = {
    "OpenAI, Anthropic and many others": "sk-ant-api03-AbCdEfGhIjKlMnOpQrSt_uv",
    "Google": "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "Google OAuth": "ya29.a0AfH6SMBxxxxxxxxxxxxxxxxxxxxxx",
    "AWS key id": "AKIAIOSFODNN7EXAMPLE",
    "AWS signature": "Credential=AKIDEXAMPLE/20150830/eu/iam/aws4_request, SignedHeaders=host, Signature=5d672d79",
    "AWS secret": "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "GitHub": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "GitHub, fine-grained": "github_pat_11ABCDEFG0abcdefghijklmnop_qrstuvwxyz",
    "GitLab": "glpat-abcdefghijklmnopqrst",
    "Slack": "xoxb-123456789012-abcdefghijkl",
    "Stripe": "sk_live_abcdefghijklmnop1234",
    "Hugging Face": "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "Groq, xAI, Perplexity": "gsk_abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "npm, PyPI": "npm_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ",
    "JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKCAQEAxyzabcdef\n-----END RSA PRIVATE KEY-----",
    "authorization header": "Authorization: Basic dXNlcjpwYXNzd29yZA==",
    "bearer token": "bearer abcdefghijklmnop1234",
    "key header": "x-api-key: 0123456789abcdef",
    "key in a URL": "https://x.org/?a=1&api_key=0123456789abcdef&b=2",
    "password in a URL": "postgres://ada:hunter2@db:5432/x",
}
KEPT = {
    "AWS signature": "Credential=***",
    "AWS secret": "aws_secret_access_key = ***",
    "authorization header": "Authorization: Basic ***",
    "bearer token": "bearer ***",
    "key header": "x-api-key: ***",
    "key in a URL": "https://x.org/?a=1&api_key=***&b=2",
    "password in a URL": "postgres://ada:***@db:5432/x",
}


def test_every_form_has_an_example():
    """A form without one would not be tested."""
    assert {form.what for form in FORMS} == set(KEYS)


@pytest.mark.parametrize("what", KEYS)
def test_well_known_keys_are_blotted_out(what):
    """Alone and inside other text, and what is around it stays."""
    expected = KEPT.get(what, "***")
    assert redact(KEYS[what]) == expected
    assert redact(f"before {KEYS[what]} after") == f"before {expected} after"
    assert redact(json.dumps({"a": KEYS[what], "b": 1})) == json.dumps({"a": expected, "b": 1}) or what == "private key"


@pytest.mark.parametrize("what", KEYS)
def test_a_second_time_changes_nothing(what):
    """What is redacted already stays as it is."""
    once = redact(f"x {KEYS[what]} y")
    assert redact(once) == once


def test_ordinary_text_is_left_alone():
    """Words, code, hashes and addresses that only look a little like keys."""
    for text in (
        "a task-oriented risk-averse disk-based design",
        "git commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
        "https://example.com:8080/path@v1?page=2&key=short",
        "The bearer of this letter may pass. The bearer is trusted.",
        "password = getpass()",
        "authorization is needed; see the api-key page",
        "eyJhbGciOiJIUzI1NiJ9",
        "AKIA is a prefix",
        "skipping sk-learn tests",
    ):
        assert redact(text) == text, text


def test_known_secrets_in_every_dress():
    """As they are, in JSON, in a URL, in base64; a Secret is looked into."""
    value = 'pass"wörd\\/+ x'
    for dressed in (
        value,
        json.dumps({"k": value}),
        json.dumps({"k": value}, ensure_ascii=False),
        "https://h/?k=pass%22w%C3%B6rd%5C%2F%2B%20x",
        base64.b64encode(value.encode()).decode(),
    ):
        for secret in (value, Secret(value)):
            cleaned = redact(f"a {dressed} b", [secret], forms=False)
            assert "wö" not in cleaned
            assert "w\\u" not in cleaned
            assert "***" in cleaned, dressed


def test_a_secret_that_is_part_of_another():
    """The longer one goes first, whole."""
    assert redact("x abcdefgh y", ["abcdef", "abcdefgh"]) == "x *** y"


def test_short_secrets_do_not_eat_the_text():
    """Three letters would be found in every word."""
    assert redact("the cat sat", ["cat", ""]) == "the cat sat"


def test_without_forms_only_known_secrets_go():
    """For text that is given back and has to stay as it was."""
    assert redact("sk-abcdefghijklmnopqrst hunter22", ["hunter22"], forms=False) == "sk-abcdefghijklmnopqrst ***"


def test_data_is_redacted_at_every_depth():
    """Texts, keys of mappings, fields named like a key; other values stay what they are."""
    data = {
        "headers": {"x-api-key": "whatever", "OPENAI_API_KEY": "v", "Cookie": "a=b", "keyboard": "qwerty"},
        "list": ["hunter22 here", 3, None, True, 1.5, ("hunter22",)],
        "hunter22": Secret("x"),
        "tokens": 5,
        "api_key": "",
    }
    assert redact_data(data, ["hunter22"]) == {
        "headers": {"x-api-key": "***", "OPENAI_API_KEY": "***", "Cookie": "***", "keyboard": "qwerty"},
        "list": ["*** here", 3, None, True, 1.5, ["***"]],
        "***": "***",
        "tokens": 5,
        "api_key": "",
    }


@given(st.text(max_size=30), st.text(alphabet='abcXYZ019-_./+="\\ é', min_size=6, max_size=40), st.text(max_size=30))
def test_no_known_secret_survives(before, secret, after):
    """Wherever it stands and whatever it is made of."""
    if secret in "***":
        return
    cleaned = redact(before + secret + after, [secret])
    assert secret not in cleaned.replace("***", "\0")
    assert secret not in redact(json.dumps([before, secret, after]), [secret])


@pytest.mark.timed
@pytest.mark.parametrize(
    "text",
    [
        "sk-" * 40_000,
        "a" * 120_000,
        "-----BEGIN PRIVATE KEY-----" * 4_000,
        "authorization: " * 8_000,
        "eyJ" * 40_000,
        "://" * 40_000,
        "://a:" * 24_000,
        "Credential=,SignedHeaders=" * 4_000,
        "bearer " * 17_000,
        "?key=" * 24_000,
    ],
)
def test_long_texts_take_no_time(text):
    """Linear in the text, also where it is made to look like keys."""
    began = time.process_time()
    redact(text, ["hunter22"])
    within(time.process_time() - began, 0.5)


@pytest.mark.parametrize(
    "line",
    [
        "echo https://u:p;touch${IFS}pwned;echo${IFS}x@h/",
        "echo https://u:p|touch${IFS}pwned|cat${IFS}x@h/",
        "curl x?key=aaaaaaaaaaaa;touch${IFS}pwned",
        "echo authorization:$(touch${IFS}pwned)",
        "echo authorization:`touch${IFS}pwned`",
        "echo authorization:\ntouch${IFS}pwned",
        "echo Credential=x;touch${IFS}pwned",
        "echo -----BEGIN PRIVATE KEY-----; touch pwned",
        "echo -----BEGIN PRIVATE KEY-----\ntouch pwned",
    ],
)
def test_no_command_disappears_from_a_line(line):
    """What looks like a key ends where a command could begin."""
    assert "pwned" in redact_command(line)


@pytest.mark.parametrize("what", sorted({*KEYS} - {"private key"}))
def test_keys_in_a_command_are_blotted_out(what):
    expected = KEPT.get(what, "***")
    assert redact_command(f"curl -H '{KEYS[what]}' https://x.org; ls") == f"curl -H '{expected}' https://x.org; ls"


def test_private_keys_in_a_command_are_blotted_out():
    """Line by line: what is no part of one stays."""
    key = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
    for newline in ("\n", "\\n"):
        text = newline.join(["-----BEGIN PRIVATE KEY-----", key, key, "-----END PRIVATE KEY-----"])
        assert key not in redact_command(f"cat > k <<E\n{text}\nE")
    assert redact_command("login hunter;22 x; ls", ["hunter;22"]) == "login *** x; ls"
