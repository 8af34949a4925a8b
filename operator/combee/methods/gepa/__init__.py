"""GEPA: variants of a prompt with named components, evolved by reflection on what their agents did."""

from combee.methods.gepa.method import GepaMethod
from combee.methods.gepa.options import GepaOptions, options_of
from combee.methods.gepa.pool import Pool

__all__ = ["GepaMethod", "GepaOptions", "Pool", "options_of"]
