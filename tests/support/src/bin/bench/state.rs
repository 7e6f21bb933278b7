//! `state=MINIO`: applies of one change with the state in the datastore over MinIO, in turn with terraform's backend `s3` with
//! a lock file over the same MinIO.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::minio::Minio;
use super::{Programs, Server, median};

/// How many applies are compared.
const ROUNDS: usize = 21;

pub(super) fn state(programs: &Programs, program: &str) {
    let minio = Minio::start(program);
    let variables = minio.variables();
    let datastore = Server::over(&programs.datastore, "s3://bucket", &variables);
    println!(
        "state: terraform apply of one change, over MinIO; backend http (datastore) against backend s3 with use_lockfile"
    );
    for (name, bytes) in [("10 KiB", 10 << 10), ("1 MiB", 1 << 20), ("20 MiB", 20 << 20)] {
        let address = format!("{}/api/state/bench/s{bytes}", datastore.url.trim_end_matches('/'));
        let http = Module::new(
            bytes,
            "backend \"http\" {}",
            &[
                ("TF_HTTP_ADDRESS", address.clone()),
                ("TF_HTTP_LOCK_ADDRESS", address.clone()),
                ("TF_HTTP_UNLOCK_ADDRESS", address),
                ("TF_HTTP_LOCK_METHOD", "LOCK".to_owned()),
                ("TF_HTTP_UNLOCK_METHOD", "UNLOCK".to_owned()),
            ],
        );
        let s3 = format!(
            "backend \"s3\" {{\n    bucket = \"bucket\"\n    key = \"bench/{bytes}\"\n    region = \"us-east-1\"\n    \
             use_lockfile = true\n    use_path_style = true\n    skip_credentials_validation = true\n    \
             skip_metadata_api_check = true\n    skip_requesting_account_id = true\n    skip_region_validation = true\n  }}"
        );
        let s3 = Module::new(bytes, &s3, &variables);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            // Who comes first changes, since the second one finds warmer caches.
            let (first, second) = if round % 2 == 0 { (&http, &s3) } else { (&s3, &http) };
            let (a, b) = (first.apply(round), second.apply(round));
            let (our, their) = if round % 2 == 0 { (a, b) } else { (b, a) };
            // The first one fills the state.
            if round > 0 {
                ours.push(our);
                theirs.push(their);
            }
        }
        let (ours, theirs) = (median(&ours), median(&theirs));
        println!(
            "  {name:>7}: http {:.0} ms, s3 {:.0} ms: {:.3} (goal 1.05)",
            ours.as_secs_f64() * 1e3,
            theirs.as_secs_f64() * 1e3,
            ours.as_secs_f64() / theirs.as_secs_f64()
        );
    }
}

/// A root module whose state has about this size.
struct Module {
    directory: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Module {
    fn new(bytes: usize, backend: &str, variables: &[(&'static str, String)]) -> Self {
        let directory = TempDir::new().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        // The state has it twice: as input and as output.
        write("content.txt", &"content of a state\n".repeat(bytes / 2 / 20));
        write("rc", "disable_checkpoint = true\n");
        write(
            "main.tf",
            &format!(
                "terraform {{\n  {backend}\n}}\nvariable \"n\" {{}}\nresource \"terraform_data\" \"big\" {{\n  input = \
                 file(\"content.txt\")\n}}\nresource \"terraform_data\" \"n\" {{\n  input = var.n\n}}\n"
            ),
        );
        let module = Self { directory, variables: variables.to_vec() };
        module.run(&["init", "-no-color", "-input=false"]);
        module
    }

    fn run(&self, arguments: &[&str]) {
        let path: &Path = self.directory.path();
        let mut command = Command::new("terraform");
        command.args(arguments).current_dir(path).stdin(Stdio::null()).stdout(Stdio::null());
        command.env("TF_CLI_CONFIG_FILE", path.join("rc"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        assert!(command.status().unwrap().success(), "terraform {arguments:?}");
    }

    fn apply(&self, round: usize) -> Duration {
        let since = Instant::now();
        let n = format!("n={round}");
        self.run(&["apply", "-no-color", "-input=false", "-auto-approve", "-var", &n]);
        since.elapsed()
    }
}
