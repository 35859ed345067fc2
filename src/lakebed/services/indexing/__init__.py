"""The life of indexes on an existing table: created, checked against the rows, given other shards, dropped."""
