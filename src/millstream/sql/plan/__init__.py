"""Plans: relational nodes, the rules that change them, what kinds of changes flow between them, how they are shown."""
