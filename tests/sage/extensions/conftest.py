"""The desk of a person, for every test of extensions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sage.extensions.support import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)
