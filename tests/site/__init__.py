"""The documentation site: hooks and theme of mkdocs.yml."""
