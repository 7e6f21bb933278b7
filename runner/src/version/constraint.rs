//! Constraints on versions, as Terraform, OpenTofu and Terragrunt understand them.
//!
//! The rules are those of HashiCorp's go-version, with one difference: see [`Constraint`].

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::version::number::{Malformed, Version, compare_segments, parse_version};

/// More items than any person writes.
const MAX_ITEMS: usize = 1000;

/// Items that a version must satisfy, all of them: `>= 1.5, != 1.5.3, < 2`.
///
/// A comparison allows a prerelease only if it names one with the same segments. `=` and `!=` allow every prerelease, with
/// one difference from go-version: a constraint with `!=` items only allows stable versions only, so that `!= 1.5.0` does
/// not select an alpha. Without any item, every stable version is allowed.
#[derive(Clone, Debug, Default)]
pub struct Constraint {
    items: Vec<Item>,
}

#[derive(Clone, Debug)]
struct Item {
    operator: Operator,
    version: Version,
    /// As written, trimmed.
    text: String,
    /// The file and line, or the variable, if known.
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

    /// The first item that names a prerelease, with its place.
    pub(super) fn prerelease(&self) -> Option<(Option<&str>, &str)> {
        let item = self.items.iter().find(|item| item.version.is_prerelease())?;
        Some((item.place.as_deref(), &item.text))
    }

    /// Whether an item ends with a dash.
    pub(super) fn is_cut_off(&self) -> bool {
        self.items.iter().any(|item| item.version.is_cut_off())
    }

    /// Two items, with their places, that no version satisfies together. `None` if there are none, or if an item names a
    /// prerelease, which this check does not handle.
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

    /// Adds the items of another constraint.
    pub fn and(&mut self, other: Self) {
        self.items.extend(other.items);
    }

    /// Records the place where it was found.
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

    /// Whether prereleases are allowed: not if there are `!=` items only.
    fn is_open_to(&self, version: &Version) -> bool {
        !version.is_prerelease()
            || self.items.iter().any(|item| item.operator != Operator::NotEqual)
    }
}

impl Item {
    /// The text with its place.
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

    /// The lower bound, and whether it is inclusive; `None` if there is none.
    fn lowest(&self) -> Option<(Vec<i64>, bool)> {
        let with = match self.operator {
            Operator::Equal | Operator::GreaterOrEqual | Operator::Pessimistic => true,
            Operator::Greater => false,
            Operator::NotEqual | Operator::Less | Operator::LessOrEqual => return None,
        };
        Some((self.version.segments.clone(), with))
    }

    /// The upper bound, and whether it is inclusive; `None` if there is none.
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

    /// Whether a comparison may allow this version: a prerelease only if the item names one of the same segments.
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
