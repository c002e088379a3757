"""Files of nodes as plain data with places. Start at `document.read_document`; `issues` has the remarks on a file."""
