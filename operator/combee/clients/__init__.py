"""I/O: the chat client, the artifact store, the memo of model calls and a run's limits."""
