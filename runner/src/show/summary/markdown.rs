//! Text of others in Markdown (GitHub's, GitLab's): it is shown as it is, and cannot end the table, the block or the line
//! that it is in.

use std::fmt::Write as _;

use crate::process::text::{clean, one_line};

/// Longer runs of backticks are shortened: the fence around them would have to be longer still.
const MAX_BACKTICKS: usize = 64;
/// A longer text in a table is cut.
const MAX_CHARS: usize = 300;
/// In place of what is cut.
const CUT: &str = "… (cut: the summary has no more room)\n";

/// Text within a line: every character that may have a meaning in Markdown or HTML is written as an entity, which never
/// has one.
pub(super) fn inline(text: &str) -> String {
    escape(text, usize::MAX)
}

fn escape(text: &str, max_chars: usize) -> String {
    let text = one_line(text);
    let mut chars = text.chars().peekable();
    let (mut out, mut before, mut count) = (String::new(), ' ', 0);
    while let Some(c) = chars.next() {
        count += 1;
        if count > max_chars {
            out.push('…');
            break;
        }
        let is_plain = match c {
            ' ' | '-' | ',' | '/' | ';' | '=' | '+' | '(' | ')' | '"' | '\'' => true,
            // `://` and `www.` are in links, and an underscore at the edge of a word begins emphasis.
            ':' => chars.peek() != Some(&'/'),
            '.' => !matches!(before, 'w' | 'W'),
            '_' => {
                before.is_alphanumeric() && chars.peek().is_some_and(|next| next.is_alphanumeric())
            }
            c => c.is_alphanumeric(),
        };
        // A `String` is always writable.
        let _ = if is_plain { out.write_char(c) } else { write!(out, "&#{};", c as u32) };
        before = c;
    }
    out
}

/// The same in the font of code.
pub(super) fn code(text: &str) -> String {
    format!("<code>{}</code>", inline(text))
}

/// Text in a table, in the font of code. A long one is cut.
pub(super) fn cell(text: &str) -> String {
    format!("<code>{}</code>", escape(text, MAX_CHARS))
}

/// A block of code of at most `room` bytes, cut at a line if there is one. `None`: there is no room.
pub(super) fn block(text: &str, room: usize) -> Option<String> {
    cut_block(text, false, room)
}

/// The same, also for a text whose end is cut off already.
pub(super) fn cut_block(text: &str, is_cut: bool, room: usize) -> Option<String> {
    let mut text = shorten_backticks(&clean(text));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let fence = "`".repeat((longest_run(&text) + 1).max(3));
    let frame = 2 * fence.len() + "text\n".len() + "\n".len();
    if is_cut || frame + text.len() > room {
        let room = room.checked_sub(frame + CUT.len()).filter(|room| *room > 0)?;
        // The last line of a text that was cut may not be whole.
        let end = text.floor_char_boundary(room.min(text.len() - 1));
        text.truncate(text[..end].rfind('\n').map_or(end, |newline| newline + 1));
        text.push_str(CUT);
    }
    Some(format!("{fence}text\n{text}{fence}\n"))
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

fn shorten_backticks(text: &str) -> String {
    if longest_run(text) <= MAX_BACKTICKS {
        return text.to_owned();
    }
    let mut run = 0;
    let keep = |c: &char| {
        run = if *c == '`' { run + 1 } else { 0 };
        run <= MAX_BACKTICKS
    };
    text.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn inline_text_has_no_markup() {
        for (text, expected) in [
            ("module.a.aws_s3_bucket.b", "module.a.aws_s3_bucket.b"),
            ("a[\"x|y\"]", "a&#91;\"x&#124;y\"&#93;"),
            ("`<b>`\n**x**", "&#96;&#60;b&#62;&#96; &#42;&#42;x&#42;&#42;"),
            ("_x_ a_b", "&#95;x&#95; a_b"),
            ("www.x http://x", "www&#46;x http&#58;//x"),
            ("\x1b[2J\\|", "&#94;&#91;&#91;2J&#92;&#124;"),
            ("&lt; a: b", "&#38;lt; a: b"),
        ] {
            assert_eq!(inline(text), expected);
        }
        let long = "a".repeat(1000);
        assert_eq!(inline(&long), long);
        let cut = cell(&long);
        assert_eq!(cut.matches('a').count(), MAX_CHARS);
        assert!(cut.ends_with("a…</code>"), "{cut}");
    }

    #[test]
    fn block_is_cut_at_a_line() {
        let text = "0123456789\n".repeat(20);
        assert_eq!(block("a", 100).unwrap(), "```text\na\n```\n");
        let cut = block(&text, 100).unwrap();
        assert!(cut.len() <= 100, "{}", cut.len());
        assert!(cut.ends_with(&format!("6789\n{CUT}```\n")), "{cut}");
        assert_eq!(block(&text, 40), None);
        let long = block(&"long".repeat(100), 200).unwrap();
        assert!(long.len() == 200 && long.ends_with(&format!("long{CUT}```\n")), "{long}");
        let cut = cut_block("whole\npa", true, 100).unwrap();
        assert_eq!(cut, format!("```text\nwhole\n{CUT}```\n"));
    }

    /// The lines of a block without its fences, if nothing inside ends it.
    fn contents(block: &str) -> Option<Vec<&str>> {
        let mut lines = block.lines();
        let fence = lines.next()?.strip_suffix("text")?;
        let lines = lines.collect::<Vec<_>>();
        let (last, contents) = lines.split_last()?;
        // CommonMark: at least as many backticks as the first fence, and nothing else but spaces.
        let closes = |line: &str| {
            let rest = line.trim();
            rest.len() >= fence.len() && rest.chars().all(|c| c == '`')
        };
        let is_whole = closes(last) && !contents.iter().any(|line| closes(line));
        is_whole.then(|| contents.to_vec())
    }

    proptest! {
        #[test]
        fn no_text_ends_its_block(
            text in "([a|<`~\n \r\u{2028}]|```|~~~|</details>\n|````\n){0,60}",
            room in 20..400_usize,
            is_cut in any::<bool>(),
        ) {
            if let Some(block) = cut_block(&text, is_cut, room) {
                prop_assert!(block.len() <= room);
                prop_assert!(contents(&block).is_some(), "{}", block);
            }
            let whole = block(&text, usize::MAX).unwrap();
            let text = text.replace("\r\n", "\n").replace('\r', "\n").replace('\u{2028}', "<U+2028>");
            prop_assert_eq!(contents(&whole).unwrap().join("\n"), text.strip_suffix('\n').unwrap_or(&text));
        }

        #[test]
        fn no_text_leaves_its_cell(text in any::<String>()) {
            let cell = inline(&text);
            let is_safe = |c: char| c.is_alphanumeric() || " -,/;=+()\"':._&#…".contains(c);
            prop_assert!(cell.chars().all(is_safe), "{}", cell);
            prop_assert!(!cell.contains("://") && !cell.to_lowercase().contains("www."));
            // Every `&` begins an entity.
            for rest in cell.split('&').skip(1) {
                let digits = rest.strip_prefix('#').and_then(|rest| rest.split_once(';')).unwrap().0;
                prop_assert!(digits.chars().all(|c| c.is_ascii_digit()) && !digits.is_empty());
            }
        }
    }

    #[test]
    fn endless_backticks_do_not_fill_the_summary() {
        let block = block(&"`".repeat(1 << 20), 1 << 20).unwrap();
        assert!(block.len() < 300, "{}", block.len());
        assert_eq!(contents(&block).unwrap(), ["`".repeat(MAX_BACKTICKS)]);
    }
}
