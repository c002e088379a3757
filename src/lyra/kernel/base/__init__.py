"""The ground floor of the kernel: what every other folder of it may use.

Owns tasks and threads, timeouts by the kernel's clock, the listeners of Events and the state that subsystems keep in
the journal. Decides nothing about processes and effects. Start with
`core`, then `subsystem`.
"""
