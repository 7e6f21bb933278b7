//! State documents: whether bytes are one, and what the datastore must know of it.
//!
//! A document is read while it streams in, on another thread, in bounded memory. The thread waits as long as the body comes,
//! and others need threads of the same pool, so only some bodies are read at a time, fairly between callers. Format 4 is terraform's since 0.12 and
//! tofu's; a state that tofu has encrypted has `encrypted_data` instead of its content, with serial and lineage beside it.

use std::fmt;
use std::io::Read;
use std::ops::Range;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use md5::{Digest as _, Md5};
use serde::Deserialize;
use serde::de::{
    Deserializer, EnumAccess, IgnoredAny, MapAccess, SeqAccess, VariantAccess as _, Visitor,
};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::changes::guard::{Guard, Limit, Seen};
use crate::store::error::BoxError;
use crate::store::read::pieces::Pieces;
use crate::transport::memory::{Lease, PIECE};

/// What one reader takes of the places of all, in the pieces of [`crate::transport::memory`]: two, because a single one is
/// given out without regard to other callers.
pub(in crate::store) const READER: usize = 2 * PIECE;

/// The places of all readers, an eighth of which are reserved for single pieces: 63 read at a time.
pub(in crate::store) const READERS: usize = 144 * PIECE;

/// Pieces of a body that wait until they are read.
const AHEAD: usize = 4;

/// The highest serial: some readers of states have no larger numbers, and a restore needs a higher one than any before.
pub(crate) const MAX_SERIAL: u64 = i64::MAX as u64;

/// The longest lineage; terraform's is a UUID.
const MAX_LINEAGE: usize = 256;

/// The longest version of a tool.
const MAX_TOOL_VERSION: usize = 64;

/// The most levels of a document: as many as the parser of terraform and tofu reads.
const MAX_DEPTH: usize = 10_000;

/// The bytes are not a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not a whole state: {0}")]
pub struct InvalidState(pub(super) String);

/// What the datastore knows of a state document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateDocument {
    /// It rises with each change.
    pub serial: u64,
    /// The same for all versions of one history.
    pub lineage: String,
    /// The version of the tool that wrote it; `None` if it is encrypted.
    pub terraform_version: Option<String>,
    /// Its managed resources; `None` if it is encrypted.
    pub resources: Option<u64>,
    /// Whether tofu has encrypted it.
    pub encrypted: bool,
    /// Its size in bytes.
    pub size: u64,
}

/// The fields that are read. Others are skipped; a repeated one is an error.
#[derive(Deserialize)]
struct Fields {
    version: Option<u64>,
    serial: Option<u64>,
    lineage: Option<String>,
    terraform_version: Option<String>,
    resources: Option<Resources>,
    /// The content of a document of the formats 1 to 3.
    modules: Option<Vec<IgnoredAny>>,
    encrypted_data: Option<Text>,
}

/// A text that is not kept: that of an encrypted state is all of its content.
struct Text;

/// The number of managed resources in a list.
struct Resources(u64);

/// Passes the pieces of a body on, and reads them as a state. The stream ends with an error, [`InvalidState`] in a box, if they
/// are not one, or if their MD5 digest is not this one. Otherwise the document is sent before the stream ends. The thread that
/// reads them has a place of [`READERS`].
pub(crate) fn inspected(
    body: impl Stream<Item = Result<Bytes, BoxError>> + Send + Unpin + 'static,
    md5: Option<[u8; 16]>,
    place: Lease,
) -> (
    impl Stream<Item = Result<Bytes, BoxError>> + Send + Unpin + 'static,
    tokio::sync::oneshot::Receiver<StateDocument>,
) {
    let (found, document) = tokio::sync::oneshot::channel();
    let (pieces, receiver) = mpsc::channel(AHEAD);
    let reading = tokio::task::spawn_blocking(move || {
        let _place = place;
        read(&mut Pieces::new(receiver))
    });
    let inspection =
        Inspection { pieces: Some(pieces), reading, md5, hasher: Md5::new(), size: 0, found };
    let checked = stream::try_unfold((body, Some(inspection)), async |(mut body, inspection)| {
        let Some(mut inspection) = inspection else { return Ok(None) };
        if let Some(piece) = body.next().await {
            let piece = piece?;
            inspection.pass(&piece).await;
            return Ok(Some((piece, (body, Some(inspection)))));
        }
        inspection.finish().await?;
        Ok::<_, BoxError>(None)
    });
    (checked.boxed(), document)
}

/// A body that is read as a state while it passes.
struct Inspection {
    pieces: Option<mpsc::Sender<Bytes>>,
    reading: tokio::task::JoinHandle<Result<StateDocument, InvalidState>>,
    md5: Option<[u8; 16]>,
    hasher: Md5,
    size: u64,
    found: tokio::sync::oneshot::Sender<StateDocument>,
}

impl Inspection {
    async fn pass(&mut self, piece: &Bytes) {
        self.size += piece.len() as u64;
        if self.md5.is_some() {
            self.hasher.update(piece);
        }
        // A reader that has found an error reads no further.
        if let Some(pieces) = &self.pieces
            && pieces.send(piece.clone()).await.is_err()
        {
            self.pieces = None;
        }
    }

    async fn finish(mut self) -> Result<(), BoxError> {
        self.pieces = None;
        let document = self.reading.await??;
        let actual: [u8; 16] = self.hasher.finalize().into();
        if self.md5.is_some_and(|announced| announced != actual) {
            let digest = BASE64_STANDARD.encode(actual);
            return Err(InvalidState(format!(
                "its MD5 digest is {digest}, and `Content-MD5` is another one"
            ))
            .into());
        }
        // The receiver may have given up.
        drop(self.found.send(StateDocument { size: self.size, ..document }));
        Ok(())
    }
}

/// Reads a state document. Its `size` is not known here.
fn read(bytes: &mut impl Read) -> Result<StateDocument, InvalidState> {
    // The parser keeps a string whole, also a name that is then skipped.
    let guard = Guard::cutting(bytes, MAX_DEPTH);
    let seen = guard.seen();
    let mut json = serde_json::Deserializer::from_reader(guard);
    let fields = Fields::deserialize(&mut json).and_then(|fields| json.end().map(|()| fields));
    let fields = fields.map_err(|error| InvalidState(reason(&error, &seen)))?;
    let encrypted = fields.encrypted_data.is_some();
    let missing = |name: &str| InvalidState(format!("`{name}` is missing"));
    if !encrypted {
        let content = match fields.version {
            Some(1..=3) => ("modules", fields.modules.is_some()),
            Some(4) => ("resources", fields.resources.is_some()),
            Some(version) => {
                return Err(InvalidState(format!(
                    "it has the format {version}; 4 is the newest known one"
                )));
            }
            None => return Err(missing("version")),
        };
        if let (name, false) = content {
            return Err(missing(name));
        }
    }
    let lineage = fields.lineage.ok_or_else(|| missing("lineage"))?;
    if lineage.is_empty() {
        return Err(InvalidState("`lineage` is empty".to_owned()));
    }
    if lineage.len() > MAX_LINEAGE {
        return Err(InvalidState("`lineage` is longer than 256 bytes".to_owned()));
    }
    let version = fields.terraform_version;
    if version.as_ref().is_some_and(|version| version.len() > MAX_TOOL_VERSION) {
        return Err(InvalidState("`terraform_version` is longer than 64 bytes".to_owned()));
    }
    let serial = fields.serial.ok_or_else(|| missing("serial"))?;
    if serial > MAX_SERIAL {
        return Err(InvalidState(format!("`serial` is above {MAX_SERIAL}")));
    }
    Ok(StateDocument {
        serial,
        lineage,
        terraform_version: version.filter(|_| !encrypted),
        resources: fields.resources.filter(|_| !encrypted).map(|Resources(count)| count),
        encrypted,
        size: 0,
    })
}

/// Where the serial is in a document, so that it can be replaced. `None` if it is encrypted, or no state.
pub(crate) fn serial_range(document: &[u8]) -> Option<Range<usize>> {
    range_of(document, "serial")
}

/// Where the value of a member is in a document.
fn range_of(document: &[u8], name: &str) -> Option<Range<usize>> {
    let Members(members) = serde_json::from_slice(document).ok()?;
    if members.iter().any(|(key, _)| key == "encrypted_data") {
        return None;
    }
    let (_, value) = members.iter().find(|(key, _)| key == name)?;
    let start = value.get().as_ptr().addr().checked_sub(document.as_ptr().addr())?;
    Some(start..start + value.get().len())
}

/// Whether a document has an empty lineage: its tool has never reached the backend. It is read in bounded memory.
pub(crate) fn has_empty_lineage(bytes: &mut impl Read) -> bool {
    let mut json = serde_json::Deserializer::from_reader(Guard::cutting(bytes, MAX_DEPTH));
    Fields::deserialize(&mut json).is_ok_and(|fields| {
        fields.encrypted_data.is_none() && fields.lineage.is_some_and(|lineage| lineage.is_empty())
    })
}

/// The document with this lineage in place of its empty one, and with a serial above 0, as terraform itself pushes it. `None` if
/// it has a lineage, or is no state.
pub(crate) fn with_lineage(document: &[u8], lineage: &str) -> Option<Vec<u8>> {
    let (at, serial) = (range_of(document, "lineage")?, range_of(document, "serial")?);
    let is_zero = &document[serial.clone()] == b"0";
    let quoted = format!("\"{lineage}\"");
    let mut parts = [(at.clone(), &*quoted), (serial, "1")];
    parts.sort_by_key(|(range, _)| range.start);
    let (mut changed, mut from) = (Vec::with_capacity(document.len() + quoted.len()), 0);
    for (range, text) in parts.into_iter().filter(|(range, _)| is_zero || *range == at) {
        changed.extend_from_slice(&document[from..range.start]);
        changed.extend_from_slice(text.as_bytes());
        from = range.end;
    }
    changed.extend_from_slice(&document[from..]);
    (&document[at] == b"\"\"").then_some(changed)
}

/// The members of an object in their order, with their values as they are written.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(All)
    }
}

impl<'de> Deserialize<'de> for Resources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Resource {
            mode: Option<String>,
        }
        struct Count;
        impl<'de> Visitor<'de> for Count {
            type Value = Resources;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of resources")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Resources, A::Error> {
                let mut count = 0;
                while let Some(Resource { mode }) = list.next_element()? {
                    count += u64::from(mode.as_deref() == Some("managed"));
                }
                Ok(Resources(count))
            }
        }
        deserializer.deserialize_seq(Count)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Skipped;
        impl<'de> Visitor<'de> for Skipped {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_enum<A: EnumAccess<'de>>(self, text: A) -> Result<Text, A::Error> {
                let (IgnoredAny, rest) = text.variant()?;
                rest.unit_variant().map(|()| Text)
            }
        }
        // As a variant of an enum, a text is skipped without being kept in memory.
        deserializer.deserialize_enum("text", &[], Skipped)
    }
}

/// What is wrong with the JSON, without a quotation of it: a state has secrets.
fn reason(error: &serde_json::Error, seen: &Seen) -> String {
    match seen.limit.get() {
        Some(Limit::Depth) => return format!("it has more than {MAX_DEPTH} levels"),
        Some(Limit::Number | Limit::Syntax) => {
            return format!("invalid JSON at byte {}", seen.offset.get());
        }
        None => {}
    }
    let place = format!("line {}, column {}", error.line(), error.column());
    match error.classify() {
        serde_json::error::Category::Eof => "it ends too early".to_owned(),
        serde_json::error::Category::Io => "it could not be read".to_owned(),
        serde_json::error::Category::Syntax => format!("invalid JSON at {place}"),
        serde_json::error::Category::Data => format!("another value than a state has at {place}"),
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt as _;

    use super::*;

    const STATE: &str = "{\n  \"version\": 4,\n  \"terraform_version\": \"1.11.4\",\n  \"serial\": 7,\n  \"lineage\": \"a-b\",\n  \
        \"outputs\": {\"x\": {\"value\": 12345678901234567890123, \"type\": \"number\"}},\n  \"resources\": [{\"mode\": \"managed\", \
        \"type\": \"a\"}, {\"mode\": \"data\"}, {\"mode\": \"managed\"}]\n}\n";

    fn parse(text: &str) -> Result<StateDocument, InvalidState> {
        read(&mut text.as_bytes())
    }

    #[test]
    fn serial_lineage_and_resources_are_read() {
        let document = parse(STATE).unwrap();
        assert_eq!((document.serial, &*document.lineage), (7, "a-b"));
        assert_eq!((document.resources, document.encrypted), (Some(2), false));
        assert_eq!(document.terraform_version.as_deref(), Some("1.11.4"));
        let encrypted = r#"{"serial":3,"lineage":"l","meta":{},"encrypted_data":"x","encryption_version":"v0"}"#;
        let document = parse(encrypted).unwrap();
        assert_eq!((document.serial, document.resources, document.encrypted), (3, None, true));
    }

    #[test]
    fn older_formats_have_modules_and_the_highest_serial_is_accepted() {
        let older = r#"{"version":3,"serial":1,"lineage":"l","modules":[{"path":["root"]}]}"#;
        assert_eq!(parse(older).unwrap().resources, None);
        let highest = STATE.replace("\"serial\": 7", "\"serial\": 9223372036854775807");
        assert_eq!(parse(&highest).unwrap().serial, MAX_SERIAL);
    }

    #[test]
    fn what_is_not_a_whole_state_is_refused() {
        for text in [
            "",
            "{",
            "null",
            "[]",
            "{}",
            "x",
            &STATE[..STATE.len() - 3],
            &format!("{STATE}{STATE}"),
            &format!("{STATE}x"),
            &STATE.replace("\"serial\": 7", "\"serial\": -1"),
            &STATE.replace("\"serial\": 7", "\"serial\": 1.5"),
            &STATE.replace("\"serial\": 7", "\"serial\": 7, \"serial\": 8"),
            &STATE.replace("\"lineage\"", "\"line\""),
            &STATE.replace("a-b", ""),
            &STATE.replace("a-b", &"a".repeat(257)),
            &STATE.replace("\"version\": 4", "\"version\": 5"),
            &STATE.replace("\"resources\"", "\"things\""),
            &STATE.replace("\"resources\"", "\"modules\""),
            &STATE.replace("\"serial\": 7", "\"serial\": 9223372036854775808"),
            &STATE.replace("\"serial\": 7", "\"serial\": 18446744073709551615"),
            r#"{"version":4,"serial":1,"lineage":"l","modules":1}"#,
            r#"{"version":4,"serial":1,"lineage":"l","modules":[]}"#,
            r#"{"version":4,"serial":1,"lineage":"l","resources":null}"#,
            r#"{"version":4,"serial":1,"lineage":"l","resources":{}}"#,
            r#"{"version":3,"serial":1,"lineage":"l","modules":{}}"#,
            r#"{"version":3,"serial":1,"lineage":"l","resources":[]}"#,
            r#"{"version":4,"serial":1,"lineage":"l","encrypted_data":1}"#,
            r#"{"version":4,"serial":1,"lineage":"l","encrypted_data":{}}"#,
            r#"{"version":4,"serial":1,"lineage":"l","encrypted_data":null}"#,
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with("the body is not a whole state: "), "{text}: {error}");
            assert!(!error.contains("a-b"), "{error}");
        }
    }

    #[test]
    fn of_long_strings_only_the_beginning_is_kept() {
        // Invalid UTF-8 where the parser would notice it in a string that it keeps.
        let long = |end: &[u8]| [&b"a".repeat(5000)[..], end].concat();
        let with = |of: &str, end: &[u8]| {
            let (before, after) = STATE.split_once(of).unwrap();
            let document = [before.as_bytes(), &long(end), after.as_bytes()].concat();
            read(&mut &document[..]).map_err(|error| error.to_string())
        };
        for end in [&b"\xff"[..], b""] {
            assert!(with("a-b", end).unwrap_err().contains("`lineage` is longer"));
            assert!(with("1.11.4", end).unwrap_err().contains("`terraform_version` is longer"));
            assert_eq!(with("outputs", end).unwrap().resources, Some(2));
            assert_eq!(with("data", end).unwrap().resources, Some(2));
        }
        for end in [&b"\n"[..], b"\\x"] {
            assert!(with("outputs", end).unwrap_err().contains("invalid JSON at byte "));
        }
    }

    #[test]
    fn the_version_of_the_tool_and_the_depth_have_limits() {
        let version = |length: usize| STATE.replace("1.11.4", &"1".repeat(length));
        assert!(parse(&version(64)).is_ok());
        assert!(parse(&version(65)).unwrap_err().to_string().contains("`terraform_version`"));
        let nested = |levels: usize| {
            let value = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            STATE.replace("\"number\"", &value)
        };
        assert!(parse(&nested(MAX_DEPTH - 3)).is_ok());
        assert!(parse(&nested(MAX_DEPTH - 2)).unwrap_err().to_string().contains("10000 levels"));
    }

    #[test]
    fn only_the_serial_is_found() {
        let range = serial_range(STATE.as_bytes()).unwrap();
        assert_eq!(&STATE[range.start - 10..range.end], "\"serial\": 7");
        let nested = r#"{"a": {"serial": 1}, "serial" : 23}"#;
        assert_eq!(&nested[serial_range(nested.as_bytes()).unwrap()], "23");
        assert_eq!(serial_range(b"{\"serial\":1,\"encrypted_data\":\"x\"}"), None);
        assert_eq!(serial_range(b"[]"), None);
    }

    #[test]
    fn only_an_empty_lineage_is_replaced() {
        let of = |serial: u64, lineage: &str| {
            format!(r#"{{"serial": {serial}, "a": {{"lineage": ""}}, "lineage": "{lineage}"}}"#)
        };
        for (serial, expected) in [(0, 1), (1, 1), (10, 10)] {
            let document = of(serial, "");
            assert!(has_empty_lineage(&mut document.as_bytes()));
            let changed = with_lineage(document.as_bytes(), "l").unwrap();
            assert_eq!(String::from_utf8(changed).unwrap(), of(expected, "l"));
        }
        let lineage_first = with_lineage(br#"{"lineage":"","serial":0,"x":1}"#, "l").unwrap();
        assert_eq!(lineage_first, br#"{"lineage":"l","serial":1,"x":1}"#);
        for other in [&of(1, "m"), r#"{"serial": 1, "lineage": "", "encrypted_data": "x"}"#, "[]"] {
            assert!(!has_empty_lineage(&mut other.as_bytes()), "{other}");
            assert_eq!(with_lineage(other.as_bytes(), "l"), None, "{other}");
        }
    }

    async fn place() -> Lease {
        let memory = crate::transport::memory::Memory::unlimited();
        memory.take(&"a".into(), READER, std::time::Duration::ZERO).await.unwrap()
    }

    #[tokio::test]
    async fn a_body_is_checked_while_it_passes() {
        let pieces = |text: &'static str| {
            stream::iter(
                text.as_bytes()
                    .chunks(5)
                    .map(|piece| Ok(Bytes::from_static(piece)))
                    .collect::<Vec<_>>(),
            )
        };
        let (body, document) =
            inspected(pieces(STATE), Some(Md5::digest(STATE).into()), place().await);
        let passed: Vec<Bytes> = body.try_collect().await.unwrap();
        assert_eq!(passed.concat(), STATE.as_bytes());
        assert_eq!(document.await.unwrap().size, STATE.len() as u64);
        for (text, md5) in [(&STATE[..40], None), (STATE, Some([0; 16]))] {
            let (body, document) = inspected(pieces(text), md5, place().await);
            let error = body.try_collect::<Vec<_>>().await.unwrap_err();
            assert!(error.is::<InvalidState>(), "{error}");
            document.await.unwrap_err();
        }
    }
}
