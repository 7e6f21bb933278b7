//! Why a command failed, and its exit code.

use std::fmt::{self, Display};
use std::io;

use datastore_api::ClientError;
use reqwest::StatusCode;

use crate::start::StartError;
use crate::store::{StateError, StoreError};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The storage's directory does not exist.
    #[error(
        "the directory {0} does not exist\nhint: correct --storage, or create it with `datastore serve`"
    )]
    NoStorage(String),
    /// No object has this key.
    #[error("no object has the key `{0}`\nhint: list the keys with `datastore ls`")]
    NoKey(String),
    /// The document of a state is not accepted with other bytes.
    #[error(
        "`{0}` is the document of a state, which is not accepted with other bytes\nhint: restore it from a backup, or make an \
         intact version the state with `datastore state restore KEY --version ID`; `datastore state ls KEY` lists them"
    )]
    AcceptState(String),
    /// No key has this prefix.
    #[error("no key begins with `{0}`\nhint: list the keys with `datastore ls`")]
    NoPrefix(String),
    /// There is no such state.
    #[error("there is no state {0}\nhint: list the states of a storage with `datastore state ls`")]
    NoState(String),
    /// A state has refused writes only.
    #[error(
        "the state {0} has no version, only refused writes\nhint: `datastore state ls {0} --rejected` lists them"
    )]
    OnlyRejected(String),
    /// A state is only locked, or its layer leased.
    #[error(
        "the state {0} has no version, but it is locked, or the lease of its layer is held\nhint: `datastore state show {0}` \
         names the holder"
    )]
    OnlyHeld(String),
    /// The state has no such version.
    #[error(
        "the state {0} has no version {1}\nhint: list its versions with `datastore state ls {0}`, also with --rejected"
    )]
    NoVersion(String, String),
    /// An operation on a state was refused, or failed.
    #[error("{0}{hint}", hint = state_hint(.0))]
    State(#[from] StateError),
    /// A datastore refused a request, or did not answer it. The number is the exit code for 409.
    #[error("{0}{hint}", hint = datastore_hint(.0))]
    Datastore(ClientError, u8),
    /// A file could not be read.
    #[error("cannot read the state to write")]
    File(#[source] io::Error),
    /// The bytes do not match the recorded digest.
    #[error("discard the output")]
    Corrupt(#[source] StoreError),
    /// The service could not start with this configuration.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A call to the storage failed.
    #[error("cannot {0}")]
    Storage(&'static str, #[source] StoreError),
    /// The storage lacks something that the datastore needs.
    #[error("the storage does not do what is needed: {0}")]
    Unfit(String),
    /// An error has hidden whether the storage has an ability.
    #[error(
        "cannot see whether the storage can {0}: {1}\nhint: correct the cause, and run `check` again"
    )]
    Unknown(&'static str, String),
    /// Objects are not as they were stored.
    #[error("{0}")]
    Damaged(Damage),
    /// Objects could not be deleted.
    #[error(
        "{} could not be deleted\nhint: the lines `could not delete` above have the reasons; run `gc` again",
        counted(*.0, "object", "objects")
    )]
    Undeleted(usize),
    /// The states of this many layers could not be read, and were kept.
    #[error(
        "the states of {} cannot be read, and were kept with the records of applies\nhint: the lines `kept the states of` above \
         have the reasons; `datastore verify states/` names what is damaged; run `gc` again when it is restored",
        counted(*.0, "layer", "layers")
    )]
    DamagedStates(usize),
    /// The token, or its rule, could not be created.
    #[error("no token was created: {0}")]
    Token(String),
    /// The datastore did not answer that it is ready.
    #[error("the datastore is not ready: {0}\nhint: {1}")]
    NotReady(String, &'static str),
    /// Standard output could not be written.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// How many objects are not as they were stored; at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// They have other bytes.
    pub changed: usize,
    /// They have a digest record and no file.
    pub missing: usize,
    /// They could not be read.
    pub unread: usize,
    /// They are intact, and the copies of their digests could not be written.
    pub uncopied: usize,
    /// Those of the changed ones that belong to states.
    pub changed_states: usize,
    /// Those of the changed ones that only describe a version of a state.
    pub changed_descriptions: usize,
    /// Those of the missing ones that belong to states.
    pub missing_states: usize,
}

/// What to do about damaged states.
const STATE_DAMAGE: &str = "restore the files of states that the lines above name from a backup, and no others: all of states/ and \
                            .plancha/states/ would undo the applies of other layers. A restored control object takes its layer back to the \
                            time of the backup: plan before you apply. If only the document of a state is damaged, make an intact \
                            version the state with `datastore state restore KEY --version ID`";

/// What to do about damaged descriptions of versions.
const DESCRIPTION_DAMAGE: &str = "restore the description of a version from a backup, this file alone; without one remove it: that \
                                  version is not listed any more, and `gc` deletes its document a week after it was stored";

impl Damage {
    pub(super) fn is_none(self) -> bool {
        self.changed + self.missing + self.unread + self.uncopied == 0
    }
}

impl Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |number, one, several, hint| {
            (number > 0).then(|| (counted(number, one, several), hint))
        };
        let parts = [
            of(
                self.changed,
                "object has changed since it was stored",
                "objects have changed since they were stored",
                if self.changed > self.changed_states + self.changed_descriptions {
                    "restore from a backup, or accept the present bytes of one with `datastore verify --accept KEY`"
                } else {
                    ""
                },
            ),
            of(
                self.missing - self.missing_states,
                "object is missing: its digest is recorded, and its file is gone",
                "objects are missing: their digests are recorded, and their files are gone",
                "restore from a backup; or, of an object that is not needed, remove its own record, .plancha/sha256/KEY. Without \
                 the record of an apply or of an approval (.plancha/applied/, .plancha/approvals/) the same can be applied, or \
                 approved, again: find out first what was",
            ),
            of(
                self.missing_states,
                "object of a state is missing",
                "objects of states are missing",
                "",
            ),
            of(
                self.unread,
                "object could not be read",
                "objects could not be read",
                "the lines `unread` above have the reasons",
            ),
            of(
                self.uncopied,
                "copy of a digest could not be written: its object is intact",
                "copies of digests could not be written: their objects are intact",
                "the lines `copy not written` above have the reasons; a backup without extended attributes needs these copies",
            ),
        ];
        let (texts, hints): (Vec<_>, Vec<_>) = parts.into_iter().flatten().unzip();
        f.write_str(&texts.join("; "))?;
        let of_states =
            if self.changed_states + self.missing_states > 0 { STATE_DAMAGE } else { "" };
        let of_descriptions = if self.changed_descriptions > 0 { DESCRIPTION_DAMAGE } else { "" };
        let hints =
            hints.into_iter().chain([of_states, of_descriptions]).filter(|hint| !hint.is_empty());
        hints.into_iter().try_for_each(|hint| write!(f, "\nhint: {hint}"))
    }
}

/// A number with the text for one, or for several.
pub(super) fn counted<N: Copy + Display + From<u8> + PartialEq>(
    number: N,
    one: &str,
    several: &str,
) -> String {
    format!("{number} {}", if number == 1.into() { one } else { several })
}

fn state_code(error: &StateError) -> u8 {
    match error {
        StateError::Locked(_)
        | StateError::Leased(_)
        | StateError::LeaseLost(_)
        | StateError::LockLost(_)
        | StateError::OtherLock { .. }
        | StateError::HolderAlive { .. } => 4,
        StateError::NoState(_) | StateError::NotDeleted => 8,
        StateError::Deleted
        | StateError::Lineage { .. }
        | StateError::Serial { .. }
        | StateError::LastSerial(_)
        | StateError::Place { .. } => 9,
        StateError::Damaged(_)
        | StateError::DamagedDescription(_)
        | StateError::Store(StoreError::NotFound | StoreError::Corrupt(_)) => 9,
        StateError::NotConditional
        | StateError::Elsewhere(_)
        | StateError::LockFileLost
        | StateError::Contention
        | StateError::Busy
        | StateError::NoMemory { .. }
        | StateError::Store(_) => 10,
        StateError::Document(_) | StateError::UnreadableControl(_) => 64,
        StateError::TooManyWorkspaces(_) | StateError::LargeControl(_) => 1,
    }
}

fn state_hint(error: &StateError) -> &'static str {
    match error {
        StateError::Locked(_) => {
            "\nhint: wait until it has ended; if it is dead: `datastore state unlock KEY --id ID`"
        }
        StateError::Leased(_) => {
            "\nhint: wait until that run has ended; the lease of a dead one expires by itself, within minutes"
        }
        StateError::OtherLock { .. } => {
            "\nhint: `datastore state show KEY` prints the ID of the lock"
        }
        StateError::NotConditional => {
            "\nhint: beside the only replica, change states through it: --url"
        }
        _ => "",
    }
}

fn datastore_code(error: &ClientError, conflict: u8) -> u8 {
    match (error, error.status()) {
        (_, Some(StatusCode::LOCKED)) => 4,
        (_, Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => 5,
        (ClientError::Token { .. }, _) => 5,
        (_, Some(StatusCode::NOT_FOUND)) | (ClientError::File(_) | ClientError::Setup(_), _) => 8,
        (
            ClientError::Damaged { .. } | ClientError::Lost { .. } | ClientError::Digest { .. },
            _,
        ) => 9,
        (_, Some(StatusCode::CONFLICT)) => conflict,
        (_, Some(StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE)) => 64,
        _ => 10,
    }
}

fn datastore_hint(error: &ClientError) -> &'static str {
    match error.status() {
        Some(StatusCode::UNAUTHORIZED) => {
            "\nhint: give a token with --token-file, or in PLANCHA_TOKEN"
        }
        Some(StatusCode::FORBIDDEN) => {
            "\nhint: the rule of the token needs the kind `state` in this namespace, and for changes the verb `admin`"
        }
        Some(StatusCode::NOT_IMPLEMENTED) => "",
        Some(StatusCode::NOT_FOUND) => {
            "\nhint: check that --url is a datastore of Plancha that keeps states"
        }
        _ => "",
    }
}

impl CommandError {
    /// The exit code; `docs/datastore.md` lists them.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::NoStorage(_) | Self::NoKey(_) | Self::NoPrefix(_) => 8,
            Self::AcceptState(_) => 64,
            Self::OnlyRejected(_) | Self::OnlyHeld(_) => 8,
            Self::NoState(_) | Self::NoVersion(..) | Self::File(_) => 8,
            Self::State(error) => state_code(error),
            Self::Datastore(error, conflict) => datastore_code(error, *conflict),
            Self::Corrupt(_) | Self::DamagedStates(_) => 9,
            Self::Damaged(damage) if damage.changed + damage.missing > 0 => 9,
            Self::Start(error) => error.exit_code(),
            Self::Storage(..) | Self::Unfit(_) | Self::Unknown(..) => 10,
            Self::Undeleted(_) | Self::Damaged(_) => 10,
            Self::Output(_) | Self::Token(_) | Self::NotReady(..) => 1,
        }
    }

    /// Whether the reader of our output closed it, such as `head`: that needs no message.
    pub(super) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
