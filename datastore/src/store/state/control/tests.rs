//! Sequences of requests of several clients, against a model of what must hold.

use datastore_api::VersionId;
use datastore_api::state::StateKind;
use jiff::SignedDuration;
use proptest::prelude::*;

use datastore_api::state::LeaseRequest;
use serde_json::json;

use super::*;
use crate::store::state::credential::Credential;

const W: &str = "default";
const TTL: i64 = 300;

/// A request of one client, or time that passes.
#[derive(Clone, Copy, Debug)]
enum Op {
    Read(usize),
    Write(usize),
    /// The answer to its last write was lost: it sends the same bytes.
    WriteAgain(usize),
    Lock(usize),
    Unlock(usize),
    ForceUnlock,
    TakeLease(usize),
    Renew(usize),
    Release(usize),
    Delete(usize),
    Undelete,
    Restore,
    Pass(i64),
}

/// What a client believes.
#[derive(Clone, Debug, Default)]
struct Client {
    /// The version that it has read, or written itself.
    base: Option<StateVersion>,
    has_read: bool,
    written: Option<StateVersion>,
    locks: bool,
    lease: Option<u64>,
}

#[derive(Default)]
struct World {
    control: Control,
    clients: [Client; 3],
    now: i64,
    made: u64,
    history: Vec<StateVersion>,
}

fn version(serial: u64, lineage: &str, made: u64) -> StateVersion {
    StateVersion {
        version: VersionId::new(made, made),
        kind: StateKind::Head,
        generation: 0,
        serial,
        lineage: lineage.to_owned(),
        sha256: Sha256::of(&made.to_be_bytes()),
        size: 1,
        resources: Some(1),
        terraform_version: None,
        encrypted: false,
        run: None,
        tool: None,
        caller: None,
        created: String::new(),
        fence: None,
        reason: None,
    }
}

fn document(version: &StateVersion) -> StateDocument {
    StateDocument {
        serial: version.serial,
        lineage: version.lineage.clone(),
        terraform_version: None,
        resources: Some(1),
        encrypted: false,
        size: 1,
    }
}

fn lease(id: &str, now: Timestamp) -> HeldLease {
    HeldLease {
        id: id.to_owned(),
        number: 0,
        request: LeaseRequest { holder: id.to_owned(), host: "h".to_owned(), run: None },
        caller: None,
        acquired: now,
        renewed: now,
        expires: now.checked_add(SignedDuration::from_secs(TTL)).unwrap(),
        took_over: None,
        credential: None,
    }
}

impl World {
    fn time(&self) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + self.now).unwrap()
    }

    fn claims(&self, client: usize) -> Claims {
        let Client { locks, lease, .. } = &self.clients[client];
        Claims { lock: locks.then(|| format!("c{client}")), fence: *lease, ..Claims::default() }
    }

    fn present(&self) -> Option<StateVersion> {
        self.control.states.get(W).and_then(State::present).cloned()
    }

    /// Sends a version of a client; what must hold of it if it is accepted.
    fn write(&mut self, client: usize, written: StateVersion) {
        let (now, claims, before) = (self.time(), self.claims(client), self.control.clone());
        let order = self.control.order(W, &document(&written), written.sha256, &claims, false);
        if let Ok(Order::Unchanged) = order {
            return;
        }
        let allowed = self.control.check_writer(W, &claims, now);
        let (Ok(()), Ok(Order::Next(generation))) = (allowed, order) else {
            assert_eq!(self.control, before, "a refused write changes nothing");
            self.clients[client].has_read = false;
            return;
        };
        // Nobody else had the right to write.
        let lock = before.states.get(W).and_then(|state| state.lock.as_ref());
        assert!(lock.is_none_or(|lock| lock.id == format!("c{client}")), "another's lock");
        let lease = before.valid_lease(now);
        let fence = claims.fence.or(lock.and_then(|lock| lock.fence));
        assert!(lease.is_none_or(|lease| fence == Some(lease.number)), "another's lease");
        assert!(fence.is_none_or(|fence| fence == before.fence), "an old number");
        // It was made of the version that it replaces: no change of another is lost.
        let present = self.present();
        let based_on = self.clients[client].base.as_ref().map(|base| &base.version);
        assert_eq!(based_on, present.as_ref().map(|present| &present.version), "a lost update");
        let written = StateVersion { generation, ..written };
        self.control.set_version(W, written.clone(), &claims).unwrap();
        self.clients[client].base = Some(written.clone());
        self.clients[client].written = Some(written.clone());
        self.history.push(written);
    }

    fn next_version(&mut self, client: usize) -> Option<StateVersion> {
        let Client { base, has_read, .. } = &self.clients[client];
        if !has_read {
            return None;
        }
        self.made += 1;
        Some(match base {
            Some(base) => version(base.serial + 1, &base.lineage, self.made),
            None => version(1, &format!("l{}", self.made), self.made),
        })
    }

    fn write_again(&self, client: usize) {
        let Some(written) = self.clients[client].written.clone() else { return };
        if self.present().is_some_and(|present| present.version == written.version) {
            let claims = self.claims(client);
            let order = self.control.order(W, &document(&written), written.sha256, &claims, false);
            assert_eq!(order.unwrap(), Order::Unchanged);
        }
    }

    fn take_lease(&mut self, client: usize) {
        let (before, now) = (self.control.fence, self.time());
        if let Ok(lease) = self.control.take_lease(lease(&format!("c{client}"), now), now) {
            assert!(lease.number >= before && lease.number == self.control.fence);
            self.clients[client].lease = Some(lease.number);
        }
    }

    fn run(&mut self, op: Op) {
        let now = self.time();
        match op {
            Op::Pass(seconds) => self.now += seconds,
            Op::Read(client) => {
                self.clients[client].base = self.present();
                self.clients[client].has_read = true;
            }
            Op::Write(client) => {
                if let Some(next) = self.next_version(client) {
                    self.write(client, next);
                }
            }
            Op::WriteAgain(client) => self.write_again(client),
            Op::Lock(client) => {
                let claims = self.claims(client);
                let lock = Lock {
                    id: format!("c{client}"),
                    info: json!({}),
                    fence: claims.fence,
                    ended: None,
                };
                self.clients[client].locks |= self.control.lock(W, lock, &claims, now).is_ok();
            }
            Op::Unlock(client) => {
                let claims = self.claims(client);
                self.control.unlock(W, &format!("c{client}"), Some(&claims), now).ok();
                self.clients[client].locks = false;
            }
            Op::ForceUnlock => {
                self.control.force_unlock(W, now).ok();
            }
            Op::TakeLease(client) => self.take_lease(client),
            Op::Renew(client) => {
                let expires = now.checked_add(SignedDuration::from_secs(TTL)).unwrap();
                let renewed = self.control.renew_lease(&format!("c{client}"), expires, now);
                assert!(
                    renewed.is_ok()
                        <= (self.control.lease.as_ref().map(|lease| lease.number)
                            == Some(self.control.fence))
                );
            }
            Op::Release(client) => {
                self.control.release_lease(&format!("c{client}"));
                self.clients[client].lease = None;
            }
            Op::Delete(client) => {
                if self.control.check_writer(W, &self.claims(client), now).is_ok() {
                    self.control.delete(W, now);
                }
            }
            Op::Undelete => {
                if self.control.check_writer(W, &Claims::default(), now).is_ok() {
                    self.control.undelete(W).ok();
                }
            }
            Op::Restore => self.restore(),
        }
        self.check_order();
    }

    /// An old version with the next serial, as `Store::restore_state` makes it.
    fn restore(&mut self) {
        let last = self.control.states.get(W).and_then(|state| state.version.clone());
        let (Some(last), Some(old)) = (last, self.history.first().cloned()) else { return };
        if self.control.check_writer(W, &Claims::default(), self.time()).is_err() {
            return;
        }
        self.made += 1;
        let is_next = last.lineage == old.lineage && self.control.states[W].deleted.is_none();
        let generation = last.generation + u64::from(!is_next);
        let serial = self.control.states[W].highest_serial + 1;
        let restored = version(serial, &old.lineage, self.made);
        let restored = StateVersion { generation, ..restored };
        self.control.set_version(W, restored.clone(), &Claims::default()).unwrap();
        self.history.push(restored);
    }

    /// Within a generation the serial rises and the lineage stays; generations only rise.
    fn check_order(&self) {
        for pair in self.history.windows(2) {
            let (older, newer) = (&pair[0], &pair[1]);
            assert!(newer.generation >= older.generation);
            if newer.generation == older.generation {
                assert!(newer.serial > older.serial, "the serial falls");
                assert_eq!(newer.lineage, older.lineage, "a fork of the lineage");
            }
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    let client = || 0..3_usize;
    prop_oneof![
        4 => client().prop_map(Op::Read),
        8 => client().prop_map(Op::Write),
        2 => client().prop_map(Op::WriteAgain),
        3 => client().prop_map(Op::Lock),
        3 => client().prop_map(Op::Unlock),
        1 => Just(Op::ForceUnlock),
        3 => client().prop_map(Op::TakeLease),
        1 => client().prop_map(Op::Renew),
        2 => client().prop_map(Op::Release),
        1 => client().prop_map(Op::Delete),
        1 => Just(Op::Undelete),
        1 => Just(Op::Restore),
        3 => (1..2 * TTL).prop_map(Op::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_requests_loses_a_write_or_forks_a_lineage(ops in prop::collection::vec(op(), 1..80)) {
        let mut world = World::default();
        for op in ops {
            world.run(op);
        }
    }
}

#[test]
fn a_credential_ends_with_its_lease_and_after_a_day_without_renewal() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let sha256 = Sha256::of(b"secret");
    let mut control = Control::default();
    let credential = Some(Credential { sha256, workspace: W.to_owned() });
    control.take_lease(HeldLease { credential, ..lease("a", now) }, now).unwrap();
    let later = |hours| now.checked_add(SignedDuration::from_hours(hours)).unwrap();
    let holder = |control: &Control, workspace, sha256, now| {
        control
            .holder(Some(workspace), sha256, now)
            .map(|holder| (holder.number, holder.is_present))
    };
    assert_eq!(holder(&control, W, sha256, later(23)), Some((1, true)));
    assert_eq!(holder(&control, W, sha256, later(24)), None);
    assert_eq!(holder(&control, "blue", sha256, now), None);
    assert!(control.holder(None, sha256, now).is_some());
    assert_eq!(holder(&control, W, Sha256::of(b"other"), now), None);
    let mut released = control.clone();
    released.release_lease("a");
    assert_eq!(holder(&released, W, sha256, now), None);
    control.take_lease(lease("b", later(1)), later(1)).unwrap();
    // It says who a late writer is, and does not let it write.
    assert_eq!(holder(&control, W, sha256, later(1)), Some((1, false)));
    let late = Claims { fence: Some(1), ..Claims::default() };
    let refused = control.check_writer(W, &late, later(1));
    assert!(matches!(refused, Err(StateError::LeaseLost(_))), "{refused:?}");
    assert_eq!(holder(&control, W, sha256, later(24)), None);
}
