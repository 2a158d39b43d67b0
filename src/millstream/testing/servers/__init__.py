"""Real servers for tests, each in its own process and directory, deleted at the end: see docs/guides/testing.md."""
