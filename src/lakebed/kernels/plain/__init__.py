"""The plain implementations, in Arrow, numpy and Python: the reference, correct for calls of every size."""
