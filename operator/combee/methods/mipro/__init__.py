"""MIPRO (arXiv 2406.11695): a prompt of named components and of demonstrations, by Bayesian search."""

from combee.methods.mipro.method import MiproMethod
from combee.methods.mipro.terms import Terms, terms_of

__all__ = ["MiproMethod", "Terms", "terms_of"]
