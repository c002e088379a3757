"""Real hosts in network namespaces of their own, parted from each other and from PostgreSQL while programs run.

`namespaces` makes the network and cuts it, `host` is one host as a program, `programs` what runs on it, `run` does it
all and judges what was seen by `verify.histories`. It needs root and the command `ip`.
"""
