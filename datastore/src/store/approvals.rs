//! Approvals of destructive changes: offers, and their use.
//!
//! Each is an object that is created once and never replaced, so of several claims at once one wins. A set of changes has one
//! open offer at a time. The next one has another digest: an old digest never approves again, also after `gc`, which keeps the
//! newest offer of each set. It knows no policy and no HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use datastore_api::approval::{
    ApprovalUse, Approvals, ListedOffer, Offer, RunAttempt, UnreadableOffer, approval_digest,
};
use datastore_api::{ClaimId, Sha256};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{APPROVALS, ApprovalKey, ApprovalPart, Key};
use crate::store::state::LayerKey;
use crate::store::write::conditions::PutConditions;

/// The largest object of an approval, in bytes.
const MAX: u64 = 64 << 10;
/// How often an offer is tried again that others have created or used meanwhile.
const TRIES: usize = 32;
/// How many objects are read at the same time.
const PARALLEL_READS: usize = 16;
/// How far the time of an offer may be after that of its object: storages record whole seconds, by their own clock.
const INEXACT: Duration = Duration::from_mins(1);

/// Who asks for something, and for which run.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    /// The caller, as authentication knows it.
    pub(crate) caller: Option<String>,
    /// The run.
    pub(crate) run: RunAttempt,
}

/// Why an approval is refused.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// No offer has this digest.
    #[error(
        "no offer with this digest is stored for this layer: approve the digest that a check or plan of the layer prints"
    )]
    Unknown,
    /// It approves other changes.
    #[error("this digest approves another set of changes: {0}")]
    OtherSet(Sha256),
    /// It was used.
    #[error("this approval was used at {} by the run {}: approve the digest that the next plan prints", .0.at, .0.run)]
    Used(ApprovalUse),
    /// It has expired.
    #[error("this approval has expired at {0}: approve the digest that the next plan prints")]
    Expired(String),
    /// The storage failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An offer, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct StoredOffer {
    #[serde(flatten)]
    offer: Offer,
    run: String,
    offered_by: Option<String>,
}

/// The use of an offer, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct StoredUse {
    #[serde(flatten)]
    r#use: ApprovalUse,
    claim: String,
}

/// The offers of a layer: for each set, its generations.
type Sets = BTreeMap<[u8; 32], BTreeSet<u32>>;

impl Store {
    /// The open offer for a set of changes, which is created if there is none.
    pub(crate) async fn offer_approval(
        &self,
        layer: &LayerKey,
        set: Sha256,
        asker: &Asker,
        lifetime: Duration,
    ) -> Result<Offer, StoreError> {
        for _ in 0..TRIES {
            let newest = self.newest_generation(layer, set).await?;
            let generation = match newest {
                None => 0,
                Some(newest) => {
                    let key = approval_key(layer, set, newest);
                    match self.open_offer(&key).await? {
                        Some(offer) => return Ok(offer),
                        None => newest.checked_add(1).ok_or_else(|| backend_error("too many"))?,
                    }
                }
            };
            let key = approval_key(layer, set, generation);
            if let Some(offer) = self.create_offer(&key, asker, lifetime).await? {
                return Ok(offer);
            }
        }
        Err(StoreError::Undecided)
    }

    /// Uses up an approval of this set. The same claim succeeds again.
    pub(crate) async fn claim_approval(
        &self,
        layer: &LayerKey,
        approval: Sha256,
        set: Sha256,
        claim: &ClaimId,
        asker: &Asker,
    ) -> Result<ApprovalUse, ApprovalError> {
        let sets = self.offered(&layer_prefix(layer)).await?;
        let (of_set, generation) = find(&sets, approval).ok_or(ApprovalError::Unknown)?;
        if of_set != set {
            return Err(ApprovalError::OtherSet(of_set));
        }
        let key = approval_key(layer, set, generation);
        if let Some(used) = self.used(&key).await? {
            return granted(used, claim);
        }
        // An offer without a use is missing only while it is deleted.
        let offer: StoredOffer =
            self.part(&key, ApprovalPart::Offer).await?.ok_or(ApprovalError::Unknown)?;
        let now = self.approval_clock();
        if !is_open(&offer.offer, now) {
            return Err(ApprovalError::Expired(offer.offer.expires));
        }
        let Asker { caller, run } = asker.clone();
        let r#use = ApprovalUse { approved_by: caller, at: now.to_string(), run: run.to_string() };
        let used = StoredUse { r#use, claim: claim.to_string() };
        match self.create(&key, ApprovalPart::Used, &used).await {
            Ok(()) => Ok(used.r#use),
            // Another claim, or an earlier try of this one.
            Err(StoreError::Exists) => {
                let used = self.used(&key).await?.ok_or(StoreError::Undecided)?;
                granted(used, claim)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The newest offers of a layer, newest first, with their use.
    pub(crate) async fn approvals(
        &self,
        layer: &LayerKey,
        limit: usize,
    ) -> Result<Approvals, StoreError> {
        let mut offers = Vec::new();
        let mut objects = self.list(&layer_prefix(layer))?;
        while let Some(object) = objects.try_next().await? {
            if let Some(Key::Approval(key, ApprovalPart::Offer)) = Key::from_path(&object.key) {
                offers.push((object.modified, key));
            }
        }
        offers.sort_by(|one, other| {
            other.0.cmp(&one.0).then(other.1.generation.cmp(&one.1.generation))
        });
        let mut found = Approvals::default();
        for offers in offers.chunks(PARALLEL_READS) {
            // No offer is younger than its object, which an encryption, or a restore, makes younger.
            let newest = offers.first().and_then(|(stored, _)| stored.checked_add(INEXACT).ok());
            let oldest = found.approvals.last().filter(|_| found.approvals.len() >= limit);
            if oldest.is_some_and(|oldest| first_stored(oldest) > newest) {
                break;
            }
            self.read_offers(offers, &mut found).await?;
            found.approvals.sort_by(|one, other| {
                let times = first_stored(other).cmp(&first_stored(one));
                times.then(other.generation.cmp(&one.generation))
            });
            found.approvals.truncate(limit);
        }
        found.unreadable.truncate(limit);
        Ok(found)
    }

    /// Adds some offers to a list. One that is damaged or lost does not hide the others.
    async fn read_offers(
        &self,
        offers: &[(Timestamp, ApprovalKey)],
        found: &mut Approvals,
    ) -> Result<(), StoreError> {
        let read = stream::iter(offers.to_vec()).map(async |(_, key)| {
            let listed = self.listed(&key).await;
            (key, listed)
        });
        let mut read = std::pin::pin!(read.buffered(PARALLEL_READS));
        while let Some((key, listed)) = read.next().await {
            match listed {
                Ok(listed) => found.approvals.extend(listed),
                Err(error @ (StoreError::Corrupt(_) | StoreError::Lost(_))) => {
                    let (ApprovalKey { set, generation, .. }, reason) = (key, error.to_string());
                    tracing::error!(error = reason, "an approval cannot be read");
                    let approval = approval_digest(set, generation);
                    found.unreadable.push(UnreadableOffer { approval, set, generation, reason });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// An offer with its use; `None` if it is deleted meanwhile.
    async fn listed(&self, key: &ApprovalKey) -> Result<Option<ListedOffer>, StoreError> {
        let Some(offer) = self.part::<StoredOffer>(key, ApprovalPart::Offer).await? else {
            return Ok(None);
        };
        let used = self.used(key).await?.map(|used| used.r#use);
        let StoredOffer { offer, run, offered_by } = offer;
        let ApprovalKey { set, generation, .. } = *key;
        Ok(Some(ListedOffer { offer, set, generation, run, offered_by, used }))
    }

    /// The offer, if it can be used now.
    async fn open_offer(&self, key: &ApprovalKey) -> Result<Option<Offer>, StoreError> {
        if self.used(key).await?.is_some() {
            return Ok(None);
        }
        let stored = self.part::<StoredOffer>(key, ApprovalPart::Offer).await?;
        let now = self.approval_clock();
        Ok(stored.map(|stored| stored.offer).filter(|offer| is_open(offer, now)))
    }

    /// Creates an offer; `None` if another has created it.
    async fn create_offer(
        &self,
        key: &ApprovalKey,
        asker: &Asker,
        lifetime: Duration,
    ) -> Result<Option<Offer>, StoreError> {
        let now = self.approval_clock();
        let expires = now.checked_add(lifetime).map_err(backend_error)?;
        let offer = Offer {
            approval: approval_digest(key.set, key.generation),
            first_stored: now.to_string(),
            expires: expires.to_string(),
        };
        let Asker { caller, run } = asker.clone();
        let stored = StoredOffer { offer, run: run.to_string(), offered_by: caller };
        match self.create(key, ApprovalPart::Offer, &stored).await {
            Ok(()) => Ok(Some(stored.offer)),
            Err(StoreError::Exists) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The greatest generation of a set that has anything.
    async fn newest_generation(
        &self,
        layer: &LayerKey,
        set: Sha256,
    ) -> Result<Option<u32>, StoreError> {
        let sets = self.offered(&format!("{}{set}/", layer_prefix(layer))).await?;
        Ok(sets.get(&set.0).and_then(|generations| generations.last().copied()))
    }

    async fn offered(&self, prefix: &str) -> Result<Sets, StoreError> {
        let mut sets = Sets::new();
        let mut objects = self.list(prefix)?;
        while let Some(object) = objects.try_next().await? {
            if let Some(Key::Approval(key, _)) = Key::from_path(&object.key) {
                sets.entry(key.set.0).or_default().insert(key.generation);
            }
        }
        Ok(sets)
    }

    async fn used(&self, key: &ApprovalKey) -> Result<Option<StoredUse>, StoreError> {
        self.part(key, ApprovalPart::Used).await
    }

    async fn part<T: DeserializeOwned>(
        &self,
        key: &ApprovalKey,
        part: ApprovalPart,
    ) -> Result<Option<T>, StoreError> {
        let key = Key::Approval(key.clone(), part);
        match self.small(&key, MAX).await {
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).map(Some).map_err(backend_error),
            Ok(None) => Err(backend_error("an object of an approval is too large")),
            Err(StoreError::NotFound) => self.refuse_lost(&key).await.map(|()| None),
            Err(error) => Err(error),
        }
    }

    async fn create(
        &self,
        key: &ApprovalKey,
        part: ApprovalPart,
        value: &impl Serialize,
    ) -> Result<(), StoreError> {
        let key = Key::Approval(key.clone(), part);
        self.refuse_lost(&key).await?;
        let bytes = Bytes::from(serde_json::to_vec(value).map_err(backend_error)?);
        let conditions = PutConditions {
            sha256: Some(Sha256::of(&bytes)),
            create: true,
            ..PutConditions::default()
        };
        let body = stream::iter([Ok(bytes)]);
        self.put(&key, conditions, body).await.map(drop)
    }

    /// The storage's clock, which all replicas share.
    fn approval_clock(&self) -> Timestamp {
        self.storage_clock().unwrap_or_else(Timestamp::now)
    }
}

/// The set and generation with this digest.
fn find(sets: &Sets, approval: Sha256) -> Option<(Sha256, u32)> {
    sets.iter().find_map(|(set, generations)| {
        let set = Sha256(*set);
        let found = generations.iter().find(|of| approval_digest(set, **of) == approval);
        found.map(|generation| (set, *generation))
    })
}

/// What a claim of a used approval is answered: its own use, or the refusal.
fn granted(used: StoredUse, claim: &ClaimId) -> Result<ApprovalUse, ApprovalError> {
    if used.claim == claim.as_ref() { Ok(used.r#use) } else { Err(ApprovalError::Used(used.r#use)) }
}

/// When an offer was stored; `None` if its time cannot be read.
fn first_stored(listed: &ListedOffer) -> Option<Timestamp> {
    listed.offer.first_stored.parse().ok()
}

/// Whether an offer has not expired. One whose time cannot be read has.
fn is_open(offer: &Offer, now: Timestamp) -> bool {
    offer.expires.parse::<Timestamp>().is_ok_and(|expires| now < expires)
}

fn approval_key(layer: &LayerKey, set: Sha256, generation: u32) -> ApprovalKey {
    let LayerKey { namespace, layer } = layer.clone();
    ApprovalKey { namespace, layer, set, generation }
}

fn layer_prefix(LayerKey { namespace, layer }: &LayerKey) -> String {
    format!("{APPROVALS}{namespace}/{layer}/")
}
