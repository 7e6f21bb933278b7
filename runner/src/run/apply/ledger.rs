//! The ledger of an apply (`ledger.json`): stored before the tool starts, and while it works within a second of each change.
//!
//! One thread follows the log of the run, another one stores what has changed. Neither of them is waited for while the tool
//! works: a datastore that fails by then is a warning.

mod refreshing;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use datastore_api::{ClientError, Sha256, chain};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::process::text::one_line;
use crate::report::ledger::{Ledger, LedgerTool};
use crate::run::Run;
use crate::run::apply::ledger::refreshing::Refreshing;
pub(super) use crate::run::apply::ledger::refreshing::WATCH;
use crate::run::artifacts::Artifacts;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::tool::diagnosis::{self, Rules};
use crate::tool::diagnostics::{ProgressReader, type_of};

/// Between two uploads, from start to start.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two uploads that fail.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Between two looks at the log.
const POLL: Duration = Duration::from_millis(50);
/// Bytes of a line that are read. The line of a resource is shorter.
const MAX_LINE: usize = 16 << 10;

/// Records what an apply does.
#[derive(Debug)]
pub(crate) struct Recorder {
    ledger: Arc<Mutex<Ledger>>,
    /// The first try of the ledger that is of this process.
    first: u32,
    changes: watch::Sender<Change>,
    following: Option<Following>,
    sending: Option<Sending>,
    /// Stored again and again, so that other runs see that this one works.
    refreshing: Option<Refreshing>,
}

/// Which state of the ledger is the current one.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    number: u64,
    is_last: bool,
}

/// The thread that follows the log.
#[derive(Debug)]
struct Following {
    has_ended: Arc<AtomicBool>,
    thread: Thread,
    read: oneshot::Receiver<()>,
}

/// The thread that stores the ledger.
#[derive(Debug)]
struct Sending {
    /// Ends it when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Whether the last state is stored, once that is known.
    is_stored: watch::Receiver<Option<bool>>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(following) = &self.following {
            following.end();
        }
    }
}

impl Sending {
    fn start(
        artifacts: Artifacts,
        ledger: Arc<Mutex<Ledger>>,
        changes: watch::Receiver<Change>,
    ) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (sender, is_stored) = watch::channel(None);
        let runtime = Handle::current();
        let thread = thread::Builder::new().spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = stopped => {}
                    () = send(artifacts, ledger, changes, sender) => {}
                }
            });
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread), is_stored })
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ends at once, and must do so before the runtime.
            let _panicked = thread.join();
        }
    }
}

impl Following {
    fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

fn locked(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// Stores what the ledger gets from now on. `store` has it already.
    fn new((ledger, first): (Ledger, u32), store: Option<Artifacts>) -> io::Result<Self> {
        let ledger = Arc::new(Mutex::new(ledger));
        let (changes, receiver) = watch::channel(Change::default());
        let sending = store.map(|store| Sending::start(store, Arc::clone(&ledger), receiver));
        let sending = sending.transpose()?;
        Ok(Self { ledger, first, changes, following: None, sending, refreshing: None })
    }

    /// Records what the log gets from now on.
    fn follow(&mut self, log: File, reader: ProgressReader) -> io::Result<()> {
        let (has_ended, (done, read)) = (Arc::new(AtomicBool::new(false)), oneshot::channel());
        let follow = Follow {
            log,
            reader,
            ledger: Arc::clone(&self.ledger),
            changes: self.changes.clone(),
            has_ended: Arc::clone(&has_ended),
        };
        let thread = thread::Builder::new().spawn(move || {
            if let Err(error) = follow.run() {
                tracing::warn!("the ledger does not have all that the tool does: {error}");
            }
            // The run may have ended already.
            let _sent = done.send(());
        })?;
        self.following = Some(Following { has_ended, thread: thread.thread().clone(), read });
        Ok(())
    }

    /// Waits until everything that the tool has printed is recorded.
    async fn finish_reading(&mut self) {
        if let Some(following) = self.following.take() {
            following.end();
            // After a panic of the thread nothing more will be read.
            let _ended = following.read.await;
        }
    }

    /// The tool has ended: this is the last state, which is stored at once.
    fn end(&self, has_succeeded: bool, state_saved: bool) {
        locked(&self.ledger).end(has_succeeded, state_saved);
        self.changes.send_modify(|change| {
            *change = Change { number: change.number + 1, is_last: true };
        });
    }

    /// Waits until the last state is stored, or could not be; then it is sent once more.
    async fn store(&self, artifacts: &Artifacts) -> Result<(), ClientError> {
        if self.is_stored().await {
            return Ok(());
        }
        artifacts.put_ledger(self.json()).await
    }

    /// Whether the last state is stored, or is not to be.
    async fn is_stored(&self) -> bool {
        let Some(sending) = &self.sending else { return true };
        let mut is_stored = sending.is_stored.clone();
        let known = is_stored.wait_for(Option::is_some).await.map(|stored| *stored);
        known.ok().flatten().unwrap_or(false)
    }

    fn json(&self) -> String {
        locked(&self.ledger).to_json()
    }
}

impl Run<'_> {
    /// Stores the ledger of the apply of this plan. Without that of its first try nothing is applied; what an earlier try has
    /// started is finished all the same.
    pub(super) async fn begin_ledger(
        &mut self,
        prepared: &Prepared,
        plan: Option<Sha256>,
        is_first: bool,
    ) -> Result<(), RunError> {
        let (mut ledger, first) = self.known_ledger().await?;
        let tool = self.report.tool.as_ref();
        let tool =
            tool.map(|tool| LedgerTool { name: tool.name.clone(), version: tool.version.clone() });
        let reviewed = (self.report.plan.as_ref(), self.environment.places);
        ledger.begin(plan, reviewed, tool);
        let store = self.artifacts.clone().filter(Artifacts::takes_other_files);
        if let Some(artifacts) = &store {
            let stored = self.signals.or(artifacts.put_ledger(ledger.to_json())).await;
            let refused = match stored {
                Ok(Err(error)) if !is_first => {
                    warn_of_unstored(&error);
                    None
                }
                Ok(stored) => stored.map_err(RunError::Ledger).err(),
                Err(stop) => Some(RunError::Stopped(stop)),
            };
            // It may be stored all the same, and says by its end that the tool was not started.
            if let Some(error) = refused {
                let recorder = Recorder::new((ledger, first), store)?;
                recorder.end(false, true);
                self.ledger = Some(recorder);
                return Err(error);
            }
        } else if self.artifacts.is_some() {
            tracing::warn!(
                "the datastore is not Plancha's: it cannot keep the ledger of this apply, and if the runner is killed, \
                 nothing says what was started"
            );
        }
        // Init without the mirror comes after an error.
        let reader = ProgressReader::new(prepared.terragrunt.is_some() || prepared.mirrored);
        let mut log = File::from(fs_err::File::open(self.log.path())?);
        log.seek(io::SeekFrom::End(0))?;
        let mut recorder = Recorder::new((ledger, first), store)?;
        recorder.follow(log, reader)?;
        self.ledger = Some(recorder);
        Ok(())
    }

    /// The ledger that the attempt has, or a new one, and the first try of it that is of this process.
    async fn known_ledger(&mut self) -> Result<(Ledger, u32), RunError> {
        let (run, attempt) = (&self.job.run, self.attempt().unwrap_or_default());
        if let Some(recorder) = self.ledger.take() {
            // An earlier try's last state must not replace a later one.
            let is_stored = recorder.is_stored().await;
            let ledger = locked(&recorder.ledger).clone();
            if ledger.is_of(run, attempt) {
                return Ok((ledger, recorder.first));
            }
            if let Some(artifacts) = self.artifacts.as_ref().filter(|_| !is_stored) {
                let stored = self.signals.or(artifacts.put_ledger_of(&ledger)).await;
                if let Err(error) = stored.map_err(RunError::Stopped)? {
                    tracing::warn!(
                        "the last ledger of an earlier try is not stored: {}",
                        chain(&error)
                    );
                }
            }
            self.ledgers.push((ledger, recorder.first));
        }
        let ledger = match &self.artifacts {
            Some(artifacts) => {
                let read = self.signals.or(artifacts.ledger()).await;
                read.map_err(RunError::Stopped)?.map_err(RunError::Ledger)?
            }
            None => Ledger::new(run, attempt),
        };
        let first = ledger.tries() + 1;
        Ok((ledger, first))
    }

    /// The ledgers of the tries of this process, and of each the first try that is of this process.
    pub(super) fn ledgers_of_process(&self) -> Vec<(Ledger, u32)> {
        let mut ledgers = self.ledgers.clone();
        if let Some(recorder) = &self.ledger {
            ledgers.push((locked(&recorder.ledger).clone(), recorder.first));
        }
        ledgers
    }

    /// Changes the ledger when the tool has ended, and stores it.
    pub(super) async fn change_ledger(
        &mut self,
        change: impl FnOnce(&mut Ledger),
    ) -> Result<(), ClientError> {
        let Some(recorder) = &mut self.ledger else { return Ok(()) };
        recorder.is_stored().await;
        if let Some(mut refreshing) = recorder.refreshing.take() {
            refreshing.end().await;
        }
        let changed = {
            let mut ledger = locked(&recorder.ledger);
            change(&mut ledger);
            ledger.touch();
            ledger.clone()
        };
        match &self.artifacts {
            // The next try may have got its attempt already.
            Some(artifacts) if artifacts.takes_other_files() => {
                artifacts.put_ledger_in_time(&changed, self.signals).await
            }
            _ => Ok(()),
        }
    }

    /// Adds to the ledger that the backend has the state by now.
    pub(super) async fn record_pushed_state(&mut self) {
        if let Err(error) = self.change_ledger(Ledger::set_state_saved).await {
            tracing::warn!("the ledger does not say that the state was pushed: {}", chain(&error));
        }
    }

    /// Refreshes the stored ledger until it is changed again.
    pub(super) fn refresh_ledger(&mut self) -> io::Result<()> {
        if let (Some(recorder), Some(artifacts)) = (&mut self.ledger, &self.artifacts) {
            let ledger = Arc::clone(&recorder.ledger);
            recorder.refreshing = Some(Refreshing::start(artifacts.clone(), ledger)?);
        }
        Ok(())
    }

    /// Adds to the ledger how the tool has ended. `logged` is the length of the log before the apply.
    pub(super) async fn end_ledger(
        &mut self,
        result: &Result<(), RunError>,
        logged: u64,
        state_saved: bool,
    ) {
        let Some(recorder) = &mut self.ledger else { return };
        recorder.finish_reading().await;
        if result.is_err()
            && let Err(error) =
                add_errors(&recorder.ledger, self.retries.rules(), self.log.reader(logged))
        {
            tracing::warn!("the ledger does not have the errors of the tool: {error}");
        }
        recorder.end(result.is_ok(), state_saved);
    }

    /// Stores the last state of the ledger, if there is one.
    pub(in crate::run) async fn store_ledger(&self) -> Result<(), ClientError> {
        match (&self.ledger, &self.artifacts) {
            (Some(recorder), Some(artifacts)) => recorder.store(artifacts).await,
            _ => Ok(()),
        }
    }

    /// The last state of the ledger.
    pub(in crate::run) fn ledger_json(&self) -> String {
        self.ledger.as_ref().map(Recorder::json).unwrap_or_default()
    }

    /// The addresses at which the last try was to create an object, and got no answer, each with how its import ID follows
    /// from the planned values.
    pub(super) fn unanswered_creates(&self) -> HashMap<String, Option<String>> {
        let Some(recorder) = &self.ledger else { return HashMap::new() };
        let rules = self.retries.rules();
        let planned_id = |address: &str| Some(rules.planned_id(&type_of(address)?)?.to_owned());
        let ledger = locked(&recorder.ledger);
        let addresses = ledger.unanswered_creates();
        addresses.map(|address| (address.to_owned(), planned_id(address))).collect()
    }

    /// The resources that the tool has started, and has not said how they have ended.
    pub(crate) fn unanswered(&self) -> Option<String> {
        locked(&self.ledger.as_ref()?.ledger).describe_unanswered()
    }
}

fn warn_of_unstored(error: &ClientError) {
    tracing::warn!(
        "the ledger of the apply is not stored now; the apply goes on, and it is sent again: {}",
        chain(error)
    );
}

/// Adds the errors of the tool, with their classes.
fn add_errors(
    ledger: &Mutex<Ledger>,
    rules: &Rules,
    log: io::Result<impl io::BufRead>,
) -> io::Result<()> {
    diagnosis::each_block(log?, rules, |block| {
        let (mut ledger, unit) = (locked(ledger), block.error.unit.as_deref());
        let class = (block.class.name(), block.is_unanswered());
        let summary = one_line(&block.error.summary);
        let is_found = block
            .address
            .as_ref()
            .is_some_and(|address| ledger.fail((address, unit), class, &summary));
        // Before terraform 0.15 neither the module nor the index is named.
        if !is_found
            && let Some(end) = block.error.end_of_address()
            && let Some(address) = ledger.only_started(&end)
        {
            ledger.fail((&address, unit), class, &summary);
        }
    })
}

/// Stores each state of the ledger, and tries again if that fails, until the last one.
async fn send(
    artifacts: Artifacts,
    ledger: Arc<Mutex<Ledger>>,
    mut changes: watch::Receiver<Change>,
    is_stored: watch::Sender<Option<bool>>,
) {
    let (mut sent, mut failures) = (0, 0);
    loop {
        let change = changes.wait_for(|now| now.number > sent || now.is_last).await.map(|now| *now);
        let Ok(change) = change else { return };
        let started = Instant::now();
        let json = {
            let mut ledger = locked(&ledger);
            ledger.touch();
            ledger.to_json()
        };
        match artifacts.try_put_ledger(json).await {
            Ok(()) => {
                if failures > 0 {
                    tracing::info!("the ledger of the apply is stored again");
                }
                (sent, failures) = (change.number, 0);
            }
            Err(error) => {
                if failures == 0 && !change.is_last {
                    warn_of_unstored(&error);
                }
                failures += 1;
            }
        }
        if change.is_last {
            is_stored.send_replace(Some(failures == 0));
            return;
        }
        let pause = INTERVAL.saturating_mul(1 << failures.min(3)).min(MAX_PAUSE.max(INTERVAL));
        let last = async { changes.wait_for(|now| now.is_last).await.map(|_| ()) };
        tokio::select! {
            _ = last => {}
            () = tokio::time::sleep_until(started + pause) => {}
        }
    }
}

/// What the thread that follows the log needs.
struct Follow {
    log: File,
    reader: ProgressReader,
    ledger: Arc<Mutex<Ledger>>,
    changes: watch::Sender<Change>,
    has_ended: Arc<AtomicBool>,
}

impl Follow {
    /// Reads new lines until the tool has ended and everything is read.
    fn run(mut self) -> io::Result<()> {
        let (mut piece, mut line) = (vec![0; 64 << 10], Vec::new());
        loop {
            // It is read first: the log then has everything that the tool has printed.
            let has_ended = self.has_ended.load(Ordering::Acquire);
            loop {
                match self.log.read(&mut piece) {
                    Ok(0) => break,
                    Ok(count) => self.add(&piece[..count], &mut line),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            if has_ended {
                return Ok(());
            }
            thread::park_timeout(POLL);
        }
    }

    /// Reads the lines in a piece of the log. `line` is the beginning of an incomplete one.
    fn add(&mut self, piece: &[u8], line: &mut Vec<u8>) {
        let mut has_changed = false;
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(&part[..part.len().min(MAX_LINE - line.len())]);
            if part.ends_with(b"\n") {
                if let Some(progress) = self.reader.line(&String::from_utf8_lossy(line)) {
                    has_changed |= locked(&self.ledger).add(progress);
                }
                line.clear();
            }
        }
        if has_changed {
            self.changes.send_modify(|change| change.number += 1);
        }
    }
}
