"""Windows, taken apart: what a window is, which windows a record belongs to, when they fire, what is left out."""
