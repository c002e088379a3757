"""`vesper audit` shows the rows that executions left."""

from __future__ import annotations

import json

from tests.cli.vesper.command import VesperCommand
from tests.vesper.runtime.secrets import CARD, PURE


def test_rows_are_shown_without_sensitive_values(lyra):
    vesper = VesperCommand(lyra)
    (lyra.folder / "card.vsp").write_text(PURE, encoding="utf-8")
    assert vesper("audit").stdout == "no execution left an audit row\n"
    trace = vesper.json("run", "card.vsp", "--input-json", json.dumps({"card": CARD, "amount": 5}))["trace_id"]
    vesper.json("run", "card.vsp", "--input-json", json.dumps({"card": CARD, "amount": 500}), code=1)
    first, second = vesper.json("audit", "card_check_v1")["rows"]
    assert (first["trace_id"], first["outcome"], first["inputs"]) == (
        trace,
        "success",
        {"card": "[redacted]", "amount": 5},
    )
    assert (second["outcome"], second["code"]) == ("error", "too_much")
    assert vesper.json("audit", "other_v1")["rows"] == []
    done = vesper("audit")
    assert trace in done.stdout
    assert "error too_much" in done.stdout
    assert CARD not in done.stdout
