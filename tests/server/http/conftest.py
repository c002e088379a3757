"""Brings the plugin of schemathesis, which takes a second to import, to the runs that have tests for it."""

from __future__ import annotations

import importlib

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if not config.option.markexpr.startswith("not slow") and "not long" not in config.option.markexpr:
        config.pluginmanager.register(importlib.import_module("schemathesis.pytest.plugin"), "schemathesis of tests")
