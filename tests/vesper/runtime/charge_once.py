"""Executes the payment node once, as a process of its own that tests kill: FOLDER URL NUMBER MODE."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lyra import vesper
from lyra.vesper.values.json_values import json_shape
from tests.vesper.runtime.payments import GRANT, NODE, request


def main(folder: str, url: str, number: str, mode: str) -> None:
    with vesper.Runtime(
        str(Path(folder, "lyra.db")),
        database=f"sqlite:///{folder}/orders.db",
        providers={"stripe": url},
        grant=GRANT,
        predicates={"order_not_locked": lambda: True},
    ) as runtime:
        outcome = runtime.execute(vesper.load(NODE), request(int(number)), mode)
    code = outcome.error.code if outcome.error is not None else ""
    print(json.dumps({"status": outcome.status, "outputs": json_shape(outcome.outputs), "code": code}))


if __name__ == "__main__":
    main(*sys.argv[1:])
