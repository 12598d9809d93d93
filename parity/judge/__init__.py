"""Judge two recordings: errors and their floors, low precision, every value's verdict."""
