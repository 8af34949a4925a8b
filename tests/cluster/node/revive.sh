#!/usr/bin/env bash
# Proves that the node comes up again after it was killed without a word, and that `down` leaves nothing.
# It has a network, mounts and process numbers of its own, so the cluster that others use is not touched.
source "$(dirname "${BASH_SOURCE[0]}")/part.sh"

if [ "${1:-}" != inside ]; then
  [ "$(uname -s) $(id -u)" = "Linux 0" ] || die "this needs root on Linux"
  export COMBEE_CLUSTER_STATE=$STATE-revive
  exec unshare --net --mount --pid --fork --mount-proc --kill-child "$HERE/revive.sh" inside
fi

ip link set lo up
for folder in /var/lib/kubelet /var/lib/cni /run/containerd; do
  mkdir -p "$folder"
  mount -t tmpfs none "$folder"
done
export PATH=$PROGRAMS:/usr/sbin:/sbin:$PATH KUBECONFIG=$ADMIN

pod() { # pod NAME: runs and is ready
  kubectl run "$1" --image=localhost/pause:1 --image-pull-policy=Never --restart=Never >/dev/null
  kubectl wait --for=condition=Ready "pod/$1" --timeout=60s >/dev/null
}

round() { # round NAME COMMAND...: breaks it so, brings it up, and runs a pod
  local began name=$1
  shift
  pod "before-$name"
  "$@"
  began=$SECONDS
  "$HERE/node.sh" bare
  pod "after-$name"
  echo "$name: up again after $((SECONDS - began)) s"
  kubectl delete pods --all --wait=false --grace-period=1 >/dev/null
}

kill_all() {
  local part
  for part in "${PARTS[@]}" shims; do stop "$part" KILL; done
}

kill_all_and_lose_data() {
  kill_all
  rm -rf "$STATE/etcd"
}

kill_all_and_lose_network() {
  kill_all
  ip link delete "$BRIDGE"
  iptables -w -t nat -F
}

"$HERE/node.sh" down
began=$SECONDS
"$HERE/node.sh" bare
echo "from nothing: up after $((SECONDS - began)) s"
began=$SECONDS
"$HERE/node.sh" bare
echo "once more: $((SECONDS - began)) s"
round killed kill_all
round killed-and-data-lost kill_all_and_lose_data
round killed-and-network-lost kill_all_and_lose_network
"$HERE/node.sh" down
[ ! -e "$STATE" ] || die "$STATE is still there"
[ -z "$(ip -o link show $BRIDGE 2>/dev/null)" ] || die "$BRIDGE is still there"
! iptables-save | grep -e KUBE- -e COMBEE- || die "rules are still there"
[ -z "$(find /sys/fs/cgroup -type d -name "$CGROUP")" ] || die "control groups are still there"
! grep -F "$STATE/" /proc/self/mountinfo || die "mounts are still there"
echo "nothing is left"
