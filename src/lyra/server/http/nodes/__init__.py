"""What is known about the Vesper nodes of a server: `facts` reads their evidence, `news` tells what happens to them.

Start with `facts`. Which nodes there are is `mounted_nodes`; `api.nodes` and the pages show and change them.
"""
