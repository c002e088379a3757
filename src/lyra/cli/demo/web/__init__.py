"""`lyra demo --web`: a served kernel with a team at work, for a person with a browser.

`show` makes what there is in the kernel (`Scene`: the supervised team and the agents of `agents`, a pipeline, services
and nodes), serves it, brings the work that keeps it busy and opens the page. Nothing here reaches the network or needs
a key.
"""
