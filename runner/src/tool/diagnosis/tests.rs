//! Rules and verdicts. The corpus of real outputs is in `tests/fixtures/diagnostics`.

use std::collections::BTreeSet;

use crate::tool::diagnosis::class::Class;
use crate::tool::diagnosis::output;
use crate::tool::diagnosis::rule_file;
use crate::tool::diagnosis::rules::Rules;
use crate::tool::diagnosis::verdict::Verdict;

mod corpus;

fn classified(output: &str, users: Option<&str>) -> (Class, bool, String) {
    let rules = Rules::load(users).unwrap();
    let verdict = Verdict::read(output.as_bytes(), &rules).unwrap();
    (verdict.class, verdict.is_retryable, output::text(&verdict, false))
}

fn class(output: &str) -> Class {
    classified(output, None).0
}

fn block(summary: &str) -> String {
    format!("╷\n│ Error: {summary}\n╵\n")
}

#[test]
fn every_rule_has_a_name_an_explanation_and_a_source() {
    let rules = Rules::load(None).unwrap();
    let mut ids = BTreeSet::new();
    for rule in rules.iter() {
        assert!(ids.insert(rule.id.clone()), "{} is there twice", rule.id);
        let (explanation, source) = (rule.explanation.as_deref(), rule.source.as_deref());
        assert!(explanation.is_some_and(|text| text.ends_with('.')), "{}", rule.id);
        assert!(source.is_some_and(|url| url.starts_with("https://")), "{}", rule.id);
        assert!(!rule.regex.is_match(b"all is well"), "{}", rule.id);
    }
    assert!(ids.len() > 60, "{}", ids.len());
}

#[test]
fn the_class_of_a_run_is_the_first_by_precedence() {
    let errors = [
        (Class::Lock, block("Error acquiring the state lock")),
        (Class::Config, block("Unsupported argument")),
        (Class::Quota, block("creating VPC: VpcLimitExceeded: no more")),
        (Class::AlreadyExists, block("namespaces \"a\" already exists")),
        (Class::Auth, block("reading: 403 Forbidden")),
        (Class::Interrupted, block("execution halted")),
        (Class::Transient, block("reading: 503 Service Unavailable")),
        (Class::Unknown, block("the frobnicator is out of blue")),
    ];
    for (first, (class, error)) in errors.iter().enumerate() {
        assert_eq!(classified(error, None).0, *class, "{error}");
        for (other, lower) in &errors[first..] {
            let (found, is_retryable, _) = classified(&format!("{lower}{error}"), None);
            assert_eq!(found, *class, "{error}{lower}");
            let both = *class == Class::Transient && *other == Class::Transient;
            assert_eq!(is_retryable, both, "{error}{lower}");
        }
    }
    assert_eq!(errors.map(|(class, _)| class), Class::ALL);
}

#[test]
fn patterns_match_one_error_and_never_two() {
    let apart = format!("{}{}", block("The state is"), block("already locked"));
    assert_eq!(class(&apart), Class::Unknown);
    assert_eq!(class(&block("The state\n│ is already locked")), Class::Lock);
}

#[test]
fn a_list_within_one_error_is_no_more_transient_than_its_items() {
    let list = |items: &str| block(&format!("creating: 2 errors occurred:\n│ \t* {items}"));
    let busy = "ThrottlingException: Rate exceeded\n│ \t* ";
    for (item, expected) in [
        ("AccessDenied: not you", Class::Auth),
        ("the frobnicator is out of blue", Class::Unknown),
        ("503 Service Unavailable", Class::Transient),
    ] {
        let (class, is_retryable, _) = classified(&list(&format!("{busy}{item}")), None);
        assert_eq!((class, is_retryable), (expected, expected == Class::Transient), "{item}");
    }
}

/// A provider without a configuration connects to this machine, in all spellings.
#[test]
fn a_connection_to_localhost_is_a_wrong_configuration() {
    for error in [
        "dial tcp [::1]:80: connect: connection refused",
        "dial tcp 127.0.0.1:80: connect: connection refused",
        "Get \"http://localhost/api/v1/x\": dial tcp: connection refused",
        "dial tcp 127.0.0.1:80: connectex: No connection could be made because the target machine actively refused it.",
    ] {
        assert_eq!(class(&block(error)), Class::Config, "{error}");
    }
    let dns = "dial tcp: lookup a.b: read udp 127.0.0.1:3->127.0.0.53:53: read: connection refused";
    for error in ["dial tcp 10.0.0.1:443: connect: connection refused", dns] {
        assert_eq!(class(&block(error)), Class::Transient, "{error}");
    }
}

/// What is said of retries is no quota.
#[test]
fn retries_that_are_used_up_are_no_quota() {
    let retried = "operation error S3: HeadObject, exceeded maximum number of attempts, 3, request send failed, deadline exceeded";
    for (error, expected) in [
        (format!("{retried}: connection reset by peer"), Class::Transient),
        ("VpcLimitExceeded: The maximum number of VPCs has been reached.".to_owned(), Class::Quota),
        ("The maximum number of rules is exceeded".to_owned(), Class::Quota),
    ] {
        assert_eq!(class(&block(&error)), expected, "{error}");
    }
}

#[test]
fn text_without_an_error_is_unknown_and_not_retried() {
    for output in ["", "No changes.\n", "Warning: 503 Service Unavailable\n", "\0\u{1}\u{fffd}"] {
        let (class, is_retryable, text) = classified(output, None);
        assert_eq!((class, is_retryable, text.as_str()), (Class::Unknown, false, "unknown\n"));
    }
}

#[test]
fn an_error_that_only_announces_others_does_not_count_beside_them() {
    let generic = "Terraform encountered problems during initialisation";
    let output = format!("{}{}", block("503 Service Unavailable"), block(generic));
    let (class, is_retryable, _) = classified(&output, None);
    assert_eq!((class, is_retryable), (Class::Transient, true));
    let output = format!(
        "{}{}",
        block("503 Service Unavailable"),
        block("1 error occurred: AccessDenied: x")
    );
    assert_eq!(class_and_retry(&output), (Class::Auth, false));
    assert_eq!(class_and_retry(&block(generic)), (Class::Unknown, false));
}

fn class_and_retry(output: &str) -> (Class, bool) {
    let (class, is_retryable, _) = classified(output, None);
    (class, is_retryable)
}

#[test]
fn errors_past_the_limit_still_count() {
    let mut output = (0..700)
        .map(|n| block(&format!("reading {n}: 503 Service Unavailable")))
        .collect::<String>();
    assert_eq!(class_and_retry(&output), (Class::Transient, true));
    output.push_str(&block("reading: 403 Forbidden"));
    let (class, is_retryable, text) = classified(&output, None);
    assert_eq!((class, is_retryable), (Class::Auth, false));
    assert!(text.ends_with(
        "auth: and 1 more that are not listed\ntransient: and 200 more that are not listed\n"
    ));
}

#[test]
fn rules_of_the_user_come_first() {
    let users = "rules:\n- id: ours\n  class: transient\n  pattern: '403 Forbidden.*proxy-7'\n";
    let error = block("reading: 403 Forbidden by proxy-7");
    assert_eq!(class(&error), Class::Auth);
    let (class, is_retryable, text) = classified(&error, Some(users));
    assert_eq!((class, is_retryable), (Class::Transient, true));
    assert!(text.contains("transient (ours): reading"), "{text}");
    let json = r#"{"rules": [{"id": "ours", "class": "quota", "pattern": "proxy-7"}]}"#;
    assert_eq!(classified(&error, Some(json)).0, Class::Quota);
}

#[test]
fn a_wrong_rule_is_refused_with_its_line() {
    let rule = |fields: &str| format!("rules:\n- id: a\n  class: auth\n  pattern: x\n{fields}");
    for (text, line, reason) in [
        (rule("- id: a\n  class: auth\n  pattern: y\n"), 5, "that of the rule in line 2, too"),
        (
            rule("- id: b\n  class: auth\n  pattern: 'y('\n"),
            7,
            "the pattern is not valid: unclosed group",
        ),
        (rule("- id: b\n  class: auth\n  pattern: 'y*'\n"), 7, "the pattern matches every text"),
        (rule("- id: b\n  class: retry\n  pattern: y\n"), 6, "transient"),
        (rule("- id: b\n  class: auth\n"), 6, "missing field `pattern`"),
        (rule("  retries: 3\n"), 5, "retries"),
        (rule("  import_id: {}\n"), 4, "needs a group (?P<id>...)"),
        (rule("- id: b c\n  class: auth\n  pattern: y\n"), 5, "is not valid: expected letters"),
        ("rules: 3\n".to_owned(), 1, "sequence"),
        ("rules:\n\t- id: a\n".to_owned(), 2, ""),
    ] {
        let error = rule_file::parse(&text, true).unwrap_err();
        assert!(error.reason.contains(reason), "{text}: {error}");
        assert_eq!(error.line, line, "{text}: {error}");
    }
}

/// What the message names may be the ID of another object.
#[test]
fn an_import_id_is_exact_or_absent() {
    let azure = |id: &str, kind: &str| {
        format!(
            "A resource with the ID {id:?} already exists - to be managed via Terraform this resource needs to be\n│ \
             imported into the State. Please see the resource documentation for {kind:?} for more\n│ information."
        )
    };
    let vnet = "/subscriptions/0/resourceGroups/a b/providers/Microsoft.Network/virtualNetworks/v";
    for (summary, address, id) in [
        (azure(vnet, "azurerm_virtual_network"), "azurerm_virtual_network.a", Some(vnet)),
        (azure(vnet, "azurerm_virtual_network"), "azurerm_subnet.a", None),
        (azure(vnet, "azurerm_role_definition"), "azurerm_role_definition.a", None),
        (
            "creating IAM Role (r): EntityAlreadyExists: Role with name r already exists.".into(),
            "module.a.aws_iam_role.b[\"c, d\"]",
            Some("r"),
        ),
        (
            "creating IAM Policy (p): EntityAlreadyExists: A policy called p already exists.".into(),
            "aws_iam_policy.a",
            None,
        ),
        (
            "creating: EntityAlreadyExists: Role with name r already exists.".into(),
            "aws_iam_policy.a",
            None,
        ),
        (
            "creating Security Group (g): InvalidGroup.Duplicate: The security group 'g' already exists".into(),
            "aws_security_group.a",
            None,
        ),
        ("namespaces \"n\" already exists".into(), "kubernetes_namespace.a", Some("n")),
        ("secrets \"n\" already exists".into(), "kubernetes_secret.a", None),
        (
            "Error creating Dataset: googleapi: Error 409: Already Exists: Dataset p-1:d, duplicate".into(),
            "google_bigquery_dataset.a",
            Some("projects/p-1/datasets/d"),
        ),
        (
            "googleapi: Error 409: The resource 'projects/p/global/networks/n' already exists, alreadyExists".into(),
            "google_compute_network.a",
            Some("projects/p/global/networks/n"),
        ),
    ] {
        let output = block(&format!("{summary}\n│ \n│   with {address},\n│   on main.tf line 1, in x:"));
        let rules = Rules::load(None).unwrap();
        let verdict = Verdict::read(output.as_bytes(), &rules).unwrap();
        let found = &verdict.blocks[0];
        assert_eq!(found.class, Class::AlreadyExists, "{output}");
        assert_eq!(found.import_id.as_deref(), id, "{output}");
        assert_eq!(found.address.as_deref(), Some(address), "{output}");
    }
}

#[test]
fn the_explanation_names_rule_source_and_reason() {
    let rules = Rules::load(None).unwrap();
    let error = block(
        "creating: EntityAlreadyExists: Role with name r already exists.\n│ \n│   with aws_iam_role.a,",
    );
    let output = format!("{error}{}", block("a \u{202e}b"));
    let verdict = Verdict::read(output.as_bytes(), &rules).unwrap();
    insta::assert_snapshot!(output::text(&verdict, true));
    insta::assert_snapshot!(output::json(&verdict, true).unwrap());
    insta::assert_snapshot!(output::json(&verdict, false).unwrap());
}
