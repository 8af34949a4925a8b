"""TextGrad (arXiv 2406.07496): a prompt of named components, rewritten by what models say against it."""

from combee.methods.textgrad.method import TextGradMethod
from combee.methods.textgrad.terms import Terms, terms_of

__all__ = ["Terms", "TextGradMethod", "terms_of"]
