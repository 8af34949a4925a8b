#!/usr/bin/env bash
# The images of the test cluster, without a registry: built by buildah in a store of our own, given to containerd as archives.
#   images.sh build [NAME...]  those that every run needs, and the named ones, from what the working tree holds now; prints their names
#   images.sh load [NAME...]   build, and give the node those that have changed
#   images.sh pause            only the one that every pod begins with
#   images.sh left             what a build holds, or one that was killed left: working containers, and their mounts
source "$(dirname "$0")/settings.sh"

SUITE=bookworm # the release of Debian whose Python is the one the lock files are for, 3.11
STORE=$CACHE/containers
LAYOUT=$CACHE/layout
NAMED=$CACHE/layout-named # of images that are only built by name: gigabytes, which no other node is to be given
NEEDED=(worker operator sim)
BASE=localhost/combee-base:$SUITE-3

export TMPDIR=$CACHE/tmp # what a killed build leaves there, the next one removes

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
  mmdebstrap --variant=essential --include=python3,ca-certificates,libstdc++6,libnuma1 --quiet \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/log/*' \
    $SUITE "$folder/rootfs.tar" >"$CACHE/base.log" 2>&1 ||
    die "mmdebstrap failed; its output is in $CACHE/base.log"
  cp "$REPO/images/base/Dockerfile" "$folder/"
  store build -q --isolation chroot -t "$BASE" "$folder" >/dev/null
  rm -rf "$folder"
}

# Those of a build that was killed, before it had written what they are too (`rm --all` passes over them), and the one
# that buildah keeps of a stage that another stage copied from.
forget_containers() {
  store containers --all --quiet | xargs --no-run-if-empty buildah --root "$STORE" --runroot "$STORE/run" \
    --storage-driver overlay rm >/dev/null
}

build() { # build [NAME...]
  forget_containers
  # Every build leaves its stages, so that the next one finds them; after many of them, begin anew.
  [ "$(store images -a -q | wc -l)" -lt 3000 ] || store rmi --prune >/dev/null
  build_base
  build_pause
  write_builder
  BUILDER=$CACHE/builder/buildah BASE=$BASE SHELL_IMAGE=localhost/pause:1 CONTEXTS=$CACHE/contexts \
    "$REPO/images/build.sh" "${NEEDED[@]}" "$@" ||
    die "the images could not be built; those that are there are of another tree"
  forget_containers
}

# lay_out NAME...: into one OCI layout that stays, so that a layer is written once, however many images have it.
lay_out() {
  local name id how
  mkdir -p "$LAYOUT" "$LAYOUT.ids"
  for name; do
    id=$(store inspect --type image --format '{{.FromImageID}}' "$name")
    [ "$(cat "$LAYOUT.ids/${name//\//_}" 2>/dev/null)" != "$id" ] || continue
    # Not `buildah push`: it would compress every layer anew each time. Gigabytes that hardly ever change are worth it.
    how=--dest-oci-accept-uncompressed-layers
    [ "$LAYOUT" != "$NAMED" ] || how=--dest-compress-format=zstd
    skopeo copy -q "$how" "containers-storage:[overlay@$STORE+$STORE/run]$name" "oci:$LAYOUT:$name"
    echo "$id" >"$LAYOUT.ids/${name//\//_}"
  done
}

# The blobs that the layout's index reaches: manifests, and what they name.
reached() {
  local manifest digest
  grep -o 'sha256:[0-9a-f]*' "$LAYOUT/index.json" | while read -r manifest; do
    echo "$manifest"
    grep -o 'sha256:[0-9a-f]*' "$LAYOUT/blobs/sha256/${manifest#sha256:}"
  done | sort -u | while read -r digest; do
    [ ! -f "$LAYOUT/blobs/sha256/${digest#sha256:}" ] || echo "$digest" # annotations name layers that are elsewhere
  done
}

images() { ctr -a "$SOCKET" -n k8s.io images "$@"; }

# While images are unpacked those that they replace are collected, and with them layers that both have, which fails the
# load. So what nobody holds goes before, what the node has is held meanwhile, by names as an image service takes them,
# and let go afterwards.
hold() {
  local name lease
  lease=$(ctr -a "$SOCKET" -n k8s.io leases create)
  ctr -a "$SOCKET" -n k8s.io leases delete --sync "$lease" >/dev/null
  images ls -q | { grep '^localhost/[^@]*$' || true; } | while read -r name; do
    images tag --force "$name" "held.local/${name#localhost/}" >/dev/null
  done
}

let_go() {
  images ls -q | { grep '^held\.local/' || true; } | xargs --no-run-if-empty ctr -a "$SOCKET" -n k8s.io images rm >/dev/null
}

# Forgets the blobs of images that have been replaced, and gives the node those that it lacks.
give() {
  local blob given
  given=$STATE/$(basename "$LAYOUT").given
  cmp -s "$LAYOUT/index.json" "$given" && return
  say "loading images"
  reached >"$LAYOUT.reached"
  for blob in "$LAYOUT"/blobs/sha256/*; do
    grep -q "${blob##*/}" "$LAYOUT.reached" || rm "$blob"
  done
  hold
  ctr -a "$SOCKET" -n k8s.io content ls -q | sort >"$LAYOUT.present"
  comm -23 "$LAYOUT.reached" "$LAYOUT.present" | sed 's,sha256:,blobs/sha256/,' |
    tar -C "$LAYOUT" -cf - oci-layout index.json -T - | images import - >/dev/null
  let_go
  cp "$LAYOUT/index.json" "$given"
}

load() { # load [NAME...]
  local built names
  built=$(build "$@")
  mapfile -t names <<<"$built"
  lay_out "${names[@]:0:${#NEEDED[@]}}"
  give
  [ $# -gt 0 ] || return 0
  LAYOUT=$NAMED
  lay_out "${names[@]:${#NEEDED[@]}}"
  give
}

pause() {
  build_pause
  lay_out localhost/pause:1
  give
}

left() {
  store containers --all --quiet
  awk -v below="$STORE/overlay/" 'index($5, below) == 1 {print $5}' /proc/self/mountinfo
}

one() { # one COMMAND...: while nobody else builds
  local layout
  rm -rf "$TMPDIR" {"$LAYOUT","$NAMED"}/oci-put-blob*
  mkdir -p "$TMPDIR"
  # The index is written in place: half of one is as good as none, and then nothing is laid out.
  for layout in "$LAYOUT" "$NAMED"; do
    tail -c 2 "$layout/index.json" 2>/dev/null | grep -q '}' || rm -rf "$layout" "$layout.ids"
  done
  "$@"
}

mkdir -p "$CACHE"
case ${1:-} in
  build | load | pause) locked images one "$@" ;;
  left) left ;;
  *) die "say images.sh build, load, pause or left" ;;
esac
