"""The sections `chart` and `kubernetes` of e2e-deploy, and what the chart renders."""
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from e2e_common import DEPLOY, KUBERNETES, ROOT, Skip, need, run, skip, skipped, yaml
from e2e_converge import converge_on_api

CHART = DEPLOY / "kubernetes/chart"
EXAMPLES = DEPLOY / "kubernetes/examples"
KUSTOMIZE = DEPLOY / "kubernetes/kustomize"
KUBE_VERSION = "1.36.0"
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
# Namespace and values of each rendering. A ServiceMonitor is a base of its own: its kind may be unknown to a cluster.
# The base `apply` has only what its rendering adds to `runs`.
RENDERINGS = {
    "datastore": ("plancha", []),
    "datastore-bucket": ("plancha", ["bucket.yaml"]),
    "runs": ("team-a", ["runs.yaml"]),
    "apply": ("team-a", ["runs.yaml", "apply.yaml"]),
}
DRY_RUN = ["apply", "--server-side", "--dry-run=server", "--validate=strict"]
HEADER = "# Made from the chart by scripts/e2e-deploy --write. Patch it in an overlay; do not edit it.\n"
EVERYTHING = ROOT / "tests/fixtures/deploy/everything.yaml"
REFUSED = ROOT / "tests/fixtures/deploy/refused.yaml"


def render(name, *more):
    namespace, values = RENDERINGS[name]
    need("helm", "scripts/e2e deploy builds it")
    options = ["--namespace", namespace, "--kube-version", KUBE_VERSION, *more]
    options += [part for file in values for part in ("--values", EXAMPLES / file)]
    return run("helm", "template", "plancha", CHART, *options).stdout


def documents(text):
    """The documents of a rendering, as text, without helm's comments."""
    found = [re.sub(r"^# Source: .*\n", "", part.strip("\n"), flags=re.M) for part in re.split(r"^---$", text, flags=re.M)]
    return [part.strip("\n") for part in found if part.strip()]


def base(name):
    """The documents of a rendering that belong to the Kustomize base of the same name, and ServiceMonitors."""
    known = documents(render("runs")) if name == "apply" else []
    return [part for part in documents(render(name)) if part not in known]


def bases():
    """The files of the Kustomize bases, by path."""
    files = {}
    for name in RENDERINGS:
        parts = base(name)
        monitors = [part for part in parts if "kind: ServiceMonitor" in part]
        others = [part for part in parts if part not in monitors]
        files[KUSTOMIZE / name / "resources.yaml"] = HEADER + "\n---\n".join(others) + "\n"
        if monitors:
            files[KUSTOMIZE / "service-monitor/resources.yaml"] = HEADER + "\n---\n".join(monitors) + "\n"
    return files


def objects(text):
    """The objects of a text, by kind and name, without their namespaces: Kustomize adds these."""
    loaded = [document for document in yaml().safe_load_all(text) if document]
    for document in loaded:
        document["metadata"].pop("namespace", None)
    return {(document["kind"], document["metadata"]["name"]): document for document in loaded}


def template(values, ok=(0,), release="plancha"):
    """What helm makes of values."""
    return run("helm", "template", release, CHART, "--kube-version", KUBE_VERSION, "--values", "-", input=json.dumps(values), ok=ok)


def refused_values():
    faults = []
    for values in yaml().safe_load(REFUSED.read_text()):
        message = values.pop("message")
        if "run" in values:
            values["runs"] = {"a": {"action": "plan", "source": "x", **values.pop("run")}}
        done = template(values, ok=(0, 1))
        if message not in done.stderr:
            faults.append(f"expected: {message}\nfound: {done.stderr or 'no error'}")
    for release in ("a.b", "7"):
        done = template({}, ok=(0, 1), release=release)
        if f'the name of the release: invalid value "{release}"' not in done.stderr:
            faults.append(f"the release {release}: {done.stderr or 'no error'}")
    assert not faults, "\n".join(faults)


def accepted_values():
    """Values that look unusual and are right."""
    for schedule in ("@hourly", "@every 1h30m", "*/15 0-6,12 1,15 JAN-mar/2 mon-FRI", "0  4 ? * 0"):
        template({"runs": {"a": {"action": "plan", "source": "x", "schedule": schedule, "timeZone": "Etc/GMT+1"}}})
    for image in ("localhost:5000/a/plancha", "plancha@sha256:" + "0" * 64, "r.example.com/a/b__c:v1@sha256:" + "0" * 64):
        template({"datastore": {"image": image}})
    resources = {"requests": {"cpu": 0.5, "memory": 1073741824}, "limits": {"memory": "1.5G", "cpu": "500m", "ephemeral-storage": "1e9"}}
    values = {"datastore": {
        "storage": "file:///mnt/a~b/plancha@1", "auth": "tokens=/own/a.yaml,kubernetes,tokens=/own/b.yaml", "resources": resources,
        "volumes": [{"name": "own", "emptyDir": {}}],
        "volumeMounts": [{"name": "own", "mountPath": "/etc/plancha"}, {"name": "data", "mountPath": "/other"}],
        "env": [{"name": "PLANCHA_POLICY", "value": "/etc/plancha/policy.yaml"}], "args": ["--drain-timeout=2m"],
        "podSpec": {"terminationGracePeriodSeconds": 150}}}
    deployment = objects(template(values).stdout)["Deployment", "plancha-datastore"]["spec"]["template"]["spec"]
    assert deployment["terminationGracePeriodSeconds"] == 150, deployment
    template({"datastore": {"auth": "none", "args": ["--insecure-no-auth"]}})
    issuer = "oidc=https://sso.example.com/realms/a,audience=plancha,client-id=ui,client-secret-file=/own/secret,scope=email"
    rule = {"who": {"oidc": "https://sso.example.com/realms/a", "claims": {"groups": "ops"}}, "namespaces": ["*"],
            "kinds": ["plan", *kinds()], "verbs": ["read"], "browser": "all"}
    text = template({"datastore": {"auth": f"kubernetes,{issuer}", "rules": [rule]}}).stdout
    [rules] = [body["data"] for (kind, _), body in objects(text).items() if kind == "ConfigMap"]
    assert yaml().safe_load(rules["rules.yaml"]) == {"rules": [rule]}, rules
    tokens = template({"datastore": {"auth": "tokens=/etc/kubernetes/tokens.yaml"}}).stdout
    assert "tokenreviews" not in tokens, "a datastore that reviews no tokens needs no right to"
    spread = [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    values = {"datastore": {"storage": "gs://bucket", "podSpec": {"topologySpreadConstraints": spread}}}
    text = template(values).stdout
    assert text.count("topologySpreadConstraints:") == 1 and "maxSkew: 2" in text, text
    # null removes a default.
    nothing = dict.fromkeys(("env", "envFrom", "volumes", "volumeMounts", "podLabels", "podSpec", "resources"))
    template({"datastore": {**nothing, "args": None, "rules": None, "serviceMonitor": {"labels": None}}, "runner": nothing,
              "runs": {"a": {"action": "plan", "source": "x"}}})
    template({"datastore": {"resources": {"limits": None}}})
    template({"datastore": {"tlsSecret": None, "volume": {"storageClass": None}},
              "runner": {"binDir": None, "stateClaim": None, "tokenSecret": None, "datastore": None},
              "runs": {"a": {"action": "plan", "source": "x"}}})
    blocks = [{"ipBlock": {"cidr": cidr}} for cidr in ("0.0.0.0/0", "192.168.255.0/24", "fd00::/8", "::/0")]
    template({"datastore": {"networkPolicy": {"from": blocks}}})
    # Names and numbers that YAML would read as another type.
    text = template({"datastore": {"enabled": False}, "runner": {"graceSeconds": 1000000, "datastore": "http://a"},
                     "runs": {"1234": {"action": "plan", "source": "x"}}}, release="7").stdout
    job = objects(text)["Job", "1234"]["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "PLANCHA_GRACE", "value": "1000000s"} in job["env"], job["env"]
    assert ("ServiceAccount", "7-runner") in objects(text)


def kinds():
    """The kinds of artifacts that the datastore knows."""
    source = (ROOT / "datastore/src/kind.rs").read_text()
    return re.findall(r'Self::\w+ => "(\w+)",', source)


def admitted():
    """The NetworkPolicy of the datastore lets in every pod here that has a datastore's URL."""
    [policy] = [body for (kind, _), body in objects(render("datastore")).items() if kind == "NetworkPolicy"]
    selector = policy["spec"]["ingress"][0]["from"][0]["podSelector"]
    [expression] = selector["matchExpressions"]
    texts = [render("apply"), *(path.read_text() for path in sorted((DEPLOY / "kubernetes/converge").glob("*.yaml")))]
    templates = [body for text in texts for body in pod_templates(text).values()]
    callers = [body["metadata"]["labels"] for body in templates if "PLANCHA_DATASTORE_URL" in json.dumps(body)]
    assert len(callers) == 5, callers
    for labels in callers:
        assert selector["matchLabels"].items() <= labels.items() and labels[expression["key"]] in expression["values"], labels


def chart():
    need("helm", "scripts/e2e deploy builds it")
    for values in (None, *sorted(EXAMPLES.glob("*.yaml"))):
        run("helm", "lint", "--strict", "--quiet", CHART, *(["--values", values] if values else []))
    for path, text in bases().items():
        same = path.exists() and path.read_text() == text
        assert same, f"{path.relative_to(ROOT)} differs from the chart. next: scripts/e2e-deploy --write"
    refused_values()
    accepted_values()
    admitted()
    secured = render("datastore", "--set", "datastore.tlsSecret=tls", "--set-json",
                     'datastore.rules=[{"who":{"token":"ci","sha256":"00"},"namespaces":["*"],"verbs":["read"]}]')
    container = objects(secured)["Deployment", "plancha-datastore"]["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "PLANCHA_AUTH", "value": "kubernetes,tokens=/etc/plancha/rules.yaml"} in container["env"], container
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    # What is not known to be stored is repeated only where the state home stays.
    for options, is_repeated in (("", True), (",runs.a.args={--no-plan}", False),
                                 (",runs.a.args={--no-plan},runner.stateClaim=state", True)):
        applied = objects(render("datastore", "--set", f"runs.a.action=apply,runs.a.source=x{options}"))
        [job] = [body for (kind, _), body in applied.items() if kind == "Job"]
        codes = job["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"]
        assert (10 in codes) == is_repeated and {4, 6, 137, 143} <= set(codes), (options, codes)
    need("kubectl", "scripts/e2e-kubernetes builds it")
    for name in RENDERINGS:
        built = objects(run("kubectl", "kustomize", KUSTOMIZE / name).stdout)
        rendered = objects("\n---\n".join(base(name)))
        assert built == {key: value for key, value in rendered.items() if key[0] != "ServiceMonitor"}, name
    jobs = [name for kind, name in objects(render("runs")) if kind == "Job"]
    assert not jobs, f"{jobs} would start with the installation, before there is a plan"
    # An overlay in another namespace: the right to review tokens must follow.
    with tempfile.TemporaryDirectory() as directory:
        shutil.copytree(KUSTOMIZE, Path(directory, "bases"))
        overlay = Path(directory, "overlay")
        overlay.mkdir()
        (overlay / "kustomization.yaml").write_text("namespace: other\nresources: [../bases/datastore]\n")
        built = objects(run("kubectl", "kustomize", overlay).stdout)
        [subject] = built["ClusterRoleBinding", "plancha-plancha-datastore"]["subjects"]
        assert subject["namespace"] == "other", subject


def pod_templates(text):
    """The pod templates of a rendering, by the name of their object."""
    found = {}
    for (kind, name), body in objects(text).items():
        if kind in ("Deployment", "Job"):
            found[name] = body["spec"]["template"]
        elif kind == "CronJob":
            found[name] = body["spec"]["jobTemplate"]["spec"]["template"]
    return found


def kubernetes():
    need("helm", "scripts/e2e deploy builds it")
    need("etcd", "Debian: etcd-server")
    if not (KUBERNETES / "kube-apiserver").exists():
        raise Skip("no kube-apiserver: scripts/e2e-kubernetes builds it")
    yaml()
    with tempfile.TemporaryDirectory() as directory:
        reasons = Path(directory, "skipped")
        done = subprocess.run([ROOT / "scripts/e2e-kubernetes", ROOT / "scripts/e2e-deploy", "--on-api", reasons])
        for reason in reasons.read_text().splitlines() if reasons.exists() else ():
            skip("kubernetes", reason)
    assert done.returncode == 0, "see above"


def crd_of_service_monitors():
    if not shutil.which("go"):
        return None
    done = subprocess.run(["go", "mod", "download", "-json", OPERATOR], text=True, capture_output=True, cwd="/")
    if done.returncode:
        return None
    found = Path(json.loads(done.stdout)["Dir"], "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml")
    return found if found.exists() else None


def on_api(reasons):
    """The part of `kubernetes` that needs an API server. The file `reasons` gets a line for each check that is skipped."""
    try:
        check_on_api()
    finally:
        Path(reasons).write_text("".join(f"{reason}\n" for _, reason in skipped))


def check_on_api():
    os.environ["KUBECONFIG"] = os.environ["PLANCHA_TEST_KUBECONFIG"]
    for namespace in ("plancha", "team-a"):
        run("kubectl", "create", "namespace", namespace)
        run("kubectl", "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted",
            "pod-security.kubernetes.io/warn=restricted")
    crd = crd_of_service_monitors()
    if crd:
        run("kubectl", "create", "--filename", crd)
        run("kubectl", "wait", "--for", "condition=established", "--timeout", "60s", "--filename", crd)
    else:
        skip("kubernetes", "the definition of ServiceMonitors cannot be fetched (by Go, from its module proxy)")

    def without_warnings(*command, **options):
        done = run(*command, **options)
        assert "Warning" not in done.stderr, done.stderr

    for name, (namespace, _) in RENDERINGS.items():
        text = "\n---\n".join(part for part in documents(render(name)) if crd or "kind: ServiceMonitor" not in part)
        server = ["kubectl", "--namespace", namespace, *DRY_RUN]
        without_warnings(*server, "--filename", "-", input=text)
        without_warnings(*server, "--kustomize", KUSTOMIZE / name)
        for owner, template in pod_templates(text).items():
            # No controller runs here, so the pods are tried by themselves: Pod Security only refuses pods.
            run("kubectl", "--namespace", namespace, "create", "serviceaccount", template["spec"]["serviceAccountName"], ok=(0, 1))
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": owner}, "spec": template["spec"]}
            without_warnings(*server, "--filename", "-", input=json.dumps(pod))
    # Every value that adds something, together.
    parts = documents(render("runs", "--values", EVERYTHING))
    text = "\n---\n".join(part for part in parts if crd or "kind: ServiceMonitor" not in part)
    without_warnings("kubectl", "--namespace", "team-a", *DRY_RUN, "--filename", "-", input=text)
    for name in ("plancha-datastore", "plancha-runner"):
        for namespace in ("plancha", "team-a"):
            run("kubectl", "--namespace", namespace, "delete", "serviceaccount", name, "--ignore-not-found")
    if crd:
        without_warnings("kubectl", *DRY_RUN, "--kustomize", KUSTOMIZE / "service-monitor")

    converge_on_api(OPERATOR, DRY_RUN)
    may = ["kubectl", "auth", "can-i", "--as", "system:serviceaccount:plancha:plancha-datastore"]
    run("helm", "install", "plancha", CHART, "--namespace", "plancha")
    assert run(*may, "create", "tokenreviews.authentication.k8s.io").stdout == "yes\n"
    for right in (["create", "subjectaccessreviews.authorization.k8s.io"], ["get", "secrets"], ["list", "pods"]):
        assert run(*may, *right, ok=(0, 1)).stdout == "no\n", right
    run("helm", "upgrade", "plancha", CHART, "--namespace", "plancha", "--values", EXAMPLES / "bucket.yaml",
        "--set", f"datastore.serviceMonitor.enabled={str(bool(crd)).lower()}")
    run("helm", "upgrade", "plancha", CHART, "--namespace", "plancha", "--reset-values")
    runs = ["--namespace", "team-a", "--values", EXAMPLES / "runs.yaml"]
    run("helm", "install", "plancha", CHART, *runs)
    run("helm", "upgrade", "plancha", CHART, *runs, "--values", EXAMPLES / "apply.yaml")
    run("helm", "uninstall", "plancha", "--namespace", "team-a")
    run("helm", "uninstall", "plancha", "--namespace", "plancha")
    claims = run("kubectl", "--namespace", "plancha", "get", "pvc", "--output", "name").stdout
    assert claims == "persistentvolumeclaim/plancha-datastore\n", f"the data must stay: {claims}"
    kubeconform()


def kubeconform():
    """Against schemas that are made of the API server's own description."""
    if not shutil.which("kubeconform"):
        skip("kubernetes", "kubeconform is not here (scripts/e2e deploy builds it)")
        return
    definitions = json.loads(run("kubectl", "get", "--raw", "/openapi/v2").stdout)["definitions"]
    for definition in definitions.values():
        if "properties" in definition:
            definition.setdefault("additionalProperties", False)
    # Both are written as numbers or as texts.
    definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = {"type": ["string", "integer"]}
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"type": ["string", "number"]}
    with tempfile.TemporaryDirectory() as directory:
        for name in RENDERINGS:
            text = "\n---\n".join(part for part in documents(render(name)) if "kind: ServiceMonitor" not in part)
            for body in objects(text).values():
                group, _, version = body["apiVersion"].rpartition("/")
                wanted = {"group": group, "version": version, "kind": body["kind"]}
                found = next(key for key, value in definitions.items()
                             if value.get("x-kubernetes-group-version-kind") == [wanted])
                schema = {"$ref": f"#/definitions/{found}", "definitions": definitions}
                suffix = f"{group.split('.')[0]}-{version}" if group else version
                Path(directory, f"{body['kind'].lower()}-{suffix}.json").write_text(json.dumps(schema))
            location = directory + "/{{ .ResourceKind }}{{ .KindSuffix }}.json"
            run("kubeconform", "-strict", "-schema-location", location, input=text)
            broken = text.replace("metadata:", "metaData:", 1)
            run("kubeconform", "-strict", "-schema-location", location, input=broken, ok=(1,))
