"""Peers: other people's loops, run from their own checkouts against the same simulated model."""
