#!/usr/bin/env bash
# The folder that kueue.sh wants, made from Kueue's Go module: its program, its manifests, an image with nothing else in it.
#   kueue-release.sh DIR [VERSION]   writes DIR/manifests.yaml and DIR/image.tar; Go 1.26 or newer, and this node's buildah and kubectl
source "$(dirname "$0")/settings.sh"

DIR=$(realpath -m "${1:?the folder to write}")
VERSION=${2:-0.19.2}
IMAGE=localhost/kueue
export PATH=$PROGRAMS:$PATH CGO_ENABLED=0
for program in go kubectl buildah; do command -v $program >/dev/null || die "$program is missing: make cluster brings kubectl and buildah"; done

mkdir -p "$DIR"
work=$DIR/.work
builder() { buildah --root "$work/store" --runroot "$work/run" --storage-driver vfs "$@"; }
rm -rf "$work" && mkdir -p "$work/image"
module=$(cd "$work" && go mod download -json "sigs.k8s.io/kueue@v$VERSION" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
[ -d "$module" ] || die "the Go module sigs.k8s.io/kueue@v$VERSION cannot be had"
cp -r "$module" "$work/source" && chmod -R u+w "$work/source"

say "building Kueue $VERSION (minutes)"
(cd "$work/source" && go build -trimpath -ldflags "-s -w -X sigs.k8s.io/kueue/pkg/version.GitVersion=v$VERSION" -o "$work/image/manager" ./cmd/kueue)
printf 'FROM scratch\nCOPY manager /manager\nUSER 65532:65532\nENTRYPOINT ["/manager"]\n' >"$work/image/Dockerfile"
builder build -q --isolation chroot -t "$IMAGE:$VERSION" "$work/image" >/dev/null
rm -f "$DIR/image.tar"
builder push -q "$IMAGE:$VERSION" "oci-archive:$DIR/image.tar:$IMAGE:$VERSION"

printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [manager.yaml]\ngeneratorOptions: {disableNameSuffixHash: true}
configMapGenerator: [{name: manager-config, files: [controller_manager_config.yaml]}]\nimages: [{name: controller, newName: %s, newTag: %s}]\n' \
  "$IMAGE" "$VERSION" >"$work/source/config/components/manager/kustomization.yaml"
kubectl kustomize "$work/source/config/default" >"$DIR/manifests.yaml.part"
mv "$DIR/manifests.yaml.part" "$DIR/manifests.yaml"
rm -rf "$work"
