# shellcheck shell=bash disable=SC2034
# What the other scripts here share: versions, folders, addresses, three helpers. Sourced, never run.
# What can be chosen is a variable of the environment named COMBEE_CLUSTER_*.
set -euo pipefail
umask 022

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(cd "$HERE/../../.." && pwd)

CACHE=${COMBEE_CLUSTER_CACHE:-/var/cache/combee-cluster} # what is built once, by version; kept by `make cluster-down`
STATE=${COMBEE_CLUSTER_STATE:-/var/tmp/combee-cluster}   # all of one cluster; removed by `make cluster-down`
LOG=$STATE/log
PKI=$STATE/pki
ADMIN=$STATE/admin.conf
SOCKET=$STATE/containerd.sock

KUBERNETES=1.34.4 # the last minor release that runs on cgroup v1, which many small virtual machines still have
ETCD=3.6.5 # older ones than 3.5.13 make the API server read all there is for each list, whatever is asked for
COREDNS=1.15.0
MINIO=0.0.0-20260212201848-7aac2a2c5b7c # its releases' names are no Go versions, so it is named by commit
HELM=3.19.4
KWOK=0.7.0

NODE=node1
CGROUP=$(basename "$STATE")
BRIDGE=combee0 # has no port: it only carries the node's address, since a bare machine may have no `dummy` device
ADDRESS=10.250.0.1
POD_CIDR=10.244.0.0/24
SERVICE_CIDR=10.96.0.0/16
API_IP=10.96.0.1
DNS_IP=10.96.0.10
API_PORT=6443
ETCD_PORT=12379
DNS_READY_PORT=18181
MINIO_PORT=9000
MINIO_USER=combee-test
MINIO_PASSWORD=combee-test-secret
MINIO_BUCKET=combee
GPUS=8

BIN=$CACHE/kubernetes-$KUBERNETES
PROGRAMS=$BIN:$CACHE/etcd-$ETCD:$CACHE/coredns-$COREDNS:$CACHE/minio-$MINIO:$CACHE/helm-$HELM-for-$KUBERNETES:$CACHE/kwok-$KWOK

say() { echo "cluster: $*" >&2; }

die() {
  say "$@"
  exit 1
}

# locked NAME COMMAND...: waits for whoever else builds or changes the same thing on this machine.
locked() {
  local name=$1
  shift
  mkdir -p "$CACHE"
  (
    flock 9
    "$@"
  ) 9>"$CACHE/.$name.lock"
}
