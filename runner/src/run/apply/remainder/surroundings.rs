//! What the tries of an apply work with, besides plan and state. All of it must stay as it was when the first try began.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use fs_err as fs;

use crate::basis::backend::{self, Backend};
use crate::basis::modules::Downloaded;
use crate::basis::{configuration, place};
use crate::cli::Variable;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::source::path::normal;
use crate::source::references;
use crate::source::references::installed::Called;
use crate::source::regular;
use crate::source::snapshot::Stamp;
use crate::tool::cli_args;
use crate::tool::cli_config::dev_overrides::dev_overrides;
use crate::tool::cli_config::own_files;
use crate::tool::file_names::{self, LOCK_FILE};

/// What the tries of an apply work with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::run::apply) struct Surroundings {
    /// Workspace and backend.
    place: BTreeMap<&'static str, String>,
    /// Files and modules, with their digests. Those that do not exist are missing.
    contents: BTreeMap<String, Sha256>,
}

impl Surroundings {
    /// The first difference.
    fn difference(&self, now: &Self) -> Option<String> {
        for name in self.place.keys().chain(now.place.keys()) {
            let (before, now) = (self.place.get(name), now.place.get(name));
            if before != now {
                let shown = |value: Option<&String>| value.cloned().unwrap_or("unknown".to_owned());
                let (before, now) = (shown(before), shown(now));
                let what = format!("the {name} has changed since the first try");
                return Some(format!("{what}: {before}; now it is {now}"));
            }
        }
        let names = self.contents.keys().chain(now.contents.keys()).collect::<BTreeSet<_>>();
        // Code comes first: with it, what it names may be missing.
        let (code, others) =
            names.into_iter().partition::<Vec<_>, _>(|name| file_names::is_code(name.as_bytes()));
        code.into_iter().chain(others).find_map(|name| {
            let what = match (self.contents.get(name), now.contents.get(name)) {
                (before, now) if before == now => return None,
                (Some(_), Some(_)) => "has changed",
                (Some(_), None) => "was removed",
                (None, _) => "was added",
            };
            Some(format!("{name} {what} since the first try"))
        })
    }
}

/// Where the contents are.
struct Sources {
    dir: PathBuf,
    data_dir: PathBuf,
    called: Called,
    home: Option<PathBuf>,
    /// What the runner itself writes, with everything below.
    own: Vec<PathBuf>,
    /// Files with values of variables.
    values: Vec<PathBuf>,
    /// Directories of development overrides, by the addresses of their providers.
    overrides: BTreeMap<String, PathBuf>,
}

impl Sources {
    fn read(&self) -> io::Result<BTreeMap<String, Sha256>> {
        let mut contents = BTreeMap::new();
        let dir = normal(&std::path::absolute(&self.dir)?);
        let mut add = |name: String, file: &Path| {
            let is_own_state = file.starts_with(&dir) && is_state(file);
            let is_own = is_own_state || self.own.iter().any(|own| file.starts_with(own));
            // A file that cannot be read is one for the tool to report.
            if !is_own && let Ok(sha256) = regular::open_followed(file).and_then(Sha256::of_reader)
            {
                contents.insert(name, sha256);
            }
        };
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if configuration::is_configuration(&name) || name == LOCK_FILE {
                let file = self.dir.join(&name);
                add(name, &file);
            }
        }
        for (name, file) in references::named(&self.dir, &self.called)? {
            add(name.to_string_lossy().into_owned(), &file);
        }
        for (name, file) in references::outside(&self.dir, self.home.as_deref(), &self.called)? {
            add(name.to_string_lossy().into_owned(), &file);
        }
        for file in &self.values {
            if fs::metadata(file).is_ok_and(|of| !of.is_file()) {
                let file = file.display();
                return Err(io::Error::other(format!(
                    "{file} is not a regular file, and may be readable only once"
                )));
            }
            add(file.display().to_string(), file);
        }
        for (address, dir) in &self.overrides {
            contents.extend(of_override(address, dir)?);
        }
        let modules = Downloaded::list(&self.dir, &self.data_dir).and_then(Downloaded::digests);
        for (name, module) in modules.map_err(io::Error::other)? {
            contents.insert(format!("the module {name}"), module.sha256);
        }
        Ok(contents)
    }
}

/// Whether a file of the module may belong to its local state, which every try changes.
fn is_state(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".tfstate") || name.contains(".tfstate.")
}

/// The files of a development override. They may be large: they count by their stamps.
fn of_override(address: &str, dir: &Path) -> io::Result<Vec<(String, Sha256)>> {
    let Some(entries) = regular::if_there(fs::read_dir(dir))? else { return Ok(Vec::new()) };
    let stamped = entries.map(|entry| {
        let path = entry?.path();
        let stamp = Stamp::from(&fs::metadata(&path)?);
        let name = format!("the development override of {address}, {}", path.display());
        Ok((name, Sha256::of(format!("{stamp:?}").as_bytes())))
    });
    stamped.collect()
}

impl Run<'_> {
    /// Records what the tries work with, after init. `Err`: why the first try is the only one.
    pub(in crate::run::apply) async fn surroundings(
        &self,
        prepared: &Prepared,
    ) -> Result<Result<Surroundings, String>, RunError> {
        if prepared.terragrunt.is_some() {
            // No further try compares them.
            return Ok(Ok(Surroundings::default()));
        }
        let found = self.read_surroundings(prepared).await?;
        Ok(found.map_err(|error| format!("what it works with is not known: {error}")))
    }

    /// Refuses another try where something is not as it was when the first one began.
    pub(super) async fn check_surroundings(
        &self,
        prepared: &Prepared,
        before: &Surroundings,
    ) -> Result<(), RunError> {
        let now = self.read_surroundings(prepared).await??;
        match before.difference(&now) {
            Some(difference) => Err(RunError::Changed(difference)),
            None => Ok(()),
        }
    }

    async fn read_surroundings(
        &self,
        prepared: &Prepared,
    ) -> Result<io::Result<Surroundings>, RunError> {
        let (dir, environment) = (&prepared.workspace.dir, self.environment);
        let data_dir = environment.data_dir().to_owned();
        let tool = prepared.installed.tool;
        let sources = Sources {
            dir: dir.clone(),
            called: self.report.called_modules.clone(),
            home: environment.home.clone(),
            own: self.job.ignored_paths.clone(),
            values: self.value_files(dir),
            overrides: dev_overrides(&own_files(environment, tool), tool, dir),
            data_dir,
        };
        let contents = tokio::task::spawn_blocking(move || sources.read());
        let contents = self.signals.or(contents).await.map_err(RunError::Stopped)?;
        let contents = match contents.map_err(io::Error::other)? {
            Ok(contents) => contents,
            Err(error) => return Ok(Err(error)),
        };
        let selected = environment.tf_workspace.as_deref();
        let workspace = place::workspace(selected, Some(&dir.join(environment.data_dir())));
        let data_dirs = backend::data_dirs(dir, environment.tf_data_dir.as_deref(), false);
        let backend = Backend::of_module(dir, &data_dirs, &workspace, &environment.backend);
        let backend = backend.map_or_else(|| "unknown".to_owned(), |backend| backend.to_string());
        let place = BTreeMap::from([("workspace", workspace), ("backend", backend)]);
        Ok(Ok(Surroundings { place, contents }))
    }

    /// The files with values of variables that the plan, or the apply without one, names.
    fn value_files(&self, dir: &Path) -> Vec<PathBuf> {
        let options = &self.job.options;
        let of_options = options.variables.iter().filter_map(|variable| match variable {
            Variable::File(file) => Some(file.clone()),
            Variable::Value(_) => None,
        });
        let mut args = cli_args::of_plans(&self.environment.inputs);
        args.extend_from_slice(&options.args);
        args.extend(self.binding.iter().flat_map(|binding| binding.arguments().to_vec()));
        of_options.chain(cli_args::value_files(&args).map(|file| dir.join(file))).collect()
    }
}
