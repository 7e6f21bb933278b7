//! Credentials that are examined before init.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use support::{Ended, Sandbox, TestDatastore};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const AWS: &str = "resource \"aws_vpc\" \"v\" {}\n";
const S3: &str = "terraform {\n  backend \"s3\" {\n    bucket = \"b\"\n  }\n}\n";
const ROLE: (&str, &str) = ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r");
/// A metadata service that is not there.
const NO_METADATA: (&str, &str) = ("AWS_EC2_METADATA_DISABLED", "true");

/// A token that expires so many seconds from now.
fn token(seconds: i64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let exp = now.cast_signed() + seconds;
    let claims = BASE64_URL_SAFE_NO_PAD.encode(format!(r#"{{"sub":"x","exp":{exp}}}"#));
    format!("eyJhbGciOiJSUzI1NiJ9.{claims}.c2lnbmF0dXJl")
}

/// A sandbox with a module and a terraform that records its calls.
fn sandbox(main: &str) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER)
        .fake_terraform("[ $STEP != plan ] || echo \"disabled=$AWS_EC2_METADATA_DISABLED\"");
    sandbox.write("main.tf", main);
    sandbox
}

/// Plans with these variables. `TOKEN` in a value is the file with this token.
fn plan(sandbox: &Sandbox, token: &str, variables: &[(&str, &str)], args: &[&str]) -> Ended {
    let file = sandbox.path("token");
    std::fs::write(&file, token).unwrap();
    let mut command = sandbox.command(&[&["plan", "--run", "p", "--name", "x"], args].concat());
    for (name, value) in variables {
        command.env(name, value.replace("TOKEN", file.to_str().unwrap()));
    }
    command.output().unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_token_ends_the_run_before_terraform_starts() {
    let datastore = TestDatastore::memory().await;
    let sandbox = sandbox(AWS);
    let expired = token(-3600);
    let variables = [("AWS_WEB_IDENTITY_TOKEN_FILE", "TOKEN"), ROLE];
    let ended = plan(&sandbox, &expired, &variables, &["--datastore", datastore.url.as_str()]);
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    assert_eq!(sandbox.calls(), [""; 0]);
    let last = ended.stderr.lines().last().unwrap();
    for text in [
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "expired at",
        "the provider aws",
        ". next: provide a fresh token",
    ] {
        assert!(last.contains(text), "{text}: {last}");
    }
    let stored = StoredRun::new(&datastore, "default", "x", "p");
    let report = json(&stored.artifact("run.json", 0).await);
    assert_eq!((&report["exit"], &report["class"]), (&5.into(), &"auth".into()));
    let log = stored.log(0).await;
    assert!(log.contains("expired at") && !log.contains(&expired), "{log}");
}

#[test]
fn what_is_certain_to_fail_is_refused() {
    let azure = "resource \"azurerm_resource_group\" \"g\" {}\n";
    let gcs = "terraform {\n  backend \"gcs\" {\n    bucket = \"b\"\n  }\n}\n";
    let google = "resource \"google_storage_bucket\" \"b\" {}\n";
    let of_profile = "provider \"aws\" {\n  profile = \"ops\"\n}\n";
    let s3_of_profile = S3.replace("bucket = \"b\"", "bucket = \"b\"\n    profile = \"ops\"");
    let json = r#"{"resource": {"aws_vpc": {"v": {}}}}"#;
    let external = r#"{"type": "external_account", "credential_source": {"file": "TOKEN"}}"#;
    let oidc = ("ARM_USE_OIDC", "true");
    let kubernetes_backend =
        "terraform {\n  backend \"kubernetes\" {\n    secret_suffix = \"s\"\n  }\n}\n";
    let expired = token(-3600);
    let kube = ("KUBE_TOKEN", &*expired);
    let (client, tenant) = (("ARM_CLIENT_ID", "c"), ("ARM_TENANT_ID", "t"));
    let missing = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent/token");
    for (file, main, variables, text) in [
        ("main.tf", AWS, &[missing, ROLE][..], "names /nonexistent/token: it does not exist"),
        ("main.tf.json", json, &[missing, ROLE], "it does not exist"),
        ("main.tf", S3, &[("AWS_WEB_IDENTITY_TOKEN_FILE", "TOKEN"), ROLE], "the backend s3"),
        ("main.tf", AWS, &[("AWS_PROFILE", "ops"), NO_METADATA], "names the profile `ops`"),
        ("main.tf", &format!("{AWS}{of_profile}"), &[NO_METADATA], "the AWS profile `ops`"),
        ("main.tf", &s3_of_profile, &[NO_METADATA], "the backend s3 uses the AWS profile `ops`"),
        (
            "main.tf",
            azure,
            &[oidc, client, tenant, ("ARM_OIDC_TOKEN_FILE_PATH", "TOKEN")],
            "expired at",
        ),
        (
            "main.tf",
            azure,
            &[oidc, client, tenant, ("ARM_OIDC_TOKEN_FILE_PATH", "/no")],
            "/no: it does not exist",
        ),
        ("main.tf", google, &[("GOOGLE_APPLICATION_CREDENTIALS", "/no")], "/no: it does not exist"),
        ("main.tf", gcs, &[("GOOGLE_APPLICATION_CREDENTIALS", "EXTERNAL")], "credential_source"),
        ("main.tf", kubernetes_backend, &[kube], "the backend kubernetes uses it"),
    ] {
        let sandbox = sandbox("");
        sandbox.write(file, main);
        let at = sandbox.path("token");
        sandbox.write("external.json", &external.replace("TOKEN", at.to_str().unwrap()));
        let file = sandbox.work().join("external.json").display().to_string();
        let variables =
            variables.iter().map(|(name, value)| (*name, value.replace("EXTERNAL", &file)));
        let variables = variables.collect::<Vec<_>>();
        let variables =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>();
        let ended = plan(&sandbox, &token(-3600), &variables, &[]);
        assert_eq!(ended.code, 5, "{variables:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
        assert_eq!(sandbox.calls(), [""; 0], "{variables:?}");
    }
}

/// The tool may not use what is wrong here, or accept it all the same.
#[test]
fn what_is_not_certain_is_a_warning_at_most() {
    let expired = [("AWS_WEB_IDENTITY_TOKEN_FILE", "TOKEN"), ROLE];
    let keys = [("AWS_ACCESS_KEY_ID", "AKIA"), ("AWS_SECRET_ACCESS_KEY", "s")];
    let with_keys = [&expired[..], &keys].concat();
    let targeted = [&expired[..], &[("TF_CLI_ARGS_plan", "-target=null_resource.a")]].concat();
    let backend = [&expired[..], &[("TF_CLI_ARGS_init", "-backend-config=profile=p")]].concat();
    let google = "resource \"google_storage_bucket\" \"b\" {}\n";
    let own = format!("{AWS}provider \"aws\" {{\n  access_key = \"a\"\n  secret_key = \"b\"\n}}\n");
    let other = format!(
        "{AWS}terraform {{\n  required_providers {{\n    aws = {{ source = \"acme/aws\" }}\n  }}\n}}\n"
    );
    let azure = "resource \"azurerm_resource_group\" \"g\" {}\n";
    let unused = "resource \"null_resource\" \"a\" {}\n";
    let block_only = "provider \"aws\" {}\nresource \"null_resource\" \"a\" {}\n";
    let profile =
        [("AWS_PROFILE", "ops"), ("AWS_ACCESS_KEY_ID", "AKIA"), ("AWS_SECRET_ACCESS_KEY", "s")];
    let missing = [("AWS_PROFILE", "no"), NO_METADATA];
    let destroy = [&missing[..], &[("TF_CLI_ARGS_plan", "-destroy")]].concat();
    for (main, variables, args, warning) in [
        (AWS, &with_keys[..], &[][..], None),
        (own.as_str(), &expired, &[], None),
        (&other, &expired, &[], None),
        (unused, &expired, &[], None),
        (block_only, &expired, &[], Some("expired at")),
        (AWS, &targeted, &[], Some("expired at")),
        (AWS, &expired, &["--target", "null_resource.a"], Some("expired at")),
        (S3, &backend, &[], Some("expired at")),
        (AWS, &profile, &[], Some("names the profile `ops`")),
        (azure, &[("ARM_OIDC_TOKEN", "EXPIRED")], &[], None),
        // The provider goes on with the CLI of Azure.
        (
            azure,
            &[("ARM_USE_OIDC", "true"), ("ARM_OIDC_TOKEN", "EXPIRED")],
            &[],
            Some("expired at"),
        ),
        // To destroy an empty state needs no provider.
        (AWS, &missing, &["--plan-file", "f", "--", "-destroy"], Some("names the profile `no`")),
        (AWS, &missing, &["--", "-refresh-only"], Some("names the profile `no`")),
        (AWS, &destroy, &[], Some("names the profile `no`")),
        (google, &[("GOOGLE_APPLICATION_CREDENTIALS", "TOKEN")], &[], None),
        (AWS, &expired, &["--preflight", "off"], None),
        ("resource \"aws_vpc\" \"v\" {{\n", &expired, &[], None),
    ] {
        let sandbox = sandbox(main);
        let expired = token(-3600);
        let variables =
            variables.iter().map(|(name, value)| (*name, value.replace("EXPIRED", &expired)));
        let variables = variables.collect::<Vec<_>>();
        let variables =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>();
        let ended = plan(&sandbox, &expired, &variables, args);
        assert_eq!(ended.code, 0, "{main} {variables:?}: {}", ended.stderr);
        let warnings =
            ended.stderr.lines().filter(|line| line.contains("WARN")).collect::<Vec<_>>();
        match warning {
            Some(text) => {
                assert!(warnings.iter().any(|line| line.contains(text)), "{main}: {warnings:?}");
            }
            None => assert_eq!(warnings, [""; 0], "{main} {variables:?}"),
        }
    }
}

/// A plan may ask the cluster nothing.
#[test]
fn expired_token_of_a_provider_of_kubernetes_is_a_warning() {
    for kind in ["kubernetes_namespace", "helm_release"] {
        let sandbox = sandbox(&format!("resource \"{kind}\" \"x\" {{}}\n"));
        let ended = plan(&sandbox, "", &[("KUBE_TOKEN", &token(-3600))], &[]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let warning = "WARN the token in KUBE_TOKEN expired at";
        assert!(ended.stderr.contains(warning), "{}", ended.stderr);
    }
}

/// A profile that is in one of the files is not missing.
#[test]
fn profiles_of_both_files_are_found() {
    let sandbox = sandbox(AWS);
    let aws = sandbox.path("home/.aws");
    std::fs::create_dir(&aws).unwrap();
    std::fs::write(aws.join("config"), "[profile ops]\nregion = x\n[ profile 'a b' ]\n").unwrap();
    std::fs::write(aws.join("credentials"), "# [no]\n[dev]\naws_access_key_id = x\n").unwrap();
    for (profile, code) in [("ops", 0), ("dev", 0), ("a b", 0), ("no", 5)] {
        let ended = plan(&sandbox, "", &[("AWS_PROFILE", profile)], &["--no-submodules"]);
        assert_eq!(ended.code, code, "{profile}: {}", ended.stderr);
    }
}

/// A service that gives every request this answer; an empty one is none.
fn service(answer: &'static str) -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::<Mutex<String>>::default();
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if answer.is_empty() {
                silent.push(stream);
                continue;
            }
            let mut buffer = [0; 16 << 10];
            let len = stream.read(&mut buffer).unwrap_or_default();
            seen.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..len]));
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    (url, requests)
}

#[test]
fn silent_metadata_service_is_asked_once_and_then_disabled() {
    let refused = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for (answer, burrito, disabled) in [("", false, "true"), (refused, false, ""), ("", true, "")] {
        let (url, _) = service(answer);
        let sandbox = sandbox(AWS);
        let name = if burrito { "burrito" } else { "runner" };
        std::os::unix::fs::symlink(RUNNER, sandbox.path("bin").join(name)).unwrap();
        let args: &[&str] = if burrito { &["runner", "plan"] } else { &["plan"] };
        let mut command = sandbox.program(&sandbox.path("bin").join(name), args);
        let ended =
            Ended::from(command.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url).output().unwrap());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(
            ended.stdout.contains(&format!("disabled={disabled}\n")),
            "{answer}: {}",
            ended.stdout
        );
    }
    // Something else may supply them.
    let sandbox = sandbox(AWS);
    let (url, requests) = service(refused);
    let variables =
        [("AWS_EC2_METADATA_SERVICE_ENDPOINT", &*url), ("AWS_EC2_METADATA_DISABLED", "false")];
    assert_eq!(plan(&sandbox, "", &variables, &[]).code, 0);
    assert_eq!(*requests.lock().unwrap(), "");
}

#[test]
fn services_are_asked_only_online_and_what_they_refuse_is_exit_5() {
    let sts = "HTTP/1.1 403 Forbidden\r\nContent-Length: 54\r\nConnection: close\r\n\r\n\
               <ErrorResponse><Code>ExpiredToken</Code></ErrorResponse>";
    let vault = "HTTP/1.1 403 Forbidden\r\nContent-Length: 33\r\nConnection: close\r\n\r\n\
                 {\"errors\":[\"permission denied\"]}\n";
    let page = "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\nConnection: close\r\n\r\n<b>no</b>";
    let keys = [("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "hunter2")];
    let of_vault = "resource \"vault_mount\" \"m\" {}\n";
    let unvalidated =
        format!("{AWS}provider \"aws\" {{\n  skip_credentials_validation = true\n}}\n");
    for (main, answer, variable, code, sent, text) in [
        (AWS, sts, "AWS_ENDPOINT_URL_STS", 5, "GetCallerIdentity", "STS refuses the keys in"),
        (AWS, page, "AWS_ENDPOINT_URL_STS", 0, "GetCallerIdentity", "STS refuses the keys in"),
        (
            &unvalidated,
            sts,
            "AWS_ENDPOINT_URL_STS",
            0,
            "GetCallerIdentity",
            "STS refuses the keys in",
        ),
        (
            of_vault,
            vault,
            "VAULT_ADDR",
            5,
            "GET /v1/auth/token/lookup-self",
            "Vault refuses the token",
        ),
        (of_vault, page, "VAULT_ADDR", 0, "x-vault-token: hvs.hunter2", "Vault refuses the token"),
        (of_vault, "", "VAULT_ADDR", 0, "", "no answer within 2 s"),
    ] {
        let sandbox = sandbox(main);
        let (url, requests) = service(answer);
        let variables = [&keys[..], &[(variable, &*url), ("VAULT_TOKEN", "hvs.hunter2")]].concat();
        assert_eq!(plan(&sandbox, "", &variables, &[]).code, 0);
        assert_eq!(*requests.lock().unwrap(), "");
        let ended = plan(&sandbox, "", &variables, &["--preflight", "online"]);
        assert_eq!(ended.code, code, "{text}: {}", ended.stderr);
        assert!(
            ended.stderr.contains(text) && !ended.stderr.contains("hunter2"),
            "{}",
            ended.stderr
        );
        let requests = requests.lock().unwrap();
        assert!(requests.contains(sent), "{sent}: {requests}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_expire_before_the_usual_end_are_a_warning() {
    let datastore = TestDatastore::memory().await;
    for (run, seconds) in [("a", 4000), ("b", 5), ("c", 3000)] {
        let report = format!(
            r#"{{"action": "plan", "outcome": "changes", "steps": [{{"seconds": 1.5}}, {{"seconds": {seconds}}}]}}"#
        );
        let stored = StoredRun::new(&datastore, "default", "x", run);
        stored.put_artifact("run.json", 0, report.into_bytes()).await;
    }
    let sandbox = sandbox(AWS);
    for (seconds, is_warned) in [(1800, true), (3600, false)] {
        let variables = [("AWS_WEB_IDENTITY_TOKEN_FILE", "TOKEN"), ROLE];
        let args = ["--datastore", datastore.url.as_str()];
        let ended = plan(&sandbox, &token(seconds), &variables, &args);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let warning = "and the last runs of this layer took 50 min";
        assert_eq!(ended.stderr.contains(warning), is_warned, "{seconds}: {}", ended.stderr);
    }
}

/// Its own backend is not used.
#[test]
fn backend_of_a_called_module_does_not_count() {
    let sandbox = sandbox("module \"m\" {\n  source = \"./m\"\n}\n");
    sandbox.write("m/main.tf", S3);
    let variables = [("AWS_WEB_IDENTITY_TOKEN_FILE", "TOKEN"), ROLE];
    let ended = plan(&sandbox, &token(-3600), &variables, &[]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stderr.contains("expired at"), "{}", ended.stderr);
}

/// The tool and its providers run there.
#[test]
fn relative_files_are_those_of_the_directory_of_the_module() {
    let sandbox = sandbox("");
    sandbox.write("code/main.tf", AWS);
    sandbox.write("code/aws", "[profile ops]\n");
    sandbox.write("code/fresh", &token(3600));
    for (variables, text) in [
        (&[("AWS_PROFILE", "ops"), ("AWS_CONFIG_FILE", "aws"), NO_METADATA][..], ""),
        (&[("AWS_PROFILE", "no"), ("AWS_CONFIG_FILE", "aws"), NO_METADATA], "code/aws and "),
        (&[("AWS_WEB_IDENTITY_TOKEN_FILE", "fresh"), ROLE], ""),
        (&[("AWS_WEB_IDENTITY_TOKEN_FILE", "none"), ROLE], "code/none: it does not exist"),
    ] {
        let ended = plan(&sandbox, "", variables, &["code"]);
        let code = if text.is_empty() { 0 } else { 5 };
        assert_eq!(ended.code, code, "{variables:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
        assert!(!ended.stderr.contains("WARN"), "{}", ended.stderr);
    }
}

/// What a setting is computed to be is not known before the tool runs.
#[test]
fn services_are_asked_with_the_settings_of_the_provider_or_not_at_all() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    let aws = |settings: &str| format!("{AWS}provider \"aws\" {{\n  {settings}\n}}\n");
    let of_vault = |settings: &str| {
        format!("resource \"vault_mount\" \"m\" {{}}\nprovider \"vault\" {{\n  {settings}\n}}\n")
    };
    for (main, sent) in [
        (aws(""), "/eu-west-1/sts/aws4_request"),
        (aws("region = \"us-gov-west-1\""), "/us-gov-west-1/sts/aws4_request"),
        (aws("region = var.region"), ""),
        (of_vault(""), "x-vault-namespace: n"),
        (of_vault("namespace = \"team\""), "x-vault-namespace: team"),
        (of_vault("namespace = var.namespace"), ""),
        (of_vault("address = var.address"), ""),
    ] {
        let sandbox = sandbox(&main);
        let (url, requests) = service(ok);
        let variables = [
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
            ("AWS_SECRET_ACCESS_KEY", "hunter2"),
            ("AWS_REGION", "eu-west-1"),
            ("AWS_ENDPOINT_URL_STS", &*url),
            ("VAULT_ADDR", &*url),
            ("VAULT_TOKEN", "hvs.hunter2"),
            ("VAULT_NAMESPACE", "n"),
        ];
        let ended = plan(&sandbox, "", &variables, &["--preflight", "online"]);
        assert_eq!(ended.code, 0, "{main}: {}", ended.stderr);
        let requests = requests.lock().unwrap();
        assert!(requests.contains(sent), "{main}: {requests}");
        assert_eq!(requests.is_empty(), sent.is_empty(), "{main}: {requests}");
    }
}
