"""Sage in a program: a change with a permission callback, a tool of the program's own, and an undo.

    python examples/sage_sdk.py --sim
    python examples/sage_sdk.py           # with ANTHROPIC_API_KEY

Works in a temporary folder. The callback allows edits of `cart.py` and nothing else: the command that the model wants
to run is denied, it is told so, and the run goes on.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from lyra.errors import LyraError
from lyra.sage import PermissionRequest, SageAgentSDK

CART = "def total(prices, discount=0):\n    return sum(prices) - discount\n"
SCRIPT = [
    {"tool_calls": [{"name": "price_list", "arguments": {"shop": "north"}}]},
    {"tool_calls": [{"name": "Read", "arguments": {"file_path": "cart.py"}}]},
    {
        "tool_calls": [
            {
                "name": "Edit",
                "arguments": {
                    "file_path": "cart.py",
                    "old_string": "sum(prices) - discount",
                    "new_string": "max(0, sum(prices) - discount)",
                },
            },
            {"name": "Bash", "arguments": {"command": "git push"}},
        ]
    },
    {"text": "The total is never below zero now."},
]


def price_list(shop: str) -> list[int]:
    """The prices of a shop, in cents."""
    return {"north": [250, 199]}[shop]


def decide(request: PermissionRequest) -> bool | str:
    """Edits of one file are allowed; everything else is denied, with a reason for the model."""
    if request.tool == "Edit" and request.arguments["file_path"] == "cart.py":
        print(request.diff)
        return True
    return "only cart.py may be changed here"


async def main(folder: Path, model: str) -> None:
    (folder / "cart.py").write_text(CART)
    sdk = SageAgentSDK(
        model=model,
        working_directory=folder,
        allowed_tools=["price_list"],
        permission_callback=decide,
        sessions_folder=folder.parent / "sessions",
        budget=None if model.startswith("sim/") else "$0.50",
    ).with_tools(price_list)
    async with sdk:
        async for event in sdk.stream("Can the total be negative with the prices of the north shop? Fix it."):
            if event.type == "tool_end":
                print(event.name, "was denied" if event.is_error else "is done")
            elif event.type == "text_delta":
                print(event.delta, end="")
            elif event.type == "error":
                print(f"{event.message}\n  hint: {event.get('hint', '')}", file=sys.stderr)
            elif event.type == "result":
                print()
                if event.status != "success":
                    sys.exit(1)
        assert sdk.session is not None
        print("changed:", [Path(change.path).name for change in sdk.session.changes()])
        await sdk.session.undo()
    print("undone:", (folder / "cart.py").read_text() == CART)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary, "work")
        work.mkdir()
        script = Path(temporary, "script.json")
        script.write_text(json.dumps({"sequence": SCRIPT}))
        try:
            asyncio.run(main(work, f"sim/script:{script}" if "--sim" in sys.argv else "anthropic/claude-sonnet-4-5"))
        except LyraError as error:
            sys.exit(error.render())
