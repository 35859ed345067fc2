"""The metadata table: keys, shards and records of each of its partitions."""
