//! Columns of text.

use crate::show::terminal::colours::{Colours, Style};

/// A cell: its clean text, and its style.
#[derive(Clone, Debug)]
pub(in crate::show) struct Cell {
    pub(in crate::show) text: String,
    pub(in crate::show) style: Option<Style>,
}

impl Cell {
    pub(in crate::show) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), style: None }
    }

    pub(in crate::show) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style: Some(style) }
    }
}

/// The rows as aligned lines. A column without any text is left out, except the first.
pub(in crate::show) fn aligned<const N: usize>(
    head: [&str; N],
    rows: &[[Cell; N]],
    colours: Colours,
) -> String {
    let width = |column: usize| {
        let texts = rows.iter().map(|row| row[column].text.chars().count());
        match texts.max().unwrap_or(0) {
            0 if column > 0 => 0,
            longest => longest.max(head[column].len()),
        }
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let head = head.map(|title| Cell::styled(title, Style::Bold));
    let mut lines = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        let mut gap = 0;
        for (cell, width) in row.iter().zip(widths).filter(|(_, width)| *width > 0) {
            // Spaces at the end of a line are not written.
            if !cell.text.is_empty() {
                line.push_str(&" ".repeat(std::mem::take(&mut gap)));
                match cell.style {
                    Some(style) => line.push_str(&colours.paint(style, &cell.text)),
                    None => line.push_str(&cell.text),
                }
            }
            gap += width - cell.text.chars().count() + 2;
        }
        lines.push_str(&line);
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let row = |texts: [&str; 4]| texts.map(Cell::new);
        let rows = [row(["é", "", "long text", "x"]), row(["longer", "", "", "y"])];
        let text = aligned(["A", "B", "C", "D"], &rows, Colours(false));
        assert_eq!(text, "A       C          D\né       long text  x\nlonger             y\n");
        let rows = [[Cell::styled("a", Style::Red), Cell::new("b")]];
        let text = aligned(["", "B"], &rows, Colours(true));
        assert_eq!(text, "   \x1b[1mB\x1b[0m\n\x1b[31ma\x1b[0m  b\n");
    }
}
