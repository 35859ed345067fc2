"""Filters: the text of a condition, what it means, which rows pass, and which ranges of values it asks for."""
