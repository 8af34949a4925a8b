#!/usr/bin/env bash
# Gives every claim of the default storage class a folder of this node, and removes it with the claim.
# The folders are open to every user, because a hostPath volume ignores fsGroup. Started by part.sh.
source "$(dirname "$0")/settings.sh"
export KUBECONFIG=$ADMIN

claims() {
  kubectl get persistentvolumeclaims -A --watch -o \
    jsonpath='{.status.phase}|{.spec.storageClassName}|{.metadata.namespace}|{.metadata.name}|{.metadata.uid}|{.spec.resources.requests.storage}|{.spec.accessModes}{"\n"}' |
    while IFS='|' read -r phase class namespace name uid size modes; do
      [ "$phase|$class" = "Pending|node-folder" ] || continue
      mkdir -p "$STATE/volumes/$uid"
      chmod 0777 "$STATE/volumes/$uid"
      kubectl create -f - <<EOF || true # it exists: the claim is seen once more before it is bound
apiVersion: v1
kind: PersistentVolume
metadata: {name: folder-$uid}
spec:
  storageClassName: node-folder
  persistentVolumeReclaimPolicy: Retain
  capacity: {storage: "$size"}
  accessModes: $modes
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: $namespace, name: $name, uid: $uid}
  hostPath: {path: "$STATE/volumes/$uid", type: Directory}
EOF
    done
}

released() {
  kubectl get persistentvolumes --watch -o \
    jsonpath='{.status.phase}|{.spec.storageClassName}|{.metadata.name}|{.metadata.deletionTimestamp}{"\n"}' |
    while IFS='|' read -r phase class name deleted; do
      [ "$phase|$class|$deleted" = "Released|node-folder|" ] || continue
      kubectl delete persistentvolume "$name" --wait=false || true
      rm -rf "$STATE/volumes/${name#folder-}"
    done
}

# A watch ends when the API server goes or after some minutes; then it begins anew.
while sleep 0.5; do claims || true; done &
while sleep 0.5; do released || true; done
