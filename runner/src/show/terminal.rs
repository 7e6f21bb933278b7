//! Text on a terminal: cleaned, coloured, aligned, and shown by a pager. It does not know what the text is about.

pub(super) mod colours;
pub(super) mod painter;
pub(super) mod screen;
pub(super) mod spool;
pub(super) mod table;
