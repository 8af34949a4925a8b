"""Measurements anyone can repeat: `make bench`. They print and record figures, and assert none."""
