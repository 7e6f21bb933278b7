//! What holds for every output, whatever bytes it has. A fuzz target and a test check it.

use std::io::BufReader;
use std::sync::LazyLock;

use crate::tool::diagnosis::cause::Cause;
use crate::tool::diagnosis::class::Class;
use crate::tool::diagnosis::output;
use crate::tool::diagnosis::rules::Rules;
use crate::tool::diagnosis::verdict::Verdict;

/// No error has more text.
const MAX_ERROR: usize = 64 << 10;

static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::load(None).expect("the rules are valid"));

/// Classifies these bytes.
pub(crate) fn check(bytes: &[u8]) {
    let verdict = Verdict::read(bytes, &RULES).expect("bytes can be read");
    let shown = output::text(&verdict, true);
    let in_pieces = Verdict::read(BufReader::with_capacity(3, bytes), &RULES);
    let in_pieces = in_pieces.map(|verdict| output::text(&verdict, true));
    assert_eq!(in_pieces.expect("bytes can be read"), shown);
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    let json = output::json(&verdict, true).expect("texts can be written");
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
    for block in &verdict.blocks {
        let error = &block.error;
        assert!(error.summary.len() + error.detail.len() <= MAX_ERROR, "{error:?}");
    }
    let cause = Cause::of(&verdict);
    assert_eq!((cause.class, cause.is_retryable), (verdict.deciding(), verdict.is_retryable));
    let is_transient = verdict.class == Class::Transient && verdict.count() > 0;
    assert!(!cause.is_retryable || is_transient && verdict.stopping() == 0, "{verdict:?}");
}
