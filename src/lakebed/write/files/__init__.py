"""Files of a write: base files, merged base files, log files, and the statistics of what is in them."""
