"""Filters: parsing a condition, evaluating it over rows, and comparing it with min/max statistics."""
