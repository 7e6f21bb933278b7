//! The language in which a version is asked for (`1.9.8`, `latest`, `~> 1.9`).

use std::fmt;
use std::str::FromStr;

use super::number::{Constraint, Malformed, Version};

/// Which versions will do, and which of them is best.
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
}

/// What a version must satisfy. Without any constraint, every stable version does.
#[derive(Clone, Debug, Default)]
pub struct Requirement {
    /// For every version, or for those of OpenTofu before 1.12.
    pub(super) constraint: Constraint,
    /// For OpenTofu from 1.12 on, which passes over `required_version` in files that Terraform reads.
    pub(super) tofu_1_12: Option<Constraint>,
}

const EXPECTED: &str = "exact version (1.9.8), constraint (`>= 1.5, < 2`: = != > >= < <= ~> and commas) \
     or keyword (latest, latest-pre, latest-allowed, min-required)";
const NO_REGEX: &str =
    "request that is understood yet: regular expressions (latest:..., min:...) come later";

impl FromStr for Request {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let text = text.trim();
        match text {
            "latest" | "latest-stable" => return Ok(Self::Latest),
            "latest-pre" => return Ok(Self::LatestPre),
            _ if text.starts_with("latest:") || text.starts_with("min:") => {
                return Err(Malformed::new(text, NO_REGEX));
            }
            _ => {}
        }
        if let Ok(version) = text.parse::<Version>()
            && version.is_exact()
        {
            return Ok(Self::Exact(version));
        }
        let constraint = text.parse().map_err(|_| Malformed::new(text, EXPECTED))?;
        Ok(Self::Highest(Requirement { constraint, tofu_1_12: None }))
    }
}

impl Request {
    /// Whether `version` will do.
    pub fn allows(&self, version: &Version) -> bool {
        match self {
            Self::Exact(exact) => version == exact,
            Self::Latest => !version.is_prerelease(),
            Self::LatestPre => true,
            Self::Highest(requirement) | Self::Lowest(requirement) => requirement.allows(version),
        }
    }

    /// The best of `versions` that will do.
    pub fn best<'a>(&self, versions: impl IntoIterator<Item = &'a Version>) -> Option<&'a Version> {
        let allowed = versions.into_iter().filter(|version| self.allows(version));
        match self {
            Self::Lowest(_) => allowed.min_by(|a, b| a.compare(b)),
            _ => allowed.max_by(|a, b| a.compare(b)),
        }
    }
}

impl Requirement {
    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.constraint.is_empty() && self.tofu_1_12.as_ref().is_none_or(Constraint::is_empty)
    }

    /// Whether `version` satisfies what is required of its kind.
    pub fn allows(&self, version: &Version) -> bool {
        match &self.tofu_1_12 {
            Some(constraint) if version.is_at_least([1, 12, 0]) => constraint.allows(version),
            _ => self.constraint.allows(version),
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
