//! Reads fields of messages in the format of protocol buffers.
//!
//! Only what a plan file has: numbers and bytes. Memory is bounded by the fields that are read; others are skipped.

use std::io::{self, Read};
use std::ops::ControlFlow;

/// A field that is read has no more bytes, nor have all fields of one number.
const MAX_FIELD: u64 = 1 << 20;

/// The value of a field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The bytes of the first field with this number in a message.
pub(super) fn find(message: impl Read, field: u64) -> io::Result<Option<Vec<u8>>> {
    Ok(fields(message, field, 1)?.pop())
}

/// The bytes of the first fields with this number in a message, at most `limit`.
pub(super) fn fields(message: impl Read, field: u64, limit: usize) -> io::Result<Vec<Vec<u8>>> {
    let (mut found, mut all) = (Vec::new(), 0);
    each(message, &[field], MAX_FIELD, |_, value| {
        let Value::Bytes(bytes) = value else { return Err(io::ErrorKind::InvalidData.into()) };
        all += bytes.len() as u64;
        if all > MAX_FIELD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        found.push(bytes);
        let is_enough = found.len() == limit;
        Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// Passes on the fields with these numbers, in their order, until `pass` breaks. One of more than `max` bytes is an error.
pub(super) fn each(
    message: impl Read,
    wanted: &[u64],
    max: u64,
    mut pass: impl FnMut(u64, Value) -> io::Result<ControlFlow<()>>,
) -> io::Result<()> {
    let mut message = io::BufReader::new(message);
    let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
    while let Some(tag) = varint(&mut message)? {
        let (field, kind) = (tag >> 3, tag & 7);
        let is_wanted = wanted.contains(&field);
        let length = match kind {
            0 => {
                let number = varint(&mut message)?.ok_or_else(end)?;
                if is_wanted && pass(field, Value::Number(number))?.is_break() {
                    return Ok(());
                }
                continue;
            }
            1 => 8,
            2 => varint(&mut message)?.ok_or_else(end)?,
            5 => 4,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        if !is_wanted {
            let skipped = io::copy(&mut (&mut message).take(length), &mut io::sink())?;
            if skipped < length {
                return Err(end());
            }
            continue;
        }
        if kind != 2 || length > max {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = Vec::new();
        (&mut message).take(length).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < length {
            return Err(end());
        }
        if pass(field, Value::Bytes(bytes))?.is_break() {
            return Ok(());
        }
    }
    Ok(())
}

/// A number; `None` at the end.
fn varint(message: &mut impl Read) -> io::Result<Option<u64>> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        if message.read(&mut byte)? == 0 {
            let whole = shift == 0;
            return if whole { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        number |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            return Ok(Some(number));
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_field_is_found_behind_others() {
        // A number, fixed 32 and 64 bits, another field, then 13.
        let message = b"\x08\x96\x01\x15abcd\x19abcdefgh\x12\x02hi\x6a\x03yes\x6a\x02no";
        assert_eq!(find(&message[..], 13).unwrap().unwrap(), b"yes");
        assert_eq!(find(&message[..], 14).unwrap(), None);
        let mut found = Vec::new();
        let record = |field, value| {
            found.push((field, value));
            Ok(ControlFlow::Continue(()))
        };
        each(&message[..], &[1, 13], 3, record).unwrap();
        let [yes, no] = [&b"yes"[..], b"no"].map(|text| (13, Value::Bytes(text.to_vec())));
        assert_eq!(found, [(1, Value::Number(150)), yes, no]);
        each(&message[..], &[13], 2, |_, _| Ok(ControlFlow::Continue(()))).unwrap_err();
        assert!(find(&message[..20], 13).is_err());
        assert!(find(&b"\x6a\x05yes"[..], 13).is_err());
        assert!(find(&b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"[..], 13).is_err());
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_are_it_returns(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(find(&*bytes, 13));
        }
    }
}
