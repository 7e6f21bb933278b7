//! All rules, in the order in which they decide.

use regex::bytes::{RegexSet, RegexSetBuilder};

use crate::tool::diagnosis::error::RulesError;
use crate::tool::diagnosis::rule_file::{self, Rule};
use crate::tool::diagnostics::Diagnostic;

/// The rules that the runner has.
const BUILTIN: [&str; 7] = [
    include_str!("rules/core.yaml"),
    include_str!("rules/network.yaml"),
    include_str!("rules/aws.yaml"),
    include_str!("rules/azure.yaml"),
    include_str!("rules/google.yaml"),
    include_str!("rules/kubernetes.yaml"),
    include_str!("rules/services.yaml"),
];

/// Bytes that all compiled patterns may take together.
const MAX_PATTERNS: usize = 64 << 20;

/// Rules, the one that decides first.
#[derive(Debug)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    patterns: RegexSet,
}

impl Rules {
    /// The runner's own rules, after those of the user.
    pub(crate) fn load(users: Option<&str>) -> Result<Self, RulesError> {
        let mut rules =
            users.map_or_else(|| Ok(Vec::new()), |text| rule_file::parse(text, true))?;
        for text in BUILTIN {
            rules.extend(rule_file::parse(text, false)?);
        }
        rules.sort_by(|a, b| {
            let first = (b.is_users, b.priority).cmp(&(a.is_users, a.priority));
            first.then(a.class.cmp(&b.class))
        });
        let patterns = rules.iter().map(|rule| rule.regex.as_str());
        let set = RegexSetBuilder::new(patterns).unicode(false).size_limit(MAX_PATTERNS).build();
        let patterns = set.map_err(|error| RulesError {
            line: 1,
            reason: format!("the patterns are too large: {error}"),
        })?;
        Ok(Self { rules, patterns })
    }

    /// The rules that match an error, the one that decides first.
    pub(super) fn matching(&self, error: &Diagnostic, text: &str) -> impl Iterator<Item = &Rule> {
        let provider = provider(error);
        let found = self.patterns.matches(text.as_bytes()).into_iter().map(|at| &self.rules[at]);
        found.filter(move |rule| {
            let provider = provider.as_deref();
            rule.providers.is_empty()
                || provider.is_none_or(|name| rule.providers.iter().any(|other| other == name))
        })
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }
}

/// The text of an error with which patterns are compared: one line, whatever the tool has wrapped.
pub(super) fn text(error: &Diagnostic) -> String {
    let words = error.summary.split_whitespace().chain(error.detail.split_whitespace());
    words.collect::<Vec<_>>().join(" ")
}

/// The errors of a list within one error (`2 errors occurred: * ... * ...`), each with what is before the list.
pub(super) fn parts(text: &str) -> Vec<String> {
    const LIST: &str = "errors occurred: * ";
    match text.split_once(LIST) {
        Some((before, list)) => list.split(" * ").map(|item| format!("{before}{item}")).collect(),
        None => vec![text.to_owned()],
    }
}

/// The provider of the resource, by its type or by the address of the provider.
fn provider(error: &Diagnostic) -> Option<String> {
    if let Some((_, name)) =
        error.address.as_deref().and_then(|text| text.split_once("provider[\""))
    {
        let name = name.split('"').next()?;
        return name.rsplit('/').next().map(str::to_owned);
    }
    if let Some(name) = error.address.as_deref().and_then(|text| text.strip_prefix("provider.")) {
        return Some(name.split('.').next()?.to_owned());
    }
    let kind = error.resource_type()?;
    Some(kind.split('_').next()?.to_owned())
}
