//! Lines of JSON: those that the tools write with `-json` and `-json-into=FILE`, and those of terragrunt's log.

use serde::Deserialize;

use crate::tool::diagnostics::diagnostic::Diagnostic;
use crate::tool::diagnostics::line::Level;
use crate::tool::diagnostics::text::clipped;

/// What a line of JSON says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JsonLine {
    /// An error.
    Error(Box<Diagnostic>),
    /// A line of terragrunt's log, whose message may have several lines.
    Terragrunt { unit: String, level: Level, text: String },
    /// Any other message of the tool.
    Other,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "@level")]
    tool_level: Option<String>,
    diagnostic: Option<Reported>,
    level: Option<String>,
    msg: Option<String>,
    prefix: Option<String>,
}

/// A diagnostic, as the tools write it.
#[derive(Deserialize)]
struct Reported {
    severity: String,
    summary: String,
    #[serde(default)]
    detail: String,
    address: Option<String>,
    range: Option<Range>,
    snippet: Option<Snippet>,
}

#[derive(Deserialize)]
struct Range {
    filename: String,
    start: Option<Position>,
}

#[derive(Deserialize)]
struct Position {
    line: u32,
}

#[derive(Deserialize)]
struct Snippet {
    context: Option<String>,
}

/// The meaning of a line; `None` if it is not such JSON. Of the texts at most `limit` bytes are kept.
pub(super) fn parse(line: &str, limit: usize) -> Option<JsonLine> {
    let is_candidate = line.starts_with("{\"")
        && ["\"@level\"", "\"msg\""].iter().any(|field| line.contains(field));
    if !is_candidate {
        return None;
    }
    let Ok(entry) = serde_json::from_str::<Entry>(line) else { return of_cut_line(line, limit) };
    if let Some(Reported { severity, summary, detail, address, range, snippet }) = entry.diagnostic
    {
        if severity != "error" {
            return Some(JsonLine::Other);
        }
        let line = range.as_ref().and_then(|range| Some(range.start.as_ref()?.line));
        return Some(JsonLine::Error(Box::new(Diagnostic {
            summary: in_lines(&summary, limit).replace('\n', " "),
            detail: in_lines(&detail, limit),
            file: range.map(|range| range.filename),
            line,
            block: snippet.and_then(|snippet| snippet.context),
            address: address.filter(|address| !address.is_empty()),
            unit: None,
            is_cut: summary.len().max(detail.len()) > limit,
        })));
    }
    if entry.tool_level.is_some() {
        return Some(JsonLine::Other);
    }
    let level = match entry.level?.as_str() {
        "stdout" | "stderr" => Level::Tool,
        "error" | "fatal" => Level::Error,
        _ => Level::Other,
    };
    let unit = entry.prefix.filter(|unit| unit != ".").unwrap_or_default();
    Some(JsonLine::Terragrunt { unit, level, text: entry.msg? })
}

/// An error whose line is so long that its end was not read.
fn of_cut_line(line: &str, limit: usize) -> Option<JsonLine> {
    let (_, text) = line.split_once("\"@message\":\"Error: ")?;
    if !line.starts_with("{\"@level\":\"error\"") {
        return None;
    }
    let end = text.find("\",\"").unwrap_or(text.len()).min(limit);
    let text = clipped(text, end).trim_end_matches('\\');
    let summary = serde_json::from_str(&format!("\"{text}\"")).unwrap_or_else(|_| text.to_owned());
    Some(JsonLine::Error(Box::new(Diagnostic { summary, is_cut: true, ..Diagnostic::default() })))
}

/// The lines of a text that are not empty.
fn in_lines(text: &str, limit: usize) -> String {
    let lines = clipped(text, limit).lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of terraform 1.11.4.
    #[test]
    fn an_error_has_its_address_and_its_place() {
        let line = r#"{"@level":"error","@message":"Error: local-exec provisioner error","@module":"terraform.ui","@timestamp":"2026-11-23T07:00:00.000000Z","diagnostic":{"severity":"error","summary":"local-exec provisioner error","detail":"Error running command 'exit 3': exit status 3.\n\nOutput: boo\n","address":"terraform_data.y[\"a, b\"]","range":{"filename":"main.tf","start":{"line":2,"column":30,"byte":58},"end":{"line":2,"column":31,"byte":59}},"snippet":{"context":"resource \"terraform_data\" \"y\"","code":"x","start_line":2,"highlight_start_offset":0,"highlight_end_offset":1,"values":[]}},"type":"diagnostic"}"#;
        let Some(JsonLine::Error(error)) = parse(line, 100) else {
            panic!("{:?}", parse(line, 100))
        };
        assert_eq!(
            error.to_string(),
            "local-exec provisioner error (main.tf:2, in terraform_data.y[\"a, b\"]): Error running command 'exit 3': \
             exit status 3."
        );
        assert_eq!(error.detail.lines().count(), 2);
        let cut = &line[..120];
        let Some(JsonLine::Error(error)) = parse(cut, 100) else { panic!("{:?}", parse(cut, 100)) };
        assert_eq!(error.summary, "local-exec provisioner error");
        let warning = line.replace("\"severity\":\"error\"", "\"severity\":\"warning\"");
        assert_eq!(parse(&warning, 100), Some(JsonLine::Other));
    }

    #[test]
    fn other_json_is_text() {
        for line in ["{", "{}", "{\"a\": \"@level\"", r#"{"Code": "AccessDenied", "msg": 1}"#] {
            assert_eq!(parse(line, 100), None, "{line}");
        }
        let line = r#"{"level":"stderr","msg":"│ Error: x\n│ y","prefix":"live/vpc","time":"t"}"#;
        let text = "│ Error: x\n│ y".to_owned();
        let expected = JsonLine::Terragrunt { unit: "live/vpc".into(), level: Level::Tool, text };
        assert_eq!(parse(line, 100), Some(expected));
    }
}
