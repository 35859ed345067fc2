"""Frozen values in the words of the format. They know nothing of bytes, storage or Spark."""
