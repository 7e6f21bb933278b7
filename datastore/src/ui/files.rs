//! The files of the page, as they are in `datastore/ui/static`.

/// One file of the page.
#[derive(Debug)]
pub(super) struct File {
    /// Its name below `/ui/`.
    pub(super) name: &'static str,
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

macro_rules! files {
    ($($name:literal: $content_type:expr,)*) => {
        [$(File {
            name: $name,
            content_type: $content_type,
            text: include_str!(concat!("../../ui/static/", $name)),
        },)*]
    };
}

pub(super) const SCRIPT: &str = "text/javascript; charset=utf-8";

/// All of them.
pub(super) static FILES: [File; 20] = files! {
    "again.js": SCRIPT,
    "app.js": SCRIPT,
    "ansi.js": SCRIPT,
    "api.js": SCRIPT,
    "changes.js": SCRIPT,
    "chunks.js": SCRIPT,
    "diff.js": SCRIPT,
    "dom.js": SCRIPT,
    "failures.js": SCRIPT,
    "follow.js": SCRIPT,
    "lists.js": SCRIPT,
    "log.js": SCRIPT,
    "plan.js": SCRIPT,
    "record.js": SCRIPT,
    "run.js": SCRIPT,
    "text.js": SCRIPT,
    "theme.js": SCRIPT,
    "values.js": SCRIPT,
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_in_the_directory_is_served() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui/static");
        let entries = std::fs::read_dir(directory).unwrap();
        let mut found = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect::<Vec<_>>();
        let mut served = FILES.iter().map(|file| file.name).collect::<Vec<_>>();
        found.sort();
        served.sort_unstable();
        assert_eq!(found, served);
    }
}
