{{/* Labels of everything in the release. */}}
{{- define "combee.labels" -}}
app.kubernetes.io/name: combee-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The operator's pods. */}}
{{- define "combee.selector" -}}
app.kubernetes.io/name: combee-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "combee.account" -}}
system:serviceaccount:{{ .Release.Namespace }}:combee-operator
{{- end }}

{{/* Namespaces that get accounts and a store from the chart. */}}
{{- define "combee.runNamespaces" -}}
{{- if .Values.namespaces }}{{ toJson .Values.namespaces }}{{ else }}{{ toJson (list .Release.Namespace) }}{{ end }}
{{- end }}

{{/* Cluster-scoped names must not clash between releases. */}}
{{- define "combee.clusterName" -}}
combee-operator-{{ .Release.Namespace }}
{{- end }}

{{/* How pods of the operator's image are secured, and where they run. */}}
{{- define "combee.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.operator.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
