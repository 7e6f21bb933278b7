//! The page of metrics as a file (`--metrics-file`), which the textfile collector of node exporter reads at any time.
//!
//! Comments after the metrics hold the statuses: without a datastore, those of the next process follow from them. So a counter
//! goes on, and the time of the last success stays after a failure.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use datastore_api::status::LayerStatus;
use serde::{Deserialize, Serialize};

use crate::execute::observe::board::Layer;
use crate::source::path::resolve;
use crate::source::regular;

/// Everyone may read it: it has no secrets, and the exporter is another user.
const MODE: u32 = 0o644;
/// What a comment with a status begins with.
const COMMENT: &str = "# plancha status ";
/// No longer file is read.
const MOST: u64 = 64 << 20;

/// A comment.
#[derive(Serialize, Deserialize)]
struct Comment {
    namespace: String,
    layer: String,
    status: LayerStatus,
}

impl Comment {
    /// `None`: the names are not valid.
    fn parse(self) -> Option<(Layer, LayerStatus)> {
        let layer = (self.namespace.parse().ok()?, self.layer.parse().ok()?);
        Some((layer, self.status))
    }
}

/// Replaces the file by this page, as a whole.
pub(crate) fn write(
    path: &Path,
    page: &str,
    statuses: &BTreeMap<Layer, LayerStatus>,
) -> io::Result<()> {
    // The file to which a link leads.
    let path = resolve(&std::path::absolute(path)?)?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    // The collector reads only names that end in .prom.
    let mut file =
        tempfile::Builder::new().prefix(".plancha-").suffix(".tmp").tempfile_in(parent)?;
    let mut text = page.to_owned();
    for ((namespace, layer), status) in statuses {
        // The digest is only for those who may approve.
        let status = LayerStatus { approval: None, ..status.clone() };
        let (namespace, layer) = (namespace.to_string(), layer.to_string());
        let comment = serde_json::to_string(&Comment { namespace, layer, status })?;
        text.extend([COMMENT, &comment, "\n"]);
    }
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(Permissions::from_mode(MODE))?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// The statuses in the file. What cannot be read is left out: another program may have written it.
pub(crate) fn read(path: &Path) -> BTreeMap<Layer, LayerStatus> {
    let mut text = String::new();
    let read =
        regular::open_followed(path).and_then(|file| file.take(MOST).read_to_string(&mut text));
    if read.is_err() {
        return BTreeMap::new();
    }
    let comments = text.lines().filter_map(|line| line.strip_prefix(COMMENT));
    let comments = comments.filter_map(|json| serde_json::from_str::<Comment>(json).ok());
    comments.filter_map(Comment::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::check::status::blocked;

    #[test]
    fn statuses_read_back_and_other_files_have_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plancha.prom");
        assert!(read(&path).is_empty());
        let layer = ("default".parse().unwrap(), "vpc".parse().unwrap());
        let statuses = BTreeMap::from([(layer, blocked("check", "default/network", None))]);
        write(&path, "# HELP x x\nx 1\n", &statuses).unwrap();
        assert_eq!(read(&path), statuses);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        for text in [&b"\xff"[..], b"# plancha status {", b"# plancha status {\"layer\":1}\n"] {
            std::fs::write(&path, text).unwrap();
            assert!(read(&path).is_empty());
        }
    }
}
