"""The services of the contract, over one kernel: an RPC goes by its row in the table of calls, or by a method.

Start with `system`, which has the handler that is made of a row, and says to whom a process, a question or a service
belongs. A handler checks the caller, calls the kernel, waits until the change is durable and gives a message. It keeps
nothing between two calls.
"""
