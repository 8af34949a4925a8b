"""How reflections become updates: one file a strategy, one a merge."""
