"""What the scripts in Python share: their arguments, how they start programs, and what cannot run."""
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target/e2e"
KUBERNETES = TOOLS / "kubernetes-1.36"
DEPLOY = ROOT / "deploy"
skipped = []


def arguments(usage, is_valid):
    """The arguments of a script. `-h` prints its usage, and arguments that are not valid end it."""
    given = sys.argv[1:]
    if given in (["-h"], ["--help"]):
        print(usage)
        sys.exit()
    if not is_valid(given):
        print(usage, file=sys.stderr)
        sys.exit(64)
    return given


def kubeconfig():
    """The file that names the API server of the tests."""
    if path := os.environ.get("PLANCHA_TEST_KUBECONFIG"):
        return path
    sys.exit(f"{Path(sys.argv[0]).name}: PLANCHA_TEST_KUBECONFIG is not set. next: start this by scripts/e2e pods or scripts/e2e-kubernetes")


def run(*command, ok=(0,), **options):
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, **options)
    if done.returncode not in ok:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def git(directory, *args):
    identity = ["-c", "user.name=e2e", "-c", "user.email=e2e@localhost", "-c", "init.defaultBranch=main"]
    return run("git", *identity, "-C", directory, *args).stdout.strip()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Skip(Exception):
    """A section, or the rest of it, that cannot run here."""


def skip(section, reason):
    skipped.append((section, reason))


def need(program, source):
    if not shutil.which(program):
        raise Skip(f"{program} is not here ({source})")


def yaml():
    try:
        import yaml
    except ImportError:
        raise Skip("Python's yaml is not here (Debian: python3-yaml)") from None
    return yaml
