//! What the errors of a run are, and what they mean together.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use crate::tool::diagnosis::class::Class;
use crate::tool::diagnosis::import_id;
use crate::tool::diagnosis::rule_file::Rule;
use crate::tool::diagnosis::rules::{self, Rules};
use crate::tool::diagnostics::{Diagnostic, Found, Reported, each_error};

/// Errors that are listed. Of the others only the class counts.
const MAX_BLOCKS: usize = 500;

/// The class of a run, with its errors.
#[derive(Debug)]
pub(crate) struct Verdict<'a> {
    pub(crate) class: Class,
    /// Whether every error is transient. One of any other class stops a retry, and one whose text is cut.
    pub(crate) is_retryable: bool,
    /// Whether an error has more text than is kept. Then none of them is known to be transient.
    pub(crate) is_cut: bool,
    /// In the order of the output.
    pub(crate) blocks: Vec<Block<'a>>,
    /// How many further errors of each class there are.
    pub(crate) unlisted: BTreeMap<Class, u64>,
}

/// One error.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) error: Diagnostic,
    pub(crate) class: Class,
    pub(crate) address: Option<String>,
    pub(crate) import_id: Option<String>,
    /// How it follows from the planned values of the resource.
    pub(crate) planned_id: Option<String>,
    is_unanswered: bool,
    /// The rule that decided.
    pub(crate) rule: Option<&'a Rule>,
    /// The text that it matched.
    pub(crate) matched: Option<String>,
    /// Further rules that match.
    pub(crate) others: Vec<&'a Rule>,
}

/// Classifies each error of an output by itself, in bounded memory, also those that are reported again.
pub(crate) fn each_block<'a>(
    output: impl BufRead,
    rules: &'a Rules,
    mut each: impl FnMut(&Block<'a>),
) -> io::Result<()> {
    each_error(output, |error| each(&Block::new(error.diagnostic, rules)))
}

impl<'a> Verdict<'a> {
    /// Classifies the output of a run, read to its end in bounded memory.
    pub(crate) fn read(output: impl BufRead, rules: &'a Rules) -> io::Result<Self> {
        let mut found = Found::new(MAX_BLOCKS);
        let mut unlisted = BTreeMap::new();
        let mut is_cut = false;
        each_error(output, |error| {
            is_cut |= error.diagnostic.is_cut;
            let Some(further) = found.add(error) else { return };
            let is_generic = further.is_generic();
            let block = Block::new(further.diagnostic, rules);
            if !is_generic || block.rule.is_some() {
                *unlisted.entry(block.class).or_default() += 1;
            }
        })?;
        let verdict = Self::new(found.most_specific_first(), unlisted, rules);
        Ok(Self { is_cut, is_retryable: verdict.is_retryable && !is_cut, ..verdict })
    }

    fn new(errors: Vec<Reported>, unlisted: BTreeMap<Class, u64>, rules: &'a Rules) -> Self {
        let blocks = errors.into_iter().map(|error| {
            let is_generic = error.is_generic();
            (is_generic, Block::new(error.diagnostic, rules))
        });
        let mut blocks = blocks.collect::<Vec<_>>();
        // An error that only announces others counts if it is alone, or if a rule knows it.
        if blocks.iter().any(|(is_generic, _)| !is_generic) || !unlisted.is_empty() {
            blocks.retain(|(is_generic, block)| !is_generic || block.rule.is_some());
        }
        let blocks = blocks.into_iter().map(|(_, block)| block).collect::<Vec<_>>();
        let classes = || blocks.iter().map(|block| block.class).chain(unlisted.keys().copied());
        let class = classes().min().unwrap_or(Class::Unknown);
        let is_retryable =
            classes().next().is_some() && classes().all(|class| class == Class::Transient);
        Self { class, is_retryable, is_cut: false, blocks, unlisted }
    }

    /// The class that decides what happens next: an error that no rule knows comes before a transient one, as it stops the
    /// retry.
    pub(crate) fn deciding(&self) -> Class {
        match self.class {
            Class::Transient if self.stopping() > 0 => Class::Unknown,
            class => class,
        }
    }

    /// How many errors were found.
    pub(crate) fn count(&self) -> u64 {
        self.blocks.len() as u64 + self.unlisted.values().sum::<u64>()
    }

    /// How many errors are of another class than `transient`.
    pub(crate) fn stopping(&self) -> u64 {
        let blocks = self.blocks.iter().filter(|block| block.class != Class::Transient).count();
        let unlisted = self.unlisted.iter().filter(|(class, _)| **class != Class::Transient);
        blocks as u64 + unlisted.map(|(_, count)| count).sum::<u64>()
    }
}

impl<'a> Block<'a> {
    /// Whether the error leaves open what was done: no answer came, or the service failed.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.is_unanswered
    }

    fn new(error: Diagnostic, rules: &'a Rules) -> Self {
        let text = rules::text(&error);
        let decide = |part: String| {
            let mut matching = rules.matching(&error, &part).collect::<Vec<_>>();
            let others = matching.split_off(matching.len().min(1));
            (part, matching.pop(), others)
        };
        let class = |rule: Option<&Rule>| rule.map_or(Class::Unknown, |rule| rule.class);
        let list = rules::list(&text);
        let is_list = list.is_some();
        let parts = match list {
            None => vec![decide(text.clone())],
            // What is before the list says more of its errors, but does not make one of them transient.
            Some((before, items)) => items
                .into_iter()
                .map(|item| {
                    let with_before = decide(format!("{before}{item}"));
                    match class(with_before.1) {
                        Class::Transient => decide(item.to_owned()),
                        _ => with_before,
                    }
                })
                .collect(),
        };
        // In a list of errors one that is not transient counts.
        let decides = parts
            .into_iter()
            .min_by_key(|(_, rule, _)| (class(*rule) == Class::Transient, class(*rule)));
        let (text, rule, others) = decides.unwrap_or_default();
        let matched = rule.and_then(|rule| matched_text(rule, &text));
        let mut block = Self {
            class: class(rule),
            address: error.exact_address(),
            import_id: rule.and_then(|rule| import_id::exact(rule, &error, &text)),
            planned_id: rule.and_then(|rule| import_id::planned(rule, &error, &text)),
            is_unanswered: rule
                .and_then(|rule| rule.unanswered.as_ref())
                .is_some_and(|unanswered| unanswered.is(&text)),
            rule,
            matched,
            others,
            error,
        };
        // The lock is not held: its server did not answer.
        if !is_list
            && let Some(reason) = block.lock_reason()
            && reason.class == Class::Transient
        {
            block.others.retain(|rule| rule.id != reason.id);
            block.others.extend(block.rule.replace(reason));
            block.matched = matched_text(reason, &text);
            block.class = Class::Transient;
        }
        block
    }

    /// Why the state could not be locked, if nothing says that another process holds the lock.
    pub(super) fn lock_reason(&self) -> Option<&'a Rule> {
        let is_refused =
            |text: &str| ["acquiring", "Error locking"].iter().any(|word| text.contains(word));
        let is_held = self.others.iter().any(|rule| rule.class == Class::Lock);
        if !self.rule?.is_builtin("state-lock")
            || is_held
            || !self.matched.as_deref().is_some_and(is_refused)
        {
            return None;
        }
        // `try-again` also knows what a system says of a file that is locked: `resource temporarily unavailable`.
        let mut others = self.others.iter().filter(|rule| !rule.is_builtin("try-again"));
        others.find(|rule| matches!(rule.class, Class::Auth | Class::Transient)).copied()
    }
}

/// The text that a rule matches.
fn matched_text(rule: &Rule, text: &str) -> Option<String> {
    let found = rule.regex.find(text.as_bytes())?;
    Some(String::from_utf8_lossy(found.as_bytes()).into_owned())
}
