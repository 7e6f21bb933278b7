//! Rules and verdicts. The corpus of real outputs is in `tests/fixtures/diagnostics`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::tool::diagnosis::class::Class;
use crate::tool::diagnosis::output;
use crate::tool::diagnosis::rule_file;
use crate::tool::diagnosis::rules::Rules;
use crate::tool::diagnosis::verdict::Verdict;

mod corpus;
mod whole;

/// To compile the rules takes a second.
static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::load(None).unwrap());

fn classified(output: &str, users: Option<&str>) -> (Class, bool, String) {
    let with_users = users.map(|_| Rules::load(users).unwrap());
    let rules = with_users.as_ref().unwrap_or(&RULES);
    let verdict = Verdict::read(output.as_bytes(), rules).unwrap();
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

/// As helm words it (terraform-provider-helm#329), and go-multierror.
#[test]
fn a_list_that_no_rule_knows_stops_a_retry() {
    let busy = "503 Service Unavailable";
    let with = "\n\n  with a_b.c,\n  on main.tf line 1, in resource \"a_b\" \"c\":\n   1: x";
    let lists = [
        "creating x: 2 errors occurred:\n\t* odd thing\n\t* other",
        "1 error occurred:\n\t* odd thing",
        "creating x: 1 error occurred:\n\n* odd thing",
        "Error running plan: 1 error occurred:\n\t* helm_release.a: 1 error occurred:\n\t* helm_release.a: odd",
        "creating x: 503 Service Unavailable: 2 errors occurred:\n\t* odd thing\n\t* 503 Service Unavailable",
        "an unexpected error occurred: odd thing",
        "Error applying plan: odd thing",
    ];
    let boxed = |text: &str| block(&text.replace('\n', "\n│ "));
    let bare = |text: &str| format!("\nError: {text}\n\n");
    for list in lists.into_iter().flat_map(|list| [list.to_owned(), format!("{list}{with}")]) {
        for [first, second] in [[busy, &list], [&list, busy]] {
            for output in [bare(first) + &bare(second), boxed(first) + &boxed(second)] {
                let (_, is_retryable, text) = classified(&output, None);
                assert!(!is_retryable, "{output}{text}");
                assert_eq!(text.lines().count(), 3, "{output}{text}");
            }
        }
    }
    let list = "Error running plan: 1 error occurred:\n\t* a.b: 1 error occurred:\n\t* a.b: ";
    for (item, expected) in
        [(busy, Class::Transient), ("AccessDenied: x", Class::Auth), ("odd", Class::Unknown)]
    {
        assert_eq!(class(&boxed(&format!("{list}{item}"))), expected, "{item}");
    }
}

/// Standard error alone, of a tool whose empty lines were removed.
#[test]
fn errors_without_boxes_and_empty_lines_are_apart() {
    let place = |name: &str| {
        format!(
            "  with aws_vpc.{name},\n  on main.tf line 1, in resource \"aws_vpc\" \"{name}\":\n   1: resource \"aws_vpc\" \"{name}\" {{\n"
        )
    };
    let busy = "Error: creating EC2 VPC: RequestLimitExceeded: Request limit exceeded.\n";
    let denied = "Error: creating EC2 VPC: AccessDenied: not you\n";
    let detail = "some text of a provider\n";
    for output in [
        format!("{busy}{}{denied}{}", place("a"), place("b")),
        format!("{busy}{}{detail}{denied}{}", place("a"), place("b")),
        format!("{busy}{}{detail}Warning: old\n{}{denied}{}", place("a"), place("b"), place("b")),
    ] {
        let prefixed =
            |prefix: &str| output.lines().flat_map(|line| [prefix, line, "\n"]).collect::<String>();
        for output in [
            output.clone(),
            prefixed("2026-05-05T10:00:00.1234567Z "),
            prefixed("plan\tRun terraform\t2026-05-05T10:00:00.123Z "),
            prefixed("tf-1  | "),
        ] {
            let (class, is_retryable, text) = classified(&output, None);
            assert_eq!((class, is_retryable), (Class::Auth, false), "{output}{text}");
            assert!(text.contains("aws_vpc.a") && text.contains("aws_vpc.b"), "{text}");
        }
    }
}

/// What may exist, not how often one may ask, whatever the service calls it.
#[test]
fn a_number_that_is_reached_is_a_quota_also_where_the_reason_is_called_a_rate() {
    for error in [
        "googleapi: Error 429: Maximum number of service accounts on project reached., rateLimitExceeded",
        "googleapi: Error 429: Maximum number of keys on account reached.\n│ Details:\n│ [{\"@type\": \
         \"type.googleapis.com/google.rpc.RetryInfo\", \"retryDelay\": \"86401s\"}]\n│ , rateLimitExceeded",
    ] {
        assert_eq!(class_and_retry(&block(error)), (Class::Quota, false), "{error}");
    }
    for error in [
        "googleapi: Error 403: Rate Limit Exceeded, rateLimitExceeded",
        "googleapi: Error 429: Maximum number of requests per minute exceeded, rateLimitExceeded",
        "googleapi: Error 403: Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service \
         'compute.googleapis.com' for consumer 'project_number:1'., rateLimitExceeded",
    ] {
        assert_eq!(class_and_retry(&block(error)), (Class::Transient, true), "{error}");
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

/// A log of the runner, or its screen.
#[test]
fn lines_of_the_runner_are_no_part_of_the_error_before_them() {
    let of_tool = "\nError: Failed to get state: GET http://h/s giving up after 1 attempt(s)\n\n\nError: HTTP code 418\n\n";
    let of_runner = "ERROR the tool reported 2 errors\n  also: Failed to get state: GET http://h/s giving up after 1 attempt(s)\n";
    let failed = "terraform plan failed";
    for (of_tool, lines, expected) in [
        (of_tool, of_runner.to_owned(), (Class::Transient, false)),
        (
            of_tool,
            format!("{failed}: transient (x): x; try 2 follows in 1.2s\ntimeout\n"),
            (Class::Transient, false),
        ),
        (
            of_tool,
            format!(" WARN terraform plan is not run again: i/o timeout\n{of_runner}"),
            (Class::Transient, false),
        ),
        (
            of_tool,
            format!("ERROR {failed} with exit code 1: i/o timeout\n"),
            (Class::Transient, false),
        ),
        (
            &block("503 Service Unavailable"),
            format!("ERROR {failed} with exit code 1: AccessDenied\n"),
            (Class::Transient, true),
        ),
    ] {
        let (class, is_retryable, text) = classified(&format!("{of_tool}{lines}"), None);
        assert_eq!((class, is_retryable), expected, "{lines}: {text}");
    }
}

/// As terragrunt 0.72.5 prints it.
#[test]
fn hook_of_terragrunt_that_fails_stops_a_retry() {
    let error =
        "Error refreshing state: Failed to get state: GET http://h/s giving up after 1 attempt(s)";
    let hook = "20:43:09.637 ERROR  Error running hook guard with message: Failed to execute \"sh -c exit 3\" in .\n\nexit status 3\n";
    let of_tool = format!(
        "20:43:09.630 ERROR  terraform: ╷\n20:43:09.630 ERROR  terraform: │ Error: {error}\n20:43:09.630 ERROR  terraform: ╵\n"
    );
    assert!(classified(&of_tool, None).1);
    let (_, is_retryable, text) = classified(&format!("{of_tool}{hook}"), None);
    assert!(!is_retryable && text.lines().count() == 3, "{text}");
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
        (
            rule("  import_id: {format: 's/${id}'}\n"),
            4,
            "names the group \"id\", which the pattern",
        ),
        (rule("  import_id: {format: '$a/x'}\n"), 4, "names the group \"a\", which the pattern"),
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
fn an_import_id_whose_group_matches_nothing_is_absent() {
    let users = "rules:\n- id: ours\n  class: already_exists\n  pattern: 'thing (?:in (?P<space>\\w+) )?(?P<id>\\w+) \
        exists'\n  import_id: {format: '$$${space}/${id}'}\n";
    let rules = Rules::load(Some(users)).unwrap();
    for (error, id) in [("thing in s a exists", Some("$s/a")), ("thing a exists", None)] {
        let output = block(error);
        let verdict = Verdict::read(output.as_bytes(), &rules).unwrap();
        assert_eq!(verdict.blocks[0].import_id.as_deref(), id, "{error}");
    }
}

/// As terraform 1.11.4 prints them.
#[test]
fn errors_of_an_http_backend_have_a_class() {
    let acquiring = |error: &str| {
        block(&format!("Error acquiring the state lock\n│ \n│ Error message: {error}"))
    };
    let releasing = |error: &str| {
        block(&format!("Error releasing the state lock\n│ \n│ Error message: {error}"))
    };
    let given_up =
        |method: &str| format!("{method} http://127.0.0.1:18703/s giving up after\n│ 1 attempt(s)");
    let info = "\n│ Lock Info:\n│   ID:        1\n│   Operation: OperationTypeApply";
    for (output, class, rule) in [
        (block("Error refreshing state: HTTP remote state endpoint requires auth"), Class::Auth, "state-http-auth"),
        (block("Error refreshing state: HTTP remote state endpoint invalid auth"), Class::Auth, "state-http-auth"),
        (block("Error refreshing state: Unexpected HTTP response code 407"), Class::Auth, "http-407-alone"),
        ("Failed to refresh state: HTTP remote state endpoint requires auth\n".into(), Class::Auth, "state-http-auth"),
        (
            "Failed to refresh state: Failed to get state: GET http://127.0.0.1:18714/s giving up after 1 attempt(s)\n".into(),
            Class::Transient,
            "retries-given-up",
        ),
        (acquiring("HTTP remote state endpoint requires auth"), Class::Lock, "state-lock"),
        (acquiring(&format!("Failed to lock: {}", given_up("LOCK"))), Class::Transient, "retries-given-up"),
        (acquiring("HTTP remote state already locked: ID=abc"), Class::Lock, "state-lock"),
        (acquiring(&format!("503 Service Unavailable{info}")), Class::Lock, "state-lock"),
        (acquiring("resource temporarily unavailable"), Class::Lock, "state-lock"),
        (acquiring("2 errors occurred:\n│ \t* 503 Service Unavailable\n│ \t* resource temporarily unavailable"), Class::Lock, "state-lock"),
        (releasing(&format!("Failed to unlock: {}", given_up("UNLOCK"))), Class::Lock, "state-lock"),
    ] {
        let (found, is_retryable, text) = classified(&output, None);
        assert_eq!((found, is_retryable), (class, class == Class::Transient), "{output}{text}");
        assert!(text.contains(&format!("{class} ({rule})")), "{output}{text}");
    }
}

/// Outputs of others that no rule knew, or that a wrong one did.
#[test]
fn errors_of_further_services_have_a_class() {
    for (error, expected) in [
        ("260002: password is empty", Class::Auth),
        ("server limit exceeded (resource_limit_exceeded)", Class::Quota),
        (
            "Error creating droplet: POST https://api.digitalocean.com/v2/droplets: 422 (request \"fe2ff026\") creating \
             this/these droplet(s) will exceed your droplet limit",
            Class::Quota,
        ),
        (
            "building account: could not acquire access token to parse claims: ManagedIdentityAuthorizer: failed to request \
             token from metadata endpoint: received HTTP status 429 with body: {\"error\":\"invalid_request\",\
             \"error_description\":\"Temporarily throttled, too many requests\"}",
            Class::Transient,
        ),
        (
            "error getting service level objective: 429 Too Many Requests: {\"errors\": [\"Rate limit of 100 requests in 10 \
             seconds reached. Please try again later.\"]}",
            Class::Transient,
        ),
        (
            "Error creating OpenStack server: The service is currently unable to handle the request due to a temporary \
             overloading or maintenance. This is a temporary condition. Try again later.",
            Class::Transient,
        ),
        (
            "Error applying plan:\n│ \n│ 1 error(s) occurred:\n│ \n│ * azurerm_virtual_network.vnet1: \
             autorest:DoErrorUnlessStatusCode 429 PUT https://management.azure.com/v?api-version=2015-06-15 failed with 429",
            Class::Transient,
        ),
    ] {
        assert_eq!(
            class_and_retry(&block(error)),
            (expected, expected == Class::Transient),
            "{error}"
        );
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
