{{/* The image, by digest where one is given. */}}
{{- define "fettle.image" -}}
{{- with .Values.image -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end -}}
{{- end -}}

{{/* A ConfigMap's data: the settings of the values with those of `own` under them, and the files. */}}
{{- define "fettle.settingsFiles" -}}
settings.yaml: |
  {{- mergeOverwrite (deepCopy .own) .root.Values.settings | toYaml | nindent 2 }}
{{- range $name, $content := .root.Values.files }}
{{ $name }}: |
  {{- $content | trimSuffix "\n" | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Which of Fettle's roles run as Deployments, and so in the release's namespace: a JSON list. */}}
{{- define "fettle.deployed" -}}
{{- $roles := list -}}
{{- if .Values.webhook.enabled }}{{ $roles = append $roles "webhook" }}{{ end -}}
{{- if .Values.steward.enabled }}{{ $roles = append $roles "steward" }}{{ end -}}
{{- if eq .Values.extender.type "Deployment" }}{{ $roles = append $roles "extender" }}{{ end -}}
{{- toJson $roles -}}
{{- end -}}

{{/* The accounts of all roles that the chart runs, as subjects of a binding. */}}
{{- define "fettle.subjects" -}}
{{- range fromJsonArray (include "fettle.deployed" .) }}
- kind: ServiceAccount
  name: fettle-{{ . }}
  namespace: {{ $.Release.Namespace }}
{{- end }}
{{- if eq .Values.extender.type "DaemonSet" }}
- kind: ServiceAccount
  name: fettle-extender
  namespace: kube-system
{{- end }}
{{- end -}}

{{/* Where pods run, how urgently, and from whose registry. */}}
{{- define "fettle.placement" -}}
{{- with .imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The annotations of what a hook of this kind needs: there before its pod, and gone after it. */}}
{{- define "fettle.hook" -}}
helm.sh/hook: {{ . }}
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/*
The pod of a hook or of a schedule, from (dict "root" $ "account" "fettle-check" "args" (list "status")).
With "settings" it has those of webhook and steward, with "resources" others than a hook needs.
*/}}
{{- define "fettle.oneOff" -}}
{{- $placed := dict -}}
{{- with first (fromJsonArray (include "fettle.deployed" .root)) }}{{ $placed = index $.root.Values . }}{{ end -}}
restartPolicy: Never
serviceAccountName: {{ .account }}
{{- with include "fettle.placement" (merge (pick .root.Values "imagePullSecrets") $placed) | trim }}
{{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: fettle
    image: {{ include "fettle.image" .root }}
    {{- with .root.Values.image.pullPolicy }}
    imagePullPolicy: {{ . }}
    {{- end }}
    command: [fettle]
    args: {{- toYaml .args | nindent 6 }}
    env:
      # Not the one process that the image names.
      - {name: FETTLE_SERVER, value: ""}
    {{- if .resources }}
    resources: {{- toYaml .resources | nindent 6 }}
    {{- else }}
    resources:
      requests: {cpu: 100m, memory: 128Mi}
      limits: {memory: 512Mi}
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    {{- if .settings }}
    volumeMounts:
      - {name: settings, mountPath: /etc/fettle/settings, readOnly: true}
      {{- with .root.Values.volumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: settings
    configMap: {name: fettle}
  {{- with .root.Values.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
    {{- end }}
{{- end -}}
