//! Why a request is refused: a limit, or a missing permission. Each reason is a label of `datastore_refusals_total`.

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Memory,
    Connections,
    NoToken,
    InvalidToken,
    Unlisted,
    TokenUnverified,
    Forbidden,
    Size,
    TooSlow,
    HeadSize,
    Host,
    Origin,
    StorageFull,
    StorageNotReady,
    StorageHangs,
    Draining,
}

impl Refusal {
    /// All reasons, in the order of the variants.
    pub(super) const ALL: [Self; 16] = [
        Self::Memory,
        Self::Connections,
        Self::NoToken,
        Self::InvalidToken,
        Self::Unlisted,
        Self::TokenUnverified,
        Self::Forbidden,
        Self::Size,
        Self::TooSlow,
        Self::HeadSize,
        Self::Host,
        Self::Origin,
        Self::StorageFull,
        Self::StorageNotReady,
        Self::StorageHangs,
        Self::Draining,
    ];

    /// The label in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Connections => "connections",
            Self::NoToken => "no_token",
            Self::InvalidToken => "invalid_token",
            Self::Unlisted => "unlisted",
            Self::TokenUnverified => "token_unverified",
            Self::Forbidden => "forbidden",
            Self::Size => "size",
            Self::TooSlow => "too_slow",
            Self::HeadSize => "head_size",
            Self::Host => "host",
            Self::Origin => "origin",
            Self::StorageFull => "storage_full",
            Self::StorageNotReady => "storage_not_ready",
            Self::StorageHangs => "storage_hangs",
            Self::Draining => "draining",
        }
    }
}
