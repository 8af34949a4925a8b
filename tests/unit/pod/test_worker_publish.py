"""publish against an API server that speaks TLS: made, found made, refused, too large."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from answering import Request
from combee.api.method_options import AceOptions, Retrieval
from combee.api.methods import Method
from combee.clients.store.store import Store
from combee.errors import ArtifactTooLargeError
from combee.methods.ace import AceMethod
from combee.methods.content import leak_corpus, refusals_of
from combee.methods.findings import Finding, findings_json
from combee.methods.gepa import GepaMethod
from combee.methods.protocol import Refusal, Update
from combee.names import published_name
from combee.objects.playbooks import shown
from combee.observe.playbooks import read_content
from combee.plan.cluster.published import told_digests
from combee.plan.gatescores import GateScores
from combee.plan.types import Step, StepSummary
from combee.pod import publish
from combee.pod.configmaps import ACCOUNT_FOLDER
from combee.pod.environment import Pod, read_pod
from combee.pod.log import PodLog
from combee.settings import WorkerSettings
from combee.work.context import encoded_receipt
from tls_server import TlsServer

MODEL = {"endpoint": {"url": "http://localhost:1/v1", "model": "m"}}
RUN = {
    "apiVersion": "combee.dev/v1alpha1",
    "kind": "PromptLearningRun",
    "metadata": {"name": "formula", "namespace": "team", "uid": "3fa9c1d2-0000"},
    "spec": {
        "task": {
            "type": "Formula",
            "data": {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}},
            "metric": "exact",
            "passK": {"k": 2, "rollouts": 3},
        },
        "method": {"type": "ACE"},
        "models": {"task": MODEL, "proposer": MODEL},
    },
}
SCORES = {"1": 0.0, "2": 1.0, "3": 0.5}, {"1": 1.0, "2": 1.0, "3": 0.25}
NOTES = "## general\n- Divide first.\n"


@pytest.fixture
def pod(tls: TlsServer, tmp_path: Path) -> Pod:
    artifact = AceMethod().initial(NOTES).to_json()
    digest = Store.open(str(tmp_path / "store")).put_blob(artifact)
    params = {
        "playbook": "formula",
        "digest": digest,
        "name": published_name("formula", digest),
        "heldOut": "ab" * 32,
        "train": "cd" * 32,
    }
    store = Store.open(str(tmp_path / "store"))
    scores = store.put_blob(json.dumps({"baseline": SCORES[0], "best": SCORES[1]}).encode())
    record = store.put_blob(json.dumps({"gate": {}, "scores": {"gate": scores}}).encode())
    inputs = {"artifact": digest, "record": record}
    step = Step("formula-3fa9c1d2-i002-publish-a0", "publish", 2, 7, inputs=inputs, params=params)
    (tmp_path / "dev").mkdir()
    (tmp_path / "etc/combee/run").mkdir(parents=True)
    (tmp_path / "etc/combee/run/run.json").write_text(json.dumps(RUN))
    account = tmp_path / ACCOUNT_FOLDER.lstrip("/")
    account.mkdir(parents=True)
    (account / "token").write_text("the-token\n")
    (account / "ca.crt").write_bytes(tls.ca_file.read_bytes())
    settings = WorkerSettings(
        root=tmp_path,
        step=json.dumps({**vars_of(step)}),
        address="",
        shard=0,
        store="/store",
        engines="{}",
        api_server=f"localhost:{tls.port}",
        log_level="INFO",
    )
    return read_pod(settings)


def vars_of(step: Step) -> dict:
    return {name: getattr(step, name) for name in ("name", "kind", "iteration", "seed", "inputs", "params")}


def published(pod: Pod, capsys: pytest.CaptureFixture[str]) -> tuple[int, StepSummary, str]:
    code = publish.run(pod, PodLog())
    summary = StepSummary.decode((pod.settings.root / "dev/termination-log").read_bytes())
    assert summary is not None and summary.step == pod.step.name
    said = capsys.readouterr().err
    assert "the-token" not in said + str(summary) and "Divide first" not in said
    return code, summary, said


def test_the_text_of_what_was_refused_for_it_stays_in_the_store(
    pod: Pod, tls: TlsServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    method = AceMethod()
    update = Update("ADD", "general", "Ask jane.doe@example.com.", sources=frozenset({"1@0"}))
    ledger = method.apply(method.initial(NOTES), [update], [], iteration=0, ids={})
    rows = leak_corpus([])
    refusals = [one for digest, text in ledger.texts.items() for one in refusals_of(digest, text, rows)]
    artifact = method.with_refusals(ledger, refusals).to_json()
    assert [one.kind for one in refusals] == ["leak"] and b"jane.doe" in artifact
    digest = Store.open(str(tmp_path / "store")).put_blob(artifact)
    params = pod.step.params | {"digest": digest, "name": published_name("formula", digest)}
    step = replace(pod.step, inputs=pod.step.inputs | {"artifact": digest}, params=params)
    tls.answer = lambda request: (201, {}, b"{}")
    code, _, _ = published(replace(pod, step=step), capsys)
    (asked,) = tls.asked
    assert code == 0 and b"jane.doe" not in asked.body
    data = json.loads(asked.body)["data"]
    assert "Divide first." in data["artifact.json"] and "Divide first." in data["prompt.md"]
    assert "gate.json" in data


def test_a_pool_with_the_text_of_what_was_refused_for_it_stays_in_the_store_whole() -> None:
    method = GepaMethod()
    pool = method.with_refusals(
        method.initial("Divide."), [Refusal("a" * 64, "b" * 64, "leak", "an address")]
    )
    rendered = method.render(pool, budget_tokens=100, verify="Off")
    assert method.handed_on(pool, rendered, by="formula", train="ab" * 32) == b""
    pool = method.initial("Divide.")
    assert method.handed_on(pool, rendered, by="formula", train="ab" * 32) == pool.to_json()


def test_it_makes_an_immutable_object_without_owner(
    pod: Pod, tls: TlsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    tls.answer = lambda request: (201, {}, b"{}")
    code, summary, _ = published(pod, capsys)
    name, digest = str(pod.step.params["name"]), str(pod.step.params["digest"])
    assert (code, summary.error) == (0, "")
    digests = told_digests(summary.outputs)
    assert {"configMap": name, "digest": digest}.items() <= summary.outputs.items()
    assert len(summary.outputs) == 2 + len(digests)
    (asked,) = tls.asked
    data = json.loads(asked.body)["data"]
    assert digests == {key: hashlib.sha256(text.encode()).hexdigest() for key, text in data.items()}
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/team/configmaps")
    assert asked.headers["Authorization"] == "Bearer the-token"
    made = json.loads(asked.body)
    assert made["immutable"] is True and "ownerReferences" not in made["metadata"]
    assert made["metadata"]["labels"]["combee.dev/playbook"] == "formula"
    assert "combee.dev/run" not in made["metadata"]["labels"]
    shown = publish.rendered(pod, made["data"]["artifact.json"].encode()).text
    assert "Divide first." in shown and shown.endswith("\n")
    assert made["data"]["prompt.md"] == shown.strip(), "as agents are shown it"
    handed_on = AceMethod().from_json(made["data"]["artifact.json"].encode())
    assert [(one.number, one.name, one.train) for one in handed_on.runs] == [(1, "formula", "cdcdcdcd")]
    gate = GateScores.from_json(made["data"]["gate.json"])
    assert (gate.held_out, gate.scored_by) == ("ab" * 32, "exact, pass^2 of 3 rollouts")
    assert sorted(gate.best.values()) == [0.25, 1.0, 1.0]
    assert sorted(gate.best[k] - gate.baseline[k] for k in gate.best) == [-0.25, 0.0, 1.0]


def test_what_was_found_in_it_goes_along(
    pod: Pod, tls: TlsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    tls.answer = lambda request: (201, {}, b"{}")
    found = (Finding("leak", "x-1", "it repeats 8 words in a row"),)
    blob = Store.open(str(pod.settings.root / "store")).put_blob(findings_json(found).encode())
    step = replace(pod.step, inputs={**pod.step.inputs, "findings": blob})
    assert published(replace(pod, step=step), capsys)[0] == 0
    made = json.loads(tls.asked[0].body)
    assert read_content(made).findings == found
    assert "findings.json" not in shown(made["data"])


def test_findings_that_cannot_be_read_refuse_the_version() -> None:
    (found,) = read_content({"data": {"prompt.md": NOTES, "findings.json": "[["}}).findings
    assert (found.kind, found.entry) == ("leak", "findings.json") and "cannot be read" in found.reason
    assert read_content({"data": {"prompt.md": NOTES}}).findings == ()


def test_the_run_applied_once_more_publishes_the_same_bytes(
    pod: Pod, tls: TlsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    tls.answer = lambda request: (201, {}, b"{}")
    _, first, _ = published(pod, capsys)
    metadata = RUN["metadata"] | {"uid": "0b1c2d3e-0000"}
    (pod.settings.root / "etc/combee/run/run.json").write_text(json.dumps(RUN | {"metadata": metadata}))
    pod = read_pod(pod.settings)
    assert pod.uid == "0b1c2d3e-0000"
    _, again, _ = published(pod, capsys)
    assert told_digests(again.outputs) == told_digests(first.outputs)


@pytest.mark.parametrize("same", [True, False])
def test_one_that_is_there_already_is_as_good_when_it_is_the_same(
    pod: Pod, tls: TlsServer, capsys: pytest.CaptureFixture[str], same: bool
) -> None:
    def answer(request: Request) -> tuple[int, dict[str, str], bytes]:
        if request.method == "POST":
            return 409, {}, b"{}"
        data = json.loads(tls.asked[0].body)["data"] if same else {"prompt.md": "other"}
        data |= {"gate.json": "learned elsewhere, from another start", "artifact.json": "by another run"}
        return 200, {}, json.dumps({"data": data}).encode()

    tls.answer = answer
    code, summary, _ = published(pod, capsys)
    assert code == 0 and summary.error == ("" if same else "UserError")
    assert same or "exists with other content" in summary.message
    assert tls.asked[1].path.endswith(f"/configmaps/{pod.step.params['name']}")


def test_a_refusal_says_what_to_do(pod: Pod, tls: TlsServer, capsys: pytest.CaptureFixture[str]) -> None:
    tls.answer = lambda request: (403, {}, b'{"message": "configmaps is forbidden"}')
    code, summary, _ = published(pod, capsys)
    assert code == 0 and "forbidden" in summary.message and "chart's Role" in summary.message


def test_a_server_that_is_busy_is_asked_again(
    pod: Pod, tls: TlsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    tls.answer = lambda request: (201, {}, b"{}") if len(tls.asked) > 1 else (503, {"Retry-After": "0"}, b"")
    assert published(pod, capsys)[0] == 0
    assert len(tls.asked) == 2


def test_a_playbook_over_the_limit_is_too_large_and_an_artifact_over_it_is_left_out() -> None:
    def keys(text: str, artifact: bytes, gate: str = "", type: str = "ACE") -> set[str]:
        return set(publish.content(text, artifact, gate, method=Method(type=type)))

    assert keys("x" * 100, b"y" * 100) == {"prompt.md", "artifact.json"}
    assert keys("x" * 100, b"y" * publish.MAX_BYTES) == {"prompt.md"}
    assert keys("x", b"y" * 100, "z" * publish.MAX_BYTES) == {"prompt.md", "artifact.json"}
    assert keys("x", b"y" * publish.MAX_BYTES, "z" * 100) == {"prompt.md", "gate.json"}
    with pytest.raises(ArtifactTooLargeError, match=r"method\.ace\.renderTokenBudget"):
        keys("x" * (publish.MAX_BYTES + 1), b"")
    with pytest.raises(ArtifactTooLargeError, match=r"method\.gepa\.renderTokenBudget"):
        keys("x" * (publish.MAX_BYTES + 1), b"", type="GEPA")


def test_a_text_that_is_not_of_ace_says_whose_it_is() -> None:
    found = publish.content("Round late.", b"{}", method=Method(type="GEPA"))
    assert found == {"prompt.md": "Round late.", "method": "GEPA", "artifact.json": "{}"}
    assert shown({**found, "gate.json": "{}"}) == found


def test_how_much_one_question_is_shown_is_published_where_something_is_left_out() -> None:
    retrieval = Retrieval.model_validate({"coreTokens": 10, "tailTokens": 50})
    method = Method(type="ACE", ace=AceOptions(retrieval=retrieval))
    found = publish.content("x" * 300, b"{}", method=method)
    assert Retrieval.model_validate_json(found["retrieval.json"]) == retrieval
    assert shown(found)["retrieval.json"] == found["retrieval.json"]
    assert "retrieval.json" not in publish.content("x" * 240, b"{}", method=method)


def test_several_components_are_published_by_name_too() -> None:
    parts = [("ask", "Round late."), ("check", "Check units.")]
    found = publish.content("# ask", b"{}", method=Method(type="GEPA"), components=parts)
    assert json.loads(found["prompt.json"]) == dict(parts)
    assert shown(found)["prompt.json"] == found["prompt.json"]
    alone = publish.content("Round late.", b"{}", method=Method(type="GEPA"), components=parts[:1])
    assert "prompt.json" not in alone


def test_a_missing_artifact_is_the_steps_error(
    pod: Pod, tls: TlsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = str(pod.step.params["digest"])
    (pod.settings.root / f"store/blobs/{digest[:2]}/{digest}").unlink()
    code, summary, _ = published(pod, capsys)
    assert (code, summary.error) == (0, "Damaged") and tls.asked == []


def test_a_damaged_artifact_names_the_step_that_wrote_it(
    pod: Pod, tls: TlsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its next attempt makes it again."""
    store, digest = Store.open(str(pod.settings.root / "store")), pod.step.params["digest"]
    writer = "formula-3fa9c1d2-i001-finish-a0"
    path = f"runs/formula-3fa9c1d2/steps/{writer}/00000.manifest.json"
    store.put(path, encoded_receipt(StepSummary(writer, "finish", outputs={"artifact": digest}), path))
    file = f"blobs/{digest[:2]}/{digest}"
    store.put(file, b"{}")
    code, summary, log = published(pod, capsys)
    assert (code, summary.error, dict(summary.outputs)) == (0, "Damaged", {"damaged": file, "writer": writer})
    assert f"It is made again from the memo: {writer} has another attempt" in log
