"""What Lyra costs, as ratios against a baseline measured in the same run. `make bench` runs them.

`measure` is the harness. One file a subject, each with `run(size)` giving rows of the table; `peers` runs other
systems in a process of their own.
"""
