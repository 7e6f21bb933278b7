//! What an apply does to each resource, by the lines that the tool prints while it works.
//!
//! Only a line that begins with an address is the tool's own. What a provisioner prints follows the name of the provisioner,
//! and after the first error, a warning at the end, or the end of the apply any text may follow: an error quotes what a program
//! has printed.

use serde::{Deserialize, Serialize};

use crate::tool::diagnostics::line::{Level, Line, plain};

/// Longer addresses and IDs are not read.
const MAX_ADDRESS: usize = 4 << 10;
const MAX_ID: usize = 2 << 10;
/// What the tool, and the log, put where a part of an ID is left out.
const SHORTENED: [&str; 2] = ["...", "***"];

/// What is done to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Create,
    Update,
    Delete,
    Import,
    Read,
    Open,
    Renew,
    Close,
}

impl Action {
    /// Whether it changes a resource, or the state.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Delete | Self::Import)
    }

    /// Its name in documents and messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Import => "import",
            Self::Read => "read",
            Self::Open => "open",
            Self::Renew => "renew",
            Self::Close => "close",
        }
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Started,
    /// The tool repeats every 10 s that it still works.
    Running,
    Completed,
}

/// One line of progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The terragrunt unit; empty where none is named.
    pub(crate) unit: String,
    pub(crate) address: String,
    /// The key of an object that a replacement has left.
    pub(crate) deposed: Option<String>,
    pub(crate) action: Action,
    pub(crate) phase: Phase,
    /// The ID of the resource, if the line has all of it.
    pub(crate) id: Option<String>,
}

/// Reads the lines of an apply.
#[derive(Debug, Default)]
pub(crate) struct ProgressReader {
    /// Terragrunt may run the tool again after an error.
    may_repeat: bool,
    /// Whether something was changed: warnings come before that, or at the end.
    has_changed: bool,
    has_ended: bool,
}

impl ProgressReader {
    /// A reader of the output of one program.
    pub(crate) fn new(is_terragrunt: bool) -> Self {
        Self { may_repeat: is_terragrunt, has_changed: false, has_ended: false }
    }

    /// Reads the next line.
    pub(crate) fn line(&mut self, raw: &str) -> Option<Progress> {
        if self.has_ended || !may_matter(raw) {
            return None;
        }
        let text = plain(raw.trim_end());
        let line = Line::parse(text.trim_end());
        if matches!(line.level, Some(Level::Debug | Level::Error)) {
            return None;
        }
        if line.text.starts_with('{') {
            return of_json(line.text, line.unit);
        }
        if is_end(line.text, self.has_changed) {
            self.has_ended = !self.may_repeat;
            return None;
        }
        let progress = of_text(line.text, line.unit)?;
        self.has_changed |= progress.action.changes();
        Some(progress)
    }
}

/// Most lines are neither progress nor an end, and are not looked at any further.
fn may_matter(raw: &str) -> bool {
    ["...", " complete", "Error: ", "Warning: ", "\"hook\""].iter().any(|text| raw.contains(text))
}

/// Whether the tool changes nothing after this line.
fn is_end(text: &str, has_changed: bool) -> bool {
    let message = text.strip_prefix("\u{2502} ").unwrap_or(text);
    let ends = ["Error: ", "Apply complete! ", "Destroy complete! "];
    ends.iter().any(|end| message.starts_with(end))
        || has_changed && message.starts_with("Warning: ")
}

/// `ADDRESS: Creating...`
fn of_text(text: &str, unit: &str) -> Option<Progress> {
    let (address, rest) = address(text)?;
    let (deposed, rest) = deposed(rest)?;
    let rest = rest.strip_prefix(": ")?;
    let (action, phase, rest) = VERBS.iter().find_map(|(verb, action, phase)| {
        let rest = rest.strip_prefix(verb)?;
        (rest.is_empty() || rest.starts_with(' ')).then_some((*action, *phase, rest))
    })?;
    let id = if phase == Phase::Running { None } else { id(rest) };
    Some(Progress {
        unit: unit.to_owned(),
        address: address.to_owned(),
        deposed: deposed.map(str::to_owned),
        action,
        phase,
        id,
    })
}

/// What terraform and tofu print after an address.
const VERBS: [(&str, Action, Phase); 27] = [
    ("Creating...", Action::Create, Phase::Started),
    ("Still creating...", Action::Create, Phase::Running),
    ("Creation complete", Action::Create, Phase::Completed),
    ("Modifying...", Action::Update, Phase::Started),
    ("Still modifying...", Action::Update, Phase::Running),
    ("Modifications complete", Action::Update, Phase::Completed),
    ("Destroying...", Action::Delete, Phase::Started),
    ("Still destroying...", Action::Delete, Phase::Running),
    ("Destruction complete", Action::Delete, Phase::Completed),
    ("Importing...", Action::Import, Phase::Started),
    ("Import complete", Action::Import, Phase::Completed),
    ("Reading...", Action::Read, Phase::Started),
    ("Still reading...", Action::Read, Phase::Running),
    ("Read complete", Action::Read, Phase::Completed),
    ("Opening...", Action::Open, Phase::Started),
    ("Still opening...", Action::Open, Phase::Running),
    ("Opening complete", Action::Open, Phase::Completed),
    ("Open complete", Action::Open, Phase::Completed),
    ("Renewing...", Action::Renew, Phase::Started),
    ("Still renewing...", Action::Renew, Phase::Running),
    ("Renewal complete", Action::Renew, Phase::Completed),
    ("Renew complete", Action::Renew, Phase::Completed),
    ("Closing...", Action::Close, Phase::Started),
    ("Still closing...", Action::Close, Phase::Running),
    ("Closing complete", Action::Close, Phase::Completed),
    ("Close complete", Action::Close, Phase::Completed),
    // Terraform 0.11 and older.
    ("Refreshing state...", Action::Read, Phase::Running),
];

/// The address at the beginning of a line: names with dots between them, each perhaps with an index. The text of a key
/// can contain anything, and a name may be masked.
fn address(text: &str) -> Option<(&str, &str)> {
    let (mut at, mut names) = (0, 0);
    loop {
        let name = text[at..].find(|c: char| !(c.is_alphanumeric() || "_-*".contains(c)));
        let name = name.filter(|len| *len > 0)?;
        at += name;
        names += 1;
        if text[at..].starts_with('[') {
            at += index(&text[at..])?;
        }
        if !text[at..].starts_with('.') {
            break;
        }
        at += 1;
    }
    (names > 1 && at <= MAX_ADDRESS).then(|| text.split_at(at))
}

/// Whether this is an address, and nothing but one.
pub(crate) fn is_address(text: &str) -> bool {
    // The parser needs the end of the last name.
    address(&format!("{text}:")).is_some_and(|(found, _)| found == text)
}

/// The length of an index in brackets: a number, or a text in quotes.
fn index(text: &str) -> Option<usize> {
    let inner = &text[1..];
    let Some(quoted) = inner.strip_prefix('"') else {
        let end = inner.find(']')?;
        let is_number = end > 0 && inner[..end].bytes().all(|byte| byte.is_ascii_digit());
        return is_number.then_some(end + 2);
    };
    let mut is_escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return quoted[at + 1..].starts_with(']').then_some(at + 4),
            _ => {}
        }
    }
    None
}

/// ` (deposed object 0a1b2c3d)`, and of older versions ` (deposed #0)`.
fn deposed(text: &str) -> Option<(Option<&str>, &str)> {
    let Some(rest) = text.strip_prefix(" (") else { return Some((None, text)) };
    let (key, rest) = rest.split_once(')')?;
    let key = ["deposed object ", "deposed ", "tainted "]
        .iter()
        .find_map(|what| key.strip_prefix(what))?;
    Some((Some(key), rest))
}

/// The ID at the end of a line: ` [id=i-1]`, and of terraform 0.11 ` (ID: i-1)`.
fn id(rest: &str) -> Option<String> {
    let id = match rest.split_once("[id=") {
        Some((_, id)) => id.strip_suffix(']')?,
        None => rest.split_once("(ID: ")?.1.strip_suffix(')')?,
    };
    whole(id)
}

/// An ID that can be used: the tool shortens long ones, and the log hides secrets.
fn whole(id: &str) -> Option<String> {
    let is_whole =
        !id.is_empty() && id.len() <= MAX_ID && !SHORTENED.iter().any(|mark| id.contains(mark));
    is_whole.then(|| id.to_owned())
}

/// A line of the tool's option `-json`.
#[derive(Deserialize)]
struct JsonLine<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    hook: Hook,
}

#[derive(Deserialize)]
struct Hook {
    resource: Resource,
    action: String,
    #[serde(default)]
    id_key: Option<String>,
    #[serde(default)]
    id_value: Option<String>,
}

#[derive(Deserialize)]
struct Resource {
    addr: String,
}

fn of_json(text: &str, unit: &str) -> Option<Progress> {
    let JsonLine { kind, hook } = serde_json::from_str(text).ok()?;
    let phase = match kind {
        "apply_start" => Phase::Started,
        "apply_progress" => Phase::Running,
        "apply_complete" => Phase::Completed,
        _ => return None,
    };
    let action = match &*hook.action {
        "create" => Action::Create,
        "update" => Action::Update,
        "delete" => Action::Delete,
        "read" => Action::Read,
        _ => return None,
    };
    let id = hook.id_value.filter(|_| hook.id_key.as_deref() == Some("id"));
    Some(Progress {
        unit: unit.to_owned(),
        address: Some(hook.resource.addr).filter(|address| address.len() <= MAX_ADDRESS)?,
        deposed: None,
        action,
        phase,
        id: id.and_then(|id| whole(&id)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<String> {
        let found = ProgressReader::new(false).line(line)?;
        let Progress { unit, address, deposed, action, phase, id } = found;
        let unit = if unit.is_empty() { unit } else { format!("{unit}: ") };
        let deposed = deposed.map(|key| format!(" ({key})")).unwrap_or_default();
        let id = id.map(|id| format!(" {id}")).unwrap_or_default();
        Some(format!("{unit}{address}{deposed} {} {phase:?}{id}", action.name()))
    }

    /// Lines of terraform 1.11.4 and, as their sources have them, of other versions and of tofu.
    #[test]
    fn progress_of_every_version_is_read() {
        for (line, expected) in [
            ("terraform_data.a: Creating...", "terraform_data.a create Started"),
            (
                "terraform_data.a: Still creating... [10s elapsed]",
                "terraform_data.a create Running",
            ),
            (
                "terraform_data.a: Still creating... [00m10s elapsed]",
                "terraform_data.a create Running",
            ),
            (
                "terraform_data.a: Creation complete after 0s [id=f0-1]",
                "terraform_data.a create Completed f0-1",
            ),
            (
                "terraform_data.a: Creation complete after 1m10s",
                "terraform_data.a create Completed",
            ),
            ("a_b.c: Modifying... [id=x [y]]", "a_b.c update Started x [y]"),
            ("a_b.c: Still modifying... [id=x, 10s elapsed]", "a_b.c update Running"),
            ("a_b.c: Modifications complete after 0s [id=x]", "a_b.c update Completed x"),
            ("a_b.c: Destroying... [id=x]", "a_b.c delete Started x"),
            ("a_b.c: Destroying... [name=x]", "a_b.c delete Started"),
            ("a_b.c: Destruction complete after 0s", "a_b.c delete Completed"),
            (
                "a_b.c (deposed object 0a1b2c3d): Destroying... [id=x]",
                "a_b.c (0a1b2c3d) delete Started x",
            ),
            (
                "a_b.c (deposed object 0a1b2c3d): Destruction complete after 0s",
                "a_b.c (0a1b2c3d) delete Completed",
            ),
            ("a_b.c: Importing... [id=x]", "a_b.c import Started x"),
            ("a_b.c: Importing... [identity=bucket=x]", "a_b.c import Started"),
            ("a_b.c: Import complete [id=x]", "a_b.c import Completed x"),
            ("data.a_b.c: Reading...", "data.a_b.c read Started"),
            ("data.a_b.c: Read complete after 0s [id=x]", "data.a_b.c read Completed x"),
            ("ephemeral.a_b.c: Opening...", "ephemeral.a_b.c open Started"),
            ("ephemeral.a_b.c: Opening complete after 0s", "ephemeral.a_b.c open Completed"),
            ("ephemeral.a_b.c: Open complete after 0s", "ephemeral.a_b.c open Completed"),
            ("ephemeral.a_b.c: Closing...", "ephemeral.a_b.c close Started"),
            ("ephemeral.a_b.c: Close complete after 0s", "ephemeral.a_b.c close Completed"),
        ] {
            assert_eq!(read(line).as_deref(), Some(expected), "{line}");
        }
    }

    /// Lines of terraform 0.11, as its source has them, and of a log with hidden secrets.
    #[test]
    fn progress_of_old_versions_is_read() {
        for (line, expected) in [
            ("aws_instance.a.0: Creating...", "aws_instance.a.0 create Started"),
            ("aws_instance.a: Still creating... (10s elapsed)", "aws_instance.a create Running"),
            (
                "aws_instance.a: Still destroying... (ID: i-1, 10s elapsed)",
                "aws_instance.a delete Running",
            ),
            (
                "aws_instance.a: Creation complete after 26s (ID: i-1)",
                "aws_instance.a create Completed i-1",
            ),
            (
                "aws_instance.a: Destroying... (ID: i-0123456...0123456789)",
                "aws_instance.a delete Started",
            ),
            (
                "module.a.aws_instance.b (deposed #0): Destroying... (ID: i-1)",
                "module.a.aws_instance.b (#0) delete Started i-1",
            ),
            // What the log has hidden is not an ID.
            ("a_b.c: Creation complete after 0s [id=https://***@h]", "a_b.c create Completed"),
        ] {
            assert_eq!(read(line).as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn address_may_contain_anything_in_its_keys() {
        for address in [
            r#"terraform_data.a["b: Creating..."]"#,
            r#"module.a["x.y"].terraform_data.b["k\"l]: Destroying... [id=x]"]"#,
            "module.m[0].data_x.b[12]",
            r#"terraform_data.größe["ключ 🔑"]"#,
            r#"terraform_data.a["${b}\\"]"#,
            r#"terraform_data.a[""]"#,
            "module.***.terraform_data.my_***",
        ] {
            let expected = format!("{address} create Started");
            assert_eq!(read(&format!("{address}: Creating...")), Some(expected), "{address}");
        }
    }

    #[test]
    fn address_is_told_from_other_text() {
        for text in ["a_b.c", "a_b.c[0]", "module.m[\"k\"].a_b.c[\"x.y: \\\"z\"]"] {
            assert!(is_address(text), "{text}");
        }
        for text in [
            "", "a_b", "a_b.", "a_b.c ", "a_b.c:", "a_b.c[", "a_b.c[0", "a_b.c\n}", "a_b.c[d]",
            "x = 1",
        ] {
            assert!(!is_address(text), "{text}");
        }
    }

    #[test]
    fn prefixes_and_escape_codes_are_removed() {
        for (line, unit) in [
            ("\x1b[0m\x1b[1mterraform_data.a: Creating...\x1b[0m\x1b[0m", ""),
            ("12:30:45.123 STDOUT [live/vpc] tofu: terraform_data.a: Creating...", "live/vpc: "),
            ("12:30:45.123 STDOUT terraform: terraform_data.a: Creating...", ""),
            ("12:30:45.123 STDOUT tofu: \x1b[1mterraform_data.a: Creating...\x1b[0m", ""),
            ("[live/vpc] terraform_data.a: Creating...", "live/vpc: "),
            ("2026-05-05T10:00:00.1234567Z terraform_data.a: Creating...", ""),
            ("terraform_data.a: Creating...\r", ""),
        ] {
            assert_eq!(
                read(line),
                Some(format!("{unit}terraform_data.a create Started")),
                "{line}"
            );
        }
    }

    #[test]
    fn other_lines_are_no_progress() {
        for line in [
            "terraform_data.a (local-exec): terraform_data.b: Creating...",
            "terraform_data.a: Provisioning with 'local-exec'...",
            "terraform_data.a (local-exec): Executing: [\"/bin/sh\" \"-c\" \"a: Creating...\"]",
            "  terraform_data.a: Creating...",
            "Output: terraform_data.a: Creating...",
            "terraform_data.a: Creating...x",
            "terraform_data.a: Creating",
            "terraform_data: Creating...",
            "a..b: Creating...",
            "a.b[c]: Creating...",
            "a.b[\"c: Creating...",
            "a_b.c: Importing from ID \"x\"...",
            "a_b.c: Preparing import... [id=x]",
            "Creating...",
            ": Creating...",
            "a.b (c): Creating...",
            "2019-05-20T20:09:03.650Z [DEBUG] a_b.c: Creating...",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
        assert_eq!(read(&format!("a.{}: Creating...", "b".repeat(5000))), None);
    }

    #[test]
    fn nothing_is_read_after_an_error_or_the_end_of_the_apply() {
        let forged = "terraform_data.b: Creating...";
        for end in [
            "Error: local-exec provisioner error",
            "\u{2502} Error: local-exec provisioner error",
            "\x1b[31m\u{2502}\x1b[0m \x1b[1m\x1b[31mError: \x1b[0mx",
            "Apply complete! Resources: 1 added, 0 changed, 0 destroyed.",
            "Warning: Check block assertion failed",
        ] {
            let mut reader = ProgressReader::new(false);
            assert_eq!(reader.line("Warning: Deprecated attribute"), None, "of the plan");
            assert!(reader.line("terraform_data.a: Creating...").is_some());
            assert_eq!(reader.line(end), None);
            assert_eq!(reader.line(forged), None, "{end}");
            let mut reader = ProgressReader::new(true);
            assert_eq!(reader.line(end), None);
            assert!(reader.line(forged).is_some(), "terragrunt runs the tool again");
        }
    }

    /// Output of `terraform apply -json` 1.11.4.
    #[test]
    fn lines_of_json_are_read() {
        let start = r#"{"@level":"info","@message":"terraform_data.a: Creating...","@module":"terraform.ui","@timestamp":"2026-01-01T00:00:00.000000Z","hook":{"resource":{"addr":"terraform_data.a","module":"","resource":"terraform_data.a","implied_provider":"terraform","resource_type":"terraform_data","resource_name":"a","resource_key":null},"action":"create"},"type":"apply_start"}"#;
        assert_eq!(read(start).as_deref(), Some("terraform_data.a create Started"));
        let complete = start.replace("apply_start", "apply_complete").replace(
            "\"action\":\"create\"",
            "\"action\":\"create\",\"id_key\":\"id\",\"id_value\":\"f0\"",
        );
        assert_eq!(read(&complete).as_deref(), Some("terraform_data.a create Completed f0"));
        assert_eq!(read(&start.replace("apply_start", "planned_change")), None);
        assert_eq!(read("{\"hook\": 1, \"type\": \"apply_start\"}"), None);
    }
}
