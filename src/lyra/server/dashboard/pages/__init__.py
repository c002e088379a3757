"""One page a module. Start with `overview`; each module has a tuple `ENDPOINTS`, which `lyra.server.site` lists.

A handler reads the kernel and gives `layout.page(call, title, …)`: complete HTML with its data, before any script runs.
"""
