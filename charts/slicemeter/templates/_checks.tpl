{{/* What contradicts itself is refused before anything is installed. */}}

{{- define "slicemeter.checks" -}}
{{- $v := .Values -}}
{{- if not (or $v.node.enabled $v.cluster.enabled $v.accounting.enabled) -}}
{{- fail "nothing to install: switch on node.enabled, cluster.enabled or accounting.enabled" -}}
{{- end -}}
{{- if and (or $v.node.enabled $v.cluster.enabled) (not $v.clusterName) -}}
{{- fail "clusterName is empty: give the cluster's code in accounting, e.g. --set clusterName=berlin" -}}
{{- end -}}
{{- if and (or $v.node.enabled $v.cluster.enabled) (include "slicemeter.accountingUrl" .) (eq $v.reporting.signIn "secret") (not $v.reporting.tokenSecret) -}}
{{- fail "reporting.tokenSecret is empty: with reporting.signIn=secret name the Secret with the exporters' token" -}}
{{- end -}}
{{- if $v.accounting.enabled -}}
{{- if and (eq $v.accounting.database.kind "sqlite") (gt (int $v.accounting.replicas) 1) -}}
{{- fail "accounting.replicas: more than one pod cannot share an SQLite file; set accounting.database.kind=postgresql or one replica" -}}
{{- end -}}
{{- if and (eq $v.accounting.database.kind "postgresql") (not $v.accounting.database.existingSecret) -}}
{{- fail "accounting.database.existingSecret is empty: name the Secret with the addresses of the PostgreSQL database" -}}
{{- end -}}
{{- if and $v.accounting.ingress.enabled (not $v.accounting.ingress.host) -}}
{{- fail "accounting.ingress.host is empty: give the host name that accounting is reached by" -}}
{{- end -}}
{{- end -}}
{{- end -}}
