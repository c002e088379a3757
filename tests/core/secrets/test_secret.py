"""A Secret is used and never shown."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from lyra.core.secrets.secret import Secret, is_reference, mask_url
from lyra.errors import ConfigError


def test_it_never_prints_its_value():
    """str, repr, format, containers and JSON with a text fallback show the label only."""
    secret = Secret("hunter2")
    shown = [str(secret), repr(secret), f"{secret}", f"{secret:>8}", f"{secret!r}", repr([secret])]
    shown.append(json.dumps({"key": secret}, default=str))
    assert "hunter2" not in " ".join(shown)
    assert str(secret) == "***"


def test_reveal_is_the_only_way():
    """No attribute, no __dict__, no pickle leads to it; a copy is the same object."""
    secret = Secret("hunter2")
    assert secret.reveal() == "hunter2"
    assert not hasattr(secret, "__dict__")
    assert copy.copy(secret) is secret
    assert copy.deepcopy([secret])[0] is secret
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(secret)
    with pytest.raises(AttributeError):
        secret.label = "x"
    with pytest.raises(TypeError):
        json.dumps(secret)


def test_it_compares_by_identity():
    """A guess that is right looks like one that is wrong."""
    secret: object = Secret("hunter2")
    assert secret != "hunter2"
    assert secret != Secret("hunter2")
    assert secret in {secret}


def test_a_reference_is_looked_up_when_revealed():
    """`env:NAME` can be read where NAME is not set; revealing it there names the variable."""
    env: dict[str, str] = {}
    secret = Secret.parse("env:TOKEN", env=env)
    assert str(secret) == "env:TOKEN"
    with pytest.raises(ConfigError, match="TOKEN is not set"):
        secret.reveal()
    env["TOKEN"] = "hunter2"
    assert secret.reveal() == "hunter2"
    assert "hunter2" not in repr(secret)


def test_text_that_is_no_reference_is_the_value():
    """And can be given a label that is safe to show."""
    assert Secret.parse("hunter2").reveal() == "hunter2"
    assert str(Secret.parse("u:hunter2@h", label="u:***@h")) == "u:***@h"


def test_a_reference_reads_the_process_environment_by_default(monkeypatch):
    """Without a mapping handed in, os.environ is asked."""
    monkeypatch.setenv("LYRA_TEST_TOKEN", "hunter2")
    assert Secret.parse("env:LYRA_TEST_TOKEN").reveal() == "hunter2"


@pytest.mark.parametrize("text", ["env:", "env:1A", "env:A B", "env:A\n"])
def test_a_reference_names_a_variable(text):
    """Anything else after `env:` is a ConfigError."""
    assert is_reference(text)
    with pytest.raises(ConfigError, match="names no environment variable"):
        Secret.parse(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:pw@host:5432/db", "postgresql://u:***@host:5432/db"),
        ("postgresql://:pw@host/db", "postgresql://:***@host/db"),
        ("postgresql://u:p@ss/w@host/db", "postgresql://u:***@host/db"),
        ("postgresql://u@host/db?password=pw&x=1", "postgresql://u@host/db?password=***&x=1"),
        ("host=h password='p w' user=u", "host=h password=*** user=u"),
        ("host=h PASSWORD=pw sslpassword=pw", "host=h PASSWORD=*** sslpassword=***"),
        ("cannot reach postgresql://u:pw@host", "cannot reach postgresql://u:***@host"),
        ("postgresql://u@host/db", "postgresql://u@host/db"),
        ("/var/lib/lyra.db", "/var/lib/lyra.db"),
        ("sqlite:///var/lib/a@b.db", "sqlite:///var/lib/a@b.db"),
    ],
)
def test_passwords_in_urls_are_masked(text, shown):
    """Every way libpq takes a password is hidden, and nothing else is."""
    assert mask_url(text) == shown
