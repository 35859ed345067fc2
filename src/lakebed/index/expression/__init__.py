"""Expression indexes: statistics of a function of a column."""
