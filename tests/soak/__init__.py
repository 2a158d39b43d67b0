"""A job that runs for long, with kills, while all that could grow is measured."""
