"""The list of partitions and data files."""
