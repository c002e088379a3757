"""Running Vega programs on Lyra's kernel: every process one of the kernel's, every act an effect.

`run` is the way in. `driver` is the program of each process: it steps the fiber and answers what it asks for by the
table in `handlers`: `processes` (spawn, messages, links), `calls`, `streams`, `together` and `budgets` (agents),
`library` (files, network, commands, time). `agents`, `tools`, `output` and `supervision` turn declarations into lyra's;
`fleet` steps the processes that need nothing but messages (`crew`: in several threads); `rights` says what a program
and its tools may do; `world` is what one run shares, `job` what one process has; `convert` and `errors` are the
border to Python; `interactive` is a run that is written while it goes on.
"""
