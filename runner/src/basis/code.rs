//! Compares the files that the tool reads with those of the plan, where a commit alone does not tell what they were.

use std::io;
use std::path::Path;

use datastore_api::Sha256;

use crate::basis::named_files::{LeftOut, NamedFiles};
use crate::basis::outside_files::{Outside, OutsideFiles};
use crate::basis::{
    Basis, BasisError, COMMIT, Chosen, OUTSIDE_FILE, REVISION, commit, configuration,
};
use crate::report::AbsolutePaths;
use crate::source::checkout::Workspace;
use crate::source::git::OrderedRevision;
use crate::source::modules::has_configuration;
use crate::source::references;
use crate::source::references::installed::Called;
use crate::source::scratch::Scratch;

/// Unpacked or copied code, which no run changes.
const SOURCE: &str = "source";

impl BasisError {
    /// Whether the plan was made of other code, and not of this code before files were changed.
    pub(crate) fn is_of_other_code(&self) -> bool {
        match self {
            Self::Elsewhere { .. } | Self::AbsolutePaths { .. } | Self::NoConfiguration { .. } => {
                true
            }
            Self::Changed { what: "code", theirs, ours, .. } => {
                commit(theirs) != commit(ours.split(' ').next().unwrap_or_default())
            }
            Self::Changed { what, .. } => matches!(*what, COMMIT | SOURCE | "configuration"),
            _ => false,
        }
    }
}

impl Basis {
    /// Refuses a directory without configuration for a plan that was made of one: the tool would apply it without providers,
    /// and without the files that it reads.
    pub(crate) fn check_configuration(&self, dir: &Path) -> Result<(), BasisError> {
        let theirs = self.recorded().and_then(|record| record.configuration_sha256);
        let is_other = |theirs| configuration::digest(dir).is_ok_and(|ours| ours != theirs);
        if has_configuration(dir) || !theirs.is_some_and(is_other) {
            return Ok(());
        }
        Err(BasisError::NoConfiguration { plan: self.plan.clone(), directory: dir.to_owned() })
    }

    /// Refuses another working directory than the plan's if values of the plan contain that. The tool would compute others
    /// here, and fail halfway.
    pub(crate) fn check_directory(&self, ours: &Path, scratch: &Scratch) -> Result<(), BasisError> {
        let recorded = self.record.as_ref().and_then(|record| record.absolute_paths.as_ref());
        match recorded.filter(|recorded| recorded.directory != ours) {
            Some(AbsolutePaths { directory, values }) => Err(BasisError::AbsolutePaths {
                plan: self.plan.clone(),
                directory: directory.clone(),
                values: values.clone(),
                held: scratch.held(directory, ours),
            }),
            None => Ok(()),
        }
    }

    /// Refuses the plan of another directory, if that is all that distinguishes the two: the repository is not known.
    pub(crate) fn check_directory_alone(&self, ours: &Path) -> Result<(), BasisError> {
        let place = self.recorded().and_then(|record| record.place.as_ref());
        match place.filter(|place| place.repository.is_none()) {
            Some(_) => self.check_made_in(ours),
            None => Ok(()),
        }
    }

    /// Compares the branch or tag of the plan with the ordered one.
    pub(crate) async fn check_ordered_revision(
        &self,
        ordered: &OrderedRevision<'_>,
    ) -> Result<(), BasisError> {
        let theirs = self.record.as_ref().and_then(|record| record.named_revision.as_deref());
        match ordered.may_be(theirs, self.commit()).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) if !self.is_named() => return Err(Box::new(error).into()),
            Err(error) => {
                let (plan, name) = (&self.plan, ordered.name());
                tracing::warn!("it is not known whether the plan {plan} is of {name}: {error}");
                return Ok(());
            }
        }
        self.unless_named(self.elsewhere(REVISION, &theirs.unwrap_or_default(), &ordered.name()))
    }

    /// Refuses the plan of a repository elsewhere if the ordered revision has moved on.
    pub(crate) async fn check_not_moved(
        &self,
        ordered: &OrderedRevision<'_>,
    ) -> Result<(), BasisError> {
        match (self.commit(), ordered.commit().await.map_err(Box::new)?) {
            (Some(theirs), Some(ours)) if theirs != ours => {
                self.changed(COMMIT, theirs, &format!("{ours} ({})", ordered.name()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses the tip of a bundle that lacks the plan's commit where every difference is refused.
    pub(crate) fn check_tip(&self, theirs: &str, ours: &str) -> Result<(), BasisError> {
        if self.is_strict() { self.changed(COMMIT, theirs, ours) } else { Ok(()) }
    }

    /// The error, except if the plan was named: then the user has chosen an older plan.
    pub(super) fn unless_named(&self, error: BasisError) -> Result<(), BasisError> {
        if !self.is_named() {
            return Err(error);
        }
        tracing::warn!("{error}");
        // Only the first one is kept.
        let _known = self.warned.set(error.to_string());
        Ok(())
    }

    /// Whether the user, or Burrito's controllers, have named the plan, so that a difference is only a warning.
    fn is_named(&self) -> bool {
        match self.chosen {
            Chosen::Strictly | Chosen::ByLayer => false,
            Chosen::ByName | Chosen::ByFile | Chosen::ByController => true,
        }
    }

    /// Whether differences are refused, and no warnings.
    pub(crate) fn is_strict(&self) -> bool {
        self.chosen == Chosen::Strictly
    }

    /// Compares the digest of code that was unpacked or copied, before a tool works there.
    pub(crate) fn check_source(&self, ours: Option<Sha256>) -> Result<(), BasisError> {
        let theirs = self.recorded().and_then(|record| record.source_sha256);
        self.check_digest(SOURCE, theirs, ours)
    }

    /// Compares the digest of the files that the module reads, if the plan was made of another kind of source, so that
    /// neither a commit nor a digest of all files shows whether the code is the same.
    pub(crate) fn check_read_files(&self, workspace: &Workspace) -> Result<(), BasisError> {
        let Some(record) = self.recorded() else { return Ok(()) };
        let is_compared = self.revision.is_some() && workspace.revision.is_some()
            || record.source_sha256.is_some() && workspace.sha256.is_some()
            || record.named_files.as_ref().is_some_and(|of| !of.is_untracked_only)
                && (workspace.own.is_none() || workspace.kept);
        if is_compared || record.code_sha256.is_none() {
            return Ok(());
        }
        let plan = self.plan.clone();
        let ours = references::digest(&workspace.dir, self.called_modules());
        let ours = ours.map_err(|cause| BasisError::UnreadFiles { plan, cause })?;
        self.check_digest("code", record.code_sha256, Some(ours))
    }

    /// The modules of the plan of which only its init knew.
    pub(crate) fn called_modules(&self) -> &Called {
        static NONE: Called = Called::new();
        self.recorded().map_or(&NONE, |record| &record.called_modules)
    }

    /// The files that the configuration named when the plan was made, where they are recorded.
    pub(crate) fn named_files(&self) -> Option<&NamedFiles> {
        self.recorded()?.named_files.as_ref()
    }

    /// Compares the files that the module in `dir` names, where the plan recorded them.
    pub(crate) fn check_named_files(
        &self,
        dir: &Path,
        left_out: io::Result<LeftOut>,
    ) -> Result<(), BasisError> {
        let Some(recorded) = self.named_files() else { return Ok(()) };
        let difference =
            left_out.and_then(|left_out| recorded.difference(dir, self.called_modules(), left_out));
        self.check_difference("file", difference)
    }

    /// The files outside of the source that the configuration named when the plan was made.
    pub(crate) fn outside_files(&self) -> Option<&OutsideFiles> {
        self.recorded()?.outside_files.as_ref()
    }

    /// Compares the files outside of the source that the configuration names. `plan` is the file of the plan.
    pub(crate) fn check_outside_files(
        &self,
        here: io::Result<Outside>,
        plan: &Path,
    ) -> Result<(), BasisError> {
        let Some(recorded) = self.outside_files() else { return Ok(()) };
        let difference = here.and_then(|here| recorded.difference(&here, plan));
        self.check_difference(OUTSIDE_FILE, difference)
    }

    fn check_difference(
        &self,
        what: &'static str,
        difference: io::Result<Option<(String, String)>>,
    ) -> Result<(), BasisError> {
        let plan = self.plan.clone();
        match difference.map_err(|cause| BasisError::UnreadFiles { plan, cause })? {
            Some((theirs, ours)) if self.chosen == Chosen::ByFile => {
                Err(self.elsewhere(what, &theirs, &ours))
            }
            Some((theirs, ours)) => self.changed(what, &theirs, &ours),
            None => Ok(()),
        }
    }
}
