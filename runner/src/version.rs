//! Which tool, and which version of it, a directory requests.
//!
//! It reads version files and the configuration's own `required_version`. It does not know which versions exist or are
//! installed; [`crate::release`] does.

mod configuration;
mod constraint;
mod context;
mod error;
mod file;
mod json;
mod number;
mod outline;
mod request;
mod required;
mod search;
mod syntax;
mod tool_name;
mod unit;
mod wanted;

pub use constraint::Constraint;
pub use context::{Finding, SearchContext};
pub use error::VersionError;
pub(crate) use file::is_version_file;
pub use number::{Malformed, Version};
pub use request::{Pattern, Request, Requirement};
pub use search::variable_names;
pub use tool_name::{ToolName, ToolRequest};
pub use wanted::{Wanted, wanted};

/// What fuzz targets call.
#[cfg(fuzzing)]
pub mod fuzz {
    use std::path::Path;

    use crate::version::{Constraint, Request, ToolName, Version, file, required};

    /// Versions, constraints and requests: what is read reads back, and checks never panic.
    pub fn request(text: &str) {
        let stable: Vec<Version> = ["1.5.7", "1.9.8", "1.10.0-rc1", "1.2.3.4", "alpha-1"]
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect();
        if let Ok(version) = text.parse::<Version>() {
            assert!(version.to_string().parse::<Version>().is_ok_and(|again| again == version));
        }
        if let Ok(constraint) = text.parse::<Constraint>() {
            for version in &stable {
                assert_eq!(constraint.allows(version), constraint.refusal(version).is_none());
            }
        }
        if let Ok(request) = text.parse::<Request>() {
            drop((request.best(&stable).cloned(), request.to_string()));
        }
    }

    /// Parses every format of version files.
    pub fn version_file(bytes: &[u8]) {
        for tool in ToolName::ALL {
            for file in file::files(tool) {
                drop(file.entry(Path::new(file.name), bytes.to_vec()));
            }
        }
    }

    /// The configuration's own requirements, as HCL and as JSON.
    pub fn configuration(bytes: &[u8]) {
        required::fuzz(bytes);
    }
}

#[cfg(test)]
mod tests;
