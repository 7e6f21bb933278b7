//! What was found about the credentials of a run.

use std::fmt;

use crate::tool::preflight::expiry::Expiry;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// What is certain to fail.
    pub(crate) refused: Vec<Refusal>,
    pub(crate) warnings: Vec<String>,
    pub(crate) expiries: Vec<Expiry>,
}

/// Credentials that cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What is wrong with which credentials of which provider or backend.
    pub(crate) text: String,
    pub(crate) hint: String,
}

impl Findings {
    /// Something that fails, and for certain if it `is_certain`.
    pub(super) fn add(&mut self, is_certain: bool, text: String, hint: &str) {
        if is_certain {
            self.refused.push(Refusal { text, hint: hint.to_owned() });
        } else {
            self.warnings.push(format!("{text}. If it is used, the run fails: {hint}"));
        }
    }
}

impl Refusal {
    /// All of them as one, each once.
    pub(crate) fn joined(refused: Vec<Self>) -> Option<Self> {
        let mut refused = refused.into_iter();
        let mut all = refused.next()?;
        for Self { text, .. } in refused {
            if !all.text.contains(&text) {
                all.text = format!("{}; {text}", all.text);
            }
        }
        Some(all)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
