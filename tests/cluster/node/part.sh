#!/usr/bin/env bash
# One program of the cluster at a time, as systemd would do it; tests break the cluster with it.
#   part.sh start|stop|kill|pids|log NAME
# kill is SIGKILL, log prints the name of its log; NAME is one of PARTS below, or `shims`, which containerd starts.
# A part is found by its program's name and our state folder in its command line, not by a file that may be
# stale: what an earlier life left behind when it was killed without a word is found as well.
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

PARTS=(etcd apiserver controllers scheduler containerd kubelet proxy coredns minio volumes)

program() { # program PART: the name of its executable
  case $1 in
    apiserver) echo kube-apiserver ;;
    controllers) echo kube-controller-manager ;;
    scheduler) echo kube-scheduler ;;
    proxy) echo kube-proxy ;;
    volumes) echo volumes.sh ;;
    shims) echo containerd-shim-runc-v2 ;;
    *) echo "$1" ;;
  esac
}

pids() { # pids PART: the processes of this part that belong to this state folder
  local name pid argv
  name=$(program "$1")
  for pid in /proc/[0-9]*; do
    { mapfile -d '' -t argv <"$pid/cmdline"; } 2>/dev/null || continue
    [ "${#argv[@]}" -gt 1 ] || continue
    [ "${argv[0]##*/}" = "$name" ] || [ "${argv[1]##*/}" = "$name" ] || continue
    [[ "${argv[*]} " == *"$STATE"[/\ ]* ]] && echo "${pid#/proc/}"
  done
  return 0
}

running() { [ -n "$(pids "$1")" ]; }

start() { # start PART: nothing when it runs
  running "$1" && return
  mkdir -p "$LOG"
  # A session of its own and no open file of the caller's: it outlives the caller and holds none of its pipes or locks.
  setsid "$HERE/part.sh" run "$1" </dev/null >>"$LOG/$1.log" 2>&1 9>&- &
}

stop() { # stop PART [SIGNAL]: returns when it is gone; after ten seconds by force (the API server takes its time)
  local found round
  found=$(pids "$1")
  # shellcheck disable=SC2086 # one word per process
  [ -z "$found" ] || kill "-${2:-TERM}" $found 2>/dev/null || true
  for round in $(seq 100); do
    running "$1" || return 0
    sleep 0.2
    # shellcheck disable=SC2046
    [ "$round" -lt 50 ] || kill -KILL $(pids "$1") 2>/dev/null || true
  done
  die "$1 does not stop: process $(pids "$1")"
}

run_etcd() {
  exec etcd --data-dir="$STATE/etcd" --unsafe-no-fsync \
    --listen-client-urls="http://127.0.0.1:$ETCD_PORT" --advertise-client-urls="http://127.0.0.1:$ETCD_PORT" \
    --listen-peer-urls=http://127.0.0.1:0
}

run_apiserver() {
  exec kube-apiserver --etcd-servers="http://127.0.0.1:$ETCD_PORT" \
    --secure-port=$API_PORT --bind-address=0.0.0.0 --advertise-address=$ADDRESS --service-cluster-ip-range=$SERVICE_CIDR \
    --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" --client-ca-file="$PKI/ca.crt" \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$PKI/accounts.key" --service-account-signing-key-file="$PKI/accounts.key" \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged \
    --kubelet-certificate-authority="$PKI/ca.crt" --kubelet-preferred-address-types=InternalIP \
    --kubelet-client-certificate="$PKI/apiserver.crt" --kubelet-client-key="$PKI/apiserver.key" \
    --proxy-client-cert-file="$PKI/aggregator.crt" --proxy-client-key-file="$PKI/aggregator.key" \
    --requestheader-client-ca-file="$PKI/ca.crt" --requestheader-allowed-names=aggregator \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
    --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --audit-policy-file="$STATE/audit-policy.yaml" --audit-log-path="$LOG/audit.log" \
    --audit-log-maxsize=200 --audit-log-maxbackup=3
}

run_controllers() {
  exec kube-controller-manager --kubeconfig="$STATE/controllers.conf" --use-service-account-credentials \
    --service-account-private-key-file="$PKI/accounts.key" --root-ca-file="$PKI/ca.crt" \
    --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
    --leader-elect=false --bind-address=127.0.0.1 --kube-api-qps=200 --kube-api-burst=400
}

run_scheduler() {
  exec kube-scheduler --kubeconfig="$STATE/scheduler.conf" --leader-elect=false --bind-address=127.0.0.1 \
    --kube-api-qps=200 --kube-api-burst=400
}

run_containerd() { exec containerd --config "$STATE/containerd.toml"; }

run_kubelet() {
  exec kubelet --config="$STATE/kubelet.yaml" --kubeconfig="$STATE/kubelet.conf" --root-dir="$STATE/kubelet" \
    --node-ip=$ADDRESS --hostname-override=$NODE --node-labels=combee.dev/gpu=pretended
}

run_proxy() {
  exec kube-proxy --kubeconfig="$STATE/proxy.conf" --hostname-override=$NODE --cluster-cidr=$POD_CIDR \
    --proxy-mode=iptables --iptables-min-sync-period=100ms --bind-address=127.0.0.1 \
    --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
}

run_coredns() { exec coredns -conf "$STATE/Corefile"; }

run_minio() {
  export MINIO_ROOT_USER=$MINIO_USER MINIO_ROOT_PASSWORD=$MINIO_PASSWORD MINIO_BROWSER=off
  exec minio server --quiet --config-dir "$STATE/minio-config" --address "$ADDRESS:$MINIO_PORT" "$STATE/minio"
}

run_volumes() { exec "$HERE/volumes.sh" "$STATE"; }

# Sourced by node.sh for its functions; run by tests for one part.
if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  [ $# = 2 ] || die "say part.sh start|stop|kill|pids|log and one of: ${PARTS[*]}"
  export PATH=$PROGRAMS:/usr/sbin:/sbin:$PATH
  export GOGC=400 # the cores are few and the memory is not: garbage is collected a quarter as often
  case $1 in
    start | stop | pids) "$1" "$2" ;;
    kill) stop "$2" KILL ;;
    log) echo "$LOG/$2.log" ;;
    run) "run_$2" ;;
    *) die "unknown: $1" ;;
  esac
fi
