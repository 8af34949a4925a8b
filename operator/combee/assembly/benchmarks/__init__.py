"""Public benchmarks of agents: their tasks, in the layout in which they are published, as rows of a run."""
