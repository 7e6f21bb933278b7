//! Random operations on one log by two replicas whose storage fails, compared with a model.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryStreamExt as _, future, stream};
use object_store::memory::InMemory;
use object_store::{Error, PutMode};
use proptest::prelude::*;

use super::append::{Append, AppendError};
use super::follow::Waited;
use super::merge::MANY;
use crate::store::backend::metered::Calls;
use crate::store::backend::storage::Backend;
use crate::store::error::StoreError;
use crate::store::handle::{Inner, Store};
use crate::store::key::Key;
use crate::store::write::conditions::PutConditions;
use crate::store::write::double::{Call, Hooked};
use datastore_api::{Attempt, File, RunKey};

const MAX: u64 = 1 << 20;
const ATTEMPT: Attempt = Attempt(3);

fn run() -> RunKey {
    let name = |text: &str| text.parse().unwrap();
    RunKey { namespace: name("team-a"), layer: name("vpc"), run: name("plan-1") }
}

/// Two replicas over one storage, which fails once `left` calls were made, while that is not negative.
fn replicas(left: Arc<AtomicI64>) -> [Store; 2] {
    let before = move |_: Call<'_>| -> BoxFuture<'static, object_store::Result<()>> {
        let is_over = left.load(Ordering::Relaxed) >= 0
            && left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some((left - 1).max(0)))
                == Ok(0);
        let source = "the storage was cut off".into();
        let result = if is_over { Err(Error::Generic { store: "test", source }) } else { Ok(()) };
        future::ready(result).boxed()
    };
    let objects = Arc::new(Hooked { inner: InMemory::new(), before });
    let replica = || {
        let objects = Arc::clone(&objects);
        Store(Arc::new(Inner::new(objects, Backend::memory(), Calls::default())))
    };
    [replica(), replica()]
}

/// The log as it should be.
#[derive(Debug, Default)]
struct Model {
    bytes: Vec<u8>,
    is_complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Stored(u64),
    Refused(u64),
}

impl Model {
    fn append(&mut self, append: &Append) -> Answer {
        let (start, len) = (usize::try_from(append.offset).unwrap(), self.bytes.len());
        let end = start + append.bytes.len();
        if self.is_complete || start != len {
            let is_same = end <= len && self.bytes[start..end] == append.bytes[..];
            let has_effect = !append.bytes.is_empty() || append.complete && self.is_complete;
            if !(is_same && has_effect && (!append.complete || end == len)) {
                return Answer::Refused(len as u64);
            }
        } else {
            self.bytes.extend_from_slice(&append.bytes);
        }
        self.is_complete |= append.complete;
        Answer::Stored(self.bytes.len() as u64)
    }
}

/// Where an append begins.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Where the log ends.
    End,
    /// So many bytes before it.
    Before(u64),
    /// So many after it.
    Gap(u64),
}

#[derive(Clone, Debug)]
enum Op {
    Append {
        place: Place,
        len: usize,
        other: bool,
        complete: bool,
    },
    /// The whole log, or another one, is put.
    Put {
        other: bool,
    },
    Merge,
    /// What `gc` and every replica do regularly.
    Tidy,
}

fn ops() -> impl Strategy<Value = Vec<(Op, usize, Option<i64>)>> {
    let place = prop_oneof![
        6 => Just(Place::End),
        2 => (1..12_u64).prop_map(Place::Before),
        1 => (1..3_u64).prop_map(Place::Gap),
    ];
    let append = (place, 0..6_usize, prop::bool::weighted(0.1), prop::bool::weighted(0.06))
        .prop_map(|(place, len, other, complete)| Op::Append { place, len, other, complete });
    let op = prop_oneof![
        20 => append,
        1 => any::<bool>().prop_map(|other| Op::Put { other }),
        3 => Just(Op::Merge),
        1 => Just(Op::Tidy),
    ];
    // Each by one of the replicas, and sometimes the storage is cut off after a few calls.
    prop::collection::vec((op, 0..2_usize, prop::option::weighted(0.3, 0..8_i64)), 1..40)
}

async fn append(store: &Store, append: &Append) -> Result<Answer, StoreError> {
    match store.append_log(&run(), ATTEMPT, append, MAX).await {
        Ok(appended) => Ok(Answer::Stored(appended.end)),
        Err(AppendError::Offset { end, .. }) => Ok(Answer::Refused(end)),
        Err(AppendError::Store(error)) => Err(error),
        Err(AppendError::TooLarge(_)) => unreachable!("logs are small"),
    }
}

async fn put(store: &Store, bytes: &[u8]) {
    let key = Key::File(run(), ATTEMPT, File::Log);
    let body = stream::iter([Ok(Bytes::copy_from_slice(bytes))]);
    store.put(&key, PutConditions::default(), body).await.unwrap();
    store.replace_log(&run(), ATTEMPT).await.unwrap();
}

/// What a reader gets.
async fn read(store: &Store) -> Option<Vec<u8>> {
    let key = Key::File(run(), ATTEMPT, File::Log);
    let bytes = match store.open_whole(&key).await {
        Ok((_, bytes)) => bytes,
        Err(StoreError::NotFound) => store.open_live_log(&run(), ATTEMPT).await.unwrap()?.1,
        Err(error) => panic!("{error}"),
    };
    Some(bytes.try_collect::<Vec<_>>().await.unwrap().concat())
}

/// Bytes that continue the log. Each position has its own value.
fn text(offset: u64, len: usize, other: bool) -> Bytes {
    (offset..offset + len as u64)
        .map(|at| u8::try_from(at * 7 % 251).unwrap() ^ u8::from(other))
        .collect()
}

async fn check(ops: Vec<(Op, usize, Option<i64>)>) {
    let left = Arc::new(AtomicI64::new(-1));
    let stores = replicas(Arc::clone(&left));
    let mut model = Model::default();
    for (op, number, cut) in ops {
        let store = &stores[number];
        let len = model.bytes.len() as u64;
        left.store(cut.unwrap_or(-1), Ordering::Relaxed);
        match op {
            Op::Append { place, len: count, other, complete } => {
                let offset = match place {
                    Place::End => len,
                    Place::Before(bytes) => len.saturating_sub(bytes),
                    Place::Gap(bytes) => len + bytes,
                };
                let bytes = text(offset, count, other);
                let to_append = Append { offset, bytes, complete };
                let first = append(store, &to_append).await;
                left.store(-1, Ordering::Relaxed);
                let answer = match first {
                    Ok(answer) => answer,
                    // Its writer tries again, perhaps at the other replica.
                    Err(_) => append(&stores[number ^ usize::from(cut == Some(3))], &to_append)
                        .await
                        .unwrap(),
                };
                let expected = model.append(&to_append);
                let repeated_end = offset + to_append.bytes.len() as u64;
                // A replica may not know of later appends to another one.
                let is_repeated = answer == Answer::Stored(repeated_end)
                    && matches!(expected, Answer::Stored(end) if end > repeated_end);
                assert!(answer == expected || is_repeated, "{answer:?} {expected:?} {to_append:?}");
            }
            Op::Put { other } => {
                left.store(-1, Ordering::Relaxed);
                if other {
                    model.bytes = b"another log, which replaces it".to_vec();
                }
                put(store, &model.bytes).await;
                model.is_complete = true;
            }
            Op::Merge => {
                let log = store.live.log(&run(), ATTEMPT);
                let _cut_off = store.merge_pieces(&log).await;
            }
            Op::Tidy => {
                left.store(-1, Ordering::Relaxed);
                // By then, no replica relies on what it knows.
                for store in &stores {
                    *store.live.log(&run(), ATTEMPT).tip.lock().await = None;
                }
                let later = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
                let tidied = store.tidy_logs(later, std::time::Duration::ZERO).await.unwrap();
                assert!(tidied.failures.is_empty(), "{tidied:?}");
            }
        }
        left.store(-1, Ordering::Relaxed);
        for store in &stores {
            let bytes = read(store).await.unwrap_or_default();
            assert_eq!(bytes, model.bytes);
        }
    }
    check_follower(&stores[0], &model).await;
}

/// A follower from any offset gets the same.
async fn check_follower(store: &Store, model: &Model) {
    let at = model.bytes.len() as u64 / 3;
    if !model.is_complete && !model.bytes.is_empty() {
        let mut follower = store.follow(&run(), ATTEMPT, at).await.unwrap().unwrap();
        let mut text = Vec::new();
        while at + (text.len() as u64) < model.bytes.len() as u64 {
            assert!(matches!(follower.wait().await, Waited::Recent | Waited::Behind));
            text.extend(follower.read().await.unwrap());
        }
        assert_eq!(text, model.bytes[usize::try_from(at).unwrap()..]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_log_has_what_was_appended_whatever_fails(ops in ops()) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap().block_on(check(ops));
    }
}

#[tokio::test(start_paused = true)]
async fn many_appends_leave_few_objects() {
    let [store, other] = replicas(Arc::new(AtomicI64::new(-1)));
    let mut model = Model::default();
    for number in 0..5 * MANY {
        let offset = model.bytes.len() as u64;
        let to_append =
            Append { offset, bytes: text(offset, 1 + number % 3, false), complete: false };
        assert_eq!(append(&store, &to_append).await.unwrap(), model.append(&to_append));
        if number % 500 == 499 {
            let objects = store.live_view(&run(), ATTEMPT).await.unwrap().objects.len();
            assert!(objects < 2 * MANY, "{objects}");
            assert_eq!(read(&other).await.unwrap(), model.bytes);
        }
    }
    let end = model.bytes.len() as u64;
    let last = Append { offset: end, bytes: Bytes::new(), complete: true };
    assert_eq!(append(&other, &last).await.unwrap(), Answer::Stored(end));
    assert_eq!(read(&store).await.unwrap(), model.bytes);
    // Only the mark of the end is left beside `run.log`, and what says that pieces were deleted.
    store.uploads.close();
    store.uploads.wait().await;
    assert_eq!(store.live_view(&run(), ATTEMPT).await.unwrap().objects.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_followers_cost_one_read_a_second_and_hold_no_bytes() {
    let [writer, store] = replicas(Arc::new(AtomicI64::new(-1)));
    let text = |offset, complete| Append { offset, bytes: text(offset, 4, false), complete };
    append(&writer, &text(0, false)).await.unwrap();
    let mut followers = Vec::new();
    for _ in 0..1000 {
        followers.push(store.follow(&run(), ATTEMPT, 4).await.unwrap().unwrap());
    }
    let reads = || store.calls().all().iter().map(|(_, _, totals)| totals.calls).sum::<u64>();
    let before = reads();
    // Ten seconds without a byte, then one piece from the other replica.
    let waits = followers.iter_mut().map(|follower| async move {
        let waited = follower.wait().await;
        (waited, follower.read().await.unwrap())
    });
    let waits = future::join_all(waits);
    let (got, ()) = tokio::join!(waits, async {
        tokio::time::sleep(std::time::Duration::from_millis(10_500)).await;
        assert!((10..=12).contains(&(reads() - before)), "{}", reads() - before);
        append(&writer, &text(4, false)).await.unwrap();
    });
    assert!(got.iter().all(|(waited, bytes)| *waited == Waited::Recent && bytes.len() == 4));
    // The piece and its digest, and the question for the next one.
    assert!(reads() - before <= 16, "{}", reads() - before);
    let ends = future::join_all(followers.iter_mut().map(|follower| async move {
        let bytes = match follower.wait().await {
            Waited::Complete => Bytes::new(),
            _ => follower.read().await.unwrap(),
        };
        (bytes.len(), follower.wait().await)
    }));
    let (ends, ()) = tokio::join!(ends, async {
        append(&writer, &text(8, true)).await.unwrap();
    });
    assert!(ends.iter().all(|end| *end == (4, Waited::Complete)), "{:?}", ends[0]);
    drop(followers);
    // Nobody asks any more.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let after = reads();
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    assert_eq!(reads(), after);
}

#[tokio::test(start_paused = true)]
async fn followers_get_the_rest_of_a_log_that_is_put_unless_it_is_another_one() {
    for (put_log, expected) in [
        (&b"0123 and the rest"[..], (b" and the rest".to_vec(), Waited::Complete)),
        (b"0123", (Vec::new(), Waited::Complete)),
        (b"another log", (Vec::new(), Waited::Replaced)),
        (b"0x23", (Vec::new(), Waited::Replaced)),
        (b"01", (Vec::new(), Waited::Replaced)),
    ] {
        // In each replica, of a follower that comes before or after the second append.
        for (number, is_early) in [(0, true), (1, true), (0, false), (1, false)] {
            let stores = replicas(Arc::new(AtomicI64::new(-1)));
            let add = |offset, bytes: &'static [u8]| Append {
                offset,
                bytes: Bytes::from_static(bytes),
                complete: false,
            };
            append(&stores[0], &add(0, b"01")).await.unwrap();
            if !is_early {
                append(&stores[0], &add(2, b"23")).await.unwrap();
            }
            let mut follower = stores[number].follow(&run(), ATTEMPT, 0).await.unwrap().unwrap();
            if is_early {
                append(&stores[0], &add(2, b"23")).await.unwrap();
            }
            let mut text = Vec::new();
            while text.len() < 4 {
                follower.wait().await;
                text.extend(follower.read().await.unwrap());
            }
            assert_eq!(text, b"0123");
            put(&stores[0], put_log).await;
            let mut rest = Vec::new();
            let end = loop {
                match follower.wait().await {
                    Waited::Recent | Waited::Behind => rest.extend(follower.read().await.unwrap()),
                    end => break end,
                }
            };
            assert_eq!((rest, end), expected, "replica {number}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_append_that_waits_too_long_for_others_is_undecided() {
    let [store, _] = replicas(Arc::new(AtomicI64::new(-1)));
    let log = store.live.log(&run(), ATTEMPT);
    let others = log.tip.lock().await;
    let append = Append { offset: 0, bytes: Bytes::from_static(b"a"), complete: false };
    let waited = store.append_log(&run(), ATTEMPT, &append, MAX).await;
    assert!(matches!(waited, Err(AppendError::Store(StoreError::Undecided))), "{waited:?}");
    drop(others);
    assert_eq!(store.append_log(&run(), ATTEMPT, &append, MAX).await.unwrap().end, 1);
}

#[tokio::test(start_paused = true)]
async fn appends_that_never_pause_are_refused_once_another_replica_has_put_the_log() {
    /// Appends through the first replica, before each piece of the second one.
    struct Writer {
        store: OnceLock<Store>,
        is_writing: AtomicBool,
        answers: Mutex<Vec<Answer>>,
    }
    let writer = Arc::new(Writer {
        store: OnceLock::new(),
        is_writing: AtomicBool::new(true),
        answers: Mutex::default(),
    });
    let append_before = Arc::clone(&writer);
    let before = move |call: Call<'_>| -> BoxFuture<'static, object_store::Result<()>> {
        let is_piece =
            matches!(call, Call::Put(path, PutMode::Create) if path.as_ref().contains("/live/"));
        if !is_piece || append_before.is_writing.swap(true, Ordering::Relaxed) {
            return future::ready(Ok(())).boxed();
        }
        let writer = Arc::clone(&append_before);
        let appended = async move {
            let offset = writer.answers.lock().unwrap().len() as u64 + 1;
            let to_append = Append { offset, bytes: Bytes::from_static(b"x"), complete: false };
            let answer = append(writer.store.get().unwrap(), &to_append).await.unwrap();
            writer.answers.lock().unwrap().push(answer);
            writer.is_writing.store(false, Ordering::Relaxed);
            Ok(())
        };
        // In a task of its own: the hook of a call awaits calls.
        async move { tokio::spawn(appended).await.unwrap() }.boxed()
    };
    let objects = Arc::new(Hooked { inner: InMemory::new(), before });
    let [one, other] = [(); 2].map(|()| {
        let objects = Arc::clone(&objects);
        Store(Arc::new(Inner::new(objects, Backend::memory(), Calls::default())))
    });
    assert!(writer.store.set(one.clone()).is_ok());
    let first = Append { offset: 0, bytes: Bytes::from_static(b"x"), complete: false };
    assert_eq!(append(&one, &first).await.unwrap(), Answer::Stored(1));
    writer.is_writing.store(false, Ordering::Relaxed);
    put(&other, b"the whole log").await;
    writer.is_writing.store(true, Ordering::Relaxed);
    let answers = std::mem::take(&mut *writer.answers.lock().unwrap());
    assert!(answers.starts_with(&[Answer::Stored(2)]), "{answers:?}");
    assert!(answers.ends_with(&[Answer::Refused(13)]), "{answers:?}");
    assert_eq!(read(&one).await.unwrap(), b"the whole log");
}
