//! Settings from flags, variables and files.

mod oidc;
use crate::config::*;

type Texts<'a> = &'a [(&'a str, &'a str)];

fn read(args: &str, env: Texts) -> Result<Serve, (u8, String)> {
    read_with(args, env, &[])
}

fn read_with(args: &str, env: Texts, files: Texts) -> Result<Serve, (u8, String)> {
    let args = args.split_whitespace().map(OsString::from).collect::<Vec<_>>();
    let env = |name: &str| {
        let found = env.iter().find(|(variable, _)| *variable == name)?;
        Some(found.1.to_owned())
    };
    let file = |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| (*text).to_owned()).ok_or(std::io::ErrorKind::NotFound.into())
    };
    let (args, as_burrito) = entry_point::read(args, PROGRAM);
    match Command::read(&args, as_burrito, Sources { env: &env, file: &file }) {
        Ok(Command::Serve(serve)) => Ok(serve),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err((exit_code(&error, &args, as_burrito), error.to_string())),
    }
}

const HOME: (&str, &str) = ("HOME", "/home/a");

fn refusal(args: &str, env: &[(&str, &str)]) -> String {
    let (_, text) = read(args, env).unwrap_err();
    text.trim_end().to_owned()
}

#[test]
fn by_default_the_data_directory_is_served_on_loopback() {
    let serve = read("datastore serve", &[HOME]).unwrap();
    assert_eq!(serve.listen, [SocketAddr::from(([127, 0, 0, 1], 8080))]);
    assert_eq!(serve.log_format, LogFormat::Text);
    let directory = "/home/a/.local/share/plancha/datastore";
    assert_eq!(serve.config.storage, Storage::File(directory.into()));
    assert_eq!(serve.config.drain.timeout, Duration::from_secs(30));
    let serve = read("datastore serve", &[HOME, ("XDG_DATA_HOME", "/data")]).unwrap();
    assert_eq!(serve.config.storage, Storage::File("/data/plancha/datastore".into()));
}

#[test]
fn a_size_beyond_the_limit_of_the_bucket_is_an_error() {
    let env = [("AWS_REGION", "eu-west-1"), HOME];
    let args = "datastore serve --max-size bin=48GiB --max-size log=49GiB --storage ";
    assert_eq!(
        refusal(&format!("{args} s3://bucket"), &env),
        "error: --max-size: invalid value `log=49GiB`: expected at most 49999MiB, the largest object of this storage"
    );
    read(&format!("{args} file:///srv"), &env).unwrap();
}

#[test]
fn a_flag_overrides_its_variable_and_an_empty_variable_is_not_set() {
    let env = [
        ("PLANCHA_STORAGE", "memory://"),
        ("PLANCHA_LISTEN", ""),
        ("BURRITO_DATASTORE_ADDR", "[::1]:7000"),
        ("PLANCHA_LOG_FORMAT", "json"),
    ];
    let serve = read("datastore serve", &env).unwrap();
    assert_eq!(serve.config.storage, Storage::Memory);
    assert_eq!(serve.listen, ["[::1]:7000".parse().unwrap()]);
    assert_eq!(serve.log_format, LogFormat::Json);
    let serve = read("datastore serve --storage file:///a%20b --listen localhost:0", &env).unwrap();
    assert_eq!(serve.config.storage, Storage::File("/a b".into()));
    let both: [SocketAddr; 2] = ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
    assert_eq!(serve.listen, both);
}

#[test]
fn the_variables_of_a_cloud_are_read_and_are_secret() {
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "hush")];
    let env = [keys[0], keys[1], ("AWS_REGION", "eu"), ("GOOGLE_X", "y")];
    let serve = read("datastore serve --storage s3://bucket/a/b/", &env).unwrap();
    let Storage::Cloud(cloud) = &serve.config.storage else { panic!("{serve:?}") };
    assert_eq!(cloud.to_string(), "s3://bucket/a/b");
    let names = cloud.variables.names().collect::<Vec<_>>();
    assert_eq!(names, ["AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_SECRET_ACCESS_KEY"]);
    assert!(!format!("{serve:?}").contains("hush"));
}

#[test]
fn an_invalid_variable_of_a_cloud_is_wrong_usage() {
    for (name, value, expected) in [
        ("AWS_ENDPOINT_URL_S3", "127.0.0.1:29100", "expected a URL with http:// or https://"),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:29100", "its scheme is http"),
        ("AWS_ACCESS_KEY_ID", "minioadmin\n", "it ends with a line break"),
        ("AWS_ALLOW_HTTP", "banana", "expected true or false"),
        ("AWS_REQUEST_PAYER", "nonsense", "expected requester, true or false"),
        ("AWS_ENDPOINT_URL", "https://a/?token=hush", "it contains a query"),
    ] {
        for command in ["serve", "ls"] {
            let args = format!("datastore {command} --storage s3://bucket");
            let (code, text) = read(&args, &[(name, value)]).unwrap_err();
            assert_eq!(code, 64);
            let expected = format!("error: {name}: invalid value: {expected}");
            assert!(text.starts_with(&expected) && !text.contains(value), "{text}");
        }
    }
    let text = in_a_pod(
        &[
            ("BURRITO_DATASTORE_STORAGE_AZURE_CONTAINER", "container"),
            ("BURRITO_DATASTORE_STORAGE_AZURE_STORAGEACCOUNT", "account\n"),
        ],
        "",
    );
    let (_, text) = text.unwrap_err();
    let expected = "error: BURRITO_DATASTORE_STORAGE_AZURE_STORAGEACCOUNT: invalid value: it ends with a line break";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn a_port_alone_means_all_addresses() {
    let serve = read("burrito datastore start --addr :8080 --insecure-no-auth", &[HOME]);
    let any: [SocketAddr; 2] = ["[::]:8080".parse().unwrap(), "0.0.0.0:8080".parse().unwrap()];
    assert_eq!(serve.unwrap().listen, any);
}

#[test]
fn as_burrito_it_listens_on_all_addresses_by_default() {
    let listen = |env: Texts, yaml: &str| in_a_pod(env, yaml).unwrap().listen;
    let any = |port: u16| -> Vec<SocketAddr> {
        vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
    };
    assert_eq!(listen(&[], ""), any(8080));
    assert_eq!(listen(&[], "datastore: {addr: ':9000'}"), any(9000));
    assert_eq!(listen(&[("BURRITO_DATASTORE_ADDR", ":9001")], ""), any(9001));
    let ours = [("BURRITO_DATASTORE_ADDR", ":9001"), ("PLANCHA_LISTEN", ":9002")];
    assert_eq!(listen(&ours, ""), any(9002));
    // No file in the image may take precedence over Burrito's own settings.
    let image = include_str!("../../../Dockerfile.datastore");
    assert!(!image.contains("PLANCHA_LISTEN=") && !image.contains("PLANCHA_STORAGE="));
}

#[test]
fn an_error_names_the_setting_and_what_is_expected() {
    let serve = |flags: &str| refusal(&format!("datastore serve {flags}"), &[HOME]);
    insta::assert_snapshot!(serve("--storage s3://"), @"error: --storage: invalid value `s3://`: expected s3://BUCKET or s3://BUCKET/PREFIX");
    insta::assert_snapshot!(serve("--storage gs://b/a/../c"), @"error: --storage: invalid value `gs://b/a/../c`: expected a prefix of letters, digits, `-`, `.`, `_` and single `/`, without `.` or `..` as names, of at most 60 bytes");
    insta::assert_snapshot!(serve("--storage ftp://b"), @"error: --storage: invalid value `ftp://b`: expected file:///DIRECTORY, s3://BUCKET, gs://BUCKET, az://CONTAINER or memory://");
    insta::assert_snapshot!(serve("--storage /srv/x"), @"
    error: --storage: invalid value `/srv/x`: expected file:///DIRECTORY, s3://BUCKET, gs://BUCKET, az://CONTAINER or memory://
    hint: for a directory, write file:///srv/x
    ");
    insta::assert_snapshot!(serve("--storage file://srv/x"), @"error: --storage: invalid value `file://srv/x`: expected an absolute path after three slashes: file:///DIRECTORY");
    insta::assert_snapshot!(serve("--storage memory://x"), @"error: --storage: invalid value `memory://x`: expected memory:// with nothing after it");
    insta::assert_snapshot!(serve("--listen 8080"), @"error: --listen: invalid value `8080`: expected an IP address and a port, such as 127.0.0.1:8080, [::1]:8080 or :8080");
    insta::assert_snapshot!(serve("--listen :99999"), @"error: --listen: invalid value `:99999`: expected an IP address and a port, such as 127.0.0.1:8080, [::1]:8080 or :8080");
    insta::assert_snapshot!(serve("--listen 0.0.0.0:8080"), @"
    error: --listen: refusing to listen on 0.0.0.0:8080 without authentication: anyone who reaches it could read and replace every plan
    hint: authenticate callers (--auth tokens=FILE, --auth kubernetes); listen on a loopback address (--listen 127.0.0.1:8080); or use --insecure-no-auth if only trusted clients reach it
    ");
    insta::assert_snapshot!(serve("--auth kubernetes"), @"
    error: --auth: `kubernetes` requires a Kubernetes API: this is not a pod, KUBECONFIG is not set, and ~/.kube/config does not exist
    hint: provide one of these, or use --auth tokens=FILE
    ");
    insta::assert_snapshot!(serve("--auth none --auth tokens=/x"), @"error: --auth: invalid value `none,tokens=/x`: `none` cannot be combined with other values");
    insta::assert_snapshot!(serve("--auth tokens=/x"), @"
    error: --auth: /x: entity not found
    hint: create it with `datastore token ID --namespace NAMESPACE --rules /x`
    ");
    insta::assert_snapshot!(serve("--auth password"), @"error: --auth: invalid value `password`: expected kubernetes, tokens=FILE, oidc=ISSUER with audience=NAME or client-id=ID, or none");
    insta::assert_snapshot!(serve("--drain-delay 5"), @"error: --drain-delay: invalid value `5`: expected a duration with a unit, such as 500ms, 30s, 5m, 1h30m or 7d");
    insta::assert_snapshot!(serve("--log-format xml"), @"error: --log-format: invalid value `xml`: expected text or json");
}

#[test]
fn an_error_names_the_variable() {
    let with = |name, value| refusal("datastore serve", &[HOME, (name, value)]);
    insta::assert_snapshot!(with("PLANCHA_STORAGE", "gs://a b"), @"error: PLANCHA_STORAGE: invalid value `gs://a b`: expected gs://BUCKET or gs://BUCKET/PREFIX");
    insta::assert_snapshot!(with("BURRITO_DATASTORE_ADDR", ":8080"), @"
    error: BURRITO_DATASTORE_ADDR: refusing to listen on [::]:8080 without authentication: anyone who reaches it could read and replace every plan
    hint: authenticate callers (--auth tokens=FILE, --auth kubernetes); listen on a loopback address (--listen 127.0.0.1:8080); or use --insecure-no-auth if only trusted clients reach it
    ");
    insta::assert_snapshot!(with("BURRITO_DATASTORE_STORAGE_S3_BUCKET", "a b"), @"error: BURRITO_DATASTORE_STORAGE_S3_BUCKET: invalid value `s3://a b`: expected s3://BUCKET or s3://BUCKET/PREFIX");
    insta::assert_snapshot!(with("BURRITO_DATASTORE_STORAGE_MOCK", "yes"), @"error: BURRITO_DATASTORE_STORAGE_MOCK: invalid value `yes`: expected true or false");
    insta::assert_snapshot!(refusal("datastore serve", &[]), @"
    error: no storage is set, and neither HOME nor XDG_DATA_HOME is an absolute directory
    hint: set --storage or PLANCHA_STORAGE, such as file:///var/lib/plancha
    ");
}

const CONFIG: &str = "/etc/burrito/config.yaml";

/// As Burrito's chart starts it in a pod.
fn in_a_pod(env: Texts, yaml: &str) -> Result<Serve, (u8, String)> {
    let mounted = "/var/run/secrets/kubernetes.io/serviceaccount";
    let (token, namespace) = (format!("{mounted}/token"), format!("{mounted}/namespace"));
    let files = [(CONFIG, yaml), (&*token, "t0k3n"), (&*namespace, "burrito-system\n")];
    let env = [&[("KUBERNETES_SERVICE_HOST", "10.0.0.1"), HOME], env].concat();
    read_with("burrito datastore start", &env, &files)
}

fn storage(env: Texts, yaml: &str) -> String {
    in_a_pod(env, yaml).unwrap().config.storage.to_string()
}

fn kubernetes(serve: &Serve) -> crate::Kubernetes {
    let Auth::Callers(callers) = &serve.config.auth else { panic!("{serve:?}") };
    callers.kubernetes.clone().unwrap()
}

#[test]
fn a_policy_without_authentication_is_an_error() {
    for words in ["--policy /nowhere", "--isolation burrito"] {
        let error = refusal(&format!("datastore serve {words}"), &[HOME]);
        assert!(error.contains("callers are not authenticated"), "{error}");
    }
}

#[test]
fn ds24_the_environment_overrides_the_file_and_plancha_storage_overrides_both() {
    let yaml = "datastore: {addr: ':9000', storage: {s3: {bucket: from-file, usePathStyle: true}}}";
    assert_eq!(storage(&[], yaml), "s3://from-file");
    let env = ("BURRITO_DATASTORE_STORAGE_S3_BUCKET", "from-env");
    assert_eq!(storage(&[env], yaml), "s3://from-env");
    assert_eq!(storage(&[(env.0, "")], yaml), "s3://from-file");
    assert_eq!(storage(&[env, ("PLANCHA_STORAGE", "memory://")], yaml), "memory://");
    let serve = in_a_pod(&[], yaml).unwrap();
    assert_eq!(serve.listen[0], "[::]:9000".parse().unwrap());
    let listen = serve.settings.iter().find(|setting| setting.name == "--listen").unwrap();
    assert_eq!(listen.source, CONFIG);
    let serve = in_a_pod(&[("BURRITO_DATASTORE_ADDR", ":9001")], yaml).unwrap();
    assert_eq!(serve.listen[0], "[::]:9001".parse().unwrap());
}

#[test]
fn ds24_azure_precedes_gcs_then_s3_then_mock() {
    let all = [
        ("BURRITO_DATASTORE_STORAGE_AZURE_CONTAINER", "container"),
        ("BURRITO_DATASTORE_STORAGE_GCS_BUCKET", "google"),
        ("BURRITO_DATASTORE_STORAGE_S3_BUCKET", "amazon"),
        ("BURRITO_DATASTORE_STORAGE_MOCK", "t"),
    ];
    let account = ("BURRITO_DATASTORE_STORAGE_AZURE_STORAGEACCOUNT", "account");
    assert_eq!(storage(&[&all[..], &[account]].concat(), ""), "az://container");
    let (_, text) = in_a_pod(&all, "").unwrap_err();
    let expected = "error: AZURE_STORAGE_ACCOUNT_NAME is not set\nhint: set it, or Burrito's \
                    BURRITO_DATASTORE_STORAGE_AZURE_STORAGEACCOUNT, ";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(storage(&all[1..], ""), "gs://google");
    assert_eq!(storage(&all[2..], ""), "s3://amazon");
    assert_eq!(storage(&all[3..], ""), "memory://");
    assert_eq!(
        storage(&[("BURRITO_DATASTORE_STORAGE_MOCK", "0")], ""),
        "file:///home/a/.local/share/plancha/datastore"
    );
    let serve = in_a_pod(&[all[0], account], "").unwrap();
    let Storage::Cloud(cloud) = serve.config.storage else { panic!("no cloud") };
    assert_eq!(cloud.variables.names().collect::<Vec<_>>(), ["AZURE_STORAGE_ACCOUNT_NAME"]);
}

#[test]
fn ds24_the_file_is_searched_in_etc_then_home_then_the_working_directory() {
    let bucket = |name| format!("datastore: {{storage: {{gcs: {{bucket: {name}}}}}}}");
    let texts = ["etc", "home", "here"].map(bucket);
    let names = [CONFIG, "/home/a/.burrito/config.yaml", "config.yaml"];
    let files = [0, 1, 2].map(|n| (names[n], &*texts[n]));
    let storage =
        |files| read_with("datastore serve", &[HOME], files).unwrap().config.storage.to_string();
    assert_eq!(storage(&files), "gs://etc");
    assert_eq!(storage(&files[1..]), "gs://home");
    assert_eq!(storage(&files[2..]), "gs://here");
    let refusal = |yaml| in_a_pod(&[], yaml).unwrap_err().1;
    insta::assert_snapshot!(refusal("datastore: [").lines().next().unwrap(), @"error: Burrito's configuration /etc/burrito/config.yaml is malformed: line 1 column 12: expected mapping start");
    insta::assert_snapshot!(refusal("datastore: {storage: {mock: maybe}}").trim(), @"error: /etc/burrito/config.yaml: datastore.storage.mock: invalid value `maybe`: expected true or false");
    insta::assert_snapshot!(refusal("datastore: {addr: here}").trim(), @"error: /etc/burrito/config.yaml: datastore.addr: invalid value `here`: expected an IP address and a port, such as 127.0.0.1:8080, [::1]:8080 or :8080");
}

#[test]
fn in_a_pod_kubernetes_authenticates_callers() {
    let serve = in_a_pod(&[], "").unwrap();
    assert_eq!(serve.config.auth.to_string(), "kubernetes");
    let found = kubernetes(&serve);
    assert_eq!(found.api, crate::KubeApi::InCluster);
    assert_eq!(found.main_namespace.as_deref(), Some("burrito-system"));
    assert!(found.allowed.is_none());
    let yaml = "controller: {mainNamespace: main}\ndatastore: {serviceAccounts: [a/b, c/d]}";
    let found = kubernetes(&in_a_pod(&[], yaml).unwrap());
    assert_eq!(found.main_namespace.as_deref(), Some("main"));
    assert_eq!(found.allowed.unwrap().len(), 2);
    let env = [
        ("BURRITO_DATASTORE_SERVICEACCOUNTS", "a/b, c/d,,e/f"),
        ("BURRITO_CONTROLLER_MAINNAMESPACE", "other"),
        ("PLANCHA_ISOLATION", "burrito"),
        ("KUBECONFIG", "/a:/b"),
    ];
    let found = kubernetes(&in_a_pod(&env, yaml).unwrap());
    assert_eq!(found.main_namespace.as_deref(), Some("other"));
    assert_eq!(found.allowed.unwrap().len(), 3);
    assert_eq!(found.api, crate::KubeApi::Kubeconfig(vec!["/a".into(), "/b".into()]));
    assert_eq!(found.isolation, crate::Isolation::Burrito);
    // An empty list is a list.
    let empty = kubernetes(&in_a_pod(&[], "datastore: {serviceAccounts: []}").unwrap());
    assert!(empty.allowed.is_some_and(|allowed| allowed.is_empty()));
    let refusal = |env: Texts| in_a_pod(env, "").unwrap_err().1;
    insta::assert_snapshot!(refusal(&[("BURRITO_DATASTORE_SERVICEACCOUNTS", "a/b,runner")]).trim(), @"error: BURRITO_DATASTORE_SERVICEACCOUNTS: invalid ServiceAccount `runner`: expected NAMESPACE/NAME");
    insta::assert_snapshot!(refusal(&[("PLANCHA_ISOLATION", "burrito")]).trim(), @"
    error: PLANCHA_ISOLATION: `burrito` requires a list of ServiceAccounts
    hint: set BURRITO_DATASTORE_SERVICEACCOUNTS to NAMESPACE/NAME, separated by commas
    ");
    insta::assert_snapshot!(refusal(&[("PLANCHA_ISOLATION", "none")]).trim(), @"error: PLANCHA_ISOLATION: invalid value `none`: expected namespace or burrito");
    assert!(matches!(
        in_a_pod(&[("PLANCHA_AUTH", "none"), ("PLANCHA_LISTEN", "127.0.0.1:0")], "")
            .unwrap()
            .config
            .auth,
        Auth::None
    ));
}

#[test]
fn rules_are_read_from_files() {
    let rules = "rules: [{who: {token: ci, sha256: 0000000000000000000000000000000000000000000000000000000000000000}, namespaces: [a], verbs: [read]}]";
    let about = "rules: [{who: {token: ci}, namespaces: [b], verbs: [read]}]";
    let files = [("/tokens", rules), ("/about", about), ("/broken", "rules: [{who: me}]")];
    let read = |args: &str| read_with(&format!("datastore serve {args}"), &[HOME], &files);
    let serve = read("--listen :0 --auth tokens=/tokens --policy /about").unwrap();
    assert_eq!(serve.config.auth.to_string(), "tokens");
    let refusal = |args| read(args).unwrap_err().1;
    insta::assert_snapshot!(refusal("--auth tokens=/about").trim(), @"
    error: a rule names the token `ci`, but no rule has its `sha256`
    hint: create the token with `datastore token ci --namespace NAMESPACE --rules FILE`
    ");
    insta::assert_snapshot!(refusal("--auth tokens=/tokens --policy /broken").trim(), @"error: --policy: /broken: line 1 column 15: expected mapping start");
    insta::assert_snapshot!(refusal("--auth tokens=/nowhere").trim(), @"
    error: --auth: /nowhere: entity not found
    hint: create it with `datastore token ID --namespace NAMESPACE --rules /nowhere`
    ");
}

#[test]
fn ds21_encryption_without_a_key_is_an_error_and_the_key_keeps_its_text() {
    let enabled = ("BURRITO_DATASTORE_STORAGE_ENCRYPTION_ENABLED", "true");
    let yaml = "datastore: {storage: {encryption: {enabled: true}}}";
    let refusal = |env: Texts, yaml: &str| in_a_pod(env, yaml).unwrap_err().1;
    insta::assert_snapshot!(refusal(&[enabled], "").trim(), @"
    error: BURRITO_DATASTORE_STORAGE_ENCRYPTION_ENABLED is true, but BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY is not set
    hint: set BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY to the encryption key, from a secret
    ");
    insta::assert_snapshot!(refusal(&[], yaml).trim(), @"
    error: /etc/burrito/config.yaml: datastore.storage.encryption.enabled is true, but BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY is not set
    hint: set BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY to the encryption key, from a secret
    ");
    let key = ("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY", "0123e4");
    let serve = in_a_pod(&[key], yaml).unwrap();
    assert!(serve.config.at_rest.encrypts);
    let found = serve.config.at_rest.key.as_ref().unwrap();
    assert_eq!(secrecy::ExposeSecret::expose_secret(found), "0123e4");
    assert!(!format!("{serve:?}").contains("0123e4"));
    assert!(!in_a_pod(&[key], "").unwrap().config.at_rest.encrypts);

    let flag = |form: &str, env: Texts| {
        let serve = read(&format!("datastore serve --at-rest {form}"), env);
        serve.map(|serve| serve.config.at_rest.encrypts)
    };
    assert_eq!(flag("burrito", &[HOME, key]), Ok(true));
    assert!(flag("burrito", &[HOME]).is_err() && flag("plain", &[HOME, key]).is_err());
    let variable = ("PLANCHA_AT_REST", "burrito");
    assert!(in_a_pod(&[key, variable], "").unwrap().config.at_rest.encrypts);
}

#[test]
fn ds23_tls_uses_burritos_files_or_those_of_the_flags() {
    let tls = |args: &str, env: Texts| read(args, env).map(|serve| serve.config.tls);
    let yes = [HOME, ("BURRITO_DATASTORE_TLS", "true")];
    let files = |cert: &str, key: &str| Some(TlsFiles { cert: cert.into(), key: key.into() });
    let burritos = files("/etc/burrito/tls/tls.crt", "/etc/burrito/tls/tls.key");
    assert_eq!(tls("datastore serve", &yes), Ok(burritos));
    let named = "datastore serve --tls-cert /a --tls-key /b";
    assert_eq!(tls(named, &yes), Ok(files("/a", "/b")));
    assert_eq!(tls(named, &[HOME]), Ok(files("/a", "/b")));
    assert_eq!(tls("datastore serve", &[HOME]), Ok(None));
    assert_eq!(tls("datastore serve", &[HOME, ("BURRITO_DATASTORE_TLS", "false")]), Ok(None));
    let (_, half) = tls("datastore serve --tls-cert /a", &[HOME]).unwrap_err();
    insta::assert_snapshot!(half.trim(), @"error: --tls-cert requires --tls-key");
}

#[test]
fn wrong_usage_exits_64_and_as_burrito_2_for_an_unknown_command_of_the_datastore_or_1() {
    let code = |args| read(args, &[HOME]).unwrap_err().0;
    assert_eq!(code("datastore"), 64);
    assert_eq!(code("datastore sevre"), 64);
    assert_eq!(code("datastore serve --nope"), 64);
    assert_eq!(code("datastore serve --storage s3://"), 64);
    assert_eq!(code("datastore serve --help"), 0);
    assert_eq!(code("/usr/bin/burrito datastore sevre"), 2);
    assert_eq!(code("datastore burrito datastore sevre"), 2);
    assert_eq!(code("burrito datastore"), 2);
    assert_eq!(code("burrito"), 1);
    assert_eq!(code("burrito sevre"), 1);
    assert_eq!(code("datastore burrito runner start"), 1);
    assert_eq!(code("burrito datastore serve --nope"), 1);
    assert_eq!(code("burrito --help"), 0);
}

#[test]
fn health_asks_the_address_that_serve_listens_on() {
    let asked = |args: &str, env: Texts| {
        let args = args.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let env = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let file = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        match Command::read(&args, false, Sources { env: &env, file: &file }) {
            Ok(Command::Health(addresses)) => addresses.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    };
    let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let none: Vec<String> = asked("datastore health", &[HOME]);
    assert_eq!(none, texts(&["[::]:8080", "0.0.0.0:8080"]));
    let named = asked("datastore health", &[HOME, ("PLANCHA_LISTEN", "127.0.0.1:9000")]);
    assert_eq!(named, texts(&["127.0.0.1:9000"]));
    let burrito = asked("datastore health", &[HOME, ("BURRITO_DATASTORE_ADDR", ":9001")]);
    assert_eq!(burrito, texts(&["[::]:9001", "0.0.0.0:9001"]));
    assert_eq!(asked("datastore health --listen 127.0.0.1:9", &[HOME]), texts(&["127.0.0.1:9"]));
}

#[test]
fn an_invalid_storage_url_is_an_error_that_hides_its_password() {
    for (url, reason) in [
        ("file:///a?x", "unexpected query or fragment"),
        ("file:///a#x", "unexpected query or fragment"),
        ("file://", "expected an absolute path after three slashes"),
        ("file:///", "expected an absolute path after three slashes"),
        ("file:///a/..", "expected an absolute path after three slashes"),
        ("s3://user:hunter2@bucket", "`s3://bucket`: unexpected user or password"),
        ("https://user:hunter2@host/x", "`https://host/x`: unexpected user or password"),
    ] {
        let message = refusal(&format!("datastore serve --storage {url}"), &[HOME]);
        assert!(message.contains(reason) && !message.contains("hunter2"), "{message}");
    }
}

#[test]
fn sizes_out_of_range_are_errors() {
    let refused = |flags: &str| refusal(&format!("datastore serve {flags}"), &[HOME]);
    insta::assert_snapshot!(refused("--max-size bin=0"), @"error: --max-size: invalid value `bin=0`: expected at least bin=1, since 0 would refuse every upload");
    insta::assert_snapshot!(refused("--max-memory 99999TiB"), @"error: --max-memory: invalid value `99999TiB`: expected a size from 32MiB to 4TiB");
    insta::assert_snapshot!(refused("--max-size foo=1"), @"error: --max-size: invalid value `foo=1`: invalid kind `foo`: expected one of bin, json, pretty, short, log, bundle, artifact, workspace, state, lease, status, outputs");
    insta::assert_snapshot!(refused("--max-size bin=99999999TiB"), @"error: --max-size: invalid value `bin=99999999TiB`: the size is too large");
    insta::assert_snapshot!(refused("--max-size bin=1 --max-size log=1 --max-size bin=2"), @"
    error: --max-size: `bin` is set twice
    hint: set each kind once
    ");
    read("datastore serve --max-size bin=1 --max-memory 4TiB", &[HOME]).unwrap();
}

#[test]
fn settings_and_rules_without_effect_are_warned_of() {
    let warnings = |args: &str, env: Texts, rules: &str| {
        let env = [&[HOME], env].concat();
        let args = format!("datastore serve {args}");
        read_with(&args, &env, &[("/tokens", rules)]).unwrap().warnings.join("\n")
    };
    let digest = "0".repeat(64);
    let rule = |rest: &str| format!("rules: [{{who: {{token: ci, sha256: {digest}}}, {rest}}}]");
    assert_eq!(warnings("", &[], ""), "");
    let list = ("BURRITO_DATASTORE_SERVICEACCOUNTS", "a/b");
    insta::assert_snapshot!(warnings("", &[list], ""), @"BURRITO_DATASTORE_SERVICEACCOUNTS has no effect: --auth is `none`, so every caller has every permission");
    let tokens = "--auth tokens=/tokens";
    assert_eq!(warnings(tokens, &[], &rule("namespaces: [a], verbs: [read]")), "");
    insta::assert_snapshot!(warnings(tokens, &[], "rules: []"), @"no rule in /tokens grants a token any permission; create one with `datastore token ID --namespace NAMESPACE --rules FILE`");
    for nothing in [
        "namespaces: [a], verbs: []",
        "namespaces: [], verbs: [read]",
        "namespaces: [a], kinds: [], verbs: [read]",
    ] {
        let warned = warnings(tokens, &[], &rule(nothing));
        assert!(warned.starts_with("no rule in /tokens grants"), "{warned}");
        assert!(
            warned.ends_with(
                "a rule for the token `ci` grants no permission: its verbs, namespaces or kinds are empty"
            ),
            "{warned}"
        );
    }
}

#[test]
fn the_source_of_burritos_account_and_list_is_shown() {
    let shown = |yaml: &str| {
        let all = in_a_pod(&[], yaml).unwrap().settings.into_iter();
        let all =
            all.map(|setting| format!("{}={} ({})", setting.name, setting.value, setting.source));
        all.collect::<Vec<_>>().join("\n")
    };
    let text = shown(
        "datastore: {storage: {azure: {storageAccount: acc, container: c}}, serviceAccounts: []}",
    );
    assert!(text.contains("AZURE_STORAGE_ACCOUNT_NAME=set (/etc/burrito/config.yaml)"), "{text}");
    assert!(text.contains("serviceAccounts=(none) (/etc/burrito/config.yaml)"), "{text}");
}
