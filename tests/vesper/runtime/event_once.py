"""Publishes an event from a node, as a process of its own that tests kill: FOLDER URL HOW.

`handled`: a handler notes the event and calls a server. `waiting`: the event reaches only a function that never ends.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from lyra import vesper
from lyra.kernel import Kernel

GRANT = ["database.write.notes", "network.http_client.shop", "events.publish.order.paid"]
PUBLISHER = """\
node_id: pay_v1
type: function
intent: tell that an order was paid
inputs: {name: string}
outputs: {success: {done: boolean}}
flow:
  - {step: tell, operation: event_publish, event_type: order.paid, data: {name: "{name}"}}
  - {step: end, operation: return, return_success: {done: true}}
security: {capabilities_required: [events.publish.order.paid]}
"""
HANDLER = """\
node_id: note_v1
type: event_handler
intent: note that an order was paid
metadata: {events: [order.paid]}
inputs: {name: string}
outputs: {success: {done: boolean}}
flow:
  - {step: note, operation: database_write, table: notes, data: {name: "{name}"}}
  - step: call
    operation: external_api_call
    provider: shop
    endpoint: /paid
    method: POST
    headers: {Idempotency-Key: "{name}"}
    parameters: {amount: "1"}
  - {step: end, operation: return, return_success: {done: true}}
security: {capabilities_required: [database.write.notes, network.http_client.shop]}
"""


def runtime_in(folder: str, url: str, **more: Any) -> vesper.Runtime:
    return vesper.Runtime(
        str(Path(folder, "lyra.db")),
        database=f"sqlite:///{folder}/notes.db",
        providers={"shop": url},
        grant=GRANT,
        **more,
    )


def main(folder: str, url: str, how: str) -> None:
    begun = Path(folder, "begun")

    async def never_ends(_: object) -> None:
        await asyncio.to_thread(begun.touch)
        await asyncio.Event().wait()

    async def subscribe(kernel: Kernel) -> None:
        kernel.bus.subscribe("order.paid", never_ends)

    with runtime_in(folder, url) as runtime:
        if how == "handled":
            runtime.events.add(vesper.load(HANDLER))
        else:
            runtime._thread.call(subscribe)
        runtime.execute(vesper.load(PUBLISHER), {"name": "ann"})


if __name__ == "__main__":
    main(*sys.argv[1:])
