#!/usr/bin/env bash
# Builds the cluster's programs from public Go modules, once per version, into the cache folder; kwok is for the
# pretended nodes of `make scale` and of the suite, and gitops for Go's own cache, in which test_gitops.py finds it.
source "$(dirname "$0")/settings.sh"

# Builds into a folder that only gets its name when it is whole: a killed build leaves nothing that looks finished.
once() {  # once NAME-VERSION FUNCTION ARGUMENTS...
  local folder=$CACHE/$1; shift
  [ -d "$folder" ] && return
  command -v go >/dev/null || die "Go 1.24 or newer is needed to build $(basename "$folder"); see https://go.dev/dl"
  say "building $(basename "$folder") (once; minutes)"
  rm -rf "$folder".part* && mkdir -p "$folder.part"
  ("$@" "$folder.part") >"$CACHE/$(basename "$folder").log" 2>&1 || {
    tail -20 "$CACHE/$(basename "$folder").log" >&2
    die "building $(basename "$folder") failed; the whole log is $CACHE/$(basename "$folder").log"
  }
  rm -rf "$folder.part/.src"
  mv "$folder.part" "$folder"
}

# Kubernetes names its own staging modules by folder, so a module of our own must name them by version.
kubernetes() {
  local out=$1 source=$1/.src staged=v0.${KUBERNETES#1.} module program
  local programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)
  mkdir -p "$source" && cd "$source"
  module=$(go mod download -json "k8s.io/kubernetes@v$KUBERNETES" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
  {
    printf 'module cluster\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$KUBERNETES"
    sed -nE "s,^\s*(k8s.io/[a-z-]+) => ./staging.*,\t\1 => \1 $staged,p" "$module"
    printf ')\n'
  } >go.mod
  {
    printf '//go:build tools\n\npackage tools\n\nimport (\n'
    for program in "${programs[@]}"; do printf '\t_ "k8s.io/kubernetes/cmd/%s"\n' "$program"; done
    printf ')\n'
  } >tools.go
  go mod tidy -e
  local key=k8s.io/component-base/version
  go build -o "$out/" -ldflags "-s -w -X $key.gitVersion=v$KUBERNETES
    -X $key.gitMajor=1 -X $key.gitMinor=$(cut -d. -f2 <<<"$KUBERNETES")" "${programs[@]/#/k8s.io/kubernetes/cmd/}"
}

# etcd names its own modules by folder, too.
etcd() {
  local out=$1 source=$1/.src
  mkdir -p "$source" && cd "$source"
  printf 'module etcd\n\ngo 1.24.0\n\nrequire go.etcd.io/etcd/server/v3 v%s\n' "$ETCD" >go.mod
  printf '//go:build tools\n\npackage tools\n\nimport _ "go.etcd.io/etcd/server/v3"\n' >tools.go
  go mod tidy -e
  go build -ldflags "-s -w" -o "$out/etcd" go.etcd.io/etcd/server/v3
}

module() {  # module PACKAGE@VERSION FOLDER
  GOBIN=$2 go install -ldflags "-s -w ${FLAGS:-}" "$1"
}

# Away from a cluster (`helm template`, `helm lint`) helm takes for granted what it was built with: 1.20 without these.
helm() {
  local minor key=helm.sh/helm/v3/pkg
  minor=$(cut -d. -f2 <<<"$KUBERNETES")
  FLAGS="-X $key/chartutil.k8sVersionMajor=1 -X $key/chartutil.k8sVersionMinor=$minor
    -X $key/lint/rules.k8sVersionMajor=1 -X $key/lint/rules.k8sVersionMinor=$minor" module "helm.sh/helm/v3/cmd/helm@v$HELM" "$1"
}

# With no flags, as test_gitops.py builds it, which finds all parts in Go's cache.
gitops() { cd "$HERE/../gitops" && env -u GOFLAGS -u CGO_ENABLED go build -o "$1/health" .; }

programs() {
  once "kubernetes-$KUBERNETES" kubernetes
  once "etcd-$ETCD" etcd
  once "coredns-$COREDNS" module "github.com/coredns/coredns@v$COREDNS"
  once "minio-$MINIO" module "github.com/minio/minio@v$MINIO"
  once "helm-$HELM-for-$KUBERNETES" helm
  once "kwok-$KWOK" module "sigs.k8s.io/kwok/cmd/kwok@v$KWOK"
  once "gitops-$(cat "$HERE"/../gitops/* | sha256sum | cut -c1-12)" gitops
}

# Compilers spend a third of their time on collecting garbage and on what only a debugger reads.
export GOGC=400 CGO_ENABLED=0 GOFLAGS="-trimpath -gcflags=all=-dwarf=false"
mkdir -p "$CACHE"
locked build programs
