//! What lies at a path: [`Key::path`] the other way round, for those who tend the storage.

use std::collections::HashSet;

use datastore_api::{AppliedKey, BundleKey, File, PlanFormat, RunKey, Sha256};

use crate::kind::Kind;
use crate::store::run_index::entry::parse_entry;
use crate::store::{Key, Object};

/// Runs by which entries of the index are known again.
#[derive(Debug, Default)]
pub struct KnownRuns(HashSet<String>);

impl Key {
    /// What kind of artifact it is.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::File(_, _, file) => file.into(),
            Self::Bundle(_) => Kind::Bundle,
            Self::Applied(_) => Kind::Artifact,
        }
    }

    /// The artifact at this path; `None` if none of ours could lie there.
    pub fn at(path: &str) -> Option<Self> {
        let (kind, rest) = path.split_once('/')?;
        let (namespace, rest) = rest.split_once('/')?;
        let (name, rest) = rest.split_once('/')?;
        let key = match kind {
            "layers" => {
                let (run, rest) = rest.split_once('/')?;
                let (attempt, file) = rest.split_once('/')?;
                let (namespace, layer) = (namespace.parse().ok()?, name.parse().ok()?);
                let run = RunKey { namespace, layer, run: run.parse().ok()? };
                Self::File(run, attempt.parse().ok()?, named(file)?)
            }
            "repositories" => {
                let (git_ref, revision) = rest.rsplit_once('/')?;
                let (namespace, name) = (namespace.parse().ok()?, name.parse().ok()?);
                let revision = revision.strip_suffix(".gitbundle")?.parse().ok()?;
                Self::Bundle(BundleKey {
                    namespace,
                    name,
                    git_ref: git_ref.parse().ok()?,
                    revision,
                })
            }
            ".plancha" if namespace == "applied" => {
                let (layer, plan) = rest.split_once('/')?;
                let (namespace, layer) = (name.parse().ok()?, layer.parse().ok()?);
                Self::Applied(AppliedKey { namespace, layer, plan: plan.parse().ok()? })
            }
            _ => return None,
        };
        // What is written in another way is something else.
        (key.place()? == path).then_some(key)
    }

    /// Where it lies; `None` if its names are too long together.
    pub fn place(&self) -> Option<String> {
        self.path().ok().map(Into::into)
    }
}

fn named(file: &str) -> Option<File> {
    let upstreams = PlanFormat::ALL.map(File::Plan).into_iter().chain([File::Log]);
    let known = upstreams.into_iter().find(|known| known.name() == file);
    known.or_else(|| file.parse().ok().map(File::Other))
}

impl KnownRuns {
    /// Adds a run.
    pub fn insert(&mut self, run: &RunKey) {
        let RunKey { namespace, layer, run } = run;
        self.0.insert(format!("{namespace}/{layer}/-{run}"));
        self.0.insert(format!("{namespace}/{layer}/~{}", Sha256::of(run.as_ref().as_bytes())));
    }

    /// Whether an entry of the index is that of one of these.
    pub fn has(&self, entry: &Object) -> bool {
        run_of(entry).is_some_and(|run| self.0.contains(&run))
    }
}

impl Object {
    /// Whether it is the entry of a run in the index.
    pub fn is_of_a_run(&self) -> bool {
        run_of(self).is_some()
    }

    /// When the run of an index entry began, as the entry's name says.
    pub fn run_began(&self) -> Option<jiff::Timestamp> {
        let (_, name) = self.key.strip_prefix(INDEX)?.rsplit_once('/')?;
        let (millisecond, _) = parse_entry(name)?;
        jiff::Timestamp::from_millisecond(millisecond).ok()
    }
}

fn run_of(entry: &Object) -> Option<String> {
    let (layer, name) = entry.key.strip_prefix(INDEX)?.rsplit_once('/')?;
    let (_, run) = parse_entry(name)?;
    Some(format!("{layer}/{run}"))
}

/// Where the index of runs lies.
pub const INDEX: &str = ".plancha/runs/";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::run_index::entry::entry;

    #[test]
    fn a_path_is_the_key_that_lies_there() {
        for path in [
            "layers/team-a/network/plan 1#%2F~é/10/pretty.plan",
            "layers/a/b/c/0/plan.json",
            "layers/a/b/c/0/short.diff",
            "layers/a/b/c/0/plan.bin",
            "layers/a/b/c/0/run.log",
            "layers/a/b/c/0/run.json",
            "repositories/team-a/infra/feat/a b#1~2/0123abc.gitbundle",
            "repositories/a/b/main/0123abc.gitbundle",
            &format!(".plancha/applied/team-a/network/{}", Sha256::of(b"")),
        ] {
            assert_eq!(Key::at(path).unwrap().path().unwrap().as_ref(), path);
        }
    }

    #[test]
    fn what_is_none_of_ours_is_no_key() {
        for path in [
            "",
            "layers",
            "layers/a/b/c",
            "layers/a/b/c/0",
            "layers/a/b/c/latest/plan.bin",
            "layers/a/b/c/00/plan.bin",
            "layers/a/b/c/0/.hidden",
            "layers/a/b/c/0/below/plan.bin",
            "layers//b/c/0/plan.bin",
            "/layers/a/b/c/0/plan.bin",
            "repositories/a/b/0123abc.gitbundle",
            "repositories/a/b/main/0123abc",
            ".plancha/sha256/layers/a/b/c/0/plan.bin",
            ".plancha/applied/a/b/0123abc",
            ".plancha/claims/a/b/c/0",
        ] {
            assert_eq!(Key::at(path), None, "{path}");
        }
    }

    #[test]
    fn an_entry_is_known_by_its_run() {
        let run = |name: &str| RunKey {
            namespace: "a".parse().unwrap(),
            layer: "b".parse().unwrap(),
            run: name.parse().unwrap(),
        };
        let mut known = KnownRuns::default();
        known.insert(&run("r1"));
        known.insert(&run("Run 7"));
        let object = |key| Object { key, size: 0, modified: jiff::Timestamp::UNIX_EPOCH };
        for (name, known_run) in [("r1", true), ("Run 7", true), ("r2", false), ("Run 8", false)] {
            let (entry, _) = entry(1_700_000_000_000, name);
            let of_layer = object(format!("{INDEX}a/b/{entry}"));
            assert_eq!((of_layer.is_of_a_run(), known.has(&of_layer)), (true, known_run), "{name}");
            assert!(!known.has(&object(format!("{INDEX}a/c/{entry}"))), "of another layer");
            assert_eq!(of_layer.run_began().unwrap().as_millisecond(), 1_700_000_000_000);
        }
        for other in [format!("{INDEX}a/b/something"), "layers/a/b/r1/0/plan.bin".to_owned()] {
            assert!(!object(other).is_of_a_run());
        }
    }
}
