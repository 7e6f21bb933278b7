//! Real outputs, each with what is expected of it (`tests/fixtures/diagnostics/*.yaml`).
//!
//! The outputs of the folder `held-out` were collected after the rules were written, and their expectations were written
//! before the rules were tried on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

use crate::tool::diagnosis::class::Class;
use crate::tool::diagnosis::properties;
use crate::tool::diagnosis::rules::Rules;
use crate::tool::diagnosis::verdict::Verdict;

/// An output, and what is expected of its first error of the class.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    /// Where it was seen.
    source: String,
    provider: String,
    class: Class,
    #[serde(default)]
    address: Option<String>,
    #[serde(default)]
    import_id: Option<String>,
    text: String,
}

fn samples(folder: &str) -> Vec<Sample> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/diagnostics").join(folder);
    let mut files =
        std::fs::read_dir(root).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
        .iter()
        .flat_map(|file| {
            let text = std::fs::read_to_string(file).unwrap();
            let samples: Vec<Sample> = serde_saphyr::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            samples
        })
        .collect()
}

/// How many samples of a class were classified so, and what the others were taken for.
fn report(samples: &[Sample], rules: &Rules) -> (String, usize) {
    let mut rows = BTreeMap::<Class, (usize, Vec<String>)>::new();
    let mut right = 0;
    let mut details = String::new();
    for sample in samples {
        let verdict = Verdict::read(sample.text.as_bytes(), rules).unwrap();
        let row = rows.entry(sample.class).or_default();
        let block = verdict.blocks.iter().find(|block| block.class == verdict.class);
        let (address, id) =
            block.map_or((None, None), |block| (block.address.clone(), block.import_id.clone()));
        if verdict.class == sample.class {
            row.0 += 1;
            right += 1;
        } else {
            row.1.push(verdict.class.name().to_owned());
            let rule =
                block.and_then(|block| block.rule).map_or("no rule", |rule| rule.id.as_str());
            _ = writeln!(
                details,
                "{}: {} expected, {} found ({rule})",
                sample.source, sample.class, verdict.class
            );
        }
        if address != sample.address {
            _ = writeln!(
                details,
                "{}: address {:?} expected, {address:?} found",
                sample.source, sample.address
            );
        }
        if id != sample.import_id {
            _ = writeln!(
                details,
                "{}: import ID {:?} expected, {id:?} found",
                sample.source, sample.import_id
            );
        }
    }
    let mut table = String::from("class           right wrong\n");
    for (class, (right, wrong)) in rows {
        _ = writeln!(
            table,
            "{:<15} {right:>5} {:>5}  {}",
            class.name(),
            wrong.len(),
            wrong.join(" ")
        );
    }
    (format!("{table}{details}"), right)
}

/// As the fuzz target `runner_diagnostics` does with any bytes.
#[test]
fn cut_and_damaged_outputs_are_classified_like_any_other() {
    const DAMAGE: [&[u8]; 6] =
        [b"\0", b"\x1b[31m", b"\xff\xfe", b"\r", b"\"\\", "\u{85}\u{202e}".as_bytes()];
    let all = samples("known").into_iter().chain(samples("held-out"));
    for (sample, damage) in all.step_by(2).zip(DAMAGE.iter().cycle()) {
        let text = sample.text.as_bytes();
        properties::check(&text[..text.len() / 2]);
        properties::check(&text.chunks(11).collect::<Vec<_>>().join(*damage));
    }
}

#[test]
fn the_corpus_is_large_and_of_many_providers() {
    let samples = samples("known").into_iter().chain(samples("held-out")).collect::<Vec<_>>();
    assert!(samples.len() >= 120, "{}", samples.len());
    let providers = samples.iter().map(|sample| sample.provider.as_str()).collect::<BTreeSet<_>>();
    assert!(providers.len() >= 12, "{providers:?}");
    let sources = samples.iter().map(|sample| sample.source.as_str()).collect::<BTreeSet<_>>();
    assert_eq!(sources.len(), samples.len(), "a source is there twice");
    let rules = Rules::load(None).unwrap();
    let of_rules = rules.iter().filter_map(|rule| rule.source.as_deref());
    let both = of_rules.filter(|source| sources.contains(source)).collect::<Vec<_>>();
    assert!(both.is_empty(), "rules were made of them: {both:?}");
}

/// The report: `cargo test -p runner --lib corpus -- --nocapture`. The numbers are those that were reached; a change of the
/// rules must not lower them.
#[test]
fn real_outputs_are_classified() {
    let rules = Rules::load(None).unwrap();
    for (folder, least) in [("known", 64), ("held-out", 69)] {
        let samples = samples(folder);
        let (report, right) = report(&samples, &rules);
        println!("{folder}: {right} of {} right\n{report}", samples.len());
        assert!(right >= least, "{folder}: {right} of {}\n{report}", samples.len());
    }
}

/// A retry of such a run would repeat what cannot succeed, or could do harm.
#[test]
fn no_real_output_of_another_class_is_retried() {
    let rules = Rules::load(None).unwrap();
    let mut retried = Vec::new();
    for sample in samples("known").into_iter().chain(samples("held-out")) {
        let verdict = Verdict::read(sample.text.as_bytes(), &rules).unwrap();
        let is_wrong = verdict.is_retryable || verdict.class == Class::Transient;
        if sample.class != Class::Transient && sample.class != Class::Unknown && is_wrong {
            retried.push(sample.source);
        }
    }
    assert!(retried.is_empty(), "{retried:#?}");
}
