# shellcheck shell=bash
# Writes certificates and configuration into the state folder. Sourced by node.sh after settings.sh.

# certificate NAME SUBJECT: signed by the cluster's own authority, for server and client alike.
certificate() {
  [ -f "$PKI/$1.crt" ] && return
  local names=DNS:localhost,DNS:$NODE,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
  names+=,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$API_IP,IP:$ADDRESS
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "$2" \
    -keyout "$PKI/$1.key" -out "$PKI/$1.csr" 2>/dev/null
  openssl x509 -req -days 3650 -in "$PKI/$1.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial \
    -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth' "$names") \
    -out "$PKI/$1.crt.part" 2>/dev/null
  mv "$PKI/$1.crt.part" "$PKI/$1.crt"
}

kubeconfig() { # kubeconfig NAME: self-contained, so that it can be copied elsewhere
  cat <<EOF
apiVersion: v1
kind: Config
clusters: [{name: combee-test, cluster: {server: "https://127.0.0.1:$API_PORT", certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$PKI/$1.crt"), client-key-data: $(base64 -w0 "$PKI/$1.key")}}]
contexts: [{name: combee-test, context: {cluster: combee-test, user: $1}}]
current-context: combee-test
EOF
}

write_identities() {
  mkdir -p "$PKI"
  chmod 0700 "$PKI"
  if [ ! -f "$PKI/ca.crt" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=combee-test-ca \
      -keyout "$PKI/ca.key" -out "$PKI/ca.crt.part" 2>/dev/null
    openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/accounts.key"
    mv "$PKI/ca.crt.part" "$PKI/ca.crt"
  fi
  certificate apiserver "/O=system:masters/CN=kube-apiserver" # also what it shows to the kubelet, for logs and exec
  certificate aggregator /CN=aggregator # what it shows to API servers that others add to it
  certificate admin "/O=system:masters/CN=admin"
  certificate controllers "/CN=system:kube-controller-manager"
  certificate scheduler "/CN=system:kube-scheduler"
  certificate kubelet "/O=system:nodes/CN=system:node:$NODE"
  certificate proxy "/CN=system:kube-proxy"
  certificate coredns "/CN=system:coredns"
  local user
  for user in admin controllers scheduler kubelet proxy coredns; do
    # Whole or not at all: somebody may be reading it.
    (umask 077 && kubeconfig "$user" >"$STATE/$user.conf.new")
    mv -f "$STATE/$user.conf.new" "$STATE/$user.conf"
  done
}

write_containerd() {
  cat <<EOF
version = 2
root = "$STATE/containerd"
state = "$STATE/containerd-run"
[grpc]
  address = "$SOCKET"
[plugins."io.containerd.internal.v1.opt"]
  path = "$STATE/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  # A machine without CAP_SYS_RESOURCE cannot lower oom_score_adj; without this line every sandbox dies of it.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "$STATE/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$STATE/cni"
EOF
}

# Point-to-point instead of a bridge: every packet is routed, so Services work between pods of one node
# without br_netfilter, and no bridge is left behind. It does not enforce NetworkPolicies.
write_cni() {
  cat <<EOF
{"cniVersion": "0.4.0", "name": "combee-test", "plugins": [
  {"type": "ptp", "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": "$STATE/ipam", "ranges": [[{"subnet": "$POD_CIDR"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
EOF
}

# Images cannot be pulled again here, so none is ever collected.
write_kubelet() {
  cat <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $ADDRESS
containerRuntimeEndpoint: unix://$SOCKET
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP
failCgroupV1: false
failSwapOn: false
clusterDNS: [$DNS_IP]
clusterDomain: cluster.local
resolvConf: $STATE/resolv.conf
tlsCertFile: $PKI/kubelet.crt
tlsPrivateKeyFile: $PKI/kubelet.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $PKI/ca.crt}}
authorization: {mode: Webhook}
podLogsDir: $STATE/pod-logs
volumePluginDir: $STATE/volume-plugins
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
podPidsLimit: 512
maxPods: 200
serializeImagePulls: false
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 200
kubeAPIBurst: 400
syncFrequency: 10s
EOF
}

# Who asked for what, of everyone but the cluster's own parts; without bodies.
write_audit_policy() {
  cat <<EOF
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy", "system:coredns", "system:node:$NODE"]
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/openapi*", "/version", "/api", "/apis*"]
- level: Metadata
EOF
}

# Names outside the cluster do not exist for pods: a test says the same with and without a network.
write_corefile() {
  cat <<EOF
cluster.local:53 in-addr.arpa:53 {
  bind $ADDRESS
  errors
  ready 127.0.0.1:$DNS_READY_PORT
  kubernetes {
    kubeconfig $STATE/coredns.conf
    ttl 1
  }
}
.:53 {
  bind $ADDRESS
  template ANY ANY {
    rcode NXDOMAIN
  }
}
EOF
}

write_files() {
  mkdir -p "$STATE"/{cni,volumes,minio,opt} "$LOG"
  write_identities
  write_containerd >"$STATE/containerd.toml"
  write_cni >"$STATE/cni/10-combee.conflist"
  write_kubelet >"$STATE/kubelet.yaml"
  write_audit_policy >"$STATE/audit-policy.yaml"
  write_corefile >"$STATE/Corefile"
  : >"$STATE/resolv.conf"
}
