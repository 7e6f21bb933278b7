"""The section `monitoring` of e2e-deploy, and what the section `kubernetes` tries of deploy/kubernetes/converge."""
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from e2e_common import DEPLOY, need, run, skip, yaml

CONVERGE = DEPLOY / "kubernetes/converge"
MONITORING = DEPLOY / "monitoring"
NAMESPACE = "team-a"
POD_MONITOR = "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"


def monitoring():
    need("promtool", "Debian: prometheus")
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        run("promtool", *command, cwd=MONITORING)
    # Without the file of the token, which only a site has.
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(MONITORING / "alerts.yaml", directory)
        token, config = Path(directory, "token"), Path(directory, "prometheus.yaml")
        token.touch()
        config.write_text((MONITORING / "prometheus.yaml").read_text().replace("/etc/prometheus/plancha-token", str(token)))
        run("promtool", "check", "config", config)


def documents():
    """The objects of all manifests of converge."""
    files = sorted(CONVERGE.glob("*.yaml"))
    return [document for file in files for document in yaml().safe_load_all(file.read_text())]


def definition(operator):
    """The definition of PodMonitors in the sources of the operator. None if they cannot be fetched."""
    if not shutil.which("go"):
        return None
    done = subprocess.run(["go", "mod", "download", "-json", operator], text=True, capture_output=True, cwd="/")
    found = Path(json.loads(done.stdout)["Dir"], POD_MONITOR) if done.returncode == 0 else None
    return found if found and found.exists() else None


def converge_on_api(operator, dry_run):
    """A dry run of every object in a namespace of the level `restricted`, and who may read the metrics."""
    crd = definition(operator)
    if crd:
        run("kubectl", "create", "--filename", crd)
        run("kubectl", "wait", "--for", "condition=established", "--timeout", "60s", "--filename", crd)
    else:
        skip("kubernetes", "the definition of PodMonitors cannot be fetched (by Go, from its module proxy)")

    def accepted(document):
        done = run("kubectl", *dry_run, "--filename", "-", input=json.dumps(document))
        assert "Warning" not in done.stderr, done.stderr

    run("kubectl", "create", "--namespace", NAMESPACE, "serviceaccount", "plancha-converge")
    for document in documents():
        if document["kind"] == "PodMonitor" and not crd:
            continue
        accepted(document)
        job = document["spec"].get("jobTemplate", document)["spec"] if "spec" in document else {}
        if "template" in job:
            # No controller runs here, so the pods are tried by themselves: Pod Security only refuses pods.
            metadata = {**job["template"]["metadata"], "name": document["metadata"]["name"], "namespace": NAMESPACE}
            accepted({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": job["template"]["spec"]})
    run("kubectl", "delete", "--namespace", NAMESPACE, "serviceaccount", "plancha-converge")
    for name in ("layers.yaml", "deployment.yaml"):
        run("kubectl", "apply", "--filename", CONVERGE / name)
    rights = [part for part in documents() if part["kind"] in ("ServiceAccount", "Role", "RoleBinding")]
    for document in rights:
        run("kubectl", "apply", "--filename", "-", input=json.dumps(document))
    for account, verb, resource, answer in (
            ("plancha-metrics-reader", "get", "deployments.apps/plancha-converge", "yes"),
            ("plancha-metrics-reader", "get", "deployments.apps/other", "no"),
            ("plancha-converge", "get", "deployments.apps/plancha-converge", "no"),
            ("plancha-converge", "create", "tokenreviews.authentication.k8s.io", "yes"),
            ("plancha-converge", "create", "subjectaccessreviews.authorization.k8s.io", "yes"),
            ("plancha-converge", "get", "secrets", "no")):
        part = ["--subresource", "prometheus-metrics"] if "deployments" in resource else []
        asked = ["kubectl", "auth", "can-i", "--namespace", NAMESPACE, "--as", f"system:serviceaccount:{NAMESPACE}:{account}"]
        done = run(*asked, verb, resource, *part, ok=(0, 1))
        assert done.stdout == f"{answer}\n", (account, verb, resource, done.stdout, done.stderr)
