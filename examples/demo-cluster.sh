#!/usr/bin/env bash
# From nothing to a learned playbook on a real Kubernetes: `make demo-cluster`. Brings the test node up (or uses
# KUBECONFIG's cluster), installs the chart, applies the quickstart, watches it, and says what to look at next.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}
NAMESPACE=${NAMESPACE:-combee-demo}
NODE=tests/cluster/node
WAIT_SECONDS=${WAIT_SECONDS:-900}

say() { printf '\n== %s\n' "$*"; }

say "a cluster"
"$NODE/node.sh" up
eval "$("$NODE/node.sh" env)"
kubectl get nodes

say "the chart, for the namespace $NAMESPACE"
kubectl create namespace "$NAMESPACE" --dry-run=client -o yaml | kubectl apply -f -
kubectl label --overwrite namespace "$NAMESPACE" pod-security.kubernetes.io/enforce=restricted >/dev/null
helm upgrade --install combee charts/combee-operator --namespace combee-system --create-namespace \
  --set "namespaces={$NAMESPACE}" --set store.create=false --set 'engineImages={localhost/combee-sim}' \
  --wait --timeout 180s >/dev/null
kubectl -n combee-system get pods

say "the quickstart: a run with the simulated model"
kubectl -n "$NAMESPACE" apply -f examples/quickstart.yaml
seen="" end=$((SECONDS + WAIT_SECONDS))
while :; do
  now=$(kubectl -n "$NAMESPACE" get plr quickstart --no-headers)
  [ "${now% *}" = "$seen" ] || echo "$now"
  seen=${now% *}
  phase=$(kubectl -n "$NAMESPACE" get plr quickstart -o 'jsonpath={.status.phase}')
  case $phase in Learned | NothingBetter | BudgetExhausted | Failed | Stopped) break ;; esac
  ((SECONDS < end)) || { echo "not over after $WAIT_SECONDS s; see: kubectl -n $NAMESPACE describe plr quickstart"; exit 1; }
  sleep 2
done

say "what happened (numbers of a simulated model)"
kubectl -n "$NAMESPACE" get events --field-selector involvedObject.kind=PromptLearningRun --sort-by=.lastTimestamp \
  -o 'custom-columns=REASON:.reason,MESSAGE:.message' | cut -c1-150
[ "$phase" = Learned ] || { echo "the run ended as $phase"; exit 1; }

config=$(kubectl -n "$NAMESPACE" get plr quickstart -o 'jsonpath={.status.published}')
say "look at"
cat <<TEXT
  eval "\$(make -s cluster-env)"                       # kubectl for this node
  kubectl -n $NAMESPACE describe plr quickstart        # the whole story
  kubectl -n $NAMESPACE get configmap $config -o 'jsonpath={.data.playbook\.md}'   # what was learned
  kubectl -n $NAMESPACE get jobs                       # map, reduce and finish of each iteration
  make cluster-down                                    # takes the node away
TEXT
