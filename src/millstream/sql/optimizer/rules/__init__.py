"""Rules of the planner: each replaces nodes by others that give the same rows."""
