"""The doctor: finds problems of a table, says what they block, and repairs them."""
