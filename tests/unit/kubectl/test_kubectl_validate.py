"""``combee validate`` of a Playbook says what its canary can hardly get, before anybody applies it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from combee.cli.validate import run_validate
from combee.names import API_VERSION
from combee.plan.playbook.unasked import WITHOUT_CANARY

CANARY: dict[str, Any] = {"mode": "Shadow", "evaluator": {"url": "http://judge/v1", "model": "judge"}}


def validated(path: Path, cost: str = "Medium", **canary: Any) -> int:
    spec = {
        "failureCost": cost,
        "canary": {**CANARY, **canary},
        "delivery": {"gateway": {"enabled": True, "upstream": {"url": "http://llm/v1"}}},
    }
    made = {"apiVersion": API_VERSION, "kind": "Playbook", "metadata": {"name": "formula"}, "spec": spec}
    path.write_text(yaml.safe_dump(made))
    return run_validate(path, as_json=False)


def test_an_epsilon_that_traffic_can_hardly_decide_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validated(tmp_path / "p.yaml", epsilon=0.005) == 0
    said = capsys.readouterr()
    assert "valid (Playbook formula)" in said.out
    warned, can = said.err.splitlines()
    assert warned.startswith("warning: Playbook formula: canary.epsilon 0.005: about 5")
    assert can.endswith("by 1,000 pairs: none, 10,000 pairs: 0.015, 100,000 pairs: 0.005")
    assert validated(tmp_path / "p.yaml", "Low", epsilon=0.005) == 0
    assert capsys.readouterr().err.endswith(
        "by 1,000 pairs: 0.05, 10,000 pairs: 0.015, 100,000 pairs: 0.005\n"
    )


def test_one_that_it_can_decide_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validated(tmp_path / "p.yaml", "Low", epsilon=0.05) == 0
    assert capsys.readouterr().err == ""


def test_a_canary_that_is_weaker_than_its_failure_cost_allows_is_refused_and_each_field_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was taken before: a loss of 30 points would have passed, on one request, at once."""
    assert validated(tmp_path / "p.yaml", epsilon=0.3, minSamples=1, durationSeconds=0) == 2
    said = capsys.readouterr().err
    for words in (
        "canary.minSamples is under 200, the least with failureCost Medium (fewer requests can be",
        "canary.durationSeconds is under 86400, the least with failureCost Medium (hours and",
        "canary.epsilon is over 0.02, the largest with failureCost Medium (a loss of up to epsilon passes)",
    ):
        assert words in said


def test_a_waived_canary_is_warned_of_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"canary": {"waived": "a demo"}}
    made = {"apiVersion": API_VERSION, "kind": "Playbook", "metadata": {"name": "formula"}, "spec": spec}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(made))
    assert run_validate(tmp_path / "p.yaml", as_json=False) == 0
    assert capsys.readouterr().err == "warning: Playbook formula: the canary is waived: a demo\n"


def test_a_playbook_without_a_canary_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = {"apiVersion": API_VERSION, "kind": "Playbook", "metadata": {"name": "formula"}, "spec": {}}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(made))
    assert run_validate(tmp_path / "p.yaml", as_json=False) == 0
    assert capsys.readouterr().err == f"warning: Playbook formula: {WITHOUT_CANARY}\n"


QUICKSTART = Path(__file__).resolve().parents[3] / "examples/quickstart.yaml"
ASKS_TOO_MUCH = {
    "metadata": {"labels": {"batch.kubernetes.io/job-name": "x"}, "annotations": {"cdi.k8s.io/gpu": "all"}},
    "spec": {"env": [{"name": "LD_PRELOAD", "value": "/x.so"}]},
}


def _run(**engine: Any) -> dict[str, Any]:
    objects = yaml.safe_load_all(QUICKSTART.read_text())
    made = next(one for one in objects if one["kind"] == "PromptLearningRun")
    made["spec"]["engines"][0] |= engine
    return dict(made)


def test_what_the_operator_refuses_of_a_template_is_refused_before_it_is_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each was valid before, and PlanAccepted=False once it was applied."""
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(_run(template=ASKS_TOO_MUCH)))
    assert run_validate(path, as_json=False) == 2
    said = capsys.readouterr().err.splitlines()
    at = "spec.engines[0].template"
    for line, (where, what) in zip(
        said,
        (
            (f"{at}.metadata.labels", "label batch.kubernetes.io/job-name is not a template's to set"),
            (f"{at}.metadata.annotations", "annotation cdi.k8s.io/gpu is not allowed"),
            (f"{at}.spec.env[0].name", "variable LD_PRELOAD is not a template's to set"),
        ),
        strict=True,
    ):
        number = int(line.removeprefix(f"error: {path}:").partition(":")[0])
        assert f"run.yaml:{number}: {where}: {what}. " in line
        assert (
            path.read_text().splitlines()[number - 1].strip().startswith(("labels", "annotations", "- name"))
        )


def test_a_line_that_was_left_empty_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``null`` is what many optional fields have where they are absent, and the API server drops it."""
    made = _run()
    made["spec"]["queue"] = None
    made["metadata"]["creationTimestamp"] = None
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(made))
    assert run_validate(path, as_json=False) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert ": spec.queue: nothing is written here. Remove the line or complete it." in line


def test_what_the_operator_refuses_of_the_runs_of_a_playbook_is_refused_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = {key: value for key, value in _run()["spec"].items() if key != "playbookRef"}
    spec = {"canary": {"waived": "a test"}, "learn": {"trigger": "Manual", "template": template}}
    made = {"apiVersion": API_VERSION, "kind": "Playbook", "metadata": {"name": "formula"}, "spec": spec}
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(made))
    assert run_validate(path, as_json=False) == 0
    template["workers"] = {"template": {"metadata": {"labels": {"job-name": "x"}}}}
    path.write_text(yaml.safe_dump(made))
    capsys.readouterr()
    assert run_validate(path, as_json=False) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert ": spec.learn.template.workers.template.metadata.labels: label job-name is not" in line


def test_a_container_whose_command_a_cluster_cannot_see_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = _run()
    made["spec"]["task"] |= {"type": "Custom", "custom": {"container": {"image": "i"}}}
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(made))
    assert run_validate(path, as_json=False) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "on a cluster" in line]
    assert ": spec.task.custom.container.command: a cluster starts the program of a container itself" in line


@pytest.mark.parametrize(
    ("duration", "deadline", "least"),
    [(86_400, 259_199, 259_200), (90_000, 518_399, 518_400), (36_000, 107_999, 108_000)],
)
def test_a_deadline_before_which_nothing_unstable_can_pass_is_warned_of(
    duration: int, deadline: int, least: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hours = {"epsilon": 0.05, "durationSeconds": duration}
    assert validated(tmp_path / "p.yaml", "Low", **hours, deadlineSeconds=deadline) == 0
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert said.startswith(f"warning: Playbook formula: canary.deadlineSeconds {deadline}: ")
    assert f"Unstable until {least} s have passed" in said
    assert validated(tmp_path / "p.yaml", "Low", **hours, deadlineSeconds=least) == 0
    assert validated(tmp_path / "p.yaml", "Low", epsilon=0.05, durationSeconds=0, deadlineSeconds=60) == 0
    assert capsys.readouterr().err == ""


def test_the_page_on_trust_shows_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/trust.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (manifests,) = [text for kind, text in blocks if kind == "yaml" and "one-sample" in text]
    (said,) = [text for kind, text in blocks if not kind and "weak.yaml" in text]
    monkeypatch.chdir(tmp_path)
    Path("weak.yaml").write_text(manifests)
    assert run_validate(Path("weak.yaml"), as_json=False) == 2
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("part", "where", "what"),
    [
        (
            {
                "canary": {
                    "mode": "Replay",
                    "evaluator": {"url": "http://h/v1", "model": "m"},
                    "replay": {"requests": {"uri": "requests.jsonl"}},
                },
                "delivery": {"gateway": {"enabled": True, "upstream": {"url": "http://h/v1"}}},
            },
            "spec.canary.replay.requests.uri",
            "a cluster cannot read a file of yours",
        ),
        (
            {"delivery": {"gateway": {"capture": {"store": {"uri": "file:///traffic"}}}}},
            "spec.delivery.gateway.capture.store.uri",
            "a cluster cannot write a file of yours",
        ),
    ],
)
def test_a_playbook_names_no_file_of_a_laptop(
    part: dict[str, Any], where: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.yaml"
    made = {"apiVersion": API_VERSION, "kind": "Playbook", "metadata": {"name": "formula"}, "spec": part}
    path.write_text(yaml.safe_dump(made))
    assert run_validate(path, as_json=False) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f": {where}: {what}. Use s3://" in line
