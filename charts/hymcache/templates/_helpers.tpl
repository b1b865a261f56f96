{{/* Labels of every object: the standard set, and what part of HyMCache it is. Takes (dict "root" $ "part" NAME). */}}
{{- define "hymcache.labels" -}}
{{ include "hymcache.selector" . }}
app.kubernetes.io/part-of: hymcache
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "hymcache.selector" -}}
app.kubernetes.io/name: {{ printf "hymcache-%s" .part }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{/* Service accounts. The admission policies name them, so they are fixed. */}}
{{- define "hymcache.operator.account" -}}hymcache-operator{{- end }}
{{- define "hymcache.plugin.account" -}}hymcache-plugin{{- end }}

{{/* Full reference of an image. Takes (dict "root" $ "image" VALUES). */}}
{{- define "hymcache.image" -}}
{{- $registry := .root.Values.images.registry | trimSuffix "/" -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* Settings as environment variables. Takes (dict "prefix" TEXT "settings" MAP): leaseSeconds -> PREFIX_LEASE_SECONDS. */}}
{{- define "hymcache.settings" -}}
{{- $prefix := .prefix -}}
{{- range $name, $value := .settings }}
- name: {{ printf "%s%s" $prefix ($name | snakecase | upper) }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end }}

{{/* Where a pod runs. Takes the component's values. */}}
{{- define "hymcache.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "hymcache.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* No process of ours needs a capability, a writable root or new privileges. */}}
{{- define "hymcache.container.security" -}}
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
