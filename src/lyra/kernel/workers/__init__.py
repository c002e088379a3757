"""Entries of the process table that programs outside the kernel drive: submitted, scheduled, taken, moved, ended.

`lifecycle` is the state machine of an `entry`, `blocks` what callers see of it; `quota`, `usage`, `time_limits` and
`rate_limits` bound it. Processes of programs inside the kernel have Budgets and are not entries. `envelope_table` keeps
envelopes that no pipeline has; `quota` is the rule of what a user may act on.
"""
