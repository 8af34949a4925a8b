#!/usr/bin/env bash
# From nothing to a learned playbook on a real Kubernetes: `make demo-cluster`. Brings the test node up (or uses
# KUBECONFIG's cluster), installs the chart, applies a run, shows it live, and says what to look at next. The run is the
# quickstart with its simulated model; with REAL=1 it is examples/real.yaml, a small real model behind vLLM on the CPU.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=$(cd "${BIN:-.venv/bin}" && pwd)
OUT=${OUT:-out/demo-cluster}
NAMESPACE=${NAMESPACE:-combee-demo}
NODE=tests/cluster/node
WAIT_SECONDS=${WAIT_SECONDS:-900}
run=quickstart what="120 real rows, a simulated model, no GPU" numbers="numbers of a simulated model"
images=() allowed=localhost/combee-sim
if [ -n "${REAL:-}" ]; then
  run=real what="42 questions about an office, SmolLM2-135M behind two vLLM servers, no GPU, no model hub"
  numbers="numbers of a small real model" images=(vllm-cpu smollm2 office) WAIT_SECONDS=3600
  allowed=localhost/combee-vllm-cpu,localhost/combee-smollm2
fi
file=examples/$run.yaml
bold='' plain='' begun=$SECONDS
[ ! -t 1 ] || { bold=$(tput bold 2>/dev/null || true) plain=$(tput sgr0 2>/dev/null || true); }

say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
show() { printf '  $ %s\n' "$*"; }
in_namespace() { kubectl -n "$NAMESPACE" "$@"; }

say "1. A cluster"
"$NODE/node.sh" up
if [ -n "${REAL:-}" ]; then
  echo "building ${images[*]}: five minutes and 20 GB of disk the first time"
  PYTHON=${PYTHON:-$BIN/python} "$NODE/node.sh" images "${images[@]}"
fi
own=$([ -n "${KUBECONFIG:-}" ] || echo yes)
eval "$("$NODE/node.sh" env)"
export PATH=$BIN:$PATH
show kubectl get nodes
kubectl get nodes

say "2. The operator, for the namespace $NAMESPACE, which admits restricted pods only"
kubectl create namespace "$NAMESPACE" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
kubectl label --overwrite namespace "$NAMESPACE" pod-security.kubernetes.io/enforce=restricted >/dev/null
flags=(--namespace combee-system --create-namespace --take-ownership --wait --timeout 240s
  --set "namespaces={$NAMESPACE}" --set store.create=false --set "engineImages={$allowed}" --set "engineArguments={--time-scale}")
[ -z "${REAL:-}" ] || flags+=(--set allowCustomTasks=true)
show helm upgrade --install combee charts/combee-operator --namespace combee-system --set "'namespaces={$NAMESPACE}' ..."
there=$(kubectl -n combee-system get deployment combee-operator --ignore-not-found -o name)
helm upgrade --install combee charts/combee-operator "${flags[@]}" >/dev/null
# The images of a working copy keep their tag, whatever is in them.
[ -z "$there" ] || kubectl -n combee-system rollout restart "$there" >/dev/null
kubectl -n combee-system rollout status deployment/combee-operator --timeout=120s | tail -n 1
kubectl -n combee-system get pods

say "3. The run: $what"
# An earlier demo's results are in its claim: with them there would be nothing left to ask.
in_namespace delete -f "$file" --ignore-not-found --timeout=120s >/dev/null
if [ -n "${REAL:-}" ]; then
  show kubectl -n "$NAMESPACE" create configmap office-rows --from-file=examples/office/train.jsonl --from-file=examples/office/heldout.jsonl
  in_namespace delete configmap office-rows --ignore-not-found >/dev/null
  in_namespace create configmap office-rows --from-file=examples/office/train.jsonl --from-file=examples/office/heldout.jsonl
fi
show kubectl -n "$NAMESPACE" apply -f "$file"
in_namespace apply -f "$file"

say "4. Live, until it is over"
show kubectl combee status $run -n "$NAMESPACE"
timeout --foreground "$WAIT_SECONDS" kubectl combee status $run -n "$NAMESPACE" --watch || true
phase=$(in_namespace get plr "$run" -o 'jsonpath={.status.phase}')
case "$run $phase" in
  # A gain that chance could make is a result, too, and so it is where a small model finds nothing better.
  *" Learned" | *" Unsure" | "real NothingBetter") ;;
  *)
    kubectl combee why "$run" -n "$NAMESPACE"
    exit 1
    ;;
esac

say "5. What it learned ($numbers)"
in_namespace get plr
rm -rf "$OUT"
show kubectl combee report "$run" -n "$NAMESPACE" -o "$OUT"
kubectl combee report "$run" -n "$NAMESPACE" -o "$OUT" >/dev/null
if [ "$phase" != NothingBetter ]; then
  show kubectl combee playbook "$run" -n "$NAMESPACE"
  kubectl combee playbook "$run" -n "$NAMESPACE" | cut -c1-130 | sed -n '1,14p;15s/.*/.../p'
else
  kubectl combee why "$run" -n "$NAMESPACE"
fi

say "Done in $(((SECONDS - begun) / 60)) min $(((SECONDS - begun) % 60)) s. Look at"
[ -z "$own" ] || printf '  %-64s %s\n' 'eval "$(make -s cluster-env)"; export PATH=$PWD/.venv/bin:$PATH' "kubectl, helm and kubectl combee for this node"
printf '  %-64s %s\n' \
  "$OUT/report.html" "the whole story, with figures" \
  "kubectl -n $NAMESPACE describe plr $run" "its conditions and Events" \
  "kubectl -n $NAMESPACE get jobs" "map, reduce and finish of each iteration" \
  "kubectl combee logs $run -n $NAMESPACE" "what its pods said" \
  "examples/" "the same with GPUs, an endpoint, S3, a queue, GitOps"
[ -z "$own" ] || printf '  %-64s %s\n' "make cluster-down" "takes the node away"
