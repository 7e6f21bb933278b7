//! `datastore state`: the program over a storage, and through a datastore that serves it.

use datastore::store::StateSettings;
use datastore_api::Sha256;
use serde_json::Value;
use support::TestDatastore;
use tempfile::TempDir;

use super::documents::{STATE, document, lock_info};
use super::program::{Place, Way, done, ended, json, send};
use crate::program::process::program;

const KEY: &str = "team-a/network";

/// The ids of the versions that a listing shows.
fn ids(listed: &Value) -> Vec<String> {
    let versions = listed["versions"].as_array().unwrap();
    versions.iter().map(|version| version["version"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_is_pushed_listed_shown_and_pulled() {
    for (place, way) in Place::each_way() {
        let absent = place.state(&way, &["pull", KEY]);
        assert_eq!((absent.code, &*absent.out), (8, ""), "{absent:?}");
        assert!(absent.message.contains("there is no state team-a/network/default"), "{absent:?}");
        for words in [
            &["ls", KEY][..],
            &["show", KEY],
            &["rm", KEY],
            &["undelete", KEY],
            &["unlock", KEY, "--id", "x"],
            &["push", KEY, "/"],
        ] {
            assert_eq!(place.state(&way, words).code, 8, "{words:?}");
        }

        let file = TempDir::new().unwrap();
        let path = file.path().join("network.tfstate");
        std::fs::write(&path, document("0123456789abcdef", 1, "a")).unwrap();
        let pushed = done(place.state(&way, &["push", KEY, path.to_str().unwrap()]));
        assert!(pushed.starts_with("wrote team-a/network/default: version "), "{pushed}");
        let second = document("0123456789abcdef", 2, "b");
        done(place.with_input(&way, &["push", KEY, "-"], &second));
        let again = done(place.with_input(&way, &["push", KEY, "-"], &second));
        assert!(again.contains("has this content already"), "{again}");

        let listed = json(place.state(&way, &["ls", KEY, "--json"]));
        let ids = ids(&listed);
        assert_eq!((ids.len(), &listed["head"]["version"]["serial"]), (2, &2.into()));
        let text = done(place.state(&way, &["ls", KEY]));
        let lines = text.lines().collect::<Vec<_>>();
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(cells(lines[1])[..4], [&*ids[0], "head*", "2", "01234567"], "{text}");
        assert_eq!(cells(lines[2])[..4], [&*ids[1], "head", "1", "01234567"], "{text}");

        let shown = done(place.state(&way, &["show", KEY]));
        for line in ["serial         2", "lineage        0123456789abcdef", "lock           -"] {
            assert!(shown.contains(line), "{shown}");
        }
        let shown = json(place.state(&way, &["show", KEY, "--version", &ids[1], "--json"]));
        assert_eq!((&shown["serial"], shown["version"].as_str()), (&1.into(), Some(&*ids[1])));

        assert_eq!(done(place.state(&way, &["pull", KEY])), second);
        let first = done(place.state(&way, &["pull", KEY, "--version", &ids[1]]));
        assert_eq!(first, document("0123456789abcdef", 1, "a"));
        let unknown = "0000000000000000-0000000000000000";
        for words in [["pull", KEY], ["show", KEY], ["restore", KEY]] {
            let ended = place.state(&way, &[&words[..], &["--version", unknown]].concat());
            assert_eq!((ended.code, &*ended.out), (8, ""), "{words:?}: {ended:?}");
            assert!(ended.message.contains("has no version 0000"), "{words:?}: {ended:?}");
        }
        let limited = place.state(&way, &["ls", KEY, "--limit", "1"]);
        assert_eq!((limited.code, limited.out.lines().count()), (0, 2));
        assert!(limited.message.contains("there are older ones"), "{limited:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_push_is_kept_and_a_forced_one_names_what_it_replaced() {
    for (place, way) in Place::each_way() {
        let push = |serial: u64, lineage: &str, more: &[&str]| {
            let words = [&["push", KEY, "-"], more].concat();
            place.with_input(&way, &words, &document(lineage, serial, "a"))
        };
        done(push(5, "l", &[]));
        let before = ids(&json(place.state(&way, &["ls", KEY, "--json"])))[0].clone();
        for (serial, lineage, reason) in [(4, "l", "serial 5"), (6, "other", "lineage l")] {
            let refused = push(serial, lineage, &[]);
            assert_eq!((refused.code, &*refused.out), (9, ""), "{refused:?}");
            assert!(refused.message.contains(reason), "{refused:?}");
            let rejected = json(place.state(&way, &["ls", KEY, "--rejected", "--json"]));
            let kept = rejected["versions"][0]["reason"].as_str().unwrap();
            assert!(kept.contains(reason), "{rejected}");
        }
        let rejected = done(place.state(&way, &["ls", KEY, "--rejected"]));
        assert!(rejected.contains("rejected") && rejected.contains("push --force"), "{rejected}");
        let none = place.with_input(&way, &["push", KEY, "-"], "{}");
        assert!(none.code == 64 && none.message.contains("not a whole state"), "{none:?}");
        assert_eq!(place.state(&way, &["push", KEY, "/nowhere/x.tfstate"]).code, 8);

        let forced = done(push(1, "other", &["--force"]));
        let restore = format!("datastore state restore team-a/network/default --version {before}");
        assert!(forced.contains(&restore) && forced.contains("(serial 5)"), "{forced}");
        let restored = done(place.state(&way, &["restore", KEY, "--version", &before]));
        assert!(
            restored
                .starts_with(&format!("restored team-a/network/default from the version {before}"))
        );
        let state = done(place.state(&way, &["pull", KEY]));
        let state = serde_json::from_str::<Value>(&state).unwrap();
        // No earlier version had a higher serial.
        assert_eq!((&state["lineage"], &state["serial"]), (&"l".into(), &6.into()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_state_is_undeleted_with_its_versions() {
    for (place, way) in Place::each_way() {
        done(place.with_input(&way, &["push", KEY, "-"], &document("l", 3, "a")));
        let not_deleted = place.state(&way, &["undelete", KEY]);
        assert!(
            not_deleted.code == 8 && not_deleted.message.contains("not deleted"),
            "{not_deleted:?}"
        );
        let id = ids(&json(place.state(&way, &["ls", KEY, "--json"])))[0].clone();
        let deleted = done(place.state(&way, &["rm", KEY]));
        assert!(deleted.contains(&id) && deleted.contains("datastore state undelete"), "{deleted}");
        assert!(done(place.state(&way, &["rm", KEY])).contains("was deleted already"));
        assert_eq!(place.state(&way, &["pull", KEY]).code, 8);
        assert_eq!(
            done(place.state(&way, &["pull", KEY, "--version", &id])),
            document("l", 3, "a")
        );
        assert!(done(place.state(&way, &["show", KEY])).contains("deleted "));
        let undeleted = done(place.state(&way, &["undelete", KEY]));
        assert_eq!(
            undeleted,
            format!("undeleted team-a/network/default: version {id}, serial 3\n")
        );
        assert_eq!(done(place.state(&way, &["pull", KEY])), document("l", 3, "a"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_lock_or_lease_is_exit_4_and_the_lock_is_removed_by_its_id() {
    for (place, way) in Place::each_way() {
        done(place.with_input(&way, &["push", KEY, "-"], &document("l", 1, "a")));
        assert_eq!(place.request(&way, "LOCK", STATE, lock_info("one")).await, 200);
        for words in [&["push", KEY, "-"][..], &["rm", KEY]] {
            let refused = place.with_input(&way, words, &document("l", 2, "a"));
            assert_eq!((refused.code, &*refused.out), (4, ""), "{words:?}: {refused:?}");
            assert!(refused.message.contains("user-one@host"), "{words:?}: {refused:?}");
        }
        let shown = done(place.state(&way, &["show", KEY]));
        assert!(shown.contains("lock           one of user-one@host"), "{shown}");
        let wrong = place.state(&way, &["unlock", KEY, "--id", "two"]);
        assert!(wrong.code == 4 && wrong.message.contains("ID one"), "{wrong:?}");
        let unlocked = done(place.state(&way, &["unlock", KEY, "--id", "one"]));
        assert_eq!(unlocked, "unlocked team-a/network/default\n");
        let unlocked = done(place.state(&way, &["unlock", KEY, "--id", "one"]));
        assert_eq!(unlocked, "there is no lock on team-a/network/default\n");

        let lease = r#"{"holder": "alice", "host": "machine", "run": "apply-1/0"}"#.to_owned();
        let taken = place.request(&way, "POST", "leases/team-a/network?id=a", lease).await;
        assert_eq!(taken, 200);
        let refused = place.with_input(&way, &["push", KEY, "-"], &document("l", 2, "a"));
        assert!(refused.code == 4 && refused.message.contains("alice@machine"), "{refused:?}");
        let shown = done(place.state(&way, &["show", KEY]));
        assert!(
            shown.contains("1 of alice on machine for the run apply-1/0, valid until"),
            "{shown}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_states_of_a_storage_are_listed_with_their_locks_and_leases() {
    for place in Place::each() {
        let datastore = place.serve(&[]);
        for (rest, serial) in [
            ("state/team-a/network", 7),
            ("state/team-a/network/blue", 3),
            ("state/team-b/x-1", 1),
            ("state/team-b/gone", 1),
        ] {
            assert_eq!(send(&datastore, "POST", rest, document("l", serial, "a")).await, 200);
        }
        assert_eq!(
            send(&datastore, "LOCK", "state/team-a/network/blue", lock_info("one")).await,
            200
        );
        let lease = r#"{"holder": "alice", "host": "machine", "run": null}"#.to_owned();
        assert_eq!(send(&datastore, "POST", "leases/team-b/x-1?id=a", lease).await, 200);
        assert_eq!(send(&datastore, "DELETE", "state/team-b/gone", String::new()).await, 200);
        // A reader needs no lock of the directory.
        let listed = done(place.state(&Way::Storage, &["ls"]));
        let lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let lines = lines.collect::<Vec<_>>();
        let names = lines.iter().skip(1).map(|cells| (cells[0], cells[1])).collect::<Vec<_>>();
        assert_eq!(
            names,
            [
                ("team-a/network/blue", "3"),
                ("team-a/network/default", "7"),
                ("team-b/x-1/default", "1")
            ],
            "{listed}"
        );
        assert!(listed.contains("lock one of user-one@host for OperationTypeApply"), "{listed}");
        assert!(listed.contains("lease 1 of alice on machine"), "{listed}");
        let all = json(place.state(&Way::Storage, &["ls", "--deleted", "--json"]));
        let all = all.as_array().unwrap();
        assert_eq!(all.len(), 4);
        let gone = all.iter().find(|state| state["layer"] == "gone").unwrap();
        assert!(gone["head"]["deleted"].is_string() && gone["last"]["serial"] == 1, "{gone}");
        let objects = program(&["ls", ".plancha/", "--storage", &place.storage])
            .envs(place.variables.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap();
        let objects = String::from_utf8(objects.stdout).unwrap();
        assert!(objects.contains("\t.plancha/states/team-a/network/control\n"), "{objects}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_whose_states_another_process_serves_is_changed_through_that() {
    let place = Place::directory();
    let datastore = place.serve(&[]);
    assert_eq!(send(&datastore, "POST", STATE, document("l", 1, "a")).await, 200);
    let id = ids(&json(place.state(&Way::Storage, &["ls", KEY, "--json"])))[0].clone();
    for words in [
        &["push", KEY, "-"][..],
        &["rm", KEY],
        &["undelete", KEY],
        &["unlock", KEY, "--id", "x"],
        &["restore", KEY, "--version", &id],
    ] {
        let refused = place.with_input(&Way::Storage, words, &document("l", 2, "a"));
        assert_eq!((refused.code, &*refused.out), (10, ""), "{words:?}: {refused:?}");
        let expected = "another process serves the states of this directory";
        assert!(refused.message.contains(expected), "{words:?}: {refused:?}");
        assert!(refused.message.contains("--url"), "{words:?}: {refused:?}");
    }
    assert_eq!(done(place.state(&Way::Storage, &["pull", KEY])), document("l", 1, "a"));
    assert!(done(place.state(&Way::Storage, &["show", KEY])).contains("serial         1"));
    drop(datastore);
    done(place.with_input(&Way::Storage, &["push", KEY, "-"], &document("l", 2, "a")));
}

#[test]
fn states_are_not_changed_where_a_version_cannot_be_replaced() {
    let place = Place::bucket();
    place.cloud.as_ref().unwrap().ignore_conditions_of_updates();
    let refused = place.with_input(&Way::Storage, &["push", KEY, "-"], &document("l", 1, "a"));
    assert_eq!((refused.code, &*refused.out), (10, ""), "{refused:?}");
    assert!(refused.message.contains("states are not kept here"), "{refused:?}");
    for (flags, row) in [
        (&[][..], "storage can keep_states            no (another process could overwrite them"),
        (&["--single-replica"], "storage can keep_states            yes\n"),
    ] {
        let mut check = program(&[&["check", "--storage", &place.storage], flags].concat());
        check.envs(place.variables.iter().map(|(name, value)| (name, value)));
        let checked = ended(&mut check, "");
        assert_eq!(checked.code, 0, "{checked:?}");
        assert!(checked.out.contains(row), "{checked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datastore_refuses_a_token_without_the_right_with_exit_5() {
    let place = Place::directory();
    let rules = TempDir::new().unwrap();
    let file = rules.path().join("tokens.yaml");
    let token = |id: &str, kind: &str, verbs: &str| {
        let mut new =
            program(&["token", id, "--namespace", "team-a", "--kind", kind, "--verb", verbs]);
        let new = new.args(["--rules", file.to_str().unwrap()]);
        let path = rules.path().join(id);
        std::fs::write(&path, done(ended(new, ""))).unwrap();
        path
    };
    let writer = token("writer", "state", "read,write");
    let operator = token("operator", "state,lease", "read,write,admin");
    let other = token("other", "plan", "read,write");
    let auth = format!("tokens={}", file.display());
    let datastore = place.serve(&["--auth", &auth]);
    let url = format!("http://{}", datastore.address);
    let run = |words: &[&str], token: Option<&std::path::Path>| {
        let mut command = program(&[&["state"], words, &["--url", &url]].concat());
        if let Some(token) = token {
            command.arg("--token-file").arg(token);
        }
        ended(&mut command, &document("l", 1, "a"))
    };
    for (words, token) in [
        (&["push", KEY, "-"][..], None),
        (&["push", KEY, "-"], Some(&other)),
        (&["pull", KEY], Some(&other)),
        (&["push", KEY, "-", "--force"], Some(&writer)),
        (&["ls", "team-b/network"], Some(&operator)),
        (&["ls", KEY], Some(&rules.path().join("missing"))),
    ] {
        let refused = run(words, token.map(std::path::PathBuf::as_path));
        assert_eq!((refused.code, &*refused.out), (5, ""), "{words:?}: {refused:?}");
    }
    done(run(&["push", KEY, "-"], Some(&writer)));
    assert_eq!(run(&["rm", KEY], Some(&writer)).code, 5);
    let shown = done(run(&["show", KEY], Some(&writer)));
    assert!(shown.contains("lease          not known: the token has no right"), "{shown}");
    let mut command = program(&["state", "rm", KEY, "--url", &url]);
    let secret = std::fs::read_to_string(&operator).unwrap();
    done(ended(command.env("PLANCHA_TOKEN", secret.trim()), ""));
}

#[test]
fn encrypted_states_need_the_key_on_the_storage_itself() {
    let place = Place::directory();
    let key = ("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY", "secret");
    let run = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = program(&[&["state"], words, &["--storage", &place.storage]].concat());
        ended(command.envs(variables.iter().copied()), &document("l", 1, "plaintext"))
    };
    done(run(&["push", KEY, "-"], &[key, ("PLANCHA_AT_REST", "burrito")]));
    assert_eq!(done(run(&["pull", KEY], &[key])), document("l", 1, "plaintext"));
    let without = run(&["pull", KEY], &[]);
    assert!(without.code == 10 && without.out.is_empty(), "{without:?}");
    assert!(without.message.contains("no encryption key is set"), "{without:?}");
    for file in crate::http::files(&place.root().join("states")) {
        let bytes = std::fs::read(place.root().join("states").join(file)).unwrap();
        assert!(!bytes.windows(9).any(|part| part == b"plaintext"));
    }
}

#[test]
fn damaged_states_are_exit_9_and_verify_names_them() {
    let place = Place::directory();
    let verify = || ended(&mut program(&["verify", "--storage", &place.storage]), "");
    done(place.with_input(&Way::Storage, &["push", KEY, "-"], &document("l", 1, "a")));
    done(place.with_input(&Way::Storage, &["push", "team-b/x", "-"], &document("l", 1, "a")));
    assert!(done(verify()).starts_with("2 objects: 2 intact"));
    let control = place.root().join(".plancha/states/team-a/network/control");
    let bytes = std::fs::read(&control).unwrap();
    for (damage, line) in [
        (None, "missing .plancha/states/team-a/network/control"),
        (Some("{"), "changed .plancha/states/team-a/network/control"),
    ] {
        match damage {
            Some(damage) => std::fs::write(&control, damage).unwrap(),
            None => std::fs::remove_file(&control).unwrap(),
        }
        let verified = verify();
        assert!(verified.code == 9 && verified.out.contains(line), "{verified:?}");
        for words in [["pull", KEY], ["show", KEY], ["ls", KEY]] {
            let damaged = place.state(&Way::Storage, &words);
            assert_eq!((damaged.code, &*damaged.out), (9, ""), "{words:?}: {damaged:?}");
        }
        let listed = place.state(&Way::Storage, &["ls"]);
        assert_eq!((listed.code, listed.out.lines().count()), (9, 2), "{listed:?}");
        assert!(listed.message.contains("cannot read the states of team-a/network"), "{listed:?}");
    }
    std::fs::write(&control, bytes).unwrap();
    let documents = place.root().join("states");
    let path = crate::http::files(&documents)[0].clone();
    let document_path = documents.join(&path);
    crate::storage::modified_objects::rot_file(&document_path, 10, 0);
    let verified = verify();
    let line = format!("changed states/{}\n", path.display());
    assert!(verified.code == 9 && verified.out.contains(&line), "{verified:?}");
    let damaged = place.state(&Way::Storage, &["pull", KEY]);
    assert_eq!((damaged.code, &*damaged.out), (9, ""), "{damaged:?}");
    std::fs::remove_file(&document_path).unwrap();
    let verified = verify();
    let line = format!("missing states/{}\n", path.display());
    assert_eq!((verified.code, verified.out.matches(&line).count()), (9, 1), "{verified:?}");
    assert!(verified.out.contains(" 1 missing,"), "{verified:?}");
    let damaged = place.state(&Way::Storage, &["pull", KEY]);
    assert!(damaged.code == 9 && damaged.message.contains("is missing"), "{damaged:?}");
}

#[test]
fn a_document_that_a_bucket_has_lost_is_found_by_verify() {
    let place = Place::bucket();
    done(place.with_input(&Way::Storage, &["push", KEY, "-"], &document("l", 1, "a")));
    let cloud = place.cloud.as_ref().unwrap();
    let control = ".plancha/states/team-a/network/control";
    let text = String::from_utf8(cloud.object(control).unwrap()).unwrap();
    // Another version than the one that is stored.
    let (before, rest) = text.split_once("\"version\":\"").unwrap();
    let lost = format!("{before}\"version\":\"{}{}", "0".repeat(16), &rest[16..]);
    let (_, json) = lost.split_once('\n').unwrap();
    cloud.put(control, format!("{}\n{json}", Sha256::of(json.as_bytes())));
    let mut verify = program(&["verify", "states/", "--storage", &place.storage]);
    verify.envs(place.variables.iter().map(|(name, value)| (name, value)));
    let verified = ended(&mut verify, "");
    assert_eq!(verified.code, 9, "{verified:?}");
    assert!(verified.out.contains("missing states/team-a/network/default/0000"), "{verified:?}");
}

#[test]
fn wrong_usage_is_exit_64_and_says_what_is_expected() {
    for (words, reason) in [
        (
            &["ls", "--url", "http://127.0.0.1:9"][..],
            "a datastore does not list all states in this version",
        ),
        (&["ls", "--limit", "3"], "the following required arguments were not provided"),
        (&["ls", KEY, "--rejected", "--snapshots"], "cannot be used with"),
        (&["show", "network"], "expected NAMESPACE/LAYER or NAMESPACE/LAYER/WORKSPACE"),
        (&["show", "a/../c"], "invalid state `a/../c`"),
        (&["pull", KEY, "--version", "7"], "--version: invalid value `7`"),
        (&["pull", KEY, "--url", "ftp://h"], "--url: invalid value"),
        (&["pull", KEY, "--url", "http://u:hush@h"], "--url: invalid value"),
        (&["pull", KEY, "--url", "http://h", "--storage", "file:///srv"], "cannot be used with"),
        (&["pull", KEY, "--token-file", "x"], "required arguments were not provided"),
        (&["restore", KEY], "--version <ID>"),
        (&["unlock", KEY], "--id <ID>"),
        (&["push", KEY], "<FILE>"),
    ] {
        let mut command = program(&[&["state"], words].concat());
        let ended = ended(command.env("HOME", "/nowhere"), "");
        assert_eq!((ended.code, &*ended.out), (64, ""), "{words:?}: {ended:?}");
        assert!(ended.message.contains(reason), "{words:?}: {ended:?}");
        assert!(!ended.message.contains("hush"), "{ended:?}");
    }
    let missing = ended(&mut program(&["state", "ls", "--storage", "file:///nowhere/x"]), "");
    assert_eq!(missing.code, 8, "{missing:?}");
    let silent = ["state", "pull", KEY, "--url", "http://127.0.0.1:9"];
    let silent = ended(&mut program(&silent), "");
    assert_eq!((silent.code, &*silent.out), (10, ""), "{silent:?}");
}

#[tokio::test]
async fn a_process_that_only_reads_changes_nothing() {
    let settings = StateSettings::read_only();
    let storage = datastore::store::Storage::Memory;
    let config = datastore::config::Config::of(storage);
    let datastore =
        TestDatastore::of(datastore::config::Config { states: settings, ..config }).await;
    let answer = super::documents::of(&datastore, "POST", STATE, &document("l", 1, "a")).await;
    assert_eq!(answer.status, 500, "{answer:?}");
    assert_eq!(super::documents::of(&datastore, "GET", STATE, "").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_layers_are_listed_and_are_metrics() {
    for place in Place::each() {
        let datastore = place.serve(&[]);
        let record = r#"{"name": "tofu", "version": "1.10.5", "migrations": {"blue": {"from": {"name": "terraform",
            "version": "1.11.4"}, "to": {"name": "tofu", "version": "1.10.5"}, "backup": null, "unfinished": true,
            "started": "2026-01-01T00:00:00Z"}}}"#;
        assert_eq!(send(&datastore, "PUT", "tools/team-a/new", record.to_owned()).await, 200);
        for (serial, version) in [(1, "1.9.8"), (2, "1.11.4")] {
            let rest = format!("state/team-a/old?tool=terraform&tool_version={version}");
            assert_eq!(send(&datastore, "POST", &rest, document("l", serial, "a")).await, 200);
        }
        let unknown = document("l", 1, "a");
        assert_eq!(send(&datastore, "POST", "state/team-a/unknown", unknown).await, 200);
        drop(datastore);

        let text = done(place.state(&Way::Storage, &["tools"]));
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(
            lines.skip(1).collect::<Vec<_>>(),
            [
                ["team-a/new", "tofu", "1.10.5", "record", "blue"],
                ["team-a/old", "terraform", "1.11.4", "state", "-"],
            ]
        );
        let listed = json(place.state(&Way::Storage, &["tools", "--json"]));
        assert_eq!(listed[0]["unfinished_migrations"][0], "blue");
        let metrics = done(place.state(&Way::Storage, &["tools", "--prometheus"]));
        for line in [
            r#"plancha_layer_tool_info{namespace="team-a",layer="new",tool="tofu",version="1.10.5",source="record"} 1"#,
            r#"plancha_layer_tool_info{namespace="team-a",layer="old",tool="terraform",version="1.11.4",source="state"} 1"#,
            r#"plancha_need_migrate_to_tofu{namespace="team-a",layer="new"} 0"#,
            r#"plancha_need_migrate_to_tofu{namespace="team-a",layer="old"} 1"#,
        ] {
            assert!(metrics.lines().any(|of| of == line), "{line}: {metrics}");
        }
        let shown = done(place.state(&Way::Storage, &["show", "team-a/new/blue"]));
        assert!(shown.contains("unfinished migration terraform 1.11.4 to tofu 1.10.5"), "{shown}");
        let served = Way::Datastore(place.serve(&[]));
        let refused = place.state(&served, &["tools"]);
        assert_eq!(refused.code, 64, "{refused:?}");
    }
}
