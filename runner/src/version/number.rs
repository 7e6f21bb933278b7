//! Version numbers, as Terraform, OpenTofu and Terragrunt understand them.
//!
//! The rules are those of HashiCorp's go-version, which differ from `SemVer` in grammar and in the order of prereleases.
//! Constraints, tools and files are not known here.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Longer texts are rejected: they would not fit into a file name.
const MAX_LENGTH: usize = 128;
/// A version: `1.9.8`, `v1.5`, `1.10.0-rc1`, `1.7rc2`, `1.2.3.4+build`.
///
/// Any number of segments, each up to `i64::MAX`; fewer than three are padded with zeros. Displayed without the `v` and
/// padded, which is how releases are named. Equality is that of [`Version::compare`].
///
/// Terragrunt also has previews with a name instead of a number (`alpha-2025031901`). They are lower than all numbers, and
/// only a request for the exact name selects one.
#[derive(Clone, Debug)]
pub struct Version {
    pub(super) segments: Vec<i64>,
    /// How many segments were written: `~>` depends on the last of them. 0 in a bare name.
    pub(super) written: usize,
    pre: String,
    meta: String,
}

/// A text that is not a version, constraint or request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a valid {expected}", shown(.text))]
pub struct Malformed {
    text: String,
    expected: &'static str,
}

impl Malformed {
    pub(super) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

/// The beginning of `text`, with control characters escaped, for messages.
pub(super) fn shown(text: &str) -> String {
    let text = text.trim();
    let mut shown = String::new();
    for character in text.chars().take(80) {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    if text.chars().nth(80).is_some() {
        shown.push_str("...");
    }
    shown
}

impl Version {
    /// Whether it is an alpha, a beta or the like.
    pub fn is_prerelease(&self) -> bool {
        !self.pre.is_empty()
    }

    /// Whether it is a preview with a name instead of a number.
    pub fn is_bare_name(&self) -> bool {
        self.written == 0
    }

    /// Whether it is written as releases are named: with three segments, or as a bare name. An address of the network has four.
    pub(crate) fn is_written_out(&self) -> bool {
        self.is_bare_name() || self.written == 3
    }

    /// Whether it can be the name of a release: at most three segments and no metadata.
    pub(super) fn is_exact(&self) -> bool {
        self.written <= 3 && self.meta.is_empty()
    }

    /// Whether it ends with a dash (`1.5.7-`), which go-version's grammar allows.
    pub(super) fn is_cut_off(&self) -> bool {
        self.pre == "-"
    }

    /// The order of printed lists: a prerelease before its release, and its parts in the order of `SemVer`. Unlike
    /// [`Self::compare`] this is a total order.
    pub(crate) fn list_order(&self, other: &Self) -> Ordering {
        let parts = |version: &Self| -> Vec<(bool, i64, String)> {
            let part = |part: &str| match part.parse() {
                Ok(number) => (false, number, String::new()),
                Err(_) => (true, 0, part.to_owned()),
            };
            version.pre.split('.').map(part).collect()
        };
        compare_segments(&self.segments, &other.segments)
            .then_with(|| other.is_prerelease().cmp(&self.is_prerelease()))
            .then_with(|| parts(self).cmp(&parts(other)))
            .then_with(|| self.to_string().cmp(&other.to_string()))
    }

    /// Whether its segments are at least these, regardless of its prerelease: `1.12.0-beta1` belongs to 1.12.
    pub fn is_at_least(&self, segments: [i64; 3]) -> bool {
        compare_segments(&self.segments, &segments) != Ordering::Less
    }

    /// Compares as go-version does: metadata is ignored, and prereleases are ignored where the numbers of segments differ.
    ///
    /// Not an `Ord`: a missing part of a prerelease is smaller than a number but larger than a text
    /// (`alpha` < `alpha.1` < `alpha.beta` < `alpha`), so sorting by it has no meaning. The larger of
    /// two is well defined.
    pub fn compare(&self, other: &Self) -> Ordering {
        let segments = compare_segments(&self.segments, &other.segments);
        if segments != Ordering::Equal || self.segments.len() != other.segments.len() {
            return segments;
        }
        match (self.pre.as_str(), other.pre.as_str()) {
            ("", "") => Ordering::Equal,
            ("", _) => Ordering::Greater,
            (_, "") => Ordering::Less,
            (mine, others) => compare_prereleases(mine, others),
        }
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other) == Ordering::Equal
    }
}

pub(super) fn compare_segments(mine: &[i64], others: &[i64]) -> Ordering {
    let at = |segments: &[i64], index| segments.get(index).copied().unwrap_or(0);
    (0..mine.len().max(others.len()))
        .map(|index| at(mine, index).cmp(&at(others, index)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn compare_prereleases(mine: &str, others: &str) -> Ordering {
    let (mut mine, mut others) = (mine.split('.'), others.split('.'));
    loop {
        let order = match (mine.next(), others.next()) {
            (None, None) => return Ordering::Equal,
            (Some(part), None) => compare_with_missing(part),
            (None, Some(part)) => compare_with_missing(part).reverse(),
            (Some(mine), Some(others)) => compare_parts(mine, others),
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn compare_with_missing(part: &str) -> Ordering {
    if part.parse::<i64>().is_ok() { Ordering::Greater } else { Ordering::Less }
}

fn compare_parts(mine: &str, others: &str) -> Ordering {
    match (mine.parse::<i64>(), others.parse::<i64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => mine.cmp(others),
    }
}

/// Whether it is a prerelease or metadata: parts of `0-9 A-Z a-z - ~`, none empty, between dots.
fn are_parts(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '~');
    text.split('.').all(|part| !part.is_empty() && part.chars().all(allowed))
}

/// `alpha`, `beta`, perhaps a dash, and digits.
fn bare_name(text: &str) -> Option<Version> {
    let digits = text.strip_prefix("alpha").or_else(|| text.strip_prefix("beta"))?;
    let digits = digits.strip_prefix('-').unwrap_or(digits);
    let is_name = !digits.is_empty()
        && text.len() <= MAX_LENGTH
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_name.then(|| Version {
        segments: vec![0; 3],
        written: 0,
        pre: text.to_owned(),
        meta: String::new(),
    })
}

/// `v?N(.N)*` and what may follow it: `-PRE`, or a PRE that starts with a letter; then `+META`.
pub(super) fn parse_version(text: &str) -> Option<Version> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let text = text.strip_prefix('v').unwrap_or(text);
    let (text, meta) = match text.split_once('+') {
        Some((text, meta)) => (text, Some(meta)),
        None => (text, None),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (numbers, pre) = text.split_at(end);
    let mut segments = Vec::new();
    for number in numbers.split('.') {
        segments.push(number.parse().ok()?);
    }
    // The dash before a prerelease is its own where nothing else is: `1.0-` is legal.
    let pre = pre.strip_prefix('-').filter(|rest| are_parts(rest)).unwrap_or(pre);
    if (!pre.is_empty() && !are_parts(pre)) || !meta.is_none_or(are_parts) {
        return None;
    }
    let written = segments.len();
    segments.resize(written.max(3), 0);
    let meta = meta.unwrap_or_default().to_owned();
    let version = Version { segments, written, pre: pre.to_owned(), meta };
    // Filled up with zeros it is longer.
    (version.to_string().len() <= MAX_LENGTH).then_some(version)
}

impl FromStr for Version {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        parse_version(text)
            .or_else(|| bare_name(text))
            .ok_or_else(|| Malformed::new(text, "version (1.9.8, 1.10.0-rc1)"))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_bare_name() {
            return f.write_str(&self.pre);
        }
        for (index, segment) in self.segments.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            write!(f, "{dot}{segment}")?;
        }
        let parts = [("-", &self.pre), ("+", &self.meta)];
        parts.iter().filter(|(_, part)| !part.is_empty()).try_for_each(|(s, p)| write!(f, "{s}{p}"))
    }
}

impl serde::Serialize for Version {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Version {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
