"""Table services: what keeps a table fast and small, planned by one process and executed by any."""
