"""How reflections become updates, by strategy and merge; ``combee.strategies`` has what each costs."""
