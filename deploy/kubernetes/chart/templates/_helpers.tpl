{{- define "plancha.datastore.labels" -}}
app.kubernetes.io/name: plancha
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: datastore
{{- end }}

{{- define "plancha.runner.labels" -}}
app.kubernetes.io/name: plancha
app.kubernetes.io/component: runner
{{- end }}

{{- define "plancha.bucket" -}}
{{- if not (hasPrefix "file://" .Values.datastore.storage) }}true{{ end }}
{{- end }}

{{- define "plancha.replicas" -}}
{{- if include "plancha.bucket" . }}{{ .Values.datastore.replicas }}{{ else }}1{{ end }}
{{- end }}

{{- define "plancha.callers" -}}
{{- .Values.datastore.auth }}
{{- $tokens := contains "tokens=" .Values.datastore.auth }}
{{- range .Values.datastore.rules }}
{{- if and .who.token (not $tokens) }}{{ $tokens = true }},tokens=/etc/plancha/rules.yaml{{ end }}
{{- end }}
{{- end }}

{{- define "plancha.url" -}}
{{- if .Values.runner.datastore }}{{ .Values.runner.datastore }}
{{- else }}
{{- if not .Values.datastore.enabled }}{{ fail "runner.datastore: set the URL of the datastore, because datastore.enabled is false" }}{{ end }}
{{- printf "http%s://%s-datastore.%s.svc:8080" (ternary "s" "" (not (empty .Values.datastore.tlsSecret))) .Release.Name .Release.Namespace }}
{{- end }}
{{- end }}

{{- define "plancha.pod.security" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "plancha.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
