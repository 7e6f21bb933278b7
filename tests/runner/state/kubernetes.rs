//! States that the backend `kubernetes` keeps in a Secret.

use support::Sandbox;

use crate::RUNNER;

/// A tool whose init has found the backend `kubernetes`, and whose state cannot be compressed much.
fn with_state(kilobytes: usize) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER).fake_terraform(&format!(
        r#"
case "$*" in
  init*)
    mkdir -p .terraform
    echo '{{"backend": {{"type": "kubernetes", "config": {{"secret_suffix": "x", "namespace": "tf"}}}}}}' > .terraform/terraform.tfstate;;
  "state pull")
    printf '{{"version": 4, "serial": 1, "lineage": "l", "outputs": {{"o": {{"value": "'
    head -c {kilobytes}000 /dev/urandom | base64 -w 0
    printf '", "type": "string"}}}}, "resources": []}}'; exit 0;;
esac
"#
    ));
    sandbox.write("main.tf", "");
    sandbox
}

#[test]
fn apply_is_refused_if_the_state_nearly_fills_its_secret() {
    let apply = ["apply", "--no-plan", "--name", "x"];
    let small = with_state(900);
    let ended = small.run(&apply);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    // Compressed, base64 is a little larger than the bytes.
    let large = with_state(950);
    let mut command = large.command(&apply);
    let ended = support::Ended::from(command.env("TF_WORKSPACE", "dev").output().unwrap());
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    for text in ["tf/tfstate-dev-x", "1048576", "--allow-large-state", "--state datastore"] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    assert!(!large.calls().iter().any(|call| call.starts_with("apply")));
    let allowed = large.run(&[&apply[..], &["--allow-large-state"]].concat());
    assert_eq!(allowed.code, 0, "{}", allowed.stderr);
    assert!(large.is_clean());
}
