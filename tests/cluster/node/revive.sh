#!/usr/bin/env bash
# Proves that the node comes up again after it was killed without a word, in three ways. Part of `make soak`:
# it breaks the cluster under whoever else uses it, so no test runs it.
source "$(dirname "$0")/part.sh"
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
  "$HERE/node.sh" up
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

"$HERE/node.sh" up
round killed kill_all
round killed-and-data-lost kill_all_and_lose_data
round killed-and-network-lost kill_all_and_lose_network
"$HERE/node.sh" down
[ ! -e "$STATE" ] || die "$STATE is still there"
[ -z "$(ip -o link show $BRIDGE 2>/dev/null)" ] || die "$BRIDGE is still there"
! iptables-save | grep -e KUBE- -e COMBEE- || die "rules are still there"
! grep -F "$STATE/" /proc/self/mountinfo || die "mounts are still there"
echo "nothing is left"
"$HERE/node.sh" up
