#!/usr/bin/env bash
# Proves that the node comes up again after it was killed without a word, that images are built after a build was, and that
# `down` leaves nothing.
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

pod() { # pod NAME [IMAGE ARGUMENTS...]: runs and is ready
  kubectl run "$1" --image="${2:-localhost/pause:1}" --image-pull-policy=Never --restart=Never "${@:3}" >/dev/null
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

copy_tree() { # copy_tree FOLDER: all that images are built from; its package differs, so that its last stages are built anew
  mkdir -p "$1/examples" "$1/tests/cluster"
  cp -r "$REPO"/{operator,images,pyproject.toml,README.md,LICENSE} "$1/"
  cp -r "$REPO/examples/data" "$1/examples/"
  cp -r "$HERE" "$1/tests/cluster/"
  date +%s%N >>"$1/README.md"
}

# Kills a build of images with all that it started while it holds a working container, builds again, and runs a pod of it.
half_built() {
  local began tree=$STATE/tree builder end left version
  version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$REPO/operator/combee/__init__.py")
  "$HERE/images.sh" load
  left=$("$HERE/images.sh" left)
  [ -z "$left" ] || die "a build that ended left $left"
  copy_tree "$tree"
  setsid "$tree/tests/cluster/node/images.sh" load </dev/null >"$LOG/half-built.log" 2>&1 &
  builder=$!
  end=$((SECONDS + 300))
  until [ -n "$("$HERE/images.sh" left)" ]; do
    kill -0 "$builder" 2>/dev/null && [ $SECONDS -lt "$end" ] || die "no build was seen at work; see $LOG/half-built.log"
    sleep 0.2
  done
  # shellcheck disable=SC2046 # one word per process
  kill -KILL $(ps -o pid= -s "$builder")
  wait "$builder" 2>/dev/null || true
  left=$("$HERE/images.sh" left)
  [ -n "$left" ] || die "the build that was killed left nothing, so nothing is proved"
  began=$SECONDS
  "$tree/tests/cluster/node/images.sh" load
  echo "half-built: killed with ${left//$'\n'/ } left; built and loaded after $((SECONDS - began)) s"
  left=$("$HERE/images.sh" left)
  [ -z "$left" ] || die "the next build left $left"
  pod half-built "localhost/combee-worker:$version" --command -- sleep 600
  kubectl delete pods --all --wait=false --grace-period=1 >/dev/null
  "$HERE/images.sh" load # what the cache holds is again of this tree
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
half_built
"$HERE/node.sh" down
[ ! -e "$STATE" ] || die "$STATE is still there"
[ -z "$(ip -o link show $BRIDGE 2>/dev/null)" ] || die "$BRIDGE is still there"
! iptables-save | grep -e KUBE- -e COMBEE- || die "rules are still there"
[ -z "$(find /sys/fs/cgroup -type d -name "$CGROUP")" ] || die "control groups are still there"
! grep -F "$STATE/" /proc/self/mountinfo || die "mounts are still there"
echo "nothing is left"
