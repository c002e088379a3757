"""`python -m benchmarks [names…]`: measure, print the table. `--quick` only shows that everything still works.

Exit code 0 whatever the figures are; `--check` makes a missed goal exit 1. A benchmark that crashes is a traceback.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import re
import sqlite3
import sys
from pathlib import Path

from benchmarks.measure import Row, Size, markdown
from verify.home import use_own_home

SUBJECTS = {
    "door": "An effect through the door, in memory",
    "durable": "A durable step",
    "spawn": "Processes at rest",
    "messages": "Messages between two processes",
    "startup": "Start-up",
    "recovery": "Coming back after a crash",
    "append": "The store alone",
    "budgets": "Budgets under 64 spenders",
    "fairness": "Who gets to run",
    "supervision": "A crash and a restart",
    "pipelines": "A stage of a pipeline",
    "buses": "One event to many subscribers",
    "interrupts": "Questions waiting for people",
    "grpc_calls": "Calls of the server over gRPC",
    "http_calls": "Requests to the server over HTTP",
    "dashboard": "The dashboard with ten thousand processes",
    "gateway_calls": "Calls of model providers through the gateway",
    "gateway_peers": "The gateway beside the LiteLLM proxy",
    "models": "Models over the wire",
    "agents": "An agent with a fake model",
    "first_token": "An agent's first token and its memory",
    "sage": "Sage's start, its first token and its memory, beside others",
    "sandbox": "A command in a sandbox",
    "permissions": "A decision on a call",
    "search": "Searches in a large tree",
    "tools": "Tools at work in an agent",
    "health": "Being watched by the health monitor",
    "vega_durable": "Vega's durable runs",
    "vega_lsp": "Vega in an editor",
    "vega_parallel": "Calls of Vega that overlap by themselves",
    "vega_parser": "Reading, checking and formatting Vega",
    "vega_processes": "Vega's processes",
    "vega_workers": "Vega's workers, and uvloop",
    "vega_vm": "Vega beside Python",
    "vega_tiers": "Vega's pure functions as generated code",
    "vesper_contracts": "Contracts of Vesper's nodes beside decorators",
    "vesper_modes": "Nodes of Vesper in their modes",
    "vesper_paths": "Vesper's direct path beside its generated Python",
    "vesper_proofs": "Contracts of Vesper's nodes proved, beside CrossHair",
    "vesper_python": "Vesper's generated Python",
}

RESULTS = Path(__file__).parent / "RESULTS.md"


def machine() -> str:
    """What the figures depend on, and nothing that tells whose machine it is."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {platform.system()}, "
        f"{platform.python_implementation()} {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Lyra against baselines.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which: {', '.join(SUBJECTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that they work, measures nothing")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout instead of tables")
    parser.add_argument("--write", action="store_true", help="keep the tables in benchmarks/RESULTS.md; others stay")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    options = parser.parse_args(argv)
    use_own_home()
    unknown = [name for name in options.names if name not in SUBJECTS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(SUBJECTS)}")
    size = Size(quick=options.quick)
    measured: dict[str, list[Row]] = {}
    for name in options.names or SUBJECTS:
        rows = measured[name] = importlib.import_module(f"benchmarks.{name}").run(size)
        if not options.json:
            print(f"\n## {SUBJECTS[name]} (`{name}`)\n\n{markdown(rows)}", flush=True)
    missed = [row.what for rows in measured.values() for row in rows if row.ok is False]
    if options.json:
        document = {name: [row.to_data() for row in rows] for name, rows in measured.items()}
        print(json.dumps({"machine": machine(), "quick": size.quick, "subjects": document, "missed": missed}, indent=1))
    elif missed:
        print("\ngoals missed: " + "; ".join(missed), file=sys.stderr)
    if options.write:
        kept = {} if size.quick else tables(RESULTS.read_text() if RESULTS.exists() else "")
        RESULTS.write_text(page({**kept, **{name: table(rows) for name, rows in measured.items()}}, size))
    return 1 if options.check and missed else 0


def table(rows: list[Row]) -> str:
    """One subject's figures, and where they were taken: tables are written one at a time, on any machine."""
    return f"On {machine()}:\n\n{markdown(rows)}"


def tables(text: str) -> dict[str, str]:
    """The tables of a RESULTS.md, by subject."""
    sections = re.findall(r"^## [^\n]* \(`(\w+)`\)\n\n(.*?)\n(?=\n## |\Z)", text, re.MULTILINE | re.DOTALL)
    return {name: table for name, table in sections if name in SUBJECTS}


def page(figures: dict[str, str], size: Size) -> str:
    """RESULTS.md: of each subject the last run that was kept."""
    how = (
        "QUICK sizes: these figures mean nothing"
        if size.quick
        else "the best of five to ten interleaved repeats (other systems run after ours; `fairness` runs once)"
    )
    head = (
        "# Benchmark results\n\nWritten by `python -m benchmarks --write`; do not edit.\n\n"
        f"CPU time decides, {how}; ratios travel to other machines, times do not.\n"
    )
    shown = [f"\n## {title} (`{name}`)\n\n{figures[name]}\n" for name, title in SUBJECTS.items() if name in figures]
    return head + "".join(shown)


if __name__ == "__main__":
    sys.exit(main())
