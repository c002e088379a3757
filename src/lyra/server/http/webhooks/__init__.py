"""Webhooks: events of the kernel are told to other servers, and other servers tell agents and processes something.

`deliveries` sends events, each by one guarded post, signed and tried again; start there. `incoming` takes what others
send. A webhook is a durable process of its user, and its own secret is stored nowhere: it is derived from a key of the
server.
"""
