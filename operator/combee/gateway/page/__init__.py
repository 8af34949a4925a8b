"""A small read-only page for people: versions, differences, gates, canaries. It runs no script."""
