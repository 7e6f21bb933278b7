//! The information about a lock: what callers send of it is stored with the layer, and must be readable again.

use serde_json::{Value, json};
use support::TestDatastore;

use super::documents::{STATE, document, lock, lock_info, of, post, unlock};

/// The name that `serde_json` gives to the texts of raw values.
const RAW: &str = "$serde_json::private::RawValue";

/// The information about a lock, with this as well.
fn with(info: &str) -> String {
    format!("{{\"ID\":\"x\",\"Info\":{info}}}")
}

#[tokio::test]
async fn information_that_is_too_deep_or_large_is_refused_and_the_layer_stays_readable() {
    for datastore in TestDatastore::each().await {
        assert_eq!(post(&datastore, STATE, &document("l", 1, "a")).await, 200);
        let nested = |levels: usize| with(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
        for (body, reason) in [
            (nested(122), "levels"),
            (nested(123), "levels"),
            (nested(126), "levels"),
            (nested(200), "JSON"),
            (nested(16), "levels"),
            (with(&json!("a".repeat(8 << 10)).to_string()), "8 KiB"),
            (with(&json!([{RAW: "1"}]).to_string()), "reserved"),
        ] {
            let refused = of(&datastore, "LOCK", STATE, &body).await;
            assert!(refused.status == 400 && refused.text().contains(reason), "{refused:?}");
            assert_eq!(of(&datastore, "GET", STATE, "").await.status, 200, "{body}");
        }
        assert_eq!(of(&datastore, "LOCK", STATE, &nested(15)).await.status, 200);
        let held = lock(&datastore, STATE, "y").await;
        assert_eq!((held.status, &held.json()["ID"]), (423, &json!("x")));
        assert_eq!(unlock(&datastore, STATE, "x").await.status, 200);
    }
}

#[tokio::test]
async fn texts_within_texts_end_no_process() {
    let datastore = TestDatastore::temporary().await;
    assert_eq!(lock(&datastore, STATE, "x").await.status, 200);
    let mut value = "1".to_owned();
    for _ in 0..60 {
        let text = value.replace('\\', "\\u005c").replace('"', "\\u0022");
        let (opened, closed) = ("[".repeat(90), "]".repeat(90));
        value = format!("{opened}{{\"{RAW}\":\"{text}\"}}{closed}");
    }
    let body = with(&value);
    assert!(body.len() < 64 << 10);
    assert_eq!(of(&datastore, "LOCK", STATE, &body).await.status, 400);
    // The ID is that of the lock.
    assert_eq!(of(&datastore, "UNLOCK", STATE, &body).await.status, 200);
    let info: Value = serde_json::from_str(&lock_info("y")).unwrap();
    assert_eq!(of(&datastore, "LOCK", STATE, &info.to_string()).await.status, 200);
}
