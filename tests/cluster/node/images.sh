#!/usr/bin/env bash
# The images of the test cluster, without a registry: built by buildah in a store of our own, given to containerd as archives.
#   images.sh build         all of them, from what the working tree holds now; prints their names
#   images.sh load          build, and give the node those that have changed
#   images.sh pause         only the one that every pod begins with
source "$(dirname "$0")/settings.sh"

SUITE=bookworm # the release of Debian whose Python is the one the lock files are for, 3.11
STORE=$CACHE/containers
BASE=localhost/combee-base:$SUITE-2

store() { buildah --root "$STORE" --runroot "$STORE/run" --storage-driver overlay "$@"; }

# images/build.sh calls its builder by name, so a program named buildah that knows our store comes first.
write_builder() {
  mkdir -p "$CACHE/builder"
  printf '#!/bin/sh\nexec /usr/bin/buildah --root %q --runroot %q --storage-driver overlay "$@"\n' "$STORE" "$STORE/run" \
    >"$CACHE/builder/buildah.part"
  chmod +x "$CACHE/builder/buildah.part"
  mv "$CACHE/builder/buildah.part" "$CACHE/builder/buildah"
}

exists() { store inspect --type image "$1" >/dev/null 2>&1; }

build_pause() {
  exists localhost/pause:1 && return
  local folder
  folder=$(mktemp -d)
  cp "$(command -v busybox)" "$folder/"
  printf 'FROM scratch\nCOPY busybox /bin/busybox\nUSER 65535:65535\nENTRYPOINT ["/bin/busybox", "sleep", "2147483647"]\n' >"$folder/Dockerfile"
  store build -q --isolation chroot -t localhost/pause:1 "$folder" >/dev/null
  rm -rf "$folder"
}

# Python and what it needs, without documentation, translations and the package manager's lists.
build_base() {
  exists "$BASE" && return
  say "making the base image from Debian packages (once)"
  local folder=$CACHE/base
  rm -rf "$folder" && mkdir -p "$folder"
  mmdebstrap --variant=essential --include=python3,ca-certificates,libstdc++6 --quiet \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/log/*' \
    $SUITE "$folder/rootfs.tar" >"$CACHE/base.log" 2>&1 ||
    die "mmdebstrap failed; its output is in $CACHE/base.log"
  cp "$REPO/images/base/Dockerfile" "$folder/"
  store build -q --isolation chroot -t "$BASE" "$folder" >/dev/null
  rm -rf "$folder"
}

build() {
  store rm --all >/dev/null 2>&1 || true # containers of a build that was killed
  build_base
  write_builder
  BUILDER=$CACHE/builder/buildah BASE=$BASE CONTEXTS=$CACHE/contexts nice "$REPO/images/build.sh"
}

# give NAME: to the node, unless it has it already
give() {
  local name=$1 id given archive
  id=$(store inspect --type image --format '{{.FromImageID}}' "$name")
  given=$STATE/images/$(tr / _ <<<"$name")
  [ "$(cat "$given" 2>/dev/null)" = "$id" ] && return
  say "loading $name"
  archive=$(mktemp -p "$CACHE" image.XXXXXX)
  rm -f "$archive"
  store push -q --disable-compression "$name" "oci-archive:$archive:$name"
  ctr -a "$SOCKET" -n k8s.io images import "$archive" >/dev/null
  rm -f "$archive"
  mkdir -p "$STATE/images"
  echo "$id" >"$given"
}

load() {
  local names name
  names=$(build)
  for name in $names; do give "$name"; done
}

pause() {
  build_pause
  give localhost/pause:1
}

mkdir -p "$CACHE"
case ${1:-} in
  build | load | pause) locked images "$1" ;;
  *) die "say images.sh build, load or pause" ;;
esac
