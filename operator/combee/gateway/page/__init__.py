"""A small page for people: versions, what changed between two, gates, canaries. Read-only; no script runs on it."""
