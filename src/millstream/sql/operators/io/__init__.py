"""Sources, sinks, calcs, watermarks and checks at the edges of a query."""
