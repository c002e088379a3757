"""Temporary folders in memory, for tests that open many stores and run no sandbox.

What a store writes is synced to the disk at each commit, and no test looks at the disk below the file system. On a
machine without a file system in memory, or with little room in it, these folders are where pytest puts the others.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_TOP = Path("/dev/shm")
_FREE_BYTES_LEAST = 2**31
_PLACES = tuple(f"tests/{folder}/" for folder in ("agents", "kernel", "observe", "store", "vega", "vesper"))


@pytest.fixture(scope="session")
def memory_folder() -> Iterator[Path | None]:
    """A folder in memory for this session, or None where there is no room for one."""
    if not os.access(_TOP, os.W_OK) or shutil.disk_usage(_TOP).free < _FREE_BYTES_LEAST:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="lyra-tests-", dir=_TOP))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


_numbers = itertools.count()


@pytest.fixture
def tmp_path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, memory_folder: Path | None
) -> Iterator[Path]:
    """As pytest's own; one in memory is removed when its test ends."""
    if memory_folder is None or not request.node.nodeid.startswith(_PLACES):
        yield tmp_path_factory.mktemp(re.sub(r"\W", "_", request.node.name)[:30], numbered=True)
        return
    folder = memory_folder / str(next(_numbers))
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
