#!/usr/bin/env bash
# From nothing to a learned playbook on a real Kubernetes: `make demo-cluster`. Brings the test node up (or uses
# KUBECONFIG's cluster), installs the chart, applies the quickstart, shows it live, and says what to look at next.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=$(cd "${BIN:-.venv/bin}" && pwd)
OUT=${OUT:-out/demo-cluster}
NAMESPACE=${NAMESPACE:-combee-demo}
NODE=tests/cluster/node
WAIT_SECONDS=${WAIT_SECONDS:-900}
bold='' plain='' begun=$SECONDS
[ ! -t 1 ] || { bold=$(tput bold 2>/dev/null || true) plain=$(tput sgr0 2>/dev/null || true); }

say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
show() { printf '  $ %s\n' "$*"; }
in_namespace() { kubectl -n "$NAMESPACE" "$@"; }

say "1. A cluster"
"$NODE/node.sh" up
own=$([ -n "${KUBECONFIG:-}" ] || echo yes)
eval "$("$NODE/node.sh" env)"
export PATH=$BIN:$PATH
show kubectl get nodes
kubectl get nodes

say "2. The operator, for the namespace $NAMESPACE, which admits restricted pods only"
kubectl create namespace "$NAMESPACE" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
kubectl label --overwrite namespace "$NAMESPACE" pod-security.kubernetes.io/enforce=restricted >/dev/null
flags=(--namespace combee-system --create-namespace --take-ownership --wait --timeout 240s
  --set "namespaces={$NAMESPACE}" --set store.create=false --set 'engineImages={localhost/combee-sim}')
show helm upgrade --install combee charts/combee-operator --namespace combee-system --set "'namespaces={$NAMESPACE}' ..."
there=$(kubectl -n combee-system get deployment combee-operator --ignore-not-found -o name)
helm upgrade --install combee charts/combee-operator "${flags[@]}" >/dev/null
# The images of a working copy keep their tag, whatever is in them.
[ -z "$there" ] || kubectl -n combee-system rollout restart "$there" >/dev/null
kubectl -n combee-system rollout status deployment/combee-operator --timeout=120s | tail -n 1
kubectl -n combee-system get pods

say "3. The quickstart: 120 real rows, a simulated model, no GPU"
# An earlier demo's results are in its claim: with them there would be nothing left to ask.
in_namespace delete -f examples/quickstart.yaml --ignore-not-found --timeout=120s >/dev/null
show kubectl -n "$NAMESPACE" apply -f examples/quickstart.yaml
in_namespace apply -f examples/quickstart.yaml

say "4. Live, until it is over"
show kubectl combee status quickstart -n "$NAMESPACE"
timeout --foreground "$WAIT_SECONDS" kubectl combee status quickstart -n "$NAMESPACE" --watch || true
phase=$(in_namespace get plr quickstart -o 'jsonpath={.status.phase}')
if [ "$phase" != Learned ]; then
  kubectl combee why quickstart -n "$NAMESPACE"
  exit 1
fi

say "5. What it learned (numbers of a simulated model)"
in_namespace get plr
rm -rf "$OUT"
show kubectl combee report quickstart -n "$NAMESPACE" -o "$OUT"
kubectl combee report quickstart -n "$NAMESPACE" -o "$OUT" >/dev/null
show kubectl combee playbook quickstart -n "$NAMESPACE"
kubectl combee playbook quickstart -n "$NAMESPACE" | cut -c1-130 | sed -n '1,14p;15s/.*/.../p'

say "Done in $(((SECONDS - begun) / 60)) min $(((SECONDS - begun) % 60)) s. Look at"
[ -z "$own" ] || printf '  %-64s %s\n' 'eval "$(make -s cluster-env)"; export PATH=$PWD/.venv/bin:$PATH' "kubectl, helm and kubectl combee for this node"
printf '  %-64s %s\n' \
  "$OUT/report.html" "the whole story, with figures" \
  "kubectl -n $NAMESPACE describe plr quickstart" "its conditions and Events" \
  "kubectl -n $NAMESPACE get jobs" "map, reduce and finish of each iteration" \
  "kubectl combee logs quickstart -n $NAMESPACE" "what its pods said" \
  "examples/" "the same with GPUs, an endpoint, S3, a queue, GitOps"
[ -z "$own" ] || printf '  %-64s %s\n' "make cluster-down" "takes the node away"
