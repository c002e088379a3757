"""The parts of snapshots: the state of a file, kept contents, the listing of a workspace, the journal, restoring.

`lyra.sage.session.snapshots` puts them together. Start with `state`: what is known of a file at one moment.
"""
