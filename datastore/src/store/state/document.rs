//! State documents: whether bytes are one, and what the datastore must know of it.
//!
//! A document is read while it streams in, on another thread, in bounded memory. Format 4 is terraform's since 0.12 and
//! tofu's; a state that tofu has encrypted has `encrypted_data` instead of its content, with serial and lineage beside it.

use std::fmt;
use std::io::{self, Read};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Buf as _, Bytes};
use futures::{Stream, StreamExt as _, stream};
use md5::{Digest as _, Md5};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::store::error::BoxError;

/// Pieces of a body that wait until they are read.
const AHEAD: usize = 4;

/// The longest lineage; terraform's is a UUID.
const MAX_LINEAGE: usize = 256;

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
    modules: Option<IgnoredAny>,
    encrypted_data: Option<IgnoredAny>,
}

/// The number of managed resources in a list.
struct Resources(u64);

/// Passes the pieces of a body on, and reads them as a state. The stream ends with an error, [`InvalidState`] in a box, if they
/// are not one, or if their MD5 digest is not this one. Otherwise the document is sent before the stream ends.
pub(crate) fn inspected(
    body: impl Stream<Item = Result<Bytes, BoxError>> + Send + Unpin + 'static,
    md5: Option<[u8; 16]>,
) -> (
    impl Stream<Item = Result<Bytes, BoxError>> + Send + Unpin + 'static,
    tokio::sync::oneshot::Receiver<StateDocument>,
) {
    let (found, document) = tokio::sync::oneshot::channel();
    let (pieces, receiver) = mpsc::channel(AHEAD);
    let reading =
        tokio::task::spawn_blocking(move || read(&mut Pieces { receiver, piece: Bytes::new() }));
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

/// The pieces of a body as a reader, which blocks until the next one comes.
struct Pieces {
    receiver: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let Some(piece) = self.receiver.blocking_recv() else { return Ok(0) };
            self.piece = piece;
        }
        let length = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

/// Reads a state document. Its `size` is not known here.
fn read(bytes: &mut impl Read) -> Result<StateDocument, InvalidState> {
    let mut json =
        serde_json::Deserializer::from_reader(io::BufReader::with_capacity(64 << 10, bytes));
    let fields = Fields::deserialize(&mut json).and_then(|fields| json.end().map(|()| fields));
    let fields = fields.map_err(|error| InvalidState(reason(&error)))?;
    let encrypted = fields.encrypted_data.is_some();
    let missing = |name: &str| InvalidState(format!("`{name}` is missing"));
    if !encrypted {
        match fields.version {
            Some(1..=4) => {}
            Some(version) => {
                return Err(InvalidState(format!(
                    "it has the format {version}; 4 is the newest known one"
                )));
            }
            None => return Err(missing("version")),
        }
        if fields.resources.is_none() && fields.modules.is_none() {
            return Err(missing("resources"));
        }
    }
    let lineage =
        fields.lineage.filter(|lineage| !lineage.is_empty()).ok_or_else(|| missing("lineage"))?;
    if lineage.len() > MAX_LINEAGE {
        return Err(InvalidState("`lineage` is longer than 256 bytes".to_owned()));
    }
    Ok(StateDocument {
        serial: fields.serial.ok_or_else(|| missing("serial"))?,
        lineage,
        terraform_version: fields.terraform_version.filter(|_| !encrypted),
        resources: fields.resources.filter(|_| !encrypted).map(|Resources(count)| count),
        encrypted,
        size: 0,
    })
}

/// The document with another serial, and otherwise byte for byte the same values. `None` if it is encrypted, or no state.
pub(crate) fn with_serial(document: &[u8], serial: u64) -> Option<Vec<u8>> {
    let Members(members) = serde_json::from_slice(document).ok()?;
    let has = |name: &str| members.iter().any(|(key, _)| key == name);
    if !has("serial") || has("encrypted_data") {
        return None;
    }
    let members = members.iter().map(|(key, value)| {
        let key = serde_json::to_string(key).unwrap_or_default();
        let value = if key == "\"serial\"" { serial.to_string() } else { value.get().to_owned() };
        format!("  {key}: {value}")
    });
    let members = members.collect::<Vec<_>>().join(",\n");
    Some(format!("{{\n{members}\n}}\n").into_bytes())
}

/// The members of an object in their order, with their values as they are written.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
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

            fn visit_unit<E>(self) -> Result<Resources, E> {
                Ok(Resources(0))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Resources, A::Error> {
                let mut count = 0;
                while let Some(Resource { mode }) = list.next_element()? {
                    count += u64::from(mode.as_deref() == Some("managed"));
                }
                Ok(Resources(count))
            }
        }
        deserializer.deserialize_any(Count)
    }
}

/// What is wrong with the JSON, without a quotation of it: a state has secrets.
fn reason(error: &serde_json::Error) -> String {
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
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with("the body is not a whole state: "), "{text}: {error}");
            assert!(!error.contains("a-b"), "{error}");
        }
    }

    #[test]
    fn only_the_serial_changes() {
        let changed = with_serial(STATE.as_bytes(), 4711).unwrap();
        assert_eq!(String::from_utf8(changed).unwrap(), STATE.replace(": 7", ": 4711"));
        assert_eq!(with_serial(b"{\"serial\":1,\"encrypted_data\":\"x\"}", 2), None);
        assert_eq!(with_serial(b"[]", 2), None);
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
        let (body, document) = inspected(pieces(STATE), Some(Md5::digest(STATE).into()));
        let passed: Vec<Bytes> = body.try_collect().await.unwrap();
        assert_eq!(passed.concat(), STATE.as_bytes());
        assert_eq!(document.await.unwrap().size, STATE.len() as u64);
        for (text, md5) in [(&STATE[..40], None), (STATE, Some([0; 16]))] {
            let (body, document) = inspected(pieces(text), md5);
            let error = body.try_collect::<Vec<_>>().await.unwrap_err();
            assert!(error.is::<InvalidState>(), "{error}");
            document.await.unwrap_err();
        }
    }
}
