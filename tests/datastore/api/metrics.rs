//! `/metrics`

use std::collections::BTreeMap;
use std::time::Instant;

use datastore::kind::Kind;
use datastore::transport::limits::Limits;
use support::{CloudFault, Dialect, FakeCloud, TestDatastore, wait_for};

use crate::http::{CLIENT, RUN, forget_digest, get, noise, put, request, send, stored};
use reqwest::Method;

async fn page(datastore: &TestDatastore) -> String {
    let answer = send(CLIENT.get(datastore.url.join("metrics").unwrap())).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    answer.text()
}

/// Every line by its name and labels.
async fn figures(datastore: &TestDatastore) -> BTreeMap<String, f64> {
    let page = page(datastore).await;
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let figures = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    figures.collect()
}

#[tokio::test]
async fn requests_are_counted_by_route_method_status_and_kind() {
    let datastore = TestDatastore::memory().await;
    let plan = format!("plans?{RUN}&attempt=0&format=bin");
    stored(&datastore, &plan, "12345").await;
    get(&datastore, &plan).await;
    get(&datastore, &plan).await;
    get(&datastore, &format!("logs?{RUN}&attempt=0")).await;
    get(&datastore, "plans?x=y&secret=s3cr3t").await;
    get(&datastore, "nothing/here").await;
    send(request(&datastore, Method::PATCH, "plans")).await;
    let figures = figures(&datastore).await;
    let counted = figures.iter().filter(|(name, _)| {
        let name = name.split('{').next().unwrap();
        name.ends_with("_bytes_total") || name.ends_with("requests_total")
    });
    let counted = counted.map(|(name, value)| format!("{name} {value}\n")).collect::<Vec<_>>();
    insta::assert_snapshot!(counted.concat(), @r#"
    datastore_received_bytes_total{route="/api/plans",method="PUT",status="2xx",kind="bin"} 5
    datastore_requests_total{route="/api/logs",method="GET",status="4xx",kind="log"} 1
    datastore_requests_total{route="/api/plans",method="GET",status="2xx",kind="bin"} 2
    datastore_requests_total{route="/api/plans",method="GET",status="4xx",kind="json"} 1
    datastore_requests_total{route="/api/plans",method="PUT",status="2xx",kind="bin"} 1
    datastore_requests_total{route="/api/plans",method="other",status="4xx",kind="json"} 1
    datastore_requests_total{route="other",method="GET",status="4xx",kind=""} 1
    datastore_sent_bytes_total{route="/api/logs",method="GET",status="4xx",kind="log"} 24
    datastore_sent_bytes_total{route="/api/plans",method="GET",status="2xx",kind="bin"} 10
    datastore_sent_bytes_total{route="/api/plans",method="GET",status="4xx",kind="json"} 24
    datastore_sent_bytes_total{route="/api/plans",method="other",status="4xx",kind="json"} 24
    datastore_sent_bytes_total{route="other",method="GET",status="4xx",kind=""} 24
    "#);
    let seconds = "datastore_request_seconds_bucket{route=\"/api/plans\",method=\"GET\",status=\"2xx\",kind=\"bin\",le=\"+Inf\"}";
    assert!((figures[seconds] - 2.0).abs() < 0.1);
}

#[tokio::test]
async fn names_from_requests_never_become_labels() {
    let datastore = TestDatastore::memory().await;
    for format in ["bin", "json", "s3cr3t"] {
        put(&datastore, &format!("plans?{RUN}&attempt=0&format={format}"), "x").await;
    }
    get(&datastore, "team-a/network?network=plan-1").await;
    let own_method = Method::from_bytes(b"NETWORK").unwrap();
    send(CLIENT.request(own_method, datastore.url.join("metrics").unwrap())).await;
    let page = page(&datastore).await.to_lowercase();
    for name in ["team-a", "network", "plan-1", "s3cr3t"] {
        assert!(!page.contains(name), "{name} in {page}");
    }
}

#[tokio::test]
async fn storage_calls_and_capabilities_are_metrics() {
    let datastore = TestDatastore::double(Dialect::S3).await;
    let plan = format!("plans?{RUN}&attempt=0&format=bin");
    get(&datastore, &plan).await;
    stored(&datastore, &plan, noise(12 << 20, 1)).await;
    get(&datastore, &plan).await;
    let figures = figures(&datastore).await;
    for ability in [
        "list",
        "write",
        "conditional_create",
        "conditional_update",
        "conditional_multipart",
        "multipart_etag",
        "read",
        "delete",
    ] {
        let can = figures[&format!("datastore_storage_can{{ability=\"{ability}\"}}")];
        assert!((can - 1.0).abs() < 0.1, "{ability}");
    }
    let calls = |call: &str, outcome: &str| {
        let name =
            format!("datastore_backend_calls_total{{call=\"{call}\",outcome=\"{outcome}\"}}");
        figures.get(&name).copied().unwrap_or_default()
    };
    for (call, outcome) in [
        ("list", "ok"),
        ("put", "ok"),
        ("put", "exists"),
        ("get", "not_found"),
        ("begin", "ok"),
        ("part", "ok"),
        ("complete", "ok"),
        ("delete", "ok"),
    ] {
        assert!(calls(call, outcome) >= 1.0, "{call} {outcome} {figures:#?}");
    }
    assert!(calls("list", "failed") < 0.1);
}

#[tokio::test]
async fn corrupted_objects_are_counted() {
    let datastore = TestDatastore::temporary().await;
    let plan = format!("plans?{RUN}&attempt=0&format=bin");
    let path = datastore.root().join("layers/team-a/network/plan-1/0/plan.bin");
    stored(&datastore, &plan, noise(1 << 20, 1)).await;
    crate::storage::modified_objects::rot_file(&path, 700_000, 1);
    request(&datastore, Method::GET, &plan).send().await.unwrap().bytes().await.unwrap_err();
    std::fs::write(&path, "theirs").unwrap();
    assert_eq!(get(&datastore, &plan).await.status, 500, "changed");
    forget_digest(&datastore.root(), "layers/team-a/network/plan-1/0/plan.bin");
    get(&datastore, &plan).await;
    let figures = figures(&datastore).await;
    let labels = "{route=\"/api/plans\",method=\"GET\",status=\"2xx\",kind=\"bin\"}";
    for name in ["datastore_broken_answers_total", "datastore_foreign_reads_total"] {
        assert!((figures[&format!("{name}{labels}")] - 1.0).abs() < 0.1, "{name}");
    }
    let refused = format!("datastore_broken_answers_total{}", labels.replace("2xx", "5xx"));
    assert!((figures[&refused] - 1.0).abs() < 0.1, "a refusal counts as well");
}

#[tokio::test]
async fn own_objects_with_an_outdated_digest_record_are_not_counted_as_foreign() {
    let datastore = TestDatastore::temporary().await;
    let plan = format!("plans?{RUN}&attempt=0&format=bin");
    stored(&datastore, &plan, noise(1 << 20, 1)).await;
    let path = datastore.root().join("layers/team-a/network/plan-1/0/plan.bin");
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let part = request(&datastore, Method::GET, &plan).header("range", "bytes=0-1");
    assert_eq!(send(part).await.status, 206);
    assert_eq!(send(request(&datastore, Method::HEAD, &plan)).await.status, 200);
    let figures = figures(&datastore).await;
    let foreign = |(name, _): &(&String, &f64)| name.starts_with("datastore_foreign_reads_total{");
    let foreign = figures.iter().filter(foreign).map(|(_, count)| count).sum::<f64>();
    assert!(foreign < 0.1, "{foreign}");
}

/// The lines of a metric.
async fn lines_of(datastore: &TestDatastore, metric: &str) -> String {
    let page = page(datastore).await;
    let lines = page.lines().filter(|line| line.starts_with(&format!("{metric}{{")));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn broken_reads_start_at_0() {
    let datastore = TestDatastore::memory().await;
    let lines = lines_of(&datastore, "datastore_broken_answers_total").await;
    insta::assert_snapshot!(lines, @r#"
    datastore_broken_answers_total{route="/api/applied",method="GET",status="2xx",kind=""} 0
    datastore_broken_answers_total{route="/api/applied",method="GET",status="5xx",kind=""} 0
    datastore_broken_answers_total{route="/api/applied",method="HEAD",status="5xx",kind=""} 0
    datastore_broken_answers_total{route="/api/artifacts",method="GET",status="2xx",kind="artifact"} 0
    datastore_broken_answers_total{route="/api/artifacts",method="GET",status="2xx",kind="bin"} 0
    datastore_broken_answers_total{route="/api/artifacts",method="GET",status="2xx",kind="json"} 0
    datastore_broken_answers_total{route="/api/artifacts",method="GET",status="2xx",kind="workspace"} 0
    datastore_broken_answers_total{route="/api/artifacts",method="GET",status="5xx",kind="artifact"} 0
    datastore_broken_answers_total{route="/api/artifacts",method="GET",status="5xx",kind="bin"} 0
    datastore_broken_answers_total{route="/api/artifacts",method="GET",status="5xx",kind="json"} 0
    datastore_broken_answers_total{route="/api/artifacts",method="GET",status="5xx",kind="workspace"} 0
    datastore_broken_answers_total{route="/api/artifacts",method="HEAD",status="5xx",kind="artifact"} 0
    datastore_broken_answers_total{route="/api/artifacts",method="HEAD",status="5xx",kind="bin"} 0
    datastore_broken_answers_total{route="/api/artifacts",method="HEAD",status="5xx",kind="json"} 0
    datastore_broken_answers_total{route="/api/artifacts",method="HEAD",status="5xx",kind="workspace"} 0
    datastore_broken_answers_total{route="/api/documents",method="GET",status="2xx",kind="outputs"} 0
    datastore_broken_answers_total{route="/api/documents",method="GET",status="2xx",kind="status"} 0
    datastore_broken_answers_total{route="/api/documents",method="GET",status="5xx",kind="outputs"} 0
    datastore_broken_answers_total{route="/api/documents",method="GET",status="5xx",kind="status"} 0
    datastore_broken_answers_total{route="/api/documents",method="HEAD",status="5xx",kind="outputs"} 0
    datastore_broken_answers_total{route="/api/documents",method="HEAD",status="5xx",kind="status"} 0
    datastore_broken_answers_total{route="/api/logs",method="GET",status="2xx",kind="log"} 0
    datastore_broken_answers_total{route="/api/logs",method="GET",status="5xx",kind="log"} 0
    datastore_broken_answers_total{route="/api/logs",method="HEAD",status="5xx",kind="log"} 0
    datastore_broken_answers_total{route="/api/plans",method="GET",status="2xx",kind="bin"} 0
    datastore_broken_answers_total{route="/api/plans",method="GET",status="2xx",kind="json"} 0
    datastore_broken_answers_total{route="/api/plans",method="GET",status="2xx",kind="pretty"} 0
    datastore_broken_answers_total{route="/api/plans",method="GET",status="2xx",kind="short"} 0
    datastore_broken_answers_total{route="/api/plans",method="GET",status="5xx",kind="bin"} 0
    datastore_broken_answers_total{route="/api/plans",method="GET",status="5xx",kind="json"} 0
    datastore_broken_answers_total{route="/api/plans",method="GET",status="5xx",kind="pretty"} 0
    datastore_broken_answers_total{route="/api/plans",method="GET",status="5xx",kind="short"} 0
    datastore_broken_answers_total{route="/api/plans",method="HEAD",status="5xx",kind="bin"} 0
    datastore_broken_answers_total{route="/api/plans",method="HEAD",status="5xx",kind="json"} 0
    datastore_broken_answers_total{route="/api/plans",method="HEAD",status="5xx",kind="pretty"} 0
    datastore_broken_answers_total{route="/api/plans",method="HEAD",status="5xx",kind="short"} 0
    datastore_broken_answers_total{route="/api/repository/revision/bundle",method="GET",status="2xx",kind="bundle"} 0
    datastore_broken_answers_total{route="/api/repository/revision/bundle",method="GET",status="5xx",kind="bundle"} 0
    datastore_broken_answers_total{route="/api/repository/revision/bundle",method="HEAD",status="5xx",kind="bundle"} 0
    datastore_broken_answers_total{route="/api/state/{namespace}/{layer}",method="GET",status="2xx",kind="state"} 0
    datastore_broken_answers_total{route="/api/state/{namespace}/{layer}",method="GET",status="5xx",kind="state"} 0
    datastore_broken_answers_total{route="/api/state/{namespace}/{layer}",method="HEAD",status="5xx",kind="state"} 0
    "#);
}

#[tokio::test]
async fn refusals_start_at_0() {
    let datastore = TestDatastore::memory().await;
    let lines = lines_of(&datastore, "datastore_refusals_total").await;
    insta::assert_snapshot!(lines, @r#"
    datastore_refusals_total{reason="memory"} 0
    datastore_refusals_total{reason="connections"} 0
    datastore_refusals_total{reason="no_token"} 0
    datastore_refusals_total{reason="invalid_token"} 0
    datastore_refusals_total{reason="unlisted"} 0
    datastore_refusals_total{reason="token_unverified"} 0
    datastore_refusals_total{reason="forbidden"} 0
    datastore_refusals_total{reason="size"} 0
    datastore_refusals_total{reason="too_slow"} 0
    datastore_refusals_total{reason="head_size"} 0
    datastore_refusals_total{reason="host"} 0
    datastore_refusals_total{reason="origin"} 0
    datastore_refusals_total{reason="storage_full"} 0
    datastore_refusals_total{reason="storage_not_ready"} 0
    datastore_refusals_total{reason="storage_hangs"} 0
    datastore_refusals_total{reason="draining"} 0
    "#);
}

#[tokio::test]
async fn refusals_are_counted_by_reason() {
    let mut limits = Limits::default();
    limits.sizes.set(Kind::Bin, 3);
    let datastore = TestDatastore::limited(limits).await;
    assert_eq!(
        put(&datastore, &format!("plans?{RUN}&attempt=0&format=bin"), "four").await.status,
        413
    );
    let healthz = datastore.url.join("healthz").unwrap();
    assert_eq!(send(CLIENT.get(healthz).header("x-long", "a".repeat(17 << 10))).await.status, 431);
    // No refusal, but an answer like any other.
    get(&datastore, &format!("plans?{RUN}&attempt=0")).await;
    let figures = figures(&datastore).await;
    let refusals = figures
        .iter()
        .filter(|(name, count)| name.starts_with("datastore_refusals") && **count > 0.0);
    let refusals = refusals.map(|(name, value)| format!("{name} {value}\n")).collect::<Vec<_>>();
    insta::assert_snapshot!(refusals.concat(), @r#"
    datastore_refusals_total{reason="head_size"} 1
    datastore_refusals_total{reason="size"} 1
    "#);

    let (datastore, _kube) = crate::access::authentication::guarded().await;
    assert_eq!(get(&datastore, &format!("plans?{RUN}&attempt=0")).await.status, 401);
    let page = page(&datastore).await;
    assert!(page.contains("datastore_refusals_total{reason=\"no_token\"} 1\n"), "{page}");
}

#[tokio::test]
async fn an_ability_that_no_check_has_seen_is_neither_1_nor_0() {
    let double = FakeCloud::start(Dialect::S3);
    // After a part and the object: the creation that must be refused.
    let fault = CloudFault { method: "PUT", after: 2, times: usize::MAX, ..Default::default() };
    double.fault(CloudFault { status: 500, ..fault });
    let datastore = TestDatastore::with(double.impatient()).await;
    let probed = async || {
        let figures = figures(&datastore).await;
        (figures["datastore_storage_failures"] > 0.5).then_some(figures)
    };
    let figures = wait_for("the first check", probed).await;
    let can = |ability: &str| figures[&format!("datastore_storage_can{{ability=\"{ability}\"}}")];
    for (ability, expected) in
        [("list", 1.0), ("write", 1.0), ("conditional_create", -1.0), ("delete", -1.0)]
    {
        assert!((can(ability) - expected).abs() < 0.1, "{ability}: {}", can(ability));
    }
    assert!(figures.contains_key("datastore_storage_probe_age_seconds"), "{figures:#?}");
}

#[tokio::test]
async fn process_connections_and_probe_age_are_metrics() {
    let datastore = TestDatastore::memory().await;
    let figures = figures(&datastore).await;
    for (name, least) in [
        ("process_cpu_seconds_total", 0.0),
        ("process_start_time_seconds", 1.7e9),
        ("process_resident_memory_bytes", 1e6),
        ("process_virtual_memory_bytes", 1e6),
        ("process_open_fds", 5.0),
        ("process_max_fds", 64.0),
        ("process_threads", 1.0),
        ("datastore_connections_open", 1.0),
        ("datastore_connections_limit", 4096.0),
        ("datastore_storage_probe_age_seconds", 0.0),
    ] {
        assert!(figures.get(name).is_some_and(|value| *value >= least), "{name} {figures:#?}");
    }
}

#[tokio::test]
async fn probe_age_grows_while_the_storage_fails_and_starts_again_once_it_answers() {
    let datastore = TestDatastore::over(FakeCloud::start(Dialect::S3)).await;
    let probed = async |is_awaited: &dyn Fn(f64) -> bool| {
        let find = async || {
            let figures = figures(&datastore).await;
            let failures = figures["datastore_storage_failures"];
            let age = figures["datastore_storage_probe_age_seconds"];
            is_awaited(failures).then(|| (failures, age, Instant::now()))
        };
        wait_for("the number of failures", find).await
    };
    let (status, times) = (403, usize::MAX);
    datastore.cloud().fault(CloudFault { status, times, ..CloudFault::default() });
    let (failures, before, since) = probed(&|failures| failures > 0.5).await;
    let (_, after, until) = probed(&|more| more > failures + 1.5).await;
    let passed = (until - since).as_secs_f64();
    assert!(after - before > passed / 2.0, "{before} s, and {passed} s later {after} s");
    datastore.cloud().heal();
    let (_, renewed, _) = probed(&|failures| failures < 0.5).await;
    assert!(renewed < after, "{renewed} s, and {after} s before");
}

#[tokio::test]
async fn metrics_page_is_valid_prometheus_text() {
    let datastore = TestDatastore::memory().await;
    stored(&datastore, &format!("plans?{RUN}&attempt=0"), "x").await;
    let page = page(&datastore).await;
    let mut family = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap();
            assert!(!page.contains(&format!("# HELP {family} \n")), "no help for {family}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(rest.starts_with(family));
        } else {
            assert!(line.starts_with(family), "{line} is not of {family}");
        }
    }
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    insta::assert_snapshot!(families.collect::<Vec<_>>().join("\n"), @r"
    datastore_build_info gauge
    process_cpu_seconds_total counter
    process_start_time_seconds gauge
    process_resident_memory_bytes gauge
    process_virtual_memory_bytes gauge
    process_open_fds gauge
    process_max_fds gauge
    process_threads gauge
    datastore_requests_total counter
    datastore_received_bytes_total counter
    datastore_sent_bytes_total counter
    datastore_foreign_reads_total counter
    datastore_broken_answers_total counter
    datastore_request_seconds histogram
    datastore_refusals_total counter
    datastore_connections_open gauge
    datastore_connections_limit gauge
    datastore_connections_closed_idle_total counter
    datastore_uploads_active gauge
    datastore_admission_active_bytes gauge
    datastore_admission_limit_bytes gauge
    datastore_admission_waiting gauge
    datastore_admission_refused_total counter
    datastore_storage_can gauge
    datastore_storage_failures gauge
    datastore_storage_hung_jobs gauge
    datastore_storage_probe_age_seconds gauge
    datastore_storage_clock_skew_seconds gauge
    datastore_backend_calls_total counter
    datastore_backend_seconds_total counter
    ");
    assert!(
        page.contains(&format!("datastore_build_info{{version=\"{}\"", env!("CARGO_PKG_VERSION")))
    );
}
