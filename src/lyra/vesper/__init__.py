"""Vesper: nodes with contracts, run by two independent paths and moved from one to the other on evidence.

    from lyra import vesper

    node = vesper.load("payment_handler.vsp")
    outcome = vesper.execute(node, {"amount": "99.99"}, path="direct")

A node is a YAML file: typed inputs and outputs, contracts, a flow of steps. `nodes` reads it, `check` judges it and
gives its typed IR, `python` and `direct` run that, each with code of its own. `evidence` compares them, `runtime` runs
nodes in a kernel, in the mode that the evidence allows. Everything is imported at its first use.
"""

from __future__ import annotations
