//! The syntax of requests for a version (`1.9.8`, `latest`, `~> 1.9`).

use std::fmt;
use std::str::FromStr;

use regex::bytes::{Regex, RegexBuilder};

use crate::version::constraint::Constraint;
use crate::version::number::{Malformed, Version};

/// Which versions satisfy a request, and which of them is best.
#[derive(Clone, Debug)]
pub enum Request {
    /// This one: `1.9.8`, `v1.9.8`; `1.5` is 1.5.0, not a series.
    Exact(Version),
    /// The highest that is no prerelease: `latest`, `latest-stable`.
    Latest,
    /// The highest of all: `latest-pre`.
    LatestPre,
    /// The highest that is allowed: a constraint, or `latest-allowed`.
    Highest(Requirement),
    /// The lowest that is allowed: `min-required`.
    Lowest(Requirement),
    /// The highest that matches, prereleases included: `latest:<regular expression>`.
    HighestLike(Pattern),
    /// The lowest that matches, prereleases included: `min:<regular expression>`.
    LowestLike(Pattern),
}

/// A regular expression in RE2's syntax that may match any part of a version.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

/// What a version must satisfy. Without any constraint, every stable version is allowed.
#[derive(Clone, Debug, Default)]
pub struct Requirement {
    /// For every version, or for those of OpenTofu before 1.12.
    pub(super) constraint: Constraint,
    /// For OpenTofu 1.12 and newer, which ignores `required_version` in files that Terraform reads.
    pub(super) tofu_1_12: Option<Constraint>,
}

const EXPECTED: &str = "version, constraint or keyword";
/// The memory limit of a compiled expression; usual ones need a few KiB.
const MAX_PATTERN: usize = 1 << 20;

impl FromStr for Request {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let text = text.trim();
        match text {
            "latest" | "latest-stable" => return Ok(Self::Latest),
            "latest-pre" => return Ok(Self::LatestPre),
            _ => {}
        }
        if let Some(pattern) = text.strip_prefix("latest:") {
            return Ok(Self::HighestLike(pattern.parse()?));
        }
        if let Some(pattern) = text.strip_prefix("min:") {
            return Ok(Self::LowestLike(pattern.parse()?));
        }
        if let Ok(version) = text.parse::<Version>() {
            if version.is_cut_off() {
                return Err(Malformed::new(text, EXPECTED));
            }
            if version.is_exact() {
                return Ok(Self::Exact(version));
            }
        }
        let constraint = text.parse::<Constraint>().ok().filter(|parsed| !parsed.is_cut_off());
        let constraint = constraint.ok_or_else(|| Malformed::new(text, EXPECTED))?;
        Ok(Self::Highest(Requirement { constraint, tofu_1_12: None }))
    }
}

impl FromStr for Pattern {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let parsed = RegexBuilder::new(text).unicode(false).size_limit(MAX_PATTERN).build();
        parsed.map(Self).map_err(|_| Malformed::new(text, "regular expression (RE2)"))
    }
}

impl Request {
    /// Whether `version` satisfies the request.
    pub fn allows(&self, version: &Version) -> bool {
        match self {
            Self::Exact(exact) => version == exact,
            _ => self.refusal(version).is_none(),
        }
    }

    /// Why `version` does not satisfy the request, in a text by which versions can be grouped; `None` if it does.
    pub fn refusal(&self, version: &Version) -> Option<String> {
        let unless = |allowed: bool, reason: &str| (!allowed).then(|| reason.to_owned());
        match self {
            Self::Exact(exact) => unless(version == exact, "another version"),
            _ if version.is_bare_name() => Some("a name, not a number".to_owned()),
            Self::Latest => unless(!version.is_prerelease(), "a prerelease"),
            Self::LatestPre => None,
            Self::Highest(requirement) | Self::Lowest(requirement) => requirement.refusal(version),
            Self::HighestLike(Pattern(regex)) | Self::LowestLike(Pattern(regex)) => {
                unless(regex.is_match(version.to_string().as_bytes()), "no match")
            }
        }
    }

    /// Records the place of its constraint.
    pub(super) fn found_in(self, place: &str) -> Self {
        match self {
            Self::Highest(Requirement { constraint, tofu_1_12 }) => {
                Self::Highest(Requirement { constraint: constraint.found_in(place), tofu_1_12 })
            }
            other => other,
        }
    }

    /// The first few constraints that reject some of these versions, with their places. If no version is allowed, these
    /// are the constraints that conflict.
    pub fn refusing<'a>(&self, versions: impl IntoIterator<Item = &'a Version>) -> Vec<String> {
        const MAX: usize = 4;
        let (Self::Highest(requirement) | Self::Lowest(requirement)) = self else {
            return Vec::new();
        };
        let mut refusing = Vec::<String>::new();
        for version in versions.into_iter().filter(|version| !version.is_prerelease()) {
            if let Some(refusal) = requirement.refusal(version)
                && !refusing.contains(&refusal)
            {
                refusing.push(refusal);
            }
            if refusing.len() == MAX {
                break;
            }
        }
        refusing
    }

    /// Two constraints, with their places, that contradict each other whatever versions exist.
    pub fn contradiction(&self) -> Option<[String; 2]> {
        let (Self::Highest(requirement) | Self::Lowest(requirement)) = self else { return None };
        let found = requirement.constraint.contradiction()?;
        match &requirement.tofu_1_12 {
            // Versions of the other kind may satisfy the request.
            Some(newer) if newer.contradiction().is_none() => None,
            _ => Some(found),
        }
    }

    /// Whether `candidate` is preferred to `other`, if both satisfy the request.
    pub fn prefers(&self, candidate: &Version, other: &Version) -> bool {
        let order = candidate.compare(other);
        match self {
            Self::Lowest(_) | Self::LowestLike(_) => order.is_lt(),
            _ => order.is_gt(),
        }
    }

    /// The best of `versions` that satisfies the request.
    pub fn best<'a>(&self, versions: impl IntoIterator<Item = &'a Version>) -> Option<&'a Version> {
        let allowed = versions.into_iter().filter(|version| self.allows(version));
        match self {
            Self::Lowest(_) | Self::LowestLike(_) => allowed.min_by(|a, b| a.compare(b)),
            _ => allowed.max_by(|a, b| a.compare(b)),
        }
    }
}

impl Requirement {
    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.constraint.is_empty() && self.tofu_1_12.as_ref().is_none_or(Constraint::is_empty)
    }

    /// Adds a constraint on versions of every kind.
    pub(super) fn and(&mut self, constraint: &Constraint) {
        self.constraint.and(constraint.clone());
        if let Some(newer) = &mut self.tofu_1_12 {
            newer.and(constraint.clone());
        }
    }

    /// Whether `version` satisfies the constraint for its kind.
    pub fn allows(&self, version: &Version) -> bool {
        self.of_its_kind(version).allows(version)
    }

    fn refusal(&self, version: &Version) -> Option<String> {
        self.of_its_kind(version).refusal(version)
    }

    fn of_its_kind(&self, version: &Version) -> &Constraint {
        match &self.tofu_1_12 {
            Some(constraint) if version.is_at_least([1, 12, 0]) => constraint,
            _ => &self.constraint,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(version) => version.fmt(f),
            Self::Latest => f.write_str("latest"),
            Self::LatestPre => f.write_str("latest-pre"),
            Self::Highest(requirement) => requirement.fmt(f),
            Self::Lowest(requirement) => write!(f, "min-required ({requirement})"),
            Self::HighestLike(Pattern(regex)) => write!(f, "latest:{regex}"),
            Self::LowestLike(Pattern(regex)) => write!(f, "min:{regex}"),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |constraint: &Constraint| {
            let text = constraint.to_string();
            if text.is_empty() { "any stable version".to_owned() } else { text }
        };
        let (all, newer) = (text(&self.constraint), self.tofu_1_12.as_ref().map(text));
        match newer {
            Some(newer) if newer != all => write!(f, "{all}; from OpenTofu 1.12 on: {newer}"),
            _ => f.write_str(&all),
        }
    }
}
