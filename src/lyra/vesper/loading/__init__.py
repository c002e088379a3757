"""Files of nodes as plain data with places."""
