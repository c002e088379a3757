"""The probe of the sandbox: one that is cancelled ends its command first, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from lyra.errors import SandboxUnavailable
from lyra.sandbox import Sandbox, sandbox


async def _cancelled_probes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for turns in range(1, 12):  # in different places of the probe
        monkeypatch.setattr(sandbox, "_known", {})
        probing = asyncio.ensure_future(Sandbox().tier())
        while not os.listdir(folder) and not probing.done():
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0.001)
        probing.cancel()
        await asyncio.wait([probing])
    await asyncio.sleep(0.3)  # a command that was left alone would end by now, and be looked at


def test_a_probe_that_is_cancelled_is_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that ends at once does not warn of a folder that it has removed itself."""
    try:
        asyncio.run(Sandbox().tier())
    except SandboxUnavailable:
        pytest.skip("no sandbox works here")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asyncio.run(_cancelled_probes(tmp_path, monkeypatch))
    assert [record.message for record in caplog.records] == []
    assert list(tmp_path.iterdir()) == []
