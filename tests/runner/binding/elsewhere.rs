//! An apply on another machine, as far as one machine can show it: another user, a new home directory and an empty cache, and
//! a proxy that counts what is requested of other machines.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::{Ended, Sandbox, TestDatastore, eventually};

use crate::binding::snapshot::{MODULE, S3, repository};
use crate::run::plan_origin::run_in;
use crate::source::checkout::git;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// A proxy for all other machines. It counts connections, and closes them. Programs that use no proxy pass it unseen.
pub(crate) struct CountingProxy {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl CountingProxy {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            for _ in listener.incoming() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { address, connections }
    }

    pub(crate) fn variables(&self) -> [(&'static str, String); 3] {
        let proxy = format!("http://{}", self.address);
        [
            ("HTTP_PROXY", proxy.clone()),
            ("HTTPS_PROXY", proxy),
            ("NO_PROXY", "127.0.0.1,localhost".to_owned()),
        ]
    }

    /// How many connections were opened.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// The apply, as another user if this one is root.
pub(crate) fn apply_elsewhere(sandbox: &Sandbox, args: &[&str], proxy: &CountingProxy) -> Ended {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    for name in ["elsewhere", "elsewhere/home", "elsewhere/tmp", "elsewhere/work", "state"] {
        let dir = sandbox.path(name);
        std::fs::create_dir_all(&dir).unwrap();
        if is_root {
            chown(&dir, Some(65534), Some(65534)).unwrap();
        }
    }
    // Temporary directories of tests belong to their user alone.
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path(""), mode).unwrap();
    let runner = sandbox.path("elsewhere/runner");
    std::fs::copy(RUNNER, &runner).unwrap();
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let program = Path::new(if is_root { "setpriv" } else { "env" });
    let mut command = sandbox.program(program, if is_root { &user } else { &[] });
    command
        .arg(&runner)
        .args(args)
        .current_dir(sandbox.path("elsewhere/work"))
        .env("HOME", sandbox.path("elsewhere/home"))
        .env("TMPDIR", sandbox.path("elsewhere/tmp"))
        .env_remove("XDG_CACHE_HOME")
        .envs(proxy.variables());
    command.output().unwrap().into()
}

/// `scripts/e2e aws` does the same with a provider.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_applied_by_another_user_with_an_empty_cache_and_requests_nothing_of_other_machines()
 {
    let datastore = TestDatastore::memory().await;
    let (sandbox, proxy) = (Sandbox::new(RUNNER), CountingProxy::new());
    let url = repository(&sandbox, "file(\"${path.module}/x.txt\")");
    let main = sandbox.path("repository/live/vpc/main.tf");
    let text = std::fs::read_to_string(&main).unwrap();
    // The other user may write only there.
    let moved = text.replace("/state\"", "/state/terraform.tfstate\"");
    assert_ne!(text, moved);
    std::fs::write(&main, moved).unwrap();
    git(&sandbox.path("repository"), &["commit", "--quiet", "-am", "y"]);
    let plan = [&["plan", &url, "--run", "p", "--datastore", datastore.url.as_str()], &MODULE[..]];
    let mut command = sandbox.command(&plan.concat());
    let planned = Ended::from(command.envs(proxy.variables()).output().unwrap());
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    std::fs::remove_dir_all(sandbox.path("repository")).unwrap();

    let apply = ["apply", "--name", "vpc", "--plan", "p", "--run", "a", "--datastore"];
    let apply = [&apply[..], &[datastore.url.as_str()]].concat();
    let applied = apply_elsewhere(&sandbox, &apply, &proxy);

    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stdout.contains("content of x"), "{}", applied.stdout);
    let report = async |run: &str| {
        json(&StoredRun::new(&datastore, "default", "vpc", run).artifact("run.json", 0).await)
    };
    let (plan, apply) = (report("p").await, report("a").await);
    for part in ["lock_file_sha256", "backend", "revision", "configuration_sha256"] {
        assert_eq!(plan[part], apply[part], "{part}");
    }
    assert_eq!(proxy.connections(), 0);
    // A request of another machine is counted.
    let remote = ["--datastore", "http://datastore.example.com", "--datastore-timeout", "1s"];
    let mut command = sandbox.command(&[&["runs", "--name", "vpc"], &remote[..]].concat());
    let failed = Ended::from(command.envs(proxy.variables()).output().unwrap());
    assert_eq!(failed.code, 10, "{}", failed.stderr);
    eventually("the request is counted", || proxy.connections() > 0);
}

/// Outside of git nothing else shows which of two modules with the same code the plan is of.
#[tokio::test(flavor = "multi_thread")]
async fn another_path_in_a_directory_outside_of_git_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    for file in ["main.tf", "live/a/main.tf", "live/b/main.tf"] {
        sandbox.write(file, "# the same\n");
    }
    let run =
        |args: &[&str]| sandbox.run_with(&datastore.url, &[args, &["--name", "fam"]].concat());
    let planned = run(&["plan", ".", "--path", "live/a", "--run", "p", "--snapshot=always"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let file = ["--plan-file", "p.tfplan", "--name", "fam"];
    let planned = sandbox.run(&[&["plan", ".", "--path", "live/a"][..], &file].concat());
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let elsewhere = |refused: &Ended, code: i32, ours: &str| {
        assert_eq!(refused.code, code, "{ours}: {}", refused.stderr);
        for text in ["path live/a", &format!("path {ours}")] {
            assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
        }
    };

    for (path, shown) in [(&["--path", "live/b"][..], "live/b"), (&[], ".")] {
        for when in ["auto", "never"] {
            let args = [&["apply", ".", "--plan", "p", "--snapshot", when][..], path].concat();
            elsewhere(&run(&args), 9, shown);
        }
        elsewhere(&run(&[&["apply", "."][..], path].concat()), 8, shown);
        elsewhere(&sandbox.run(&[&["apply", "."][..], path, &file].concat()), 9, shown);
    }
    let empty = sandbox.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let in_empty = |args: &[&str]| {
        let common = ["apply", "--name", "fam", "--datastore", datastore.url.as_str()];
        let mut command = sandbox.command(&[&common[..], args].concat());
        Ended::from(command.current_dir(&empty).output().unwrap())
    };
    elsewhere(&in_empty(&["--plan", "p", "--path", "live/b"]), 9, "live/b");
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));

    for applied in [
        in_empty(&[]),
        run(&["apply", ".", "--path", "live/a"]),
        sandbox.run(&[&["apply", ".", "--path", "live/a"][..], &file].concat()),
    ] {
        assert_eq!(applied.code, 0, "{}", applied.stderr);
    }
}

/// A module is the same one, whichever of its parents is the source.
#[tokio::test(flavor = "multi_thread")]
async fn module_outside_of_git_is_found_by_another_source_and_path() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    for file in ["live/a/main.tf", "copy/live/a/main.tf", "live/b/main.tf"] {
        sandbox.write(file, "# the same\n");
    }
    let run =
        |args: &[&str]| sandbox.run_with(&datastore.url, &[args, &["--name", "fam"]].concat());
    let planned = run(&["plan", "live/a", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let source = format!("path ., workspace default, source {}", sandbox.work().display());
    for (named, code) in [(&[][..], 8), (&["--plan", "p"], 9)] {
        for place in [&[".", "--path", "live/b"][..], &["copy", "--path", "live/a"]] {
            let refused = run(&[&["apply"], place, named].concat());
            assert_eq!(refused.code, code, "{place:?}: {}", refused.stderr);
            assert!(refused.stderr.contains(&source), "{place:?}: {}", refused.stderr);
        }
    }
    let applied = run(&["apply", ".", "--path", "live/a"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let planned = run(&["plan", ".", "--path", "live/a", "--run", "q"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let applied = run(&["apply", "live", "--path", "a", "--plan", "q"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// With the real tool, which would apply a plan without providers, files and backend.
#[tokio::test(flavor = "multi_thread")]
async fn plan_is_not_applied_in_a_directory_without_configuration_unless_it_was_made_of_none() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("code/main.tf", "resource \"terraform_data\" \"a\" {}\n");
    let empty = sandbox.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let plan_file = sandbox.path("p.plan").display().to_string();
    let run = |in_empty: bool, args: &[&str]| {
        let mut command = sandbox.command(&[&args[..1], &["--name", "x"], &args[1..]].concat());
        if !args.contains(&"--plan-file") {
            command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        }
        let dir = if in_empty { empty.clone() } else { sandbox.work().join("code") };
        Ended::from(command.current_dir(dir).output().unwrap())
    };
    for args in [&["plan", "--run", "p"][..], &["plan", "--plan-file", &plan_file]] {
        let planned = run(false, args);
        assert_eq!(planned.code, 0, "{}", planned.stderr);
    }
    for args in [&[][..], &["--plan", "p"], &["--plan-file", &plan_file]] {
        let refused = run(true, &[&["apply"], args].concat());
        assert_eq!(refused.code, 9, "{args:?}: {}", refused.stderr);
        let says = "has no configuration, and the plan ";
        assert!(refused.stderr.contains(says), "{args:?}: {}", refused.stderr);
        assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0, "nothing was initialized");
    }
    let applied = run(false, &["apply", "--plan", "p"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    // What no configuration has any more can be destroyed.
    std::fs::remove_file(sandbox.work().join("code/main.tf")).unwrap();
    let planned = run(false, &["plan", "--run", "d", "--", "-destroy"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let applied = run(false, &["apply", "--plan", "d"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// In an empty directory there is no code with which the snapshot could be compared.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_another_path_than_the_named_one_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    sandbox.write("live/a/main.tf", "# a\n");
    sandbox.write("live/b/main.tf", "# b\n");
    let work = sandbox.work();
    git(&work, &["init", "--quiet"]);
    git(&work, &["remote", "add", "origin", "git@git.example.com:team/infra.git"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "--quiet", "-m", "x"]);
    let plan = ["plan", "live/a", "--name", "fam", "--snapshot=always", "--run", "fa1"];
    let planned = sandbox.run_with(&datastore.url, &plan);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let empty = sandbox.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let apply = |args: &[&str]| {
        let common = ["apply", "--name", "fam", "--datastore", datastore.url.as_str()];
        let mut command = sandbox.command(&[&common[..], args].concat());
        Ended::from(command.current_dir(&empty).output().unwrap())
    };

    for (named, code, expected) in [
        (&["--plan", "fa1"][..], 9, "the plan fa1/0 was made for another place"),
        (&["--plan", "fa1", "--snapshot=always"], 9, "the plan fa1/0 was made for another place"),
        (&[], 8, "none of this place"),
        (&["--snapshot=always"], 8, "none of this place"),
    ] {
        let refused = apply(&[named, &["--path", "live/b"]].concat());
        assert_eq!(refused.code, code, "{named:?}: {}", refused.stderr);
        for text in [expected, "path live/a", "path live/b"] {
            assert!(refused.stderr.contains(text), "{named:?}, {text}: {}", refused.stderr);
        }
    }
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));

    for own in [&[][..], &["--path", "live/a"], &["--plan", "fa1", "--path", "live/a"]] {
        let applied = apply(own);
        assert_eq!(applied.code, 0, "{own:?}: {}", applied.stderr);
    }
    let calls = sandbox.calls();
    assert_eq!(calls.iter().filter(|call| call.starts_with("apply")).count(), 1, "{calls:?}");
}

/// Both have no state yet, and will have it in a file beside the code.
#[tokio::test(flavor = "multi_thread")]
async fn first_plan_outside_git_is_not_applied_in_another_directory_of_the_same_name() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    for dir in ["dev/net", "prod/net"] {
        sandbox.write(
            &format!("{dir}/main.tf"),
            "resource \"terraform_data\" \"r\" {\n  input = path.module\n}\n",
        );
    }
    let run = |dir, args: &[&str]| run_in(&sandbox, dir, &datastore, &[], args);
    for plan in [&["plan", "--run", "p"][..], &["plan", "--plan-file", "../the.plan"]] {
        assert_eq!(run("prod/net", plan).code, 0);
    }
    sandbox.write("dev/the.plan", "");
    for file in ["the.plan", "the.plan.run.json"] {
        std::fs::copy(
            sandbox.work().join("prod").join(file),
            sandbox.work().join("dev").join(file),
        )
        .unwrap();
    }
    for apply in
        [&["apply"][..], &["apply", "--plan", "p"], &["apply", "--plan-file", "../the.plan"]]
    {
        let ended = run("dev/net", apply);
        assert_eq!(ended.code, 9, "{}", ended.stderr);
        assert!(ended.stderr.contains("was made for another directory: "), "{}", ended.stderr);
        assert!(!sandbox.work().join("dev/net/terraform.tfstate").exists());
    }
    let ended = run("prod", &["apply", ".", "--path", "net", "--name", "net"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    // With a state, its lineage is compared: a copy of the directory with its state goes on.
    assert_eq!(run("prod/net", &["plan", "--run", "q", "--", "-destroy"]).code, 0);
    let state = "net/terraform.tfstate";
    std::fs::copy(sandbox.work().join("prod").join(state), sandbox.work().join("dev").join(state))
        .unwrap();
    let ended = run("dev/net", &["apply", "--plan", "q"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
