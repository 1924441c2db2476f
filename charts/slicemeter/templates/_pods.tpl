{{/* Parts of pods that several templates share. */}}

{{- define "slicemeter.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{ toYaml . | indent 2 }}
{{- end }}
{{- end -}}

{{/* Where a pod runs: a component's values. */}}
{{- define "slicemeter.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* A pod's security context: the uid. fsGroup makes volumes (not host paths) writable. */}}
{{- define "slicemeter.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "slicemeter.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Probes: (list port scheme). */}}
{{- define "slicemeter.probes" -}}
{{- $port := index . 0 -}}
{{- $scheme := upper (index . 1) -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ $port }}, scheme: {{ $scheme }}}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: {{ $port }}, scheme: {{ $scheme }}}
  periodSeconds: 20
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: {{ $port }}, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end -}}

{{/* What both roles of the exporter read from their environment; `exporter check` in the pod reads the same. */}}
{{- define "slicemeter.exporterEnvironment" -}}
{{- $v := .Values -}}
- name: SLICEMETER_CLUSTER
  value: {{ $v.clusterName | quote }}
- name: SLICEMETER_METRICS_TOKEN_FILE
  value: /etc/slicemeter/metrics/token
{{- with include "slicemeter.accountingUrl" . }}
- name: SLICEMETER_ACCOUNTING_URL
  value: {{ . | quote }}
- name: SLICEMETER_ACCOUNTING_TOKEN_FILE
  value: /etc/slicemeter/accounting/token
{{- if $v.reporting.caConfigMap }}
- name: SLICEMETER_ACCOUNTING_CA_FILE
  value: /etc/slicemeter/accounting-ca/ca.crt
{{- end }}
{{- end }}
{{- if $v.exporter.webConfigSecret }}
- name: SLICEMETER_WEB_CONFIG_FILE
  value: /etc/slicemeter/web/web-config.yaml
{{- end }}
{{- include "slicemeter.setting" (list "PUSH_INTERVAL_SECONDS" $v.exporter.pushIntervalSeconds) }}
{{- include "slicemeter.setting" (list "TENANT_FROM" $v.exporter.tenantFrom) }}
{{- include "slicemeter.setting" (list "RESOURCE_COUNT" $v.exporter.resourceCount) }}
{{- include "slicemeter.setting" (list "RESOURCE_MEMORY" $v.exporter.resourceMemory) }}
{{- include "slicemeter.setting" (list "RESOURCE_MEMORY_PERCENTAGE" $v.exporter.resourceMemoryPercentage) }}
{{- include "slicemeter.setting" (list "RESOURCE_CORES" $v.exporter.resourceCores) }}
{{- include "slicemeter.setting" (list "MEMORY_FACTOR" $v.exporter.memoryFactor) }}
{{- include "slicemeter.setting" (list "SCHEDULER_NAMES" $v.exporter.schedulerNames) }}
{{- include "slicemeter.setting" (list "ENDED_KEEP_SECONDS" $v.exporter.endedKeepSeconds) }}
{{- include "slicemeter.setting" (list "SERIES_BUDGET" $v.exporter.seriesBudget) }}
{{- end -}}

{{/* One setting, unless it is left to the program: (list NAME value). */}}
{{- define "slicemeter.setting" -}}
{{- $text := include "slicemeter.number" (index . 1) -}}
{{- if $text }}
- name: SLICEMETER_{{ index . 0 }}
  value: {{ $text | quote }}
{{- end -}}
{{- end -}}

{{- define "slicemeter.exporterMounts" -}}
- {name: metrics-token, mountPath: /etc/slicemeter/metrics, readOnly: true}
{{- if include "slicemeter.accountingUrl" . }}
- {name: accounting-token, mountPath: /etc/slicemeter/accounting, readOnly: true}
{{- if .Values.reporting.caConfigMap }}
- {name: accounting-ca, mountPath: /etc/slicemeter/accounting-ca, readOnly: true}
{{- end }}
{{- end }}
{{- if .Values.exporter.webConfigSecret }}
- {name: web-config, mountPath: /etc/slicemeter/web, readOnly: true}
{{- end }}
{{- end -}}

{{- define "slicemeter.exporterVolumes" -}}
- name: metrics-token
  secret:
    secretName: {{ include "slicemeter.metricsTokenSecret" . }}
    items: [{key: token, path: token}]
{{- if include "slicemeter.accountingUrl" . }}
- name: accounting-token
  {{- if eq .Values.reporting.signIn "projected" }}
  projected:
    sources:
      - serviceAccountToken:
          path: token
          audience: {{ .Values.reporting.audience }}
          expirationSeconds: 3600
  {{- else }}
  secret:
    secretName: {{ .Values.reporting.tokenSecret }}
    items: [{key: {{ .Values.reporting.tokenSecretKey }}, path: token}]
  {{- end }}
{{- if .Values.reporting.caConfigMap }}
- name: accounting-ca
  configMap:
    name: {{ .Values.reporting.caConfigMap }}
    items: [{key: {{ .Values.reporting.caConfigMapKey }}, path: ca.crt}]
{{- end }}
{{- end }}
{{- with .Values.exporter.webConfigSecret }}
- name: web-config
  secret:
    secretName: {{ . }}
{{- end }}
{{- end -}}

{{/* Where accounting's books are: (list $ key-in-the-Secret). */}}
{{- define "slicemeter.booksEnvironment" -}}
{{- $root := index . 0 -}}
- name: SLICEMETER_DATABASE
  {{- if eq $root.Values.accounting.database.kind "sqlite" }}
  value: sqlite:////var/lib/slicemeter/books.sqlite
  {{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ $root.Values.accounting.database.existingSecret }}
      key: {{ index . 1 }}
  {{- end }}
- {name: HOME, value: /tmp}
{{- end -}}

{{- define "slicemeter.booksMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if eq .Values.accounting.database.kind "sqlite" }}
- {name: books, mountPath: /var/lib/slicemeter}
{{- end }}
{{- end -}}

{{- define "slicemeter.booksVolumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- if eq .Values.accounting.database.kind "sqlite" }}
- name: books
  persistentVolumeClaim:
    claimName: {{ include "slicemeter.booksClaim" . }}
{{- end }}
{{- end -}}

{{/* A Job's pod on the books: (dict "root" $ "name" n "args" list "key" secret-key "retries" n "configMap" name-or-nothing). */}}
{{- define "slicemeter.booksJob" -}}
{{- $root := .root -}}
{{- $accounting := $root.Values.accounting -}}
backoffLimit: {{ .retries }}
activeDeadlineSeconds: 21600
template:
  metadata:
    labels:
      {{- include "slicemeter.podLabels" (list $root "accounting-job" dict) | nindent 6 }}
  spec:
    restartPolicy: Never
    automountServiceAccountToken: false
    enableServiceLinks: false
    {{- include "slicemeter.pullSecrets" $root | nindent 4 }}
    securityContext:
      {{- include "slicemeter.podSecurity" 65532 | nindent 6 }}
    {{- include "slicemeter.placement" $accounting | nindent 4 }}
    {{- if eq $accounting.database.kind "sqlite" }}
    # A volume that one node mounts at a time: where the service runs, and only there.
    affinity:
      podAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels:
                {{- include "slicemeter.selector" (list $root "accounting") | nindent 16 }}
    {{- end }}
    containers:
      - name: {{ .name }}
        image: {{ include "slicemeter.image" (list $root "accounting") }}
        imagePullPolicy: {{ $root.Values.images.pullPolicy }}
        args: {{ toJson .args }}
        env:
          {{- include "slicemeter.booksEnvironment" (list $root .key) | nindent 10 }}
        securityContext:
          {{- include "slicemeter.containerSecurity" $root | nindent 10 }}
        resources:
          {{- toYaml $accounting.resources | nindent 10 }}
        volumeMounts:
          {{- include "slicemeter.booksMounts" $root | nindent 10 }}
          {{- with .configMap }}
          - {name: file, mountPath: /etc/slicemeter/file, readOnly: true}
          {{- end }}
    volumes:
      {{- include "slicemeter.booksVolumes" $root | nindent 6 }}
      {{- with .configMap }}
      - name: file
        configMap: {name: {{ . }}}
      {{- end }}
{{- end -}}
