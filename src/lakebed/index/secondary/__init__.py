"""Secondary indexes: record keys by the value of another column."""
