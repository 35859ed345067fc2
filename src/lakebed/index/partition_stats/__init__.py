"""Min, max and null counts of each column over the current files of a partition."""
