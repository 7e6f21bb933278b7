//! The outline of an HCL file: its blocks and attributes, with each value as text.
//!
//! The parser rejects some valid HCL: a line break after an operator in a `for` object, duplicate keys of an object, deep
//! nesting. This module finds the blocks and attributes of such files, and of future syntax. It understands comments,
//! strings with escapes and interpolation, heredocs and brackets, but no expressions. It never fails: in a broken file it
//! finds as much as it can.
//!
//! Time is linear in the size of the text, and nesting costs heap, not stack.

/// The deepest level of blocks that is read.
const MAX_DEPTH: usize = 4;

/// The blocks and attributes of a file with the requested names.
#[derive(Debug, Default)]
pub(super) struct Outline<'a> {
    /// In the order of the file.
    pub(super) blocks: Vec<Block<'a>>,
    /// In the order of the file.
    pub(super) attributes: Vec<Attribute<'a>>,
}

/// A block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block<'a> {
    /// The index of the block that holds it; `None` at the top of the file.
    pub(super) parent: Option<usize>,
    pub(super) kind: &'a str,
    /// Its first label without quotes; escapes in it are kept as they are written.
    pub(super) label: Option<&'a str>,
}

/// An attribute.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attribute<'a> {
    /// The index of the block that holds it; `None` at the top of the file.
    pub(super) block: Option<usize>,
    pub(super) name: &'a str,
    /// Its expression, as it is written.
    pub(super) value: &'a str,
    /// From 1.
    pub(super) line: usize,
}

impl<'a> Outline<'a> {
    /// Reads a file. Only blocks and attributes with one of `names` are kept, and only inside of blocks
    /// that are kept.
    pub(super) fn read(text: &'a str, names: &'a [&'a str]) -> Self {
        Scanner {
            text,
            names,
            outline: Self::default(),
            frames: Vec::new(),
            kept: Vec::new(),
            skipped: 0,
            markers: Vec::new(),
            statement: Statement::Start,
            at: 0,
            end: 0,
            newlines: 0,
            counted: 0,
        }
        .run()
    }

    /// The blocks around an attribute, the outermost first.
    pub(super) fn path(&self, attribute: &Attribute<'_>) -> Vec<&Block<'a>> {
        let mut path = Vec::new();
        let mut next = attribute.block;
        while let Some(block) = next.and_then(|index| self.blocks.get(index)) {
            path.push(block);
            next = block.parent;
        }
        path.reverse();
        path
    }
}

/// What surrounds the current position. One byte each: a file may be nothing but brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// The body of a block.
    Body,
    /// Parentheses, a list, an object or an interpolation: no statement begins here.
    Bracket,
    /// A quoted template.
    Quote,
    /// A heredoc template; its marker is the last of the markers.
    Heredoc,
}

/// How far the statement of the innermost body is read.
#[derive(Clone, Copy, Debug)]
enum Statement<'a> {
    Start,
    /// A name, and perhaps labels.
    Header {
        name: &'a str,
        line: usize,
        label: Option<&'a str>,
    },
    /// After `name =`, and where the value begins, once it has.
    Value {
        name: &'a str,
        line: usize,
        start: Option<usize>,
    },
    /// Anything else, up to the end of the line.
    Other,
}

struct Scanner<'a> {
    text: &'a str,
    names: &'a [&'a str],
    outline: Outline<'a>,
    frames: Vec<Frame>,
    /// The indices of the kept blocks around the current position.
    kept: Vec<usize>,
    /// How many blocks of no interest are around it, inside of those.
    skipped: usize,
    /// The markers of the open heredocs.
    markers: Vec<&'a str>,
    /// Of the innermost body: a block inside of it begins where a statement ends.
    statement: Statement<'a>,
    at: usize,
    /// Where the last token ended, without white space and comments.
    end: usize,
    /// The number of newlines before `counted`.
    newlines: usize,
    counted: usize,
}

impl<'a> Scanner<'a> {
    fn run(mut self) -> Outline<'a> {
        while self.at < self.text.len() {
            match self.frames.last() {
                Some(Frame::Quote) => self.quoted(),
                Some(Frame::Heredoc) => self.heredoc(),
                None | Some(Frame::Body | Frame::Bracket) => self.code(),
            }
        }
        self.end_statement();
        self.outline
    }

    fn byte(&self, offset: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + offset).copied()
    }

    /// Whether the current position is directly in a body.
    fn in_body(&self) -> bool {
        matches!(self.frames.last(), None | Some(Frame::Body))
    }

    /// The line of the current position. Called with growing positions only.
    fn line(&mut self) -> usize {
        let passed = &self.text.as_bytes()[self.counted..self.at];
        self.newlines += memchr::memchr_iter(b'\n', passed).count();
        self.counted = self.at;
        self.newlines + 1
    }

    /// One token outside of templates, or white space, or a comment.
    fn code(&mut self) {
        let Some(byte) = self.byte(0) else { return };
        match (byte, self.byte(1)) {
            (b'\n', _) => {
                if self.in_body() {
                    self.end_statement();
                }
                self.at += 1;
            }
            (b' ' | b'\t' | b'\r', _) => self.at += 1,
            (b'#', _) | (b'/', Some(b'/')) => self.at = self.find(self.at, b'\n'),
            (b'/', Some(b'*')) => {
                let rest = &self.text.as_bytes()[self.at + 2..];
                let end = memchr::memmem::find(rest, b"*/");
                self.at = end.map_or(self.text.len(), |end| self.at + 2 + end + 2);
            }
            (b'"', _) => self.quote(),
            (b'<', Some(b'<')) => self.open_heredoc(),
            (b'{' | b'(' | b'[', _) => self.open(byte),
            (b'}' | b')' | b']', _) => self.close(byte),
            _ if is_word(byte) => self.word(),
            (b'=', next) => self.equals(next),
            _ => {
                self.token();
                self.at += 1;
                self.end = self.at;
            }
        }
    }

    /// The first `byte` from there on, or the end of the text.
    fn find(&self, from: usize, byte: u8) -> usize {
        let found = memchr::memchr(byte, &self.text.as_bytes()[from..]);
        found.map_or(self.text.len(), |found| from + found)
    }

    /// A token that no header has begins here.
    fn token(&mut self) {
        if self.in_body() {
            let at = self.at;
            match &mut self.statement {
                Statement::Value { start, .. } => {
                    start.get_or_insert(at);
                }
                other => *other = Statement::Other,
            }
        }
    }

    fn word(&mut self) {
        let end = self.word_end(self.at);
        let word = &self.text[self.at..end];
        match self.statement {
            Statement::Start if self.in_body() => {
                let line = self.line();
                self.statement = Statement::Header { name: word, line, label: None };
            }
            Statement::Header { name, line, label } if self.in_body() => {
                self.statement = Statement::Header { name, line, label: label.or(Some(word)) };
            }
            _ => self.token(),
        }
        self.at = end;
        self.end = end;
    }

    fn word_end(&self, start: usize) -> usize {
        let rest = &self.text.as_bytes()[start..];
        rest.iter().position(|byte| !is_word(*byte)).map_or(self.text.len(), |len| start + len)
    }

    fn equals(&mut self, next: Option<u8>) {
        match self.statement {
            Statement::Header { name, line, label: None }
                if self.in_body() && next != Some(b'=') =>
            {
                self.statement = Statement::Value { name, line, start: None };
            }
            _ => self.token(),
        }
        self.at += 1;
        self.end = self.at;
    }

    fn quote(&mut self) {
        match self.statement {
            // A label has no interpolation.
            Statement::Header { name, line, label } if self.in_body() => {
                self.at += 1;
                let text = self.label();
                self.statement = Statement::Header { name, line, label: label.or(Some(text)) };
            }
            _ => {
                self.token();
                self.at += 1;
                self.frames.push(Frame::Quote);
            }
        }
    }

    /// The rest of a quoted label, up to its end or that of the line.
    fn label(&mut self) -> &'a str {
        let start = self.at;
        let mut end = start;
        while let Some(byte) = self.byte(0).filter(|byte| *byte != b'\n') {
            if byte == b'\\' {
                self.skip_escaped();
            } else {
                self.at += 1;
            }
            if byte == b'"' {
                break;
            }
            end = self.at;
        }
        self.end = self.at;
        &self.text[start..end]
    }

    /// A backslash and the character after it.
    fn skip_escaped(&mut self) {
        self.at += 1;
        if self.byte(0).is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
        self.skip_continuation_bytes();
    }

    /// On to the beginning of a character.
    fn skip_continuation_bytes(&mut self) {
        while !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
    }

    /// A piece of a quoted template.
    fn quoted(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        let special = rest.iter().position(|byte| b"\"\\$%\n".contains(byte));
        self.at = special.map_or(self.text.len(), |special| self.at + special);
        match self.byte(0) {
            // A string does not go on in the next line: it is broken.
            Some(b'\n') => drop(self.frames.pop()),
            Some(b'"') => {
                self.frames.pop();
                self.at += 1;
                self.end = self.at;
            }
            Some(b'\\') => self.skip_escaped(),
            Some(mark @ (b'$' | b'%')) => self.marks(mark),
            _ => {}
        }
    }

    /// One or more `$` or `%`: a single one before a brace begins an interpolation or a directive; more
    /// are its escape.
    fn marks(&mut self, mark: u8) {
        let rest = &self.text.as_bytes()[self.at..];
        let count = rest.iter().take_while(|byte| **byte == mark).count();
        self.at += count;
        if self.byte(0) == Some(b'{') {
            self.at += 1;
            if count == 1 {
                self.frames.push(Frame::Bracket);
            }
        }
    }

    /// `<<MARKER` or `<<-MARKER` and the end of the line; anything else is two operators.
    fn open_heredoc(&mut self) {
        self.token();
        let start = self.at + 2 + usize::from(self.byte(2) == Some(b'-'));
        let marker = &self.text[start..self.word_end(start)];
        let rest = &self.text[start + marker.len()..];
        let newline = ["\n", "\r\n"].into_iter().find(|newline| rest.starts_with(newline));
        self.at += 2;
        self.end = self.at;
        if let Some(newline) = newline.filter(|_| !marker.is_empty()) {
            self.at = start + marker.len() + newline.len();
            self.frames.push(Frame::Heredoc);
            self.markers.push(marker);
            self.end_heredoc();
        }
    }

    /// A piece of a heredoc, up to the beginning of the next line.
    fn heredoc(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        let special = rest.iter().position(|byte| b"$%\n".contains(byte));
        self.at = special.map_or(self.text.len(), |special| self.at + special);
        match self.byte(0) {
            Some(b'\n') => {
                self.at += 1;
                self.end_heredoc();
            }
            Some(mark @ (b'$' | b'%')) => self.marks(mark),
            _ => {}
        }
    }

    /// At the beginning of a line: ends the heredoc if the line is its marker.
    fn end_heredoc(&mut self) {
        let Some(marker) = self.markers.last() else { return };
        let end = self.find(self.at, b'\n');
        let line = &self.text[self.at..end];
        if line.trim() == *marker {
            self.end = self.at + line.trim_end().len();
            self.at = end;
            self.markers.pop();
            self.frames.pop();
        }
    }

    fn open(&mut self, byte: u8) {
        let in_body = self.in_body();
        match self.statement {
            Statement::Header { name, label, .. } if in_body && byte == b'{' => {
                self.frames.push(Frame::Body);
                self.statement = Statement::Start;
                if self.skipped == 0 && self.kept.len() < MAX_DEPTH && self.names.contains(&name) {
                    let parent = self.kept.last().copied();
                    self.kept.push(self.outline.blocks.len());
                    self.outline.blocks.push(Block { parent, kind: name, label });
                } else {
                    self.skipped += 1;
                }
            }
            _ => {
                self.token();
                self.frames.push(Frame::Bracket);
            }
        }
        self.at += 1;
        self.end = self.at;
    }

    fn close(&mut self, byte: u8) {
        match self.frames.last() {
            Some(Frame::Body) if byte == b'}' => {
                self.end_statement();
                self.frames.pop();
                match self.skipped.checked_sub(1) {
                    Some(skipped) => self.skipped = skipped,
                    None => drop(self.kept.pop()),
                }
            }
            Some(Frame::Bracket) => drop(self.frames.pop()),
            _ => self.token(),
        }
        self.at += 1;
        self.end = self.at;
    }

    /// Keeps the attribute that ends here, if it is one of interest.
    fn end_statement(&mut self) {
        let statement = std::mem::replace(&mut self.statement, Statement::Start);
        let Statement::Value { name, line, start: Some(start) } = statement else { return };
        if self.skipped == 0
            && self.names.contains(&name)
            && let Some(value) = self.text.get(start..self.end)
        {
            let block = self.kept.last().copied();
            self.outline.attributes.push(Attribute { block, name, value, line });
        }
    }
}

/// Whether a byte may be in a name or a number. Every character that is not ASCII may.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || !byte.is_ascii()
}

#[cfg(test)]
mod tests;
