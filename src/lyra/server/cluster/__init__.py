"""One server on several hosts: `lyra serve --cluster`.

Each shard that is open on a host has a site of its own there (`sites`): the application of one kernel, which knows
nothing of clusters. The `front` takes the requests of clients: `places` says to which shard each belongs, and the front
passes it to that shard's site, on this host or, by `forwarding`, on another one. `ClusterServer` is all of it.
"""
