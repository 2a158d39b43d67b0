"""A prompt for SQL: what has been typed (`typed.py`), what is shown (`views.py`), and the terminal."""
