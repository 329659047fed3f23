{{/*
The budget and the Deployment of one role, from (dict "root" $ "role" "webhook" "port" 8443 "settings" "fettle").
`port` is 0 if nobody calls the role.
*/}}
{{- define "fettle.deployment" -}}
{{- $name := printf "fettle-%s" .role -}}
{{- $values := index .root.Values .role -}}
{{- $extender := eq .role "extender" -}}
{{- $files := and (eq .root.Values.certificates "cert-manager") (ne .role "steward") -}}
{{- if gt (int $values.replicas) 1 -}}
# No drain evicts both replicas at once. A replica that is not ready does not hold up a drain.
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
spec:
  minAvailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ $name }}
---
{{ end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
spec:
  replicas: {{ $values.replicas }}
  # A new replica serves before an old one ends.
  strategy:
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ $name }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ $name }}
        app.kubernetes.io/part-of: fettle
    spec:
      serviceAccountName: {{ $name }}
      {{- with include "fettle.placement" (merge (pick .root.Values "imagePullSecrets") $values) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      # When the node of one replica is lost, the other replica goes on.
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: {{ $name }}
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
          env:
            - {name: FETTLE_RECORDS, value: /var/lib/fettle}
          args:
            - serve
            - {{ .role }}
            {{- with .port }}
            - --{{ $.role }}-listen=:{{ . }}
            {{- end }}
            - --browse-listen=:8090
            - --settings=/etc/fettle/settings/settings.yaml
          ports:
            {{- with .port }}
            - name: {{ $.role }}
              containerPort: {{ . }}
            {{- end }}
            - name: browse
              containerPort: 8090
          livenessProbe:
            httpGet: {path: /livez, port: browse}
          readinessProbe:
            httpGet: {path: /readyz, port: browse}
          {{- if .port }}
          lifecycle:
            # Calls keep coming until every caller knows that this pod is terminating.
            preStop: {sleep: {seconds: 5}}
          {{- end }}
          # The limit is at least twice what it uses: new settings start a second process.
          resources: {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: settings, mountPath: /etc/fettle/settings, readOnly: true}
            - {name: records, mountPath: /var/lib/fettle}
            {{- if $extender }}
            - {name: clients, mountPath: /etc/fettle/clients, readOnly: true}
            {{- end }}
            {{- if $files }}
            - {name: {{ .role }}-tls, mountPath: /etc/fettle/{{ .role }}-tls, readOnly: true}
            {{- end }}
            {{- with .root.Values.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: settings
          configMap: {name: {{ if $files }}{{ $name }}-files{{ else }}{{ .settings }}{{ end }}}
        {{- if and $extender $files }}
        # The certificate of the client CA, without its key.
        - name: clients
          secret:
            secretName: fettle-clients
            items: [{key: tls.crt, path: ca.crt}]
        {{- else if $extender }}
        - name: clients
          configMap: {name: fettle-extender-clients}
        {{- end }}
        {{- if $files }}
        - name: {{ .role }}-tls
          secret: {secretName: {{ $name }}-tls}
        {{- end }}
        # Records of decisions. They outlive the container, but not the pod: use a volume of another
        # kind if they must.
        - name: records
          {{- toYaml .root.Values.records | nindent 10 }}
        {{- with .root.Values.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}
