#!/usr/bin/env bash
# One real Kubernetes node on this machine, for tests: `make cluster`, `make cluster-down`, `make cluster-env`.
#   node.sh up      nothing when all runs; starts what does not; begins anew when that does not help
#   node.sh bare    the same without images, to try this script out
#   node.sh down    removes all but the cache
#   node.sh env     prints what a shell must evaluate to use it
#   node.sh images [NAME...]  builds the images anew, and the named ones; and loads them where this node runs
# With KUBECONFIG set to another cluster, `up` only checks that one and `down` leaves it alone.
source "$(dirname "$0")/part.sh"
source "$HERE/config.sh"

PACKAGES=(buildah busybox-static conntrack containerd containernetworking-plugins curl gettext-base
  iproute2 iptables mmdebstrap openssl runc skopeo util-linux)

foreign() { [ -n "${KUBECONFIG:-}" ] && [ "$KUBECONFIG" != "$ADMIN" ]; }

admin() { kubectl --kubeconfig "$ADMIN" "$@"; }

wait_for() { # wait_for SECONDS PART COMMAND...: until the command succeeds
  local end=$((SECONDS + $1)) part=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge "$end" ]; then
      say "$part is not ready; the end of $LOG/$part.log:"
      tail -n 15 "$LOG/$part.log" >&2 || true
      return 1
    fi
    sleep 0.2
  done
}

install_packages() {
  local missing
  missing=$(for package in "${PACKAGES[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done)
  [ -n "$missing" ] || return 0
  say "installing ${missing//$'\n'/ }"
  # shellcheck disable=SC2086 # one word per package
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } \
    >"$CACHE/packages.log" 2>&1 || die "apt-get could not install ${missing//$'\n'/ }; its output is in $CACHE/packages.log"
}

# What must be true of the machine; nothing of it is lost on the next boot but by doing it again.
prepare_machine() {
  local controller port
  for port in $API_PORT $ETCD_PORT $MINIO_PORT 10250; do
    ! ss -Hltn "sport = :$port" | grep -q . || running apiserver || running etcd || running minio || running kubelet ||
      die "port $port is taken by something else: $(ss -Hltnp "sport = :$port" | grep -o 'users:.*')"
  done
  # By default all pods together have no more of the cores than one of the machine's other processes.
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    mkdir -p "/sys/fs/cgroup/$CGROUP"
    echo 800 >"/sys/fs/cgroup/$CGROUP/cpu.weight" 2>/dev/null || true
  else
    for controller in /sys/fs/cgroup/*/; do mkdir -p "$controller$CGROUP"; done
    echo 8192 >"/sys/fs/cgroup/cpu/$CGROUP/cpu.shares"
  fi
  sysctl -qw net.ipv4.ip_forward=1
  ip link show $BRIDGE >/dev/null 2>&1 || ip link add $BRIDGE type bridge
  ip addr replace $ADDRESS/24 dev $BRIDGE
  ip link set $BRIDGE up
  iptables -w -t nat -N COMBEE-POSTROUTING 2>/dev/null || iptables -w -t nat -F COMBEE-POSTROUTING
  iptables -w -t nat -A COMBEE-POSTROUTING -s $POD_CIDR ! -d $POD_CIDR -j MASQUERADE
  iptables -w -t nat -C POSTROUTING -j COMBEE-POSTROUTING 2>/dev/null || iptables -w -t nat -A POSTROUTING -j COMBEE-POSTROUTING
  iptables -w -N COMBEE-FORWARD 2>/dev/null || iptables -w -F COMBEE-FORWARD
  iptables -w -A COMBEE-FORWARD -s $POD_CIDR -j ACCEPT
  iptables -w -A COMBEE-FORWARD -d $POD_CIDR -j ACCEPT
  iptables -w -C FORWARD -j COMBEE-FORWARD 2>/dev/null || iptables -w -I FORWARD -j COMBEE-FORWARD
}

node_ready() { [ "$(admin get node $NODE -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}')" = True ]; }

show_gpus() {
  local path=/status/capacity/nvidia.com~1gpu
  [ "$(admin get node $NODE -o jsonpath='{.status.capacity.nvidia\.com/gpu}')" = $GPUS ] ||
    admin patch node $NODE --subresource=status --type=json -p "[{\"op\": \"add\", \"path\": \"$path\", \"value\": \"$GPUS\"}]"
}

make_bucket() {
  local code
  code=$(curl -s -o /dev/null -w '%{http_code}' -X PUT --aws-sigv4 aws:amz:us-east-1:s3 --user "$MINIO_USER:$MINIO_PASSWORD" \
    "http://$ADDRESS:$MINIO_PORT/$MINIO_BUCKET")
  [ "$code" = 200 ] || [ "$code" = 409 ]
}

apply_objects() {
  export DNS_IP ADDRESS MINIO_PORT
  envsubst '$DNS_IP $ADDRESS $MINIO_PORT' <"$HERE/objects.yaml" | admin apply -f -
}

start_parts() {
  start etcd
  start containerd
  start minio
  start apiserver
  wait_for 120 apiserver admin get --raw /readyz || return
  start controllers
  start scheduler
  start proxy
  wait_for 60 apiserver apply_objects || return
  start coredns
  start volumes
  wait_for 60 containerd ctr -a "$SOCKET" version || return
  "$HERE/images.sh" pause || die "the image that every pod begins with could not be built and loaded"
  start kubelet
  wait_for 120 kubelet node_ready || return
  wait_for 60 apiserver show_gpus || return
  wait_for 60 coredns curl -sf "http://127.0.0.1:$DNS_READY_PORT/ready" || return
  wait_for 60 minio make_bucket || return
  wait_for 60 controllers admin get serviceaccount default -n default
}

up() {
  [ "$(uname -s) $(id -u)" = "Linux 0" ] || die "a cluster needs root on Linux; or set KUBECONFIG to one that runs"
  install_packages
  "$HERE/build.sh"
  prepare_machine
  # What was made by another version of these programs is not repaired but replaced.
  if [ -e "$STATE" ] && [ "$(cat "$STATE/version" 2>/dev/null)" != "$PROGRAMS" ]; then
    remove
    prepare_machine
  fi
  write_files
  echo "$PROGRAMS" >"$STATE/version"
  start_parts || {
    say "what was there does not come up again; making a new one"
    remove
    prepare_machine
    write_files
    echo "$PROGRAMS" >"$STATE/version"
    start_parts || die "the cluster does not come up; its logs are in $LOG"
  }
}

# Also what a life killed without a word left: processes of pods, mounts, network, rules, cgroups.
remove() {
  local part folder
  stop kubelet
  kill_pods
  stop shims KILL
  for part in volumes proxy scheduler controllers coredns minio apiserver containerd etcd; do stop $part; done
  kill_pods
  awk -v below="$STATE/" 'index($5, below) == 1 {print $5}' /proc/self/mountinfo | tac |
    while read -r folder; do umount "$folder" 2>/dev/null || umount -l "$folder"; done
  ip link delete $BRIDGE 2>/dev/null || true
  remove_rules iptables
  remove_rules ip6tables
  rm -rf /var/lib/cni/results/combee-test-* /var/lib/cni/cache/results/combee-test-* /var/lib/kubelet/device-plugins
  find /sys/fs/cgroup -depth -type d -path "*/$CGROUP*" -exec rmdir {} + 2>/dev/null || true
  rm -rf --one-file-system "$STATE"
}

kill_pods() {
  local round found
  for round in $(seq 50); do
    found=$(find /sys/fs/cgroup -path "*/$CGROUP/*" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u)
    [ -n "$found" ] || return 0
    # shellcheck disable=SC2086
    kill -KILL $found 2>/dev/null || true
    sleep 0.1
  done
  die "processes of pods do not end: $found"
}

remove_rules() { # remove_rules iptables|ip6tables: every chain that kube-proxy, the kubelet or we made
  local rules
  rules=$("$1-save" 2>/dev/null) || return 0
  case $rules in *KUBE-* | *COMBEE-*) grep -v -e KUBE- -e COMBEE- <<<"$rules" | "$1-restore" -w ;; esac
}

check_foreign() {
  say "using the cluster of KUBECONFIG=$KUBECONFIG"
  kubectl get --raw /readyz >/dev/null || die "that cluster does not answer"
  kubectl wait --for=condition=Ready node --all --timeout=60s >&2 || die "a node of that cluster is not ready"
  say "make images builds the images; push them where that cluster can pull them"
}

print_env() {
  if foreign; then echo "unset COMBEE_CLUSTER_OWN"; else echo "export KUBECONFIG=$ADMIN COMBEE_CLUSTER_OWN=1"; fi
  echo "export PATH=$PROGRAMS:\$PATH"
}

export PATH=$PROGRAMS:/usr/sbin:/sbin:$PATH
case ${1:-} in
  up)
    if foreign; then
      check_foreign
    else
      locked "node-$CGROUP" up
      "$HERE/images.sh" load
      say "up; use it with: eval \$(make -s cluster-env)"
    fi
    ;;
  bare) locked "node-$CGROUP" up ;;
  down) if foreign; then say "leaving the cluster of KUBECONFIG alone"; else locked "node-$CGROUP" remove; fi ;;
  env) print_env ;;
  images)
    shift
    if running containerd; then "$HERE/images.sh" load "$@"; else "$REPO/images/build.sh" worker operator sim "$@"; fi
    ;;
  *) die "say node.sh up, bare, down, env or images" ;;
esac
