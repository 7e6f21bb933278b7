//! Marks beside a value: which parts of it are sensitive, or not known before the apply.
//!
//! Marks have the form of their value: `true` marks a part with all below it, `false` none. Objects leave out what has no mark,
//! lists do not.

use crate::changes::value::Node;

/// The marks of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Marks<'a> {
    /// Nothing is marked.
    Clear,
    /// All of it is.
    All,
    /// Some parts are.
    Some(&'a Node, Doubt),
}

/// What holds for a value whose marks have another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    Marked,
    Clear,
}

impl<'a> Marks<'a> {
    /// What is sensitive. A value without marks is: they may be lost, or be of a tool that has none.
    pub(super) fn sensitive(marks: Option<&'a Node>) -> Self {
        Self::of(marks, Doubt::Marked)
    }

    /// What is not known before the apply.
    pub(super) fn unknown(marks: Option<&'a Node>) -> Self {
        Self::of(marks, Doubt::Clear)
    }

    fn of(marks: Option<&'a Node>, doubt: Doubt) -> Self {
        match marks {
            Some(Node::Bool(true)) => Self::All,
            Some(Node::Bool(false)) => Self::Clear,
            Some(marks @ (Node::List(_) | Node::Object(_))) => Self::Some(marks, doubt),
            _ => doubt.into(),
        }
    }

    /// Those of the member of an object.
    pub(super) fn member(self, key: &str) -> Self {
        match self {
            Self::Some(marks @ Node::Object(_), doubt) => match marks.get(key) {
                None => Self::Clear,
                marks => Self::of(marks, doubt),
            },
            Self::Some(_, doubt) => doubt.into(),
            whole => whole,
        }
    }

    /// Those of an element of a list that has this many.
    pub(super) fn element(self, at: usize, of: usize) -> Self {
        match self {
            Self::Some(Node::List(marks), doubt) if marks.len() == of => {
                Self::of(marks.get(at), doubt)
            }
            Self::Some(_, doubt) => doubt.into(),
            whole => whole,
        }
    }

    pub(super) fn is_all(self) -> bool {
        matches!(self, Self::All)
    }

    /// Whether anything is marked, also what the value does not have.
    pub(super) fn any(self) -> bool {
        match self {
            Self::Clear => false,
            Self::All => true,
            Self::Some(marks, _) => marks.has_true(),
        }
    }

    /// Whether any part of this value is marked. Null has nothing to hide.
    pub(super) fn covers(self, value: &Node) -> bool {
        match (self, value) {
            (Self::Clear, _) | (_, Node::Null) => false,
            (Self::All, _) => true,
            (_, Node::Object(members)) => {
                members.iter().any(|(key, value)| self.member(key).covers(value))
            }
            (_, Node::List(list)) => list
                .iter()
                .enumerate()
                .any(|(at, value)| self.element(at, list.len()).covers(value)),
            (Self::Some(_, doubt), _) => doubt == Doubt::Marked,
        }
    }

    /// The keys that are marked in an object.
    pub(super) fn keys(self) -> impl Iterator<Item = &'a str> {
        let members = match self {
            Self::Some(Node::Object(members), _) => members.as_slice(),
            _ => &[],
        };
        members.iter().map(|(key, _)| &**key)
    }
}

impl From<Doubt> for Marks<'_> {
    fn from(doubt: Doubt) -> Self {
        match doubt {
            Doubt::Marked => Self::All,
            Doubt::Clear => Self::Clear,
        }
    }
}
