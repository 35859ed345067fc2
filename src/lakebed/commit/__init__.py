"""Commits as values: what any write or table service adds to the table, and the section in which it does."""
