"""What e2e-deploy and e2e-jobs share: how they start programs."""
import socket
import subprocess


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
