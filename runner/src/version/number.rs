//! Version numbers and the constraints over them, as Terraform and its neighbours understand them.
//!
//! The rules are those of HashiCorp's go-version, which differ from `SemVer` in grammar, in the order of
//! prereleases and in when a prerelease is let through; one of them is mended, see [`Constraint`]. It
//! knows neither tools nor files.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Longer texts are no versions: they would not fit into a file name.
const MAX_LENGTH: usize = 128;
/// More items are no constraint that a person wrote.
const MAX_ITEMS: usize = 1000;

/// A version: `1.9.8`, `v1.5`, `1.10.0-rc1`, `1.7rc2`, `1.2.3.4+build`.
///
/// Any number of segments, each up to `i64::MAX`; fewer than three are filled up with zeros. Shown
/// without the `v` and filled up, which is how releases are named. Equality is that of
/// [`Version::compare`].
///
/// Terragrunt also has previews that are a name without a number (`alpha-2025031901`). They are lower
/// than everything, and only asking for the very name finds one.
#[derive(Clone, Debug)]
pub struct Version {
    segments: Vec<i64>,
    /// How many segments were written: `~>` looks at the last of them. None in a bare name.
    written: usize,
    pre: String,
    meta: String,
}

/// The text is neither a version nor a constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no {expected}", shown(.text))]
pub struct Malformed {
    text: String,
    expected: &'static str,
}

impl Malformed {
    pub(super) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

/// The beginning of `text`, printable: it comes from a file that anybody may have written.
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

    /// Whether it is a preview that has a name and no number.
    pub fn is_bare_name(&self) -> bool {
        self.written == 0
    }

    /// Whether it can be the name of a release: at most three segments and no metadata.
    pub(super) fn is_exact(&self) -> bool {
        self.written <= 3 && self.meta.is_empty()
    }

    /// Whether nothing follows its last dash, which constraints accept: `1.5.7-`.
    pub(super) fn is_cut_off(&self) -> bool {
        self.pre == "-"
    }

    /// The order of lists for people: a prerelease before its release, and its parts as `SemVer` has them.
    /// Unlike [`Self::compare`] this is a total order.
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

    /// Whether its segments are at least these, whatever its prerelease: `1.12.0-beta1` is of 1.12.
    pub fn is_at_least(&self, segments: [i64; 3]) -> bool {
        compare_segments(&self.segments, &segments) != Ordering::Less
    }

    /// Metadata counts for nothing, and a prerelease for nothing where the numbers of segments differ.
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

fn compare_segments(mine: &[i64], others: &[i64]) -> Ordering {
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
fn parse_version(text: &str) -> Option<Version> {
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

/// Items that a version must satisfy, all of them: `>= 1.5, != 1.5.3, < 2`.
///
/// A comparison lets a prerelease through only if it names one of the same segments. `=` and `!=` do
/// not ask, with one exception, where go-version is surprising: when no item but `!=` is there, only
/// stable versions are allowed, so `!= 1.5.0` does not choose an alpha. Without any item, every
/// stable version is allowed.
#[derive(Clone, Debug, Default)]
pub struct Constraint {
    items: Vec<Item>,
}

#[derive(Clone, Debug)]
struct Item {
    operator: Operator,
    version: Version,
    /// As it was written, without white space around it.
    text: String,
    /// Where it was written, if that was told.
    place: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Pessimistic,
}

/// Longer spellings first; no operator at all is `=`.
const OPERATORS: [(&str, Operator); 8] = [
    (">=", Operator::GreaterOrEqual),
    ("<=", Operator::LessOrEqual),
    ("!=", Operator::NotEqual),
    ("~>", Operator::Pessimistic),
    (">", Operator::Greater),
    ("<", Operator::Less),
    ("=", Operator::Equal),
    ("", Operator::Equal),
];

impl Constraint {
    /// Whether it has no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The first item that names a prerelease, after its place.
    pub(super) fn prerelease(&self) -> Option<(Option<&str>, &str)> {
        let item = self.items.iter().find(|item| item.version.is_prerelease())?;
        Some((item.place.as_deref(), &item.text))
    }

    /// Whether nothing follows the last dash of an item.
    pub(super) fn is_cut_off(&self) -> bool {
        self.items.iter().any(|item| item.version.is_cut_off())
    }

    /// Two items, with their places, that no version satisfies together. `None`: there are none, or a
    /// prerelease is named, so that this is not as simple.
    pub fn contradiction(&self) -> Option<[String; 2]> {
        if self.prerelease().is_some() {
            return None;
        }
        let pairs = self.items.iter().enumerate();
        let mut pairs =
            pairs.flat_map(|(i, one)| self.items[..i].iter().map(move |two| (two, one)));
        let (one, two) = pairs.find(|(one, two)| one.contradicts(two))?;
        Some([one.shown(), two.shown()])
    }

    /// Adds the items of another one.
    pub fn and(&mut self, other: Self) {
        self.items.extend(other.items);
    }

    /// The same, with the place where it was found.
    #[must_use]
    pub fn found_in(mut self, place: &str) -> Self {
        let place: Arc<str> = place.into();
        for item in &mut self.items {
            item.place = Some(place.clone());
        }
        self
    }

    /// Whether `version` satisfies every item.
    pub fn allows(&self, version: &Version) -> bool {
        self.is_open_to(version) && self.items.iter().all(|item| item.allows(version))
    }

    /// The first item that `version` does not satisfy, with its place; `None` if it satisfies all.
    pub fn refusal(&self, version: &Version) -> Option<String> {
        if !self.is_open_to(version) {
            return Some("a prerelease".to_owned());
        }
        let item = self.items.iter().find(|item| !item.allows(version))?;
        Some(item.shown())
    }

    /// Where nothing but `!=` is asked, a prerelease is not.
    fn is_open_to(&self, version: &Version) -> bool {
        !version.is_prerelease()
            || self.items.iter().any(|item| item.operator != Operator::NotEqual)
    }
}

impl Item {
    /// With its place.
    fn shown(&self) -> String {
        match &self.place {
            Some(place) => format!("{} ({place})", self.text),
            None => self.text.clone(),
        }
    }

    /// Whether no version satisfies both, where neither names a prerelease.
    fn contradicts(&self, other: &Self) -> bool {
        let pairs = [(self, other), (other, self)];
        let differs = |(one, two): &(&Self, &Self)| {
            one.operator == Operator::Equal
                && two.operator == Operator::NotEqual
                && one.version == two.version
        };
        let parted = |(one, two): &(&Self, &Self)| match (one.lowest(), two.highest()) {
            (Some((low, with_low)), Some((high, with_high))) => {
                match compare_segments(&low, &high) {
                    Ordering::Greater => true,
                    Ordering::Equal => !(with_low && with_high),
                    Ordering::Less => false,
                }
            }
            _ => false,
        };
        pairs.iter().any(differs) || pairs.iter().any(parted)
    }

    /// The lower end of what it allows, and whether that itself is allowed. `None`: there is none.
    fn lowest(&self) -> Option<(Vec<i64>, bool)> {
        let with = match self.operator {
            Operator::Equal | Operator::GreaterOrEqual | Operator::Pessimistic => true,
            Operator::Greater => false,
            Operator::NotEqual | Operator::Less | Operator::LessOrEqual => return None,
        };
        Some((self.version.segments.clone(), with))
    }

    /// The upper end of it.
    fn highest(&self) -> Option<(Vec<i64>, bool)> {
        let segments = self.version.segments.clone();
        match self.operator {
            Operator::Equal | Operator::LessOrEqual => Some((segments, true)),
            Operator::Less => Some((segments, false)),
            Operator::Pessimistic => {
                // The last segment that is fixed; `~> 1` has none, and no upper end.
                let fixed = self.version.written.checked_sub(2)?;
                let mut next = segments.get(..=fixed)?.to_vec();
                next[fixed] = next[fixed].checked_add(1)?;
                Some((next, false))
            }
            Operator::NotEqual | Operator::Greater | Operator::GreaterOrEqual => None,
        }
    }

    fn allows(&self, version: &Version) -> bool {
        let bound = &self.version;
        let order = version.compare(bound);
        match self.operator {
            Operator::Equal => order.is_eq(),
            Operator::NotEqual => order.is_ne(),
            Operator::Greater => order.is_gt() && self.gate(version),
            Operator::GreaterOrEqual => order.is_ge() && self.gate(version),
            Operator::Less => order.is_lt() && self.gate(version),
            Operator::LessOrEqual => order.is_le() && self.gate(version),
            Operator::Pessimistic => {
                let fixed = bound.written - 1;
                order.is_ge()
                    && self.gate(version)
                    && (version.is_prerelease() || !bound.is_prerelease())
                    && version.segments.len() >= bound.segments.len()
                    && version.segments[..fixed] == bound.segments[..fixed]
            }
        }
    }

    /// Whether a prerelease may pass a comparison.
    fn gate(&self, version: &Version) -> bool {
        !version.is_prerelease()
            || (self.version.is_prerelease() && self.version.segments == version.segments)
    }
}

impl FromStr for Constraint {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let items = text.split(',').take(MAX_ITEMS + 1).map(parse_item);
        let items = items.collect::<Option<Vec<_>>>().filter(|items| items.len() <= MAX_ITEMS);
        items.map(|items| Self { items }).ok_or_else(|| {
            Malformed::new(text, "version constraint (`>= 1.5, < 2`: = != > >= < <= ~> and commas)")
        })
    }
}

fn parse_item(text: &str) -> Option<Item> {
    let white = [' ', '\t', '\n', '\r', '\x0c'];
    let text = text.trim_matches(white);
    let find = |(spelling, operator)| Some((text.strip_prefix(spelling)?, operator));
    let (version, operator) = OPERATORS.into_iter().find_map(find)?;
    let version = parse_version(version.trim_start_matches(white))?;
    Some(Item { operator, version, text: text.to_owned(), place: None })
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.items.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{}", item.text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
