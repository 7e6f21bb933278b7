//! Converts the `MessagePack` values of a plan file to JSON, so that they are read like init's record and the JSON of a plan.

use serde_json::{Map, Value};

/// The maximal nesting of values.
const MAX_DEPTH: u32 = 120;
/// The type of the extension for a value that is not known yet, and is known in part: a map.
const REFINED: u64 = 12;
/// The key in that map of how a text begins.
const PREFIX: u64 = 2;

/// The value at the beginning of `bytes`. `None`: it is cut off, or too deep. Values that JSON does not
/// have (binary, not yet known) become null; a text whose beginning is known becomes that beginning.
pub(super) fn value(mut bytes: &[u8]) -> Option<Value> {
    next(&mut bytes, MAX_DEPTH)
}

fn next(bytes: &mut &[u8], depth: u32) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let kind = number(bytes, 1)?;
    Some(match kind {
        0x00..=0x7f => kind.into(),
        0xe0..=0xff => (i64::try_from(kind).ok()? - 256).into(),
        0x80..=0x8f => map(bytes, kind & 0x0f, depth)?,
        0xde => counted(bytes, 2, depth, map)?,
        0xdf => counted(bytes, 4, depth, map)?,
        0x90..=0x9f => array(bytes, kind & 0x0f, depth)?,
        0xdc => counted(bytes, 2, depth, array)?,
        0xdd => counted(bytes, 4, depth, array)?,
        0xa0..=0xbf => text(take(bytes, kind & 0x1f)?)?,
        0xd9 => text(sized(bytes, 1, 0)?)?,
        0xda => text(sized(bytes, 2, 0)?)?,
        0xdb => text(sized(bytes, 4, 0)?)?,
        0xc2 => false.into(),
        0xc3 => true.into(),
        0xcc => number(bytes, 1)?.into(),
        0xcd => number(bytes, 2)?.into(),
        0xce => number(bytes, 4)?.into(),
        0xcf => number(bytes, 8)?.into(),
        0xc7 => extension(sized(bytes, 1, 1)?),
        0xc8 => extension(sized(bytes, 2, 1)?),
        0xc9 => extension(sized(bytes, 4, 1)?),
        0xd4..=0xd8 => extension(take(bytes, (1 << (kind - 0xd4)) + 1)?),
        _ => {
            skip(bytes, kind)?;
            Value::Null
        }
    })
}

/// An extension: the byte of its type, which its length does not count, and its content.
fn extension(mut bytes: &[u8]) -> Value {
    if number(&mut bytes, 1) == Some(REFINED) { prefix(bytes) } else { None }.unwrap_or_default()
}

/// How an unknown text begins, if that is known.
fn prefix(mut bytes: &[u8]) -> Option<Value> {
    let kind = number(&mut bytes, 1)?;
    for _ in 0..kind & 0x0f {
        let key = number(&mut bytes, 1)?;
        let value = next(&mut bytes, 2)?;
        if key == PREFIX {
            return Some(value);
        }
    }
    None
}

/// Nil, and values that no setting and no search needs: binary, fractions, long negative numbers.
fn skip(bytes: &mut &[u8], kind: u64) -> Option<()> {
    match kind {
        0xc0 => Some(()),
        0xc4 => sized(bytes, 1, 0).map(drop),
        0xc5 => sized(bytes, 2, 0).map(drop),
        0xc6 => sized(bytes, 4, 0).map(drop),
        0xca | 0xd2 => take(bytes, 4).map(drop),
        0xcb | 0xd3 => take(bytes, 8).map(drop),
        0xd0 => take(bytes, 1).map(drop),
        0xd1 => take(bytes, 2).map(drop),
        _ => None,
    }
}

fn take<'a>(bytes: &mut &'a [u8], count: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(count).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// An unsigned number of this many bytes, the highest first.
fn number(bytes: &mut &[u8], width: u64) -> Option<u64> {
    Some(take(bytes, width)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn sized<'a>(bytes: &mut &'a [u8], width: u64, more: u64) -> Option<&'a [u8]> {
    let count = number(bytes, width)?;
    take(bytes, count + more)
}

fn counted(
    bytes: &mut &[u8],
    width: u64,
    depth: u32,
    read: fn(&mut &[u8], u64, u32) -> Option<Value>,
) -> Option<Value> {
    let count = number(bytes, width)?;
    read(bytes, count, depth)
}

fn text(bytes: &[u8]) -> Option<Value> {
    std::str::from_utf8(bytes).ok().map(Value::from)
}

fn array(bytes: &mut &[u8], count: u64, depth: u32) -> Option<Value> {
    (0..count).map(|_| next(bytes, depth)).collect::<Option<Vec<_>>>().map(Value::Array)
}

fn map(bytes: &mut &[u8], count: u64, depth: u32) -> Option<Value> {
    let mut map = Map::new();
    for _ in 0..count {
        let key = next(bytes, depth)?;
        map.insert(key.as_str()?.to_owned(), next(bytes, depth)?);
    }
    Some(Value::Object(map))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_backends_settings_are_made_of() {
        let long = "x".repeat(300);
        let bytes = [
            &b"\x89\xa4path\xa9x.tfstate\xa1n\xc0\xa1t\xc3\xa1i\x07\xa1m\xff\xa1u\xcd\x01\x00"[..],
            b"\xa1l\x91\x81\xa4name\xa2ws\xa1?\xd4\x00\x00\xa1s\xda\x01\x2c",
            long.as_bytes(),
        ];
        let expected = json!({
            "path": "x.tfstate", "n": null, "t": true, "i": 7, "m": -1, "u": 256,
            "l": [{"name": "ws"}], "?": null, "s": long,
        });
        assert_eq!(value(&bytes.concat()), Some(expected));
    }

    #[test]
    fn unknown_text_is_how_it_begins_if_that_is_known() {
        // Not null, with a prefix; then not null.
        let bytes = b"\x92\xc7\x08\x0c\x82\x01\xc2\x02\xa3/a/\xc7\x03\x0c\x81\x01\xc2";
        assert_eq!(value(bytes), Some(json!(["/a/", null])));
    }

    #[test]
    fn what_is_cut_off_or_too_deep_is_none() {
        assert_eq!(value(b""), None);
        assert_eq!(value(b"\x81\xa4pat"), None);
        assert_eq!(value(b"\xdd\xff\xff\xff\xff"), None);
        assert_eq!(value(&[0x91; 200]), None);
        assert_eq!(value(b"\xc1"), None);
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_are_it_returns(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(value(&bytes));
        }
    }
}
