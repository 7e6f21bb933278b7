//! Git over https and ssh, with credentials from mounted files.

#![expect(clippy::disallowed_types, reason = "tests make repositories with git itself")]

use std::net::SocketAddr;
use std::process::Command;

use support::{Ended, Sandbox, TlsFront, executable, on_path};

use crate::RUNNER;
use crate::source::checkout::{Repository, git, repository};
use crate::source::git_server::{PASSWORD, USER, serve};

/// A sandbox whose terraform prints the value in the checkout, and whose git writes down its arguments.
fn sandbox() -> (Sandbox, Repository) {
    let sandbox = Sandbox::new(RUNNER)
        .fake_terraform("[ $STEP != init ] || { cat main.tf; git rev-list --count HEAD; }");
    let repository = repository(&sandbox);
    git(&repository.dir, &["commit", "--quiet", "--allow-empty", "-m", "fourth"]);
    let (argv, real) = (sandbox.path("argv"), on_path("git").unwrap());
    let (argv, real) = (argv.display(), real.display());
    let git = format!("#!/bin/sh\necho \"$*\" >> {argv}\nexec {real} \"$@\"\n");
    sandbox.script("git", &git);
    (sandbox, repository)
}

/// Checks that nothing shows the password: neither output, nor result, nor the arguments of git.
fn assert_private(sandbox: &Sandbox, ended: &Ended) {
    let argv = std::fs::read_to_string(sandbox.path("argv")).unwrap();
    let result = sandbox.read("result.json");
    for text in [&ended.stdout, &ended.stderr, &result, &argv] {
        assert!(!text.contains(PASSWORD), "{text}");
    }
    assert!(sandbox.is_clean());
}

fn plan(sandbox: &Sandbox, url: &str, variables: &[(&str, &str)], args: &[&str]) -> Ended {
    let common = ["plan", url, "--path", "live/vpc", "--result", "result.json"];
    let mut command: Command = sandbox.command(&[&common, args].concat());
    let ended = command.envs(variables.iter().copied()).output().unwrap().into();
    assert_private(sandbox, &ended);
    ended
}

/// A repository that was renamed redirects to its own server.
#[test]
fn redirect_to_another_server_does_not_get_the_credentials() {
    let (sandbox, Repository { dir, .. }) = sandbox();
    let [own, other] = [(); 2].map(|()| serve(dir.parent().unwrap()));
    let url = |to: SocketAddr| {
        format!("http://{USER}:{PASSWORD}@{own}/redirect/{}/repository/.git", to.port())
    };
    let ended = plan(&sandbox, &url(own), &[], &[]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let ended = plan(&sandbox, &url(other), &[], &[]);
    assert_eq!(ended.code, 5, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn https_takes_credentials_from_mounted_files() {
    let (sandbox, Repository { dir, commits: [_, second, _] }) = sandbox();
    let front = TlsFront::before(&format!("http://{}", serve(dir.parent().unwrap())));
    let (address, ca) = (front.url(), front.ca_file().display().to_string());
    let url = format!("{address}/repository/.git");
    let host = address.strip_prefix("https://").unwrap();
    let home = |name: &str| sandbox.path("home").join(name);
    let line = format!("https://{USER}:{PASSWORD}@{host}\n");
    let trusting = [("GIT_SSL_CAINFO", ca.as_str())];

    let ended = plan(&sandbox, &url, &trusting, &[]);
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    assert!(ended.stderr.contains("git credential helper"), "{}", ended.stderr);
    let ended = plan(&sandbox, &url, &[], &[]);
    assert_eq!(ended.code, 6, "an authority that is not trusted: {}", ended.stderr);
    assert!(ended.stderr.contains("GIT_SSL_CAINFO=FILE"), "{}", ended.stderr);

    std::fs::write(sandbox.path("mounted"), &line).unwrap();
    let store = format!("store --file={}", sandbox.path("mounted").display());
    let helper = [
        trusting[0],
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "credential.helper"),
        ("GIT_CONFIG_VALUE_0", &store),
    ];
    for (args, value, commits) in [
        (&[][..], "second", "1"),
        // No branch or tag is at this commit.
        (&["--revision", &second], "second", "1"),
        (&["--revision", &second[..9]], "second", "2"),
        (&["--revision", "v1"], "first", "1"),
        (&["--revision", "feat/side"], "third", "1"),
    ] {
        let ended = plan(&sandbox, &url, &helper, args);
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        assert!(ended.stdout.contains(value), "{args:?}: {}", ended.stdout);
        assert!(
            ended.stdout.contains(&format!("\n{commits}\n")),
            "the depth of {args:?}: {}",
            ended.stdout
        );
    }

    let askpass = sandbox.path("askpass");
    let text = format!("#!/bin/sh\ncase $1 in User*) echo {USER};; *) echo {PASSWORD};; esac\n");
    executable(&askpass, &text);
    let askpass = askpass.display().to_string();
    let ended = plan(&sandbox, &url, &[trusting[0], ("GIT_ASKPASS", &askpass)], &[]);
    assert_eq!(ended.code, 0, "GIT_ASKPASS: {}", ended.stderr);

    let name = host.split(':').next().unwrap();
    std::fs::write(home(".netrc"), format!("machine {name} login {USER} password {PASSWORD}\n"))
        .unwrap();
    let ended = plan(&sandbox, &url, &trusting, &[]);
    assert_eq!(ended.code, 0, ".netrc: {}", ended.stderr);
    std::fs::remove_file(home(".netrc")).unwrap();

    std::fs::write(home(".git-credentials"), &line).unwrap();
    std::fs::write(home(".gitconfig"), "[credential]\n\thelper = store\n").unwrap();
    let ended = plan(&sandbox, &url, &trusting, &[]);
    assert_eq!(ended.code, 0, ".git-credentials: {}", ended.stderr);

    std::fs::write(home(".git-credentials"), line.replace(PASSWORD, "wrong")).unwrap();
    let ended = plan(&sandbox, &url, &trusting, &[]);
    assert_eq!(ended.code, 5, "a wrong password: {}", ended.stderr);

    let with_password = format!("https://{USER}:{PASSWORD}@{host}/repository/.git");
    let ended = plan(&sandbox, &with_password, &trusting, &[]);
    assert_eq!(ended.code, 0, "a password in the URL: {}", ended.stderr);
}

#[test]
fn ssh_uses_mounted_keys_and_refuses_unknown_hosts() {
    let (sandbox, Repository { dir, commits: [_, second, _] }) = sandbox();
    let url = format!("ssh://git@git.example.com{}", dir.display());
    // In place of ssh: it runs what the server would run. Servers do not accept the variable by default, so git speaks
    // its oldest protocol, which serves no single commits.
    let ssh = sandbox.path("ssh");
    executable(
        &ssh,
        "#!/bin/sh\n\
         [ \"$SSH_ASKPASS_REQUIRE$SSH_ASKPASS\" = forcefalse ] || exit 9\n\
         case \"$*\" in *mounted_hosts*) ;; *) echo 'No ED25519 host key is known for git.example.com and you have \
         requested strict checking.' >&2; echo 'Host key verification failed.' >&2; exit 255;; esac\n\
         case \"$*\" in *changed*) echo '@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @' >&2; echo 'Host key \
         verification failed.' >&2; exit 255;; esac\n\
         unset GIT_PROTOCOL\n\
         for command in \"$@\"; do :; done; exec sh -c \"$command\"\n",
    );
    let ssh = ssh.display().to_string();
    let mounted = format!("{ssh} -o UserKnownHostsFile=/mounted_hosts");
    let ended = plan(&sandbox, &url, &[("GIT_SSH_COMMAND", &mounted)], &[]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("second"), "{}", ended.stdout);
    let ended = plan(&sandbox, &url, &[("GIT_SSH_COMMAND", &mounted)], &["--revision", &second]);
    assert_eq!(ended.code, 0, "a commit that is no tip: {}", ended.stderr);
    assert!(ended.stdout.contains("second"), "{}", ended.stdout);
    let ended = plan(&sandbox, &url, &[("GIT_SSH_COMMAND", &ssh)], &[]);
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    assert!(ended.stderr.contains("add the host's key to known_hosts"), "{}", ended.stderr);
    let changed = format!("{mounted} -o changed");
    let ended = plan(&sandbox, &url, &[("GIT_SSH_COMMAND", &changed)], &[]);
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    assert!(ended.stderr.contains("another key of this host"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("ssh-keyscan"), "{}", ended.stderr);
    let no_user = "#!/bin/sh\necho 'No user exists for uid 1000650000' >&2; exit 255\n";
    executable(&sandbox.path("ssh"), no_user);
    let ended = plan(&sandbox, &url, &[("GIT_SSH_COMMAND", &mounted)], &[]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("an entry of this user in /etc/passwd"), "{}", ended.stderr);
}
