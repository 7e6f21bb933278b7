//! The report without secrets.

use crate::process::redact::Redaction;
use crate::report::Report;
use crate::tool::diagnostics::Diagnostic;

impl Report {
    /// Masks the secrets in what is for people. What a later apply compares stays as it is.
    pub(crate) fn mask(&mut self, redaction: &Redaction) {
        let errors = self.errors.iter_mut().flat_map(Diagnostic::texts);
        let texts = self.message.iter_mut().chain(&mut self.hint).chain(errors);
        texts.for_each(|text| redaction.mask(text));
    }
}
