"""Supervisors: processes that start other processes and restart them by Erlang/OTP's rules.

`child` is the declaration, `child` the table, `supervisor` the program, `handle` the commands from outside,
also for a supervisor that has not replayed yet.
"""
