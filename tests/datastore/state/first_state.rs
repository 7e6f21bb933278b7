//! The first state of a layer, whose tool has never reached the datastore.

use tempfile::TempDir;

use super::documents::document;
use super::program::{Place, done, json};

const KEY: &str = "team-a/network";

#[tokio::test(flavor = "multi_thread")]
async fn a_state_is_pushed_from_a_pipe() {
    for (place, way) in Place::each_way() {
        let state = document("l", 1, "a");
        done(place.with_input(&way, &["push", KEY, "/dev/stdin"], &state));
        assert_eq!(done(place.state(&way, &["pull", KEY])), state);
    }
}

/// As terraform writes `errored.tfstate` if it has never reached the backend.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_state_without_a_lineage_gets_one() {
    for (place, way) in Place::each_way() {
        let first = document("", 0, "a");
        let file = TempDir::new().unwrap();
        let path = file.path().join("errored.tfstate");
        std::fs::write(&path, &first).unwrap();
        let push = ["push", KEY, path.to_str().unwrap()];
        for (pushed, words) in [
            (place.state(&way, &push), "wrote team-a/network/default: version "),
            (place.with_input(&way, &["push", KEY, "-"], &first), "has this content already"),
        ] {
            assert!(pushed.code == 0 && pushed.out.contains(words), "{pushed:?}");
            assert!(pushed.message.contains("the lineage of the document is empty"), "{pushed:?}");
        }
        let shown = json(place.state(&way, &["show", KEY, "--json"]));
        let version = &shown["head"]["version"];
        assert_eq!(version["serial"], 1);
        let lineage = version["lineage"].as_str().unwrap();
        assert_eq!(lineage.len(), 32);
        assert_eq!(done(place.state(&way, &["pull", KEY])), document(lineage, 1, "a"));
        // Of which history it is, is not known.
        let refused = place.with_input(&way, &["push", KEY, "-"], &document("", 1, "b"));
        assert!(refused.message.contains("`lineage` is empty"), "{refused:?}");
        assert_ne!(refused.code, 0);
    }
}
