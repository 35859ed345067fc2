"""Min, max and null counts of each column and file."""
