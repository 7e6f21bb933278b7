//! The version that a directory asks for.

use std::path::{Path, PathBuf};

use crate::version::context::{Reason, Surroundings};
use crate::version::error::VersionError;
use crate::version::request::Request;
use crate::version::search::Search;
use crate::version::tool_name::ToolName;

/// What is wanted, and why.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The tool.
    pub tool: ToolName,
    /// Which versions of it will do.
    pub request: Request,
    /// Where the request comes from: a flag, a file, or that nothing asks.
    pub origin: String,
    /// The directory that asks.
    pub dir: PathBuf,
    /// Everything that was found on the way, in the order of looking.
    pub why: Vec<Reason>,
    /// The files that were read, in that order.
    pub looked_at: Vec<PathBuf>,
}

/// Which tool, and which version of it, `dir` asks for.
///
/// `tool` and `request` (its text, and where that comes from) go before everything that is found; a
/// blank request is none.
pub fn wanted(
    tool: Option<ToolName>,
    request: Option<(&str, &str)>,
    dir: &Path,
    around: &Surroundings,
) -> Result<Wanted, VersionError> {
    let mut search = Search::new(dir, around);
    let tool = match tool {
        Some(tool) => tool,
        None => search.tool()?,
    };
    let given = request.filter(|(text, _)| !text.trim().is_empty());
    let found = match given {
        Some((text, origin)) => {
            search.why.push(Reason::new(origin, text.trim()));
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
    let (why, looked_at) = (search.why, search.looked_at);
    Ok(Wanted { tool, request, origin, dir: dir.to_owned(), why, looked_at })
}

/// The request that is meant, and who makes it where nobody has made one: the code, a default constraint,
/// or nothing.
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
    Ok((request, by.unwrap_or_else(|| "nothing in particular".to_owned())))
}
