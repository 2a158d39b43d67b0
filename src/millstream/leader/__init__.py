"""Several job managers of which one leads: who that is, for how long, and what those before it may still do."""
