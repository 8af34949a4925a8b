"""How reflections become updates: one file a strategy, one a merge. What each costs is in ``combee.strategies``."""
