//! `changes`: the changes of a plan.json of 200 MB, listed by the datastore, against jq.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Instant;

use super::{MIB, Programs, Server, ms, timed};

/// The size of the plan in bytes.
const SIZE: usize = 200_000_000;
/// One resource in so many changes.
const CHANGED: usize = 20;

/// The first request lists the changes and stores the list, the second one reads it. jq selects the same resources.
pub(super) async fn changes(programs: &Programs) {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("plan.json");
    let (plan, resources) = plan();
    std::fs::write(&path, &plan).unwrap();
    println!(
        "changes: a plan.json of {} MB, {resources} resources of which {} change",
        plan.len() / 1_000_000,
        resources.div_ceil(CHANGED)
    );
    let server = Server::start(&programs.datastore);
    let http = reqwest::Client::new();
    let run = "namespace=n&layer=l&run=r&attempt=0";
    let put = http.put(format!("{}/api/plans?{run}", server.url)).body(plan);
    assert_eq!(put.send().await.unwrap().status(), 200);
    let stored = server.rss_peak();
    for name in ["first", "second"] {
        let since = Instant::now();
        let answer = http.get(format!("{}/api/changes?{run}", server.url)).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let list = answer.bytes().await.unwrap();
        println!(
            "  {name} request          {:10.1} ms, {:.1} MB; the datastore's memory at most {:.1} MiB ({stored:.1} after the upload)",
            ms(since.elapsed()),
            list.len() as f64 / 1e6,
            server.rss_peak()
        );
    }
    let mut jq = Command::new("jq");
    jq.args(["-c", "[.resource_changes[] | select(.change.actions != [\"no-op\"])]"]).arg(&path);
    let (took, rss) = tokio::task::block_in_place(|| timed(&mut jq));
    println!("  jq                     {:10.1} ms, {:.1} MiB", ms(took), rss as f64 / MIB as f64);
}

/// A plan with each resource in the planned values, the changes and the prior state, as terraform writes it.
fn plan() -> (String, usize) {
    let (mut planned, mut changed, mut size, mut at) = (String::new(), String::new(), 0, 0_usize);
    while size < SIZE {
        let value = |step: usize| {
            format!(
                r#"{{"id":"i-{at:017}","arn":"arn:aws:ec2:eu-west-1:123456789012:instance/i-{at:017}","tags":{{"Name":"server-{at}","step":"{step}","team":"platform"}},"user_data":"{}","ebs":[{{"size":{at},"encrypted":true}},{{"size":8,"encrypted":false}}],"password":"secret-{at}-{step}"}}"#,
                "abc\\n".repeat(60)
            )
        };
        let is_changed = at.is_multiple_of(CHANGED);
        let (before, after) = (value(0), value(usize::from(is_changed)));
        let actions = if is_changed { "update" } else { "no-op" };
        let marks = r#"{"tags":{},"ebs":[{},{}],"password":true}"#;
        let head = format!(
            r#"{{"address":"module.m[{}].aws_instance.x[{at}]","mode":"managed","type":"aws_instance","name":"x","index":{at}"#,
            at % 100
        );
        let start = (planned.len(), changed.len());
        write!(planned, r#"{head},"values":{after},"sensitive_values":{marks}}},"#).unwrap();
        write!(changed, r#"{head},"change":{{"actions":["{actions}"],"before":{before},"after":{after},"after_unknown":{{"tags":{{}},"ebs":[{{}},{{}}]}},"before_sensitive":{marks},"after_sensitive":{marks}}}}},"#).unwrap();
        size += 2 * (planned.len() - start.0) + changed.len() - start.1;
        at += 1;
    }
    let list = |text: &str| text.trim_end_matches(',').to_owned();
    let (planned, changed) = (list(&planned), list(&changed));
    let plan = format!(
        r#"{{"format_version":"1.2","terraform_version":"1.11.4","planned_values":{{"root_module":{{"resources":[{planned}]}}}},"resource_changes":[{changed}],"prior_state":{{"values":{{"root_module":{{"resources":[{planned}]}}}}}},"configuration":{{}}}}"#
    );
    (plan, at)
}
