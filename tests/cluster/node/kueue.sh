#!/usr/bin/env bash
# Kueue on this node, from a folder with what a release of it consists of: `make kueue KUEUE=DIR`.
#   kueue.sh up DIR     loads DIR/image.tar, an OCI or Docker archive that names the image as DIR/manifests.yaml does, and applies that
#   kueue.sh down DIR   removes what that installed
source "$(dirname "$0")/settings.sh"

RELEASE=${2:?the folder with manifests.yaml and image.tar of a release of Kueue}
for file in manifests.yaml image.tar; do
  [ -f "$RELEASE/$file" ] || die "$RELEASE/$file is missing: KUEUE=DIR is a folder with manifests.yaml and image.tar of a release of Kueue"
done
export PATH=$PROGRAMS:$PATH KUBECONFIG=$ADMIN

# As they are, but for the image, which is here and nowhere else, and for room on a small node.
manifests() { sed -E 's,imagePullPolicy: (Always|IfNotPresent),imagePullPolicy: Never,; s,cpu: 500m,cpu: 100m,' "$RELEASE/manifests.yaml"; }

# Its webhooks answer: one that does not would refuse whatever it is asked about.
answers() {
  kubectl create --dry-run=server -f - >/dev/null 2>&1 <<'FLAVOR'
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: probe}
FLAVOR
}

up() {
  ctr -a "$SOCKET" -n k8s.io images import "$RELEASE/image.tar" >/dev/null
  manifests | kubectl apply --server-side --force-conflicts -f - >/dev/null
  kubectl -n kueue-system rollout status deployment/kueue-controller-manager --timeout=180s >&2
  local end=$((SECONDS + 120))
  until answers; do
    [ $SECONDS -lt $end ] || die "Kueue's webhooks do not answer: kubectl -n kueue-system logs deploy/kueue-controller-manager"
    sleep 0.5
  done
  # Nothing here asks what waits by this API, and the node's discovery of it is stale: no namespace would go meanwhile.
  kubectl delete apiservice --ignore-not-found v1beta{1,2}.visibility.kueue.x-k8s.io >/dev/null
  say "Kueue is up: $(kubectl -n kueue-system get deployment kueue-controller-manager -o jsonpath='{.spec.template.spec.containers[0].image}')"
}

down() {
  # First what its manager must let go of, then the manager with its webhooks.
  local kind
  for kind in workloads localqueues; do kubectl delete "$kind.kueue.x-k8s.io" --all --all-namespaces --timeout=60s >/dev/null 2>&1 || true; done
  for kind in clusterqueues resourceflavors workloadpriorityclasses; do kubectl delete "$kind.kueue.x-k8s.io" --all --timeout=60s >/dev/null 2>&1 || true; done
  manifests | kubectl delete --ignore-not-found --timeout=120s -f - >/dev/null
}

case ${1:-} in
up | down) "$1" ;;
*) die "say kueue.sh up DIR or down DIR" ;;
esac
