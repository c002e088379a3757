"""What the rows of a journal tell a person: which processes there are, what they called, what it cost.

Each module is a fold over Events in their order, live ones or those of a store: start with `processes`, then `calls`
with their costs; `time_series` has figures over time, `call_contents` what one trace shows. Nothing here opens
a store or asks a server; `lyra.cli.views` does.
"""
