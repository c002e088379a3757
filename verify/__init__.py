"""What tests Lyra itself: simulation, crashes, comparisons, fuzzing, attacks, load, and the structure of the source.

It is beside the tests and not part of the wheel. `python -m verify --help` lists the long runs; `tests/verify` runs a
short one of each. `planted` changes functions of Lyra for the time of a test, to show that a check notices the bug.
"""
