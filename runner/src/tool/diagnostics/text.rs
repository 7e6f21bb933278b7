//! The texts inside of an error: places, word-wrapped paragraphs, and the lists of terraform 0.11.

use std::sync::LazyLock;

use regex::Regex;

use crate::process::redact::is_masked;
use crate::tool::diagnostics::diagnostic::Diagnostic;

/// The tools wrap at 78 columns, or at 76 in a box. A line ends early only where the next word would
/// not have fitted, or where the message itself has a new line.
const WIDTH: usize = 76;

/// A line between the headline and the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Location {
    Address(String),
    File {
        file: String,
        line: Option<u32>,
        block: Option<String>,
    },
    /// A line of the configuration, or a value in it.
    Snippet,
}

static FILE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^ {1,4}on (.+?)(?: line (\d+))?(?:, in (.+?))?:?$"));

static SNIPPET: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^ +(?:\d+:|├─|│|\(source code not available\))"));

/// `./terragrunt.hcl:1,21-26: Unsupported attribute; This object does not ...`
static SOURCE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^([^\s:][^:]*):(\d+),\d+(?:-\d+(?:,\d+)?)?: ([^;]+)(?:; (.*))?$"));

/// `* aws_instance.web: the text`, of terraform 0.11.
static OLD_ITEM: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^\* (?:([a-z][\w.\[\]-]*\.[\w.\[\]-]+): )?(.+)$"));

/// How terraform 0.11 and older ones begin an error that is not a block.
static OLD_ERROR: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^(?:Error (?:applying|running) plan:|Error refreshing state:|Error (?:loading|downloading|parsing|reading|configuring|refreshing|initializing|inspecting|installing|getting|asking) |Failed to (?:load|read|get|lock|unlock|save|refresh) )",
    )
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is valid")
}

/// What a line says about the place of an error, if anything.
pub(super) fn location(line: &str) -> Option<Location> {
    if !line.starts_with(' ') {
        return None;
    }
    if SNIPPET.is_match(line) {
        return Some(Location::Snippet);
    }
    // An index can contain commas.
    if let Some(address) = line.strip_prefix("  with ") {
        return Some(Location::Address(address.strip_suffix(',')?.to_owned()));
    }
    let found = FILE.captures(line)?;
    let text = |group| found.get(group).map(|text| text.as_str().to_owned());
    let line = found.get(2).and_then(|line| line.as_str().parse().ok());
    Some(Location::File { file: text(1)?, line, block: text(3) })
}

/// An error of HCL's on one line.
pub(super) fn source_location(text: &str) -> Option<Diagnostic> {
    let found = SOURCE.captures(text)?;
    Some(Diagnostic {
        summary: found[3].to_owned(),
        detail: found.get(4).map_or("", |detail| detail.as_str()).to_owned(),
        file: Some(found[1].to_owned()),
        line: found[2].parse().ok(),
        ..Diagnostic::default()
    })
}

/// Whether terraform 0.11 begins an error so.
pub(super) fn is_old_error(line: &str) -> bool {
    OLD_ERROR.is_match(line)
}

/// The errors in a list of terraform 0.11; an item that only announces others is none. Its address is complete, that of
/// the items after it may lack the module and the index.
pub(super) fn old_errors(detail: &[String]) -> Vec<Diagnostic> {
    let paragraphs = detail.split(String::is_empty);
    let items = paragraphs.flat_map(|lines| lines.chunk_by(|_, next| !next.starts_with("* ")));
    let (mut errors, mut outer) = (Vec::new(), None);
    for lines in items {
        let text = unwrapped(lines).replace('\n', " ");
        let Some(found) = OLD_ITEM.captures(&text) else { continue };
        let summary = found[2].to_owned();
        let address = found.get(1).map(|address| address.as_str().to_owned());
        if summary.ends_with("occurred:") {
            outer = address.or(outer);
            continue;
        }
        let address = match (&outer, address) {
            (Some(outer), Some(inner)) if !is_part(&inner, outer) => Some(inner),
            (Some(outer), _) => Some(outer.clone()),
            (None, inner) => inner,
        };
        errors.push(Diagnostic { summary, address, ..Diagnostic::default() });
    }
    errors
}

/// Whether terraform 0.11 may have written the inner address for the outer one: `aws_a.b.0` for `module.m.aws_a.b[0]`.
fn is_part(inner: &str, outer: &str) -> bool {
    let dotted = |address: &str| address.replace('[', ".").replace(']', "");
    let (inner, outer) = (dotted(inner), dotted(outer));
    outer == inner
        || outer.ends_with(&format!(".{inner}"))
        || outer.contains(&format!(".{inner}."))
        || outer.starts_with(&format!("{inner}."))
}

/// The text of a line of a box. Its bar may have been decoded with the wrong character set.
pub(super) fn boxed(line: &str) -> Option<&str> {
    let text =
        ["\u{2502}", "\u{e2}\u{201d}\u{201a}"].iter().find_map(|bar| line.strip_prefix(bar))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

/// Paragraphs, each on one line.
pub(super) fn unwrapped(lines: &[String]) -> String {
    let mut text = String::new();
    // Columns of the line before, where its paragraph can go on.
    let mut before = None;
    for line in lines {
        if line.is_empty() {
            before = None;
            continue;
        }
        let columns = line.chars().count();
        let first_word = line.split(' ').next().unwrap_or_default().chars().count();
        let is_wrapped = before.is_some_and(|before| before + 1 + first_word > WIDTH);
        if !text.is_empty() {
            text.push(if is_wrapped && !line.starts_with(' ') { ' ' } else { '\n' });
        }
        text.push_str(line.trim_end());
        // A secret was longer than its mask.
        before = Some(if is_masked(line) { WIDTH } else { columns });
    }
    text
}

/// At most this many bytes of the text.
pub(super) fn clipped(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}
