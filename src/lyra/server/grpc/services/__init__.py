"""The services of the contract: a class each, a method for each RPC, over one kernel.

Start with `kernel`; `owners` says to whom a process, a question or a service belongs. A method checks the caller, calls
the kernel, waits until the change is durable and gives a message. It keeps nothing between two calls.
"""
