"""The runs of a file are listed while others begin in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.core import codec
from lyra.store.protocol import Record
from lyra.store.signature import load_signer
from lyra.store.space import Space
from lyra.store.standing import StoreStanding, open_signed, vouch
from lyra.vega.durable import runs


@pytest.mark.parametrize("other_user", [False, True])
def test_a_run_that_begins_while_runs_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_user: bool):
    """Its first rows come after the look at who signs it: by a reader with another key it is not taken for changed."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "owner"))
    path = str(tmp_path / "run.db")
    owner = Space(path, "r")
    epoch = owner.acquire("test", now=1000.0, ttl_s=1e6).epoch
    open_signed(owner, epoch)
    rows = [Record(1, 1000.0, "main", "run.began", codec.encode({"id": "r"}))]

    def and_then(store: Any) -> StoreStanding:
        standing = vouch(store)
        if rows:
            owner.append([rows.pop()], epoch)
        return standing

    monkeypatch.setattr(runs, "vouch", and_then)
    if other_user:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "reader"))
        assert load_signer(make=True) is not None
    for expected in ([], ["r"]):  # at the next look it is there
        with runs.Runs(path) as listed:
            assert [run.id for run in listed] == expected
    owner.close()
