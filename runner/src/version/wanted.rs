//! The tool and version that a directory requests.

use std::path::{Path, PathBuf};

use crate::version::context::{Finding, SearchContext};
use crate::version::error::VersionError;
use crate::version::request::Request;
use crate::version::search::Search;
use crate::version::tool_name::ToolName;

/// The requested tool and version, and how the request was found.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The tool.
    pub tool: ToolName,
    /// Which versions satisfy the request.
    pub request: Request,
    /// Where the request comes from: a flag, a file, or that there is none.
    pub origin: String,
    /// The directory of the run.
    pub dir: PathBuf,
    /// Everything that the search found, in its order.
    pub trace: Vec<Finding>,
    /// The files that were read, in that order.
    pub files_read: Vec<PathBuf>,
}

/// Which tool, and which version of it, `dir` requests.
///
/// `tool` and `request` (its text and its origin) override everything that is found; a blank request is ignored.
pub fn wanted(
    tool: Option<ToolName>,
    request: Option<(&str, &str)>,
    dir: &Path,
    context: &SearchContext,
) -> Result<Wanted, VersionError> {
    let mut search = Search::new(dir, context);
    let tool = match tool {
        Some(tool) => tool,
        None => search.tool()?,
    };
    let given = request.filter(|(text, _)| !text.trim().is_empty());
    let found = match given {
        Some((text, origin)) => {
            search.trace.push(Finding::new(origin, text.trim()));
            Some((text.trim().to_owned(), origin.to_owned()))
        }
        None => search.request(tool)?,
    };
    let (text, origin) = match found {
        Some((text, origin)) => (text, Some(origin)),
        None => ("latest-allowed".to_owned(), None),
    };
    let (request, of_itself) = request_of(&mut search, tool, &text, origin.as_deref())?;
    let origin = origin.unwrap_or(of_itself);
    let (trace, files_read) = (search.trace, search.files_read);
    Ok(Wanted { tool, request, origin, dir: dir.to_owned(), trace, files_read })
}

/// Parses a request and adds the code's requirements and the default constraint. The text is the origin where there was
/// no explicit request.
fn request_of(
    search: &mut Search<'_>,
    tool: ToolName,
    text: &str,
    origin: Option<&str>,
) -> Result<(Request, String), VersionError> {
    let mut request = match text {
        "latest-allowed" => Request::Highest(search.required(tool)?),
        "min-required" => Request::Lowest(search.required(tool)?),
        text => match text.parse::<Request>() {
            Ok(request) => request.found_in(origin.unwrap_or_default()),
            Err(source) => {
                let place = origin.unwrap_or_default().to_owned();
                return Err(VersionError::Request { place, source });
            }
        },
    };
    let mut by = None;
    if let Request::Highest(requirement) | Request::Lowest(requirement) = &mut request {
        by = (!requirement.is_empty()).then(|| "required_version".to_owned());
        if let Some((constraint, place)) = search.default_constraint(tool)? {
            requirement.and(&constraint);
            by = by.or(Some(place));
        }
    }
    if matches!(&request, Request::Lowest(requirement) if requirement.is_empty()) {
        request = Request::Latest;
    }
    Ok((request, by.unwrap_or_else(|| "the runner's default".to_owned())))
}
