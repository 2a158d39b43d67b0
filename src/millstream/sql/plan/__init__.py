"""Plans: relational nodes, their parameters, and their form as JSON."""
