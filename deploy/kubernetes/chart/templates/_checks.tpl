{{- /* Refuses a value of another format: list PLACE VALUE FORMAT. An empty value selects a default. */}}
{{- define "plancha.check.format" }}
{{- $repository := `[A-Za-z0-9][-A-Za-z0-9._]*(:[0-9]+)?(/[a-z0-9][-a-z0-9._]*)*` }}
{{- $callers := `(kubernetes|tokens=/[^,]+|oidc=https://[^,[:space:]]+(,(audience|client-id|client-secret-file|scope)=[^,]+)+)` }}
{{- $cron := list }}
{{- range list
  `[0-5]?[0-9]`
  `([01]?[0-9]|2[0-3])`
  `(0?[1-9]|[12][0-9]|3[01])`
  `(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)`
  `([0-6]|sun|mon|tue|wed|thu|fri|sat)` }}
{{- $part := printf `(\*|\?|%s(-%s)?)(/[1-9][0-9]*)?` . . }}
{{- $cron = append $cron (printf `%s(,%s)*` $part $part) }}
{{- end }}
{{- $format := index (dict
  "release" (list `[a-z]([-a-z0-9]*[a-z0-9])?`
    "lower-case letters, digits and hyphens, first a letter: the name of the Service begins with it")
  "run" (list `[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?`
    "at most 52 lower-case letters, digits and hyphens")
  "object" (list `[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?`
    "the name of an object: lower-case letters, digits, hyphens and dots")
  "image" (list (print $repository `(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@sha256:[0-9a-f]{64})?`)
    "IMAGE:TAG or IMAGE@sha256:DIGEST")
  "storage" (list `file://(/[^/%?#:[:space:]]+){2,}|(s3|gs|az)://[^/[:space:]][^[:space:]]*`
    "file:///DIRECTORY/NAME, s3://BUCKET[/PREFIX], gs://BUCKET[/PREFIX] or az://CONTAINER[/PREFIX]")
  "auth" (list (printf `none|%s(,%s)*` $callers $callers)
    "kubernetes, tokens=/FILE, oidc=https://ISSUER with its options, several of them separated by commas, or none")
  "url" (list `https?://[^/[:space:]][^[:space:]]*`
    "http://HOST[:PORT] or https://HOST[:PORT]")
  "path" (list `/.*`
    "an absolute path")
  "quantity" (list `([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?`
    "a quantity such as 10Gi, 512Mi or 0.5")
  "duration" (list `([0-9]+(ms|[ywdhms]))+`
    "a duration such as 30s")
  "schedule" (list (printf `@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every ([0-9.]+(ms|[hms]))+|(?i:%s)` (join `\s+` $cron))
    "five fields (minute, hour, day, month, weekday from 0 to 6) such as \"0 4 * * *\", or a word such as @daily")
  "label" (list `[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`
    "at most 63 letters, digits, -, _ and .; the first and the last one is a letter or a digit")
  "label key" (list `([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`
    "NAME or DOMAIN/NAME, as Kubernetes names labels")
  "cidr" (list (print `((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])/([12]?[0-9]|3[0-2])`
      `|[0-9A-Fa-f.]*:[0-9A-Fa-f.:]*/([1-9]?[0-9]|1[01][0-9]|12[0-8])`)
    "a range such as 10.0.0.0/8")
  "zone" (list `[A-Za-z]+[A-Za-z0-9_]*(/[-+A-Za-z0-9_]+)*`
    "a name such as Europe/Paris")
  "verb" (list `read|write|append|list|delete|admin`
    "read, write, append, list, delete or admin")
  "kind" (list `plan|bin|json|pretty|short|log|bundle|artifact|workspace|state|lease|status|outputs`
    "plan, bin, json, pretty, short, log, bundle, artifact, workspace, state, lease, status or outputs")
) (index . 2) }}
{{- $value := index . 1 }}
{{- $value = kindIs "invalid" $value | ternary "" (toString $value) }}
{{- if and $value (not (regexMatch (printf `^(%s)$` (first $format)) $value)) }}
{{- fail (printf "%s: invalid value %q. next: set %s" (first .) $value (last $format)) }}
{{- end }}
{{- end }}

{{- /* Refuses a schedule with a range from a higher value to a lower one: list PLACE SCHEDULE. */}}
{{- define "plancha.check.ranges" }}
{{- $names := dict }}
{{- range $index, $name := splitList " " "sun mon tue wed thu fri sat" }}{{ $_ := set $names $name $index }}{{ end }}
{{- range $index, $name := splitList " " "jan feb mar apr may jun jul aug sep oct nov dec" }}{{ $_ := set $names $name $index }}{{ end }}
{{- range regexFindAll `[0-9a-z]+-[0-9a-z]+` (lower (last .)) -1 }}
{{- $ends := list }}
{{- range splitList "-" . }}
{{- $ends = append $ends (hasKey $names . | ternary (get $names .) (int (trimPrefix "0" .))) }}
{{- end }}
{{- if gt (first $ends) (last $ends) }}
{{- fail (printf "%s: invalid value %q. next: set ranges such as 1-5, from the lower to the higher value, instead of %s" (first $)
  (last $) .) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Refuses a range that is not a part of another one, as the API server does: list PLACE OUTER INNER. */}}
{{- define "plancha.check.except" }}
{{- $outer := splitList "/" (index . 1) }}
{{- $inner := splitList "/" (last .) }}
{{- $bits := int (last $outer) }}
{{- $isInside := and (gt (int (last $inner)) $bits) (eq (contains ":" (first $outer)) (contains ":" (first $inner))) }}
{{- if $isInside }}
{{- $size := contains ":" (first $outer) | ternary 16 8 }}
{{- $groups := fromJsonArray (include "plancha.groups" (first $inner)) }}
{{- range $index, $group := fromJsonArray (include "plancha.groups" (first $outer)) }}
{{- $compared := min $size (max 0 (sub $bits (mul $index $size))) }}
{{- $divisor := 1 }}
{{- range until (int (sub $size $compared)) }}{{ $divisor = mul $divisor 2 }}{{ end }}
{{- if ne (div $group $divisor) (div (index $groups $index) $divisor) }}{{ $isInside = false }}{{ end }}
{{- end }}
{{- end }}
{{- if not $isInside }}
{{- fail (printf "%s: invalid value %q. next: set a smaller range inside of %s" (first .) (last .) (index . 1)) }}
{{- end }}
{{- end }}

{{- /* The numbers of an IP address, as JSON: 4 of 8 bits, or 8 of 16. */}}
{{- define "plancha.groups" }}
{{- $numbers := list }}
{{- if contains ":" . }}
{{- $halves := splitList "::" . }}
{{- $head := compact (splitList ":" (first $halves)) }}
{{- $tail := gt (len $halves) 1 | ternary (compact (splitList ":" (last $halves))) list }}
{{- range until (int (max 0 (sub 8 (len (concat $head $tail))))) }}{{ $head = append $head "0" }}{{ end }}
{{- range concat $head $tail }}{{ $numbers = append $numbers (int64 (print "0x" .)) }}{{ end }}
{{- else }}
{{- range splitList "." . }}{{ $numbers = append $numbers (int64 .) }}{{ end }}
{{- end }}
{{- toJson $numbers }}
{{- end }}

{{- /* Refuses what the chart sets itself: list PLACE NAMES SET. SET maps each such name to what the user sets instead. */}}
{{- define "plancha.check.set" }}
{{- range index . 1 }}
{{- $name := . }}
{{- if kindIs "map" . }}{{ $name = .name }}{{ end }}
{{- $key := $name }}
{{- if hasPrefix "--" $name }}{{ $key = first (splitList "=" $name) }}{{ end }}
{{- if hasKey (last $) $key }}
{{- $instead := index (last $) $key }}
{{- fail (printf "%s%s: the chart sets it. next: %s" (first $) $name (empty $instead | ternary "remove it" (print "use " $instead))) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Refuses quantities that are none, and requests above their limit: list PLACE RESOURCES. */}}
{{- define "plancha.check.resources" }}
{{- $place := first . }}
{{- $resources := last . | default dict }}
{{- range $kind := list "requests" "limits" }}
{{- range $name, $quantity := get $resources $kind | default dict }}
{{- include "plancha.check.format" (list (printf "%s.%s.%s" $place $kind $name) $quantity "quantity") }}
{{- end }}
{{- end }}
{{- range $name, $quantity := $resources.requests }}
{{- $limit := get ($resources.limits | default dict) $name }}
{{- if and (toString $limit) (gt (float64 (include "plancha.number" $quantity)) (float64 (include "plancha.number" $limit))) }}
{{- fail (printf "%s.requests.%s: %v is more than the limit of %v. next: lower it, or raise %s.limits.%s" $place $name $quantity
  $limit $place $name) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A quantity as a number. */}}
{{- define "plancha.number" }}
{{- $number := regexFind `^[0-9.]+([eE][-+]?[0-9]+)?` (toString .) }}
{{- $factors := dict "n" 1e-9 "u" 1e-6 "m" 1e-3 "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
  "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 }}
{{- mulf (float64 $number) (get $factors (trimPrefix $number (toString .))) }}
{{- end }}

{{- /* Refuses volumes and mounts that meet the chart's own: dict place, values, own (the chart's mount paths, by volume), closed
(the mount paths below which nothing can be mounted). */}}
{{- define "plancha.check.volumes" }}
{{- $volumes := keys .own }}
{{- range .values.volumes }}
{{- if has .name $volumes }}
{{- fail (printf "%s.volumes: %s: another volume has this name. next: choose another name" $.place .name) }}
{{- end }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- $mounted := values .own }}
{{- range .values.volumeMounts }}
{{- $path := clean .mountPath }}
{{- if not (has .name $volumes) }}
{{- fail (printf "%s.volumeMounts: %s: no volume has this name. next: add it to %s.volumes" $.place .name $.place) }}
{{- end }}
{{- if has $path $mounted }}
{{- fail (printf "%s.volumeMounts: %s: something else is mounted there. next: choose another mountPath" $.place .mountPath) }}
{{- end }}
{{- range $.closed }}
{{- if hasPrefix (print . "/") $path }}
{{- fail (printf "%s.volumeMounts: %s: the chart mounts its own files in %s. next: choose another mountPath" $.place $path .) }}
{{- end }}
{{- end }}
{{- $mounted = append $mounted $path }}
{{- end }}
{{- end }}
