"""ACE: generator, reflector, curator, on a ledger of typed entries."""
