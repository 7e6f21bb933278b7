//! The result of `runner classify`, as text and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::process::text::{self, clean, one_line};
use crate::tool::diagnosis::class::Class;
use crate::tool::diagnosis::import_id::import_block;
use crate::tool::diagnosis::verdict::{Block, Verdict};

/// Characters of a matched text that are shown.
const MAX_MATCHED: usize = 200;

const CUT: &str = "the text of an error is longer than what is kept: the run is not retried";

/// `classify --json`
#[derive(Serialize)]
struct Document<'a> {
    class: Class,
    retryable: bool,
    blocks: Vec<BlockDocument<'a>>,
    /// Errors that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    unlisted: u64,
}

#[derive(Serialize)]
struct BlockDocument<'a> {
    class: Class,
    address: Option<&'a str>,
    import_id: Option<&'a str>,
    summary: &'a str,
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explain: Option<Why<'a>>,
}

/// Why a rule decided (`--explain`).
#[derive(Serialize)]
struct Why<'a> {
    matched: &'a str,
    explanation: Option<&'a str>,
    source: Option<&'a str>,
    /// Whether the rule comes from `--rules`.
    users: bool,
    /// Rules that also match.
    others: Vec<&'a str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The result as JSON.
pub(super) fn json(verdict: &Verdict<'_>, explain: bool) -> serde_json::Result<String> {
    let blocks = verdict.blocks.iter().map(|block| BlockDocument {
        class: block.class,
        address: block.address.as_deref(),
        import_id: block.import_id.as_deref(),
        summary: &block.error.summary,
        rule: block.rule.map(|rule| rule.id.as_str()),
        detail: &block.error.detail,
        file: block.error.file.as_deref(),
        line: block.error.line,
        unit: block.error.unit.as_deref(),
        explain: block.rule.filter(|_| explain).map(|rule| Why {
            matched: block.matched.as_deref().unwrap_or_default(),
            explanation: rule.explanation.as_deref(),
            source: rule.source.as_deref(),
            users: rule.is_users,
            others: block.others.iter().map(|rule| rule.id.as_str()).collect(),
        }),
    });
    text::json(&Document {
        class: verdict.class,
        retryable: verdict.is_retryable,
        blocks: blocks.collect(),
        unlisted: verdict.unlisted.values().sum(),
    })
}

/// The result as text: the class alone on the first line, then one line for each error.
pub(super) fn text(verdict: &Verdict<'_>, explain: bool) -> String {
    let mut out = format!("{}\n", verdict.class);
    for block in &verdict.blocks {
        line(&mut out, block);
        if explain {
            why(&mut out, block);
        }
    }
    for (class, count) in &verdict.unlisted {
        _ = writeln!(out, "{class}: and {count} more that are not listed");
    }
    if explain {
        _ = writeln!(out, "{}", together(verdict));
    }
    out
}

fn line(out: &mut String, block: &Block<'_>) {
    let rule = block.rule.map_or("no rule", |rule| rule.id.as_str());
    _ = write!(out, "{} ({rule})", block.class);
    if let Some(unit) = &block.error.unit {
        _ = write!(out, " [{}]", one_line(unit));
    }
    if let Some(address) = &block.address {
        _ = write!(out, " {}", clean(address));
    }
    _ = write!(out, ": {}", one_line(&block.error.summary));
    if let Some(id) = &block.import_id {
        _ = write!(out, " (import ID {id})");
    }
    out.push('\n');
}

/// Why this rule decided, indented.
fn why(out: &mut String, block: &Block<'_>) {
    if let Some(rule) = block.rule {
        let origin = if rule.is_users { " of --rules" } else { "" };
        let matched = one_line(block.matched.as_deref().unwrap_or_default());
        let cut = if matched.chars().count() > MAX_MATCHED { "..." } else { "" };
        let matched = matched.chars().take(MAX_MATCHED).collect::<String>();
        _ = writeln!(
            out,
            "    rule {}{origin}, priority {}: \"{matched}{cut}\"",
            rule.id, rule.priority
        );
        if let Some(explanation) = &rule.explanation {
            _ = writeln!(out, "    {}", one_line(explanation));
        }
        if let Some(source) = &rule.source {
            _ = writeln!(out, "    source: {}", one_line(source));
        }
    } else {
        out.push_str("    no rule matches this text\n");
    }
    for other in &block.others {
        _ = writeln!(
            out,
            "    also: rule {}, priority {} ({})",
            other.id, other.priority, other.class
        );
    }
    if let (Class::AlreadyExists, Some(address)) = (block.class, &block.address) {
        let import = import_block(&clean(address), block.import_id.as_deref());
        import.lines().for_each(|line| _ = writeln!(out, "    {line}"));
    }
}

/// Why the run is of its class, and may be retried or not.
fn together(verdict: &Verdict<'_>) -> String {
    let (count, stopping) = (verdict.count(), verdict.stopping());
    match count {
        0 => {
            return "no error of terraform, tofu or terragrunt was found; the run is not retried"
                .to_owned();
        }
        1 => {}
        _ => {
            let order =
                "lock, config, quota, already_exists, auth, interrupted, transient, unknown";
            let class = verdict.class;
            let retry = match stopping {
                0 if verdict.is_cut => CUT.to_owned(),
                0 => "all of them are transient: the run may be retried".to_owned(),
                _ => format!("{stopping} of them are not transient: the run is not retried"),
            };
            return format!("{count} errors; {class} comes first of {order}; {retry}");
        }
    }
    match stopping {
        0 if verdict.is_cut => CUT.to_owned(),
        0 => "the error is transient: the run may be retried".to_owned(),
        _ => "the error is not transient: the run is not retried".to_owned(),
    }
}
