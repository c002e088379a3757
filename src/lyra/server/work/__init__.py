"""Work for agents and services that run in other programs: a queue, leases, and results that are taken once.

Start with `desk`. Its `WorkQueue` is the state machine: it takes the time as an argument and touches nothing outside.
Its `WorkDesk` connects the queue with a kernel: it registers a proxy for each agent and service that a worker serves,
lets claims wait, and ends leases by the kernel's clock. The gRPC service of workers is a thin face of the desk.
"""
