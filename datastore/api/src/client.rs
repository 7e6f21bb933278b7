//! The HTTP client of the datastore.
//!
//! Every call is retried on transient errors (connection failures, 429, 5xx) and on no others. An upload announces its
//! digest, and a download is compared with the digest of its object, so a wrong byte is an error on either side. Memory
//! does not grow with the size of an artifact. A token file is read again for every request, since kubelets and CI
//! systems rotate tokens.
//!
//! A transfer that makes progress has no time limit. A datastore that does not respond is given up after
//! [`Settings::timeout`], counted over all tries.

mod approvals;
mod bundles;
mod call;
mod documents;
mod error;
mod files;
mod health;
mod http;
mod live;
mod records;
mod sender;
mod settings;
mod silence;
mod states;
mod token;
mod transfer;

pub use self::approvals::ApprovalAnswer;
pub use self::error::{ClientError, Digests};
pub use self::health::Health;
pub use self::http::{Client, Condition, LOST_OBJECT};
pub use self::live::{Appended, Followed, FollowedLog};
pub use self::records::Claimed;
pub use self::sender::Sender;
pub use self::settings::Settings;
pub use self::silence::{Notice, Notify};
pub use self::states::{LeaseAnswer, StateOrigin};
pub use self::token::Token;
pub use self::transfer::{Download, Upload};
