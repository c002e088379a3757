"""Nodes with a sensitive input, executed in processes of their own that tests kill: FOLDER URL MODE NODE."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lyra import vesper
from lyra.vesper.values.json_values import json_shape

CARD = "4111-zebra-9876-QUARTZ"
_HEAD = """\
node_id: {name}_v1
type: function
intent: work with a card
inputs:
  card: {{type: string, sensitive: true}}
  amount: integer
outputs:
  success:
    total: integer
  error:
    error_code: enum[refused, too_much]
    message: string
security:
  audit_level: detailed
"""
PURE = (
    _HEAD.format(name="card_check")
    + """\
contracts:
  postconditions: ["success => total > 0"]
flow:
  - step: check_amount
    operation: validation
    guards: ["amount <= 100"]
    on_failure:
      return_error: {error_code: too_much, message: "no {amount} with {card}"}
  - step: add_up
    operation: arithmetic
    expression: "amount + length"
    output: total
""".replace("amount + length", "amount + 1")
)
DATABASE = (
    _HEAD.format(name="card_store")
    + """\
  capabilities_required: [database.write.cards, database.read.cards]
flow:
  - step: keep_card
    operation: database_write
    parameters:
      table: cards
      data: {card: "{card}", amount: "{amount}"}
  - step: read_back
    operation: database_query
    query: "SELECT card, amount FROM cards WHERE card = {card}"
    output: rows_read
  - step: charge
    operation: arithmetic
    expression: "amount + 1"
    output: total
"""
)
HTTP = (
    _HEAD.format(name="card_charge")
    + """\
  capabilities_required: [network.http_client.pay.example]
flow:
  - step: call_server
    operation: external_api_call
    provider: pay.example
    endpoint: charges.create
    parameters: {card: "{card}", amount: "{amount}", idempotency_key: "k-{card}"}
    output: reply
    on_error:
      - error_type: card_declined
        action: return_error
        return_error: {error_code: refused, message: "refused: {error.message}"}
  - step: add_up
    operation: arithmetic
    expression: "amount + 1"
    output: total
"""
)
DERIVED = """\
node_id: card_mask_v1
type: function
intent: mask a card
inputs:
  card: {type: string, sensitive: true}
outputs:
  success:
    tail: string
    shown: {type: string, sensitive: false}
  error:
    error_code: enum[odd]
    message: string
security:
  audit_level: detailed
flow:
  - {step: cut, operation: arithmetic, expression: "slice(card, 5, 10)", output: middle}
  - {step: keep_tail, operation: arithmetic, expression: "upper(slice(middle, 0, 5))", output: tail}
  - {step: show, operation: arithmetic, expression: "slice(card, 10, 15)", output: shown}
  - {step: repeat, operation: arithmetic, expression: "shown + '!'", output: again}
  - step: judge
    operation: validation
    guards: ["card.length != 21"]
    on_failure:
      return_error: {error_code: odd, message: "wrong: {slice(card, 5, 10)}"}
"""  # of CARD, `zebra` is computed and hidden; `-9876` is declared to be shown
NODES = {"pure": PURE, "database": DATABASE, "http": HTTP}
GRANT = ["database.write.cards", "database.read.cards", "network.http_client.pay.example"]


def runtime(folder: str | Path, url: str, **more: Any) -> vesper.Runtime:
    return vesper.Runtime(
        str(Path(folder, "lyra.db")),
        database=f"sqlite:///{folder}/cards.db",
        providers={"pay.example": url},
        grant=GRANT,
        **more,
    )


def main(folder: str, url: str, mode: str, name: str) -> None:
    with runtime(folder, url) as nodes:
        outcome = nodes.execute(vesper.load(NODES[name]), {"card": CARD, "amount": 5}, mode)
    error = None if outcome.error is None else [outcome.error.code, outcome.error.message]
    print(json.dumps({"status": outcome.status, "outputs": json_shape(outcome.outputs), "error": error}))


if __name__ == "__main__":
    main(*sys.argv[1:])
