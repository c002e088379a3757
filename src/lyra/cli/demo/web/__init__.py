"""`lyra demo --web`: a served kernel with a team at work, for a person with a browser.

Start with `scene`, what there is in the kernel: the supervised team of `programs`, the agents of `cast`, a pipeline,
services, and the nodes of `node_texts`. `office` brings the work that keeps them busy, and `show` serves it all and
opens the page. Nothing here reaches the network or needs a key.
"""
