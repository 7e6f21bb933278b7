//! What the runner and its worker say to each other: the policy as one line of JSON, and after it the plan.

use std::fs::File;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

/// A policy.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question {
    pub(super) is_v0: bool,
    pub(super) modules: Vec<Module>,
    pub(super) data: Vec<Document>,
}

/// A file of Rego.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) text: String,
}

/// A file of data.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Document {
    pub(super) name: String,
    /// The names in `data` below which its contents are.
    pub(super) below: Vec<String>,
    pub(super) text: String,
}

/// What the policy says of a plan.
#[derive(Debug, Default)]
pub(in crate::policy) struct Messages {
    pub(in crate::policy) denials: Vec<String>,
    pub(in crate::policy) warnings: Vec<String>,
}

/// What the worker answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Messages {
        denials: Vec<String>,
        warnings: Vec<String>,
    },
    /// What is wrong with the policy, and where.
    Invalid(String),
}

impl Question {
    /// Writes the question about a plan, or whether the policy is valid.
    pub(super) fn write(&self, plan: Option<File>, mut to: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut to, self)?;
        to.write_all(b"\n")?;
        if let Some(mut plan) = plan {
            io::copy(&mut plan, &mut to)?;
        }
        Ok(())
    }

    /// Reads a question. Without a plan it is whether the policy is valid.
    pub(super) fn read(mut from: impl BufRead) -> io::Result<(Self, Option<String>)> {
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line)?;
        let question = serde_json::from_slice(&line)?;
        drop(line);
        let mut plan = String::new();
        from.read_to_string(&mut plan)?;
        Ok((question, (!plan.is_empty()).then_some(plan)))
    }
}
