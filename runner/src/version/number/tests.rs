use std::cmp::Ordering;

use proptest::prelude::*;

use crate::version::{Constraint, Version};

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

fn allows(constraint: &str, text: &str) -> bool {
    constraint.parse::<Constraint>().unwrap().allows(&version(text))
}

#[test]
fn a_version_is_filled_up_and_loses_its_v() {
    for (text, shown) in [
        ("1.5", "1.5.0"),
        ("v1.9.8", "1.9.8"),
        ("1", "1.0.0"),
        ("1.2.3.4", "1.2.3.4"),
        ("1.7rc2", "1.7.0-rc2"),
        ("1.2-5", "1.2.0-5"),
        ("1.0-", "1.0.0--"),
        ("1.10.0-rc1+build.5", "1.10.0-rc1+build.5"),
        ("9223372036854775807.0", "9223372036854775807.0.0"),
    ] {
        assert_eq!(version(text).to_string(), shown);
        assert_eq!(version(shown).to_string(), shown, "it reads back");
    }
}

#[test]
fn what_is_no_version_is_refused() {
    for text in [
        "",
        "v",
        "x",
        "1.",
        ".1",
        "1..2",
        "1.x",
        "1.2.3-",
        "1.2.3-a..b",
        "1.2.3-a.",
        "1.2.3+",
        "1.2.3+a b",
        "1 2",
        " 1.2",
        "-1",
        "+1",
        "1.2.3/../x",
        "9223372036854775808",
        "1.2.3-é",
        "vv1",
        &"1.".repeat(80),
    ] {
        // `1.2.3-` is legal for go-version: the dash is the prerelease.
        assert_eq!(text.parse::<Version>().is_ok(), text == "1.2.3-", "{text}");
    }
}

#[test]
fn versions_are_ordered_as_go_version_orders_them() {
    for (smaller, larger) in [
        ("1.9.0", "1.10.0"),
        ("1.10.0-rc1", "1.10.0"),
        ("1.10.0-alpha20240814", "1.10.0-beta1"),
        ("1.0.0-rc10", "1.0.0-rc2"),
        ("1.0.0-alpha", "1.0.0-alpha.1"),
        ("1.0.0-alpha.beta", "1.0.0-alpha"),
        ("1.0.0-alpha.9", "1.0.0-alpha.10"),
        ("1.0.0-1", "1.0.0-a"),
        ("1.2.3", "1.2.3.1"),
    ] {
        assert_eq!(
            version(smaller).compare(&version(larger)),
            Ordering::Less,
            "{smaller} < {larger}"
        );
        assert_eq!(version(larger).compare(&version(smaller)), Ordering::Greater);
    }
    for (one, other) in
        [("1.5", "1.5.0"), ("1.5.0+a", "1.5.0+b"), ("1.2.3.0-rc1", "1.2.3"), ("1.2.3.0", "1.2.3")]
    {
        assert!(version(one) == version(other), "{one} = {other}");
    }
}

#[test]
fn constraints_mean_what_terraform_means() {
    for (constraint, text, expected) in [
        ("1.5", "1.5.0", true),
        ("=1.5", "1.5.1", false),
        (" >= 1.5 ,\n< 2.0.0\t", "1.15.3", true),
        (">= 1.5, < 2", "2.0.0", false),
        ("~> 1.2", "1.9.9", true),
        ("~> 1.2", "2.0.0", false),
        ("~> 1.2.3", "1.2.9", true),
        ("~> 1.2.3", "1.3.0", false),
        ("~> 1", "9.0.0", true),
        ("~> 1.2.3.4", "1.2.3.9", true),
        ("~> 1.2.3.0", "1.2.3", false),
        ("~> 1.6.0-alpha", "1.6.0-beta1", true),
        ("~> 1.6.0-alpha", "1.6.0", false),
        (">= 1.6.0-alpha", "1.6.0", true),
        (">= 1.6.0-alpha", "1.7.0-alpha", false),
        (">= 1.10", "1.10.0-rc1", false),
        ("> 1.10", "1.11.0-rc1", false),
        ("= 1.10.0-rc1", "1.10.0-rc1", true),
        ("!= 1.5.0", "1.6.0", true),
        ("!= 1.5.0", "1.5.0", false),
        ("!= 1.5.0", "1.6.0-alpha1", false),
        ("!= 1.5.0, != 1.5.1", "1.6.0-alpha1", false),
        ("!= 1.5.0, >= 1.6.0-alpha1", "1.6.0-alpha1", true),
    ] {
        assert_eq!(allows(constraint, text), expected, "{constraint} and {text}");
    }
}

#[test]
fn what_is_no_constraint_is_refused() {
    for text in [
        "",
        ",",
        ">= 1,",
        "^1.2",
        "~1.2",
        "== 1.2",
        "1.x",
        ">= 1 || < 2",
        ">= 1.0 < 2",
        "> > 1",
        ">=",
        "~>",
    ] {
        text.parse::<Constraint>().unwrap_err();
    }
    let error = "^1.2\n".parse::<Constraint>().unwrap_err().to_string();
    insta::assert_snapshot!(error, @"`^1.2` is not a valid version constraint (`>= 1.5, < 2`: = != > >= < <= ~> and commas)");
    let huge = ">=1,".repeat(100_000);
    assert!(huge.parse::<Constraint>().unwrap_err().to_string().len() < 300);
}

#[test]
fn an_empty_constraint_allows_every_stable_version() {
    assert!(Constraint::default().allows(&version("1.0.0")));
    assert!(!Constraint::default().allows(&version("1.0.0-rc1")));
}

#[test]
fn a_preview_without_a_number_is_lower_than_everything_and_no_constraint() {
    for name in ["alpha2025022701", "alpha-2025031901", "beta-1"] {
        let preview = version(name);
        assert_eq!(preview.to_string(), name);
        assert!(preview.is_bare_name() && preview.is_prerelease() && preview.is_exact());
        assert_eq!(preview.compare(&version("0.0.1-alpha")), Ordering::Less);
        assert!(preview == version(name) && preview != version("alpha-7"));
        assert!(!allows(">= 0", name) && !allows("!= 1", name) && !allows("< 1", name));
        name.parse::<Constraint>().unwrap_err();
        format!("= {name}").parse::<Constraint>().unwrap_err();
    }
    for text in ["alpha", "alpha-", "alpha--1", "gamma1", "alpha1x", "alpha-1.2", "valpha1"] {
        text.parse::<Version>().unwrap_err();
    }
}

#[test]
fn a_refusal_names_the_item_and_its_place() {
    let mut constraint = ">= 1.5".parse::<Constraint>().unwrap().found_in("main.tf:2");
    constraint.and("!= 1.6.0".parse().unwrap());
    let refusal = |text: &str| constraint.refusal(&version(text));
    assert_eq!(refusal("1.4.0").as_deref(), Some(">= 1.5 (main.tf:2)"));
    assert_eq!(refusal("1.6.0").as_deref(), Some("!= 1.6.0"));
    assert_eq!(refusal("1.7.0"), None);
    assert_eq!(
        Constraint::default().refusal(&version("1.7.0-rc1")).as_deref(),
        Some("a prerelease")
    );
}

/// The rules of `versions.md` 1.3 (and 8.1) once more, as far from the code as can be: over plain
/// vectors and texts, one question at a time.
mod model {
    pub(super) type Parsed = (Vec<i64>, usize, String);

    pub(super) fn parse(text: &str) -> Parsed {
        let text = text.trim_start_matches('v');
        let text = text.split('+').next().unwrap();
        let (numbers, pre) = match text.find('-') {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, ""),
        };
        let mut segments: Vec<i64> = numbers.split('.').map(|n| n.parse().unwrap()).collect();
        let written = segments.len();
        while segments.len() < 3 {
            segments.push(0);
        }
        (segments, written, pre.to_owned())
    }

    fn padded(segments: &[i64]) -> Vec<i64> {
        let mut segments = segments.to_vec();
        segments.resize(10, 0);
        segments
    }

    fn pre_less(a: &str, b: &str) -> bool {
        let (a, b): (Vec<&str>, Vec<&str>) = (a.split('.').collect(), b.split('.').collect());
        for index in 0..a.len().max(b.len()) {
            let number =
                |parts: &[&str]| parts.get(index).and_then(|part| part.parse::<i64>().ok());
            let (x, y) = (a.get(index), b.get(index));
            if x == y {
                continue;
            }
            return match (x, y, number(&a), number(&b)) {
                (None, _, _, number) => number.is_some(),
                (_, None, number, _) => number.is_none(),
                (_, _, Some(x), Some(y)) => x < y,
                (_, _, Some(_), None) => true,
                (_, _, None, Some(_)) => false,
                (Some(x), Some(y), None, None) => x.as_bytes() < y.as_bytes(),
            };
        }
        false
    }

    pub(super) fn less(a: &Parsed, b: &Parsed) -> bool {
        let (x, y) = (padded(&a.0), padded(&b.0));
        if x != y {
            return x < y;
        }
        if a.0.len() != b.0.len() {
            return false;
        }
        match (a.2.as_str(), b.2.as_str()) {
            ("", _) => false,
            (_, "") => true,
            (x, y) => pre_less(x, y),
        }
    }

    pub(super) fn allows(items: &[(&str, String)], text: &str) -> bool {
        let v = parse(text);
        let only_unequal = items.iter().all(|(operator, _)| *operator == "!=");
        if only_unequal && !v.2.is_empty() {
            return false;
        }
        items.iter().all(|(operator, bound)| {
            let c = parse(bound);
            let (below, above) = (less(&v, &c), less(&c, &v));
            let gate = v.2.is_empty() || (!c.2.is_empty() && v.0 == c.0);
            match *operator {
                "" | "=" => !below && !above,
                "!=" => below || above,
                ">" => gate && above,
                ">=" => gate && !below,
                "<" => gate && below,
                "<=" => gate && !above,
                "~>" => {
                    let upper = &padded(&c.0)[..c.1 - 1];
                    let both = c.2.is_empty() || !v.2.is_empty();
                    gate && both
                        && !below
                        && v.0.len() >= c.0.len()
                        && padded(&v.0).starts_with(upper)
                }
                other => unreachable!("{other}"),
            }
        })
    }
}

/// Versions as vendors publish them: stable ones, previews, and forms with more or fewer numbers. Where the lists of
/// all published versions are available, those too.
fn published() -> Vec<String> {
    let mut all = Vec::new();
    for minor in 0..16 {
        for patch in [0, 1, 7, 12] {
            all.extend([format!("0.{minor}.{patch}"), format!("1.{minor}.{patch}")]);
        }
        for preview in ["alpha1", "alpha20231025", "beta2", "rc1"] {
            all.push(format!("1.{minor}.0-{preview}"));
        }
    }
    let others = ["2.0.0", "1.2.3.4", "1.2.3.4-rc1", "0.12.0-alpha4", "1.0.0-a.1"];
    all.extend(others.map(str::to_owned));
    if let Some(lists) = support::shared_data("versions") {
        for name in ["terraform", "opentofu", "terragrunt"] {
            let text = std::fs::read_to_string(lists.join(format!("{name}_releases.txt"))).unwrap();
            // Terragrunt's previews have no number, so go-version has no version for them.
            let is_number = |name: &&str| name.starts_with(|first: char| first.is_ascii_digit());
            all.extend(text.split_whitespace().filter(is_number).map(str::to_owned));
        }
    }
    all
}

/// Bounds like those that are published, and near misses of them.
fn bound(published: Vec<String>) -> impl Strategy<Value = String> {
    let number = 0..20_i64;
    let made = (
        proptest::collection::vec(number, 1..5),
        prop::option::of("(alpha|beta|rc)[.]?[0-9]{0,2}"),
    );
    let made = made.prop_map(|(segments, pre)| {
        let segments: Vec<_> = segments.iter().map(ToString::to_string).collect();
        let pre = pre.map(|pre| format!("-{}", pre.trim_end_matches('.')));
        format!("{}{}", segments.join("."), pre.unwrap_or_default())
    });
    prop_oneof![prop::sample::select(published), made]
}

proptest! {
    #[test]
    fn the_check_agrees_with_a_model_of_the_rules_on_every_published_version(
        items in proptest::collection::vec(
            (prop::sample::select(vec!["", "=", "!=", ">", ">=", "<", "<=", "~>"]), bound(published())),
            1..4,
        ),
    ) {
        let text: Vec<_> = items.iter().map(|(operator, bound)| format!("{operator} {bound}")).collect();
        let constraint: Constraint = text.join(",").parse().unwrap();
        for candidate in published() {
            let (ours, model) = (constraint.allows(&version(&candidate)), model::allows(&items, &candidate));
            prop_assert_eq!(ours, model, "{} and {}", constraint, candidate);
        }
    }

    #[test]
    fn the_order_agrees_with_the_model(a in bound(published()), b in bound(published())) {
        let ours = version(&a).compare(&version(&b));
        let (a, b) = (model::parse(&a), model::parse(&b));
        prop_assert_eq!(ours == Ordering::Less, model::less(&a, &b));
        prop_assert_eq!(ours == Ordering::Greater, model::less(&b, &a));
    }

    #[test]
    fn no_text_makes_the_parsers_fall_over(text in "[ v0-9.~+<>=!,a-z-]{0,40}") {
        if let Ok(version) = text.parse::<Version>() {
            let again: Version = version.to_string().parse().unwrap();
            prop_assert!(again == version);
        }
        drop(text.parse::<Constraint>().map(|constraint| constraint.to_string()));
    }
}

#[test]
fn a_version_is_never_shown_so_long_that_it_could_not_be_read_back() {
    for rest in [120, 121, 122, 123, 126, 127] {
        let text = format!("1-{}", "N".repeat(rest - 1));
        let shown = text.parse::<Version>().map(|version| version.to_string());
        assert_eq!(shown.is_ok(), text.len() + ".0.0".len() <= 128, "{text}");
        assert!(shown.iter().all(|shown| shown.parse::<Version>().is_ok()), "{shown:?}");
    }
}

#[test]
fn constraints_contradict_each_other_where_no_version_can_satisfy_both() {
    for (text, pair) in [
        (">= 1.9, < 1.5", Some([">= 1.9", "< 1.5"])),
        ("~> 1.5.0, >= 1.9", Some(["~> 1.5.0", ">= 1.9"])),
        ("~> 1.2, 2.0.0", Some(["~> 1.2", "2.0.0"])),
        ("= 1.5.0, != 1.5", Some(["= 1.5.0", "!= 1.5"])),
        ("> 1.5.0, <= 1.5.0", Some(["> 1.5.0", "<= 1.5.0"])),
        ("= 1.5.0, 1.5.1", Some(["= 1.5.0", "1.5.1"])),
        (">= 1.0, < 3, > 4", Some(["< 3", "> 4"])),
        (">= 1.5.0, <= 1.5.0", None),
        // A version of four segments would do.
        ("> 1.5.0, < 1.5.1", None),
        ("~> 1, >= 7", None),
        ("~> 1.2.3, ~> 1.2", None),
        (">= 2.0.0-beta1, < 2.0.0", None),
        ("", None),
    ] {
        let constraint = text.parse::<Constraint>().unwrap_or_default();
        let pair = pair.map(|pair| pair.map(str::to_owned));
        assert_eq!(constraint.contradiction(), pair, "{text}");
    }
}

#[test]
fn what_contradicts_allows_no_version() {
    let numbers = ["1", "1.5", "1.5.0", "1.5.1", "1.6", "2.0", "1.5.0.1"];
    let items = ["=", "!=", ">", ">=", "<", "<=", "~>"]
        .into_iter()
        .flat_map(|operator| numbers.into_iter().map(move |number| format!("{operator} {number}")));
    let items = items.collect::<Vec<_>>();
    let versions = ["0.9.0", "1.0.0", "1.4.9", "1.5.0-rc1", "1.5.0", "1.5.0.1", "1.5.0.2", "1.5.1"]
        .into_iter()
        .chain([
            "1.5.2",
            "1.5.9",
            "1.6.0-beta1",
            "1.6.0",
            "1.9.0",
            "2.0.0-rc1",
            "2.0.0",
            "2.1.0",
            "9.0.0",
        ]);
    let versions = versions.map(version).collect::<Vec<_>>();
    for one in &items {
        for two in &items {
            let both = format!("{one}, {two}").parse::<Constraint>().unwrap();
            if both.contradiction().is_some() {
                let allowed = versions.iter().find(|version| both.allows(version));
                assert!(allowed.is_none(), "{both}: {allowed:?}");
            }
        }
    }
}
