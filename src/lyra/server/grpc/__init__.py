"""The gRPC face: the services of `proto/lyra/engine/v1/engine.proto` over one kernel.

Start with `face`, which opens and drains the server. `guard` is the one place around every call (token, caller, errors,
figures), `services` has a class for each service of the contract, and `messages` turns kernel values into messages and
back, field by field. The face decides nothing by itself: each call is one or two calls of the kernel.
"""
