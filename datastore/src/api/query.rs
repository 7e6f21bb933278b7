//! The query of a request, parsed once: text by name, not yet typed.

use std::ops::Range;

use url::form_urlencoded;

/// The parameters of a query in their order. A query has few of them, so a lookup is a linear search.
#[derive(Debug, Default)]
pub(crate) struct RawQuery {
    /// Names and values, decoded, one after the other: one allocation for all of them.
    text: String,
    parameters: Vec<(Range<usize>, Range<usize>)>,
}

impl RawQuery {
    pub(crate) fn parse(query: &str) -> Self {
        let mut parsed = Self::default();
        if query.is_empty() {
            return parsed;
        }
        parsed.text.reserve(query.len());
        parsed.parameters.reserve(1 + query.bytes().filter(|&byte| byte == b'&').count());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let (name, value) = (parsed.push(&name), parsed.push(&value));
            parsed.parameters.push((name, value));
        }
        parsed
    }

    /// Adds a parameter of the path.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        let parameter = (self.push(name), self.push(value));
        self.parameters.push(parameter);
    }

    fn push(&mut self, text: &str) -> Range<usize> {
        let start = self.text.len();
        self.text.push_str(text);
        start..self.text.len()
    }

    /// The value of a parameter; an empty one is missing.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let (_, value) =
            self.parameters.iter().find(|(given, _)| self.text[given.clone()] == *name)?;
        Some(&self.text[value.clone()]).filter(|value| !value.is_empty())
    }

    /// How often a parameter is given, also without a value.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.parameters.iter().filter(|(given, _)| self.text[given.clone()] == *name).count()
    }
}
