//! Why a plan cannot be listed. No error quotes the plan: it has secrets.

/// The bytes are not a plan, or of an unknown version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnreadablePlan {
    /// They end too early.
    #[error("it is not whole: the JSON ends too early, after {0} bytes")]
    Incomplete(u64),
    /// They are no JSON.
    #[error("it is not JSON: at byte {0} is something else")]
    Syntax(u64),
    /// They are other JSON.
    #[error(
        "it is JSON, but not a plan: at byte {0} is another value than a plan has there, or a repeated key"
    )]
    Value(u64),
    /// They are a state.
    #[error("it is a state, not a plan: `terraform show -json PLAN` needs the name of a plan")]
    State,
    /// They are nested too deeply.
    #[error("its values are nested too deeply: more than {max} levels at byte {at}")]
    Depth {
        /// The most levels.
        max: usize,
        /// Where more are.
        at: u64,
    },
    /// A number is too long.
    #[error("a number has more than {max} characters, at byte {at}")]
    Number {
        /// The most characters.
        max: usize,
        /// Where more are.
        at: u64,
    },
    /// It is of another version.
    #[error("its format_version is `{0}`; versions from 0.1 to 1.x can be listed")]
    Format(String),
    /// It could not be read.
    #[error("it could not be read")]
    Read,
}
