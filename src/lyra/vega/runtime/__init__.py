"""Running Vega programs on Lyra's kernel: every process one of the kernel's, every act an effect.

`run` is the way in. `driver` is the program of each process: it steps the fiber and answers what it asks for by the
table in `handlers`: `processes` (spawn, messages, links), `agents.calls`, `agents.streams`, `early_calls` (calls ahead
of their turn, paid by `early_budget`), `handlers` and `library` (network, commands, time). `light_processes` steps the
processes that need nothing but messages (`worker_threads`: in several threads). `rights` says what a program and its
tools may do; `world` is what one run shares, `job` what one process has; `convert` is the border to Python.
"""
