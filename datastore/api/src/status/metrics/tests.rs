use super::names::MAX_VALUES;
use super::*;
use crate::state::LayerTool;
use crate::status::{Condition, RunResult};

fn status(condition: Condition, metric: Option<&str>) -> LayerStatus {
    LayerStatus {
        version: 1,
        status: condition,
        class: None,
        message: None,
        result: RunResult::Changes,
        action: "check".to_owned(),
        run: None,
        ended: "2026-01-02T03:04:05Z".to_owned(),
        last_ok: None,
        last_success: Some("2026-01-02T03:04:05.5Z".to_owned()),
        failed_in_a_row: 2,
        counts: [("create".to_owned(), 3)].into(),
        changes: Vec::new(),
        plan_sha256: None,
        approval: None,
        policy_sha256: None,
        seconds: [("plan".to_owned(), 1.5)].into(),
        runs_by_class: [("ok".to_owned(), 7), ("network".to_owned(), 1)].into(),
        state_bytes: Some(1024),
        locked_since: Some("2026-01-02T03:03:55Z".to_owned()),
        tool: Some(LayerTool { name: "terraform".to_owned(), version: "1.5.7".to_owned() }),
        stale: None,
        metric: metric.map(|metric| metric.parse().unwrap()),
    }
}

fn page_of(prefix: &str, layers: &[(&str, LayerStatus)]) -> String {
    let now = "2026-01-02T03:04:05Z".parse().unwrap();
    let namespace = "team-a".parse().unwrap();
    let layers =
        layers.iter().map(|(layer, status)| (layer.parse().unwrap(), status)).collect::<Vec<_>>();
    let statuses = layers.iter().map(|(layer, status)| (&namespace, layer, *status));
    page(prefix, statuses, 4, now)
}

fn has(page: &str, line: &str) {
    assert!(page.lines().any(|there| there == line), "{line}\n{page}");
}

fn lines<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    page.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect()
}

/// The lines of a metric whose value is not 0.
fn set(page: &str, name: &str) -> Vec<String> {
    let lines = lines(page, name).into_iter().filter(|line| !line.ends_with(" 0"));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_status_has_all_its_metrics() {
    let page = page_of(PREFIX, &[("network", status(Condition::Changed, None))]);
    let labels = r#"layer="network",namespace="team-a""#;
    for line in [
        format!("plancha_layer_status{{{labels},status=\"changed\"}} 1"),
        format!("plancha_layer_status{{{labels},status=\"ok\"}} 0"),
        format!("plancha_layer_last_success_timestamp_seconds{{{labels}}} 1767323045"),
        format!("plancha_layer_last_run_timestamp_seconds{{{labels}}} 1767323045"),
        format!("plancha_layer_phase_duration_seconds{{{labels},phase=\"plan\"}} 1.5"),
        format!("plancha_layer_failed_in_a_row{{{labels}}} 2"),
        format!("plancha_layer_state_size_bytes{{{labels}}} 1024"),
        format!("plancha_layer_state_lock_age_seconds{{{labels}}} 10"),
        format!("plancha_layer_stale{{{labels}}} 0"),
        format!("plancha_need_migrate_to_tofu{{{labels}}} 1"),
        format!("plancha_layer_tool_info{{{labels},tool=\"terraform\",version=\"1.5.7\"}} 1"),
        format!("plancha_layer_runs_total{{class=\"ok\",{labels}}} 7"),
        format!("plancha_layer_changes{{action=\"create\",{labels}}} 3"),
        "plancha_exporter_errors 4".to_owned(),
        "plancha_invalid_metrics 0".to_owned(),
        "# TYPE plancha_layer_runs_total counter".to_owned(),
    ] {
        has(&page, &line);
    }
    assert_eq!(lines(&page, "plancha_layer_status").len(), Condition::ALL.len());
    assert_eq!(lines(&page, "plancha_layer_last_result").len(), RunResult::ALL.len());
    let made =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE plancha_")?.split(' ').next());
    let mut names = NAMES.to_vec();
    names.retain(|name| *name != "node_group_status");
    assert_eq!(made.collect::<Vec<_>>(), names);
}

#[test]
fn a_page_without_layers_has_its_errors() {
    let page = page_of("candi_converge", &[]);
    has(&page, "# TYPE candi_converge_exporter_errors counter");
    has(&page, "candi_converge_exporter_errors 4");
    has(&page_of("no prefix", &[]), "plancha_exporter_errors 4");
}

#[test]
fn deckhouse_reads_its_own_words() {
    use Condition::{Abandoned, Absent, Changed, DestructivelyChanged, Error, Ok};
    for (condition, cluster, template) in [
        (Ok, "ok", "ok"),
        (Changed, "changed", "changed"),
        (DestructivelyChanged, "destructively_changed", "changed"),
        (Absent, "changed", "absent"),
        (Abandoned, "destructively_changed", "changed"),
        (Error, "error", "changed"),
    ] {
        let page = page_of(
            "candi_converge",
            &[
                ("base", status(condition, Some("cluster_status"))),
                ("w-1", status(condition, Some("node_status{node_group=worker,name=w-1}"))),
                ("t", status(condition, Some("node_template_status{name=worker}"))),
            ],
        );
        let name = |name: &str| format!("candi_converge_{name}");
        for (metric, labels, word, words) in [
            ("cluster_status", "", cluster, 4),
            ("node_status", r#"name="w-1",node_group="worker","#, condition.as_str(), 6),
            ("node_template_status", r#"name="worker","#, template, 3),
        ] {
            let metric = name(metric);
            assert_eq!(set(&page, &metric), [format!("{metric}{{{labels}status=\"{word}\"}} 1")]);
            assert_eq!(lines(&page, &metric).len(), words, "{metric}");
        }
    }
}

#[test]
fn a_group_of_nodes_is_as_bad_as_its_worst_node() {
    let node = |group: &str, name: &str, condition| {
        status(condition, Some(&format!("node_status{{node_group={group},name={name}}}")))
    };
    let page = page_of(
        "candi_converge",
        &[
            ("a", node("worker", "w-1", Condition::Ok)),
            ("b", node("worker", "w-2", Condition::Absent)),
            ("c", node("worker", "w-3", Condition::Changed)),
            ("d", node("master", "m-1", Condition::Ok)),
        ],
    );
    assert_eq!(
        set(&page, "candi_converge_node_group_status"),
        [
            r#"candi_converge_node_group_status{name="master",status="ok"} 1"#,
            r#"candi_converge_node_group_status{name="worker",status="absent"} 1"#,
        ]
    );
}

#[test]
fn what_layers_name_cannot_break_the_page() {
    let with = |metric: &str| status(Condition::Ok, Some(metric));
    let page = page_of(
        PREFIX,
        &[
            ("a", with("x_status{a=1}")),
            ("b", with("x_status{b=1}")),
            ("c", with("x_status{a=1}")),
            ("d", with("layer_status{a=1}")),
            ("e", with("exporter_errors")),
            ("f", with("node_group_status{name=x}")),
            ("g", with("y_status{__name__=x}")),
            ("h", with(&format!("z_status{{a={}}}", "v".repeat(129)))),
            ("i", with("x_status{a=2\\\"}")),
        ],
    );
    has(&page, r#"plancha_x_status{a="1",status="ok"} 1"#);
    has(&page, r#"plancha_x_status{a="2\\\"",status="ok"} 1"#);
    has(&page, "plancha_invalid_metrics 7");
    for absent in ["y_status", "z_status", "b=\"1\""] {
        assert!(!page.contains(absent), "{absent}");
    }
    let series = page.lines().filter(|line| !line.starts_with('#'));
    let mut series = series.map(|line| line.rsplit_once(' ').unwrap().0).collect::<Vec<_>>();
    let all = series.len();
    series.sort_unstable();
    series.dedup();
    assert_eq!(series.len(), all);
}

#[test]
fn labels_of_documents_are_few_and_escaped() {
    let mut layer = status(Condition::Ok, None);
    layer.runs_by_class = (0..100).map(|class| (format!("{class:03}"), 1)).collect();
    layer.counts = [("a\"b\\c\nd".to_owned(), 1), ("x".repeat(200), 1)].into();
    layer.tool.as_mut().unwrap().version = "é".repeat(100);
    let page = page_of(PREFIX, &[("network", layer)]);
    assert_eq!(lines(&page, "plancha_layer_runs_total").len(), MAX_VALUES);
    has(&page, "plancha_invalid_metrics 69");
    has(
        &page,
        r#"plancha_layer_changes{action="a\"b\\c\nd",layer="network",namespace="team-a"} 1"#,
    );
    assert!(page.contains(&format!("version=\"{}\"", "é".repeat(64))));
}

#[test]
fn a_prefix_is_an_identifier() {
    for text in ["plancha", "_a1", "candi_converge"] {
        assert_eq!(text.parse::<MetricPrefix>().unwrap().as_ref(), text);
    }
    for text in ["", "1a", "a-b", "a:b", "é", &"a".repeat(65)] {
        text.parse::<MetricPrefix>().unwrap_err();
    }
}
