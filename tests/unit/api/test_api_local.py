"""What a laptop needs: each missing stand-in names its flag."""

from __future__ import annotations

import pytest

from combee.api.load import parse_runs
from combee.api.local import Given, check_local
from combee.errors import ManifestError, NotAvailableError, UserError

RUN = """\
apiVersion: combee.dev/v1alpha1
kind: PromptLearningRun
metadata: {name: small}
spec:
  task:
    type: Formula
    data: {train: TRAIN, heldOut: {uri: b.jsonl}}
  method: {type: ACE}
  engines: [{name: main, vllm: {model: m}}]
  models:
    task: {engineRef: {name: main}}
    proposer:
      endpoint: {url: "https://h/v1", model: m, apiKeySecretRef: {name: deepseek, key: token}}
"""
ENGINES, SECRETS = {"main"}, {"deepseek/token"}


def check(
    text: str = RUN, train: str = "{uri: a.jsonl}", *, engines: set[str] = ENGINES,
     secrets: set[str] = SECRETS,
    data: frozenset[str] = frozenset(),
) -> None:  # fmt: skip
    run = parse_runs(text.replace("TRAIN", train), "x")[0]
    given = Given(engines=frozenset(engines), secrets=frozenset(secrets), data=data)
    check_local(run, given)


@pytest.mark.parametrize(
    "uri", ["a.jsonl", "../d/a.jsonl", "/abs/a.jsonl", "file:///abs/a.jsonl", "file:a.jsonl"]
)
def test_local_files_and_all_stand_ins_are_enough(uri: str) -> None:
    check(train=f"{{uri: '{uri}'}}")


CLUSTER_DATA = [
    ("{configMap: {name: c, key: k}}", "spec.task.data.train.configMap", ManifestError),
    ("{pvc: {claimName: c, path: a.jsonl}}", "spec.task.data.train.pvc", ManifestError),
    ("{uri: 'gs://b/k'}", "spec.task.data.train.uri", NotAvailableError),
    ("{uri: 'az://b/k'}", "spec.task.data.train.uri", NotAvailableError),
]


@pytest.mark.parametrize(("train", "where", "kind"), CLUSTER_DATA)
def test_cluster_data_need_a_file(train: str, where: str, kind: type[UserError]) -> None:
    with pytest.raises(kind) as caught:
        check(train=train)
    assert caught.value.where == where
    assert "--data train=PATH" in str(caught.value)
    check(train=train, data=frozenset({"train"}))


@pytest.mark.parametrize("uri", ["s3://b/k", "https://h/k", "S3://b/k"])
def test_addresses_of_s3_and_https_are_read_here_too(uri: str) -> None:
    check(train=f"{{uri: '{uri}'}}")


ADDRESS_SECRETS = [("s3", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]), ("https", ["TOKEN"])]


@pytest.mark.parametrize(("scheme", "keys"), ADDRESS_SECRETS)
def test_the_secret_of_an_address_needs_a_variable_for_each_key(scheme: str, keys: list[str]) -> None:
    train, given = f"{{uri: '{scheme}://h/k', secretRef: {{name: mine}}}}", set(SECRETS)
    for key in keys:
        with pytest.raises(ManifestError) as caught:
            check(train=train, secrets=given)
        assert caught.value.where == "spec.task.data.train.secretRef"
        assert f"--secret mine/{key}=env:VAR" in str(caught.value)
        given.add(f"mine/{key}")
    check(train=train, secrets=given)
    check(train=train, data=frozenset({"train"}))


def test_an_engine_needs_a_server() -> None:
    with pytest.raises(ManifestError, match="--engine main=URL") as caught:
        check(engines=set())
    assert caught.value.where == "spec.models.task.engineRef"


def test_a_secret_needs_a_variable() -> None:
    with pytest.raises(ManifestError, match="--secret deepseek/token=env:VAR") as caught:
        check(secrets=set())
    assert caught.value.where == "spec.models.proposer.endpoint.apiKeySecretRef"
    assert "deepseek" not in caught.value.what


def test_an_initial_playbook_in_a_configmap_needs_a_file() -> None:
    text = RUN.replace(
        "type: Formula\n", "type: Formula\n    initialPlaybook: {configMap: {name: c, key: k}}\n"
    )
    with pytest.raises(ManifestError, match="--data initialPlaybook=PATH"):
        check(text)
    check(text, data=frozenset({"initialPlaybook"}))


WRONG_FLAGS = [
    ({"engines": {"main", "mian"}}, "--engine mian", "Engines of small: main"),
    ({"data": frozenset({"valid"})}, "--data valid", "Splits here: train, heldOut"),
    ({"secrets": {"deepseek/token", "deepseek"}}, "--secret deepseek", "NAME/KEY"),
]


@pytest.mark.parametrize(("flags", "where", "words"), WRONG_FLAGS)
def test_a_flag_that_stands_for_nothing_is_refused(
    flags: dict[str, set[str]], where: str, words: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        check(**flags)  # type: ignore[arg-type]
    assert caught.value.where == where
    assert words in str(caught.value)


def test_a_suspended_run_is_not_run() -> None:
    with pytest.raises(ManifestError, match=r"spec\.suspend"):
        check(RUN + "  suspend: true\n")


REF = RUN.replace("vllm: {model: m}", "ref: {kind: LLMInferenceService, name: qwen}")


@pytest.mark.parametrize(
    ("text", "engines", "what", "flag"),
    [
        (REF, set(), "engine 'main' is LLMInferenceService qwen of a cluster", "--engine main=URL"),
        (REF, {"main"}, "qwen of a cluster, which alone can tell its model", "--engine-model main=MODEL"),
        (REF.replace("name: qwen", "name: qwen, model: m"), {"main"}, "", ""),
    ],
)
def test_a_server_of_a_cluster_needs_one_that_stands_for_it(
    text: str, engines: set[str], what: str, flag: str
) -> None:
    if not what:
        check(text, engines=engines)
        return
    with pytest.raises(ManifestError, match=what) as caught:
        check(text, engines=engines)
    assert caught.value.where == "spec.models.task.engineRef" and flag in str(caught.value)
