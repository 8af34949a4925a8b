"""What each look at the same gate rows may cost, so that all of them together err no oftener than one.

A look is one candidate compared on one heldOut. The k-th is judged with the one-sided error

    (1 - confidence) / (k (k + 1)),    which sum to 1 - confidence over all k.

The first has half of that, and is judged by the interval at ``confidence``. Errors spent in the order of the
looks are alpha spending (Lan and DeMets, Biometrika 70, 1983) over many candidates (online Bonferroni: Foster
and Stine, J. R. Stat. Soc. B 70, 2008, without what they earn back by rejections).

**Why it holds though candidates come one after another.** Whoever makes candidates sees of the gate rows only
whether each was promoted. While none was, there is one thing to see, so the k-th candidate is what it would
have been on any other gate rows: its test is a test of a candidate fixed beforehand, and errs with its own
level. The levels add up whatever the tests have in common. So the probability that the *first* promotion on a
heldOut is one without gain is at most 1 - confidence, however many candidates come. What can be learned from
the rows grows with the number of answers that could have been given, not with the number of looks (the Ladder
of Blum and Hardt 2015, which answers only where a candidate is better).

**What it does not cover.**

- After a promotion there are as many things to see as looks at which it may have come, and no bound is
  claimed against a maker of candidates that uses this. Chance favours the version that is active by then: it
  was chosen for its score on these very rows, and so it is the harder to beat on them.
- Whoever reads the scores of failed looks, or the rows, and makes the next candidate by them sees more than
  whether it was promoted. So does a run that is given the gate rows.
- A person who promotes by name makes no test.
- Looks that leave no trace: see ``plan.playbook.looks``.
"""

from __future__ import annotations

import math

from combee.errors import BugError


def look_confidence(confidence: float, look: int) -> float:
    """Return the confidence of the two-sided interval that the ``look``-th look, from 1, is judged by.

    BugError for a confidence outside (0, 1) or a look under 1. Source: the module's docstring. Cost: O(1).

    >>> [round(look_confidence(0.95, look), 4) for look in (1, 2, 7)]
    [0.95, 0.9833, 0.9982]
    """
    if not 0 < confidence < 1 or look < 1:
        raise BugError(f"confidence {confidence}, look {look}", where="look_confidence")
    return 1 - 2 * (1 - confidence) / (look * (look + 1))


def spent(confidence: float, looks: int) -> float:
    """Return the part of the error 1 - confidence that so many looks have spent. Cost: O(1).

    BugError for a confidence outside (0, 1) or fewer than no looks. Source: the sum of the module's errors.

    >>> [round(spent(0.95, looks), 4) for looks in (0, 1, 4)]
    [0.0, 0.025, 0.04]
    """
    if not 0 < confidence < 1 or looks < 0:
        raise BugError(f"confidence {confidence}, looks {looks}", where="spent")
    return (1 - confidence) * looks / (looks + 1)


def percent(confidence: float) -> str:
    """Return a confidence in percent, with two digits of the error that it leaves.

    >>> percent(0.95), percent(0.9982142857), percent(1 - 2e-7)
    ('95', '99.82', '99.99998')
    """
    error = 100 * (1 - confidence)
    digits = max(0, 1 - math.floor(math.log10(error))) if error > 0 else 0
    text = f"{100 * confidence:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
