"""GEPA: variants of a prompt with named components, evolved by reflection on what their agents did."""

from combee.methods.gepa.method import GepaMethod
from combee.methods.gepa.terms import Terms, terms_of

__all__ = ["GepaMethod", "Terms", "terms_of"]
