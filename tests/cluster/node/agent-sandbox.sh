#!/usr/bin/env bash
# agent-sandbox on this node: `make agent-sandbox SANDBOX=DIR`.
#   agent-sandbox.sh release DIR [SOURCE]   writes DIR/manifests.yaml and DIR/image.tar from a checkout of agent-sandbox, or without
#                                           one from its Go module; Go 1.26 or newer, and this node's buildah and kubectl
#   agent-sandbox.sh up DIR                 loads DIR/image.tar, applies DIR/manifests.yaml, and waits until its API answers
#   agent-sandbox.sh down DIR               removes what that installed
source "$(dirname "$0")/settings.sh"

DIR=$(realpath -m "${2:?the folder with manifests.yaml and image.tar of a release of agent-sandbox}")
VERSION=0.5.6
IMAGE=localhost/agent-sandbox
export PATH=$PROGRAMS:$PATH CGO_ENABLED=0

release() {
  local program work=$DIR/.work source=${1:-}
  for program in go kubectl buildah; do
    command -v $program >/dev/null || die "$program is missing: make cluster brings kubectl and buildah"
  done
  rm -rf "$work" && mkdir -p "$work/image"
  [ -n "$source" ] || source=$(cd "$work" && go mod download -json "sigs.k8s.io/agent-sandbox@v$VERSION" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
  [ -f "$source/k8s/kustomization.yaml" ] ||
    die "no source of agent-sandbox $VERSION: where its Go module cannot be had, name the folder of a checkout"
  cp -r "$source" "$work/source" && chmod -R u+w "$work/source"

  say "building agent-sandbox (minutes)"
  (cd "$work/source" && go build -trimpath -ldflags "-s -w" -o "$work/image/controller" ./cmd/agent-sandbox-controller)
  mkdir -m 1777 "$work/image/tmp" # where it writes its certificate
  printf 'FROM scratch\nCOPY controller /controller\nCOPY --chown=65532:65532 tmp /tmp\nUSER 65532:65532\nENTRYPOINT ["/controller"]\n' \
    >"$work/image/Dockerfile"
  builder() { buildah --root "$work/store" --runroot "$work/run" --storage-driver vfs "$@"; }
  builder build -q --isolation chroot -t "$IMAGE:$VERSION" "$work/image" >/dev/null
  rm -f "$DIR/image.tar"
  builder push -q "$IMAGE:$VERSION" "oci-archive:$DIR/image.tar:$IMAGE:$VERSION"
  kubectl kustomize "$work/source/k8s" | sed -E "s,image: ko://.*,image: $IMAGE:$VERSION," >"$DIR/manifests.yaml.part"
  mv "$DIR/manifests.yaml.part" "$DIR/manifests.yaml"
  rm -rf "$work"
}

released() {
  local file
  for file in manifests.yaml image.tar; do
    [ -f "$DIR/$file" ] || die "$DIR/$file is missing: agent-sandbox.sh release $DIR makes it"
  done
  export KUBECONFIG=$ADMIN
}

# Its webhook converts what is made in the version before: until it answers, that fails.
answers() {
  kubectl create --dry-run=server -f - >/dev/null 2>&1 <<'POOL'
apiVersion: extensions.agents.x-k8s.io/v1alpha1
kind: SandboxWarmPool
metadata: {name: probe, namespace: default}
spec: {replicas: 0, sandboxTemplateRef: {name: probe}}
POOL
}

up() {
  released
  ctr -a "$SOCKET" -n k8s.io images import "$DIR/image.tar" >/dev/null
  kubectl apply --server-side --force-conflicts -f "$DIR/manifests.yaml" >/dev/null
  kubectl -n agent-sandbox-system rollout status deployment/agent-sandbox-controller --timeout=180s >&2
  local end=$((SECONDS + 120))
  until answers; do
    [ $SECONDS -lt $end ] || die "agent-sandbox does not answer: kubectl -n agent-sandbox-system logs deploy/agent-sandbox-controller"
    sleep 0.5
  done
  say "agent-sandbox is up: $(kubectl -n agent-sandbox-system get deployment agent-sandbox-controller -o jsonpath='{.spec.template.spec.containers[0].image}')"
}

down() {
  released
  local kind
  for kind in sandboxclaims sandboxwarmpools sandboxtemplates; do
    kubectl delete "$kind.extensions.agents.x-k8s.io" --all --all-namespaces --timeout=60s >/dev/null 2>&1 || true
  done
  kubectl delete --ignore-not-found --timeout=120s -f "$DIR/manifests.yaml" >/dev/null
}

case ${1:-} in
release) release "${3:-}" ;;
up | down) "$1" ;;
*) die "say agent-sandbox.sh release DIR [SOURCE], up DIR or down DIR" ;;
esac
