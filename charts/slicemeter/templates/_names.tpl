{{/* What things are called, and the labels that they bear. */}}

{{- define "slicemeter.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels by which pods are selected: (list $ component). They never change. */}}
{{- define "slicemeter.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of every object: (list $ component). */}}
{{- define "slicemeter.labels" -}}
{{- $root := index . 0 -}}
{{ include "slicemeter.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: slicemeter
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of pods: (list $ component further). */}}
{{- define "slicemeter.podLabels" -}}
{{ include "slicemeter.selector" . }}
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- with index . 2 }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image: (list $ which). */}}
{{- define "slicemeter.image" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values.images (index . 1) -}}
{{- $registry := $root.Values.global.imageRegistry | default $root.Values.images.registry -}}
{{- with $registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* A number as text, without an exponent. */}}
{{- define "slicemeter.number" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- else }}{{ . }}{{ end -}}
{{- end -}}

{{- define "slicemeter.metricsTokenSecret" -}}
{{- .Values.metricsToken.existingSecret | default (printf "%s-metrics-token" (include "slicemeter.fullname" .)) -}}
{{- end -}}

{{- define "slicemeter.adminTokenSecret" -}}
{{- .Values.accounting.adminToken.existingSecret | default (printf "%s-admin-token" (include "slicemeter.fullname" .)) -}}
{{- end -}}

{{- define "slicemeter.booksClaim" -}}
{{- .Values.accounting.persistence.existingClaim | default (printf "%s-books" (include "slicemeter.fullname" .)) -}}
{{- end -}}

{{/* Where facts go; empty: nowhere. */}}
{{- define "slicemeter.accountingUrl" -}}
{{- if .Values.reporting.url -}}
{{- .Values.reporting.url -}}
{{- else if .Values.accounting.enabled -}}
{{- printf "http://%s-accounting.%s.svc:%d" (include "slicemeter.fullname" .) .Release.Namespace (int .Values.accounting.port) -}}
{{- end -}}
{{- end -}}

{{/* "yes" when objects of the Prometheus operator are wanted: (list $ mode kind). */}}
{{- define "slicemeter.wantsMonitoring" -}}
{{- $root := index . 0 -}}
{{- if eq (index . 1) "always" -}}yes
{{- else if and (eq (index . 1) "auto") ($root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2))) -}}yes
{{- end -}}
{{- end -}}
