//! The separator of `--unflatten`.

use std::fmt;
use std::str::FromStr;

/// What stands for `/` in the names of a flat directory, such as `__` in `modules__net__main.tf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Separator(String);

impl FromStr for Separator {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Err("it is empty"),
            "." => Err("it is in every name of a file; `__` is usual"),
            _ if text.contains(['/', '\0']) => Err("a name of a file cannot contain it"),
            _ => Ok(Self(text.to_owned())),
        }
    }
}

impl fmt::Display for Separator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Separator {
    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_can_be_in_a_name_but_not_in_every_name() {
        for text in ["", ".", "/", "a/b"] {
            text.parse::<Separator>().unwrap_err();
        }
    }
}
