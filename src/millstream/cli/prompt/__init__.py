"""A prompt for SQL: what has been typed (`word_completion.py`), what is shown (`views.py`), and the terminal."""
