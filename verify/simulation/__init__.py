"""Seeded worlds in virtual time: programs, faults, crashes and take-overs, checked after every step.

`sim` runs seeds, `world` is one of them, `driver` acts in it, `provider` and `failing_disk` are its outside;
`invariants`, `inspections` and `ledger` judge it. `scenes` adds trees, pipelines and workers.
"""
