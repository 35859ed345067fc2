"""Reports: frozen values that describe a table, rendered as text by the command line, or as JSON.

One module per subject, each with its values and the functions that make them. `--json` prints the field names, so they
are public.
"""
