"""The plain implementations: Arrow, numpy and Python. They are the reference, and right for every size."""
