//! The order of layers: which may start, once those that they need have ended. Nothing here runs anything.

use std::collections::BTreeSet;

use crate::execute::layers::targets::Target;
use crate::order::inputs::LayerRef;
use crate::order::job::JobError;

/// Whether what a layer needs is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Met,
    /// This layer, before it, has failed or was blocked.
    Failed(usize),
}

/// The layers that have not started, and what each waits for.
#[derive(Debug)]
pub(crate) struct Order {
    /// By the index of a layer: those that come before it.
    before: Vec<BTreeSet<usize>>,
    waiting: BTreeSet<usize>,
    ended: BTreeSet<usize>,
    failed: BTreeSet<usize>,
    /// The failed layer after which no other one starts.
    stopped_by: Option<usize>,
}

impl Order {
    /// The order of these layers. `needs`: pairs `LAYER=NEEDED[,NEEDED...]` beside those of the manifests. `is_reversed`: a
    /// layer comes before those that it needs. `may_be_elsewhere`: what is needed and not among these layers is left to their
    /// runs, or does not matter.
    pub(super) fn new(
        targets: &[Target],
        needs: &[String],
        is_reversed: bool,
        may_be_elsewhere: bool,
    ) -> Result<Self, JobError> {
        let mut edges = Vec::new();
        for (index, target) in targets.iter().enumerate() {
            for need in &target.needs {
                match position(targets, need) {
                    Some(needed) => edges.push((index, needed)),
                    None if may_be_elsewhere => {}
                    None => return Err(unknown(&need.to_string(), &target.id())),
                }
            }
        }
        for text in needs {
            let (layer, needed) = text.split_once('=').ok_or_else(|| {
                JobError::Usage(format!("--needs `{text}`: expected LAYER=NEEDED[,NEEDED...]"))
            })?;
            let index = find(targets, layer.trim(), None)
                .ok_or_else(|| unknown(layer.trim(), "--needs"))?;
            for need in needed.split(',').map(str::trim) {
                match find(targets, need, Some(&targets[index])) {
                    Some(needed) => edges.push((index, needed)),
                    None if may_be_elsewhere => {}
                    None => return Err(unknown(need, "--needs")),
                }
            }
        }
        let mut before = vec![BTreeSet::new(); targets.len()];
        for (layer, needed) in edges {
            let (after, first) = if is_reversed { (needed, layer) } else { (layer, needed) };
            before[after].insert(first);
        }
        if let Some(cycle) = cycle(&before) {
            let names = cycle.iter().map(|index| targets[*index].id()).collect::<Vec<_>>();
            return Err(JobError::Config(format!(
                "layers need each other: {}: remove one of these needs (the annotation plancha/needs, an output that is taken, or \
                 --needs)",
                names.join(" -> ")
            )));
        }
        let waiting = (0..targets.len()).collect();
        let (ended, failed) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { before, waiting, ended, failed, stopped_by: None })
    }

    /// The next layer that may start, or that never will.
    pub(super) fn next(&mut self) -> Option<(usize, Need)> {
        let ready = |index: &usize| {
            if let Some(by) = self.stopped_by {
                return Some((*index, Need::Failed(by)));
            }
            if let Some(failed) = self.before[*index].intersection(&self.failed).next() {
                return Some((*index, Need::Failed(*failed)));
            }
            self.before[*index].is_subset(&self.ended).then_some((*index, Need::Met))
        };
        let (index, need) = self.waiting.iter().find_map(ready)?;
        self.waiting.remove(&index);
        if need != Need::Met {
            self.failed.insert(index);
        }
        Some((index, need))
    }

    /// Records the end of a layer that was started.
    pub(super) fn end(&mut self, index: usize, has_failed: bool) {
        if has_failed {
            self.failed.insert(index)
        } else {
            self.ended.insert(index)
        };
    }

    /// No other layer starts after this one.
    pub(super) fn stop(&mut self, index: usize) {
        self.stopped_by.get_or_insert(index);
    }
}

fn position(targets: &[Target], layer: &LayerRef) -> Option<usize> {
    targets
        .iter()
        .position(|target| target.namespace == layer.namespace && target.name == layer.name)
}

/// The layer of this name: in the namespace of the layer that needs it, or `NAMESPACE/NAME`.
fn find(targets: &[Target], name: &str, of: Option<&Target>) -> Option<usize> {
    if let Some((namespace, name)) = name.split_once('/') {
        let is_it = |target: &Target| {
            target.namespace.as_ref() == namespace && target.name.as_ref() == name
        };
        return targets.iter().position(is_it);
    }
    let is_near = |target: &Target| of.is_none_or(|of| of.namespace == target.namespace);
    targets.iter().position(|target| target.name.as_ref() == name && is_near(target))
}

fn unknown(name: &str, by: &str) -> JobError {
    JobError::Config(format!(
        "the layer `{name}`, which {by} names, is not among the layers of this command: name its manifest as well, or with \
         --datastore the datastore that knows how it is"
    ))
}

/// Layers that wait for each other, the first one also at the end.
fn cycle(before: &[BTreeSet<usize>]) -> Option<Vec<usize>> {
    let mut done = BTreeSet::new();
    for start in 0..before.len() {
        // The way from the start, each with what is still to be tried from there.
        let mut way = vec![(start, before[start].iter())];
        while let Some((at, rest)) = way.last_mut() {
            let at = *at;
            let Some(next) = rest.next() else {
                done.insert(at);
                way.pop();
                continue;
            };
            if let Some(from) = way.iter().position(|(known, _)| known == next) {
                let names = way[from..].iter().map(|(index, _)| *index);
                return Some(names.chain([*next]).collect());
            }
            if !done.contains(next) {
                way.push((*next, before[*next].iter()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(layers: &[(&str, &str)]) -> Vec<Target> {
        let target = |(name, needs): &(&str, &str)| Target {
            file: "x.yaml".into(),
            namespace: "default".parse().unwrap(),
            name: name.parse().unwrap(),
            needs: needs
                .split(' ')
                .filter(|need| !need.is_empty())
                .map(|need| LayerRef::parse(need, &"default".parse().unwrap()).unwrap())
                .collect(),
        };
        layers.iter().map(target).collect()
    }

    /// Runs all layers one by one; the named ones fail.
    fn run(layers: &[(&str, &str)], failing: &[&str], is_reversed: bool) -> Vec<String> {
        let targets = targets(layers);
        let mut order = Order::new(&targets, &[], is_reversed, false).unwrap();
        let mut ran = Vec::new();
        while let Some((index, need)) = order.next() {
            let name = targets[index].name.to_string();
            if need == Need::Met {
                order.end(index, failing.contains(&&*name));
                ran.push(name);
            } else {
                ran.push(format!("!{name}"));
            }
        }
        ran
    }

    #[test]
    fn a_layer_runs_after_those_that_it_needs_and_not_if_one_has_failed() {
        let layers = [("helm", "cluster"), ("cluster", "network"), ("network", ""), ("dns", "")];
        assert_eq!(run(&layers, &[], false), ["network", "cluster", "helm", "dns"]);
        assert_eq!(run(&layers, &[], true), ["helm", "cluster", "network", "dns"]);
        assert_eq!(run(&layers, &["network"], false), ["network", "!cluster", "!helm", "dns"]);
        assert_eq!(run(&layers, &["helm"], true), ["helm", "!cluster", "!network", "dns"]);
    }

    #[test]
    fn cycles_and_unknown_layers_are_refused() {
        let error = |layers: &[(&str, &str)], needs: &[&str]| {
            let needs = needs.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            Order::new(&targets(layers), &needs, false, false).unwrap_err().to_string()
        };
        let circle = error(&[("a", "b"), ("b", "c"), ("c", "a")], &[]);
        assert!(circle.contains("default/a -> default/b -> default/c -> default/a"), "{circle}");
        assert!(error(&[("a", "a")], &[]).contains("default/a -> default/a"));
        assert!(error(&[("a", "x")], &[]).contains("`default/x`"));
        assert!(error(&[("a", "")], &["a"]).contains("expected"));
        assert!(error(&[("a", "b"), ("b", "")], &["b=a"]).contains("need each other"));
    }
}
