//! `runner classify`

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::cli::ClassifyArgs;
use crate::process::github;
use crate::source::regular;
use crate::tool::diagnosis::error::ClassifyError;
use crate::tool::diagnosis::output;
use crate::tool::diagnosis::rules::Rules;
use crate::tool::diagnosis::verdict::Verdict;

/// No file of rules is larger.
const MAX_RULES: u64 = 1 << 20;

/// Prints what kind of failure an output shows.
pub(crate) fn classify(args: &ClassifyArgs) -> Result<(), ClassifyError> {
    let rules = load_rules(args.rules.as_deref())?;
    let verdict = match args.file.as_deref().filter(|file| *file != Path::new("-")) {
        None => read(PathBuf::from("standard input"), io::stdin().lock(), &rules)?,
        Some(file) => {
            let refused = |error| ClassifyError::Read(file.to_owned(), error);
            regular::check_named(file).map_err(refused)?;
            let opened = File::open(file).map_err(refused)?;
            read(file.to_owned(), BufReader::with_capacity(64 << 10, opened), &rules)?
        }
    };
    if verdict.count() == 0 {
        tracing::warn!(
            "no error of terraform, tofu or terragrunt was found: is this the output of the failed run, with stderr?"
        );
    }
    let text = if args.json {
        let json = output::json(&verdict, args.explain);
        json.map_err(|error| ClassifyError::Output(error.into()))?
    } else {
        output::text(&verdict, args.explain)
    };
    // The class comes first, alone, so that a script can read it: it is no text of others.
    let (class, rest) = text.split_at(text.find('\n').map_or(text.len(), |newline| newline + 1));
    let (class, rest) = if args.json { (text.as_str(), "") } else { (class, rest) };
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(class.as_bytes()).and_then(|()| stdout.flush());
    drop(stdout);
    let written = written.and_then(|()| github::show(rest.as_bytes()));
    match written {
        // A reader such as `head -1` has all that it wants.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(ClassifyError::Output),
    }
}

fn read(name: PathBuf, output: impl BufRead, rules: &Rules) -> Result<Verdict<'_>, ClassifyError> {
    Verdict::read(output, rules).map_err(|error| ClassifyError::Read(name, error))
}

/// The rules of `--rules`, if it names a file, and the runner's own.
pub(crate) fn load_rules(path: Option<&Path>) -> Result<Rules, ClassifyError> {
    let users = path.map(read_rules).transpose()?;
    let path = path.map(PathBuf::from).unwrap_or_default();
    Rules::load(users.as_deref()).map_err(|error| ClassifyError::Rules(path, error))
}

fn read_rules(path: &Path) -> Result<String, ClassifyError> {
    let read = || {
        regular::check_named(path)?;
        let mut text = String::new();
        File::open(path)?.take(MAX_RULES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_RULES {
            return Err(io::Error::other("the file is larger than 1 MiB"));
        }
        Ok(text)
    };
    read().map_err(|error| ClassifyError::ReadRules(path.to_owned(), error))
}
