//! An error stops a retry also where it looks like another one, or where its text is longer than what is kept.

use crate::tool::diagnosis::Cause;
use crate::tool::diagnosis::class::Class;
use crate::tool::diagnosis::output;
use crate::tool::diagnosis::rules::Rules;
use crate::tool::diagnosis::tests::{RULES, block, class, class_and_retry, classified};
use crate::tool::diagnosis::verdict::Verdict;

fn with_place(detail: &str) -> String {
    let place = "  with a_b.c,\n│   on main.tf line 1, in resource \"a_b\" \"c\":\n│    1: x";
    block(&format!("Client Error\n│ \n│ {place}\n│ \n│ {detail}"))
}

/// A provider can report several errors with the same headline for one resource.
#[test]
fn errors_that_only_differ_in_their_details_both_count() {
    let [busy, denied] = ["503 Service Unavailable", "403 Forbidden"].map(with_place);
    for output in [format!("{busy}{denied}"), format!("{denied}{busy}")] {
        let (class, is_retryable, text) = classified(&output, None);
        assert_eq!((class, is_retryable), (Class::Auth, false), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
    let json = |detail: &str| {
        format!(
            r#"{{"@level":"error","@message":"Error: x","diagnostic":{{"severity":"error","summary":"Client Error","detail":"{detail}","address":"a_b.c","range":{{"filename":"main.tf","start":{{"line":1}}}}}}}}"#
        ) + "\n"
    };
    let [busy, denied] = ["503 Service Unavailable", "403 Forbidden"].map(json);
    assert_eq!(class_and_retry(&format!("{busy}{denied}")), (Class::Auth, false));
    // The same text, wrapped in another way.
    let again =
        format!("{}{}", with_place("503 Service\n│ Unavailable"), json("503  Service Unavailable"));
    assert_eq!(classified(&again, None).2.lines().count(), 2);
}

/// The last item of a list is past the limit.
#[test]
fn an_error_whose_end_was_not_read_is_not_retried() {
    let item = format!("503 Service Unavailable: {}", "x".repeat(100));
    let items = |mark: &str, last: &str| {
        let items = [vec![&*item; 79], vec![last]].concat();
        items.iter().map(|item| [mark, "* ", item, "\n"].concat()).collect::<String>()
    };
    let listed = |last: &str| {
        let list = items("\t", last);
        let json = list.replace('\t', "\\t").replace('\n', "\\n");
        [
            block(&format!("creating: 80 errors occurred:\n│ {}", list.replace('\n', "\n│ "))),
            format!("\nError: creating\n\n80 errors occurred:\n{list}\n"),
            format!("\nError: creating: 80 errors occurred: {}\n", list.replace('\n', " ")),
            format!(
                "\nError: Error applying plan:\n\n80 error(s) occurred:\n\n{}",
                items("", last)
            ),
            format!(
                r#"{{"@level":"error","@message":"Error: x","diagnostic":{{"severity":"error","summary":"creating","detail":"80 errors occurred:\n{json}"}}}}"#
            ),
            format!(
                r#"{{"@level":"error","@message":"Error: x","diagnostic":{{"severity":"error","summary":"creating: 80 errors occurred:\n{json}"}}}}"#
            ),
            format!("12:30:45.123 ERROR  80 errors occurred: {}\n", list.replace('\n', " ")),
        ]
    };
    for last in ["403 Forbidden", &*item] {
        for output in listed(last) {
            let verdict = Verdict::read(output.as_bytes(), &RULES).unwrap();
            assert_eq!(
                (verdict.class, verdict.is_retryable),
                (Class::Transient, false),
                "{output}"
            );
            let cause = Cause::of(&verdict);
            assert!(!cause.is_retryable, "{output}");
            let reason = cause.refusal().unwrap();
            assert!(
                reason.starts_with("the text of an error is longer than what is kept"),
                "{reason}"
            );
            let text = output::text(&verdict, true);
            assert!(text.ends_with("is kept: the run is not retried\n"), "{text}");
        }
    }
    let cut = format!(
        "{{\"@level\":\"error\",\"@message\":\"Error: 503 Service Unavailable\",\"x\":\"{}",
        "x".repeat(300 << 10)
    );
    assert_eq!(class_and_retry(&cut), (Class::Transient, false));
    let short = listed("403 Forbidden").map(|output| output.replace(&"x".repeat(100), ""));
    for output in short {
        assert_eq!(class_and_retry(&output), (Class::Auth, false), "{output}");
    }
}

/// Further errors than are listed count as well.
#[test]
fn an_error_past_the_limit_whose_end_was_not_read_is_not_retried() {
    let busy = |n: usize| block(&format!("reading {n}: 503 Service Unavailable"));
    let mut output = (0..600).map(busy).collect::<String>();
    assert_eq!(class_and_retry(&output), (Class::Transient, true));
    output.push_str(&block(&format!("503 Service Unavailable\n│ \n│ {}", "x ".repeat(9000))));
    assert_eq!(class_and_retry(&output), (Class::Transient, false));
}

/// As go-plugin words it.
#[test]
fn a_provider_that_cannot_run_here_is_not_transient() {
    let usually = "This usually means\n│   the plugin was not compiled for this architecture,\n│   the plugin is missing \
        dynamic-link libraries necessary to run,\n│   the plugin is not executable by this process due to file permissions, or\n\
        │   the plugin failed to negotiate the initial go-plugin protocol handshake";
    for error in [
        format!(
            "Unrecognized remote plugin message: \n│ Failed to read any lines from plugin's stdout\n│ {usually}"
        ),
        "Failed to read any lines from plugin's stdout".to_owned(),
        "Unrecognized remote plugin message: exec format error".to_owned(),
    ] {
        let output = block(&format!("Failed to instantiate provider\n│ \n│ {error}"));
        assert_eq!(class_and_retry(&output), (Class::Config, false), "{output}");
    }
    assert_eq!(class_and_retry(&block("Plugin did not respond")), (Class::Transient, true));
}

/// What an ID means to the runner is the meaning of the runner's own rule.
#[test]
fn a_rule_of_the_user_does_not_get_the_meaning_of_a_built_in_one() {
    let rule = |id: &str, class: &str, pattern: &str| {
        let text = format!("rules:\n- id: {id}\n  class: {class}\n  pattern: '{pattern}'\n");
        Rules::load(Some(&text)).unwrap()
    };
    let cause = |rules: &Rules, error: &str| {
        Cause::of(&Verdict::read(block(error).as_bytes(), rules).unwrap())
    };
    let denied = "Error acquiring the state lock\n│ \n│ Error message: 403 Forbidden";
    assert_eq!(cause(&RULES, denied).lock_reason, Some(Class::Auth));
    let ours = rule("state-lock", "lock", "Error acquiring our lock");
    for reason in ["403 Forbidden", "503 Service Unavailable"] {
        let found = cause(&ours, &format!("Error acquiring our lock: {reason}"));
        assert_eq!((found.class, found.lock_reason), (Class::Lock, None));
    }
    let ours = rule("integrity-state", "config", "our gate");
    assert!(!cause(&ours, "our gate is closed").is_integrity);
    assert!(cause(&ours, "Saved plan is stale").is_integrity);
}

/// As terraform 1.11.4 writes them.
#[test]
fn errors_of_the_configuration_that_no_other_word_shows_are_of_its_class() {
    for error in [
        "Argument definition required",
        "Zero assert blocks",
        "Unable to find remote state",
        "Division by zero",
    ] {
        assert_eq!(class(&block(error)), Class::Config, "{error}");
    }
}
