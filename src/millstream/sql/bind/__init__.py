"""Binding: from what was said to typed expressions and relational nodes."""
