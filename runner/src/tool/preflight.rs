//! The credentials of a run, before the tool is started. What is certain to fail is refused; everything else that looks wrong is
//! a warning.
//!
//! A provider counts only if the configuration uses it, and a variable only if no setting of the provider or the backend
//! replaces it. Where the configuration cannot be read completely, nothing is certain.

mod aws;
mod azure;
mod configuration;
mod expiry;
mod findings;
mod google;
mod http;
mod jwt;
mod online;
mod question;
mod signature;
mod token;
mod variables;
mod vault;

pub(crate) use aws::{METADATA_DISABLED, ask_metadata_service};
pub(crate) use configuration::Configuration;
pub(crate) use findings::{Findings, Refusal};
pub(crate) use jwt::expires as token_expires;
pub(crate) use online::ask;
pub(crate) use question::Question;
pub(crate) use variables::credentials;

/// Examines variables and files. Nothing is asked.
pub(crate) fn examine(question: &Question<'_>) -> Findings {
    let mut findings = Findings::default();
    aws::examine(question, &mut findings);
    azure::examine(question, &mut findings);
    google::examine(question, &mut findings);
    token::examine_kubernetes(question, &mut findings);
    findings
}
