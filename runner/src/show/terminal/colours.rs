//! Colours of a terminal.

/// A colour or weight, as the parameter of the escape code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::show) enum Style {
    Bold = 1,
    Faint = 2,
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

/// Whether the output has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::show) struct Colours(pub(in crate::show) bool);

impl Colours {
    /// The text in this style. The text must be clean.
    pub(in crate::show) fn paint(self, style: Style, text: &str) -> String {
        if self.0 && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", style as u8)
        } else {
            text.to_owned()
        }
    }
}
