"""Releases of the chart on a real cluster."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from cluster_tools import REPOSITORY, Cluster, eventually

CHART = REPOSITORY / "charts" / "combee-operator"
NAME = "combee"


@dataclass(frozen=True)
class Release:
    """A release named ``NAME`` in a namespace; ``user`` is who installs it, the administrator if empty."""

    cluster: Cluster
    namespace: str
    user: str = ""

    @property
    def account(self) -> str:
        """The operator's account as the server calls it."""
        return f"system:serviceaccount:{self.namespace}:combee-operator"

    def helm(self, *arguments: str, values: dict[str, Any] | None = None) -> str:
        """What helm printed; fails with what it said."""
        program = shutil.which("helm", path=self.cluster.environment["PATH"])
        if program is None:
            pytest.fail("helm is not on the PATH; make cluster builds one")
        asked = subprocess.run(
            [
                program,
                *arguments,
                *("-n", self.namespace),
                *(["--kube-as-user", self.user] if self.user else []),
                *(["-f", "-"] if values is not None else []),
            ],
            env=self.cluster.environment,
            input=yaml.safe_dump(values) if values is not None else "",
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert asked.returncode == 0, f"helm {' '.join(arguments)}: {asked.stderr}"
        return asked.stdout

    def install(self, values: dict[str, Any]) -> str:
        """Install and wait until the operator is ready; what helm told its user. What is in the cluster
        already, such as CRDs that stayed, becomes the release's."""
        try:
            return self.helm(
                *("install", NAME, str(CHART), "--take-ownership", "--wait", "--timeout", "240s"),
                values=values,
            )
        except BaseException:
            for command in (("describe", "pods"), ("logs", "deployment/combee-operator", "--tail=50")):
                print(self.cluster.try_kubectl(*command, namespace=self.namespace).stdout[-4000:])
            raise

    def uninstall(self) -> None:
        """Take it away, with what the operator made; nothing where there is no release."""
        self.helm("uninstall", NAME, "--ignore-not-found", "--wait", "--timeout", "280s")

    def may(self, verb: str, resource: str, *more: str) -> bool:
        """Whether the operator may do it; ``more`` is -A or -n and a namespace."""
        asked = self.cluster.try_kubectl("auth", "can-i", verb, resource, *more, "--as", self.account)
        assert asked.stdout.strip() in ("yes", "no"), asked.stderr
        return asked.stdout.strip() == "yes"


def apply_crds(cluster: Cluster) -> None:
    """The CRDs of this working copy, served."""
    folder = str(REPOSITORY / "crds")
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", folder)
    # A definition is established a moment before the server lists its kind. One just made has no conditions,
    # which kubectl wait takes for an error.
    kinds = {"PromptLearningRun", "Playbook", "PlaybookVersion"}
    eventually("their kinds are listed", lambda: kinds <= cluster.reader.kinds())
