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

/// Bytes that the compiled patterns of one set may take.
const MAX_PATTERNS: usize = 64 << 20;
/// How many patterns are one set. The states of a set multiply with its patterns: with all of them in one, the memory for states is
/// full after a few errors of different services, and the search is a hundred times slower.
const PER_SET: usize = 16;
/// Bytes that the states of a set may take.
const MAX_STATES: usize = 4 << 20;

/// Rules, the one that decides first.
#[derive(Debug)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    /// The patterns of the rules, in their order.
    patterns: Vec<RegexSet>,
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
        let set = |rules: &[Rule]| {
            let patterns = rules.iter().map(|rule| rule.regex.as_str());
            let mut set = RegexSetBuilder::new(patterns);
            set.unicode(false).size_limit(MAX_PATTERNS).dfa_size_limit(MAX_STATES).build()
        };
        let patterns = rules.chunks(PER_SET).map(set).collect::<Result<_, _>>();
        let patterns = patterns.map_err(|error| RulesError {
            line: 1,
            reason: format!("the patterns are too large: {error}"),
        })?;
        Ok(Self { rules, patterns })
    }

    /// How the import ID of a resource of this type follows from its planned values, if a rule knows that. A second object
    /// with the same ID is refused by its service.
    pub(crate) fn planned_id(&self, kind: &str) -> Option<&str> {
        let imports = self.rules.iter().filter_map(|rule| rule.import_id.as_ref());
        imports.filter(|import| import.names(kind)).find_map(|import| import.planned.as_deref())
    }

    /// The rules that match an error, the one that decides first.
    pub(super) fn matching(&self, error: &Diagnostic, text: &str) -> impl Iterator<Item = &Rule> {
        let provider = provider(error);
        let found =
            self.rules.chunks(PER_SET).zip(&self.patterns).flat_map(move |(rules, patterns)| {
                patterns.matches(text.as_bytes()).into_iter().map(|at| &rules[at])
            });
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

/// The errors of a list within one error (`2 errors occurred: * ... * ...`), with what is before the list.
pub(super) fn list(text: &str) -> Option<(&str, Vec<&str>)> {
    const LISTS: [&str; 3] = ["errors occurred: * ", "error occurred: * ", "error(s) occurred: * "];
    let starts = LISTS.iter().filter_map(|list| Some((text.find(list)?, list.len())));
    let (start, length) = starts.min()?;
    // An item may be a list, too.
    let items = text[start + length..].split(" * ").filter(|item| !item.ends_with("occurred:"));
    Some((&text[..start], items.collect()))
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
