//! The commands `ls`, `cat`, `verify`, `reindex`, `check` and `token`. `gc` and `state` have their own modules.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use datastore_api::chain;
use futures::TryStreamExt as _;
use secrecy::ExposeSecret as _;
use tempfile::NamedTempFile;

use crate::auth::{Authenticator, NewToken, SessionSettings, add_rules};
use crate::cli::error::{CommandError, Damage, counted};
use crate::cli::health::is_running;
use crate::cli::state::faults::print_faults;
use crate::config::{Config, Serve, Setting, StorageCommand, StorageConfig};
use crate::start::{StartError, raise_open_files, try_listen};
use crate::store::{
    Ability, Key, Link, NEEDED, ProbeResults, StateError, Storage, Store, StoreError, Tried,
    Verdict, check_directory_in_time, concise, is_own,
};
use crate::transport::tls::Tls;

/// The exit code of a command. Prints its error on standard error.
pub fn report(result: Result<(), CommandError>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if !error.is_closed_pipe() {
        // Without standard error, only the exit code is left to report the error.
        let text = concise(&chain(&error));
        let _printed = writeln!(io::stderr(), "error: {text}{}", hint(&text));
    }
    ExitCode::from(error.exit_code())
}

/// What to do about an error of a bucket, which does not say it itself.
fn hint(text: &str) -> &'static str {
    if text.contains("hint:") {
        ""
    } else if text.contains("NoSuchBucket") || text.contains("ContainerNotFound") {
        "\nhint: make the bucket, or name another with --storage"
    } else if text.contains("client error (Connect)") {
        "\nhint: correct the endpoint in the variables of the cloud; `datastore check` prints them"
    } else {
        ""
    }
}

/// Runs one command, and writes its results to `out`.
pub async fn run(
    config: &StorageConfig,
    command: StorageCommand,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let store = open_storage(config).await?;
    let deletes = matches!(command, StorageCommand::Gc(_));
    let done = run_over(&store, command, out).await;
    print_links(&store, deletes)?;
    done?;
    Ok(out.flush()?)
}

async fn run_over(
    store: &Store,
    command: StorageCommand,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    match command {
        StorageCommand::Ls(prefix) => ls(store, &prefix, out).await,
        StorageCommand::Cat(key) => cat(store, &key, out).await,
        StorageCommand::Verify(prefix) => verify(store, &prefix, out).await,
        StorageCommand::Accept(key) => accept(store, &key, out).await,
        StorageCommand::Gc(rules) => crate::cli::gc::sweep::sweep(store, &rules, out).await,
        StorageCommand::Reindex => {
            let added = store.reindex().await;
            let added = added.map_err(|error| CommandError::Storage("rebuild the index", error))?;
            let runs = counted(added, "run was", "runs were");
            Ok(writeln!(out, "{runs} missing in the index")?)
        }
    }
}

/// Names the symbolic links that a command has left out. `gc` follows none.
fn print_links(store: &Store, deletes: bool) -> io::Result<()> {
    for (path, link) in store.links() {
        let why = match link {
            Link::Outside => {
                "it leads out of the directory of the storage: mount the other directory there instead"
            }
            Link::Loop => "it leads to itself, or to a directory above it: remove it",
            Link::Followed if deletes => "nothing is deleted through it",
            Link::Followed => continue,
        };
        writeln!(io::stderr(), "left out {path}, a symbolic link: {why}")?;
    }
    Ok(())
}

/// Checks that the directory of a storage exists: no command creates it.
async fn check_root(storage: &Storage) -> Result<(), CommandError> {
    let Storage::File(root) = storage else { return Ok(()) };
    check_directory_in_time(root).await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CommandError::NoStorage(root.display().to_string()),
        // `serve` could not create it, either.
        _ => StartError::Storage(storage.to_string(), error.into()).into(),
    })
}

/// Opens the storage of a command.
pub(super) async fn open_storage(config: &StorageConfig) -> Result<Store, CommandError> {
    check_root(&config.storage).await?;
    Ok(open(&config.storage)?.at_rest(&config.at_rest))
}

fn open(storage: &Storage) -> Result<Store, CommandError> {
    let opened = Store::open(storage);
    Ok(opened.map_err(|error| StartError::Storage(storage.to_string(), error))?)
}

async fn ls(store: &Store, prefix: &str, out: &mut impl Write) -> Result<(), CommandError> {
    let failed = |error| CommandError::Storage("list", error);
    let directory = prefix.rfind('/').map_or("", |end| &prefix[..=end]);
    let mut objects = store.list(directory).map_err(failed)?;
    let mut any = false;
    while let Some(object) = objects.try_next().await.map_err(failed)? {
        if object.key.starts_with(prefix) {
            any = true;
            writeln!(out, "{}\t{:.0}\t{}", object.size, object.modified, object.key)?;
        }
    }
    if !any && !prefix.is_empty() {
        writeln!(io::stderr(), "no key begins with `{prefix}`")?;
    }
    Ok(())
}

/// How many objects are read at the same time.
const PARALLEL_READS: usize = 4;

async fn verify(store: &Store, prefix: &str, out: &mut impl Write) -> Result<(), CommandError> {
    let failed = |error| CommandError::Storage("list", error);
    let directory = prefix.rfind('/').map_or("", |end| &prefix[..=end]);
    let objects = store.list(directory).map_err(failed)?;
    let ours = objects.try_filter(|object| std::future::ready(is_verified(&object.key, prefix)));
    let verdicts = ours.map_ok(async |object| {
        let verdict = store.verify(&object.key).await;
        Ok((object.key, verdict))
    });
    let mut verdicts = std::pin::pin!(verdicts.try_buffered(PARALLEL_READS));
    let (mut intact, mut healed, mut unverified, mut copied) = (0, 0, 0, 0);
    let mut damage = Damage::default();
    while let Some((key, verdict)) = verdicts.try_next().await.map_err(failed)? {
        let (count, result) = match verdict {
            Ok(Verdict::Intact) => (&mut intact, None),
            Ok(Verdict::Copied) => {
                copied += 1;
                (&mut intact, Some("copy written".to_owned()))
            }
            Ok(Verdict::NotCopied(reason)) => {
                damage.uncopied += 1;
                (&mut intact, Some(format!("copy not written ({reason})")))
            }
            Ok(Verdict::Gone) => continue,
            Ok(Verdict::Healed) => (&mut healed, Some("healed".to_owned())),
            Ok(Verdict::Changed) => {
                damage.changed_states += usize::from(is_state(&key));
                (&mut damage.changed, Some("changed".to_owned()))
            }
            Ok(Verdict::Unverified) => (&mut unverified, Some("unverified".to_owned())),
            Err(error) => {
                (&mut damage.unread, Some(format!("unread ({})", concise(&chain(&error)))))
            }
        };
        *count += 1;
        if let Some(result) = result {
            writeln!(out, "{result} {key}")?;
        }
    }
    print_missing(store, prefix, &mut damage, out).await?;
    print_faults(store, prefix, &mut damage, out).await?;
    let Damage { changed, missing, unread, .. } = damage;
    let all = intact + healed + changed + unverified + unread + missing;
    if all == 0 && !prefix.is_empty() {
        return Err(CommandError::NoPrefix(prefix.to_owned()));
    }
    writeln!(
        out,
        "{}: {intact} intact, {healed} healed, {unverified} unverified, {changed} changed, {missing} missing, {unread} unread; {} written",
        counted(all, "object", "objects"),
        counted(copied, "copy", "copies"),
    )?;
    if damage.is_none() { Ok(()) } else { Err(CommandError::Damaged(damage)) }
}

/// Whether `verify` with this prefix covers a key: its own files have no digest.
fn is_verified(key: &str, prefix: &str) -> bool {
    key.starts_with(prefix) && !(is_own(key) && Key::from_path(key).is_none())
}

/// Whether a key is the document of a state.
fn is_state(key: &str) -> bool {
    matches!(Key::from_path(key), Some(Key::State(..)))
}

/// Prints the objects of a directory that have a digest record and no file, or something other than a file in their place.
async fn print_missing(
    store: &Store,
    prefix: &str,
    damage: &mut Damage,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let failed = |error| CommandError::Storage("list the digest records", error);
    let directory = prefix.rfind('/').map_or("", |end| &prefix[..=end]);
    let keys = store.recorded(directory).map_err(failed)?;
    let ours = keys.try_filter(|key| std::future::ready(is_verified(key, prefix)));
    let checks = ours.map_ok(async |key| {
        let is_lost = store.is_lost(&key).await;
        Ok((key, is_lost))
    });
    let mut checks = std::pin::pin!(checks.try_buffered(PARALLEL_READS));
    while let Some((key, is_lost)) = checks.try_next().await.map_err(failed)? {
        match is_lost {
            Ok(false) => {}
            Ok(true) => {
                damage.missing += 1;
                damage.missing_states += usize::from(is_state(&key));
                writeln!(out, "missing {key}")?;
            }
            Err(error) => {
                damage.unread += 1;
                writeln!(out, "unread ({}) {key}", concise(&chain(&error)))?;
            }
        }
    }
    Ok(())
}

async fn accept(store: &Store, key: &str, out: &mut impl Write) -> Result<(), CommandError> {
    if is_state(key) {
        return Err(CommandError::AcceptState(key.to_owned()));
    }
    let sha256 = store.accept(key).await.map_err(|error| match error {
        StoreError::NotFound => CommandError::NoKey(key.to_owned()),
        error => CommandError::Storage("record its digest", error),
    })?;
    Ok(writeln!(out, "accepted {key}, sha256 {sha256}")?)
}

async fn cat(store: &Store, key: &str, out: &mut impl Write) -> Result<(), CommandError> {
    let failed = |error| match error {
        StoreError::NotFound => CommandError::NoKey(key.to_owned()),
        error @ StoreError::Corrupt(_) => CommandError::Corrupt(error),
        error => CommandError::Storage("read", error),
    };
    let (meta, mut bytes) = store.open_key(key).await.map_err(failed)?;
    while let Some(piece) = bytes.try_next().await.map_err(failed)? {
        out.write_all(&piece)?;
    }
    out.flush()?;
    if !meta.is_verified() {
        writeln!(io::stderr(), "unverified: no digest of `{key}` is recorded")?;
    }
    Ok(())
}

/// Creates a token and prints it. Prints its rule too, unless that is added to a file.
pub fn token(
    token: &NewToken,
    rules: Option<&Path>,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let (secret, yaml) = token.create().map_err(CommandError::Token)?;
    let failed = |path: &Path, reason| CommandError::Token(format!("{}: {reason}", path.display()));
    let added = rules.map(|path| add_to_copy(path, &yaml).map_err(|reason| failed(path, reason)));
    let added = added.transpose()?;
    writeln!(out, "{}", secret.expose_secret())?;
    if rules.is_none() {
        write!(out, "{yaml}")?;
    }
    out.flush()?;
    // The rule of a token that was not shown must not be in the file.
    if let Some(added) = added {
        added.replace().map_err(|(path, reason)| failed(&path, reason))?;
    }
    Ok(())
}

/// A file of rules with new rules, which has not replaced the present one. The directory is locked until then.
struct AddedRules {
    file: NamedTempFile,
    path: PathBuf,
    _lock: fs_err::File,
}

impl AddedRules {
    fn replace(self) -> Result<(), (PathBuf, String)> {
        let replaced = self.file.persist(&self.path);
        replaced.map(drop).map_err(|error| (self.path, error.to_string()))
    }
}

/// Adds rules to a copy of a file, which is to replace it atomically. Two commands at the same time add both their rules.
fn add_to_copy(path: &Path, yaml: &str) -> Result<AddedRules, String> {
    let text = |error: io::Error| error.to_string();
    // A symbolic link is followed, so that its target is replaced and not the link.
    let path = fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs_err::metadata(&path).is_ok_and(|meta| !meta.is_file()) {
        return Err("not a regular file".to_owned());
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    // The directory is locked: the file is replaced, so the next command would not see a lock on it.
    let lock = fs_err::File::open(directory).map_err(text)?;
    lock.file()
        .lock()
        .map_err(|error| format!("{} cannot be locked: {error}", directory.display()))?;
    let before = match fs_err::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        before => Some(before.map_err(text)?),
    };
    let rules = add_rules(before.as_deref().unwrap_or_default(), yaml)?;
    let mode = match &before {
        Some(_) => fs_err::metadata(&path).map_err(text)?.permissions(),
        // The umask applies.
        None => std::fs::Permissions::from_mode(0o666),
    };
    let mut file = tempfile::Builder::new()
        .prefix(".rules-")
        .permissions(mode.clone())
        .tempfile_in(directory)
        .map_err(text)?;
    file.write_all(rules.as_bytes()).map_err(text)?;
    if before.is_some() {
        file.as_file().set_permissions(mode).map_err(text)?;
    }
    file.as_file().sync_all().map_err(text)?;
    Ok(AddedRules { file, path, _lock: lock })
}

/// Prints the settings, and what the storage supports.
pub async fn check(serve: &Serve, out: &mut impl Write) -> Result<(), CommandError> {
    for Setting { name, value, source } in &serve.settings {
        writeln!(out, "{name:<16} {value}  ({source})")?;
    }
    for warning in &serve.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    out.flush()?;
    let Config { storage, auth, tls, states, .. } = &serve.config;
    let unusable = |error| StartError::Storage(storage.to_string(), error);
    raise_open_files()?;
    check_address(&serve.listen, out).await?;
    check_root(storage).await?;
    let store = open(storage)?;
    let started = store.start().await;
    let results = store.probe_results();
    for ability in Ability::ALL {
        print_row(ability.name(), &shown(&results, ability), out)?;
    }
    let states = store.with_states(*states).can_keep_states().await;
    print_row("keep_states", &keeps_states(states, &results), out)?;
    let uploads = store.try_uploads(&results).await;
    print_uploads(&uploads, out)?;
    out.flush()?;
    started.map_err(unusable)?;
    let opened = Authenticator::open(auth.clone(), SessionSettings::default(), false, false).await;
    drop(opened.map_err(StartError::Callers)?);
    tls.clone().map(Tls::open).transpose().map_err(StartError::Certificate)?;
    match results.error {
        Some(error) if results.is_unfit() => return Err(CommandError::Unfit(error)),
        Some(error) => {
            let step = results.ended_at.map_or("be used", Ability::name);
            return Err(CommandError::Unknown(step, error));
        }
        None => {}
    }
    // The error of an upload that cannot be started says more than those of what needs one.
    judge_uploads(uploads)?;
    if let Some((ability, error)) = results.unseen.into_iter().next() {
        return Err(CommandError::Unknown(ability.name(), error));
    }
    Ok(())
}

/// Checks that the service could listen. A datastore that runs there already is what `check` is often started beside.
async fn check_address(listen: &[SocketAddr], out: &mut impl Write) -> Result<(), CommandError> {
    let tried = try_listen(listen);
    if let Err(StartError::Listen(address, error)) = &tried
        && error.kind() == io::ErrorKind::AddrInUse
        && is_running(*address).await
    {
        writeln!(out, "warning: a datastore listens on {address} already")?;
        return Ok(());
    }
    Ok(tried?)
}

/// What `check` shows of an ability.
fn shown(results: &ProbeResults, ability: Ability) -> String {
    match results.can(ability) {
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
        None => match results.unseen.iter().find(|(unseen, _)| *unseen == ability) {
            Some((_, error)) => format!("unknown ({error})"),
            None => not_tried(&results.why_not_tried().unwrap_or_default()),
        },
    }
}

/// What `check` shows of states.
fn keeps_states(checked: Result<(), StateError>, results: &ProbeResults) -> String {
    match checked {
        Ok(()) => "yes".to_owned(),
        Err(StateError::Elsewhere(_)) => "yes (another process serves them now)".to_owned(),
        Err(StateError::NotConditional) => {
            "no (another process could overwrite them: start the only replica with --single-replica)".to_owned()
        }
        Err(_) if results.why_not_tried().is_some() => {
            not_tried(&results.why_not_tried().unwrap_or_default())
        }
        Err(error) => format!("unknown ({})", concise(&chain(&error))),
    }
}

fn not_tried(why: &str) -> String {
    format!("not tried ({why})")
}

fn print_row(name: &str, can: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "storage can {name:<22} {can}")
}

/// Prints whether the storage can do what large uploads and the cleanup of abandoned ones need.
fn print_uploads(uploads: &[(&str, Tried)], out: &mut impl Write) -> io::Result<()> {
    for (name, tried) in uploads {
        let can = match tried {
            Tried::Done => "yes".to_owned(),
            Tried::Denied(error) | Tried::Unsupported(error) => format!("no ({error})"),
            Tried::Unknown(error) => format!("unknown ({error})"),
            Tried::NotTried(why) => not_tried(why),
        };
        print_row(name, &can, out)?;
    }
    for (name, tried) in uploads {
        if !NEEDED.contains(name) && matches!(tried, Tried::Unsupported(_)) {
            writeln!(
                out,
                "warning: {name}: parts of uploads that a killed process leaves may stay, and cost money"
            )?;
        }
    }
    Ok(())
}

/// Fails if a right is missing, if artifacts above 8 MiB cannot be stored, or if a step has shown nothing.
fn judge_uploads(uploads: [(&'static str, Tried); 5]) -> Result<(), CommandError> {
    for (name, tried) in uploads {
        match tried {
            Tried::Denied(error) => return Err(CommandError::Unfit(error)),
            Tried::Unsupported(error) if NEEDED.contains(&name) => {
                let error = format!("artifacts above 8 MiB need uploads in parts: {error}");
                return Err(CommandError::Unfit(error));
            }
            Tried::Unknown(error) => return Err(CommandError::Unknown(name, error)),
            Tried::Done | Tried::Unsupported(_) | Tried::NotTried(_) => {}
        }
    }
    Ok(())
}
