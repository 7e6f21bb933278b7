//! The messages that tofu 1.12 and later writes as JSON, beside its output for people (`-json-into=FILE`). Its errors have exact
//! addresses there, and texts that are not wrapped.

use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use fs_err as fs;

use crate::process::Program;
use crate::tool::argv;
use crate::tool::diagnosis::Cause;
use crate::tool::diagnostics::Diagnostics;

/// The name of the file, in the private directory of a run.
pub(in crate::run) const MESSAGES: &str = "messages.json";

/// The file that a program writes its messages to, if it does. It is removed when the value is dropped.
#[derive(Debug)]
pub(super) struct Messages(Option<PathBuf>);

impl Messages {
    /// That of a program that has not started.
    pub(super) fn of(program: &Program) -> Self {
        let file = program.args.iter().find_map(|arg| {
            let file = arg.as_bytes().strip_prefix(argv::MESSAGES.as_bytes())?;
            let file = PathBuf::from(std::ffi::OsStr::from_bytes(file));
            file.file_name().is_some_and(|name| name == MESSAGES).then_some(file)
        });
        let messages = Self(file);
        messages.remove();
        messages
    }

    /// The errors of a failed step, the one that decides first, and what they mean: those of the messages, if they have
    /// one, else those of the output. A step is run again only if both say so.
    pub(super) fn errors<R: BufRead>(
        &self,
        output: impl Fn() -> io::Result<R>,
        cause: impl Fn(&mut dyn BufRead) -> io::Result<Cause>,
    ) -> io::Result<(Diagnostics, Cause)> {
        let (mut errors, why) = (Diagnostics::read(output()?)?, cause(&mut output()?)?);
        errors.put_first(&why.error);
        let Some(file) = self.0.as_ref().filter(|file| file.is_file()) else {
            return Ok((errors, why));
        };
        let open = || Ok::<_, io::Error>(BufReader::new(fs::File::open(file)?));
        let mut exact = Diagnostics::read(open()?)?;
        if exact.first().is_none() {
            return Ok((errors, why));
        }
        let exact_why = cause(&mut open()?)?;
        exact.put_first(&exact_why.error);
        let is_retryable = why.is_retryable && exact_why.is_retryable;
        let is_cut = why.is_cut || exact_why.is_cut;
        Ok((exact, Cause { is_retryable, is_cut, ..exact_why }))
    }

    fn remove(&self) {
        let Some(file) = &self.0 else { return };
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => tracing::debug!("{error}"),
            _ => {}
        }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.remove();
    }
}
