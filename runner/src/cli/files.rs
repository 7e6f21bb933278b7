//! The files that a command reads.

use std::path::PathBuf;

use crate::cli::{
    BindingArgs, Command, DatastoreArgs, MigrateArgs, PolicyCommand, RemoteArgs, RunArgs,
    ShowCommon, ToolArgs, ToolsCommand,
};

/// A file that an argument names: the flag, and the path, which can be replaced.
pub(crate) type NamedFile<'a> = (&'static str, &'a mut PathBuf);

impl Command {
    /// The files that this command reads before anything else. A plan and an apply read theirs while they listen to
    /// signals.
    pub(crate) fn files(&mut self) -> Vec<NamedFile<'_>> {
        match self {
            Self::Upload(args) => args.remote.files(),
            Self::Runs(args) => args.common.files(),
            Self::Show(args) => {
                let verify_key = args.verify_key.as_mut().map(|file| ("--verify-key", file));
                args.common.files().into_iter().chain(verify_key).collect()
            }
            Self::Logs(args) => args.common.files(),
            Self::Classify(args) => {
                args.rules.as_mut().map(|file| ("--rules", file)).into_iter().collect()
            }
            Self::Policy(PolicyCommand::Test(args)) => {
                let plans = args.plan_json.iter_mut().map(|file| ("--plan-json", file));
                args.common.files().into_iter().chain(plans).collect()
            }
            Self::Doctor(args) => {
                args.tools.files().into_iter().chain(args.datastore.files()).collect()
            }
            Self::Resolve(args) => args.tools.files(),
            Self::Install(args) => args.tools.files(),
            Self::Mirror(args) => args.tools.files(),
            Self::Tools(ToolsCommand::List(args)) => args.tools.files(),
            Self::Plan(_)
            | Self::Apply(_)
            | Self::Destroy(_)
            | Self::Check(_)
            | Self::Converge(_)
            | Self::Migrate(_) => Vec::new(),
            // A pod's files are mounted.
            Self::Tools(ToolsCommand::Prune(_)) | Self::Start(_) | Self::Version => Vec::new(),
        }
    }
}

impl RunArgs {
    /// The files that the runner itself reads. The tool reads those of `--var-file`; a plan writes its `--plan-file`.
    pub(crate) fn files(&mut self, reads_plan: bool) -> Vec<NamedFile<'_>> {
        let Self { identity, tools, binding, datastore, plan_file, retry, .. } = self;
        let plan = plan_file.as_mut().filter(|_| reads_plan).map(|file| ("--plan-file", file));
        let layer = identity.layer.as_mut().map(|file| ("--layer", file));
        let rules = retry.rules.as_mut().map(|file| ("--rules", file));
        let own = layer.into_iter().chain(plan).chain(rules);
        own.chain(tools.files()).chain(binding.files()).chain(datastore.files()).collect()
    }
}

impl MigrateArgs {
    /// The files that the runner itself reads.
    pub(crate) fn files(&mut self) -> Vec<NamedFile<'_>> {
        let paths = self.version_paths.as_mut().map(|file| ("--version-paths", file));
        self.run.files(false).into_iter().chain(paths).collect()
    }
}

impl ShowCommon {
    fn files(&mut self) -> Vec<NamedFile<'_>> {
        let layer = self.identity.layer.as_mut().map(|file| ("--layer", file));
        layer.into_iter().chain(self.remote.files()).collect()
    }
}

impl RemoteArgs {
    fn files(&mut self) -> Vec<NamedFile<'_>> {
        let ca_file = self.ca_file.as_mut().map(|file| ("--ca-file", file));
        ca_file.into_iter().chain(self.datastore.files()).collect()
    }
}

impl DatastoreArgs {
    fn files(&mut self) -> impl Iterator<Item = NamedFile<'_>> {
        self.token_file.as_mut().map(|file| ("--token-file", file)).into_iter()
    }
}

impl BindingArgs {
    fn files(&mut self) -> impl Iterator<Item = NamedFile<'_>> {
        let signing_key = self.signing_key.as_mut().map(|file| ("--signing-key", file));
        let verify_key = self.verify_key.as_mut().map(|file| ("--verify-key", file));
        signing_key.into_iter().chain(verify_key)
    }
}

impl ToolArgs {
    fn files(&mut self) -> Vec<NamedFile<'_>> {
        let ca_file = self.ca_file.as_mut().map(|file| ("--ca-file", file));
        ca_file.into_iter().chain(self.keyring.iter_mut().map(|file| ("--keyring", file))).collect()
    }
}
