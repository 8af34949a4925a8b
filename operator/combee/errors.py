"""One error tree. A caller decides by class; a person reads ``str(error)``.

CombeeError
├── UserError               the user's to mend; permanent; ``combee run`` exits 2 before work
│   ├── ManifestError       a field of a manifest
│   ├── DataError           a row or a file of data
│   │   ├── DataOverlapError    heldOut or test shares rows with train
│   │   ├── HeldOutTooSmallError  heldOut cannot judge anything
│   │   └── HeldOutMovedError   heldOut or test is not what the run started with
│   ├── ArtifactTooLargeError   what was learned does not fit where it is to be delivered
│   ├── AddressNotAllowedError  a host that pods may ask only with the chart's permission
│   ├── NotAvailableError   an address or a comparison that this installation cannot do
│   └── StoreError          the artifact store refuses (read-only, full, locked by another run)
│       └── DamagedError        a file of it is not what was written, or is gone
├── EndpointError           a model endpoint said no for good (wrong key, unknown model, a 400)
│   ├── ContextLengthError  the request is longer than the model's context
│   ├── VerdictError        an evaluator or a referee answers, but with no verdict
│   │   └── ProxyVerdictError   so does an evaluator's proxy
│   └── UnreachableError    nobody answers at the address (a pod tries again, a laptop's user mends it)
├── RolloutError            a task in a container misbehaved on one example; ``code`` says how
├── TransientError          worth another try later (429, 5xx, reset, deadline)
├── ClusterError            the Kubernetes API refused or did not answer
├── BudgetExhaustedError    the run's own budget forbids the next call
└── BugError                ours: an invariant does not hold

Every error says what happened, where, and what to do: ``str()`` is the full text, on one line.
"""

from __future__ import annotations

from typing import ClassVar


class CombeeError(Exception):
    """Base of every error this package raises on purpose.

    ``what`` happened, ``where`` (a path, field, URL; empty when nowhere in particular) and
    ``fix``, what the reader should do. ``code`` is a stable word for manifests and conditions.
    """

    code: ClassVar[str] = "Error"

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what = what
        self.where = where
        self.fix = fix
        self.used: object = None
        """what a lost rollout had asked, as the record of a run tells it."""
        super().__init__(what)

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        text = f"{head}. {self.fix}" if self.fix else head
        return " ".join(text.split())


class UserError(CombeeError):
    """Permanent until the user changes something."""

    code = "UserError"


class ManifestError(UserError):
    """A field of a manifest is wrong; ``where`` is its path."""

    code = "InvalidManifest"


class DataError(UserError):
    """A file or row of data is wrong; ``where`` is ``file:line``."""

    code = "InvalidData"


class DataOverlapError(DataError):
    """A row that is learned from is judged with, too."""

    code = "DataOverlap"


class HeldOutTooSmallError(DataError):
    """heldOut has too few rows to judge with."""

    code = "HeldOutTooSmall"


class HeldOutMovedError(DataError):
    """heldOut or test changed after it was pinned: scores before and after do not compare."""

    code = "HeldOutMoved"


class ArtifactTooLargeError(UserError):
    """The artifact does not fit where it is to be delivered."""

    code = "ArtifactTooLarge"


class AddressNotAllowedError(UserError):
    """A host leads to where pods may go only with the chart's permission."""

    code = "AddressNotAllowed"


class NotAvailableError(UserError):
    """This installation cannot do what is asked, such as read an address without a package for it."""

    code = "NotAvailable"


class StoreError(UserError):
    """The artifact store cannot be used: read-only, full, or held by another run."""

    code = "Store"


class DamagedError(StoreError):
    """A file that a finished step left is not what was written, or is gone; ``where`` is the file."""

    code = "Damaged"


class EndpointError(CombeeError):
    """A model endpoint refused for good; asking again gives the same answer."""

    code = "Endpoint"


class ContextLengthError(EndpointError):
    """The request exceeds the model's context length."""

    code = "ContextLength"


class VerdictError(EndpointError):
    """An evaluator or a referee answered, and its answer holds no verdict."""

    code = "NoVerdict"


class ProxyVerdictError(VerdictError):
    """The evaluator's proxy answered, and its answer holds no verdict."""

    code = "NoProxyVerdict"


class UnreachableError(EndpointError):
    """Nobody answers at a model endpoint's address."""


class TransientError(CombeeError):
    """The same call may succeed later; raised only after the retries are spent."""

    code = "Transient"


class RolloutError(CombeeError):
    """What a container did with one example is no rollout: it hung, died, or left what cannot be read."""

    code = "Rollout"

    def __init__(self, code: str, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what, where=where, fix=fix)
        self.code = code  # type: ignore[misc]


class ClusterError(CombeeError):
    """The Kubernetes API refused a request, or did not answer it. ``status`` is HTTP's; 0: no answer."""

    code = "Cluster"

    def __init__(self, what: str, *, where: str = "", fix: str = "", status: int = 0) -> None:
        super().__init__(what, where=where, fix=fix)
        self.status = status


class BudgetExhaustedError(CombeeError):
    """The run's budget does not allow the call."""

    code = "BudgetExhausted"


class BugError(CombeeError):
    """An invariant of ours does not hold."""

    code = "Bug"
