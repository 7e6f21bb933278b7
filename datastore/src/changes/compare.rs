//! What changes between two values of a plan, attribute by attribute.

use std::collections::BTreeSet;

use crate::changes::marks::Marks;
use crate::changes::secrets::Secrets;
use crate::changes::value::Node;

/// The most elements of a list that is shown as one value.
const MAX_SHORT: usize = 100;

/// A step of the path of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// An attribute that changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribute<'a, 'p> {
    pub(super) path: &'p [Step<'a>],
    /// The values; none is null.
    pub(super) before: Option<&'a Node>,
    pub(super) after: Option<&'a Node>,
    /// Its values must not be shown.
    pub(super) sensitive: bool,
    /// What of it is not known before the apply.
    pub(super) unknown: Unknown,
}

/// What of a value is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    Nothing,
    Part,
    All,
}

/// Two values and their marks.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) before: Option<&'a Node>,
    pub(super) after: Option<&'a Node>,
    pub(super) hidden_before: Marks<'a>,
    pub(super) hidden_after: Marks<'a>,
    pub(super) unknown: Marks<'a>,
}

/// Compares two values, and passes on what changes.
pub(super) struct Comparison<'a, 's, F> {
    path: Vec<Step<'a>>,
    secrets: &'s mut Secrets,
    found: F,
}

impl<'a> Pair<'a> {
    /// Adds its sensitive texts.
    pub(super) fn collect(&self, secrets: &mut Secrets) {
        for (value, marks) in [(self.before, self.hidden_before), (self.after, self.hidden_after)] {
            if let Some(value) = value {
                secrets.collect(value, marks);
            }
        }
    }

    /// Whether any part of it is sensitive.
    pub(super) fn is_hidden(&self) -> bool {
        self.before.is_some_and(|value| self.hidden_before.covers(value))
            || self.after.is_some_and(|value| self.hidden_after.covers(value))
    }

    pub(super) fn unknown(&self) -> Unknown {
        match self.unknown {
            marks if marks.is_all() => Unknown::All,
            marks if marks.any() => Unknown::Part,
            _ => Unknown::Nothing,
        }
    }

    fn is_changed(&self) -> bool {
        self.before != self.after || self.unknown.any()
    }

    fn member(&self, key: &str) -> Self {
        Self {
            before: self.before.and_then(|value| value.get(key)),
            after: self.after.and_then(|value| value.get(key)),
            hidden_before: self.hidden_before.member(key),
            hidden_after: self.hidden_after.member(key),
            unknown: self.unknown.member(key),
        }
    }

    /// An element of the lists `before` and `after`, at these places.
    fn element(
        &self,
        before: (&'a [Node], Option<usize>),
        after: (&'a [Node], Option<usize>),
    ) -> Self {
        let marks = |marks: Marks<'a>, (list, at): (&[Node], Option<usize>)| {
            at.map_or(Marks::Clear, |at| marks.element(at, list.len()))
        };
        let value = |(list, at): (&'a [Node], Option<usize>)| list.get(at?);
        Self {
            before: value(before),
            after: value(after),
            hidden_before: marks(self.hidden_before, before),
            hidden_after: marks(self.hidden_after, after),
            unknown: marks(self.unknown, after),
        }
    }
}

impl<'a, F: FnMut(Attribute<'a, '_>)> Comparison<'a, '_, F> {
    pub(super) fn new(secrets: &mut Secrets, found: F) -> Comparison<'a, '_, F> {
        Comparison { path: Vec::new(), secrets, found }
    }

    /// Passes on what changes in a pair, and collects all its sensitive texts.
    pub(super) fn compare(&mut self, pair: Pair<'a>) {
        // A value that is null is like one that is missing.
        let present = |value: Option<&'a Node>| value.filter(|value| **value != Node::Null);
        let pair = Pair { before: present(pair.before), after: present(pair.after), ..pair };
        if pair.hidden_before.is_all() || pair.hidden_after.is_all() || pair.unknown.is_all() {
            return self.leaf(pair);
        }
        match (pair.before, pair.after) {
            (Some(Node::Object(_)), None | Some(Node::Object(_)))
            | (None, Some(Node::Object(_))) => self.objects(pair),
            (Some(Node::List(before)), Some(Node::List(after))) => self.lists(pair, before, after),
            (Some(Node::List(before)), None) => self.lists(pair, before, &[]),
            (None, Some(Node::List(after))) => self.lists(pair, &[], after),
            _ => self.leaf(pair),
        }
    }

    /// A pair that is not divided any further.
    fn leaf(&mut self, pair: Pair<'a>) {
        pair.collect(self.secrets);
        if !pair.is_changed() {
            return;
        }
        let marked = pair.hidden_before.is_all() || pair.hidden_after.is_all();
        let Pair { before, after, .. } = pair;
        let (sensitive, unknown) = (marked || pair.is_hidden(), pair.unknown());
        (self.found)(Attribute { path: &self.path, before, after, sensitive, unknown });
    }

    fn at(&mut self, step: Step<'a>, pair: Pair<'a>) {
        self.path.push(step);
        self.compare(pair);
        self.path.pop();
    }

    fn objects(&mut self, pair: Pair<'a>) {
        let keys = |value: Option<&'a Node>| match value {
            Some(Node::Object(members)) => members.as_slice(),
            _ => &[],
        };
        let values = keys(pair.before).iter().chain(keys(pair.after)).map(|(key, _)| &**key);
        let keys = values.chain(pair.unknown.keys()).collect::<BTreeSet<&'a str>>();
        if keys.is_empty() {
            return self.leaf(pair);
        }
        for key in keys {
            self.at(Step::Key(key), pair.member(key));
        }
    }

    fn lists(&mut self, pair: Pair<'a>, before: &'a [Node], after: &'a [Node]) {
        let is_clear = !pair.is_hidden() && !pair.unknown.any();
        let is_short =
            |list: &[Node]| list.len() <= MAX_SHORT && list.iter().all(Node::is_whole_scalar);
        if is_clear && is_short(before) && is_short(after) {
            return self.leaf(pair);
        }
        // Elements are compared by their places; before that, equal ones at both ends are put aside.
        let (mut start, mut end) = (0, 0);
        let shorter = before.len().min(after.len());
        if is_clear {
            start = before.iter().zip(after).take_while(|(a, b)| a == b).count();
            let ends = before.iter().rev().zip(after.iter().rev());
            end = ends.take(shorter - start).take_while(|(a, b)| a == b).count();
        }
        for at in start..before.len().max(after.len()) - end {
            let place = |list: &[Node]| (at < list.len() - end).then_some(at);
            let element = pair.element((before, place(before)), (after, place(after)));
            self.at(Step::Index(at), element);
        }
    }
}
