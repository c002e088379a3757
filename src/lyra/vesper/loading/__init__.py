"""Files of nodes as plain data with places. Start at `document.read_document`; `issues` has what is said about a file."""
