"""ACE: generator, reflector and curator on a ledger of typed entries."""

from combee.methods.ace.ledger import Ledger
from combee.methods.ace.method import AceMethod

__all__ = ["AceMethod", "Ledger"]
