"""Entries of the process table that programs outside the kernel drive: submitted, scheduled, taken, moved, ended.

`lifecycle` is the state machine of an `entry`; `quota`, `usage`, `time_limits` and `rate_limits` bound it. Processes
of programs inside the kernel have Budgets and are not entries.
"""
