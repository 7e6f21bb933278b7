//! `datastore state` where a state has no version, but something else.

use super::documents::{STATE, document, lock_info};
use super::program::{Place, Way, done};

const KEY: &str = "team-a/network";

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_of_a_state_without_a_version_is_named() {
    for (place, way) in Place::each_way() {
        assert_eq!(place.request(&way, "LOCK", STATE, lock_info("one")).await, 200);
        let held = place.state(&way, &["ls", KEY]);
        assert!(held.code == 8 && held.message.contains("state show"), "{held:?}");
        assert!(done(place.state(&way, &["show", KEY])).contains("one of user-one@host"));
        let pushed = place.with_input(&way, &["push", KEY, "-"], &document("l", 1, "a"));
        assert_eq!(pushed.code, 4, "{pushed:?}");
        done(place.state(&way, &["unlock", KEY, "--id", "one"]));
        let refused = place.state(&way, &["ls", KEY]);
        assert!(refused.code == 8 && refused.message.contains("--rejected"), "{refused:?}");
        let lease = r#"{"holder": "alice", "host": "machine", "run": null}"#.to_owned();
        assert_eq!(place.request(&way, "POST", "leases/team-b/x?id=a", lease).await, 200);
        let held = place.state(&way, &["ls", "team-b/x"]);
        assert!(held.code == 8 && held.message.contains("state show"), "{held:?}");
        assert!(done(place.state(&way, &["show", "team-b/x"])).contains("1 of alice on machine"));
    }
    let zero = Place::directory().state(&Way::Storage, &["ls", KEY, "--limit", "0"]);
    assert!(zero.code == 64 && zero.message.contains("from 1"), "{zero:?}");
}
